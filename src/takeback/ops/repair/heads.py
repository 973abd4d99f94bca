"""Repair of where branches end and where sessions are: the entries know, and the feed remembers where a head went."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ... import codec
from ...errors import Error
from ...storage.base import Row, row_check
from .. import branches, entries, operations, sessions, work
from ..branches import BranchRow
from ..sessions import SessionRow
from ..verify import derived
from ..verify.log import LAST_KEY
from ..verify.places import BRANCHES, CHANGED, COUNT, PURGED, SESSIONS, is_object
from .base import PARTLY, Repair, checked

LAST_CHANGE = "SELECT pos, branch, last_seq FROM feed WHERE session = ? ORDER BY pos DESC LIMIT 1"
LAST_CHANGES = "SELECT session, max(pos) FROM feed GROUP BY session"
BEFORE = "SELECT session FROM feed WHERE pos = ?"
APPENDS = "SELECT count(*) FROM feed WHERE session = ? AND kind = 'entries'"
OPERATIONS = f"SELECT {operations.COLUMNS} FROM operation WHERE session = ?"
OF_SESSION = "SELECT bid FROM branch WHERE session = ? ORDER BY bid DESC LIMIT 1"
STATES = """SELECT b.session, e.key, e.kind, e.body FROM entry e JOIN branch b ON b.bid = e.key >> 32
WHERE e.kind = 'state' AND e.body IS NOT NULL"""
TIMES = """SELECT max(at_ms) FROM entry WHERE key > ? AND key <= ? AND (? OR kind IN ('message', 'tool'))"""

_COLD = len(sessions.COLD.split(","))  # with its check


# ---------------------------------------------------------------------- ends of branches


def end_of(fix: Repair, branch: BranchRow) -> int:
    """Give the last entry of a branch, or where it starts."""
    base = entries.key_of(branch.bid, 0)
    last = fix.tx.one(LAST_KEY, (base, base + entries.MAX_SEQ))
    return max(branch.fork_seq, last[0] & entries.MAX_SEQ) if last and last[0] is not None else branch.fork_seq


def fix_tips(fix: Repair) -> None:
    """Let every branch end with its last entry; that of an attached head may say less, but nothing wrong."""
    for row in fix.rows(BRANCHES):
        branch = branches.checked(row)
        end, session = end_of(fix, branch), fix.tx.one(sessions.BY_NUMBER, (branch.session,))
        attached = session is not None and session[22] == branch.bid and session[26] == 1
        if (
            attached
            and branch.fork_seq <= branch.tip_seq <= end
            and _hash(fix, branch, branch.tip_seq) == branch.tip_hash
        ):
            continue
        if (branch.tip_seq, branch.tip_hash) != (end, _hash(fix, branch, end)):
            fix.replace(
                BRANCHES, (branch.bid,), checked(branch._replace(tip_seq=end, tip_hash=_hash(fix, branch, end)))
            )
            fix.rebuilt += 1


def _hash(fix: Repair, branch: BranchRow, seq: int) -> bytes:
    return entries.point_on(fix.tx, branch.scope, branch, seq).hash


# ---------------------------------------------------------------------- heads


def fix_heads(fix: Repair) -> None:
    """Let every session stand at an entry of a branch of its own, and show the numbers and counts there."""
    for row in fix.rows(SESSIONS):
        sound = row_check((row[0], *row[_COLD:-1])) == row[-1]
        new = _sound_head(fix, SessionRow._make(row)) if sound else _found_head(fix, SessionRow._make(row))
        new = _counted(fix, new)
        if new != row:
            fix.replace(SESSIONS, row[:1], new)
            fix.rebuilt += sound


def _sealed(session: SessionRow) -> SessionRow:
    """Put both checks into a row."""
    row = tuple(session)
    return session._replace(chk=row_check(row[: _COLD - 1]), head_chk=row_check((row[0], *row[_COLD:-1])))


def _sound_head(fix: Repair, session: SessionRow) -> SessionRow:
    """Correct a head that says where it is, but not truly."""
    branch = _own(fix, session.sid, session.branch)
    if branch is None:
        fix.lose("session", f"session {session.id}", "where it stood is lost; it stands at the end of a branch", PARTLY)
        return _found_head(fix, session)
    end = end_of(fix, branch)
    seq = end if session.attached else min(session.seq, end)
    new = _standing(fix, session, branch, seq, int(bool(session.attached)))
    hidden = session.hidden if session.hidden in (0, 1, PURGED) else 0
    return _sealed(new._replace(archived=int(session.archived == 1), pinned=int(session.pinned == 1), hidden=hidden))


def _own(fix: Repair, sid: int, bid: Any) -> BranchRow | None:
    row = fix.tx.one(branches.GET, (bid,)) if isinstance(bid, int) else None
    return branches.checked(row) if row is not None and row[3] == sid else None


def _standing(fix: Repair, session: SessionRow, branch: BranchRow, seq: int, attached: int) -> SessionRow:
    point = entries.point_on(fix.tx, session.scope, branch, seq)
    (count,) = fix.tx.one(COUNT, (session.scope, session.sid)) or (0,)
    if count < session.branches:
        fix.lose("branch", f"session {session.id}", "a branch without entries is lost")
    numbers: dict[str, Any] = dict(zip(SessionRow._fields[28:40], point.numbers, strict=True))
    # The fork of a purged session's first branch may have changed behind its back.
    place: dict[str, Any] = {"branch": branch.bid, "uid": branch.uid, "fork": branch.fork_seq, "seq": seq}
    return session._replace(**place, attached=attached, hash=point.hash, **numbers, branches=count)


def fix_places(fix: Repair) -> None:
    """Let every session name its last change, and the one that gave it its rank, as the feed has them."""
    newest: dict[int, int] = dict(fix.tx.all(LAST_CHANGES))
    for row in fix.rows(SESSIONS):
        session, last = SessionRow._make(row), newest.get(row[0])
        if last is None or (last == session.updated and fix.tx.one(CHANGED, (session.rank,)) == (session.sid,)):
            continue
        new = session._replace(updated=last, rank=_rank(fix, session.sid, last))
        fix.replace(SESSIONS, row[:1], _sealed(new))
        fix.rebuilt += 1


def fix_states(fix: Repair) -> None:
    """Let every session count at least the versions of its state that its entries have."""
    newest: dict[int, int] = {}
    for sid, key, kind, body in fix.tx.all(STATES):
        try:
            newest[sid] = max(newest.get(sid, 0), derived.version_of((key, kind), body) - 1)
        except derived.UNREADABLE:
            continue
    for row in fix.rows(SESSIONS):
        session = SessionRow._make(row)
        if newest.get(session.sid, 0) > session.states:
            fix.replace(SESSIONS, row[:1], _sealed(session._replace(states=newest[session.sid])))
            fix.rebuilt += 1


def _rank(fix: Repair, sid: int, position: int) -> int:
    """A session keeps its rank as long as the changes are all its own."""
    while position > 1 and fix.tx.one(BEFORE, (position - 1,)) == (sid,):
        position -= 1
    return position


def _found_head(fix: Repair, session: SessionRow) -> SessionRow:
    """Find out where a session stood: the feed remembers; the check proves what only the row knew."""
    last = fix.tx.one(LAST_CHANGE, (session.sid,))
    wanted = last[1] if last else (fix.tx.one(OF_SESSION, (session.sid,)) or (0,))[0]
    branch = _own(fix, session.sid, session.branch) or _own(fix, session.sid, wanted) or _newest(fix, session.sid)
    if branch is None:
        return session
    for new in _tries(fix, session, branch, last):
        sealed = _sealed(new)
        if sealed.head_chk == session.head_chk:
            fix.rebuilt += 1
            return sealed
    told = _own(fix, session.sid, last[1]) if last else None
    branch = told or branch
    end = end_of(fix, branch)
    seq = min(last[2], end) if last and told else end
    if session.hidden == PURGED:
        seq = 0
    new = _standing(fix, session, branch, seq, int(seq == end and session.hidden != PURGED))
    fix.lose("session", f"session {session.id}", "its times and its revision are lost", PARTLY)
    return _sealed(new._replace(**_times(fix, new, last)))


def _newest(fix: Repair, sid: int) -> BranchRow | None:
    row = fix.tx.one(OF_SESSION, (sid,))
    return None if row is None else branches.get(fix.tx, row[0])


def _tries(fix: Repair, session: SessionRow, branch: BranchRow, last: Row | None) -> Iterator[SessionRow]:
    """Give heads that may have been: with the columns of the row that nobody else knows, one of them put right."""
    end = end_of(fix, branch)
    places = [(seq, attached) for seq in {end, session.seq, last[2] if last else end} for attached in (1, 0)]
    for seq, attached in places:
        if not isinstance(seq, int) or not 0 <= seq <= end:
            continue
        new = _standing(fix, session, branch, seq, attached)
        yield new
        times = _times(fix, new, last)
        yield from (new._replace(**{name: value}) for name, value in times.items())
        yield new._replace(updated=times["updated"], rank=times["rank"])


def _times(fix: Repair, session: SessionRow, last: Row | None) -> dict[str, Any]:
    """Compute what a head says beside its place, from the feed, the operations log and the entries."""
    updated = last[0] if last else 0
    (appends,) = fix.tx.one(APPENDS, (session.sid,)) or (0,)
    rows = fix.tx.all(OPERATIONS, (session.sid,))
    moves = sum("head" in codec.decode(row[8]) for row in rows if is_object(row[8]))
    base = entries.key_of(session.branch, 0)
    ends = [fix.tx.one(TIMES, (base, base + entries.MAX_SEQ, every)) for every in (1, 0)]
    any_ms, message_ms = (each[0] if each else None for each in ends)
    newest = max([session.created_ms, *(row[6] for row in rows), *([any_ms] if any_ms is not None else [])])
    return {
        "revision": appends + moves,
        "updated": updated,
        "rank": _rank(fix, session.sid, updated),
        "updated_ms": newest,
        "message_ms": message_ms,
    }


def _counted(fix: Repair, session: SessionRow) -> SessionRow:
    """Show the tasks and build attempts of the head; where they are lost, the row keeps what it says."""
    try:
        counts: dict[str, Any] = work.counts_at_head(fix.tx, session) if session.hidden != PURGED else {}
    except (*derived.UNREADABLE, Error):
        return session
    return _sealed(session._replace(**counts))
