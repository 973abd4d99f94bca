"""Where the sub-agents of a session were at a point of its path, so that a rewind can take them along.

Positions recorded at checkpoints and with the files of a turn are exact. Between those the times of entries decide,
since nothing else relates two logs. A sub-agent that started later is hidden, and an undo shows it again.
"""

from __future__ import annotations

from typing import Any

from ..storage.base import Tx
from . import branches, entries, sessions, subagents, work
from .sessions import SessionRow
from .work import WorkChange, WorkEntry

KIND = "agents"


def note(tx: Tx, session: SessionRow, *, now_ms: int) -> SessionRow:
    """Record where the sub-agents of a session are, if any moved since the last record."""
    found = [each for each in subagents.below(tx, session) if not each.hidden]
    if not found:
        return session
    try:
        before = work.latest(tx, session, KIND)
        known = work.mapping(tx, session, before)
    except work.Lost:
        before, known = None, {}
    now = {each.id: [each.uid, each.seq] for each in found}
    moved = {id: place for id, place in now.items() if known.get(id) != place}
    gone = known.keys() - now.keys()
    if not moved and not gone:
        return session

    def decide(tx: Tx, session: SessionRow) -> WorkChange | WorkEntry:
        return WorkChange(work.next_map(tx, session, before, moved, gone))

    revision = session.revision
    session, _ = work.change(tx, session.scope, session.id, KIND, decide, ask=None, now_ms=now_ms)
    # This is bookkeeping: an append that expects the old revision must still succeed.
    return sessions.write(tx, session, revision=revision)


def wanted(tx: Tx, children: list[SessionRow], there: SessionRow, at_ms: int) -> dict[str, list[Any]]:
    """Return where each sub-agent that has moved was at a point: branch, seq, attached, hidden.

    ``there`` is the session as it was at that point.
    """
    if not children:
        return {}
    noted = work.mapping(tx, there, work.latest(tx, there, KIND))
    found = dict[str, list[Any]]()
    for child in children:
        now = [child.uid, child.seq, child.attached, child.hidden]
        then = _then(tx, child, noted.get(child.id), at_ms)
        if then is not None and then != now:
            found[child.id] = then
    return found


def _then(tx: Tx, child: SessionRow, noted: list[Any] | None, at_ms: int) -> list[Any] | None:
    if noted is not None:
        same = noted == [child.uid, child.seq]
        return [*noted, child.attached if same else 0, 0]
    if child.hidden:
        return None
    if child.created_ms > at_ms:
        return [child.uid, child.seq, child.attached, 1]
    seq = _last_before(tx, child, at_ms)
    if seq == child.seq:
        return None
    point = entries.point(tx, child, seq)
    own = branches.get(tx, child.scope, point.branch).session == child.sid
    return [point.uid if own else child.uid, seq, 0, 0]


def _last_before(tx: Tx, child: SessionRow, at_ms: int) -> int:
    """Find the last entry of a path at or before a time, by binary search."""
    low, high = 0, child.seq
    while low < high:
        middle = (low + high + 1) // 2
        (row,) = entries.read(tx, child.scope, entries.path_segments(tx, child, middle - 1, middle))
        if row.at_ms <= at_ms:
            low = middle
        else:
            high = middle - 1
    return low
