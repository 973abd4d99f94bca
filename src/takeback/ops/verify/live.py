"""Checks of what is under way: leases, streams and their pieces, inboxes.

Each row must match its check, name what is there, and be able to be read; pieces and sent messages have no gaps.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ... import presence
from ...storage.base import Row, Tx
from .. import inbox, sessions, streams
from .base import LOST, LOWEST, Check, Found, Key, Table, advance, is_sound
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


def lease_fault(tx: Tx, row: Row) -> str:
    """Say what does not fit about a lease."""
    if not is_sound(row):
        return _DAMAGED
    if not tx.one(HAS_SESSION, (row[1], row[0])):
        return "its session is missing"
    return "" if row[3] is None or _is_holder(row[3]) else "its holder cannot be read"


def stream_fault(tx: Tx, row: Row) -> str:
    """Say what does not fit about a stream."""
    if not is_sound(row):
        return _DAMAGED
    if not tx.one(HAS_SESSION, (row[1], row[0])) or not tx.one(OF_BRANCH, (row[3], row[1])):
        return "its session or branch is missing"
    if not _is_holder(row[6]) or not is_object(row[7]):
        return "what it is about cannot be read"
    return "" if tx.one(PIECES_OF, (row[0], row[2])) == (row[9],) else MISSING


def piece_fault(tx: Tx, row: Row) -> str:
    """Say what does not fit about a piece."""
    if not is_sound(row):
        return _DAMAGED
    if not tx.one(STREAM_OF, row[:2]):
        return "its stream is missing"
    there = row[2] == 1 or tx.one(BEFORE_PIECE, (row[0], row[1], row[2] - 1))
    return "" if there else "the piece before it is missing"


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


def _page(table: Table, kind: str, fix: str, fault: Callable[[Tx, Row], str], name: Callable[[Row], str]) -> Check:
    """Make the check of a table's next rows."""

    def page(tx: Tx, found: Found, after: Key) -> Key | None:
        rows = table.rows(tx, after)
        for row in rows:
            found.checked += 1
            if what := fault(tx, row):
                found.add(kind, name(row), what, fix)
        return advance(rows, after, table.key_width)

    return page


PAGES: tuple[tuple[Check, Key], ...] = (
    (_page(LEASES, "lease", TAKE, lease_fault, lambda row: f"lease of session number {row[1]}"), LEASES.start),
    (_page(STREAMS, "stream", LOST, stream_fault, lambda row: f"stream {row[2]}"), STREAMS.start),
    (_page(PIECES, "stream", LOST, piece_fault, lambda row: f"piece {row[2]} of stream {row[1]}"), PIECES.start),
    (
        _page(INBOX, "inbox", LOST, sent_fault, lambda row: f"sent message {row[2]} of session number {row[1]}"),
        INBOX.start,
    ),
)


def _is_holder(data: bytes) -> bool:
    try:
        presence.decode(data)
    except (msgspec.MsgspecError, TypeError, UnicodeDecodeError):
        return False
    return True
