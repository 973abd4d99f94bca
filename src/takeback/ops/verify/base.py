"""How verify reads: a page of rows per read, everything that is compared within one read.

A check is a function of a transaction, what it has found so far and the key behind which it goes on, None at the
beginning; it returns the next such key, or None at the end. All records that one finding compares are read in the same
transaction, so writers that go on meanwhile never make a healthy store look damaged.

What verify demands of a table is a ``Rule``: whether a row is sound is the same question everywhere, and what a sound
row must fit to is a function of the transaction and the row.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from ... import codec
from ...errors import Corrupt, Error
from ...model.report import Problem
from ...storage.base import Op, Tx, Value
from ...tables.sessions import PURGED as PURGED
from ...tables.table import Key as Key
from ...tables.table import Table, matches
from ..blobs import zstd  # type: ignore[attr-defined]

R = TypeVar("R", bound="tuple[Any, ...]")
Read: TypeAlias = "Callable[[Op[Any]], Any]"
Check: TypeAlias = "Callable[[Tx, Found, Key | None], Key | None]"
Said: TypeAlias = "str | Fault | Iterable[Fault] | None"

PAGE = 300
LOST = "Its content is lost unless a backup has it; repair makes a copy without it, with everything else"
REBUILD = "It follows from other records: repair makes a copy in which it is rebuilt"
RETRY = "A retry with this key may be stored twice; repair makes a copy without it"
FOLLOW = "Followers of the feed may have missed it; repair makes a copy with the feed rebuilt"
BACKUP = "Restore a backup, or let repair copy what can still be read"
DAMAGED = "the record does not match its check"
# What reading damaged content, or values of any type in pages that changed places, may raise.
UNREADABLE = (
    *(Error, LookupError, TypeError, ValueError, AttributeError, OverflowError),
    *(msgspec.MsgspecError, struct.error, zstd.ZstdError),
)


class Fault(NamedTuple):
    """What is wrong with a record."""

    kind: str
    what: str
    fix: str = LOST


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


def walk(read: Read, found: Found, check: Check) -> None:
    """Run a check over all its pages, each a read of its own."""
    after: Key | None = None
    while True:
        page, reached = read(_page(check, after))
        found.take(page)
        if reached is None:
            return
        if after is not None and not reached > after:  # a walk in circles would never end
            raise Corrupt("the keys of a table are out of order", what="file")
        after = reached


def _page(check: Check, after: Key | None) -> Op[tuple[Found, Key | None]]:
    def op(tx: Tx) -> tuple[Found, Key | None]:
        page = Found()
        return page, check(tx, page, after)

    return op


@dataclass(frozen=True)
class Rule(Generic[R]):
    """What is demanded of every row of a table; called, it checks the next page.

    ``faults`` is asked about sound rows only; a text that it returns is a problem of this ``kind`` with this ``fix``.
    ``gaps`` is said of numbers that are left out, where the engine gives them out in a row.
    """

    table: Table[R]
    faults: Callable[[Tx, R], Said]
    kind: str
    fix: str = LOST
    where: Callable[[R], str] | None = None
    gaps: Fault | None = None

    def __call__(self, tx: Tx, found: Found, after: Key | None) -> Key | None:
        """Check the next rows."""
        stored, reached = self.table.page(tx, after, PAGE)
        rows = [self.table.unchecked(each) for each in stored]
        if self.gaps is not None and tx.dialect.gapless:
            order = self.table.order(tx)
            for first, last in _left_out([tuple(getattr(row, name) for name in order) for row in rows], after):
                kind, what, fix = self.gaps
                found.add(kind, f"{self.table.name} {_numbered(first, last)}", what, fix)
        for each, row in zip(stored, rows, strict=True):
            found.checked += 1
            for kind, what, fix in self._told(tx, row, sound=self.table.is_sound(each)):
                found.add(kind, (self.where or self.table.called)(row), what, fix)
        return reached

    def _told(self, tx: Tx, row: R, *, sound: bool) -> Sequence[Fault]:
        try:
            said = self.faults(tx, row) if sound else DAMAGED
            return [each if isinstance(each, Fault) else Fault(self.kind, each, self.fix) for each in each_of(said)]
        except UNREADABLE as error:
            return [Fault(self.kind, f"what it names cannot be read: {error}", self.fix)]


def each_of(said: Said) -> list[str | Fault]:
    """Return what was said of a row, fault by fault."""
    if isinstance(said, str | Fault):
        return [said] if said else []
    return list(said or ())


def first_of(said: Said) -> str:
    """Return the first thing that was said of a row as text, '' if nothing was."""
    for fault in each_of(said):
        return fault if isinstance(fault, str) else fault.what
    return ""


def _left_out(keys: Sequence[Key], after: Key | None) -> Iterator[tuple[int, int]]:
    """Yield the ranges of numbers that keys leave out; they begin with 1, in every scope if the scope is in the key."""
    for key in keys:
        expected = max(after[-1] + 1, 1) if after is not None and after[:-1] == key[:-1] else 1
        if key[-1] > expected:
            yield expected, key[-1] - 1
        after = key


def _numbered(first: int, last: int) -> str:
    return f"number {first}" if first == last else f"numbers {first} to {last}"


def has(tx: Tx, table: Table[Any], *key: Value) -> bool:
    """Whether a table has a row of a key, sound or not."""
    return tx.one(f"SELECT 1 FROM {table.name} WHERE {matches(table.key)}", key) is not None


def intact(tx: Tx, table: Table[R], *key: Value) -> R | None:
    """Return the row of a key; None if it is missing or damaged."""
    try:
        return table.get(tx, *key)
    except UNREADABLE:
        return None


def is_object(data: object) -> bool:
    """Whether stored bytes are a JSON object."""
    try:
        return isinstance(data, bytes) and isinstance(codec.decode(data), dict)
    except Error:
        return False
