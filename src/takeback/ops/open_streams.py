"""Answers that are being written, as they can be seen: open streams and what arrived of them so far.

Each row is checked, and none can vanish unnoticed: their number lies beside the session. ``streams`` writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, takewhile
from operator import itemgetter
from typing import Any, NamedTuple

from ..errors import Corrupt
from ..storage.base import Row, Tx, row_check
from . import sessions
from .sessions import SessionRow

COLUMNS = "scope, session, id, branch, seq, token, holder, about, at_ms, pieces, chk"
OF_SESSION = f"""SELECT doc, d.chk, {", ".join(f"s.{name}" for name in COLUMNS.split(", "))} FROM detail d
LEFT JOIN stream s ON s.session = d.sid AND s.scope = ? WHERE d.sid = ? ORDER BY s.id"""
PIECES = "SELECT scope, stream, n, kind, data, at_ms, chk FROM delta WHERE scope = ? AND stream = ? ORDER BY n"
LAST = "SELECT n, at_ms FROM delta WHERE scope = ? AND stream = ? ORDER BY n DESC LIMIT 1"
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


def of_session(tx: Tx, session: SessionRow) -> list[StreamRow]:
    """Give the open streams of a session, oldest first; fewer than there should be are ``Corrupt``."""
    rows = tx.all(OF_SESSION, (session.scope, session.sid))
    doc = sessions.checked_detail(session, rows[0][:2] if rows else None)
    found = [checked(row[2:]) for row in rows if row[2] is not None]
    if len(found) != (sessions.decoded(doc).get("open", 0) if b'"open"' in doc else 0):
        raise Corrupt("an answer that is being written is missing; run verify", what=f"session {session.id}")
    return found


def last_sign(tx: Tx, stream: StreamRow) -> int:
    """Give when something last arrived."""
    row = tx.one(LAST, (stream.scope, stream.id))
    return stream.at_ms if row is None else int(row[1])


def pieces(tx: Tx, stream: StreamRow) -> list[Piece]:
    """Give what arrived so far, neighbours of one kind joined; a piece that is damaged or missing is ``Corrupt``."""
    found, is_whole = sound(tx, stream)
    if not is_whole:
        raise Corrupt(f"a piece of stream {stream.id!r} is damaged or missing; run verify", what=f"stream {stream.id}")
    return found


def sound(tx: Tx, stream: StreamRow) -> tuple[list[Piece], bool]:
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
