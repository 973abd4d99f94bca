"""Scopes: whose data a store holds. No table lists them; a scope exists as long as a row belongs to it."""

from __future__ import annotations

from collections.abc import Iterator

from ..storage.base import Tx, scalar

# Every other row belongs to one of these. The blob condition matches the partial index that finds the next scope.
_ROOTS = (
    *("FROM agent WHERE scope", "FROM session WHERE scope", "FROM document WHERE scope"),
    "FROM blob WHERE hash IS NOT NULL AND scope",
)


def every(tx: Tx) -> list[str]:
    """Return the scopes that hold anything, in order, with one index step each, however much they hold."""
    return sorted({scope for rows in _ROOTS for scope in _of(tx, rows)})


def _of(tx: Tx, rows: str) -> Iterator[str]:
    last = scalar(tx, f"SELECT min(scope) {rows} >= ?", ("",))
    while last is not None:
        yield last
        last = scalar(tx, f"SELECT min(scope) {rows} > ?", (last,))
