"""Blocks: where one term is in the documents of one segment, in three strings of bytes.

``docs`` has the numbers of the documents, ascending, four bytes each; ``counts`` how often the term is in each, one
byte each; ``places`` at which positions, four bytes each, document by document. A document that has a term more than
255 times is listed several times in a row. Numbers are little-endian.

The invariant: each of the three is one string behind the other, so blocks of segments that follow one another are
joined by joining their strings, also by the server. What contradicts itself raises ``Derived``.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence, Set
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from ..storage.base import Derived

if TYPE_CHECKING:
    from .index import IndexedText

_WIDE = 4  # bytes of a number
_MOST = 255  # occurrences that one byte counts
_SWAPPED = sys.byteorder == "big"


class Block(NamedTuple):
    """Where a term is. ``places`` are empty where nobody needs them."""

    docs: bytes
    counts: bytes
    places: bytes


def made(documents: Iterable[IndexedText]) -> dict[str, Block]:
    """Return the blocks of a new segment, in the order of their terms."""
    # Strings from the beginning: an entry may have a million different words, and lists for each cost twice the time.
    found = dict[str, tuple[bytearray, bytearray, bytearray]]()
    for document in documents:
        number = document.number.to_bytes(_WIDE, "little")
        for at, term in enumerate(document.terms):
            if (block := found.get(term)) is None:
                block = found[term] = (bytearray(), bytearray(), bytearray())
            docs, counts, places = block
            if docs[-_WIDE:] == number and counts[-1] < _MOST:
                counts[-1] += 1
            else:
                docs += number
                counts.append(1)
            places += at.to_bytes(_WIDE, "little")
    return {term: Block(*map(bytes, found[term])) for term in sorted(found)}


def _packed(docs: Sequence[int], counts: Iterable[int], places: Sequence[int]) -> Block:
    return Block(_written(docs), bytes(counts), _written(places))


def _written(numbers: Iterable[int]) -> bytes:
    found = array("I", numbers)
    if _SWAPPED:
        found.byteswap()
    return found.tobytes()


def numbers(data: bytes) -> array[int]:
    """Return the numbers that a string holds."""
    found = array("I")
    try:
        found.frombytes(data)
    except ValueError as error:
        raise Derived(f"the search index is damaged: {error}") from error
    if _SWAPPED:
        found.byteswap()
    return found


def joined(blocks: Sequence[Block]) -> Block:
    """Return the block of the segment that several become, oldest first."""
    return Block(*(b"".join(each) for each in zip(*blocks, strict=True)))


def times(block: Block) -> dict[int, int]:
    """Return how often the term is in each document."""
    docs = numbers(block.docs)
    if len(docs) != len(block.counts):
        raise Derived("the search index is damaged: a term has not as many counts as documents")
    found = dict(zip(docs, block.counts, strict=True))
    if len(found) < len(docs):
        found = dict.fromkeys(docs, 0)
        for doc, count in zip(docs, block.counts, strict=True):
            found[doc] += count
    return found


def places(block: Block, only: Set[int]) -> dict[int, list[int]]:
    """Return where the term is in some documents."""
    docs, at, ends = numbers(block.docs), numbers(block.places), accumulate(block.counts)
    if len(docs) != len(block.counts) or sum(block.counts) != len(at):
        raise Derived("the search index is damaged: a term has not as many places as it counts")
    found = dict[int, list[int]]()
    for doc, count, end in zip(docs, block.counts, ends, strict=True):
        if doc in only:
            found.setdefault(doc, []).extend(at[end - count : end])
    return found


def kept(block: Block, alive: Set[int]) -> Block:
    """Return a block with only those of its documents."""
    at, left, counts, where = numbers(block.places), list[int](), bytearray(), list[int]()
    for doc, count, end in zip(numbers(block.docs), block.counts, accumulate(block.counts), strict=True):
        if doc in alive:
            left.append(doc)
            counts.append(count)
            where += at[end - count : end]
    return _packed(left, counts, where)


def problem(block: Block, low: int, high: int) -> str | None:
    """Return what is wrong with a block of a segment that holds the documents between two numbers."""
    if len(block.docs) % _WIDE or len(block.places) % _WIDE:
        return "its numbers are cut off"
    docs, at = numbers(block.docs), numbers(block.places)
    if len(docs) != len(block.counts) or sum(block.counts) != len(at) or 0 in block.counts:
        return "it counts other places than it has"
    if not docs or sorted(docs) != docs.tolist():
        return "its documents are not in order"
    if docs[0] < low or docs[-1] > high:
        return "it has documents of another segment"
    return None
