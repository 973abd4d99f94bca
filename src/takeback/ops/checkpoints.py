"""Checkpoints: named points of a session.

A checkpoint is one small row that names an entry. State of work and totals are found from that entry, so a checkpoint
costs the same at any length. Its hash is the entry's, which covers everything before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import Corrupt
from ..files import roots, snapshots
from ..ids import new_id
from ..model.checkpoint import Checkpoint
from ..model.session import Head, Stats
from ..storage.base import Tx
from ..tables.history import CHECKPOINT
from . import branches, entries, feed, idempotency, operations, sessions, subagent_points, work
from .checkpoint_rows import EVERY as EVERY
from .checkpoint_rows import CheckpointRow as CheckpointRow
from .checkpoint_rows import Portion as Portion
from .checkpoint_rows import by_id as by_id
from .checkpoint_rows import find as find
from .checkpoint_rows import get as get
from .checkpoint_rows import made_by_call as made_by_call
from .checkpoint_rows import newest_on_path as newest_on_path
from .checkpoint_rows import of_session as of_session
from .checkpoint_rows import point as point
from .checkpoint_rows import seen_from as seen_from
from .sessions import SessionRow

if TYPE_CHECKING:
    from .idempotency import ApiCall

TYPES = ("manual", "automatic", "pre-operation", "recovery")


def create(
    tx: Tx, scope: str, session_id: str, *, name: str | None, description: str | None, type: str, now_ms: int
) -> tuple[SessionRow, CheckpointRow]:
    """Name the head of a session; if several checkpoints share a name, it finds the newest."""
    session = entries.writable(tx, scope, session_id)
    checkpoint_id = new_id(now_ms)
    point = entries.point(tx, session, session.seq)
    branch = _branch_at_head(tx, session)
    row = CheckpointRow(
        scope=scope,
        cid=tx.next("checkpoint"),
        id=checkpoint_id,
        session=session.sid,
        name=name or checkpoint_id,
        description=description,
        type=type,
        at_ms=now_ms,
        branch=branch,
        seq=point.seq,
        hash=point.hash,
    )
    CHECKPOINT.put(tx, row)
    position, rank = feed.record(
        tx, session, "checkpoint", branch=branch, first=point.seq, last=point.seq, now_ms=now_ms
    )
    return operations.touch(tx, session, position, rank, now_ms, moved=False), row


def _branch_at_head(tx: Tx, session: SessionRow) -> int:
    """Return the branch that holds the entry at the head; the head's own branch if another session owns the entry."""
    if session.seq == 0 or session.seq > session.fork:
        return session.branch
    owner = branches.owner(tx, branches.get(tx, session.scope, session.branch), session.seq)
    return owner.bid if owner.session == session.sid else session.branch


def value_of(tx: Tx, session: SessionRow, wanted: str) -> Checkpoint:
    """Return a checkpoint of a session by id, or the newest with that name."""
    return as_value(tx, session, get(tx, session, wanted))


def page(tx: Tx, session: SessionRow, portion: Portion) -> tuple[list[Checkpoint], int | None]:
    """Return checkpoints of a session, and where the next page begins."""
    rows, more = of_session(tx, session, portion)
    return [as_value(tx, session, row) for row in rows], more


def create_once(
    tx: Tx, scope: str, session_id: str, call: ApiCall, *, name: str | None, description: str | None, type: str
) -> tuple[SessionRow, Checkpoint]:
    """Name the head of a session, once per idempotency key, after recording where its sub-agents are."""

    def do() -> tuple[tuple[SessionRow, CheckpointRow], str]:
        subagent_points.note(tx, sessions.get(tx, scope, session_id), now_ms=call.now_ms)
        made = create(tx, scope, session_id, name=name, description=description, type=type, now_ms=call.now_ms)
        return made, made[1].id

    def again(made: str) -> tuple[SessionRow, CheckpointRow]:
        session = sessions.get(tx, scope, session_id)
        return session, made_by_call(tx, session, made)

    sid = 0 if call.key is None else sessions.get(tx, scope, session_id).sid
    session, row = idempotency.once(tx, scope, sid, call, kind="checkpoint", do=do, again=again)
    return session, as_value(tx, session, row)


def as_value(tx: Tx, session: SessionRow, row: CheckpointRow) -> Checkpoint:
    """Return a checkpoint as the value callers see; its size is that of its row and of its snapshot's files."""
    there = seen_from(tx, session, row)
    root, missed = _root(tx, there)
    own = sum(len(value) if isinstance(value, str | bytes) else 8 for value in row)
    return Checkpoint(
        id=row.id,
        name=row.name,
        description=row.description,
        type=row.type,
        session_id=session.id,
        agent_id=session.agent,
        at_ms=row.at_ms,
        head=Head(there.uid, row.seq, False),
        state_version=_state_version(tx, there),
        size_bytes=own + (0 if root is None else root.size),
        checksum=row.hash.hex(),
        stats=Stats.from_numbers(there.numbers, started_ms=session.created_ms),
        tree=None if root is None else root.tree.hex(),
        not_captured=missed,
    )


def _root(tx: Tx, there: SessionRow) -> tuple[roots.Root | None, tuple[str, ...]]:
    """Return the files at a point, and what was not captured; if the files are lost, that is reported instead."""
    try:
        taken = work.latest(tx, there, snapshots.KIND)
        if taken is None:
            return None, ()
        root = roots.read(tx, there.scope, taken.body["root"])
        return root, tuple(roots.missed(root))
    except Corrupt as error:
        return None, (f"the files are lost: {error}",)


def _state_version(tx: Tx, there: SessionRow) -> int:
    """Return the version of the state at a point; 0 if it is lost."""
    try:
        return work.state_version(work.latest(tx, there, "state"))
    except work.Lost:
        return 0
