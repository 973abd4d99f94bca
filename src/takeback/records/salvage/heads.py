"""Salvage of where branches end and where sessions are: the entries know, and the feed remembers where a head went.

A session's row that does not match its check is tried with every head that may have been, and with what other records
know of it. If nothing fits, the place it names tells which part of it is damaged: hash and numbers there are those of
the entry, or they are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ... import codec
from ...ops import branches, chain, log, open_calls, work
from ...ops.open_calls import OpenCall
from ...ops.verify.base import PURGED, UNREADABLE, intact, is_object
from ...ops.verify.places import COUNT
from ...tables.branches import BRANCH, BranchRow
from ...tables.history import FEED, OPERATION, FeedRow
from ...tables.sessions import SESSION, SessionRow
from .base import PARTLY, Read, Salvage, proved
from .sessions import is_plausible, known, readable, rebuilt, states

APPENDS = "SELECT count(*) FROM feed WHERE scope = ? AND session = ? AND kind = 'entries'"
TIMES = """SELECT max(at_ms), max(CASE WHEN kind IN ('message', 'tool') THEN at_ms END) FROM entry
WHERE scope = ? AND key > ? AND key <= ?"""


def fix_heads(fix: Salvage) -> None:
    """Let every session stand at an entry of a branch of its own, and every branch end with its last entry.

    Counts, totals and open calls need not be right: the sink computes them.
    """
    newest = states(fix)
    for found in fix.rows(SESSION):
        new = _sound_head(fix, found.row) if found.sound else _found_head(fix, found)
        new = new._replace(states=max(new.states, newest.get(new.sid, 0)))
        fix.replace(SESSION, found.row, new)
        if found.sound and new.branches < found.row.branches:
            fix.lose("branch", f"session {new.id}", "a branch without entries is lost")
    for branch in fix.sound(BRANCH):
        end = end_of(fix, branch)
        tip = log.point_on(fix.tx, branch.scope, branch, end).hash
        fix.replace(BRANCH, branch, branch._replace(tip_seq=end, tip_hash=tip))


def end_of(fix: Salvage, branch: BranchRow) -> int:
    """Return the last entry of a branch, or where it starts."""
    _, last = fix.ends(branch.bid) or (0, 0)
    return max(branch.fork_seq, last)


def _standing(fix: Salvage, session: SessionRow, branch: BranchRow, seq: int, attached: int) -> SessionRow:
    """Return a session at a place, with what follows from it."""
    point = log.point_on(fix.tx, session.scope, branch, seq)
    (count,) = fix.tx.one(COUNT, (session.scope, session.sid)) or (0,)
    # The fork of a purged session's first branch may have changed behind its back.
    place: dict[str, Any] = {"branch": branch.bid, "uid": branch.uid, "fork": branch.fork_seq, "seq": seq}
    return session._replace(**place, attached=attached, hash=point.hash, **point.numbers._asdict(), branches=count)


def _agrees(fix: Salvage, session: SessionRow, branch: BranchRow) -> bool:
    """Whether the place that a row names is one, and its hash and numbers are those of the entry there."""
    end = end_of(fix, branch)
    if not (session.seq == end if session.attached else 0 <= session.seq <= end):
        return False
    return _standing(fix, session, branch, session.seq, session.attached) == session


def _own(fix: Salvage, session: SessionRow, bid: int) -> BranchRow | None:
    branch = intact(fix.tx, BRANCH, session.scope, bid)
    return branch if branch is not None and branch.session == session.sid else None


# ---------------------------------------------------------------------- rows that match their check


def _sound_head(fix: Salvage, session: SessionRow) -> SessionRow:
    """Correct a head that says where it is, but not truly."""
    branch = _named(fix, session) or _own(fix, session, session.branch)
    if branch is None:
        fix.lose("session", f"session {session.id}", "where it stood is lost; it stands at the end of a branch", PARTLY)
        return _found_head(fix, Read(session, True, -1))
    end = end_of(fix, branch)
    attached = _is_attached(fix, session, branch, end)
    seq = end if attached else max(0, min(session.seq, end))
    new = _standing(fix, session, branch, seq, int(attached))
    hidden = session.hidden if session.hidden in (0, 1, PURGED) else 0
    return new._replace(archived=int(session.archived == 1), pinned=int(session.pinned == 1), hidden=hidden)


def _named(fix: Salvage, session: SessionRow) -> BranchRow | None:
    """Return the branch whose id a head has, if everything else that the head says is true there."""
    branch = BRANCH.one(fix.tx, "WHERE scope = ? AND uid = ?", (session.scope, session.uid))
    if branch is None or branch.session != session.sid:
        return None
    return branch if _agrees(fix, session._replace(branch=branch.bid), branch) else None


def _is_attached(fix: Salvage, session: SessionRow, branch: BranchRow, end: int) -> bool:
    """Whether a head is at the tip of its branch.

    A head that leaves the tip writes it down: none that is detached is behind it, none that is attached before it.
    """
    if session.attached:
        return session.seq >= branch.tip_seq or not _agrees(fix, session._replace(attached=0), branch)
    return branch.tip_seq < session.seq == end


# ---------------------------------------------------------------------- damaged rows


def _found_head(fix: Salvage, found: Read[SessionRow]) -> SessionRow:
    """Find out where a session stood: the feed remembers; the check proves what only the row knew."""
    session = readable(fix, found.row)
    asked = (session.scope, session.sid)
    changes = fix.all(FEED, "WHERE scope = ? AND session = ? ORDER BY pos DESC LIMIT 1", asked)
    last = changes[0].row if changes else None
    own, told = _own(fix, session, session.branch), None if last is None else _own(fix, session, last.branch)
    branch = own or told or _newest(fix, session)
    whole = proved(SESSION, Read(session, found.sound, found.chk), _candidates(fix, session, branch, last))
    if whole is not None:
        return whole
    if own is not None and _agrees(fix, session, own) and not found.sound:
        fix.lose("session", f"session {session.id}", "its record was damaged: name, title and status are lost", PARTLY)
        return rebuilt(fix, session)
    fix.lose("session", f"session {session.id}", "its times and its revision are lost", PARTLY)
    session = session if is_plausible(session) else rebuilt(fix, session)
    branch = told or branch
    end = end_of(fix, branch)
    seq = min(last.last_seq, end) if last and told else end
    if session.hidden == PURGED:
        seq = 0
    new = _standing(fix, session, branch, seq, int(seq == end and session.hidden != PURGED))
    return new._replace(**_times(fix, new, last))


def _newest(fix: Salvage, session: SessionRow) -> BranchRow:
    """Return the newest branch of a session; one that has none is given one."""
    asked = (session.scope, session.sid)
    found = BRANCH.one(fix.tx, "WHERE scope = ? AND session = ? ORDER BY bid DESC LIMIT 1", asked)
    return found or branches.create(
        fix.tx, *asked, name="main", origin=None, seq=0, tip_hash=chain.GENESIS, now_ms=fix.now_ms
    )


def _candidates(fix: Salvage, session: SessionRow, branch: BranchRow, last: FeedRow | None) -> Iterator[dict[str, Any]]:
    """Yield what a damaged row may have said: every head that may have been, with one other value put right."""
    end, others = end_of(fix, branch), list(known(fix, session))
    for seq in {end, session.seq, last.last_seq if last else end}.intersection(range(end + 1)):
        for attached in (1, 0):
            new = _standing(fix, session, branch, seq, attached)
            new, times = new._replace(**_counts(fix, new)), _times(fix, new, last)
            kept = (session.calls, None, (), _open_at(fix, new))
            for change in ({}, *({name: value} for name, value in times.items()), times, *others):
                yield from ({**new._asdict(), **change, "calls": calls} for calls in kept)


def _counts(fix: Salvage, session: SessionRow) -> dict[str, Any]:
    """Return the tasks and build attempts of a head; nothing where they are lost."""
    if session.hidden == PURGED:
        return {"tasks": 0, "completed": 0, "builds": 0}
    try:
        return dict(work.counts_at_head(fix.tx, session))
    except UNREADABLE:
        return {}


def _open_at(fix: Salvage, session: SessionRow) -> tuple[OpenCall, ...] | None:
    """Return the open tool calls of a head; None if they cannot be read or are more than a row keeps."""
    try:
        there = open_calls.at(fix.tx, session._replace(calls=None))
    except UNREADABLE:
        return None
    return there if len(there) <= open_calls.MOST else None


def _times(fix: Salvage, session: SessionRow, last: FeedRow | None) -> dict[str, Any]:
    """Compute what a head says beside its place, from the feed, the operations log and the entries."""
    (appends,) = fix.tx.one(APPENDS, (session.scope, session.sid)) or (0,)
    done = [row for row, _, _ in fix.all(OPERATION, "WHERE scope = ? AND session = ?", (session.scope, session.sid))]
    moves = sum("head" in codec.decode(row.after) for row in done if is_object(row.after))
    ends = (session.scope, log.key_of(session.branch, 0), log.key_of(session.branch, log.MAX_SEQ))
    any_ms, message_ms = fix.tx.one(TIMES, ends) or (None, None)
    updated_ms = max([session.created_ms, any_ms or 0, *(row.at_ms for row in done)])
    updated = last.pos if last else 0
    return {"revision": appends + moves, "updated": updated, "updated_ms": updated_ms, "message_ms": message_ms}
