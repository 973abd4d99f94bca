"""Checkpoints: named points of a session.

A checkpoint is one small row that names an entry; state of work and totals are found from there, so it costs
the same at any length. Its hash is that of the entry, which covers everything before it.
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import Corrupt, NotFound
from ..ids import new_id
from ..model.checkpoint import Checkpoint
from ..model.entry import Numbers
from ..model.session import Head, Stats
from ..storage.base import Row, Tx, row_check
from . import branches, entries, feed, operations, sessions, snapshots, work
from .sessions import SessionRow

COLUMNS = "cid, scope, id, session, name, description, type, at_ms, branch, seq, hash, chk"
INSERT = f"INSERT INTO checkpoint ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
GET = f"SELECT {COLUMNS} FROM checkpoint WHERE cid = ?"
BY_ID = f"SELECT {COLUMNS} FROM checkpoint WHERE scope = ? AND id = ?"
BY_NAME = f"SELECT {COLUMNS} FROM checkpoint WHERE scope = ? AND session = ? AND name = ? ORDER BY cid DESC LIMIT 1"
NEWEST = f"""SELECT {COLUMNS} FROM checkpoint WHERE scope = ? AND session = ? AND seq >= ? AND seq <= ?
ORDER BY cid DESC"""
OF_SESSION = f"SELECT {COLUMNS} FROM checkpoint WHERE scope = ? AND session = ? ORDER BY cid"

TYPES = ("manual", "automatic", "pre-operation", "recovery")


class CheckpointRow(NamedTuple):
    """A row of ``checkpoint``, checked."""

    cid: int
    scope: str
    id: str
    session: int
    name: str
    description: str | None
    type: str
    at_ms: int
    branch: int
    seq: int
    hash: bytes


def checked(row: Row) -> CheckpointRow:
    """Check a row that was read; damage is ``Corrupt``."""
    if row_check(row[:-1]) != row[-1]:
        raise Corrupt(f"the record of checkpoint {row[4]!r} is damaged", what=f"checkpoint {row[2]}")
    return CheckpointRow(*row[:-1])


def create(
    tx: Tx, scope: str, session_id: str, *, name: str | None, description: str | None, type: str, now_ms: int
) -> tuple[SessionRow, CheckpointRow]:
    """Name the head of a session; of several checkpoints with one name the newest is found by it."""
    session = entries.writable(tx, scope, session_id)
    checkpoint_id = new_id(now_ms)
    point = entries.point(tx, session, session.seq)
    owner = branches.owner(tx, branches.get(tx, session.branch), session.seq) if session.seq else None
    branch = owner.bid if owner is not None and owner.session == session.sid else session.branch
    row = CheckpointRow(
        tx.next("checkpoint"),
        scope,
        checkpoint_id,
        session.sid,
        name or checkpoint_id,
        description,
        type,
        now_ms,
        branch,
        point.seq,
        point.hash,
    )
    tx.run(INSERT, (*row, row_check(row)))
    position, rank = feed.record(tx, session, "checkpoint", branch=branch, first=point.seq, last=point.seq)
    return operations.touch(tx, session, position, rank, now_ms, moved=False), row


def find(tx: Tx, session: SessionRow, wanted: str) -> CheckpointRow | None:
    """Give a session's checkpoint by its id, or the newest of that name; None if there is none."""
    row = tx.one(BY_NAME, (session.scope, session.sid, wanted)) or tx.one(BY_ID, (session.scope, wanted))
    if row is None or row[3] != session.sid:
        return None
    return checked(row)


def get(tx: Tx, session: SessionRow, wanted: str) -> CheckpointRow:
    """Give a session's checkpoint by its name or its id."""
    found = find(tx, session, wanted)
    if found is None:
        raise NotFound(f"this session has no checkpoint {wanted!r}; checkpoints() lists them")
    return found


def of_session(tx: Tx, session: SessionRow) -> list[CheckpointRow]:
    """Give a session's checkpoints in the order they were made."""
    return [checked(row) for row in tx.all(OF_SESSION, (session.scope, session.sid))]


def newest_on_path(tx: Tx, session: SessionRow, low: int) -> CheckpointRow | None:
    """Give the last checkpoint that the path of the head holds from an entry on, or None."""
    for row in map(checked, tx.all(NEWEST, (session.scope, session.sid, low, session.seq))):
        if entries.is_on_path(tx, session, branches.get(tx, row.branch).uid, row.seq):
            return row
    return None


def point(tx: Tx, row: CheckpointRow) -> entries.Point:
    """Give the point that a checkpoint names, verified against its hash."""
    found = entries.point_on(tx, row.scope, branches.get(tx, row.branch), row.seq)
    if found.hash != row.hash:
        raise Corrupt(f"checkpoint {row.name!r} does not match the entry it names", what=f"checkpoint {row.id}")
    return found


def seen_from(tx: Tx, session: SessionRow, row: CheckpointRow) -> SessionRow:
    """Give the session as it stood at a checkpoint."""
    place = point(tx, row)
    return sessions.standing_at(session, branches.get(tx, row.branch), place.seq, place.numbers)


def as_value(tx: Tx, session: SessionRow, row: CheckpointRow) -> Checkpoint:
    """Show a checkpoint to callers; its size is what its row and the files of its snapshot take by themselves."""
    there = seen_from(tx, session, row)
    taken = work.latest(tx, there, snapshots.KIND)
    root = None if taken is None else snapshots.read_root(tx, session.scope, taken.body["root"])
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
        state_version=work.state_version(work.latest(tx, there, "state")),
        size_bytes=own + (0 if root is None else root.size),
        checksum=row.hash.hex(),
        stats=Stats.from_numbers(Numbers._make(there.numbers), started_ms=session.created_ms),
        tree=None if root is None else root.tree.hex(),
        not_captured=() if root is None else tuple(snapshots.missed(root)),
    )


def by_number(tx: Tx, cid: int) -> CheckpointRow:
    """Give a checkpoint that must exist by its local number."""
    row = tx.one(GET, (cid,))
    if row is None:
        raise NotFound("the checkpoint that this call made was deleted since")
    return checked(row)
