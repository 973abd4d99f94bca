"""Checks of what is under way: leases, streams and their pieces, inboxes.

Each row must match its check, name what is there, and be able to be read; pieces and sent messages have no gaps.
"""

from __future__ import annotations

import msgspec

from ... import presence
from ...storage.base import Row, Tx
from .. import inbox, sessions, streams
from .base import LOST, LOWEST, Found, Key, Table, advance, is_sound
from .places import HAS_SESSION, is_object
from .tables import HAS_ENTRY

LEASES = Table("lease", sessions.LEASE, "scope, session", ("", LOWEST))
STREAMS = Table("stream", streams.COLUMNS, "scope, session, id", ("", LOWEST, ""))
PIECES = Table("delta", "scope, stream, n, kind, data, at_ms, chk", "scope, stream, n", ("", "", LOWEST))
INBOX = Table("inbox", inbox.COLUMNS, "scope, session, n", ("", LOWEST, LOWEST))
OF_BRANCH = "SELECT 1 FROM branch WHERE bid = ? AND session = ?"
STREAM_OF = "SELECT 1 FROM stream WHERE scope = ? AND id = ?"
BEFORE_PIECE = "SELECT 1 FROM delta WHERE scope = ? AND stream = ? AND n = ?"
BEFORE_SENT = "SELECT 1 FROM inbox WHERE scope = ? AND session = ? AND n = ?"
MISSING = "pieces of it are missing"
PIECES_OF = "SELECT count(*) FROM delta WHERE scope = ? AND stream = ?"
_DAMAGED = "the record does not match its check"
GAP = "the message before it is missing"
TAKE = "Nobody can tell who runs the session; repair makes a copy in which nobody does"


def leases_page(tx: Tx, found: Found, after: Key) -> Key | None:
    """Check the next leases."""
    rows = LEASES.rows(tx, after)
    for row in rows:
        found.checked += 1
        if fault := lease_fault(tx, row):
            found.add("lease", f"lease of session number {row[1]}", fault, TAKE)
    return advance(rows, after, 2)


def lease_fault(tx: Tx, row: Row) -> str:
    """Say what does not fit about a lease."""
    if not is_sound(row):
        return _DAMAGED
    if not tx.one(HAS_SESSION, (row[1], row[0])):
        return "its session is missing"
    return "" if row[3] is None or _is_holder(row[3]) else "its holder cannot be read"


def streams_page(tx: Tx, found: Found, after: Key) -> Key | None:
    """Check the next streams."""
    rows = STREAMS.rows(tx, after)
    for row in rows:
        found.checked += 1
        if fault := stream_fault(tx, row):
            found.add("stream", f"stream {row[2]}", fault, LOST)
    return advance(rows, after, 3)


def stream_fault(tx: Tx, row: Row) -> str:
    """Say what does not fit about a stream."""
    if not is_sound(row):
        return _DAMAGED
    if not tx.one(HAS_SESSION, (row[1], row[0])) or not tx.one(OF_BRANCH, (row[3], row[1])):
        return "its session or branch is missing"
    if not _is_holder(row[6]) or not is_object(row[7]):
        return "what it is about cannot be read"
    return "" if tx.one(PIECES_OF, (row[0], row[2])) == (row[9],) else MISSING


def pieces_page(tx: Tx, found: Found, after: Key) -> Key | None:
    """Check the next pieces of streams."""
    rows = PIECES.rows(tx, after)
    for row in rows:
        found.checked += 1
        if fault := piece_fault(tx, row):
            found.add("stream", f"piece {row[2]} of stream {row[1]}", fault, LOST)
    return advance(rows, after, 3)


def piece_fault(tx: Tx, row: Row) -> str:
    """Say what does not fit about a piece."""
    if not is_sound(row):
        return _DAMAGED
    if not tx.one(STREAM_OF, row[:2]):
        return "its stream is missing"
    there = row[2] == 1 or tx.one(BEFORE_PIECE, (row[0], row[1], row[2] - 1))
    return "" if there else "the piece before it is missing"


def inbox_page(tx: Tx, found: Found, after: Key) -> Key | None:
    """Check the next messages that were sent."""
    rows = INBOX.rows(tx, after)
    for row in rows:
        found.checked += 1
        if fault := sent_fault(tx, row):
            found.add("inbox", f"sent message {row[2]} of session number {row[1]}", fault, LOST)
    return advance(rows, after, 3)


def sent_fault(tx: Tx, row: Row) -> str:
    """Say what does not fit about a message that was sent."""
    if not is_sound(row):
        return _DAMAGED
    scope, sid, n, _, _, _, body, key = row[:8]
    if not tx.one(HAS_SESSION, (sid, scope)):
        return "its session is missing"
    if n != 1 and not tx.one(BEFORE_SENT, (scope, sid, n - 1)):
        return GAP
    if key:
        return "" if body is None and tx.one(HAS_ENTRY, (key, scope)) else "the entry that it became is missing"
    return "" if body is not None and is_object(body) else "what it says cannot be read"


def _is_holder(data: bytes) -> bool:
    try:
        presence.decode(data)
    except (msgspec.MsgspecError, TypeError, UnicodeDecodeError):
        return False
    return True
