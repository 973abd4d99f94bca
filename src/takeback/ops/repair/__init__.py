"""Repair: make a damaged copy sound again, losing only what is damaged and saying what that was.

It runs on a copy that nobody else has open, in one transaction that checks no references. What follows from other
records is made again: from the hash chain, the feed, the operations log, and the checks, which prove a row once its
one bad value is replaced. An entry that cannot be proved becomes a place without content, recorded in ``lost``; other
records that cannot be proved are put back as far as they are known, or left out. Nothing that is intact is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...model.report import Problem
from ...storage.base import Tx
from .. import verify
from . import agents, blobs, branches, entries, feed, heads, live, proofs, rest, sessions, whole
from .base import Repair

_ROUNDS = 3
_PASSES: tuple[Callable[[Repair], None], ...] = (
    proofs.fix_proved,
    rest.fix_records,
    blobs.fix_blobs,
    agents.fix_agents,
    sessions.fix_sessions,
    branches.fix_branches,
    entries.fix_entries,
    heads.fix_heads,
    heads.fix_tips,
    heads.fix_states,
    sessions.fix_beside,
    rest.fix_derived,
    rest.fix_attachments,
    rest.fix_checkpoints,
    whole.fix_whole,
    rest.fix_keys,
    rest.fix_operations,
    live.fix_live,
    feed.fix_feed,
    heads.fix_places,
    sessions.fix_tags,
)


class Repairs(NamedTuple):
    """What was lost, and how many records were made again without loss."""

    lost: tuple[Problem, ...]
    rebuilt: int


def repair(tx: Tx, *, now_ms: int) -> Repairs:
    """Repair a store; another round follows while one brings up something new."""
    fix = Repair(tx, now_ms)
    for _ in range(_ROUNDS):
        if not verify.verify(fix.read, list):
            break
        for step in _PASSES:
            step(fix)
    return Repairs(tuple(fix.lost.values()), fix.rebuilt)
