"""The feed: every committed change, in the order of commits.

One row per append call or operation, written in the transaction of the change itself, so a reader
that follows cursors misses nothing and sees nothing that was rolled back. A session's place in
listings is the position of its last change: integers, never the clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import Corrupt, Invalid
from ..storage.base import Row, Tx, row_check

if TYPE_CHECKING:
    from .sessions import SessionRow

INSERT = """INSERT INTO feed (pos, scope, kind, session, branch, first_seq, last_seq, chk)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
LAST = "SELECT pos, session FROM feed ORDER BY pos DESC LIMIT 1"
AFTER = """SELECT pos, scope, kind, session, branch, first_seq, last_seq, chk FROM feed
WHERE pos > ? ORDER BY pos LIMIT ?"""


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


def record_agent(tx: Tx, scope: str, aid: int, kind: str) -> None:
    """Add a change of an agent."""
    newest = tx.newest() or tx.one(LAST)
    row = (newest[0] + 1 if newest else 1, scope, kind, 0, aid, 0, 0)
    tx.run(INSERT, (*row, row_check(row)))
    tx.reached(row[0], 0)


def rows_after(tx: Tx, after: int, limit: int) -> list[Row]:
    """Give the next rows of the feed, all scopes, checked. Positions have no gaps: a vanished change is noticed."""
    rows = tx.all(AFTER, (after, limit))
    for position, row in enumerate(rows, after + 1):
        if row[0] != position or row_check(row[:-1]) != row[-1]:
            raise Corrupt(f"change {position} of the feed is damaged or missing", what=f"feed {position}")
    return rows


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
