"""Sessions as of one moment, in either store, and how the two stand to each other.

Everything of a session but its row only grows, until a purge; so what a moment names can be copied later, page by
page, and still comes out as it was. A session is the same in both stores, or one has all that the other has and more:
anything else has been changed in both, and is never merged.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...storage.base import Tx, scalar
from ...tables.branches import BranchRow
from ...tables.sessions import SessionRow
from .. import branches, chain, feed, sessions
from . import base
from .base import Read

OPERATIONS = "SELECT count(*), max(oid) FROM operation WHERE scope = ? AND session = ? AND agent = ?"
CHECKPOINTS = "SELECT count(*), max(cid) FROM checkpoint WHERE scope = ? AND session = ?"
OPERATION_ID = "SELECT id FROM operation WHERE scope = ? AND oid = ?"
CHECKPOINT_ID = "SELECT id FROM checkpoint WHERE scope = ? AND cid = ?"
OPERATIONS_UPTO = """SELECT count(*) FROM operation WHERE scope = ? AND session = ? AND agent = 0
AND oid <= (SELECT o.oid FROM operation o WHERE o.scope = ? AND o.id = ?)"""
CHECKPOINTS_UPTO = """SELECT count(*) FROM checkpoint WHERE scope = ? AND session = ?
AND cid <= (SELECT c.cid FROM checkpoint c WHERE c.scope = ? AND c.id = ?)"""

# What a session's row says of this store alone.
_LOCAL: dict[str, Any] = {"sid": 0, "parent": 0, "updated": 0, "rank": 0, "branch": 0, "calls": None}


class Who(NamedTuple):
    """A session of one store by its local number."""

    scope: str
    sid: int


class Tally(NamedTuple):
    """How many records of a kind there are, and the newest of them."""

    total: int
    number: int
    id: str


class Part(NamedTuple):
    """A branch, the id of the one it starts on, and where it truly ends."""

    branch: BranchRow
    parent: str | None
    tip: int
    hash: bytes


class Moment(NamedTuple):
    """A session with all that its row does not hold, but for the rows that are copied page by page."""

    session: SessionRow
    doc: bytes
    parent: str | None
    parts: tuple[Part, ...]
    operations: Tally
    checkpoints: Tally

    @property
    def who(self) -> Who:
        """Which session it is."""
        return Who(self.session.scope, self.session.sid)

    @property
    def staged(self) -> bool:
        """Whether it is half copied."""
        return base.is_staged(self.session)

    @property
    def purged(self) -> bool:
        """Whether it was purged."""
        return self.session.hidden == base.HIDDEN and not self.staged

    @property
    def entries(self) -> int:
        """How many entries its branches own."""
        return sum(part.tip - part.branch.fork_seq for part in self.parts)


def find(tx: Tx, scope: str, session_id: str) -> Moment | None:
    """Return a session by its id, whatever state it is in."""
    row = sessions.find_any(tx, scope, session_id)
    return None if row is None else of(tx, row)


def get(tx: Tx, who: Who) -> Moment:
    """Return a session that must exist."""
    return of(tx, sessions.by_number(tx, *who))


def of(tx: Tx, session: SessionRow) -> Moment:
    """Read what belongs to a session's row."""
    scope, sid = session.scope, session.sid
    parent = sessions.by_number(tx, scope, session.parent).id if session.parent else None
    done = tally(tx, OPERATIONS, OPERATION_ID, scope, sid, 0)
    points = tally(tx, CHECKPOINTS, CHECKPOINT_ID, scope, sid)
    return Moment(session, sessions.lasting(sessions.detail(tx, session)), parent, _parts(tx, session), done, points)


def tally(tx: Tx, count: str, name: str, scope: str, *subject: int) -> Tally:
    """Count records and name the newest."""
    total, newest = tx.one(count, (scope, *subject)) or (0, None)
    called = None if newest is None else scalar(tx, name, (scope, newest))
    return Tally(total, newest or 0, called or "")


def _parts(tx: Tx, session: SessionRow) -> tuple[Part, ...]:
    found = branches.of_session(tx, session.scope, session.sid, session.branches)
    uids: dict[int | None, str | None] = {None: None, **{branch.bid: branch.uid for branch in found}}
    parts = []
    for branch in found:
        if branch.parent not in uids:
            uids[branch.parent] = branches.get(tx, session.scope, branch.parent or 0).uid
        attached = session.attached and session.branch == branch.bid
        end = (session.seq, session.hash) if attached else (branch.tip_seq, branch.tip_hash)
        parts.append(Part(branch, uids[branch.parent], *end))
    return tuple(parts)


def fork_hash(tx: Tx, part: Part) -> bytes:
    """Return the hash of the entry that a branch starts at."""
    if part.branch.parent is None:
        return chain.GENESIS
    parent = branches.get(tx, part.branch.scope, part.branch.parent)
    return base.hash_at(tx, parent, part.branch.fork_seq) or b""


# ---------------------------------------------------------------------- comparing


class Sides(NamedTuple):
    """Which of two stores has something of a session that the other has not."""

    ours: bool
    theirs: bool


def compare(ours: Moment, theirs: Moment, read: Read, look: Read) -> Sides:
    """Say which side has more of a session; what was changed in both raises ``Conflict``.

    ``read`` looks into the store that is copied, ``look`` into the other one.
    """
    mine = {part.branch.uid: part for part in ours.parts}
    other = {part.branch.uid: part for part in theirs.parts}
    sides = [Sides(bool(mine.keys() - other.keys()), bool(other.keys() - mine.keys()))]
    for uid in mine.keys() & other.keys():
        sides.append(_compare_parts(ours, mine[uid], other[uid], read, look))
    for one, two, upto in (
        (ours.operations, theirs.operations, OPERATIONS_UPTO),
        (ours.checkpoints, theirs.checkpoints, CHECKPOINTS_UPTO),
    ):
        sides.append(_compare_tallies(ours, theirs, one, two, upto, read, look))
    both = Sides(any(side.ours for side in sides), any(side.theirs for side in sides))
    if all(both):
        raise _diverged(ours)
    return both


def _diverged(ours: Moment) -> Exception:
    session = ours.session
    return base.conflict(
        f"session {session.id} ({session.name or session.title or session.key}) was changed in both stores;"
        f" two histories are never merged, so it stays as it is in each. {base.AGAIN}",
        session.id,
    )


def _compare_parts(ours: Moment, mine: Part, other: Part, read: Read, look: Read) -> Sides:
    """Compare a branch by the hash where the shorter one ends: it covers everything before it."""
    if (mine.parent, mine.branch.fork_seq) != (other.parent, other.branch.fork_seq):
        raise _diverged(ours)
    if mine.tip == other.tip:
        same = mine.hash == other.hash
    elif min(mine.tip, other.tip) == mine.branch.fork_seq:
        same = True  # the shorter one has no entries of its own, and both start at the same place
    elif mine.tip > other.tip:
        same = read(lambda tx: base.hash_at(tx, mine.branch, other.tip)) == other.hash
    else:
        same = look(lambda tx: base.hash_at(tx, other.branch, mine.tip)) == mine.hash
    if not same:
        raise _diverged(ours)
    return Sides(mine.tip > other.tip, other.tip > mine.tip)


def _compare_tallies(ours: Moment, theirs: Moment, one: Tally, two: Tally, upto: str, read: Read, look: Read) -> Sides:
    """Compare records that are only added: the newest of the side that has fewer must be as far on in the other."""
    less, where, holder = (two, read, ours) if one.total >= two.total else (one, look, theirs)
    asked = (holder.session.scope, holder.session.sid, holder.session.scope, less.id)
    same = (one.total, one.id) == (two.total, two.id) or not less.total
    if not same and where(lambda tx: tx.one(upto, asked)) != (less.total,):
        raise _diverged(ours)
    return Sides(one.total > two.total, two.total > one.total)


def is_settled(ours: Moment, theirs: Moment) -> bool:
    """Whether two rows that stand for the same entries say the same about them."""
    return _said(ours) == _said(theirs)


def is_newer(ours: Moment, theirs: Moment, read: Read, look: Read) -> bool:
    """Whether our row is to stand where two differ: one that was copied and not touched since gives way."""
    copied, untouched = read(lambda tx: is_copy(tx, ours.session)), look(lambda tx: is_copy(tx, theirs.session))
    return untouched if copied != untouched else ours.session.updated_ms >= theirs.session.updated_ms


def is_copy(tx: Tx, session: SessionRow) -> bool:
    """Whether nothing has happened to a session since it was copied here."""
    change = feed.last_of(tx, session)
    return change is not None and change.kind == base.COPY


def _said(moment: Moment) -> tuple[Any, ...]:
    """Return what a session's row and details say, without what is local to a store."""
    hidden = sorted((part.branch.uid, part.branch.hidden) for part in moment.parts)
    return moment.session._replace(**_LOCAL), moment.parent, hidden, moment.doc
