"""The feed: every committed change, in an order that readers can follow.

One row per append call or operation, written in the transaction of the change itself, so a reader
that follows cursors misses nothing and sees nothing that was rolled back. A session's place in
listings is the number of its last change: integers, never the clock.

Where transactions run one after another, the number of a change is its position. Where several run at once, a change
with a lower number may be committed later: the engine then orders the feed by transactions and shows only
what no transaction under way can come before, and a position has more than one part (``Dialect.feed``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ..errors import Corrupt, Invalid
from ..storage.base import Row, Tx, row_check

if TYPE_CHECKING:
    from .sessions import SessionRow

Position: TypeAlias = "tuple[int, ...]"

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
    position, before = _next(tx)
    rank = session.rank if before == session.sid else position
    row = (position, session.scope, kind, session.sid, branch, first, last)
    tx.run(INSERT, (*row, row_check(row)))
    tx.reached(position, session.sid)
    return position, rank


def record_agent(tx: Tx, scope: str, aid: int, kind: str) -> int:
    """Add a change of an agent; give its position."""
    row = (_next(tx)[0], scope, kind, 0, aid, 0, 0)
    tx.run(INSERT, (*row, row_check(row)))
    tx.reached(row[0], 0)
    return row[0]


def _next(tx: Tx) -> tuple[int, int | None]:
    """Give the number of the next change, and the session of the last one where that can be known."""
    if not tx.dialect.gapless:
        return tx.next("feed"), None
    newest = tx.newest() or tx.one(LAST)
    return (newest[0] + 1, newest[1]) if newest else (1, None)


def rows_after(tx: Tx, scope: str, after: Position, limit: int) -> list[tuple[Position, Row]]:
    """Give the next changes with their positions, checked; where positions leave no gap, those of all scopes."""
    found: list[tuple[Position, Row]]
    if tx.dialect.gapless:
        found = [((row[0],), row) for row in tx.all(AFTER, (*(after or (0,)), limit))]
    else:
        sql, parts = tx.dialect.feed, tx.dialect.feed_parts
        rows = tx.all(sql, (scope, *(after or (0,) * parts), limit))
        found = [(row[:parts], row[parts - 1 :]) for row in rows]
    expected = after[0] if after else 0
    for _, row in found:
        expected = expected + 1 if tx.dialect.gapless else row[0]
        if row[0] != expected or row_check(row[:-1]) != row[-1]:
            raise Corrupt(f"change {expected} of the feed is damaged or missing", what=f"feed {expected}")
    return found


def cursor(position: Position) -> str:
    """Write a position as the opaque text that callers keep: how many parts it has, and the parts."""
    return ".".join([str(len(position)), *(f"{part:x}" for part in position)])


def parse_cursor(text: str | None, parts: int) -> Position:
    """Read a cursor back; None is the beginning, anything else that this feed did not give is ``Invalid``."""
    if text is None:
        return ()
    if not isinstance(text, str):
        raise Invalid(f"a cursor is a string, not {type(text).__name__}")
    count, *numbers = text.split(".")
    if count != str(parts) or len(numbers) != parts or not all(map(_is_number, numbers)):
        raise Invalid(f"{text!r} is not a cursor of this feed; use one that events gave, or None")
    return tuple(int(number, 16) for number in numbers)


def _is_number(text: str) -> bool:
    return 0 < len(text) <= 15 and set(text) <= set("0123456789abcdef")
