"""How verify looks: a page of rows per read, everything that is compared within one read.

A check is a function of a transaction, what it has found so far and the key behind which it goes on; it gives the
next such key, or None at the end. All records that one finding compares are read in the same transaction, so
writers that go on meanwhile never make a healthy store look damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from ...errors import Corrupt
from ...model.report import Problem
from ...storage.base import Op, Row, Tx, row_check

Read: TypeAlias = "Callable[[Op[Any]], Any]"
Key: TypeAlias = "tuple[Any, ...]"
Check: TypeAlias = "Callable[[Tx, Found, Key], Key | None]"

PAGE = 300
LOWEST = -(1 << 62)
LOST = "Its content is lost unless a backup has it; repair makes a copy without it, with everything else"
REBUILD = "It follows from other records: repair makes a copy in which it is rebuilt"
RETRY = "A retry with this key may be stored twice; repair makes a copy without it"
FOLLOW = "Followers of the feed may have missed it; repair makes a copy with the feed rebuilt"
BACKUP = "Restore a backup, or let repair copy what can still be read"


class Found:
    """What a check has found: problems, and how many records it looked at."""

    def __init__(self, tell: Callable[[int], None] | None = None) -> None:
        self.problems: list[Problem] = []
        self.checked = 0
        self._tell = tell  # how many records were looked at, page by page

    def add(self, kind: str, where: str, what: str, fix: str = LOST) -> None:
        """Note a problem."""
        self.problems.append(Problem(kind, where, what, fix))

    def take(self, other: Found) -> None:
        """Add what a page has found."""
        self.problems += other.problems
        self.checked += other.checked
        if self._tell is not None:
            self._tell(self.checked)


def walk(read: Read, found: Found, check: Check, start: Key) -> None:
    """Run a check over all its pages, each a read of its own."""
    after: Key | None = start
    while after is not None:
        page, reached = read(_page(check, after))
        found.take(page)
        if reached is not None and not _is_beyond(reached, after):
            raise Corrupt("the keys of a table are out of order", what="file")  # a walk in circles would never end
        after = reached


def _is_beyond(reached: Key, after: Key) -> bool:
    try:
        return reached > after
    except TypeError:
        return False


def _page(check: Check, after: Key) -> Op[tuple[Found, Key | None]]:
    def op(tx: Tx) -> tuple[Found, Key | None]:
        page = Found()
        return page, check(tx, page, after)

    return op


class Table:
    """A table that is read in the order of its primary key; the columns end with the check."""

    def __init__(self, name: str, columns: str, key: str, start: Key = (LOWEST,)) -> None:
        self.name = name
        self.columns = columns
        self.key = key
        self.start = start
        self.width = len(columns.split(","))
        self.key_width = len(key.split(","))
        slots, order = ", ".join("?" * self.key_width), f"ORDER BY {key} LIMIT ?"
        self.page = f"SELECT {columns} FROM {name} WHERE ({key}) > ({slots}) {order}"
        self.keys = f"SELECT {key} FROM {name} WHERE ({key}) > ({slots}) {order}"
        self.one = f"SELECT {columns} FROM {name} WHERE ({key}) = ({slots})"

    def rows(self, tx: Tx, after: Key, limit: int = PAGE) -> list[Row]:
        """Give the next rows; one that cannot be read at all is its key and nothing else."""
        try:
            return tx.all(self.page, (*after, limit))
        except Corrupt:
            keys = tx.all(self.keys, (*after, limit))
            return [self._single(tx, key) for key in keys]

    def _single(self, tx: Tx, key: Row) -> Row:
        try:
            row = tx.one(self.one, key)
        except Corrupt:
            row = None
        return row or (*key, *[None] * (self.width - self.key_width))


def is_sound(row: Row) -> bool:
    """Say whether a row matches its check, which is its last column."""
    return bool(row_check(row[:-1]) == row[-1])


def advance(rows: list[Row], after: Key, width: int = 1) -> Key | None:
    """Give the key of the last row, None if there is none; keys that do not grow are damage of the file."""
    if not rows:
        return None
    last = rows[-1][:width]
    if any(type(one) is not type(two) for one, two in zip(last, after, strict=True)) or last <= after:
        raise Corrupt("the keys of a table are out of order", what="file")
    return last


def gaps(tx: Tx, rows: list[Row], after: Key) -> Iterator[tuple[int, int]]:
    """Give the ranges of numbers that are left out, where an engine leaves none; numbers begin with 1."""
    if not tx.dialect.gapless:
        return
    expected = max(after[0], 0) + 1
    for row in rows:
        if row[0] > expected:
            yield expected, row[0] - 1
        expected = max(expected, row[0] + 1)


def numbered(first: int, last: int) -> str:
    """Write a range of numbers for people."""
    return f"number {first}" if first == last else f"numbers {first} to {last}"
