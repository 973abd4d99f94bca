"""The feed: every committed change, in the order of commits.

One row per append call or operation, written in the transaction of the change itself, so a reader
that follows cursors misses nothing and sees nothing that was rolled back. A session's place in
listings is the position of its last change: integers, never the clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import Corrupt, Invalid
from ..model.feed import Change
from ..storage.base import Tx, row_check

if TYPE_CHECKING:
    from .sessions import SessionRow

INSERT = """INSERT INTO feed (pos, scope, kind, session, branch, first_seq, last_seq, chk)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
LAST = "SELECT pos, session FROM feed ORDER BY pos DESC LIMIT 1"
AFTER = """SELECT f.pos, f.scope, f.kind, f.session, f.branch, f.first_seq, f.last_seq, f.chk, s.id, b.uid
FROM feed f LEFT JOIN session s ON s.sid = f.session LEFT JOIN branch b ON b.bid = f.branch
WHERE f.pos > ? ORDER BY f.pos LIMIT ?"""


def record(tx: Tx, session: SessionRow, kind: str, *, branch: int, first: int, last: int) -> tuple[int, int]:
    """Add a change of a session; give its position and the session's rank after it.

    A session that made the last change as well keeps its rank: the order of listings stays the same, and
    the index over ranks is not written. Whoever changes after it ranks higher, so ranks order like changes.
    """
    newest = tx.newest() or tx.one(LAST)
    position = newest[0] + 1 if newest else 1
    rank = session.rank if newest and newest[1] == session.sid else position
    row = (position, session.scope, kind, session.sid, branch, first, last)
    tx.run(INSERT, (*row, row_check(row)))
    tx.reached(position, session.sid)
    return position, rank


def changes(tx: Tx, scope: str, *, after: int, limit: int) -> tuple[list[Change], int]:
    """Give a scope's changes among the next ``limit`` of the store, and the position up to which they go.

    Positions have no gaps, so a change that has vanished is noticed.
    """
    found, position = list[Change](), after
    for *row, chk, session_id, uid in tx.all(AFTER, (after, limit)):
        position += 1
        if row[0] != position or row_check(row) != chk or session_id is None or uid is None:
            raise Corrupt(f"change {position} of the feed is damaged or missing", what=f"feed {position}")
        if row[1] == scope:
            found.append(Change(cursor(position), row[2], session_id, uid, row[5], row[6]))
    return found, position


def cursor(position: int) -> str:
    """Write a position as the opaque text that callers keep."""
    return f"1.{position:x}"


def parse_cursor(text: str | None) -> int:
    """Read a cursor back; None is the beginning, anything else that we did not write is ``Invalid``."""
    if text is None:
        return 0
    if not isinstance(text, str):
        raise Invalid(f"a cursor is a string, not {type(text).__name__}")
    version, _, number = text.partition(".")
    if version != "1" or not number or len(number) > 15 or not set(number) <= set("0123456789abcdef"):
        raise Invalid(f"{text!r} is not a cursor of this feed; use one that events gave, or None")
    return int(number, 16)
