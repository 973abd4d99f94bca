"""What every pass of a repair uses: the transaction, the list of losses, and proving a row by its check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from ...model.report import Problem
from ...storage.base import Row, Tx, row_check
from ..verify.base import Key, Table, advance

T = TypeVar("T")
GONE = "It is not in the copy; a backup may have it"
EMPTY = "Its place is kept and says that it is lost; a backup may have the content"
SPARE = 1000
_SESSION_CHECK = 21
PARTLY = "What other records prove was kept, the rest was left out; look whether it is what you expect"


class Repair:
    """A repair under way."""

    def __init__(self, tx: Tx, now_ms: int) -> None:
        self.tx = tx
        self.now_ms = now_ms
        self.lost: dict[tuple[str, str], Problem] = {}
        self.rebuilt = 0

    def read(self, op: Callable[[Tx], T]) -> T:
        """Run a look of verify within this transaction."""
        return op(self.tx)

    def lose(self, kind: str, where: str, what: str, fix: str = GONE) -> None:
        """Say that a record is lost; the same one is said once."""
        self.lost.setdefault((kind, where), Problem(kind, where, what, fix))

    def insert(self, table: Table, row: Row) -> None:
        """Put a row that ends with its check."""
        slots = ", ".join("?" * len(row))
        self.tx.run(f"INSERT INTO {table.name} ({table.columns}) VALUES ({slots})", row)

    def delete(self, table: Table, key: Key) -> None:
        """Take a row out by its primary key."""
        slots = ", ".join("?" * len(key))
        self.tx.run(f"DELETE FROM {table.name} WHERE ({table.key}) = ({slots})", key)

    def replace(self, table: Table, key: Key, row: Row) -> None:
        """Put a row in the place of another."""
        self.delete(table, key)
        self.insert(table, row)

    def rows(self, table: Table, start: Key | None = None) -> Iterator[Row]:
        """Give all rows of a table; each page is read before its rows are given, so they may be changed."""
        after: Key | None = start or table.start
        while after is not None:
            page = table.rows(self.tx, after)
            yield from page
            after = advance(page, after, table.key_width)

    def highest(self, table: Table) -> int:
        """Give the highest number that a table has given out.

        A row whose number lies far beyond the rows there are, and which does not match its check, has a damaged
        number: it is dropped, or the gap before it would take for ever to fill.
        """
        (count,) = self.tx.one(f"SELECT count(*) FROM {table.name}") or (0,)
        for row in list(self.rows(table, (2 * count + SPARE,))):
            if row[0] > SPARE * (count + SPARE) or not _is_numbered(row):
                self.delete(table, row[:1])
                self.lose(table.name, f"{table.name} number {row[0]}", "that number was never given out")
        (top,) = self.tx.one(f"SELECT max({table.key}) FROM {table.name}") or (None,)
        return top or 0

    def numbered(self, table: Table, top: int = 0) -> Iterator[tuple[int, Row | None]]:
        """Give the numbers from 1 to ``top``, or to the last row, with their rows; None where there is none."""
        expected = 1
        for row in self.rows(table):
            if row[0] < 1:
                self.delete(table, row[:1])
                self.lose(table.name, f"{table.name} number {row[0]}", "that number was never given out")
                continue
            yield from ((number, None) for number in range(expected, row[0]))
            yield row[0], row
            expected = row[0] + 1
        yield from ((number, None) for number in range(expected, top + 1))


def _is_numbered(row: Row) -> bool:
    """Say whether a check covers the number of a row and fits; that of a session is its first one."""
    at = min(len(row) - 1, _SESSION_CHECK)
    return bool(row_check(row[:at]) == row[at])


def proved(row: Row, changes: Iterable[Mapping[int, Any]]) -> Row | None:
    """Give a row, its check included, with the first change of columns that makes it match; None if none does."""
    for change in changes:
        new = tuple(change.get(index, value) for index, value in enumerate(row))
        try:
            if row_check(new[:-1]) == new[-1]:
                return new
        except (TypeError, OverflowError):
            continue
    return None


def checked(row: Row) -> Row:
    """Put the check behind a row."""
    return (*row, row_check(row))


def extend(top: int, named: Iterable[int]) -> int:
    """Give the highest number that must exist: those that are named go on from the highest row without a gap."""
    known = set(named)
    while top + 1 in known:
        top += 1
    return top
