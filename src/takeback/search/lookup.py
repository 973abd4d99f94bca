"""Looking up what is wanted in the postings: segment by segment, the newest first, no more than needed.

A first statement tells where each term is and how much that is; small blocks come with it, so a rare word is found by
it alone. From that follows which segments can hold a match. Their blocks are read a few segments at a time, from the
newest on, until there are enough matches: a word that is everywhere costs what is looked at. A beginning of words that
fits a thousand places or more is read within one segment after the other.

The invariant: what a segment answers depends on its own blocks only, so nothing is held but one group of segments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import NamedTuple

from ..storage.base import Tx, Value
from ..tables.table import several, slots
from . import blocks
from .blocks import Block
from .index import MANY, All, But, Some, TermRun, Wanted, Within, padded, tally

_SMALL = 1024  # bytes of places up to which a block comes with the statement that tells where it is
_FIT = 1000  # places of a beginning that are looked up before it counts as one that is everywhere
_FIRST, _MOST = 256 << 10, 4 << 20  # bytes of the first segments that are read together, and of any
_SEGMENTS = 64  # read together
_ENDLESS = 1 << 62

_BLOCK = "docs, counts, {places}"
_WHERE = """SELECT term, seg, length(docs) + length(places),
CASE WHEN length(places) <= {small} THEN docs END, CASE WHEN length(places) <= {small} THEN counts END,
CASE WHEN length(places) <= {small} THEN {places} END FROM search_posting WHERE scope = ?"""
_READ = f"SELECT term, seg, {_BLOCK} FROM search_posting WHERE scope = ? AND term IN ({{terms}}) AND seg IN ({{segs}})"
_BEGINNING = f"SELECT term, {_BLOCK} FROM search_posting WHERE scope = ? AND seg = ? AND term >= ? AND term < ?"
_FROM = " AND seg >= (SELECT coalesce(max(s.seg), 0) FROM search_segment s WHERE s.scope = ? AND s.seg <= ?)"


class BlockKey(NamedTuple):
    """A term, or the beginning of terms."""

    term: str
    open: bool


def behind(beginning: str) -> str:
    """Return a text that is higher than all with that beginning, and not higher than any other such text."""
    last = ord(beginning[-1]) + 1
    return beginning[:-1] + chr(0xE000 if last == 0xD800 else last) if last < 0x110000 else behind(beginning[:-1])


def _keys(words: TermRun) -> list[BlockKey]:
    return [BlockKey(term, words.open and at == len(words.terms)) for at, term in enumerate(words.terms, 1)]


def _leaves(wanted: Wanted) -> Iterator[TermRun]:
    if isinstance(wanted, TermRun):
        yield wanted
    else:
        for part in wanted if isinstance(wanted, But) else wanted.parts:
            yield from _leaves(part)


class BlockHere:
    """What one segment has of the words that are looked for. ``covers`` and ``times`` tell of its documents."""

    def __init__(
        self, found: dict[str, Block], terms_of: dict[BlockKey, Sequence[str]], counted: Sequence[TermRun]
    ) -> None:
        self._blocks, self._terms_of, self._counted = found, terms_of, counted
        self._hits = dict[TermRun, dict[int, int]]()
        self._only: Set[int] | None = None

    def matches(self, wanted: Wanted, low: int, high: int) -> list[int]:
        """Return the documents that match, the highest first."""
        # Places are compared only where the words that are looked for by themselves are.
        parts = wanted.parts if isinstance(wanted, All) else (wanted,)
        for part in parts:
            if isinstance(part, TermRun) and len(part.terms) == 1:
                docs = self._hits_of(part).keys()
                self._only = docs if self._only is None else self._only & docs
        return sorted((doc for doc in self._docs(wanted) if low <= doc <= high), reverse=True)

    def count(self, doc: int) -> int:
        """Return in how many places of a document the counted words match, and which of them do."""
        found = [self._hits_of(words).get(doc, 0) for words in self._counted]
        return tally(sum(found), sum(1 << at for at, here in enumerate(found) if here))

    def _docs(self, wanted: Wanted) -> Set[int]:
        if isinstance(wanted, TermRun):
            return self._hits_of(wanted).keys()
        if isinstance(wanted, But):
            docs = self._docs(wanted.wanted)
            return docs - self._docs(wanted.unwanted) if docs else docs
        if isinstance(wanted, Some):
            return set[int]().union(*(self._docs(part) for part in wanted.parts))
        docs = self._docs(wanted.parts[0])
        for part in wanted.parts[1:]:
            docs = docs & self._docs(part) if docs else docs
        return docs

    def _hits_of(self, words: TermRun) -> dict[int, int]:
        """Return in how many places of each document some words match."""
        if words not in self._hits:
            keys = _keys(words)
            self._hits[words] = self._times(keys[0]) if len(keys) == 1 else self._in_a_row(keys)
        return self._hits[words]

    def _of(self, key: BlockKey) -> list[Block]:
        return [self._blocks[term] for term in self._terms_of[key] if term in self._blocks]

    def _times(self, key: BlockKey) -> dict[int, int]:
        found = dict[int, int]()
        for block in self._of(key):
            here = blocks.times(block)
            if found:
                for doc, count in here.items():
                    found[doc] = found.get(doc, 0) + count
            else:
                found = here
        return found

    def _in_a_row(self, keys: Sequence[BlockKey]) -> dict[int, int]:
        """Return in how many places of each document terms follow one another."""
        only = self._only
        for key in dict.fromkeys(keys):
            docs = set[int]().union(*(blocks.numbers(block.docs) for block in self._of(key)))
            only = docs if only is None else only & docs
        if not only:
            return {}
        starts = dict[int, set[int]]()
        for step, key in enumerate(keys):
            here = self._places(key, only)
            if step == 0:
                starts = {doc: set(at) for doc, at in here.items()}
            else:
                starts = {
                    doc: left
                    for doc, at in here.items()
                    if doc in starts and (left := starts[doc].intersection([each - step for each in at]))
                }
        return {doc: len(at) for doc, at in starts.items()}

    def _places(self, key: BlockKey, only: Set[int]) -> dict[int, list[int]]:
        found = dict[int, list[int]]()
        for block in self._of(key):
            for doc, at in blocks.places(block, only).items():
                found.setdefault(doc, []).extend(at)
        return found


class Lookup:
    """One question, in one transaction."""

    def __init__(self, tx: Tx, wanted: Wanted, within: Within, counted: Sequence[TermRun]) -> None:
        self._tx, self._wanted, self._within, self._counted = tx, wanted, within, counted
        leaves = dict.fromkeys([*_leaves(wanted), *counted])
        keys = dict.fromkeys(key for words in leaves for key in _keys(words))
        self._places = "places" if any(len(words.terms) > 1 for words in leaves) else "NULL"
        self._where_sql = _WHERE.format(places=self._places, small=_SMALL)
        self._small = dict[int, dict[str, Block]]()  # blocks that are known, by segment
        self._sizes = dict[int, dict[str, int]]()  # bytes of those that are not
        self._segments = dict[str, set[int]]()  # where each term is
        self._terms_of: dict[BlockKey, Sequence[str]] = {key: (key.term,) for key in keys if not key.open}
        self._wide = list[BlockKey]()
        self._look_around([key.term for key in keys if not key.open])
        for key in keys:
            if key.open:
                self._look_for_beginning(key)

    def walk(self) -> Iterator[tuple[int, BlockHere]]:
        """Yield the documents that match, the highest first, each with what its segment has."""
        found = self._where(self._wanted)
        segments = self._all_segments() if found is None else sorted(found, reverse=True)
        for group in self._groups(segments):
            self._load(group)
            for seg in group:
                yield from self._of_segment(seg)

    def _of_segment(self, seg: int) -> Iterator[tuple[int, BlockHere]]:
        found, terms_of = self._small.pop(seg, {}), dict(self._terms_of)
        for key in self._wide:
            here = self._read_beginning(seg, key)
            terms_of[key] = tuple(here)
            found |= here
        what = BlockHere(found, terms_of, self._counted)
        for doc in what.matches(self._wanted, self._within.low, self._within.high):
            yield doc, what

    # ------------------------------------------------------------------ where terms are

    def _bounds(self) -> tuple[str, list[Value]]:
        """Return the condition for segments that can have documents between the two numbers."""
        sql, values = "", list[Value]()
        if self._within.high < _ENDLESS:
            sql, values = " AND seg <= ?", [self._within.high]
        if self._within.low > 0:
            sql, values = sql + _FROM, [*values, self._within.scope, self._within.low]
        return sql, values

    def _look_around(self, terms: Sequence[str]) -> None:
        bounds, values = self._bounds()
        for some in several(terms, MANY):
            asked = padded(some)
            sql = f"{self._where_sql} AND term IN ({slots(len(asked))}){bounds}"
            self._note(self._tx.all(sql, (self._within.scope, *asked, *values)))

    def _look_for_beginning(self, key: BlockKey) -> None:
        bounds, values = self._bounds()
        sql = f"{self._where_sql} AND term >= ? AND term < ?{bounds} ORDER BY term, seg LIMIT ?"
        rows = self._tx.all(sql, (self._within.scope, key.term, behind(key.term), *values, _FIT))
        if len(rows) < _FIT:
            self._note(rows)
            self._terms_of[key] = tuple(dict.fromkeys(term for term, *_ in rows))
        else:
            self._wide.append(key)

    def _note(self, rows: Sequence[tuple[str, int, int, bytes | None, bytes | None, bytes | None]]) -> None:
        for term, seg, size, docs, counts, places in rows:
            self._segments.setdefault(term, set()).add(seg)
            if docs is None or counts is None:
                self._sizes.setdefault(seg, {})[term] = size
            else:
                self._small.setdefault(seg, {})[term] = Block(docs, counts, places or b"")

    def _where(self, wanted: Wanted) -> set[int] | None:
        """Return the segments that can match; None if that is any."""
        if isinstance(wanted, TermRun):
            known = [self._of_key(key) for key in _keys(wanted) if key in self._terms_of]
            return set.intersection(*known) if known else None
        if isinstance(wanted, But):
            return self._where(wanted.wanted)
        parts = [self._where(part) for part in wanted.parts]
        known = [part for part in parts if part is not None]
        if isinstance(wanted, All):
            return set.intersection(*known) if known else None
        return set.union(*known) if len(known) == len(parts) else None

    def _of_key(self, key: BlockKey) -> set[int]:
        return set[int]().union(*(self._segments.get(term, ()) for term in self._terms_of[key]))

    def _all_segments(self) -> list[int]:
        bounds, values = self._bounds()
        sql = f"SELECT seg FROM search_segment WHERE scope = ?{bounds} ORDER BY seg DESC"
        return [seg for (seg,) in self._tx.all(sql, (self._within.scope, *values))]

    # ------------------------------------------------------------------ reading blocks

    def _groups(self, segments: Sequence[int]) -> Iterator[list[int]]:
        """Split segments into runs that are read together: few at first, then more."""
        group, size, most = list[int](), 0, _FIRST
        for seg in segments:
            group.append(seg)
            size += sum(self._sizes.get(seg, {}).values())
            if size >= most or len(group) == _SEGMENTS:
                yield group
                group, size, most = [], 0, min(_MOST, 2 * most)
        if group:
            yield group

    def _load(self, group: Sequence[int]) -> None:
        """Read the blocks of some segments that are not known yet."""
        segs = [seg for seg in group if seg in self._sizes]
        if not segs:
            return
        asked = padded(segs, _SEGMENTS)
        for some in several(sorted({term for seg in segs for term in self._sizes[seg]}), MANY):
            terms = padded(some)
            sql = _READ.format(places=self._places, terms=slots(len(terms)), segs=slots(len(asked)))
            for term, seg, docs, counts, places in self._tx.all(sql, (self._within.scope, *terms, *asked)):
                self._small.setdefault(seg, {})[term] = Block(docs, counts, places or b"")
        for seg in segs:
            del self._sizes[seg]

    def _read_beginning(self, seg: int, key: BlockKey) -> dict[str, Block]:
        sql = _BEGINNING.format(places=self._places)
        rows = self._tx.all(sql, (self._within.scope, seg, key.term, behind(key.term)))
        return {term: Block(docs, counts, places or b"") for term, docs, counts, places in rows}
