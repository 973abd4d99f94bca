"""The tools that write: sub-agents, messages to other sessions, tasks, state. And the size of the store."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ..errors import NotFound
from ..model.work import Task
from .answers import NOTE, Data, ToolAnswer, cut, fitting_values, line
from .bound import BoundStore
from .history import TaskSeen
from .parameters import MaybeAgent, MaybeSession, SessionRef


class GivenTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A task to set."""

    description: Annotated[str, Meta(description="What is to be done, in a sentence.", min_length=1)]
    status: Literal["pending", "in_progress", "completed", "failed", "skipped"] = "pending"


class SubAgent(ToolAnswer, frozen=True, kw_only=True, omit_defaults=True):
    """A sub-agent was started; somebody has yet to run it."""

    session_id: str
    session_key: str
    run_id: str = ""
    status: str
    message: str


class MessageSent(ToolAnswer, frozen=True, kw_only=True):
    """A message was put into the inbox of a session."""

    message_id: str
    session_id: str
    number: int


class Tasks(Data, frozen=True, kw_only=True):
    """The tasks of a session as they are now."""

    session_id: str
    tasks: list[TaskSeen]


class StateRead(Data, frozen=True, kw_only=True, omit_defaults=True):
    """Values of a state; ``left_out`` names keys whose values are too long to be shown."""

    version: int
    values: dict[str, Any]
    left_out: list[str] = msgspec.field(default_factory=list)


class StateSet(ToolAnswer, frozen=True, kw_only=True):
    """A state was changed, or was so already."""

    version: int


class Statistics(ToolAnswer, frozen=True, kw_only=True):
    """What a store holds."""

    agents: int
    sessions: int
    checkpoints: int
    messages: int
    blobs: int
    total_bytes: int


def spawn_subagent(
    here: BoundStore,
    parent: SessionRef,
    task: Annotated[str, Meta(description="What the sub-agent is to do: its first message.", min_length=1)],
    label: Annotated[str, Meta(description="A label, unique among its siblings.", max_length=200)] | None = None,
    agent: MaybeAgent = None,
    model: Annotated[str, Meta(description="The model that is to run it.")] | None = None,
) -> SubAgent:
    """Start a sub-agent below a session: a session of its own with a task. It waits for a program that runs it."""
    made = here.session(parent).spawn(task, label=label, agent=agent, model=model)
    return SubAgent(
        session_id=made.session.id,
        session_key=cut(made.session_key),
        run_id=made.run_id or "",
        status=made.status,
        message=line(made.message),
    )


def send_message(
    here: BoundStore,
    session: SessionRef,
    text: Annotated[str, Meta(description="What to say.", min_length=1)],
    sender: MaybeSession = None,
) -> MessageSent:
    """Send a message to a session: whoever runs it receives it as a user message, now or when it runs again."""
    to = here.session(session)
    made = to.send(text, sender=None if sender is None else here.session(sender))
    return MessageSent(message_id=made.id, session_id=to.id, number=made.number)


def update_tasks(
    here: BoundStore,
    session: SessionRef,
    tasks: Annotated[list[GivenTask], Meta(description="All tasks, in their order.", max_length=500)],
) -> Tasks:
    """Replace the list of tasks of a session: pass all of them, with their status."""
    found = here.session(session)
    known = found.tasks()
    if [(each.description, each.status) for each in tasks] != [(each.description, each.status) for each in known]:
        ids = {each.description: each.id for each in known}  # a task that stays is the same task
        known = found.set_tasks([Task(each.description, each.status, ids.pop(each.description, "")) for each in tasks])
    seen = [TaskSeen(description=line(each.description), status=each.status) for each in known]
    return Tasks(note=NOTE, session_id=found.id, tasks=seen)


def get_state(
    here: BoundStore,
    session: MaybeSession = None,
    agent: MaybeAgent = None,
    key: Annotated[str, Meta(description="Only the value of this key.")] | None = None,
) -> StateRead:
    """Read the state of a session or of an agent: keys and values that it keeps for itself. Name one of the two.

    The state of a session goes back with a rewind, that of an agent does not.
    """
    version, values = here.holder(session, agent).state.read()
    if key is not None:
        if key not in values:
            near = ", ".join(sorted(values)[:20])
            raise NotFound(f"the state has no key {key!r}; it has: {near}" if near else "the state is empty")
        return StateRead(note=NOTE, version=version, values={key: values[key]})
    shown, left_out = fitting_values(values)
    return StateRead(note=NOTE, version=version, values=shown, left_out=left_out)


def set_state(
    here: BoundStore,
    session: MaybeSession = None,
    agent: MaybeAgent = None,
    values: Annotated[dict[str, Any], Meta(description="Keys to set, with their values.")] | None = None,
    delete: Annotated[list[str], Meta(description="Keys to delete.")] | None = None,
    expected_version: Annotated[int, Meta(description="Change it only if the state has this version.", ge=1)]
    | None = None,
) -> StateSet:
    """Set and delete keys in the state of a session or of an agent, in one step. Name one of the two."""
    state = here.holder(session, agent).state
    return StateSet(version=state.update(values or {}, delete=delete or (), expected_version=expected_version))


def persistence_stats(here: BoundStore) -> Statistics:
    """See what the store holds: how many agents, sessions, checkpoints, messages and contents, and its size."""
    found = here.store.stats()
    return Statistics(
        agents=found.agents,
        sessions=found.sessions,
        checkpoints=found.checkpoints,
        messages=found.messages,
        blobs=found.blobs,
        total_bytes=found.total_bytes,
    )
