"""What of a path stays in every context, found without reading the path: system messages, pinned ones, requests.

An index holds the entries that may be such messages. It misses none but holds a few others, so each has to be read.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ids import MAX_SEQ
from ..storage.base import Tx
from ..tables.entries import STAYS
from . import log
from .log import Make, T
from .sessions import SessionRow

_IN_RANGE = f"SELECT key FROM entry WHERE scope = ? AND key > ? AND key <= ? AND ({STAYS}) ORDER BY key"


def seqs(tx: Tx, session: SessionRow, high: int) -> list[int]:
    """Return the entries of a path up to ``high`` that may be system messages or pinned ones."""
    found = list[int]()
    for segment in log.path_segments(tx, session, 0, high):
        bounds = log.key_of(segment.bid, segment.low), log.key_of(segment.bid, segment.high)
        found += [key & MAX_SEQ for (key,) in tx.all(_IN_RANGE, (session.scope, *bounds))]
    return found


def read(tx: Tx, session: SessionRow, ranges: Sequence[tuple[int, int]], make: Make[T]) -> list[T]:
    """Read several ranges of a path, each from behind one entry up to another."""
    found = list[T]()
    for low, high in ranges:
        while low < high:
            page, low = log.read_path(tx, session, low, high, make)
            found += page
    return found


def request(tx: Tx, session: SessionRow, seq: int) -> int:
    """Return the entry that began the turn of entry ``seq``; 0 before the first turn."""
    turn = log.numbers_at(tx, session, seq).turns
    low, high, step = 0, seq, 1
    while turn and high - low > 1:  # first by growing steps, since a turn is short as a rule; then by halves
        middle = max(high - step, (low + high) // 2) if low == 0 else (low + high) // 2
        if log.numbers_at(tx, session, middle).turns == turn:
            high, step = middle, 2 * step
        else:
            low = middle
    return high if turn else 0
