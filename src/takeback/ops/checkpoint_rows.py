"""The rows of checkpoints: found by name or id, checked, and the points that they name. ``checkpoints`` makes them."""

from __future__ import annotations

from typing import NamedTuple

from ..errors import Corrupt, NotFound
from ..storage.base import Row, Tx, row_check
from . import branches, log, sessions
from .sessions import SessionRow

COLUMNS = "cid, scope, id, session, name, description, type, at_ms, branch, seq, hash, chk"
GET = f"SELECT {COLUMNS} FROM checkpoint WHERE cid = ?"
BY_ID = f"SELECT {COLUMNS} FROM checkpoint WHERE scope = ? AND id = ?"
BY_NAME = f"SELECT {COLUMNS} FROM checkpoint WHERE scope = ? AND session = ? AND name = ? ORDER BY cid DESC LIMIT 1"
NEWEST = f"""SELECT {COLUMNS} FROM checkpoint WHERE scope = ? AND session = ? AND seq >= ? AND seq <= ?
ORDER BY cid DESC"""
OF_SESSION = f"SELECT {COLUMNS} FROM checkpoint WHERE scope = ? AND session = ? ORDER BY cid"


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
        if log.is_on_path(tx, session, branches.get(tx, row.branch).uid, row.seq):
            return row
    return None


def point(tx: Tx, row: CheckpointRow) -> log.Point:
    """Give the point that a checkpoint names, verified against its hash."""
    found = log.point_on(tx, row.scope, branches.get(tx, row.branch), row.seq)
    if found.hash != row.hash:
        raise Corrupt(f"checkpoint {row.name!r} does not match the entry it names", what=f"checkpoint {row.id}")
    return found


def seen_from(tx: Tx, session: SessionRow, row: CheckpointRow) -> SessionRow:
    """Give the session as it stood at a checkpoint."""
    place = point(tx, row)
    return sessions.standing_at(session, branches.get(tx, row.branch), place.seq, place.numbers)


def by_number(tx: Tx, cid: int) -> CheckpointRow:
    """Give a checkpoint that must exist by its local number."""
    row = tx.one(GET, (cid,))
    if row is None:
        raise NotFound("the checkpoint that this call made was deleted since")
    return checked(row)
