"""The index: what an engine must do to find texts, and what it is told of them.

An index holds documents: one for each entry that says something, and one for the title of each session. A document has
a number, higher than all before it, and terms (``terms``), those of its fields first. Beside them lie small tables that
are alike on every engine (``places``): where each document comes from, and what may be seen of each branch.

Two engines keep this contract: ``fts`` in a file of its own (SQLite), ``postings`` in tables (PostgreSQL). For the same
documents and the same question both return the same matches; one suite and random questions compare them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias, Union

from ..storage.base import Tx, Value

MANY = 500  # values of one IN, at most


def padded(values: Sequence[Value], most: int = MANY) -> list[Value]:
    """Return values for ``IN``, the last one repeated: so there are few different statements."""
    count = 1
    while count < len(values):
        count *= 2
    return [*values, *[values[-1]] * (min(count, most) - len(values))]


class TermRun(NamedTuple):
    """Terms that follow one another; with ``open`` the last is only the beginning of a term."""

    terms: tuple[str, ...]
    open: bool = False


class All(NamedTuple):
    """Documents that match every part."""

    parts: tuple[Wanted, ...]


class Some(NamedTuple):
    """Documents that match at least one part."""

    parts: tuple[Wanted, ...]


class But(NamedTuple):
    """Documents that match the first and not the second."""

    wanted: Wanted
    unwanted: Wanted


Wanted: TypeAlias = Union[TermRun, All, Some, But]  # noqa: UP007 - the classes above refer to it


class IndexedText(NamedTuple):
    """A text to index."""

    number: int
    scope: str
    key: int  # branch << 32 | seq of an entry; for a title, the negative number of the session << 32
    at_s: int  # when it happened, in seconds since 1970
    kind: int
    terms: Sequence[str]


class Within(NamedTuple):
    """What a match must satisfy besides its terms: a range of numbers, of times, and what may be seen."""

    scope: str
    low: int = 0  # the lowest number
    high: int = 1 << 62  # the highest number
    since_s: int | None = None
    until_s: int | None = None
    everywhere: bool = False  # also what is on branches that were left
    agent: str | None = None
    workspace: str | None = None
    session: int | None = None
    unseen: bool = False  # whatever may be seen: for whoever erases


class Match(NamedTuple):
    """A document that was found, with ``counted`` as ``tally`` writes it: one number, since thousands are ranked."""

    number: int
    key: int
    at_s: int
    kind: int
    counted: int


TIMES = (1 << 32) - 1  # the part of ``counted`` that says in how many places the words occur


def tally(times: int, which: int) -> int:
    """Write in how many places of a document the counted words occur, and which of them do, a bit for each."""
    return which << 32 | times


class SearchIndex(Protocol):
    """An engine. Each call is part of a transaction that its caller began."""

    def add(self, tx: Tx, documents: Sequence[IndexedText]) -> None:
        """Add documents of one scope, with ascending numbers that are higher than all before."""

    def remove(self, tx: Tx, scope: str, numbers: Sequence[int]) -> None:
        """Remove documents, so that nothing of them is found; traces of them may stay in the tables."""

    def erase(self, tx: Tx, scope: str, numbers: Sequence[int]) -> bool:
        """Remove documents, so that nothing of them is left that anybody could read; return whether there is more.

        Then call it again, in another transaction, until there is not; nothing removed is found meanwhile.
        """

    def find(self, tx: Tx, wanted: Wanted, within: Within, limit: int, counted: Sequence[TermRun] = ()) -> list[Match]:
        """Return the matches with the highest numbers, in descending order.

        ``counted`` are parts of ``wanted``: a match says in how many places of its document any of them matches, each
        counted by itself, and which of them match at all.
        """

    def containing(self, tx: Tx, scope: str, part: str, most: int) -> list[str]:
        """Return up to ``most`` words with a part of at least three characters inside, in order; not that word itself.

        Words that no document has any more may be among them.
        """

    def check(self, tx: Tx, scope: str) -> list[str]:
        """Return what is wrong with the tables, as far as they show it themselves; changes nothing."""

    def clear(self, tx: Tx, scope: str) -> None:
        """Delete everything of a scope."""
