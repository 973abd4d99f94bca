"""The tools that keep agents: saved, loaded, listed, deleted."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from .answers import (
    NOTE,
    Data,
    OperationSeen,
    SessionLine,
    ToolAnswer,
    cut,
    fitting_values,
    operation,
    session_lines,
    when,
)
from .bound import BoundStore
from .digests import digest_of, require, sessions_of
from .parameters import AgentId, Cursor, Digest, Limit

_SHOWN = 20


class Saved(ToolAnswer, frozen=True, kw_only=True):
    """An agent was saved."""

    agent: str
    version: int
    created: bool


class AgentLoaded(Data, frozen=True, kw_only=True, omit_defaults=True):
    """An agent with its state; ``left_out`` names keys of the state whose values are too long, for ``get_state``."""

    agent: str
    version: int
    name: str = ""
    type: str = ""
    system_prompt: str = ""
    capabilities: list[str] = msgspec.field(default_factory=list)
    config: dict[str, Any] = msgspec.field(default_factory=dict)
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    state: dict[str, Any] = msgspec.field(default_factory=dict)
    left_out: list[str] = msgspec.field(default_factory=list)
    created_at: str
    modified_at: str


class AgentLine(ToolAnswer, frozen=True, kw_only=True, omit_defaults=True):
    """An agent in a list."""

    agent: str
    name: str = ""
    type: str = ""
    version: int
    modified_at: str


class Agents(Data, frozen=True, kw_only=True, omit_defaults=True):
    """A page of agents."""

    agents: list[AgentLine]
    cursor: str | None = None


class AgentDeletion(Data, frozen=True, kw_only=True, omit_defaults=True):
    """What deleting an agent would do, or the operation that did it."""

    deleted: bool
    digest: str = ""
    sessions: list[SessionLine] = msgspec.field(default_factory=list)
    more_sessions: bool = False
    operation: OperationSeen | None = None


def agent_save(
    here: BoundStore,
    agent: AgentId,
    name: Annotated[str, Meta(description="The agent's name for people.")] | None = None,
    type: Annotated[str, Meta(description="What kind of agent it is, in a word.")] | None = None,
    system_prompt: Annotated[str, Meta(description="The prompt that begins each of its conversations.")] | None = None,
    capabilities: Annotated[list[str], Meta(description="What it can do, a word or phrase each.")] | None = None,
    config: Annotated[dict[str, Any], Meta(description="Its settings; replaces all of them.")] | None = None,
    metadata: Annotated[dict[str, Any], Meta(description="Other data; replaces all of it.")] | None = None,
    state: Annotated[dict[str, Any], Meta(description="Keys of its state to set; other keys keep their values.")]
    | None = None,
    expected_version: Annotated[
        int, Meta(description="Save only if the agent has this version; 0 means that it must be new.", ge=0)
    ]
    | None = None,
) -> Saved:
    """Save an agent: make it if it is new, else change what is given and keep the rest.

    The agent's fields and its state are stored in one step. Each change makes a new version of the agent.
    """
    given = {
        "name": name,
        "type": type,
        "system_prompt": system_prompt,
        "capabilities": capabilities,
        "config": config,
        "metadata": metadata,
    }
    fields: dict[str, Any] = {field: value for field, value in given.items() if value is not None}
    is_new = here.store.find_agent(agent) is None
    saved = here.store.save_agent(agent, state=state, expected_version=expected_version, **fields)
    return Saved(agent=saved.id, version=saved.version, created=is_new)


def agent_load(here: BoundStore, agent: AgentId) -> AgentLoaded:
    """Load an agent: its fields and its state."""
    found = here.store.get_agent(agent)
    version, state = found.state.read()
    shown, left_out = fitting_values(state)
    return AgentLoaded(
        note=NOTE,
        agent=found.id,
        version=version,
        name=cut(found.name),
        type=cut(found.type),
        system_prompt=cut(found.system_prompt, 20_000),
        capabilities=[cut(each) for each in found.capabilities],
        config=fitting_values(found.config)[0],
        metadata=fitting_values(found.metadata)[0],
        state=shown,
        left_out=left_out,
        created_at=when(found.created_at),
        modified_at=when(found.modified_at),
    )


def agent_list(here: BoundStore, limit: Limit = 20, cursor: Cursor = None) -> Agents:
    """List the agents of this store in the order of their ids."""
    found = here.store.list_agents(limit=limit, cursor=cursor)
    lines = [
        AgentLine(
            agent=each.id,
            name=cut(each.name),
            type=cut(each.type),
            version=each.version,
            modified_at=when(each.modified_at),
        )
        for each in found
    ]
    return Agents(note=NOTE, agents=lines, cursor=found.cursor)


def agent_delete(here: BoundStore, agent: AgentId, digest: Digest = None) -> AgentDeletion:
    """Delete an agent with all its sessions: they go to the trash, and undo_operation brings them back.

    In two steps: called without a digest it only lists what would go.
    """
    found = here.store.get_agent(agent)
    owned = [*sessions_of(here.store, agent)]
    now = digest_of("agent_delete", agent, found.version, owned)
    if digest is not None:
        require(digest, now, f"deleting agent {agent!r}")
        done = here.store.delete_agent(agent)
        return AgentDeletion(note=NOTE, deleted=True, operation=None if done is None else operation(done))
    shown = here.store.list_sessions(agent=agent, archived=None, limit=_SHOWN)
    return AgentDeletion(
        note=NOTE, deleted=False, digest=now, sessions=session_lines(shown), more_sessions=shown.cursor is not None
    )
