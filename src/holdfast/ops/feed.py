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
WHERE f.pos > ? AND f.scope = ? ORDER BY f.pos LIMIT ?"""


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


def changes(tx: Tx, scope: str, *, after: str | None, limit: int) -> list[Change]:
    """Give the changes after a cursor, oldest first."""
    found = []
    for *row, chk, session_id, uid in tx.all(AFTER, (parse_cursor(after), scope, limit)):
        if row_check(row) != chk or session_id is None or uid is None:
            raise Corrupt(f"change {row[0]} of the feed is damaged", what=f"feed {row[0]}")
        found.append(Change(cursor(row[0]), row[2], session_id, uid, row[5], row[6]))
    return found


def cursor(position: int) -> str:
    """Write a position as the opaque text that callers keep."""
    return f"1.{position:x}"


def parse_cursor(text: str | None) -> int:
    """Read a cursor back; None is the beginning, anything else that we did not write is ``Invalid``."""
    if text is None:
        return 0
    version, _, number = text.partition(".")
    if version != "1" or not number or len(number) > 15 or not set(number) <= set("0123456789abcdef"):
        raise Invalid(f"{text!r} is not a cursor of this feed; use one that events gave, or None")
    return int(number, 16)
