"""Counts of what a store holds."""

from __future__ import annotations

from ..model.session import StoreStats
from ..storage.base import Tx

COUNTS = """SELECT (SELECT count(*) FROM session WHERE scope = ? AND hidden = 0),
(SELECT count(*) FROM branch WHERE scope = ?),
(SELECT coalesce(sum(last_seq - first_seq + 1), 0) FROM feed WHERE scope = ? AND kind = 'entries'),
(SELECT count(*) FROM blob WHERE scope = ? AND hash IS NOT NULL)"""


def store_stats(tx: Tx, scope: str, *, total_bytes: int) -> StoreStats:
    """Count a scope's sessions, branches, entries and blobs."""
    row = tx.one(COUNTS, (scope,) * 4)
    assert row is not None
    values = (*row, total_bytes)
    return StoreStats(*values)
