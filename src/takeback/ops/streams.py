"""Answers being written: what has arrived is stored beside the log and becomes one entry when the stream is sealed.

An open stream has no seq. It remembers the branch where it began and is appended there however it ends: at the head if
that is still on this branch, else at the end of the branch, without moving the head. Sealing appends the message and
drops the pieces in one transaction, so the message is stored exactly once, whoever seals it.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import codec
from ..errors import Conflict
from ..model import message as messages_
from ..model.entry import Draft
from ..model.status import require_open
from ..storage.base import Tx
from ..tables.live import DELTA, STREAM, DeltaRow
from . import branches, calls, entries, sessions
from .entries import Appended
from .open_streams import KINDS as KINDS
from .open_streams import Piece as Piece
from .open_streams import StreamRow as StreamRow
from .open_streams import body as body
from .open_streams import is_left as is_left
from .open_streams import joined as joined
from .open_streams import last_sign as last_sign
from .open_streams import of_session as of_session
from .open_streams import pieces as pieces
from .open_streams import sound as sound
from .sessions import SessionRow

DROP_PIECES = "DELETE FROM delta WHERE scope = ? AND stream = ?"
DROP_FROM = "DELETE FROM delta WHERE scope = ? AND stream = ? AND n >= ?"


def begin(
    tx: Tx, session_id: str, stream: StreamRow, message_id: str | None, *, now_ms: int
) -> tuple[SessionRow, StreamRow]:
    """Open a stream at the head; the caller may choose the id of the message it becomes."""
    session = entries.writable(tx, stream.scope, session_id)
    require_open(session.status)
    if message_id is not None and entries.find_by_id(tx, session, message_id) is not None:
        said = f"message {message_id!r} already exists; give the stream another id, or none"
        raise Conflict(said, found=message_id)
    session = entries.attach(tx, session, now_ms)
    stream = stream._replace(session=session.sid, branch=session.branch, seq=session.seq)
    STREAM.put(tx, stream)
    _count_open(tx, session, 1)
    return session, stream


def add(tx: Tx, stream: StreamRow, first: int, pieces: Sequence[Piece], *, now_ms: int) -> None:
    """Store what arrived on an open stream that was just read."""
    rows = [
        DeltaRow(stream.scope, stream.id, n, piece.kind, piece.text.encode("utf-8", "surrogatepass"), now_ms)
        for n, piece in enumerate(pieces, first)
    ]
    DELTA.put_many(tx, rows)
    STREAM.update(tx, stream, stream._replace(pieces=first + len(pieces) - 1))


def replace(tx: Tx, stream: StreamRow, first: int, pieces: Sequence[Piece], *, now_ms: int) -> None:
    """Store what arrived on an open stream, replacing its pieces from number ``first`` on."""
    tx.run(DROP_FROM, (stream.scope, stream.id, first))
    add(tx, stream, first, pieces, now_ms=now_ms)


def flush(
    tx: Tx,
    scope: str,
    session_id: str,
    seen: StreamRow,
    first: int,
    pieces: Sequence[Piece],
    *,
    again: bool,
    now_ms: int,
) -> None:
    """Store what arrived on a stream, replacing stored pieces with ``again``; a stopped session raises ``Conflict``."""
    session = sessions.get(tx, scope, session_id)
    require_open(session.status)
    store = replace if again else add
    store(tx, find(tx, session, seen), first, pieces, now_ms=now_ms)


def drop_open(tx: Tx, scope: str, session_id: str, seen: StreamRow) -> None:
    """Drop a stream: nothing arrived, or the caller stores it elsewhere in the same transaction."""
    session = sessions.get(tx, scope, session_id)
    drop(tx, session, find(tx, session, seen))


def seal_open(
    tx: Tx, scope: str, session_id: str, seen: StreamRow, drafts: Sequence[Draft], *, now_ms: int
) -> tuple[Appended, list[Draft]]:
    """Append the messages a stream became, with tool results tied to their calls."""
    session = entries.writable(tx, scope, session_id)
    settled = calls.settled(tx, session, drafts)
    return seal(tx, session, find(tx, session, seen), settled, now_ms=now_ms), settled


def find(tx: Tx, session: SessionRow, seen: StreamRow) -> StreamRow:
    """Return an open stream as it is now; one that somebody else has sealed raises ``Conflict``.

    It is searched for in the session of the request, never in the one named by the row that its writer kept.
    """
    found = STREAM.get(tx, session.scope, session.sid, seen.id)
    if found is None:
        raise Conflict("this stream was sealed by the session's new holder; what had arrived is kept in a message")
    return found


def _count_open(tx: Tx, session: SessionRow, change: int) -> None:
    """Store the number of open streams in the session's details, so that a lost one is noticed."""
    about = sessions.decoded(sessions.detail(tx, session))
    about["open"] = about.get("open", 0) + change
    sessions.put_detail(tx, session, codec.encode(about))


def drop(tx: Tx, session: SessionRow, stream: StreamRow) -> None:
    """Drop a stream and what arrived on it."""
    _count_open(tx, session, -1)
    STREAM.delete(tx, stream.scope, stream.session, stream.id)
    tx.run(DROP_PIECES, (stream.scope, stream.id))


def seal(tx: Tx, session: SessionRow, stream: StreamRow, drafts: Sequence[Draft], *, now_ms: int) -> Appended:
    """Append what an open stream became, and drop its pieces."""
    drop(tx, session, stream)
    if session.branch == stream.branch and session.attached:
        return entries.put(tx, session, drafts, now_ms=now_ms)
    return entries.put_late(tx, session, branches.get(tx, stream.scope, stream.branch), drafts, now_ms=now_ms)


def cut(tx: Tx, session: SessionRow, stream: StreamRow, *, now_ms: int) -> SessionRow:
    """Seal a stream whose writer is gone: what had arrived is kept as an interrupted message."""
    about, (said, is_whole) = codec.decode(stream.about), sound(tx, stream)
    if not is_whole:
        about["metadata"] = {"damaged": "what arrived after this is lost"}
    if not said:
        drop(tx, session, stream)
        return session
    draft = messages_.draft(body(about, said, "interrupted"))
    if draft.mid is not None and entries.find_by_id(tx, session, draft.mid) is not None:
        # The id was taken since. Losing the id is better than losing what arrived.
        draft = messages_.draft(body({**about, "id": None}, said, "interrupted"))
    return seal(tx, session, stream, [draft], now_ms=now_ms).session
