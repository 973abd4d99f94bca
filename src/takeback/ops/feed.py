"""The feed: every committed change, in an order that readers can follow.

There is one row per append or operation, written in the transaction of the change itself. So a reader that follows
cursors misses nothing, and sees nothing that was rolled back.

Where transactions run one at a time, the number of a change is its position. Where several run at once, a change with
a lower number may commit later. The engine then orders the feed by transaction and shows a change only once no running
transaction can come before it, and a position has more than one part (``Dialect.feed``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ..errors import Corrupt, Invalid
from ..storage.base import Tx, Value, scalar
from ..tables.history import FEED, FeedRow
from . import sessions
from .sessions import SessionRow

Position: TypeAlias = "tuple[int, ...]"

OF_DOCUMENT = -1  # in place of a session
_ENDLESS = 1 << 62

IDENTITY = "SELECT value FROM meta WHERE name = 'store'"
LAST = "SELECT max(pos) FROM feed"
# Through the session's row, since an engine whose feed has another key finds the change from there.
LAST_OF = f"""SELECT {FEED.selected("f")} FROM session s JOIN feed f ON f.scope = s.scope AND f.pos = s.updated
WHERE s.scope = ? AND s.sid = ?"""
AFTER = f"{FEED.select} WHERE pos > ? ORDER BY pos LIMIT ?"
AFTER_IN = f"{FEED.select} INDEXED BY feed_scope WHERE scope = ? AND scope <> '' AND pos > ? ORDER BY pos LIMIT ?"


def record(
    tx: Tx,
    session: SessionRow,
    kind: str,
    *,
    branch: int,
    first: int,
    last: int,
    now_ms: int,
    rank: int | None = None,
) -> tuple[int, int]:
    """Add a change of a session; return its position and the session's new rank, computed unless it is given."""
    position = next_position(tx)
    if rank is None:
        # If the last change of all was this session's own, it already has the newest rank: no need to read that.
        own = position == session.updated + 1
        newest = session.past or session.rank if own else sessions.top_rank(tx, session.scope)
        rank = sessions.next_rank(now_ms, newest, position)
    _put(tx, FeedRow(session.scope, position, kind, session.sid, branch, first, last))
    return position, rank


def record_many(tx: Tx, rows: Sequence[SessionRow], kind: str) -> Sequence[int]:
    """Add one change of the same kind for each of some sessions, at its head; return their positions."""
    positions = _next_positions(tx, len(rows))
    made = [
        FeedRow(row.scope, position, kind, row.sid, row.branch, row.seq, row.seq)
        for row, position in zip(rows, positions, strict=True)
    ]
    FEED.put_many(tx, made)
    if made:
        tx.reached(made[-1].pos)
    return positions


def record_agent(tx: Tx, scope: str, aid: int, kind: str) -> int:
    """Add a change of an agent; return its position."""
    row = FeedRow(scope, next_position(tx), kind, 0, aid, 0, 0)
    _put(tx, row)
    return row.pos


def record_document(tx: Tx, scope: str, did: int, version: int) -> int:
    """Add a change of a document, 0 being the version of one that was deleted; return its position."""
    row = FeedRow(scope, next_position(tx), "document", OF_DOCUMENT, did, version, version)
    _put(tx, row)
    return row.pos


def _put(tx: Tx, row: FeedRow) -> None:
    FEED.put(tx, row)
    tx.reached(row.pos)


def next_position(tx: Tx) -> int:
    """Return the position of the next change."""
    if not tx.dialect.gapless:
        return tx.next("feed")
    newest = tx.newest()
    return (scalar(tx, LAST) or 0 if newest is None else newest) + 1


def _next_positions(tx: Tx, count: int) -> Sequence[int]:
    """Return the positions of the next changes."""
    if not tx.dialect.gapless:
        return tx.next_many("feed", count)
    first = next_position(tx)
    return range(first, first + count)


def last_of(tx: Tx, session: SessionRow) -> FeedRow | None:
    """Return the last change of a session, as its stored row names it; None if that change is missing."""
    stored = tx.one(LAST_OF, (session.scope, session.sid))
    return None if stored is None else FEED.checked(stored)


def rows_after(tx: Tx, scope: str, after: Position, limit: int) -> list[tuple[Position, FeedRow]]:
    """Return the next changes with their positions; on SQLite the default scope reads those of all scopes."""
    if not tx.dialect.gapless:
        parts = tx.dialect.feed_parts
        rows = tx.all(tx.dialect.feed, (scope, *(after or (0,) * parts), limit))
        return [(row[:parts], FEED.checked(row[parts:])) for row in rows]  # the position, then the columns
    last = after[0] if after else 0
    if scope:
        return [((row.pos,), row) for row in map(FEED.checked, tx.all(AFTER_IN, (scope, last, limit)))]
    # All scopes share one sequence, so reading every row of it reveals a gap: a lost change is never skipped.
    found = list[tuple[Position, FeedRow]]()
    for number, stored in enumerate(tx.all(AFTER, (last, limit)), last + 1):
        row = FEED.unchecked(stored)
        if row.pos != number or not FEED.is_sound(stored):
            raise Corrupt(f"change {number} of the feed is damaged or missing", what=f"feed {number}")
        found.append(((row.pos,), row))
    return found


def rows_ahead(tx: Tx, scope: str, after: Position, limit: int) -> list[tuple[Position, FeedRow]]:
    """Return what is committed after a position, in an order that may still change; only for an engine with gaps."""
    parts = tx.dialect.feed_parts
    rows = tx.all(tx.dialect.feed_ahead, (scope, *(after or (0,) * parts), limit))
    return [(row[:parts], FEED.checked(row[parts:])) for row in rows]


def count_ahead(tx: Tx, scope: str, after: Position) -> int:
    """Return how many changes ``rows_ahead`` would return in all; there are more each time another one is committed."""
    asked: list[Value] = [scope, *(after or (0,) * tx.dialect.feed_parts), _ENDLESS]
    return int(scalar(tx, f"SELECT count(*) FROM ({tx.dialect.feed_ahead}) ahead", asked))


def mark(tx: Tx) -> str:
    """Return what distinguishes cursors of this feed from another store's; empty where positions already do."""
    if not tx.dialect.gapless:
        return ""
    return bytes(scalar(tx, IDENTITY) or b"")[-4:].hex()


def cursor(position: Position, mark: str = "") -> str:
    """Write a position as the opaque text that callers keep: the store's mark, the number of parts, the parts."""
    return ".".join([*([mark] if mark else ()), str(len(position)), *(f"{part:x}" for part in position)])


def parse_cursor(text: str | None, parts: int, mark: str = "") -> Position:
    """Parse a cursor; None is the beginning, and anything that this feed did not return raises ``Invalid``."""
    if text is None:
        return ()
    if not isinstance(text, str):
        raise Invalid(f"a cursor is a string, not {type(text).__name__}")
    own, _, rest = text.partition(".")
    if mark and own != mark:
        raise Invalid(
            f"{text!r} is not a cursor of this feed: it comes from another store, or from before a repair;"
            " use one that events returned, or None to begin again"
        )
    count, *numbers = (rest if mark else text).split(".")
    if count != str(parts) or len(numbers) != parts or not all(map(_is_number, numbers)):
        raise Invalid(f"{text!r} is not a cursor of this feed; use one that events returned, or None")
    return tuple(int(number, 16) for number in numbers)


def _is_number(text: str) -> bool:
    return 0 < len(text) <= 15 and set(text) <= set("0123456789abcdef")
