"""The journal: a change of files that is under way.

It is written before the first file is touched, and has no steps any more from the transaction on in which the change
becomes an operation. Whoever finds one with steps whose maker is gone takes the change back: files and store are then
as they were before it. One without steps only says what may have to be tidied up; the next change takes its place.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from ..errors import Busy, Corrupt
from ..storage.base import Row, Tx, row_check
from . import sessions
from .sessions import SessionRow

COLUMNS = "scope, place, session, id, at_ms, holder, root, steps, chk"
PUT = f"INSERT INTO journal ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
GET = f"SELECT {COLUMNS} FROM journal WHERE scope = ? AND place = ?"
OF_SESSION = f"SELECT {COLUMNS} FROM journal WHERE scope = ? AND session = ?"
TAKE = "UPDATE journal SET holder = ?, chk = ? WHERE scope = ? AND place = ? AND id = ?"
COMPLETE = "UPDATE journal SET steps = ?, chk = ? WHERE scope = ? AND place = ? AND id = ?"
DROP = "DELETE FROM journal WHERE scope = ? AND place = ? AND id = ?"


class JournalRow(NamedTuple):
    """A row of ``journal``, checked."""

    scope: str
    place: str
    session: int
    id: str
    at_ms: int
    holder: bytes
    root: bytes
    steps: bytes


def checked(row: Row) -> JournalRow:
    """Check a row that was read; damage is ``Corrupt``."""
    if row_check(row[:-1]) != row[-1]:
        raise Corrupt("the record of a change of files is damaged; run verify", what=f"journal {row[3]}")
    return JournalRow._make(row[:-1])


def find(tx: Tx, scope: str, place: str) -> JournalRow | None:
    """Give the change that is under way in a workspace, or None."""
    row = tx.one(GET, (scope, place))
    return None if row is None else checked(row)


def of_session(tx: Tx, session: SessionRow) -> list[JournalRow]:
    """Give the changes of a session that are under way, in whatever workspace."""
    return [checked(row) for row in tx.all(OF_SESSION, (session.scope, session.sid))]


def session_of(tx: Tx, row: JournalRow) -> SessionRow:
    """Give the session that a change is for."""
    return sessions.by_number(tx, row.session)


def begin(tx: Tx, row: JournalRow) -> None:
    """Write down a change before it begins; a second one in the same workspace is ``Busy``."""
    tx.lock(f"journal {row.scope} {row.place}")
    before = find(tx, row.scope, row.place)
    if before is not None and before.steps:
        raise Busy("another change of the files of this workspace is under way; try again when it has ended")
    if before is not None:
        end(tx, before)
    tx.run(PUT, (*row, row_check(row)))


def take(tx: Tx, left_by: bytes, mine: JournalRow) -> bool:
    """Let somebody else go on with a change that was left; False if another one came first."""
    now = find(tx, mine.scope, mine.place)
    if now is None or now.id != mine.id or now.holder != left_by:
        return False
    taken = now._replace(holder=mine.holder)
    tx.run(TAKE, (taken.holder, row_check(taken), taken.scope, taken.place, taken.id))
    return True


def complete(tx: Tx, row: JournalRow) -> None:
    """Note that a change became an operation: nothing of it is taken back any more."""
    done = row._replace(steps=b"")
    tx.run(COMPLETE, (done.steps, row_check(done), row.scope, row.place, row.id))


def end(tx: Tx, row: JournalRow) -> None:
    """Erase the record of a change that was taken back or tidied up."""
    tx.run(DROP, (row.scope, row.place, row.id))


# ---------------------------------------------------------------------- its steps

_Node = tuple[str, int, int, bytes]
_read = msgspec.msgpack.Decoder(list[tuple[bytes, _Node | None, _Node | None]]).decode


def encode_steps(steps: Any) -> bytes:
    """Write steps: path, what was there, what shall be there."""
    return msgspec.msgpack.encode([tuple(step) for step in steps])


def decode_steps(row: JournalRow) -> list[tuple[bytes, _Node | None, _Node | None]]:
    """Read the steps of a change."""
    try:
        return _read(row.steps)
    except msgspec.MsgspecError as error:
        raise Corrupt("the steps of a change of files cannot be read", what=f"journal {row.id}") from error
