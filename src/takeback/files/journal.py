"""The journal: a change of files that is in progress.

It is written before the first file is touched, and the transaction that turns the change into an operation empties its
steps. Whoever finds one with steps whose maker is gone takes the change back: files and store are then as they were
before it. One without steps only names what may have to be cleaned up; the next change replaces it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec

from .. import presence
from ..errors import Busy, Corrupt
from ..ops import moves
from ..storage.base import Tx
from ..tables.files import JOURNAL
from ..tables.files import JournalRow as JournalRow
from ..tables.sessions import SessionRow
from . import timeline

if TYPE_CHECKING:
    from ..model.operation import Operation
    from ..ops.points import Target


def find(tx: Tx, scope: str, place: str) -> JournalRow | None:
    """Return the change that is in progress in a workspace, or None."""
    return JOURNAL.get(tx, scope, place)


def of_session_at(tx: Tx, session: SessionRow, place: str) -> list[JournalRow]:
    """Return the changes of files at a place, and those of a session wherever they are."""
    here = find(tx, session.scope, place)
    return [*([] if here is None else [here]), *of_session(tx, session)]


def of_session(tx: Tx, session: SessionRow) -> list[JournalRow]:
    """Return the changes of a session that are in progress, in whatever workspace."""
    return JOURNAL.all(tx, "WHERE scope = ? AND session = ?", (session.scope, session.sid))


def disk_before(tx: Tx, row: JournalRow) -> str | None:
    """Return the root that was in the workspace when a change began."""
    path = os.fsdecode(row.root).partition("\0")[0]
    found = timeline.find(tx, row.scope, timeline.at(path))
    return None if found is None else found.root or None


def begin(tx: Tx, row: JournalRow) -> None:
    """Record a change before it begins; raises ``Busy`` if there is another one in the same workspace."""
    before = _locked(tx, row)
    if before is not None and before.steps:
        holder = presence.decode(before.holder)
        raise Busy(f"{holder} is changing the files of this workspace; try again when it is done", holder=str(holder))
    JOURNAL.upsert(tx, row)


def take(tx: Tx, left_by: bytes, mine: JournalRow) -> bool:
    """Take over a change that was abandoned; return False if somebody else came first."""
    now = _same(tx, mine)
    if now is None or now.holder != left_by:
        return False
    JOURNAL.update(tx, now, now._replace(holder=mine.holder))
    return True


def complete(tx: Tx, row: JournalRow) -> None:
    """Record that a change became an operation: none of it is taken back any more."""
    if (now := _same(tx, row)) is not None:
        JOURNAL.update(tx, now, now._replace(steps=b""))


def fork_session(
    tx: Tx,
    scope: str,
    session_id: str,
    target: Target | None,
    *,
    name: str | None,
    workspace: str | None,
    row: JournalRow | None,
    now_ms: int,
) -> tuple[SessionRow, Operation]:
    """Fork a session whose files are in their new directory: from now on they stay there."""
    done = moves.fork_session(tx, scope, session_id, target, name=name, workspace=workspace, now_ms=now_ms)
    if row is not None:
        complete(tx, row)
    return done


def end(tx: Tx, row: JournalRow) -> None:
    """Erase the record of a change that was taken back or cleaned up."""
    if _same(tx, row) is not None:
        JOURNAL.delete(tx, row.scope, row.place)


def _same(tx: Tx, row: JournalRow) -> JournalRow | None:
    """Return a change as it is recorded now; None if another one has taken its place."""
    now = _locked(tx, row)
    return None if now is None or now.id != row.id else now


def _locked(tx: Tx, row: JournalRow) -> JournalRow | None:
    """Return what is in progress in a change's workspace, and lock others out until the transaction ends."""
    tx.lock(f"journal {row.scope} {row.place}")
    return find(tx, row.scope, row.place)


# ---------------------------------------------------------------------- its steps

_Node = tuple[str, int, int, bytes]
_read = msgspec.msgpack.Decoder(list[tuple[bytes, _Node | None, _Node | None]]).decode


def encode_steps(steps: Any) -> bytes:
    """Encode steps: path, what was there, what shall be there."""
    return msgspec.msgpack.encode([tuple(step) for step in steps])


def decode_steps(row: JournalRow) -> list[tuple[bytes, _Node | None, _Node | None]]:
    """Decode the steps of a change."""
    try:
        return _read(row.steps)
    except msgspec.MsgspecError as error:
        raise Corrupt("the journal of a file change cannot be read", what=f"journal {row.id}") from error
