"""What every pass of a salvage uses: the rows of the scratch copy, the list of losses, and proving a row by its check.

The copy was written anew into strict tables, so every row of it can be read and every column has its type. Whether a
row says what it said when it was stored is another question: each is read together with its check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from ...ids import MAX_SEQ
from ...model.report import Problem
from ...ops.log import key_of
from ...storage.base import Row, Tx, Value
from ...tables.table import Table, matches

T = TypeVar("T")
R = TypeVar("R", bound="tuple[Any, ...]")
GONE = "It is not in the copy; a backup may have it"
EMPTY = "Its place is kept and says that it is lost; a backup may have the content"
PARTLY = "What other records prove was kept, the rest was left out; look whether it is what you expect"
SPARE = 1000
_KEYS = "FROM entry WHERE key > ? AND key <= ?"
ENDS = f"SELECT (SELECT min(key) {_KEYS}), (SELECT max(key) {_KEYS})"


class Read(NamedTuple, Generic[R]):
    """A row as it was read: what it says, whether it matches its check, and that check."""

    row: R
    sound: bool
    chk: int


class Salvage:
    """A salvage under way."""

    def __init__(self, tx: Tx, now_ms: int) -> None:
        self.tx = tx
        self.now_ms = now_ms
        self.lost: dict[tuple[str, str], Problem] = {}

    def read(self, op: Callable[[Tx], T]) -> T:
        """Run a look of verify within this transaction."""
        return op(self.tx)

    def lose(self, kind: str, where: str, what: str, fix: str = GONE) -> None:
        """Say that a record is lost; the same one is said once."""
        self.lost.setdefault((kind, where), Problem(kind, where, what, fix))

    def rows(self, table: Table[R]) -> Iterator[Read[R]]:
        """Yield every row of a table; a page is read before its rows are given, so they may be changed."""
        return (_read(table, stored) for stored in table.walk(self.tx))

    def sound(self, table: Table[R]) -> Iterator[R]:
        """Yield every row of a table that matches its check."""
        return (row for row, sound, _ in self.rows(table) if sound)

    def all(self, table: Table[R], where: str, args: Sequence[Value] = ()) -> list[Read[R]]:
        """Return the rows that a condition finds."""
        return [_read(table, stored) for stored in self.tx.all(f"{table.select} {where}", args)]

    def find(self, table: Table[R], number: int) -> Read[R] | None:
        """Return the row of a number, whatever it says of its scope, or None."""
        return next(iter(self.all(table, f"WHERE {table.number} = ?", (number,))), None)

    def delete(self, table: Table[R], row: R) -> None:
        """Take a row out; a number is enough, since a scope may be damaged."""
        key = (table.number,) if table.number else table.key
        self.tx.run(f"DELETE FROM {table.name} WHERE {matches(key)}", [getattr(row, name) for name in key])

    def replace(self, table: Table[R], old: R, new: R) -> R:
        """Put a row in the place of another."""
        self.delete(table, old)
        return table.put(self.tx, new)

    def drop(
        self,
        table: Table[R],
        fault: Callable[[Tx, R], object],
        kind: str,
        what: str,
        fix: str = GONE,
        *,
        where: Callable[[R], str] | None = None,
    ) -> None:
        """Leave out every row that is damaged, or of which verify says that it does not fit."""
        for row, sound, _ in self.rows(table):
            if not sound or fault(self.tx, row):
                self.delete(table, row)
                self.lose(kind, (where or table.called)(row), what, fix)

    def numbered(self, table: Table[R], named: Iterable[int]) -> Iterator[tuple[int, Read[R] | None]]:
        """Yield the rows of a table by their numbers, and where it has none those that others name, in order."""
        there = {number for (number,) in self.tx.all(f"SELECT {table.number} FROM {table.name}")}
        for number in sorted(there.union(named)):
            yield number, self.find(table, number)

    def never_given(self, table: Table[R], row: R) -> None:
        """Leave out a damaged row with a number that nobody knows."""
        self.delete(table, row)
        self.lose(table.name, table.called(row), "its record was damaged, and nothing belongs to its number")

    def ends(self, bid: int) -> tuple[int, int] | None:
        """Return the seqs of the first and the last entry that a branch owns, None if it has none."""
        first, last = self.tx.one(ENDS, (key_of(bid, 0), key_of(bid, MAX_SEQ)) * 2) or (None, None)
        return None if first is None else (first & MAX_SEQ, last & MAX_SEQ)


def _read(table: Table[R], stored: Row) -> Read[R]:
    return Read(table.unchecked(stored), table.is_sound(stored), stored[-1])


def proved(table: Table[R], found: Read[R], changes: Iterable[Mapping[str, Any]]) -> R | None:
    """Return a row with the first change of columns that makes it match its check; None if none does."""
    tries = (found.row._replace(**change) for change in changes)  # type: ignore[attr-defined]
    return next((new for new in tries if table.check(new) == found.chk), None)
