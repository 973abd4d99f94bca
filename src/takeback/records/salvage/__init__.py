"""The tolerant source: whatever can still be proved of a damaged store.

It works on a scratch copy that nobody else has open, into which every row was copied that could be read. There the rows
that other records need are put right - by their checks, by the hash chain, by what other rows know - and what cannot be
proved is named and left out; an entry that cannot be proved becomes a place without content, recorded in ``lost``. Then
the copy is streamed as any other store is. What a store computes for itself - feed, tags, links, totals, checks - is
not looked at: the sink makes it again.
"""

from __future__ import annotations

from collections.abc import Callable

from ...model.report import Problem
from ...ops import verify
from ...storage.base import Tx
from . import agents, beside_the_log, branches, documents, entries, proofs, sessions, timelines
from .base import Salvage

_PASSES: tuple[Callable[[Salvage], None], ...] = (
    proofs.fix_proved,
    beside_the_log.fix_blobs,
    agents.fix_agents,
    sessions.fix_sessions,
    branches.fix_branches,
    entries.fix_entries,
    sessions.fix_heads,
    sessions.fix_beside,
    beside_the_log.fix_contents,
    beside_the_log.fix_checkpoints,
    agents.fix_agent_points,
    timelines.fix_timelines,
    beside_the_log.fix_operations,
    beside_the_log.fix_live,
    documents.fix_documents,
    beside_the_log.fix_keys,
)


def mend(tx: Tx, *, now_ms: int) -> tuple[tuple[Problem, ...], int]:
    """Put a scratch copy right; return what was lost, and how many problems there were that cost nothing."""
    fix = Salvage(tx, now_ms)
    found = verify.verify(fix.read, list)
    if not found:
        return (), 0
    for step in _PASSES:
        step(fix)
    lost = tuple(fix.lost.values())
    return lost, max(len(found.problems) - len(lost), 0 if lost else 1)
