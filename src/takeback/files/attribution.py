"""Who changed what: each path changed since a point is attributed to calls, to the turn, or to somebody outside.

Consecutive snapshots record what changed and who did it. What somebody outside changed is kept; if the agent changed
that path again afterwards, the state that the outsider left is what is kept.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ..model import tree
from ..ops import calls, leases, rewinds, subagents, work
from ..ops.rewinds import MoveFacts
from ..ops.sessions import SessionRow
from ..storage.base import Tx
from ..storage.runner import Reads
from . import snapshots
from .disk.preview import Yours
from .workspaces import Trees

By = tuple[int, tuple[str, ...]]  # turn and calls
_NOW = 1 << 62  # ms: later than any snapshot


class Blame(NamedTuple):
    """``by``: the turn and the calls that changed a path last. ``yours``: paths that somebody else edited.

    ``yours`` maps each path to the tree that holds the edit if the agent changed it again, else to None: it is on disk.
    """

    by: dict[bytes, By]
    yours: Yours


class _Change(NamedTuple):
    before: bytes
    after: bytes
    outside: bool
    who: By
    at_ms: int  # when a scan saw it


class _Below(NamedTuple):
    """What sub-agents made of a path: all the states they left, and when a scan saw the last one."""

    states: set[tree.Node | None]
    last_ms: int

    def made(self, each: tree.Difference, at_ms: int) -> bool:
        """Whether a change is theirs: seen before their last one, or leading to a state they had made."""
        return at_ms <= self.last_ms or tree.shown(each.new) in self.states


def blame(runner: Reads[Any], trees: Trees, facts: MoveFacts, now: bytes) -> Blame:
    """Attribute every change since the point where two paths part."""
    by, yours = dict[bytes, By](), dict[bytes, bytes | None]()
    below = _changed_below(runner, trees, facts)
    for change in _changes(trees, facts, now):
        for each in tree.differences(trees.load, change.before, change.after):
            path = each.path
            if path in yours:
                continue
            theirs = path in below and below[path].made(each, change.at_ms)
            if change.outside and not theirs:
                yours[path] = change.after if path in by else None
            else:
                by.setdefault(path, change.who)
    return Blame(by, yours)


def _changes(trees: Trees, facts: MoveFacts, now: bytes) -> Iterator[_Change]:
    """Yield what happened to the workspace, newest first."""
    last = facts.disk or facts.here
    if last is not None:
        yield _Change(trees.root(last).tree, now, not facts.open, (facts.session.turns, facts.open), _NOW)
    found, turns = [each for each, _ in facts.history], [turn for _, turn in facts.history]
    for (before, after), turn in zip(pairs(found), turns, strict=False):
        who = turn, tuple(after.body.get("calls", ()))
        outside = after.body["who"] == snapshots.OUTSIDE
        start, end = trees.root(start_of(before, after)).tree, trees.root(after.body["root"]).tree
        yield _Change(start, end, outside, who, after.at_ms)


def pairs(newest_first: Sequence[work.WorkEntry]) -> Iterator[tuple[work.WorkEntry | None, work.WorkEntry]]:
    """Yield consecutive snapshots, newest pair first; None stands before one that started from known files."""
    yield from zip(newest_first[1:], newest_first, strict=False)
    if newest_first and newest_first[-1].body.get("from") and newest_first[-1].body["first"] == newest_first[-1].seq:
        yield None, newest_first[-1]


def start_of(before: work.WorkEntry | None, after: work.WorkEntry) -> str:
    """Return the root that a snapshot's changes start from; what moves of the head left there is not a change."""
    return str(after.body.get("from") or (before.body["root"] if before is not None else after.body["root"]))


def between(trees: Trees, before: work.WorkEntry | None, after: work.WorkEntry) -> Iterator[tree.Difference]:
    """Yield what changed from one snapshot to the next."""
    start = start_of(before, after)
    return tree.differences(trees.load, trees.root(start).tree, trees.root(after.body["root"]).tree)


# ---------------------------------------------------------------------- other sessions


def changed_by_others(runner: Reads[Any], trees: Trees, facts: MoveFacts) -> dict[bytes, str]:
    """Return the paths that sessions running in the same workspace changed since a point, with the sessions' ids."""
    found = dict[bytes, str]()
    for row, history in runner.read(_others, facts, runner.clock.now_ms()):
        changed = _as_seen_from(facts.session.workspace, row.workspace, {*_own_changes(trees, [history])[0]})
        found |= dict.fromkeys(changed, row.id)
    return found


def _others(tx: Tx, facts: MoveFacts, now_ms: int) -> list[tuple[SessionRow, list[work.WorkEntry]]]:
    live = [row for row, lease in rewinds.others_in(tx, facts.session) if not leases.is_gone(lease, now_ms)]
    return [(row, _recent(tx, row, facts.at_ms)) for row in live]


def _as_seen_from(ours: str, theirs: str, paths: set[bytes]) -> set[bytes]:
    """Translate paths of another workspace into paths of ours; those outside ours are left out."""
    if ours == theirs:
        return paths
    whole = {os.path.join(os.fsencode(theirs), path) for path in paths}
    root = os.fsencode(ours) + b"/"
    return {path[len(root) :] for path in whole if path.startswith(root)}


def _changed_below(runner: Reads[Any], trees: Trees, facts: MoveFacts) -> dict[bytes, _Below]:
    """Return the paths that sub-agents changed since a point: the session's own changes, whoever scanned them.

    Paths that somebody outside changed are left out. A sub-agent with an open call may still be changing its paths.
    """
    histories, at_work = runner.read(_below, facts)
    own, outside = _own_changes(trees, histories)
    return {
        path: _Below(made.states, _NOW if at_work else made.last_ms)
        for path, made in own.items()
        if path not in outside
    }


def _below(tx: Tx, facts: MoveFacts) -> tuple[list[list[work.WorkEntry]], bool]:
    below = [row for row in subagents.below(tx, facts.session) if row.workspace == facts.session.workspace]
    return [_recent(tx, row, facts.at_ms) for row in below], any(calls.going_on(tx, row) for row in below)


def _own_changes(trees: Trees, histories: list[list[work.WorkEntry]]) -> tuple[dict[bytes, _Below], set[bytes]]:
    """Return what sessions made of paths, and the paths that somebody outside changed meanwhile."""
    own, outside = dict[bytes, _Below](), set[bytes]()
    for history in histories:
        for before, after in pairs(history):
            for each in between(trees, before, after):
                if after.body["who"] == snapshots.OUTSIDE:
                    outside.add(each.path)
                    continue
                made = own.get(each.path, _Below(set(), after.at_ms))
                made.states.add(tree.shown(each.new))
                own[each.path] = made._replace(last_ms=max(made.last_ms, after.at_ms))
    return own, outside


def _recent(tx: Tx, row: SessionRow, since_ms: int) -> list[work.WorkEntry]:
    """Return a session's snapshots since a time, newest first, and the one before them."""
    found = []
    for each in work.history(tx, row, snapshots.KIND):
        found.append(each)
        if each.at_ms < since_ms:
            break
    return found
