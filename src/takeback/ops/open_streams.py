"""Answers being written, as readers see them: open streams and what has arrived of them so far.

Every row is checked, and a lost one is noticed, since their number is stored beside the session. ``streams`` writes
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, takewhile
from operator import itemgetter
from typing import Any, NamedTuple

from .. import codec, presence
from ..errors import Corrupt
from ..model.message import Message
from ..storage.base import Tx, scalar
from ..tables.live import DELTA, STREAM
from ..tables.live import StreamRow as StreamRow
from ..tables.sessions import DETAIL, SESSION, SessionRow
from . import sessions

WITH_DETAIL = f"""SELECT {SESSION.selected("s")}, {DETAIL.selected("d")} FROM session s
LEFT JOIN detail d ON d.scope = s.scope AND d.sid = s.sid WHERE s.scope = ? AND s.id = ?"""
OF_SESSION = f"{STREAM.select} WHERE scope = ? AND session = ? ORDER BY id"
PIECES = f"{DELTA.select} WHERE scope = ? AND stream = ? ORDER BY n"
LAST = "SELECT at_ms FROM delta WHERE scope = ? AND stream = ? ORDER BY n DESC LIMIT 1"
_FIELDS = {"text": "text", "thinking": "thinking", "tool_input": "json"}
KINDS = tuple(_FIELDS)


class Piece(NamedTuple):
    """What arrived between two flushes, of one kind."""

    kind: str
    text: str


def moment(tx: Tx, scope: str, session_id: str, now_ms: int) -> tuple[SessionRow, list[Message]]:
    """Return a session's row with the answers being written at its head."""
    row = tx.one(WITH_DETAIL, (scope, session_id))
    session = sessions.existing(None if row is None else SESSION.checked(row[: SESSION.width]), session_id)
    # A stream is sealed at the end of a branch, so a detached head has none.
    if row is None or not session.attached:
        return session, []
    found = _open(tx, session, sessions.detail_in(session, row[SESSION.width :]))
    return session, [_message(tx, session, stream, now_ms) for stream in found if stream.branch == session.branch]


def _message(tx: Tx, session: SessionRow, stream: StreamRow, now_ms: int) -> Message:
    """Return what has arrived of an answer as a message."""
    said, gone = pieces(tx, stream), is_left(tx, stream, now_ms)
    about = {"id": stream.id, **codec.decode(stream.about)}
    written = body(about, said, "interrupted" if gone else "streaming")
    return Message(session.uid, 0, session.turns, stream.at_ms, codec.encode(written))


def is_left(tx: Tx, stream: StreamRow, now_ms: int) -> bool:
    """Whether the writer of an answer is gone."""
    return presence.has_left(presence.decode(stream.holder), last_sign(tx, stream), now_ms)


def of_session(tx: Tx, session: SessionRow) -> list[StreamRow]:
    """Return the open streams of a session, oldest first; a missing one raises ``Corrupt``."""
    return _open(tx, session, sessions.detail(tx, session))


def _open(tx: Tx, session: SessionRow, doc: bytes) -> list[StreamRow]:
    """Return as many open streams as the details count; they are not looked for if there are none."""
    count = sessions.decoded(doc).get("open", 0) if b'"open"' in doc else 0
    found = STREAM.all_checked(tx.all(OF_SESSION, (session.scope, session.sid))) if count else []
    if len(found) != count:
        raise Corrupt("the record of an open stream is missing; run verify", what=f"session {session.id}")
    return found


def last_sign(tx: Tx, stream: StreamRow) -> int:
    """Return when the stream last received something."""
    last = scalar(tx, LAST, (stream.scope, stream.id))
    return stream.at_ms if last is None else int(last)


def pieces(tx: Tx, stream: StreamRow) -> list[Piece]:
    """Return what has arrived, adjacent pieces of one kind joined; a damaged or missing piece raises ``Corrupt``."""
    found, is_whole = sound(tx, stream)
    if not is_whole:
        raise Corrupt(f"a piece of stream {stream.id!r} is damaged or missing; run verify", what=f"stream {stream.id}")
    return found


def sound(tx: Tx, stream: StreamRow) -> tuple[list[Piece], bool]:
    """Return what arrived before the first damaged or missing piece, and whether that is everything."""
    stored = tx.all(PIECES, (stream.scope, stream.id))
    found = [DELTA.checked(row) for row in takewhile(DELTA.is_sound, stored)]
    whole = [row for n, row in takewhile(lambda each: each[0] == each[1].n, enumerate(found, 1))]
    said = joined(Piece(row.kind, row.data.decode("utf-8", "surrogatepass")) for row in whole)
    return said, len(whole) == len(stored) == stream.pieces


def joined(given: Iterable[Piece]) -> list[Piece]:
    """Join adjacent pieces of the same kind."""
    return [Piece(kind, "".join(each.text for each in run)) for kind, run in groupby(given, itemgetter(0))]


def body(about: dict[str, Any], said: Sequence[Piece], status: str) -> dict[str, Any]:
    """Return the message body for what arrived: plain text as a string, anything else as parts."""
    content: Any = said[0].text if len(said) == 1 and said[0].kind == "text" else [_part(piece) for piece in said]
    return {**about, "content": content if said else "", "status": status}


def _part(piece: Piece) -> dict[str, Any]:
    return {"type": piece.kind, _FIELDS[piece.kind]: piece.text}
