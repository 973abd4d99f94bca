"""Showing sessions: in one transaction each everything that only a whole session has, in the order they changed.

Until then nobody sees a session; from then on it is whole. Before that every hash of it is computed again from what was
stored, and must lead to the hash that the stream named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from .. import codec
from ..errors import Conflict, Corrupt, Invalid
from ..files import timeline_purge
from ..ids import MAX_SEQ
from ..ops import branches, feed, purge, session_metadata, sessions, sweep, work
from ..ops.log import key_of, point_on
from ..ops.verify import log
from ..ops.verify.base import UNREADABLE, Read
from ..ops.verify.sessions import OPEN
from ..storage.base import Backend, Op, Tx
from ..tables.history import OPERATION
from ..tables.sessions import PURGED, SessionRow
from . import as_of, staged
from .as_of import AGAIN, COPY
from .staged import Final
from .stream import CheckpointRecord, OperationRecord, SessionRecord
from .write import Putting, by_id, conflict

T = TypeVar("T")
ROWS = 500

KINDS = "SELECT kind FROM operation WHERE scope = ? AND session = ? AND agent = 0 ORDER BY oid"
POINTS = "SELECT branch, seq FROM checkpoint WHERE scope = ? AND session = ? ORDER BY cid"
LAST_SENT = "SELECT coalesce(max(n), 0) FROM inbox WHERE scope = ? AND session = ?"


class Taken(Exception):
    """A visible session of the destination has the key, name or label that a session is to have."""

    def __init__(self, holder: SessionRow, what: str) -> None:
        super().__init__(what)
        self.holder = holder
        self.what = what


class _Again(Exception):
    """A session changed in the destination since it was compared."""


class Update(NamedTuple):
    """A session that people see and that has gone on: what is put with its row, in one transaction."""

    session: SessionRecord
    tips: dict[str, int]
    points: list[CheckpointRecord]
    operations: list[OperationRecord]


class Place(NamedTuple):
    """A session in the order of the stream: whether it is to be shown, and where it is listed here if it is not."""

    order: int
    scope: str
    id: str
    todo: bool
    purged: bool
    at: tuple[int, int]


class Showing:
    """Shows the sessions that were put, those that were shown before them staying before them."""

    def __init__(
        self,
        backend: Backend,
        putting: Putting,
        *,
        read: Read,
        now_ms: Callable[[], int],
        tell: Callable[[], None],
    ) -> None:
        self._to = backend
        self._look: Read = backend.read
        self._putting = putting
        self._read = read
        self._now_ms = now_ms
        self._tell = tell
        self.places: dict[tuple[str, str], Place] = {}
        self.updates: dict[tuple[str, str], Update] = {}
        self.done = Counter[str]()
        self.conflicts: list[Conflict] = []

    def run(self) -> None:
        """Show every session that is whole by now."""
        listed = sorted(self.places.values(), key=lambda each: (each.scope, each.order))
        self._finish_all([each for each in listed if not each.purged])
        purged = [each for each in listed if each.purged]
        for place in sorted(purged, key=self._number, reverse=True):  # forks first: they have higher numbers
            self._attempt(lambda: self._erase(place))  # noqa: B023

    def _write(self, scope: str, op: Op[T], *, alone: bool = False) -> T:
        return self._to.scoped(scope).write(op, alone=alone)

    def _number(self, place: Place) -> int:
        found = self._look(lambda tx: sessions.find_any(tx, place.scope, place.id))
        return found.sid if found else 0

    def _attempt(self, step: Callable[[], Any]) -> Any:
        try:
            return step()
        except Conflict as error:
            self.conflicts.append(error)
            return None

    def _finish_all(self, listed: list[Place]) -> None:
        last: dict[str, tuple[int, int]] = {}
        finished: dict[tuple[str, str], tuple[int, int]] = {}
        for place in listed:
            who = (place.scope, place.id)
            before = last.get(place.scope, (0, 0))
            if place.todo and who not in finished:
                self._attempt(lambda: self._finish_one(place, finished, ()))  # noqa: B023
            at = finished.get(who, place.at)
            if (who in finished or not place.todo) and at < before:
                at = self._write(place.scope, lambda tx: self._rise(tx, place, before[0]))  # noqa: B023
            last[place.scope] = max(at, before)

    def _rise(self, tx: Tx, place: Place, above: int) -> tuple[int, int]:
        """List a session right above the one before it in the stream, where a clock that was set back parted them."""
        session = sessions.find_any(tx, place.scope, place.id)
        if session is None:
            return (0, 0)
        kind = COPY if as_of.is_copy(tx, session) else "session"
        asked: dict[str, Any] = {"branch": session.branch, "first": 0, "last": 0, "now_ms": self._now_ms()}
        position, rank = feed.record(tx, session, kind, **asked)
        done = sessions.write(tx, session, **staged.landed(session, position, rank, asked["now_ms"], above=above))
        return done.rank, done.updated

    def _finish_one(
        self, place: Place, finished: dict[tuple[str, str], tuple[int, int]], under: tuple[Place, ...]
    ) -> None:
        """Prove and show a session; one that has given up the name that this one needs is shown first."""
        update = self.updates.get((place.scope, place.id))
        self._prove(place, update)
        while True:
            try:
                seen = None if update is None else self._unchanged(update)
                counts, at = self._write(place.scope, lambda tx: self._finish(tx, place, update, seen), alone=True)  # noqa: B023
                break
            except _Again:
                continue
            except Taken as taken:
                holder = self.places.get((taken.holder.scope, taken.holder.id))
                known = None if holder is None else (holder.scope, holder.id)
                if holder is None or not holder.todo or holder in under or known in finished:
                    raise refused(self._final(place, update).row, taken) from taken
                self._finish_one(holder, finished, (*under, place))
        finished[place.scope, place.id] = at
        self.done.update(counts)
        self._tell()

    def _unchanged(self, update: Update) -> SessionRow:
        """Return a session that people see as it is here, once it is sure that it has nothing that the stream lacks.

        The two stores are read one after the other, never one within a transaction of the other.
        """
        row = update.session.row
        theirs: SessionRecord | None = self._look(lambda tx: as_of.find(tx, row.scope, row.id))
        if theirs is None or theirs.purged:
            raise conflict(f"session {row.id} is gone from the destination; call again", row.id)
        if as_of.compare(update.session, theirs, self._read, self._look).theirs:
            raise conflict(f"session {row.id} was changed in the destination while it was copied. {AGAIN}", row.id)
        return theirs.row

    def _final(self, place: Place, update: Update | None) -> Final:
        if update is not None:
            return staged.of(update.session)
        final: Final = self._look(lambda tx: staged.decode(tx, sessions.find_any(tx, place.scope, place.id)))
        return final

    def _prove(self, place: Place, update: Update | None) -> None:
        """Compute each hash again from what is stored; it must lead to the hash that the stream named."""
        for uid, low, tip, wanted in self._final(place, update).tips:
            at, last = max(low, update.tips.get(uid, low) if update else low), None
            while at < tip:
                at, last = self._look(lambda tx: _proved(tx, place.scope, uid, at, tip))  # noqa: B023
            if last is not None and last != wanted:
                raise _differs(uid, tip)
            self._tell()

    def _finish(
        self, tx: Tx, place: Place, update: Update | None, seen: SessionRow | None
    ) -> tuple[Counter[str], tuple[int, int]]:
        """Write everything that only a whole session has, and its row; a name that is taken raises ``Taken``."""
        session = sessions.find_any(tx, place.scope, place.id)
        if session is None or (session.hidden == PURGED and not session.staged):
            raise conflict(f"session {place.id} is gone from the destination; call again", place.id)
        final = staged.decode(tx, session) if update is None else staged.of(update.session)
        if update is not None and session != seen:
            raise _Again()
        parent = parent_number(tx, final.row, final.parent)
        require_free(tx, final.row, parent)
        changes, counts = _Changes(tx, session, self._now_ms()), Counter(sessions=1)
        for uid, hidden in final.hidden:
            if (branch := branches.find_by_uid(tx, session.scope, uid)) is not None:
                branches.set_hidden(tx, branch, hidden)
        _settle_tip(tx, session)
        if update is None:
            changes.tell_all()
        else:
            self._put_update(tx, session, update, changes, counts)
        mark_undone(tx, (session.scope, session.sid, 0), dict(final.undone))
        changes.tell(COPY)
        done = _write_row(tx, final, parent, changes.session, changes.now_ms)
        return counts, (done.rank, done.updated)

    def _put_update(self, tx: Tx, session: SessionRow, update: Update, changes: _Changes, counts: Counter[str]) -> None:
        for operation in update.operations:
            if kind := self._putting.insert_operation(tx, operation, session.sid, 0):
                changes.tell(kind)
                counts.update(operations=1)
        for point in update.points:
            if branch := self._putting.insert_point(tx, session.sid, point):
                changes.tell("checkpoint", branch, point.row.seq, point.row.seq)
                counts.update(checkpoints=1)

    # ------------------------------------------------------------------ purged in the store that is copied

    def _erase(self, place: Place) -> None:
        """Purge a session that is begun, as it is in the store it comes from."""
        self._prove(place, None) if place.todo else None
        done = self._write(place.scope, lambda tx: self._blank(tx, place), alone=True)
        self.done.update(sessions=done)

    def _blank(self, tx: Tx, place: Place) -> int:
        """Erase what was put before the purge; what forks read stays."""
        session = sessions.find_any(tx, place.scope, place.id)
        if session is None or not session.staged:
            return 0
        final, hashes, roots = staged.decode(tx, session), set[str](), set[str]()
        kept = {uid: tip for uid, _, tip, _ in final.tips}
        for branch in reversed(branches.of_session(tx, session.scope, session.sid, session.branches)):
            read_by = [fork.fork_seq for fork in branches.forks(tx, branch.scope, branch.bid)]
            need = max(branch.fork_seq, kept.get(branch.uid, 0 if final.tips else branch.tip_seq), *read_by)
            behind = (branch.scope, key_of(branch.bid, need), key_of(branch.bid, MAX_SEQ))
            hashes |= {each for (each,) in tx.all(purge.LINKS, behind)}
            roots |= {each for (each,) in tx.all(purge.ROOTS, behind)}
            if branch.tip_seq > need or branch.name != branch.uid:
                purge.drop(tx, branch, need)
        roots |= timeline_purge.forget_session(tx, session)
        _Changes(tx, session, self._now_ms()).tell_operations()  # numbers that are left out are counted by them
        purge.blank(tx, session, self._now_ms())
        # What a purge leaves a session: its parent, its revision, its marks and its times.
        mine, purged = final.row, sessions.by_number(tx, session.scope, session.sid)
        times: dict[str, Any] = {"updated_ms": mine.updated_ms, "message_ms": mine.message_ms, "states": mine.states}
        times |= {"archived": mine.archived, "pinned": mine.pinned, "status": mine.status}
        parent = parent_number(tx, mine, final.parent)
        sessions.write(tx, purged, parent=parent, revision=mine.revision, **times)
        sweep.drop(tx, session.scope, hashes, roots)
        return 1


class _Changes:
    """The changes of a session that the feed is told of in this transaction."""

    def __init__(self, tx: Tx, session: SessionRow, now_ms: int) -> None:
        self._tx = tx
        self.now_ms = now_ms
        self.session = session

    def tell(self, kind: str, branch: int = 0, first: int = 0, last: int = 0) -> None:
        """Tell of a change of the session, of its head's branch if no other is named."""
        asked: dict[str, Any] = {"branch": branch or self.session.branch, "first": first, "last": last}
        position, rank = feed.record(self._tx, self.session, kind, **asked, now_ms=self.now_ms)
        self.session = self.session._replace(updated=position, rank=rank, past=0)

    def tell_all(self) -> None:
        """Tell of a session that nobody saw before, and of all that belongs to it."""
        asked = (self.session.scope, self.session.sid)
        self.tell("session")
        for branch in branches.of_session(self._tx, *asked, self.session.branches):
            if branch.tip_seq > branch.fork_seq:
                self.tell("entries", branch.bid, branch.fork_seq + 1, branch.tip_seq)
        self.tell_operations()
        for number, seq in self._tx.all(POINTS, asked):
            self.tell("checkpoint", number, seq, seq)

    def tell_operations(self) -> None:
        """Tell of each operation on the session."""
        for (kind,) in self._tx.all(KINDS, (self.session.scope, self.session.sid)):
            self.tell(kind)


# ---------------------------------------------------------------------- functions of a transaction


def mark_undone(tx: Tx, subject: tuple[str, int, int], wanted: dict[str, str]) -> None:
    """Mark exactly these operations of a session or an agent as undone."""
    where = "WHERE scope = ? AND session = ? AND agent = ? AND undone_by IS NOT NULL"
    known = {row.id: row for row in OPERATION.all(tx, where, subject)}
    for name in known.keys() | wanted.keys():
        row = known.get(name) or by_id(tx, OPERATION, subject[0], name)
        by = by_id(tx, OPERATION, subject[0], wanted[name]) if name in wanted else None
        if row is not None:
            OPERATION.update(tx, row, row._replace(undone_by=by.oid if by else None))


def _proved(tx: Tx, scope: str, uid: str, low: int, tip: int) -> tuple[int, bytes]:
    """Compute the hashes of the next entries of a branch; return the seq and the hash of the last one."""
    branch = branches.find_by_uid(tx, scope, uid)
    if branch is None:
        raise _differs(uid, low + 1)
    line = log.line_of(tx, branch)._replace(tip=tip)
    rows, before = log.read_rows(tx, line, low, ROWS), log.before_of(tx, line, low)
    for row in rows:
        if row.seq != low + 1 or log.judge(tx, line, row, before)[0] is not None:
            raise _differs(uid, low + 1)
        before, low = log.after_of(line, row), row.seq
    if not rows:
        raise _differs(uid, low + 1)
    return low, rows[-1].chain.hash


def _settle_tip(tx: Tx, session: SessionRow) -> None:
    """Record the end of the branch of an attached head: the head may leave it now."""
    branch = branches.get(tx, session.scope, session.branch)
    if session.attached and session.hidden < PURGED:
        branches.set_tip(tx, branch, session.seq, session.hash)


def _write_row(tx: Tx, final: Final, parent: int, told: SessionRow, now_ms: int) -> SessionRow:
    """Write a session's row: what it says of itself, and what this store computes for it.

    It is listed when it last changed, wherever that was.
    """
    session, row = sessions.by_number(tx, told.scope, told.sid), final.row
    branch = branches.find_by_uid(tx, told.scope, row.uid)
    if branch is None or branch.session != session.sid:
        raise Invalid(f"the head of session {row.id} is on branch {row.uid!r}, which it does not have")
    if row.attached and row.seq != branch.tip_seq:
        raise Invalid(f"the head of session {row.id} is not at the end of its branch")
    point = point_on(tx, told.scope, branch, row.seq)
    place: dict[str, Any] = {"branch": branch.bid, "uid": branch.uid, "fork": branch.fork_seq, "hash": point.hash}
    own: dict[str, Any] = {
        "parent": parent,
        "sid": session.sid,
        "branches": session.branches,
        "calls": None,
        "rank": 0,
    }
    new = row._replace(scope=told.scope, **place, **own, **point.numbers._asdict())
    new = new._replace(**staged.landed(new, told.updated, told.rank, now_ms))
    try:
        counts: dict[str, Any] = work.counts_at_head(tx, new)
        new = new._replace(**counts)
    except UNREADABLE:
        pass  # a state entry was lost: the row says what is known
    doc = _counted_doc(tx, session, final.doc)
    sessions.put_detail(tx, session, doc)
    sessions.store(tx, session, new)
    session_metadata.index(tx, new, doc)
    return new


def _counted_doc(tx: Tx, session: SessionRow, doc: bytes) -> bytes:
    """Return details with how many messages were sent and answers are being written here."""
    said, own = codec.decode(doc), (session.scope, session.sid)
    (sent,), (opened,) = tx.one(LAST_SENT, own) or (0,), tx.one(OPEN, own) or (0,)
    counted = {"sent": sent, "open": opened}
    if all(said.get(name, 0) == value for name, value in counted.items()):
        return doc
    kept = {name: value for name, value in said.items() if name not in counted}
    return codec.encode({**kept, **{name: value for name, value in counted.items() if value}})


# ---------------------------------------------------------------------- what is in the way


def parent_number(tx: Tx, row: SessionRow, parent: str | None) -> int:
    """Return the number of a session's parent in the destination; 0 for none."""
    if parent is None:
        return 0
    found = sessions.find_any(tx, row.scope, parent)
    if found is None:
        raise conflict(
            f"session {row.id} belongs to session {parent}, which is not in the destination. {AGAIN}", row.id
        )
    return found.sid


def require_free(tx: Tx, row: SessionRow, parent: int) -> None:
    """Raise ``Taken`` if another visible session has the key, name or label that a visible one is to have."""
    if row.hidden:
        return
    for holder, what in _holders(tx, row, parent):
        if holder is not None and holder.id != row.id:
            raise Taken(holder, what)


def _holders(tx: Tx, row: SessionRow, parent: int) -> Iterator[tuple[SessionRow | None, str]]:
    yield sessions.find_by_key(tx, row.scope, row.key), f"key {row.key!r}"
    if row.name is not None:
        asked = {"agent": row.agent, "workspace": row.workspace, "name": row.name}
        yield sessions.find_by_name(tx, row.scope, **asked), f"name {row.name!r}"
    if row.label is not None:
        yield sessions.find_by_label(tx, row.scope, parent, row.label), f"label {row.label!r}"


def refused(row: SessionRow, taken: Taken) -> Conflict:
    return conflict(
        f"session {row.id} has the {taken.what}, which session {taken.holder.id} has in the destination."
        f" Delete one of the two, or restore it under another name. {AGAIN}",
        row.id,
    )


def _differs(uid: str, seq: int) -> Corrupt:
    name = f"entry {uid}-{seq}"
    return Corrupt(f"{name} is not in the destination what it is in the source", what=name)
