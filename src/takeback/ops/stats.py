"""Counts of what a store holds, by one aggregate per table.

How many messages and entries there are, the sessions' rows say. Only those with more branches than the one their head
is at the tip of are read, in pages, with the entries at which their branches begin and end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import add, sub

from ..errors import Corrupt
from ..model.entry import Numbers
from ..model.session import StoreStats
from ..storage.base import Tx, scalar
from ..tables.entries import ENTRY
from ..tables.sessions import SESSION
from . import branches, entries
from .branches import BranchRow
from .sessions import SessionRow

AGENTS = "SELECT count(*) FROM agent WHERE scope = ? AND hidden = 0"
BRANCHES = "SELECT count(*) FROM branch WHERE scope = ?"
_BRANCHED = "branches > 1 OR fork > 0 OR attached = 0"  # as the index says it
SESSIONS = f"""SELECT count(*) FILTER (WHERE hidden = 0), sum(branches), sum(messages) FILTER (WHERE NOT ({_BRANCHED})),
sum(seq) FILTER (WHERE NOT ({_BRANCHED})) FROM session WHERE scope = ?"""
CHECKPOINTS = "SELECT count(*) FROM checkpoint WHERE scope = ?"
AGENT_CHECKPOINTS = "SELECT count(*) FROM agent_checkpoint WHERE scope = ?"
BLOBS = "SELECT count(*) FROM blob WHERE scope = ? AND hash IS NOT NULL"

_PAGE = 500


def store_stats(tx: Tx, scope: str, *, total_bytes: int, careful: bool = False) -> StoreStats:
    """Count what a scope holds; time follows sessions and branches, not messages.

    ``careful`` compares the check of every session first, which an aggregate does not: for a store that somebody else
    may have damaged.
    """
    if careful:
        for stored in SESSION.walk(tx):
            SESSION.checked(stored)
    visible, expected, messages, held = (int(value or 0) for value in tx.one(SESSIONS, (scope,)) or (0,) * 4)
    for page in _pages(tx, scope):
        for count, numbers in _own_of(tx, scope, page):
            messages += numbers.messages
            held += count
    found = _count(tx, BRANCHES, scope)
    if found != expected:
        raise Corrupt(f"{expected} branches were recorded, {found} are there; run verify", what="branch")
    return StoreStats(
        agents=_count(tx, AGENTS, scope),
        sessions=visible,
        checkpoints=_count(tx, CHECKPOINTS, scope) + _count(tx, AGENT_CHECKPOINTS, scope),
        messages=messages,
        branches=found,
        entries=held,
        blobs=_count(tx, BLOBS, scope),
        total_bytes=total_bytes,
    )


def _count(tx: Tx, sql: str, scope: str) -> int:
    return int(scalar(tx, sql, (scope,)) or 0)


def _pages(tx: Tx, scope: str) -> Iterator[list[SessionRow]]:
    """Yield the sessions of a scope that have branches of their own, whatever their state."""
    after = 0
    where = f"INDEXED BY session_branched WHERE scope = ? AND sid > ? AND ({_BRANCHED}) ORDER BY sid LIMIT ?"
    while page := SESSION.all(tx, where, (scope, after, _PAGE)):
        yield page
        after = page[-1].sid


def _own_of(tx: Tx, scope: str, found: Sequence[SessionRow]) -> list[tuple[int, Numbers]]:
    """Return for each branch of some sessions how many entries it holds and what they add up to."""
    if not found:
        return []
    heads = {session.branch: session for session in found if session.attached}
    each = branches.of_sessions(tx, scope, {session.sid: session.branches for session in found})
    rows = [_at_tip(branch, heads) for some in each.values() for branch in some]
    counts = [branch.tip_seq - branch.fork_seq for branch in rows]
    return list(zip(counts, own_numbers(tx, rows, heads), strict=True))


def _at_tip(branch: BranchRow, heads: Mapping[int, SessionRow]) -> BranchRow:
    """Return a branch with its true tip: where a head is attached to it, only that session's row knows it."""
    head = heads.get(branch.bid)
    return branch if head is None else branch._replace(tip_seq=head.seq)


def own_numbers(tx: Tx, rows: Sequence[BranchRow], heads: Mapping[int, SessionRow]) -> list[Numbers]:
    """Return what the entries of each branch add up to; ``heads`` are the sessions at the tips of some of them."""
    held = [branch for branch in rows if branch.tip_seq > branch.fork_seq]
    ends = {branch.bid: (branch.bid, branch.tip_seq) for branch in held if branch.bid not in heads}
    # The parent of a branch is the one that holds the entry at which it begins.
    starts = {branch.bid: (branch.parent or 0, branch.fork_seq) for branch in held if branch.fork_seq}
    known = _numbers_at(tx, rows, {*ends.values(), *starts.values()})
    found = []
    for branch in rows:
        if branch.tip_seq <= branch.fork_seq:
            found.append(Numbers())
            continue
        end = known[ends[branch.bid]] if branch.bid in ends else heads[branch.bid].numbers
        start = known[starts[branch.bid]] if branch.bid in starts else Numbers()
        found.append(Numbers._make(map(sub, end, start)))
    return found


def _numbers_at(tx: Tx, rows: Sequence[BranchRow], places: set[tuple[int, int]]) -> dict[tuple[int, int], Numbers]:
    """Return the running numbers at entries, given by the branches that hold them, many in one read."""
    if not places:
        return {}
    stored = ENTRY.numbered(tx, rows[0].scope, (entries.key_of(*place) for place in places))
    found = {(row.branch, row.seq): row.chain.numbers for row in stored.values()}
    for bid, seq in places - found.keys():  # which says what is missing
        entries.point_on(tx, rows[0].scope, branches.get(tx, rows[0].scope, bid), seq)
    return found


def spent_since(tx: Tx, session: SessionRow) -> tuple[Numbers, int]:
    """Return what a session spent on all its branches, and when it began."""
    return spent(tx, session), session.created_ms


def spent(tx: Tx, session: SessionRow) -> Numbers:
    """Return what a session's own branches add up to, each entry counted once: what was spent does not go back."""
    total = Numbers()
    for _, numbers in _own_of(tx, session.scope, [session]):
        total = Numbers._make(map(add, total, numbers))
    return total
