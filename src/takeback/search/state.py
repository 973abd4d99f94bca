"""How far the index is: what it notes of itself, and whether it was made from this store.

This is all that a search needs of the feed as long as nothing is new. ``feeding`` reads what is.
"""

from __future__ import annotations

from ..ops import feed, log
from ..ops.feed import Position
from ..storage.base import Tx, scalar
from ..tables import search as tables
from ..tables.entries import ENTRY
from ..tables.history import FEED, FeedRow

AHEAD = "ahead"  # the note on the changes that were read before their order was known
ERASING_STILL = "erased"  # the note that what was removed is not yet erased from all tables, or from the log

_NEWEST_OPERATION = "SELECT oid, id FROM operation WHERE scope = ? ORDER BY oid DESC LIMIT 1"
_STATE = "SELECT value FROM search_state WHERE scope = ? AND name = ?"


def place_of(main: Tx, scope: str) -> str:
    """Return the scope under which the state of an index is kept: a file has one index for all scopes."""
    return "" if main.dialect.gapless else scope


def read(side: Tx, scope: str, name: str) -> str | None:
    """Return a note on the state of the index, or None."""
    found = scalar(side, _STATE, (scope, name))
    return None if found is None else str(found)


def note(side: Tx, scope: str, name: str, value: str) -> None:
    """Keep a note on the state of the index."""
    unnote(side, scope, name)
    side.run(tables.insert("search_state"), (scope, name, value))


def unnote(side: Tx, scope: str, name: str) -> None:
    """Drop a note on the state of the index."""
    side.run("DELETE FROM search_state WHERE scope = ? AND name = ?", (scope, name))


def position(side: Tx, scope: str) -> Position:
    """Return how far the feed was read."""
    said = read(side, scope, "feed")
    return tuple(int(part) for part in said.split(".")) if said else ()


def newest(main: Tx, side: Tx, scope: str) -> int:
    """Return the highest number that a text has."""
    return int(read(side, place_of(main, scope), "next") or 1) - 1


def is_current(main: Tx, side: Tx, scope: str) -> bool:
    """Whether the index has read everything that is committed."""
    place = place_of(main, scope)
    at = position(side, place)
    if main.dialect.gapless:
        return (at[0] if at else 0) == int(scalar(main, feed.LAST) or 0)
    if changes(main, scope, at, 1):
        return False
    count = feed.count_ahead(main, scope, at)
    return not count or read(side, place, AHEAD) == ahead(at, count)


def ahead(at: Position, count: int) -> str:
    """Return what tells the changes behind a position from more of them: none of those that were read goes away."""
    return f"{'.'.join(map(str, at))} {count}"


def changes(main: Tx, scope: str, after: Position, limit: int) -> list[tuple[Position, FeedRow]]:
    """Read the next changes; one that is damaged is left out."""
    if not main.dialect.gapless:
        return feed.rows_after(main, scope, after, limit)
    found = list[tuple[Position, FeedRow]]()
    for stored in main.all(feed.AFTER, (after[0] if after else 0, limit)):
        row = FEED.unchecked(stored)
        if isinstance(row.pos, int):
            known = FEED.is_sound(stored)
            found.append(((row.pos,), row if known else FeedRow("", row.pos, "damaged", 0, 0, 0, 0)))
    return found


# ---------------------------------------------------------------------- whether the index belongs to this store


def belongs(main: Tx, side: Tx, scope: str) -> bool:
    """Whether the index was made from this store: a file may have been put in the place of another, or an older copy.

    The last change that was read must still be there, its last entry must have the same hash, and the operation that
    was the newest then must be the same.
    """
    if not main.dialect.gapless:
        return True
    at, said = position(side, ""), read(side, "", "store")
    if not at:
        return said is None
    same = said == identity(main) and _agree(read(side, "", "last") or "", fingerprint(main, at[0]))
    return same and _has_operation(main, read(side, "", "operation"))


def newest_operation(main: Tx, scope: str) -> str:
    """Return what tells the newest operation of a scope; a change that is none of entries is one of these."""
    found = main.one(_NEWEST_OPERATION, (scope,))
    return "" if found is None else f"{found[0]} {found[1]} {scope}"


def _has_operation(main: Tx, said: str | None) -> bool:
    if not said:
        return True
    number, id, scope = said.split(" ", 2)
    return bool(scalar(main, "SELECT id FROM operation WHERE scope = ? AND oid = ?", (scope, int(number))) == id)


def identity(main: Tx) -> str:
    return bytes(scalar(main, feed.IDENTITY) or b"").hex()


def fingerprint(main: Tx, at: int) -> str:
    """Return what tells a change from another one at the same position: its check, and the hash of its last entry."""
    stored = main.one(f"{FEED.select} WHERE pos = ?", (at,))
    if stored is None:
        return ""
    row, said = FEED.unchecked(stored), str(stored[-1])
    key = log.key_of(row.branch, row.last_seq)
    entry = ENTRY.numbered(main, row.scope, [key], damaged=False).get(key) if row.kind == "entries" else None
    return said if entry is None else f"{said} {entry.chain.hash.hex()}"


def _agree(one: str, other: str) -> bool:
    """Whether two fingerprints are of the same change; an entry may have been purged since."""
    first, second = one.split(), other.split()
    return bool(first and second) and all(a == b for a, b in zip(first, second, strict=False))
