"""Counts of what a store holds, with one aggregate per table.

The rows of sessions know how many messages and entries they have. Only sessions with more than the one branch whose
tip is their head need more: they are read in pages, with the entries where their branches begin and end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import add, sub
from typing import NamedTuple

from ..errors import Corrupt
from ..model.entry import Numbers
from ..model.session import StoreStats
from ..storage.base import Tx, scalar
from ..tables.entries import ENTRY
from ..tables.sessions import SESSION
from . import branches, entries, sessions
from .branches import BranchRow
from .sessions import SessionRow

AGENTS = "SELECT count(*) FROM agent WHERE scope = ? AND hidden = 0"
BRANCHES = "SELECT count(*) FROM branch WHERE scope = ?"
_BRANCHED = "branches > 1 OR fork > 0 OR attached = 0"  # literally as in the partial index
SESSIONS = f"""SELECT count(*) FILTER (WHERE hidden = 0), sum(branches), sum(messages) FILTER (WHERE NOT ({_BRANCHED})),
sum(seq) FILTER (WHERE NOT ({_BRANCHED})) FROM session WHERE scope = ?"""
CHECKPOINTS = "SELECT count(*) FROM checkpoint WHERE scope = ?"
AGENT_CHECKPOINTS = "SELECT count(*) FROM agent_checkpoint WHERE scope = ?"
BLOBS = "SELECT count(*) FROM blob WHERE scope = ? AND hash IS NOT NULL"

_PAGE = 500


def store_stats(tx: Tx, scope: str, *, total_bytes: int, careful: bool = False) -> StoreStats:
    """Count what a scope holds; the cost follows sessions and branches, not messages.

    ``careful`` first checks every session's row, which an aggregate does not: for a store that may be damaged.
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
        raise Corrupt(f"{expected} branches were recorded, but {found} were found; run verify", what="branch")
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
    """Yield the sessions of a scope that have more than one branch or a detached head, in pages."""
    after = 0
    where = f"INDEXED BY session_branched WHERE scope = ? AND sid > ? AND ({_BRANCHED}) ORDER BY sid LIMIT ?"
    while page := SESSION.all(tx, where, (scope, after, _PAGE)):
        yield page
        after = page[-1].sid


def _own_of(tx: Tx, scope: str, found: Sequence[SessionRow]) -> list[tuple[int, Numbers]]:
    """Return for each branch of some sessions how many entries it owns, and their totals."""
    if not found:
        return []
    heads = {session.branch: session for session in found if session.attached}
    each = branches.of_sessions(tx, scope, {session.sid: session.branches for session in found})
    rows = [_at_tip(branch, heads) for some in each.values() for branch in some]
    counts = [branch.tip_seq - branch.fork_seq for branch in rows]
    return list(zip(counts, own_numbers(tx, rows, heads), strict=True))


def _at_tip(branch: BranchRow, heads: Mapping[int, SessionRow]) -> BranchRow:
    """Return a branch with its true tip, which only the session's row knows while its head is attached."""
    head = heads.get(branch.bid)
    return branch if head is None else branch._replace(tip_seq=head.seq)


def own_numbers(tx: Tx, rows: Sequence[BranchRow], heads: Mapping[int, SessionRow]) -> list[Numbers]:
    """Return the totals of each branch's own entries; ``heads`` are the sessions attached to some of them."""
    held = [branch for branch in rows if branch.tip_seq > branch.fork_seq]
    ends = {branch.bid: (branch.bid, branch.tip_seq) for branch in held if branch.bid not in heads}
    # The parent of a branch always owns the entry at which the branch begins.
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
    """Return the running totals at entries, given as (branch, seq) of their owners, many in one read."""
    if not places:
        return {}
    stored = ENTRY.numbered(tx, rows[0].scope, (entries.key_of(*place) for place in places))
    found = {(row.branch, row.seq): row.chain.numbers for row in stored.values()}
    for bid, seq in places - found.keys():  # raises, naming the entry, unless only a damaged page hid it from that read
        found[bid, seq] = entries.point_on(tx, rows[0].scope, branches.get(tx, rows[0].scope, bid), seq).numbers
    return found


class Owned(NamedTuple):
    """The entries that a branch of a session owns: behind ``low``, up to where the session stands at its end."""

    session: SessionRow
    low: int
    before: Numbers  # the running totals where they begin


def owned(tx: Tx, session: SessionRow) -> list[Owned]:
    """Return where the entries of all branches of a session are, each once, hidden branches included."""
    heads = {session.branch: session} if session.attached else {}
    found = branches.of_session(tx, session.scope, session.sid, session.branches)
    rows = [row for row in (_at_tip(branch, heads) for branch in found) if row.tip_seq > row.fork_seq]
    starts = {row.bid: (row.parent or 0, row.fork_seq) for row in rows if row.fork_seq}
    known = _numbers_at(tx, rows, set(starts.values()))
    return [
        Owned(
            sessions.standing_at(session, row, row.tip_seq, Numbers()),
            row.fork_seq,
            known[starts[row.bid]] if row.bid in starts else Numbers(),
        )
        for row in rows
    ]


def spent_since(tx: Tx, session: SessionRow) -> tuple[Numbers, int]:
    """Return what a session spent on all its branches, and when it began."""
    return spent(tx, session), session.created_ms


def spent(tx: Tx, session: SessionRow) -> Numbers:
    """Return the totals of all branches of a session, each entry once: a rewind does not refund what was spent."""
    total = Numbers()
    for _, numbers in _own_of(tx, session.scope, [session]):
        total = Numbers._make(map(add, total, numbers))
    return total
