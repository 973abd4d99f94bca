"""The tools that keep checkpoints, of agents and of sessions."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ..errors import Invalid
from .answers import (
    NOTE,
    CheckpointSeen,
    Data,
    OperationSeen,
    SessionLine,
    checkpoint,
    operation,
    session_lines,
)
from .bound import BoundStore
from .digests import digest_of, require, sessions_of
from .parameters import AgentId, Cursor, Digest, Limit, MaybeAgent, MaybeSession, Name, SessionRef

CheckpointId = Annotated[str, Meta(description="The checkpoint's id.", min_length=1)]
Description = Annotated[str, Meta(description="Why it is taken, in a sentence.", max_length=2000)] | None
_SHOWN = 20


class CheckpointMade(Data, frozen=True, kw_only=True):
    """A checkpoint was taken."""

    checkpoint: CheckpointSeen


class Checkpoints(Data, frozen=True, kw_only=True, omit_defaults=True):
    """A page of checkpoints."""

    checkpoints: list[CheckpointSeen]
    cursor: str | None = None


class Restoring(Data, frozen=True, kw_only=True, omit_defaults=True):
    """What restoring a checkpoint would do, or that it was done."""

    restored: bool
    digest: str = ""
    checkpoint: CheckpointSeen
    agent_version: int
    sessions_changed_since: list[SessionLine] = msgspec.field(default_factory=list)
    more_sessions: bool = False
    operation: OperationSeen | None = None


class CheckpointDeletion(Data, frozen=True, kw_only=True, omit_defaults=True):
    """Which checkpoint would be erased, or that it was."""

    deleted: bool
    digest: str = ""
    checkpoint: CheckpointSeen | None = None


def checkpoint_create(
    here: BoundStore, agent: AgentId, name: Name = None, description: Description = None
) -> CheckpointMade:
    """Take a checkpoint of an agent: its fields, its state, and where all its sessions are now.

    It holds no files; create_checkpoint takes one of a session, with its files.
    """
    made = here.store.checkpoint_agent(agent, name, description=description)
    return CheckpointMade(note=NOTE, checkpoint=checkpoint(made))


def create_checkpoint(
    here: BoundStore,
    session: SessionRef,
    name: Name = None,
    description: Description = None,
    files: Annotated[bool, Meta(description="Whether to keep the files of its directory; true by default.")] = True,
) -> CheckpointMade:
    """Take a checkpoint of a session: its conversation, tasks, plan, state, sub-agents and files, to come back to."""
    made = here.session(session).checkpoint(name, description=description, files=files)
    return CheckpointMade(note=NOTE, checkpoint=checkpoint(made))


def checkpoint_list(
    here: BoundStore, agent: MaybeAgent = None, session: MaybeSession = None, limit: Limit = 20, cursor: Cursor = None
) -> Checkpoints:
    """List the checkpoints of an agent or of a session, the newest first. Name one of the two."""
    found = here.store.list_checkpoints(here.holder(session, agent), limit=limit, cursor=cursor, newest=True)
    return Checkpoints(note=NOTE, checkpoints=[checkpoint(each) for each in found], cursor=found.cursor)


def checkpoint_restore(here: BoundStore, checkpoint: CheckpointId, digest: Digest = None) -> Restoring:
    """Bring an agent back to a checkpoint of it: its fields, its state and its conversations, not its files.

    In two steps: called without a digest it only says what would change. A checkpoint of the agent as it is now is
    taken first, and undo_operation takes the restoring back. For a checkpoint of a session use preview_rewind and
    apply_rewind with the point SESSION:CHECKPOINT.
    """
    return _restoring(here, checkpoint, digest)


def _restoring(here: BoundStore, id: str, digest: str | None) -> Restoring:
    found = here.store.get_checkpoint(id)
    if found.session_id or found.agent_id is None:
        raise Invalid(
            f"checkpoint {id!r} is one of a session: go back to it with preview_rewind and then apply_rewind, to the"
            f" point {found.session_id}:{id}"
        )
    agent = here.store.get_agent(found.agent_id)
    now = digest_of("checkpoint_restore", id, agent.version, [*sessions_of(here.store, agent.id)])
    if digest is not None:
        require(digest, now, f"restoring checkpoint {id!r}")
        agent = here.store.restore_checkpoint(found)
        made = next((each for each in here.store.operations(limit=10) if each.agent_id == agent.id), None)
        return Restoring(
            note=NOTE,
            restored=True,
            checkpoint=checkpoint(found),
            agent_version=agent.version,
            operation=None if made is None else operation(made),
        )
    changed = here.store.list_sessions(agent=agent.id, archived=None, since=found.created_at, limit=_SHOWN)
    return Restoring(
        note=NOTE,
        restored=False,
        digest=now,
        checkpoint=checkpoint(found),
        agent_version=agent.version,
        sessions_changed_since=session_lines(changed),
        more_sessions=changed.cursor is not None,
    )


def checkpoint_delete(here: BoundStore, checkpoint: CheckpointId, digest: Digest = None) -> CheckpointDeletion:
    """Erase a checkpoint of an agent or a session. This cannot be taken back; what it pointed to stays.

    In two steps: called without a digest it only shows the checkpoint.
    """
    return _deleting(here, checkpoint, digest)


def _deleting(here: BoundStore, id: str, digest: str | None) -> CheckpointDeletion:
    found = here.store.get_checkpoint(id)
    now = digest_of("checkpoint_delete", found.id)
    if digest is None:
        return CheckpointDeletion(note=NOTE, deleted=False, digest=now, checkpoint=checkpoint(found))
    require(digest, now, f"erasing checkpoint {id!r}")
    here.store.delete_checkpoint(found)
    return CheckpointDeletion(note=NOTE, deleted=True)
