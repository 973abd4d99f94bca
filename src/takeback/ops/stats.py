"""Counts of what a store holds, taken from checked rows: a damaged one is an error, not another number."""

from __future__ import annotations

from operator import add, sub

from ..errors import Corrupt
from ..model.entry import Numbers
from ..model.session import StoreStats
from ..storage.base import Tx
from . import branches, entries, sessions
from .branches import BranchRow
from .sessions import SessionRow

SESSIONS = f"SELECT {sessions.COLUMNS} FROM session NOT INDEXED WHERE scope = ?"
BRANCHES = f"SELECT {branches.COLUMNS} FROM branch NOT INDEXED WHERE scope = ?"
BLOBS = "SELECT count(*) FROM blob WHERE scope = ? AND hash IS NOT NULL"
AGENTS = "SELECT count(*) FROM agent WHERE scope = ? AND hidden = 0"
CHECKPOINTS = "SELECT count(*) FROM checkpoint WHERE scope = ?"
AGENT_CHECKPOINTS = "SELECT count(*) FROM agent_checkpoint WHERE scope = ?"


def store_stats(tx: Tx, scope: str, *, total_bytes: int) -> StoreStats:
    """Count what a scope holds; time and memory follow sessions and branches, not messages."""
    at_head, visible, expected = dict[int, SessionRow](), 0, 0
    for session in map(sessions.checked, tx.all(SESSIONS, (scope,))):
        visible += not session.hidden
        expected += session.branches
        if session.attached:
            at_head[session.branch] = session
    found = [branches.checked(row) for row in tx.all(BRANCHES, (scope,))]
    if len(found) != expected:
        raise Corrupt(f"{expected} branches were recorded, {len(found)} are there; run verify", what="branch")
    own = [(_tip(branch, at_head), own_numbers(tx, branch, at_head.get(branch.bid))) for branch in found]
    return StoreStats(
        agents=_count(tx, AGENTS, scope),
        sessions=visible,
        checkpoints=_count(tx, CHECKPOINTS, scope) + _count(tx, AGENT_CHECKPOINTS, scope),
        messages=sum(numbers.messages for _, numbers in own),
        branches=len(found),
        entries=sum(tip - branch.fork_seq for branch, (tip, _) in zip(found, own, strict=True)),
        blobs=_count(tx, BLOBS, scope),
        total_bytes=total_bytes,
    )


def _count(tx: Tx, sql: str, scope: str) -> int:
    row = tx.one(sql, (scope,))
    return int(row[0]) if row else 0


def _tip(branch: BranchRow, at_head: dict[int, SessionRow]) -> int:
    return at_head[branch.bid].seq if branch.bid in at_head else branch.tip_seq


def own_numbers(tx: Tx, branch: BranchRow, at_head: SessionRow | None) -> Numbers:
    """Give what the entries of one branch add up to; ``at_head`` is the session whose head is at its tip."""
    tip = at_head.seq if at_head is not None else branch.tip_seq
    if tip == branch.fork_seq:
        return Numbers()
    end = at_head.numbers if at_head is not None else entries.point_on(tx, branch.scope, branch, tip).numbers
    if branch.fork_seq == 0:
        return Numbers._make(end)
    start = entries.point_on(tx, branch.scope, branch, branch.fork_seq).numbers
    return Numbers._make(map(sub, end, start))


def spent(tx: Tx, session: SessionRow) -> Numbers:
    """Give what a session's own branches add up to, each entry counted once: what was spent does not go back."""
    total = Numbers()
    for branch in branches.of_session(tx, session.scope, session.sid, session.branches):
        at_head = session if session.attached and session.branch == branch.bid else None
        total = Numbers._make(map(add, total, own_numbers(tx, branch, at_head)))
    return total
