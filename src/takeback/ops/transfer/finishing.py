"""Finishing a session: in one transaction everything that only a whole session has, and its row as it was at a moment.

Until then nobody sees it; from then on it is whole. A session that was copied before and has gone on since is brought
up to the new moment the same way. The changes that the feed tells of come in this order: the session, its entries by
branch, its operations, its checkpoints, each operation once, as verify counts them; and that it is a copy.
"""

from __future__ import annotations

from typing import NamedTuple

from ...ids import MAX_SEQ
from ...storage.base import Tx
from ...tables.branches import BranchRow
from ...tables.history import CheckpointRow
from .. import branches, feed, operations, purge, sessions, sweep
from ..log import key_of
from . import base, moments, pages, records, staging
from .base import Read
from .moments import Moment, Part
from .records import Subject


class Whole(NamedTuple):
    """A session as of one moment with the records that must be of the same one."""

    moment: Moment
    undone: dict[str, str]
    checkpoints: list[tuple[CheckpointRow, str]]  # with the ids of their branches


class Done(NamedTuple):
    """How much was written, and how many keys were left out."""

    entries: int = 0
    size: int = 0
    operations: int = 0
    checkpoints: int = 0
    keys_left_out: int = 0


def whole(tx: Tx, scope: str, session_id: str, checkpoint: str) -> Whole | None:
    """Read a session to be finished; of its checkpoints those behind the one that the destination has last."""
    ours = moments.find(tx, scope, session_id)
    if ours is None:
        return None
    points = records.new_checkpoints(tx, *ours.who, checkpoint)
    return Whole(ours, records.undone(tx, Subject(*ours.who, 0)), points)


def finish(tx: Tx, whole: Whole, read: Read, *, now_ms: int) -> Done:
    """Bring a session that is begun to a moment, and show it; a key, name or label that is taken raises ``Taken``."""
    ours = whole.moment
    theirs = moments.find(tx, ours.session.scope, ours.session.id)
    if theirs is None:
        raise base.conflict(f"session {ours.session.id} is gone from the destination; call again", ours.session.id)
    if moments.compare(ours, theirs, read, lambda op: op(tx)).theirs:
        raise base.conflict(
            f"session {ours.session.id} was changed in the destination while it was copied. {base.AGAIN}",
            ours.session.id,
        )
    parent = staging.parent_number(tx, ours)
    staging.require_free(tx, ours.session, parent)
    brought, size = _bring_entries(tx, ours, theirs, read, now_ms)
    changes = _Changes(tx, theirs, now_ms)
    _settle_branches(tx, ours)
    if theirs.staged:
        changes.tell_all(ours)
    done = _bring_operations(tx, whole, theirs, read, changes)
    points = _bring_checkpoints(tx, whole, theirs, changes)
    _write(tx, ours, parent, changes)
    left_out = _bring_keys(tx, ours, theirs, read)
    return Done(brought, size, done, points, left_out)


class _Changes:
    """The changes of a session that the feed is told of in this transaction."""

    def __init__(self, tx: Tx, theirs: Moment, now_ms: int) -> None:
        self.tx = tx
        self.session = sessions.by_number(tx, *theirs.who)
        self._now_ms = now_ms

    def tell(self, kind: str, branch: int | None = None, first: int = 0, last: int = 0) -> None:
        """Tell of a change of the session, of its head's branch if no other is named."""
        asked = {"branch": branch or self.session.branch, "first": first, "last": last, "now_ms": self._now_ms}
        position, rank = feed.record(self.tx, self.session, kind, **asked)
        self.session = self.session._replace(updated=position, rank=rank)

    def tell_all(self, ours: Moment) -> None:
        """Tell of a session that nobody saw before, and of all its entries."""
        self.tell("session")
        for part in ours.parts:
            branch = _here(self.tx, part)
            if part.tip > branch.fork_seq:
                self.tell("entries", branch.bid, branch.fork_seq + 1, part.tip)


def _here(tx: Tx, part: Part) -> BranchRow:
    """Return a branch as it is in the destination."""
    found = branches.find_by_uid(tx, part.branch.scope, part.branch.uid)
    if found is None:
        raise base.conflict(f"branch {part.branch.uid} is gone from the destination; call again", part.branch.uid)
    return found


# ---------------------------------------------------------------------- what is brought


def _bring_entries(tx: Tx, ours: Moment, theirs: Moment, read: Read, now_ms: int) -> tuple[int, int]:
    """Write what was added since the session was begun, or since it was copied; there is little of it by now."""
    tips = {part.branch.uid: part.tip for part in theirs.parts}
    count = size = 0
    for part in ours.parts:
        if part.branch.uid not in tips:
            staging.add_branch(tx, ours, part, read(lambda tx: moments.fork_hash(tx, part)))  # noqa: B023
        at = tips.get(part.branch.uid, part.branch.fork_seq)
        while at < part.tip:
            page = read(lambda tx: pages.read(tx, part, at, ours.session.states))  # noqa: B023
            pages.put(tx, page, now_ms=now_ms)
            at, count, size = page.high, count + len(page.rows), size + page.size
    return count, size


def _settle_branches(tx: Tx, ours: Moment) -> None:
    """Let every branch know its end, for the head may leave it, and be hidden if its fork was undone."""
    for part in ours.parts:
        branch = _here(tx, part)
        branches.set_hidden(tx, branches.set_tip(tx, branch, part.tip, part.hash), part.branch.hidden)


def _bring_operations(tx: Tx, whole: Whole, theirs: Moment, read: Read, changes: _Changes) -> int:
    ours, count = whole.moment, 0
    here = Subject(*theirs.who, 0)
    after = records.newest(theirs.operations, read, here.scope)
    for page in records.operation_pages(read, Subject(*ours.who, 0), after, ours.operations.number):
        for row, undoes in page:
            if kind := records.put_operation(tx, row, undoes, here):
                changes.tell(kind)
                count += 1
    records.mark_undone(tx, here, whole.undone)
    return count


def _bring_checkpoints(tx: Tx, whole: Whole, theirs: Moment, changes: _Changes) -> int:
    count = 0
    for row, uid in whole.checkpoints:
        if branch := records.put_checkpoint(tx, row, uid, theirs.session.sid):
            changes.tell("checkpoint", branch, row.seq, row.seq)
            count += 1
    return count


def _bring_keys(tx: Tx, ours: Moment, theirs: Moment, read: Read) -> int:
    """Remember the idempotency keys of what is new here; return how many were left out."""
    above = -1
    if not theirs.staged:
        tips = {part.branch.uid: part.tip for part in theirs.parts}
        grown = [tips.get(part.branch.uid, part.branch.fork_seq) for part in ours.parts]
        grown = [tip for tip, part in zip(grown, ours.parts, strict=True) if tip < part.tip]
        above = min(grown, default=MAX_SEQ)
    put = (records.put_key(tx, key, theirs.session.sid) for key in records.keys(read, ours, above))
    return sum(done is None for done in put)


# ---------------------------------------------------------------------- the row


def _write(tx: Tx, ours: Moment, parent: int, changes: _Changes) -> None:
    """Write the row as it was at the moment; only what is local to a store is other."""
    changes.tell(base.COPY)
    mine, told = ours.session, changes.session
    session = sessions.by_number(tx, told.scope, told.sid)
    branch = _here(tx, next(part for part in ours.parts if part.branch.uid == mine.uid))
    sessions.put_detail(tx, session, ours.doc)
    new = mine._replace(sid=session.sid, parent=parent, branch=branch.bid, branches=session.branches, calls=None)
    sessions.write(tx, session, **new._replace(updated=told.updated, rank=told.rank)._asdict())


def rise(tx: Tx, scope: str, session_id: str, *, now_ms: int) -> None:
    """Let a session be the one that changed last."""
    session = sessions.find_any(tx, scope, session_id)
    if session is not None:
        kind = base.COPY if moments.is_copy(tx, session) else "session"
        position, rank = feed.record(tx, session, kind, branch=session.branch, first=0, last=0, now_ms=now_ms)
        operations.touch(tx, session, position, rank, session.updated_ms, moved=False)


# ---------------------------------------------------------------------- purged in the store that is copied


def erase(tx: Tx, ours: Moment, *, now_ms: int) -> None:
    """Let a session that is begun be as purged as it is in the store it comes from.

    What was copied of it before the purge is erased; what forks read stays. Forks come first: they have higher numbers.
    """
    theirs = moments.find(tx, ours.session.scope, ours.session.id)
    if theirs is None or not theirs.staged:
        return
    kept = {part.branch.uid: part.tip for part in ours.parts}
    hashes, roots = set[str](), set[str]()
    for part in reversed(theirs.parts):
        branch = branches.get(tx, part.branch.scope, part.branch.bid)
        read_by = [fork.fork_seq for fork in branches.forks(tx, branch.scope, branch.bid)]
        need = max(branch.fork_seq, kept.get(branch.uid, 0), *read_by)
        behind = (branch.scope, key_of(branch.bid, need), key_of(branch.bid, MAX_SEQ))
        hashes |= {content_hash for (content_hash,) in tx.all(purge.LINKS, behind)}
        roots |= {content_hash for (content_hash,) in tx.all(purge.ROOTS, behind)}
        if branch.tip_seq > need or branch.name != branch.uid:
            purge._drop(tx, branch, need)
    purge._blank(tx, theirs.session, now_ms)
    # What a purge leaves a session: its parent, its revision and its times.
    mine, purged = ours.session, sessions.by_number(tx, *theirs.who)
    times = {"updated_ms": mine.updated_ms, "message_ms": mine.message_ms}
    sessions.write(tx, purged, parent=staging.parent_number(tx, ours), revision=mine.revision, **times)
    sweep.drop(tx, theirs.session.scope, hashes, roots)
