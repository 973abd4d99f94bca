"""One write: messages, custom entries, session state, tasks and documents, all or none.

Everything is one transaction, so that no crash can leave a step half done. The entries are one run of one branch.
Changes of state and tasks come before the last item, so that a rewind to that item keeps them; behind it if it opens a
turn, since they would else belong to the turn before. Where the run goes is found here, too: at the head, on a branch
that was left, or on a new one opened at a point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from .. import codec
from ..errors import Conflict
from ..model.entry import STATE_KINDS, Draft
from ..model.message import MESSAGE_KINDS
from ..model.operation import Operation
from ..model.status import require_open
from ..model.work import Task
from ..storage.base import Tx
from ..tables.entries import EntryRow
from ..tables.history import OnceRow
from . import (
    branches,
    calls,
    documents,
    entries,
    idempotency,
    leases,
    log,
    operations,
    points,
    sessions,
    titles,
    work,
)
from .branches import BranchRow, Segment
from .idempotency import ApiCall
from .leases import Fence
from .points import Target
from .sessions import SessionRow

KIND = "write"  # of the operation that moves the head, and of the key of a write without entries


class WantedWrite(NamedTuple):
    """What one write is to store, encoded and ready, and on what conditions."""

    call: ApiCall
    drafts: Sequence[Draft]
    state: Mapping[str, object]
    state_delete: Sequence[str]
    tasks: Sequence[Task] | None
    docs: Sequence[tuple[str, str, documents.Prepared]]
    at: Target | None
    move: bool
    skips: bool  # items that the session has already
    expected_revision: int | None
    fence: Fence | None = None
    lost: Callable[[], None] | None = None  # called if somebody else has taken the session over


class WriteDone(NamedTuple):
    """What one write did: ``drafts`` are the entries that were new, ``there`` the items that were not, by their place.

    Those that were there are rows, each with the id of its branch.
    """

    stored: entries.Appended
    branch: BranchRow
    drafts: Sequence[Draft]
    there: Mapping[int, tuple[str, EntryRow]]
    operation: Operation | None = None


class _Place(NamedTuple):
    """Where entries go: after the head, or at the end of a branch that the head is not on."""

    session: SessionRow
    beside: BranchRow | None = None
    operation: Operation | None = None


def write(tx: Tx, scope: str, session_id: str, wanted: WantedWrite) -> WriteDone:
    """Store everything, or nothing."""
    session, call = entries.writable(tx, scope, session_id), wanted.call
    if wanted.fence is not None:
        leases.require_or(tx, session, wanted.fence, wanted.lost)
    if call.key is not None and (earlier := _repeated(tx, session, wanted)):
        return earlier
    if wanted.expected_revision is not None:
        entries.require_revision(session, wanted.expected_revision)
    there = _existing(tx, session, wanted.drafts) if wanted.skips else {}
    drafts: Sequence[Draft] = [draft for number, draft in enumerate(wanted.drafts) if number not in there]
    if any(draft.kind in MESSAGE_KINDS for draft in drafts):
        require_open(session.status)
    place = _placed(tx, session, wanted) if drafts or _works(wanted) else _Place(session)
    drafts = calls.settled(tx, _standing(tx, place), drafts)
    done, everything = _put(tx, place, drafts, wanted)
    for namespace, key, value in sorted(wanted.docs, key=lambda each: each[:2]):  # one order for all: no deadlock
        documents.put(tx, scope, namespace, key, value, expected_version=None, expires_ms=None, now_ms=call.now_ms)
    branch = place.beside or branches.get(tx, scope, done.session.branch)
    if call.key is not None:
        _keep(tx, done, branch, wanted)
    if place.beside is not None and drafts:  # only the log knows which turns they are of
        rows = log.read_all(tx, scope, [Segment(branch.bid, branch.uid, done.first - 1, done.last)])
        new = iter((branch.uid, row) for row in rows if row.kind not in STATE_KINDS)
        there = {number: there.get(number) or next(new) for number in range(len(wanted.drafts))}
        everything = ()
    return WriteDone(done, branch, everything, there, place.operation)


def _works(wanted: WantedWrite) -> bool:
    """Whether a write changes the state of work."""
    return bool(wanted.state or wanted.state_delete) or wanted.tasks is not None


# ---------------------------------------------------------------------- the same write again


def _repeated(tx: Tx, session: SessionRow, wanted: WantedWrite) -> WriteDone | None:
    """Find an earlier write with this key: on the head's path, or on any branch if it was not to move the head."""
    key = wanted.call.key or ""
    asked, aside = idempotency.digest(wanted.call.request), wanted.at is not None and not wanted.move
    for kept in idempotency.entries_of(tx, session.scope, session.sid, key):
        branch = branches.get(tx, session.scope, kept.branch)
        if not aside and not log.is_on_path(tx, session, branch.uid, kept.last_seq):
            continue  # taken back since: a write again is a new one
        rows = log.read_all(tx, session.scope, [Segment(branch.bid, branch.uid, kept.seq - 1, kept.last_seq)])
        blank = kept.digest == 0 and any(row.body is None for row in rows)  # redacted: nothing is left to compare
        if kept.digest != asked and not blank:
            raise Conflict(f"idempotency key {key!r} was already used for a different write; use a new key", found=key)
        stored = [(branch.uid, row) for row in rows if row.kind not in STATE_KINDS]
        return WriteDone(_nothing(session), branch, (), _found_again(tx, session, wanted, stored))
    if idempotency.made_before(tx, session.scope, session.sid, key, wanted.call.request) is None:
        return None
    items = _found_again(tx, session, wanted, [])
    return WriteDone(_nothing(session), branches.get(tx, session.scope, session.branch), (), items)


def _found_again(
    tx: Tx, session: SessionRow, wanted: WantedWrite, stored: Sequence[tuple[str, EntryRow]]
) -> dict[int, tuple[str, EntryRow]]:
    """Return the items of an earlier write by their place: those that it stored, and those that it passed over."""
    there = _existing(tx, session, wanted.drafts) if wanted.skips else {}
    rest = iter(each for each in stored if not wanted.skips or each[1].mid is None)
    found = [there.get(number) or next(rest, None) for number in range(len(wanted.drafts))]
    return dict(enumerate(each for each in found if each is not None))  # fewer than asked only if some were erased


def _nothing(session: SessionRow) -> entries.Appended:
    """Return what an append of nothing did."""
    return entries.Appended(session, session.uid, session.seq + 1, session.seq)


def _keep(tx: Tx, done: entries.Appended, branch: BranchRow, wanted: WantedWrite) -> None:
    """Record the key of a write: with its entries, or alone if it has none."""
    session, asked = done.session, idempotency.digest(wanted.call.request)
    place: tuple[int, int, int, str, str] = 0, 0, 0, KIND, session.id
    if done.last >= done.first:
        place = branch.bid, done.first, done.last, idempotency.ENTRIES, ""
    idempotency.keep(tx, OnceRow(session.scope, session.sid, wanted.call.key or "", *place, asked, wanted.call.now_ms))


def _existing(tx: Tx, session: SessionRow, drafts: Sequence[Draft]) -> dict[int, tuple[str, EntryRow]]:
    """Return the items that a branch of the session has already; other content under an id raises ``Conflict``."""
    found = dict[int, tuple[str, EntryRow]]()
    for number, draft in enumerate(drafts):
        place = None if draft.mid is None else _found(tx, session, draft.mid)
        if place is None:
            continue
        row = log.read(tx, session.scope, [place])[0]
        if not entries.is_same(row, draft):
            raise Conflict(
                f"entry {draft.mid!r} is already there with different content; use a new id", found=draft.mid
            )
        found[number] = place.uid, row
    return found


def _found(tx: Tx, session: SessionRow, mid: str) -> Segment | None:
    """Find an entry by its id on the path, or else on any branch of the session."""
    found = log.find_by_id(tx, session, mid)
    if found is not None or (session.branches == 1 and session.attached):
        return found
    for bid, uid, low, high in branches.every_segment(tx, session):
        key = log.between(tx, session.scope, mid, log.key_of(bid, low), log.key_of(bid, high))
        if key is not None:
            seq = key & log.MAX_SEQ
            return Segment(bid, uid, seq - 1, seq)
    return None


# ---------------------------------------------------------------------- where it goes


def _placed(tx: Tx, session: SessionRow, wanted: WantedWrite) -> _Place:
    """Find where the entries go, and move the head there if it is to move."""
    if wanted.at is None:
        return _Place(session)
    now_ms = wanted.call.now_ms
    point, origin = points.point_of(tx, session, wanted.at)
    branch = _ending_at(tx, session, origin, point.seq)
    if branch is not None and branch.bid == session.branch and session.attached:
        return _Place(session)
    if wanted.move:
        head = [origin.uid, point.seq, 0] if branch is None else [branch.uid, point.seq, 1]
        moved, operation = operations.on_session(tx, session, KIND, {"head": head}, now_ms=now_ms)
        return _Place(moved, operation=None if operation.summary == operations.NOTHING else operation)
    if branch is None:
        name = branches.free_name(tx, session.scope, session.sid, base=origin.name, count=session.branches)
        branch = branches.create(
            tx,
            session.scope,
            session.sid,
            name=name,
            origin=origin,
            seq=point.seq,
            tip_hash=point.hash,
            now_ms=now_ms,
        )
        session = sessions.write(tx, session, branches=session.branches + 1)
    return _Place(session, branch)


def _ending_at(tx: Tx, session: SessionRow, origin: BranchRow, seq: int) -> BranchRow | None:
    """Return the branch of the session that ends at a point, so that entries continue it; None if none does.

    That is the branch through which the point was named, or the one that holds its entry.
    """
    for branch in (origin, *([branches.owner(tx, origin, seq)] if seq else [])):
        if points.tip(session, branch) == seq and branch.session == session.sid and not branch.hidden:
            return branch
    return None


def _standing(tx: Tx, place: _Place) -> SessionRow:
    """Return the session as it stands where the entries go."""
    if place.beside is None:
        return place.session
    end = log.point_on(tx, place.session.scope, place.beside, place.beside.tip_seq)
    return sessions.standing_at(place.session, place.beside, end.seq, end.numbers)


def _put(
    tx: Tx, place: _Place, drafts: Sequence[Draft], wanted: WantedWrite
) -> tuple[entries.Appended, Sequence[Draft]]:
    """Store the entries where they go, and return them all in order."""
    session, now_ms = place.session, wanted.call.now_ms
    if session.title is None and place.beside is None and (made := titles.of_drafts(drafts)) is not None:
        session = sessions.write(tx, session, title=made)
    behind = 0 if not drafts or drafts[-1].adds.turns else 1  # so many items come behind the changes
    ahead = len(drafts) - behind
    changes, counts = _changes(tx, _standing(tx, place), ahead, wanted)
    everything = [*drafts[:ahead], *changes, *drafts[ahead:]]
    if place.beside is not None:
        counts = {name: count for name, count in counts.items() if name == "states"}  # the others are the head's
    if counts:
        session = sessions.write(tx, session, **counts)
    if not everything:
        return _nothing(session), everything
    if place.beside is not None:
        return entries.put_late(tx, session, place.beside, everything, now_ms=now_ms), everything
    return entries.put(tx, session, everything, now_ms=now_ms), everything


def _changes(tx: Tx, session: SessionRow, before: int, wanted: WantedWrite) -> tuple[list[Draft], dict[str, int]]:
    """Return the entries that change the state of work, which come ``before`` entries later, and the new counts."""
    decisions = list[tuple[str, work.Decide]]()
    if wanted.state or wanted.state_delete:
        decisions.append(("state", work.change_state(wanted.state, wanted.state_delete, None)))
    if wanted.tasks is not None:
        decisions.append(("tasks", work.set_tasks([*wanted.tasks])))
    found, counts, last = list[Draft](), dict[str, int](), work.lasts(tx, session) if decisions else {}
    for kind, decide in decisions:
        decided = decide(tx, session)
        if isinstance(decided, work.WorkEntry):
            continue  # nothing changes
        found.append(Draft(kind, codec.encode({"last": last, **decided.body}), adds=work.ADDS))
        counts |= decided.counts
        last = {**last, kind: session.seq + before + len(found)}
    return found, counts
