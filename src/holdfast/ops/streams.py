"""Answers that are being written: what arrived so far lies beside the log and becomes one entry when it is sealed.

A stream has no seq while it is open. It knows the branch where it began, and is appended there however it ends: at
the head as long as that is on this branch, else behind the branch's end, and the head stays where it is. Sealing
appends the message and drops the pieces in one transaction, so a message is there once, whoever seals it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, takewhile
from operator import itemgetter
from typing import Any, NamedTuple

from .. import codec
from ..errors import Conflict, Corrupt
from ..model import message as messages_
from ..model.entry import Draft
from ..storage.base import Row, Tx, row_check
from . import branches, entries
from .entries import Appended
from .sessions import SessionRow

COLUMNS = "scope, session, id, branch, seq, token, holder, about, at_ms, chk"
PUT = f"INSERT INTO stream ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
GET = f"SELECT {COLUMNS} FROM stream WHERE scope = ? AND session = ? AND id = ?"
OF_SESSION = f"SELECT {COLUMNS} FROM stream WHERE scope = ? AND session = ? ORDER BY id"
DROP = "DELETE FROM stream WHERE scope = ? AND session = ? AND id = ?"
PIECES = "SELECT scope, stream, n, kind, data, at_ms, chk FROM delta WHERE scope = ? AND stream = ? ORDER BY n"
LAST = "SELECT n, at_ms FROM delta WHERE scope = ? AND stream = ? ORDER BY n DESC LIMIT 1"
ADD = "INSERT INTO delta (scope, stream, n, kind, data, at_ms, chk) VALUES (?, ?, ?, ?, ?, ?, ?)"
DROP_PIECES = "DELETE FROM delta WHERE scope = ? AND stream = ?"
_FIELDS = {"text": "text", "thinking": "thinking", "tool_input": "json"}
KINDS = tuple(_FIELDS)


class StreamRow(NamedTuple):
    """An open stream as it lies in the table, checked."""

    scope: str
    session: int
    id: str
    branch: int
    seq: int
    token: int
    holder: bytes
    about: bytes
    at_ms: int


class Piece(NamedTuple):
    """What arrived between two flushes, of one kind."""

    kind: str
    text: str


def checked(row: Row) -> StreamRow:
    """Check a row that was read; damage is ``Corrupt``."""
    if row_check(row[:-1]) != row[-1]:
        raise Corrupt(f"the record of stream {row[2]!r} is damaged; run verify", what=f"stream {row[2]}")
    return StreamRow._make(row[:-1])


def begin(tx: Tx, session: SessionRow, stream: StreamRow, *, now_ms: int) -> tuple[SessionRow, StreamRow]:
    """Open a stream where the head is."""
    session = entries.attach(tx, session, now_ms)
    stream = stream._replace(session=session.sid, branch=session.branch, seq=session.seq)
    tx.run(PUT, (*stream, row_check(stream)))
    return session, stream


def add(tx: Tx, stream: StreamRow, first: int, pieces: Sequence[Piece], *, now_ms: int) -> None:
    """Store what arrived of an open stream."""
    for n, piece in enumerate(pieces, first):
        row = (stream.scope, stream.id, n, piece.kind, piece.text.encode("utf-8", "surrogatepass"), now_ms)
        tx.run(ADD, (*row, row_check(row)))


def find(tx: Tx, stream: StreamRow) -> StreamRow:
    """Give an open stream again; one that somebody else has sealed meanwhile is ``Conflict``."""
    row = tx.one(GET, (stream.scope, stream.session, stream.id))
    if row is None:
        raise Conflict("this stream was sealed by whoever has the session now; what had arrived is in its message")
    return checked(row)


def of_session(tx: Tx, session: SessionRow) -> list[StreamRow]:
    """Give the open streams of a session, oldest first."""
    return [checked(row) for row in tx.all(OF_SESSION, (session.scope, session.sid))]


def last_sign(tx: Tx, stream: StreamRow) -> int:
    """Give when something last arrived."""
    row = tx.one(LAST, (stream.scope, stream.id))
    return stream.at_ms if row is None else int(row[1])


def pieces(tx: Tx, stream: StreamRow) -> list[Piece]:
    """Give what arrived so far, neighbours of one kind joined; up to a piece that is damaged, which verify tells."""
    rows = enumerate(tx.all(PIECES, (stream.scope, stream.id)), 1)
    sound = takewhile(lambda each: each[1][2] == each[0] and row_check(each[1][:-1]) == each[1][-1], rows)
    return joined(Piece(row[3], bytes(row[4]).decode("utf-8", "surrogatepass")) for _, row in sound)


def joined(given: Iterable[Piece]) -> list[Piece]:
    """Make one of neighbours of one kind."""
    return [Piece(kind, "".join(each.text for each in run)) for kind, run in groupby(given, itemgetter(0))]


def body(about: dict[str, Any], said: Sequence[Piece], status: str) -> dict[str, Any]:
    """Make the message of what arrived: text as text, anything more as parts."""
    content: Any = said[0].text if len(said) == 1 and said[0].kind == "text" else [_part(piece) for piece in said]
    return {**about, "content": content if said else "", "status": status}


def _part(piece: Piece) -> dict[str, Any]:
    return {"type": piece.kind, _FIELDS[piece.kind]: piece.text}


def drop(tx: Tx, stream: StreamRow) -> None:
    """Forget a stream and what arrived of it."""
    tx.run(DROP, (stream.scope, stream.session, stream.id))
    tx.run(DROP_PIECES, (stream.scope, stream.id))


def seal(tx: Tx, session: SessionRow, stream: StreamRow, drafts: Sequence[Draft], *, now_ms: int) -> Appended:
    """Append what an open stream became and drop its pieces."""
    drop(tx, stream)
    if session.branch == stream.branch and session.attached:
        return entries.put(tx, session, drafts, now_ms=now_ms)
    return entries.put_late(tx, session, branches.get(tx, stream.branch), drafts, now_ms=now_ms)


def cut(tx: Tx, session: SessionRow, stream: StreamRow, *, now_ms: int) -> SessionRow:
    """Seal a stream whose writer is gone: what had arrived is kept as an interrupted message."""
    about, said = codec.decode(stream.about), pieces(tx, stream)
    if not said:
        drop(tx, stream)
        return session
    draft = messages_.draft(body(about, said, "interrupted"))
    if draft.mid is not None and entries.find_by_id(tx, session, draft.mid) is not None:
        draft = messages_.draft(body({**about, "id": None}, said, "interrupted"))
    return seal(tx, session, stream, [draft], now_ms=now_ms).session
