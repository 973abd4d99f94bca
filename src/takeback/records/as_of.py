"""Sessions as of one moment, in either store, and how the two stand to each other.

Everything of a session but its row only grows, until a purge; so what a moment names can be read later, page by page,
and still comes out as it was. A session is the same in both stores, or one has all that the other has and more:
anything else has been changed in both, and is never merged.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import Conflict
from ..ops import branches, chain, feed, sessions
from ..ops.log import key_of
from ..ops.verify.base import Read
from ..storage.base import Tx, scalar
from ..tables.branches import BranchRow
from ..tables.entries import ENTRY
from ..tables.sessions import SessionRow
from .stream import BranchRecord, Counted, SessionRecord

COPY = "copy"  # the kind of the last change of a session that was copied and not touched since
AGAIN = "Whatever is not in conflict was copied, and calling again goes on"
OPERATIONS = "SELECT count(*), max(oid) FROM operation WHERE scope = ? AND session = ? AND agent = ?"
CHECKPOINTS = "SELECT count(*), max(cid) FROM checkpoint WHERE scope = ? AND session = ?"
OPERATION_ID = "SELECT id FROM operation WHERE scope = ? AND oid = ?"
CHECKPOINT_ID = "SELECT id FROM checkpoint WHERE scope = ? AND cid = ?"
OPERATIONS_UPTO = """SELECT count(*) FROM operation WHERE scope = ? AND session = ? AND agent = 0
AND oid <= (SELECT o.oid FROM operation o WHERE o.scope = ? AND o.id = ?)"""
CHECKPOINTS_UPTO = """SELECT count(*) FROM checkpoint WHERE scope = ? AND session = ?
AND cid <= (SELECT c.cid FROM checkpoint c WHERE c.scope = ? AND c.id = ?)"""
UNDONE = """SELECT o.id, b.id FROM operation o JOIN operation b ON b.scope = o.scope AND b.oid = o.undone_by
WHERE o.scope = ? AND o.session = ? AND o.agent = ? ORDER BY o.oid"""

# What a session's row says of this store alone.
_LOCAL: dict[str, Any] = {"sid": 0, "parent": 0, "updated": 0, "rank": 0, "past": 0, "branch": 0, "calls": None}


def find(tx: Tx, scope: str, session_id: str) -> SessionRecord | None:
    """Return a session by its id, whatever state it is in."""
    row = sessions.find_any(tx, scope, session_id)
    return None if row is None else of(tx, row)


def of(tx: Tx, session: SessionRow, order: int = 0) -> SessionRecord:
    """Read what belongs to a session's row."""
    scope, sid = session.scope, session.sid
    parent = sessions.by_number(tx, scope, session.parent).id if session.parent else None
    done = tally(tx, OPERATIONS, OPERATION_ID, scope, sid, 0)
    points = tally(tx, CHECKPOINTS, CHECKPOINT_ID, scope, sid)
    undone = tuple(tx.all(UNDONE, (scope, sid, 0)))
    doc = sessions.lasting(sessions.detail(tx, session))
    return SessionRecord(session, doc, parent, _branches(tx, session), undone, done, points, order)


def tally(tx: Tx, count: str, name: str, scope: str, *subject: int) -> Counted:
    """Count records and name the newest."""
    total, newest = tx.one(count, (scope, *subject)) or (0, None)
    called = None if newest is None else scalar(tx, name, (scope, newest))
    return Counted(total, newest or 0, called or "")


def _branches(tx: Tx, session: SessionRow) -> tuple[BranchRecord, ...]:
    found = branches.of_session(tx, session.scope, session.sid, session.branches)
    known = {branch.bid: branch for branch in found}
    parts = []
    for branch in found:
        parent = None
        if branch.parent is not None:
            parent = known.get(branch.parent) or branches.get(tx, session.scope, branch.parent)
        fork = chain.GENESIS if parent is None else hash_at(tx, parent, branch.fork_seq) or b""
        attached = session.attached and session.branch == branch.bid
        end = (session.seq, session.hash) if attached else (branch.tip_seq, branch.tip_hash)
        parts.append(BranchRecord(branch, parent.uid if parent else None, fork, *end))
    return tuple(parts)


def hash_at(tx: Tx, branch: BranchRow, seq: int) -> bytes | None:
    """Return the hash of an entry that a branch owns, None if it is not there."""
    found = ENTRY.get(tx, branch.scope, key_of(branch.bid, seq))
    return None if found is None else found.chain.hash


# ---------------------------------------------------------------------- comparing


class Sides(NamedTuple):
    """Which of two stores has something of a session that the other has not."""

    ours: bool
    theirs: bool


def compare(ours: SessionRecord, theirs: SessionRecord, read: Read, look: Read) -> Sides:
    """Return which side has more of a session; what was changed in both raises ``Conflict``.

    ``read`` looks into the store that the records come from, ``look`` into the other one.
    """
    mine = {branch.row.uid: branch for branch in ours.branches}
    other = {branch.row.uid: branch for branch in theirs.branches}
    sides = [Sides(bool(mine.keys() - other.keys()), bool(other.keys() - mine.keys()))]
    sides += [_compare_branches(ours, mine[uid], other[uid], read, look) for uid in mine.keys() & other.keys()]
    for one, two, upto in (
        (ours.operations, theirs.operations, OPERATIONS_UPTO),
        (ours.checkpoints, theirs.checkpoints, CHECKPOINTS_UPTO),
    ):
        sides.append(_compare_tallies(ours, theirs, one, two, upto, read, look))
    both = Sides(any(side.ours for side in sides), any(side.theirs for side in sides))
    if all(both):
        raise _diverged(ours)
    return both


def _diverged(ours: SessionRecord) -> Conflict:
    row = ours.row
    return Conflict(
        f"session {row.id} ({row.name or row.title or row.key}) was changed in both stores;"
        f" two histories are never merged, so it stays as it is in each. {AGAIN}",
        found=row.id,
    )


def _compare_branches(ours: SessionRecord, mine: BranchRecord, other: BranchRecord, read: Read, look: Read) -> Sides:
    """Compare a branch by the hash where the shorter one ends: it covers everything before it."""
    if (mine.parent, mine.row.fork_seq) != (other.parent, other.row.fork_seq):
        raise _diverged(ours)
    if mine.tip == other.tip:
        same = mine.hash == other.hash
    elif min(mine.tip, other.tip) == mine.row.fork_seq:
        same = True  # the shorter one has no entries of its own, and both start at the same place
    elif mine.tip > other.tip:
        same = read(lambda tx: hash_at(tx, mine.row, other.tip)) == other.hash
    else:
        same = look(lambda tx: hash_at(tx, other.row, mine.tip)) == mine.hash
    if not same:
        raise _diverged(ours)
    return Sides(mine.tip > other.tip, other.tip > mine.tip)


def _compare_tallies(
    ours: SessionRecord, theirs: SessionRecord, one: Counted, two: Counted, upto: str, read: Read, look: Read
) -> Sides:
    """Compare records that are only added: the newest of the side that has fewer must be as far on in the other."""
    less, where, holder = (two, read, ours.row) if one.total >= two.total else (one, look, theirs.row)
    asked = (holder.scope, holder.sid, holder.scope, less.id)
    same = (one.total, one.id) == (two.total, two.id) or not less.total
    if not same and where(lambda tx: tx.one(upto, asked)) != (less.total,):
        raise _diverged(ours)
    return Sides(one.total > two.total, two.total > one.total)


def is_settled(ours: SessionRecord, theirs: SessionRecord) -> bool:
    """Whether two rows that stand for the same entries say the same about them."""
    return _said(ours) == _said(theirs)


def _said(session: SessionRecord) -> tuple[Any, ...]:
    """Return what a session's row and details say, without what is local to a store."""
    hidden = sorted((branch.row.uid, branch.row.hidden) for branch in session.branches)
    return session.row._replace(**_LOCAL), session.parent, hidden, session.doc


def is_newer(ours: SessionRecord, theirs: SessionRecord, read: Read, look: Read) -> bool:
    """Whether our row is to stand where two differ: one that was copied and not touched since gives way."""
    copied, untouched = read(lambda tx: is_copy(tx, ours.row)), look(lambda tx: is_copy(tx, theirs.row))
    return untouched if copied != untouched else ours.row.updated_ms >= theirs.row.updated_ms


def is_copy(tx: Tx, session: SessionRow) -> bool:
    """Whether nothing has happened to a session since it was copied here."""
    change = feed.last_of(tx, session)
    return change is not None and change.kind == COPY
