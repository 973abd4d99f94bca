"""Sessions as of one moment, in either store, and how the two stand to each other.

Everything of a session but its row only grows, until a purge; so what a moment names can be copied later, page by
page, and still comes out as it was. A session is the same in both stores, or one has all that the other has and more:
anything else has been changed in both, and is never merged.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...storage.base import Tx
from .. import branches, chain, sessions
from ..branches import BranchRow
from ..sessions import SessionRow
from . import base
from .base import Read

PAGE = f"SELECT {sessions.COLUMNS} FROM session WHERE sid > ? AND sid <= ? ORDER BY sid LIMIT ?"
OPERATIONS = "SELECT count(*), max(oid) FROM operation WHERE scope = ? AND session = ? AND agent = ?"
CHECKPOINTS = "SELECT count(*), max(cid) FROM checkpoint WHERE scope = ? AND session = ?"
OPERATION_ID = "SELECT id FROM operation WHERE oid = ?"
CHECKPOINT_ID = "SELECT id FROM checkpoint WHERE cid = ?"
OPERATIONS_UPTO = """SELECT count(*) FROM operation WHERE scope = ? AND session = ? AND agent = 0
AND oid <= (SELECT o.oid FROM operation o WHERE o.scope = ? AND o.id = ?)"""
CHECKPOINTS_UPTO = """SELECT count(*) FROM checkpoint WHERE scope = ? AND session = ?
AND cid <= (SELECT c.cid FROM checkpoint c WHERE c.scope = ? AND c.id = ?)"""

KIND_AT = "SELECT kind FROM feed WHERE pos = ?"

_PARENT, _FIRST_COLD, _LAST_COLD = 9, 2, 21


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


def page(tx: Tx, after: int, upto: int, limit: int) -> list[Moment]:
    """Give the next sessions, by their numbers."""
    return [of(tx, sessions.checked(row)) for row in tx.all(PAGE, (after, upto, limit))]


def find(tx: Tx, scope: str, session_id: str) -> Moment | None:
    """Give a session by its id, whatever state it is in."""
    row = base.find_session(tx, scope, session_id)
    return None if row is None else of(tx, row)


def of(tx: Tx, session: SessionRow) -> Moment:
    """Read what belongs to a session's row."""
    asked = session.scope, session.sid
    parent = sessions.by_number(tx, session.parent).id if session.parent else None
    done = tally(tx, OPERATIONS, OPERATION_ID, (*asked, 0))
    points = tally(tx, CHECKPOINTS, CHECKPOINT_ID, asked)
    return Moment(session, sessions.lasting(sessions.detail(tx, session)), parent, _parts(tx, session), done, points)


def tally(tx: Tx, count: str, name: str, asked: tuple[Any, ...]) -> Tally:
    """Count records and name the newest."""
    number, newest = tx.one(count, asked) or (0, None)
    row = None if newest is None else tx.one(name, (newest,))
    return Tally(int(number), int(newest or 0), row[0] if row else "")


def _parts(tx: Tx, session: SessionRow) -> tuple[Part, ...]:
    found = branches.of_session(tx, session.scope, session.sid, session.branches)
    uids: dict[int | None, str | None] = {None: None, **{branch.bid: branch.uid for branch in found}}
    parts = []
    for branch in found:
        if branch.parent not in uids:
            uids[branch.parent] = branches.get(tx, branch.parent or 0).uid
        attached = session.attached and session.branch == branch.bid
        end = (session.seq, session.hash) if attached else (branch.tip_seq, branch.tip_hash)
        parts.append(Part(branch, uids[branch.parent], *end))
    return tuple(parts)


def fork_hash(tx: Tx, part: Part) -> bytes:
    """Give the hash of the entry that a branch starts at."""
    if part.branch.parent is None:
        return chain.GENESIS
    parent = branches.get(tx, part.branch.parent)
    return base.hash_at(tx, parent, part.branch.fork_seq) or b""


# ---------------------------------------------------------------------- comparing


class Sides(NamedTuple):
    """Which of two stores has something of a session that the other has not."""

    ours: bool
    theirs: bool


def compare(ours: Moment, theirs: Moment, read: Read, look: Read) -> Sides:
    """Say which side has more of a session; what was changed in both is ``Conflict``.

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
    if (one.total, one.id) != (two.total, two.id) and less.total:
        found = where(lambda tx: tx.one(upto, asked))
        if found is None or found[0] != less.total:
            raise _diverged(ours)
    return Sides(one.total > two.total, two.total > one.total)


def is_settled(ours: Moment, theirs: Moment) -> bool:
    """Say whether two rows that stand for the same entries say the same about them."""
    return _said(ours) == _said(theirs)


def is_newer(ours: Moment, theirs: Moment, read: Read, look: Read) -> bool:
    """Say which of two rows that differ is to stand: one that was copied and not touched since gives way."""
    copied, untouched = read(lambda tx: is_copy(tx, ours.session)), look(lambda tx: is_copy(tx, theirs.session))
    return untouched if copied != untouched else ours.session.updated_ms >= theirs.session.updated_ms


def is_copy(tx: Tx, session: SessionRow) -> bool:
    """Say whether nothing has happened to a session since it was copied here."""
    return tx.one(KIND_AT, (session.updated,)) == (base.COPY,)


def _said(moment: Moment) -> tuple[Any, ...]:
    """Give what a session's row and details say, without numbers that are local to a store."""
    row = moment.session
    cold = [value for at, value in enumerate(row[_FIRST_COLD:_LAST_COLD], _FIRST_COLD) if at != _PARENT]
    counts = (row.branches, row.revision, row.updated_ms, row.message_ms)
    hidden = sorted((part.branch.uid, part.branch.hidden) for part in moment.parts)
    return (
        cold,
        moment.parent,
        row.uid,
        row.fork,
        row.seq,
        row.attached,
        row.hash,
        row.numbers,
        counts,
        hidden,
        moment.doc,
    )
