"""Repair of the feed: positions without gaps, each telling of something that is there.

A change that is lost is made again from what nothing else in the feed tells of: entries, operations, versions of
agents. Where nothing is left to tell, a change of kind ``lost`` names the session that a neighbour names, so that a
follower looks at it again. Entries that no position is left for are told of at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...storage.base import Row
from .. import branches
from ..verify.base import is_sound
from ..verify.changes import FEED, change_fault, uncovered, untold
from ..verify.places import tip_of
from ..verify.tables import LOST_KIND
from .base import PARTLY, Repair, checked

UPDATED = "SELECT ifnull(max(updated), 0) FROM session WHERE updated < ?"
HIGHEST = "SELECT max((SELECT ifnull(max(bid), 0) FROM branch), (SELECT ifnull(max(aid), 0) FROM agent))"
LAST = "SELECT ifnull(max(pos), 0) FROM feed"
OWNER = "SELECT scope, sid, head_branch, head_seq FROM session WHERE updated = ?"
OF_BRANCH = f"SELECT {FEED.columns} FROM feed WHERE branch = ? AND kind = 'entries' AND session > 0 ORDER BY pos"
NEAR = (
    "SELECT scope, kind, session, branch, first_seq, last_seq FROM feed WHERE session > 0 ORDER BY abs(pos - ?) LIMIT 1"
)
AGENT_SCOPE = "SELECT scope FROM agent WHERE aid = ?"
DELETE = "DELETE FROM feed WHERE pos = ?"

_FAR = 1000


class _Told(NamedTuple):
    """What a change tells, without its position."""

    scope: str
    kind: str
    session: int
    branch: int
    first: int
    last: int


def fix_feed(fix: Repair) -> None:
    """Make all positions whole."""
    lost = sorted(set(_lost(fix)))
    _straighten(fix)
    waiting = [*_entries(fix), *_agents(fix)]
    for position in lost:
        told = _choose(fix, position, waiting)
        fix.insert(FEED, checked((position, *told)))
        fix.lose(
            "feed",
            f"change {position}",
            "its record was damaged or missing and was made again as far as it is known",
            PARTLY,
        )
    for told in waiting:
        (last,) = fix.tx.one(LAST) or (0,)
        fix.insert(FEED, checked((last + 1, *told)))
        fix.rebuilt += 1


def _lost(fix: Repair) -> Iterator[int]:
    """Give positions whose record is missing or cannot be used; the latter are deleted."""
    newest = fix.highest(FEED)
    (updated,) = fix.tx.one(UPDATED, (newest + _FAR,)) or (0,)
    for position, row in fix.numbered(FEED, max(newest, updated)):
        if row is not None and is_sound(row) and (not change_fault(fix.tx, row) or _is_stale(fix, row)):
            continue
        if row is not None:
            fix.tx.run(DELETE, (position,))
        yield position


def _is_stale(fix: Repair, row: Row) -> bool:
    """A session that says its last change was earlier is wrong, not the change: its own pass corrects it."""
    return change_fault(fix.tx, row).startswith("its session says")


# ---------------------------------------------------------------------- what is not told


def _straighten(fix: Repair) -> None:
    """Let the changes of a branch follow one another where they overlap or leave something out between them."""
    (top,) = fix.tx.one(HIGHEST) or (0,)
    for bid in uncovered(fix.tx, 0, top):
        branch = branches.get(fix.tx, bid)
        end, tip = branch.fork_seq, tip_of(fix.tx, branch)[1]
        for row in fix.tx.all(OF_BRANCH, (bid,)):
            first, last = row[5], row[6]
            if first <= end or last > tip or first > last:
                if last <= end or last > tip:
                    new = (*row[:2], LOST_KIND, *row[3:5], end, end)
                else:
                    new, end = (*row[:5], end + 1, last), last
                fix.replace(FEED, row[:1], checked(new))
                fix.rebuilt += 1
            else:
                end = last


def _entries(fix: Repair) -> Iterator[_Told]:
    """Give the entries that no change tells of, in runs."""
    (top,) = fix.tx.one(HIGHEST) or (0,)
    for bid in uncovered(fix.tx, 0, top):
        branch = branches.get(fix.tx, bid)
        end, tip = branch.fork_seq, tip_of(fix.tx, branch)[1]
        for row in fix.tx.all(OF_BRANCH, (bid,)):
            if row[5] > end + 1:
                yield _Told(branch.scope, "entries", branch.session, bid, end + 1, row[5] - 1)
            end = max(end, row[6])
        if end < tip:
            yield _Told(branch.scope, "entries", branch.session, bid, end + 1, tip)


def _agents(fix: Repair) -> Iterator[_Told]:
    (top,) = fix.tx.one(HIGHEST) or (0,)
    for aid, number in untold(fix.tx, 0, top).items():
        scope = (fix.tx.one(AGENT_SCOPE, (aid,)) or ("",))[0]
        for _ in range(number):
            yield _Told(scope, "agent", 0, aid, 0, 0)


def _choose(fix: Repair, position: int, waiting: list[_Told]) -> _Told:
    """Decide what a lost position told: a session's own last change first, then whatever nothing else tells."""
    owner = fix.tx.one(OWNER, (position,))
    if owner is not None:
        own = [told for told in waiting if told.session == owner[1]]
        if own:
            waiting.remove(own[-1])
            return own[-1]
        scope, sid, bid, seq = owner
        return _Told(scope, LOST_KIND, sid, bid, seq, seq)
    if waiting:
        return waiting.pop(0)
    near = fix.tx.one(NEAR, (position,))
    if near is None:
        return _Told("", LOST_KIND, 0, 1, 0, 0)
    return _Told(near[0], LOST_KIND, near[2], near[3], near[5], near[5])
