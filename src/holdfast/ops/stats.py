"""Counts of what a store holds, taken from checked rows: a damaged one is an error, not another number."""

from __future__ import annotations

from ..errors import Corrupt
from ..model.session import StoreStats
from ..storage.base import Tx
from . import branches, sessions

SESSIONS = f"SELECT {sessions.COLUMNS} FROM session NOT INDEXED WHERE scope = ?"
BRANCHES = f"SELECT {branches.COLUMNS} FROM branch NOT INDEXED WHERE scope = ?"
BLOBS = "SELECT count(*) FROM blob WHERE scope = ? AND hash IS NOT NULL"


def store_stats(tx: Tx, scope: str, *, total_bytes: int) -> StoreStats:
    """Count a scope's sessions, branches, entries and blobs; time and memory follow sessions and branches."""
    tips, visible, expected = dict[int, int](), 0, 0
    for session in map(sessions.checked, tx.all(SESSIONS, (scope,))):
        visible += not session.hidden
        expected += session.branches
        if session.attached:
            tips[session.branch] = session.seq
    found = [branches.checked(row) for row in tx.all(BRANCHES, (scope,))]
    if len(found) != expected:
        raise Corrupt(f"{expected} branches were recorded, {len(found)} are there; run verify", what="branch")
    entries = sum(tips.get(branch.bid, branch.tip_seq) - branch.fork_seq for branch in found)
    blobs = tx.one(BLOBS, (scope,))
    return StoreStats(visible, len(found), entries, blobs[0] if blobs else 0, total_bytes)
