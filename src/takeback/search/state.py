"""How far the index is: what it notes of itself, and whether it was made from this store.

This is all that a search needs of the feed as long as nothing is new. ``feeding`` reads what is.
"""

from __future__ import annotations

from zlib import crc32

from ..ops import feed, log
from ..ops.feed import Position
from ..storage.base import Tx, scalar, scalars
from ..tables import search as tables
from ..tables.entries import ENTRY
from ..tables.history import FEED, FeedRow
from ..tables.sessions import PURGED

AHEAD = "ahead"  # the note on the changes that were read before their order was known
ERASING_STILL = "erased"  # the note that what was removed is not yet erased from all tables, or from the log

_CHECKS = "SELECT chk FROM feed WHERE pos <= ? ORDER BY pos DESC LIMIT 64"
_APPEND = f"{FEED.select} WHERE pos > ? AND pos <= ? AND kind = 'entries' ORDER BY pos DESC LIMIT 1"
_NEWEST = {
    "operation": "SELECT oid, id FROM operation ORDER BY oid DESC LIMIT 1",
    "session": f"SELECT sid, id FROM session WHERE hidden <> {PURGED} ORDER BY sid DESC LIMIT 1",
}
_ID = {"operation": "SELECT id FROM operation WHERE oid = ?", "session": "SELECT id FROM session WHERE sid = ?"}
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

    A store that was restored from a backup goes on in another way than the one that was lost, though perhaps with the
    same kinds of changes. So not only the last changes that were read must be the same, but what has an id or a hash:
    the newest entry, operation and session.
    """
    if not main.dialect.gapless:
        return True
    at, said = position(side, ""), read(side, "", "store")
    if not at:
        return said is None
    same = said == _identity(main) and read(side, "", "last") == _last(main, at[0])
    same = same and _agree(read(side, "", "entry"), _entry(main, 0, at[0]))
    return same and all(_same(main, of, read(side, "", of)) for of in _NEWEST)


def sign(main: Tx, side: Tx, after: Position, at: int) -> None:
    """Note what ``belongs`` compares, now that the feed was read up to a change; ``after`` is what was read before."""
    note(side, "", "store", _identity(main))
    note(side, "", "last", _last(main, at))
    if (entry := _entry(main, after[0] if after else 0, at)) is not None:
        note(side, "", "entry", entry)
    for of, sql in _NEWEST.items():
        number, id = main.one(sql) or ("", "")
        note(side, "", of, f"{number} {id}")


def _identity(main: Tx) -> str:
    return bytes(scalar(main, feed.IDENTITY) or b"").hex()


def _last(main: Tx, at: int) -> str:
    """Return what tells the changes up to one from others: which sessions they are of, and what happened to them."""
    return format(crc32(repr(scalars(main, _CHECKS, (at,))).encode()), "x")


def _entry(main: Tx, after: int, at: int) -> str | None:
    """Return what tells the last append up to a change from others: the hash of its last entry covers all before it."""
    stored = main.one(_APPEND, (after, at))
    if stored is None:
        return None
    row = FEED.unchecked(stored)
    key = log.key_of(row.branch, row.last_seq)
    entry = ENTRY.numbered(main, row.scope, [key], damaged=False).get(key)
    return f"{row.pos} {entry.chain.hash.hex() if entry else ''}"


def _agree(one: str | None, other: str | None) -> bool:
    """Whether two are of the same append; its entry may have been purged since."""
    first, second = (one or "").split(), (other or "").split()
    return first[:1] == second[:1] and all(a == b for a, b in zip(first, second, strict=False))


def _same(main: Tx, table: str, said: str | None) -> bool:
    """Whether a row has the id that was noted; a purge may have deleted it since."""
    number, _, id = (said or "").partition(" ")
    found = scalar(main, _ID[table], (int(number),)) if number else None
    return found is None or bool(found == id)
