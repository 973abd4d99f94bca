"""Repair of the feed: positions without gaps, each telling of something that is there.

A change that is lost is made again from what nothing else in the feed tells of: entries, versions of agents. Where
nothing is left to tell, a change of kind ``lost`` names the session that a neighbour names, so that a follower looks
at it again. What no position is left for is told of at the end.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...tables.branches import BRANCH
from ...tables.history import FEED, FeedRow
from ...tables.sessions import SESSION
from ..agent_checkpoints import FEED_KIND
from ..operations import RESTORED
from ..verify.changes import change_fault, uncovered, untold
from ..verify.places import tip_of
from ..verify.tables import LOST_KIND
from .base import PARTLY, SPARE, Repair

UPDATED = "SELECT coalesce(max(updated), 0) FROM session WHERE updated < ?"
HIGHEST = "SELECT max((SELECT ifnull(max(bid), 0) FROM branch), (SELECT ifnull(max(aid), 0) FROM agent))"
AGENT_SCOPE = "SELECT scope FROM agent WHERE aid = ?"
LAST = "SELECT coalesce(max(pos), 0) FROM feed"
OF_BRANCH = "WHERE branch = ? AND kind = 'entries' AND session > 0 ORDER BY pos"
OF_AGENT = "WHERE session = 0 AND branch = ? AND kind <> ? ORDER BY pos DESC"
KINDS_OF = "SELECT DISTINCT kind FROM operation WHERE agent = ?"
NEAR = "WHERE session > 0 ORDER BY abs(pos - ?) LIMIT 1"


def fix_feed(fix: Repair) -> None:
    """Make all positions whole."""
    lost = list(_lost(fix))
    waiting = [*_entries(fix), *_agents(fix)]
    for position in lost:
        FEED.put(fix.tx, _choose(fix, position, waiting)._replace(pos=position))
        what = "its record was damaged or missing and was made again as far as it is known"
        fix.lose("feed", f"change {position}", what, PARTLY)
    for row in waiting:
        (last,) = fix.tx.one(LAST) or (0,)
        FEED.put(fix.tx, row._replace(pos=last + 1))
        fix.rebuilt += 1


def _lost(fix: Repair) -> Iterator[int]:
    """Yield positions whose record is missing or cannot be used; the latter are deleted."""
    newest = fix.highest(FEED)
    (updated,) = fix.tx.one(UPDATED, (newest + SPARE,)) or (0,)
    for position, found in fix.numbered(FEED, max(newest, updated)):
        fault = change_fault(fix.tx, found.row) if found is not None and found.sound else "damaged"
        # A session that says its last change was earlier is wrong, not the change: its own pass corrects it.
        if fault and not fault.startswith("its session says"):
            if found is not None:
                fix.delete(FEED, found.row)
            yield position


# ---------------------------------------------------------------------- what is not told


def _entries(fix: Repair) -> Iterator[FeedRow]:
    """Yield the entries that no change tells of, in runs; let the changes of a branch follow one another meanwhile."""
    (top,) = fix.tx.one(HIGHEST) or (0,)
    for branch in (found.row for bid in uncovered(fix.tx, 0, top) if (found := fix.find(BRANCH, bid))):
        told = FeedRow(branch.scope, 0, "entries", branch.session, branch.bid, 0, 0)
        end, (_, tip, _) = branch.fork_seq, tip_of(fix.tx, branch)
        for row, _, _ in fix.all(FEED, OF_BRANCH, (branch.bid,)):
            if not end < row.last_seq <= tip:
                fix.rebuild(FEED, row, row._replace(kind=LOST_KIND, first_seq=end, last_seq=end))
                continue
            if not end < row.first_seq <= row.last_seq:
                fix.rebuild(FEED, row, row._replace(first_seq=end + 1))
            elif row.first_seq > end + 1:
                yield told._replace(first_seq=end + 1, last_seq=row.first_seq - 1)
            end = row.last_seq
        if end < tip:
            yield told._replace(first_seq=end + 1, last_seq=tip)


def _agents(fix: Repair) -> Iterator[FeedRow]:
    """Yield the versions that no change tells of; let changes that are too many tell of a checkpoint."""
    (top,) = fix.tx.one(HIGHEST) or (0,)
    for aid, number in untold(fix.tx, 0, top).items():
        for row in _surplus(fix, aid)[: max(0, -number)]:
            fix.rebuild(FEED, row, row._replace(kind=FEED_KIND))
        (scope,) = fix.tx.one(AGENT_SCOPE, (aid,)) or ("",)
        yield from (FeedRow(scope, 0, "agent", 0, aid, 0, 0) for _ in range(number))


def _surplus(fix: Repair, aid: int) -> list[FeedRow]:
    """Return the changes that tell of versions of an agent, first those of a kind that none of its operations has."""
    known = {"agent", RESTORED, *(kind for (kind,) in fix.tx.all(KINDS_OF, (aid,)))}
    told = [row for row, _, _ in fix.all(FEED, OF_AGENT, (aid, FEED_KIND))]
    return sorted(told, key=lambda row: row.kind in known)


def _choose(fix: Repair, position: int, waiting: list[FeedRow]) -> FeedRow:
    """Decide what a lost position told: a session's own last change first, then whatever nothing else tells."""
    owner = SESSION.one(fix.tx, "WHERE updated = ?", (position,))
    told = [row for row in waiting if owner is None or row.session == owner.sid]
    if told:
        chosen = told[0] if owner is None else told[-1]
        waiting.remove(chosen)
        return chosen
    if owner is not None:
        return FeedRow(owner.scope, 0, LOST_KIND, owner.sid, owner.branch, owner.seq, owner.seq)
    for row, _, _ in fix.all(FEED, NEAR, (position,)):
        return row._replace(kind=LOST_KIND, first_seq=row.last_seq)
    return FeedRow("", 0, LOST_KIND, 0, 1, 0, 0)
