"""What every pass of a salvage uses: the rows of the scratch copy, the list of losses, and how a row is mended.

The copy was written anew into strict tables, so every row of it can be read and every column has its type. Whether a
row says what it said when it was stored is another question: each is read together with its check.

There is one way to mend a row, whatever its table: changes that other records suggest are tried until one fits. A
damaged row has its check to decide that; a row that was sealed with a wrong value fits once verify finds no fault.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from ...ids import MAX_SEQ
from ...model.report import Problem
from ...ops.log import key_of
from ...storage.base import Row, Tx, Value
from ...tables.table import Table, matches

T = TypeVar("T")
R = TypeVar("R", bound="tuple[Any, ...]")
Changes: TypeAlias = Iterable[Mapping[str, Any]]

GONE = "It is not in the copy; a backup may have it"
EMPTY = "Its place is kept and says that it is lost; a backup may have the content"
PARTLY = "What other records prove was kept, the rest was left out; look whether it is what you expect"
SPARE = 1000
_KEYS = "FROM entry WHERE key > ? AND key <= ?"
ENDS = f"SELECT (SELECT min(key) {_KEYS}), (SELECT max(key) {_KEYS})"


class ReadRow(NamedTuple, Generic[R]):
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
        """Run a read of verify within this transaction."""
        return op(self.tx)

    def lose(self, kind: str, where: str, what: str, fix: str = GONE) -> None:
        """Report that a record is lost, each record once."""
        self.lost.setdefault((kind, where), Problem(kind, where, what, fix))

    # ------------------------------------------------------------------ rows

    def rows(self, table: Table[R]) -> Iterator[ReadRow[R]]:
        """Yield every row of a table; a page is read before its rows are yielded, so they may be changed."""
        return (read_of(table, stored) for stored in table.walk(self.tx))

    def sound(self, table: Table[R]) -> Iterator[R]:
        """Yield every row of a table that matches its check."""
        return (row for row, sound, _ in self.rows(table) if sound)

    def all(self, table: Table[R], where: str, args: Sequence[Value] = ()) -> list[ReadRow[R]]:
        """Return the rows that a condition finds."""
        return [read_of(table, stored) for stored in self.tx.all(f"{table.select} {where}", args)]

    def find(self, table: Table[R], number: int) -> ReadRow[R] | None:
        """Return the row of a number, whatever it says of its scope, or None."""
        return next(iter(self.all(table, f"WHERE {table.number} = ?", (number,))), None)

    def numbered(
        self, table: Table[R], named: Iterable[int], owned: Collection[int]
    ) -> Iterator[tuple[int, ReadRow[R] | None]]:
        """Yield the rows of a table by their numbers, and None for those that others name and that are not there.

        A damaged row whose number owns nothing is left out: the number may be what is damaged.
        """
        there = {number for (number,) in self.tx.all(f"SELECT {table.number} FROM {table.name}")}
        for number in sorted(there.union(named)):
            found = self.find(table, number)
            if found is None or found.sound or number in owned:
                yield number, found
            else:
                self.delete(table, found.row)
                what = "its record was damaged, and nothing belongs to its number"
                self.lose(table.name, table.called(found.row), what)

    def ends(self, bid: int) -> tuple[int, int] | None:
        """Return the seqs of the first and the last entry that a branch owns, None if it has none."""
        first, last = self.tx.one(ENDS, (key_of(bid, 0), key_of(bid, MAX_SEQ)) * 2) or (None, None)
        return None if first is None else (first & MAX_SEQ, last & MAX_SEQ)

    # ------------------------------------------------------------------ putting them right

    def delete(self, table: Table[R], row: R) -> None:
        """Take a row out; a number is enough, since a scope may be damaged."""
        key = (table.number,) if table.number else table.key
        self.tx.run(f"DELETE FROM {table.name} WHERE {matches(key)}", [getattr(row, name) for name in key])

    def replace(self, table: Table[R], old: R, new: R) -> R:
        """Put a row in the place of another."""
        self.delete(table, old)
        return table.put(self.tx, new)

    def mended(
        self, table: Table[R], found: ReadRow[R], fault: Callable[[Tx, R], object], changes: Changes
    ) -> R | None:
        """Return a row with the first change that makes it fit, None if none does."""
        if found.sound:
            tries: Iterable[R] = (found.row._replace(**each) for each in changes)  # type: ignore[attr-defined]
        else:
            new = proved(table, found, changes)
            tries = () if new is None else (new,)
        return next((new for new in tries if not fault(self.tx, new)), None)

    def settle(
        self,
        table: Table[R],
        fault: Callable[[Tx, R], object],
        kind: str,
        what: str,
        *,
        changes: Callable[[Salvage, ReadRow[R]], Changes] | None = None,
        where: Callable[[R], str] | None = None,
        fix: str = GONE,
        partly: str = "",
    ) -> bool:
        """Keep the rows that fit and those that a change mends, leave out the others; return whether all fitted.

        ``partly`` says what is lost of a row that was sealed with a wrong value and is kept without it.
        """
        fitted = True
        for found in list(self.rows(table)):
            if found.sound and not fault(self.tx, found.row):
                continue
            fitted, name = False, (where or table.called)(found.row)
            self.delete(table, found.row)
            new = self.mended(table, found, fault, changes(self, found) if changes else ())
            if new is None:
                self.lose(kind, name, what, fix)
                continue
            table.put(self.tx, new)
            if partly and found.sound:
                self.lose(kind, name, partly, PARTLY)
        return fitted


def read_of(table: Table[R], stored: Row) -> ReadRow[R]:
    """Return a stored row with what its check says of it."""
    return ReadRow(table.unchecked(stored), table.is_sound(stored), stored[-1])


def proved(table: Table[R], found: ReadRow[R], changes: Changes) -> R | None:
    """Return a row with the first change of columns that makes it match its check, None if none does."""
    tries = (found.row._replace(**change) for change in changes)  # type: ignore[attr-defined]
    return next((new for new in tries if table.check(new) == found.chk), None)
