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
from . import branches, entries, sessions
from .entries import Appended
from .sessions import SessionRow

COLUMNS = "scope, session, id, branch, seq, token, holder, about, at_ms, pieces, chk"
PUT = f"INSERT INTO stream ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
COUNT = "UPDATE stream SET pieces = ?, chk = ? WHERE scope = ? AND session = ? AND id = ?"
GET = f"SELECT {COLUMNS} FROM stream WHERE scope = ? AND session = ? AND id = ?"
OF_SESSION = f"""SELECT doc, d.chk, {", ".join(f"s.{name}" for name in COLUMNS.split(", "))} FROM detail d
LEFT JOIN stream s ON s.session = d.sid AND s.scope = ? WHERE d.sid = ? ORDER BY s.id"""
DROP = "DELETE FROM stream WHERE scope = ? AND session = ? AND id = ?"
PIECES = "SELECT scope, stream, n, kind, data, at_ms, chk FROM delta WHERE scope = ? AND stream = ? ORDER BY n"
LAST = "SELECT n, at_ms FROM delta WHERE scope = ? AND stream = ? ORDER BY n DESC LIMIT 1"
ADD = "INSERT INTO delta (scope, stream, n, kind, data, at_ms, chk) VALUES (?, ?, ?, ?, ?, ?, ?)"
DROP_PIECES = "DELETE FROM delta WHERE scope = ? AND stream = ?"
DROP_FROM = "DELETE FROM delta WHERE scope = ? AND stream = ? AND n >= ?"
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
    pieces: int = 0


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
    _count_open(tx, session, 1)
    return session, stream


def add(tx: Tx, stream: StreamRow, first: int, pieces: Sequence[Piece], *, now_ms: int) -> None:
    """Store what arrived of an open stream."""
    for n, piece in enumerate(pieces, first):
        row = (stream.scope, stream.id, n, piece.kind, piece.text.encode("utf-8", "surrogatepass"), now_ms)
        tx.run(ADD, (*row, row_check(row)))
    grown = stream._replace(pieces=first + len(pieces) - 1)
    tx.run(COUNT, (grown.pieces, row_check(grown), grown.scope, grown.session, grown.id))


def replace(tx: Tx, stream: StreamRow, first: int, pieces: Sequence[Piece], *, now_ms: int) -> None:
    """Store what arrived of an open stream in the place of its pieces from the ``first`` one on."""
    tx.run(DROP_FROM, (stream.scope, stream.id, first))
    add(tx, stream, first, pieces, now_ms=now_ms)


def find(tx: Tx, stream: StreamRow) -> StreamRow:
    """Give an open stream again; one that somebody else has sealed meanwhile is ``Conflict``."""
    row = tx.one(GET, (stream.scope, stream.session, stream.id))
    if row is None:
        raise Conflict("this stream was sealed by whoever has the session now; what had arrived is in its message")
    return checked(row)


def of_session(tx: Tx, session: SessionRow) -> list[StreamRow]:
    """Give the open streams of a session, oldest first; fewer than there should be are ``Corrupt``."""
    rows = tx.all(OF_SESSION, (session.scope, session.sid))
    doc = sessions.checked_detail(session, rows[0][:2] if rows else None)
    found = [checked(row[2:]) for row in rows if row[2] is not None]
    if len(found) != (sessions.decoded(doc).get("open", 0) if b'"open"' in doc else 0):
        raise Corrupt("an answer that is being written is missing; run verify", what=f"session {session.id}")
    return found


def _count_open(tx: Tx, session: SessionRow, change: int) -> None:
    """Keep how many streams are open beside the session, so that none vanishes unnoticed."""
    about = sessions.decoded(sessions.detail(tx, session))
    about["open"] = about.get("open", 0) + change
    sessions.put_detail(tx, session.sid, codec.encode(about))


def last_sign(tx: Tx, stream: StreamRow) -> int:
    """Give when something last arrived."""
    row = tx.one(LAST, (stream.scope, stream.id))
    return stream.at_ms if row is None else int(row[1])


def pieces(tx: Tx, stream: StreamRow) -> list[Piece]:
    """Give what arrived so far, neighbours of one kind joined; a piece that is damaged or missing is ``Corrupt``."""
    found, is_whole = _sound(tx, stream)
    if not is_whole:
        raise Corrupt(f"a piece of stream {stream.id!r} is damaged or missing; run verify", what=f"stream {stream.id}")
    return found


def _sound(tx: Tx, stream: StreamRow) -> tuple[list[Piece], bool]:
    """Give what arrived up to the first piece that is damaged or missing, and whether that is all of it."""
    rows = tx.all(PIECES, (stream.scope, stream.id))
    sound = [row for n, row in enumerate(rows, 1) if row[2] == n and row_check(row[:-1]) == row[-1]]
    whole = list(takewhile(lambda each: each[0] == each[1][2], enumerate(sound, 1)))
    said = joined(Piece(row[3], bytes(row[4]).decode("utf-8", "surrogatepass")) for _, row in whole)
    return said, len(whole) == len(rows) == stream.pieces


def joined(given: Iterable[Piece]) -> list[Piece]:
    """Make one of neighbours of one kind."""
    return [Piece(kind, "".join(each.text for each in run)) for kind, run in groupby(given, itemgetter(0))]


def body(about: dict[str, Any], said: Sequence[Piece], status: str) -> dict[str, Any]:
    """Make the message of what arrived: text as text, anything more as parts."""
    content: Any = said[0].text if len(said) == 1 and said[0].kind == "text" else [_part(piece) for piece in said]
    return {**about, "content": content if said else "", "status": status}


def _part(piece: Piece) -> dict[str, Any]:
    return {"type": piece.kind, _FIELDS[piece.kind]: piece.text}


def drop(tx: Tx, session: SessionRow, stream: StreamRow) -> None:
    """Forget a stream and what arrived of it."""
    _count_open(tx, session, -1)
    tx.run(DROP, (stream.scope, stream.session, stream.id))
    tx.run(DROP_PIECES, (stream.scope, stream.id))


def seal(tx: Tx, session: SessionRow, stream: StreamRow, drafts: Sequence[Draft], *, now_ms: int) -> Appended:
    """Append what an open stream became and drop its pieces."""
    drop(tx, session, stream)
    if session.branch == stream.branch and session.attached:
        return entries.put(tx, session, drafts, now_ms=now_ms)
    return entries.put_late(tx, session, branches.get(tx, stream.branch), drafts, now_ms=now_ms)


def cut(tx: Tx, session: SessionRow, stream: StreamRow, *, now_ms: int) -> SessionRow:
    """Seal a stream whose writer is gone: what had arrived is kept as an interrupted message."""
    about, (said, is_whole) = codec.decode(stream.about), _sound(tx, stream)
    if not is_whole:
        about["metadata"] = {"damaged": "what arrived behind this is lost"}
    if not said:
        drop(tx, session, stream)
        return session
    draft = messages_.draft(body(about, said, "interrupted"))
    if draft.mid is not None and entries.find_by_id(tx, session, draft.mid) is not None:
        draft = messages_.draft(body({**about, "id": None}, said, "interrupted"))
    return seal(tx, session, stream, [draft], now_ms=now_ms).session
