"""Copying a store into another: the loop over pages, each read in one store and written into the other by itself.

Agents come first, then content, then the entries of all sessions, in the order in which the sessions were made, where
nobody sees them; then each session is compared with its original and shown, in the order in which they last changed.
So an interruption at any moment leaves nothing half-done in sight, and calling again goes on where it ended. What is
in conflict is left out until the end, and then it is an error.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, TypeAlias, TypeVar

from ..errors import Conflict, Corrupt, Invalid, Unsupported
from ..model import words
from ..model.copied import Amounts, Copied, Copying
from ..ops import sessions
from ..ops.transfer import agents, base, finishing, moments, pages, records, staging
from ..ops.transfer.moments import Moment, Part
from ..storage.base import Backend, Op, Tx
from .copying_content import Contents
from .open import open_store
from .store import Store

T = TypeVar("T")
Place: TypeAlias = "Store | str | os.PathLike[str]"
Progress: TypeAlias = Callable[[Copying], Any]

NEWEST = "SELECT coalesce(max(sid), 0), count(*) FROM session"
NEWEST_AGENT = "SELECT coalesce(max(aid), 0) FROM agent"
ENTRIES = """SELECT CAST(coalesce(sum(CASE WHEN s.attached = 1 AND s.head_branch = b.bid THEN s.head_seq
ELSE b.tip_seq END - b.fork_seq), 0) AS BIGINT) FROM branch b JOIN session s ON s.sid = b.session"""
SCOPES = "SELECT DISTINCT scope FROM idempotency WHERE session = 0 ORDER BY scope"

_PAGE = 50
_PAUSE = 0.1  # between two calls of progress
_KEYS = 200
_REPAIR = "Repair the source first (Store.repair) and copy what that makes"


def copy(src: Place, dst: Place, *, progress: Progress | None = None) -> Copied:
    """Copy everything of one store into another, all scopes, between any two engines; both may be in use.

    A URL is opened and closed again, the source only to read. What is there already is not copied again: an interrupted
    call goes on when it is made again, and one made later brings what is new. A session shows up when it is whole and
    was compared with its original, entry by entry. What was changed in both stores, or whose name is taken, is
    ``Conflict``, once everything else is copied; damage of the source is ``Corrupt``.
    """
    with ExitStack() as stack:
        source, target = _opened(src, stack, read_only=True), _opened(dst, stack, read_only=False)
        _require_two(source, target)
        return _Copy(source, target, progress).run()


def _opened(place: Place, stack: ExitStack, *, read_only: bool) -> Store:
    if isinstance(place, Store):
        return place
    if not isinstance(place, str | os.PathLike):
        raise Invalid(f"a store is named by a path or URL, or is an open Store, not {type(place).__name__}")
    return stack.enter_context(open_store(place, read_only=read_only))


def _require_two(source: Store, target: Store) -> None:
    one, two = source._backend.scoped(None), target._backend.scoped(None)
    path = getattr(one, "path", None)
    if one is two or (path is not None and path == getattr(two, "path", None)):
        raise Invalid("source and destination are the same store; name another one to copy to")
    if two.capabilities.read_only:
        raise Unsupported("the destination was opened read-only", capability="write")


class _Copy:
    """A copy under way."""

    def __init__(self, source: Store, target: Store, progress: Progress | None) -> None:
        self._from: Backend = source._backend.scoped(None)
        self._to: Backend = target._backend.scoped(None)
        self._clock = target._clock
        self._progress = progress
        self._phase, self._told_at = "", 0.0
        self._total = Counter[str]()
        self._now = Counter[str]()
        self._there = Counter[str]()
        self._todo: dict[int, int] = {}
        self._purged: set[int] = set()
        self._conflicts: list[Conflict] = []
        self._left_out: list[str] = []
        self._contents = Contents(self._read, self._look, self._write, self._moved)

    def run(self) -> Copied:
        """Copy everything, phase after phase."""
        started = time.monotonic()
        newest, total = self._read(lambda tx: tx.one(NEWEST)) or (0, 0)
        entries = self._read(lambda tx: tx.one(ENTRIES)) or (0,)
        self._total.update(sessions=total, entries=entries[0], bytes=self._contents.total())
        self._copy_agents()
        self._tell("content", now=True)
        self._contents.copy_all()
        self._copy_loose()
        self._stage(newest)
        self._finish()
        self._copy_keys()
        self._tell("done", now=True)
        if self._conflicts:
            raise self._conflict()
        already = Amounts(**self._there)
        spent = time.monotonic() - started
        return Copied(**self._now, already=already, seconds=spent, left_out=tuple(self._left_out))

    # ------------------------------------------------------------------ the two stores

    def _read(self, op: Op[T]) -> T:
        try:
            return self._from.read(op)
        except Corrupt as error:
            raise Corrupt(f"the source is damaged: {error}. {_REPAIR}", what=error.what) from error

    def _look(self, op: Op[T]) -> T:
        return self._to.read(op)

    def _write(self, scope: str, op: Op[T], alone: bool = False) -> T:
        """Write into the destination; content that turns out to be needed first is copied first."""
        backend = self._to.scoped(scope)
        while True:
            try:
                return backend.write(op, alone=alone)
            except base.Needs as needs:
                for content_hash in needs.hashes:
                    self._contents.fetch(needs.scope, content_hash)

    # ------------------------------------------------------------------ telling

    def _moved(self, *, already: bool = False, **amounts: int) -> None:
        """Count what was written, or found to be there."""
        (self._there if already else self._now).update(amounts)
        self._tell()

    def _tell(self, phase: str | None = None, *, now: bool = False) -> None:
        self._phase = phase or self._phase
        clock = time.monotonic()
        if self._progress is None or not (now or clock - self._told_at > _PAUSE):
            return
        self._told_at = clock
        done = {name: min(self._now[name] + self._there[name], total) for name, total in self._total.items()}
        totals = {f"{name}_total": total for name, total in self._total.items()}
        self._progress(Copying(self._phase, **done, **totals))

    def _conflict(self) -> Conflict:
        first, *others = self._conflicts
        names = ", ".join(str(each.found) for each in others[:10])
        more = f" (and {words.count(len(others), 'conflict')} more: {names})" if others else ""
        return Conflict(f"{first}{more}", expected=first.expected, found=first.found)

    def _attempt(self, step: Callable[[], None]) -> None:
        """Do something that others do not depend on; a conflict is kept for the end."""
        try:
            step()
        except Conflict as error:
            self._conflicts.append(error)

    # ------------------------------------------------------------------ agents and what belongs to nothing

    def _copy_agents(self) -> None:
        """Begin all new agents, then finish them: those in the trash first, since they leave their id to others."""
        self._tell("agents", now=True)
        after, upto = 0, (self._read(lambda tx: tx.one(NEWEST_AGENT)) or (0,))[0]
        waiting = list[tuple[bool, int]]()
        while rows := self._read(lambda tx: agents.page(tx, after, upto)):  # noqa: B023
            after = rows[-1].aid
            for row in rows:
                if not base.is_staged_agent(row):
                    self._attempt(lambda: self._begin_agent(row.aid, waiting))  # noqa: B023
        for _, aid in sorted(waiting):
            self._attempt(lambda: self._finish_agent(aid))  # noqa: B023

    def _begin_agent(self, aid: int, waiting: list[tuple[bool, int]]) -> None:
        ours = self._read(lambda tx: agents.of(tx, aid))
        step = self._look(lambda tx: agents.decide(tx, ours, self._read))
        if step is agents.Step.NOTHING:
            self._there.update(agents=1, operations=ours.operations.total)
            return
        if step is agents.Step.BEGIN:
            self._write(ours.agent.scope, lambda tx: agents.begin(tx, ours))
        waiting.append((ours.agent.hidden == 0, aid))

    def _finish_agent(self, aid: int) -> None:
        ours = self._read(lambda tx: agents.of(tx, aid))
        scope, upto = ours.agent.scope, ours.agent.version
        at = self._look(lambda tx: agents.reached(tx, ours))
        rows = self._read(lambda tx: agents.versions(tx, ours.agent, at, upto))
        while rows and rows[-1][2] < upto:
            self._write(scope, lambda tx: agents.put_versions(tx, ours, rows))  # noqa: B023
            at = rows[-1][2]
            rows = self._read(lambda tx: agents.versions(tx, ours.agent, at, upto))  # noqa: B023
        done = self._write(scope, lambda tx: agents.finish(tx, ours, rows, self._read), alone=True)
        self._moved(agents=1, operations=done)

    def _copy_loose(self) -> None:
        after = 0
        while rows := self._read(lambda tx: records.loose_page(tx, after)):  # noqa: B023
            after = rows[-1].oid
            for row in rows:
                self._write(row.scope, lambda tx: records.put_loose(tx, row))  # noqa: B023

    # ------------------------------------------------------------------ sessions where nobody sees them

    def _stage(self, newest: int) -> None:
        self._tell("entries", now=True)
        after = 0
        while found := self._read(lambda tx: moments.page(tx, after, newest, _PAGE)):  # noqa: B023
            after = found[-1].session.sid
            names = [(ours.session.scope, ours.session.id) for ours in found]
            twins = self._look(lambda tx: [moments.find(tx, *name) for name in names])  # noqa: B023
            for ours, theirs in zip(found, twins, strict=True):
                self._attempt(lambda: self._stage_one(ours, theirs))  # noqa: B023

    def _stage_one(self, ours: Moment, theirs: Moment | None) -> None:
        try:
            self._begin(ours, theirs)
        except Corrupt:
            again = self._moment(ours.session.sid)
            if not again.purged or ours.purged:
                raise
            self._begin(again, self._twin(again))  # it was purged meanwhile

    def _moment(self, sid: int) -> Moment:
        return self._read(lambda tx: moments.of(tx, sessions.by_number(tx, sid)))

    def _twin(self, ours: Moment) -> Moment | None:
        return self._look(lambda tx: moments.find(tx, ours.session.scope, ours.session.id))

    def _begin(self, ours: Moment, theirs: Moment | None) -> None:
        """Decide what a session needs, and bring the entries of one that nobody sees yet."""
        if theirs is None:
            self._look(lambda tx: staging.require_room(tx, ours, self._read))
            self._bring(ours, {})
        elif theirs.staged:
            self._require_resumable(ours, theirs)
            self._there["entries"] += theirs.entries
            self._bring(ours, _tips(theirs))
        elif not self._is_behind(ours, theirs):
            self._count_there(theirs)
            return
        else:
            self._there["entries"] += theirs.entries
        if not ours.staged:
            self._todo[ours.session.sid] = ours.session.rank

    def _count_there(self, theirs: Moment) -> None:
        counts = {"operations": theirs.operations.total, "checkpoints": theirs.checkpoints.total}
        self._there.update(sessions=1, entries=theirs.entries, **counts)
        self._tell()

    def _require_resumable(self, ours: Moment, theirs: Moment) -> None:
        if not ours.purged and moments.compare(ours, theirs, self._read, self._look).theirs:
            raise base.conflict(
                f"session {ours.session.id} was begun to be copied from another store, which has more of it;"
                f" finish that copy first. {base.AGAIN}",
                ours.session.id,
            )

    def _is_behind(self, ours: Moment, theirs: Moment) -> bool:
        """Say whether a session that is whole in the destination lacks something."""
        session = ours.session
        if theirs.purged:
            if session.hidden < base.HIDDEN:
                self._left_out.append(f"session {session.id}, which was purged in the destination")
            return False
        if ours.staged:
            return False
        if ours.purged:
            raise base.conflict(
                f"session {session.id} was purged in the source; purge it in the destination too. {base.AGAIN}",
                session.id,
            )
        sides = moments.compare(ours, theirs, self._read, self._look)
        if sides.ours or sides.theirs:
            return sides.ours
        newer = session.updated_ms >= theirs.session.updated_ms
        return newer and not moments.is_settled(ours, theirs)

    def _bring(self, ours: Moment, tips: dict[str, int]) -> None:
        """Write branches and entries that the destination lacks, as many at once as make one page."""
        batch = _Batch(self, ours.session.scope)
        own, new = {part.branch.uid for part in ours.parts}, not tips
        for part in ours.parts:
            uid = part.branch.uid
            if uid not in tips:
                fork = self._read(lambda tx: moments.fork_hash(tx, part))  # noqa: B023
                if part.parent is not None and part.parent not in own:
                    self._reach(part)
                batch.add(_opening(ours, part, fork, new=new))
                tips[uid], new = part.branch.fork_seq, False
            while tips[uid] < part.tip:
                page = self._read(lambda tx: pages.read(tx, part, tips[uid], ours.session.states))  # noqa: B023
                batch.add(_putting(page), entries=len(page.rows), size=page.size)
                tips[uid] = page.high
        batch.flush()

    def _reach(self, part: Part) -> None:
        """Bring the session that a fork starts on as far as the fork needs it, where it has gone on meanwhile."""
        scope, uid, seq = part.branch.scope, part.parent or "", part.branch.fork_seq

        def there(tx: Tx) -> bool:
            branch = base.find_branch(tx, scope, uid)
            return branch is not None and base.hash_at(tx, branch, seq) is not None

        if self._look(there):
            return
        origin = self._read(lambda tx: base.find_branch(tx, scope, uid))
        ours = None if origin is None else self._moment(origin.session)
        theirs = None if ours is None else self._twin(ours)
        if ours is None or theirs is None or theirs.purged:
            return  # opening the branch says so
        if not moments.compare(ours, theirs, self._read, self._look).theirs:
            self._bring(ours, _tips(theirs))
            self._todo[ours.session.sid] = ours.session.rank

    # ------------------------------------------------------------------ showing them

    def _finish(self) -> None:
        """Finish sessions in the order in which they last changed; those that change meanwhile come last."""
        self._tell("sessions", now=True)
        order = sorted(self._todo, key=self._todo.__getitem__)
        newest = max(self._todo.values(), default=0)
        late = list[tuple[int, int]]()
        for sid in order:
            rank = self._read(lambda tx: sessions.by_number(tx, sid)).rank  # noqa: B023
            if rank > newest:
                late.append((rank, sid))
            else:
                self._attempt(lambda: self._finish_one(sid))  # noqa: B023
        for _, sid in sorted(late):
            self._attempt(lambda: self._finish_one(sid))  # noqa: B023
        for sid in sorted(self._purged, reverse=True):
            self._attempt(lambda: self._erase(sid))  # noqa: B023

    def _finish_one(self, sid: int, under: tuple[int, ...] = ()) -> None:
        ours = self._moment(sid)
        theirs = self._twin(ours)
        if theirs is None or theirs.purged:
            return  # it is in conflict, or it was purged there since
        if ours.purged:
            self._purged.add(sid)
            return
        tips = _tips(theirs)
        compared = {} if theirs.staged else dict(tips)
        if sum(part.tip - tips.get(part.branch.uid, part.branch.fork_seq) for part in ours.parts) > base.ROWS:
            self._bring(ours, tips)
        if theirs.staged:
            self._compare(ours, compared, tips)
        whole = self._shown(ours, theirs, (*under, sid))
        if whole is not None:
            self._compare(whole.moment, compared, _tips(whole.moment))

    def _shown(self, ours: Moment, theirs: Moment, under: tuple[int, ...]) -> finishing.Whole | None:
        """Finish a session; one that has given up the name that this one needs is finished first."""
        scope, session_id = ours.session.scope, ours.session.id
        while True:
            whole = self._read(lambda tx: finishing.whole(tx, scope, session_id, theirs.checkpoints.id))
            if whole is None or whole.moment.purged:
                self._purged.add(ours.session.sid)
                return None
            try:
                done = self._write(scope, lambda tx: finishing.finish(tx, whole, self._read), alone=True)  # noqa: B023
            except base.Taken as taken:
                self._free(whole.moment, taken, under)
                continue
            self._count_done(ours, done)
            return whole

    def _free(self, ours: Moment, taken: base.Taken, under: tuple[int, ...]) -> None:
        holder = self._read(lambda tx: base.find_session(tx, taken.holder.scope, taken.holder.id))
        if holder is None or holder.sid in under or holder.hidden == base.HIDDEN:
            raise staging.refused(ours, taken) from taken
        self._finish_one(holder.sid, under)
        there = self._look(lambda tx: base.find_session(tx, taken.holder.scope, taken.holder.id))
        if there is not None and there[:21] == taken.holder[:21]:
            raise staging.refused(ours, taken) from taken

    def _count_done(self, ours: Moment, done: finishing.Done) -> None:
        new = int(self._todo.pop(ours.session.sid, None) is not None)
        self._moved(sessions=new, entries=done.entries, bytes=done.size)
        self._moved(operations=done.operations, checkpoints=done.checkpoints)
        if done.keys_left_out:
            self._left_out.append(_keys_left_out(done.keys_left_out, f"session {ours.session.id}"))

    def _compare(self, ours: Moment, compared: dict[str, int], upto: dict[str, int]) -> None:
        """Compute each hash again from what the destination has, and compare it with the original's."""
        scope = ours.session.scope
        for part in ours.parts:
            uid, end = part.branch.uid, min(part.tip, upto.get(part.branch.uid, 0))
            at = max(compared.get(uid, 0), part.branch.fork_seq)
            while at < end:
                found = self._look(lambda tx: pages.computed(tx, scope, uid, at))[: end - at]  # noqa: B023
                wanted = self._read(lambda tx: pages.hashes(tx, part, at, len(found)))  # noqa: B023
                if not found or found != wanted:
                    same = sum(1 for one, two in zip(found, wanted, strict=False) if one == two)
                    name = f"entry {uid}-{at + same + 1}"
                    raise Corrupt(f"{name} is not in the destination what it is in the source", what=name)
                at += len(found)
            compared[uid] = at
        self._tell()

    def _erase(self, sid: int) -> None:
        """Let a session that was purged in the source be purged in the destination too."""
        ours, now_ms = self._moment(sid), self._clock.now_ms()
        theirs = self._twin(ours)
        if theirs is not None and theirs.staged:
            self._compare(ours, {}, _tips(theirs))
            self._write(ours.session.scope, lambda tx: finishing.erase(tx, ours, now_ms=now_ms), alone=True)
            self._todo.pop(sid, None)
            self._moved(sessions=1)

    # ------------------------------------------------------------------ idempotency keys of the store

    def _copy_keys(self) -> None:
        self._tell("keys", now=True)
        for (scope,) in self._read(lambda tx: tx.all(SCOPES)):
            left_out, waiting = 0, list[records.Key]()
            for key in records.store_keys(self._read, scope):
                if not self._look(lambda tx: records.has_store_key(tx, scope, key)):  # noqa: B023
                    waiting.append(key)
                if len(waiting) >= _KEYS:
                    left_out += self._put_keys(scope, waiting)
            left_out += self._put_keys(scope, waiting)
            if left_out:
                self._left_out.append(_keys_left_out(left_out, f"the store, scope {scope!r}"))

    def _put_keys(self, scope: str, waiting: list[records.Key]) -> int:
        """Write keys; give how many could not be understood, or are of what is not in the destination."""
        known = [key for key in waiting if key.made is not None]
        left_out = len(waiting) - len(known)
        waiting.clear()
        if known:
            put = self._write(scope, lambda tx: [records.put_key(tx, scope, 0, key) for key in known])
            left_out += sum(done is None for done in put)
        return left_out


class _Batch:
    """Writes into one scope that are made together, until they are enough for a transaction."""

    def __init__(self, copy: _Copy, scope: str) -> None:
        self._copy = copy
        self._scope = scope
        self._ops: list[Op[None]] = []
        self._entries = self._size = 0

    def add(self, op: Op[None], *, entries: int = 0, size: int = 0) -> None:
        """Take a write; those before it are made first if it would be too much with them."""
        rows = self._entries + entries + len(self._ops)
        if self._ops and (rows > base.ROWS or self._size + size > base.BYTES):
            self.flush()
        self._ops.append(op)
        self._entries += entries
        self._size += size

    def flush(self) -> None:
        """Make the writes that are waiting, and count them."""
        ops, self._ops = self._ops, []
        counts, self._entries, self._size = {"entries": self._entries, "bytes": self._size}, 0, 0
        if ops:
            self._copy._write(self._scope, lambda tx: _run_all(tx, ops))
            self._copy._moved(already=False, **counts)


def _run_all(tx: Tx, ops: list[Op[None]]) -> None:
    for op in ops:
        op(tx)


def _opening(ours: Moment, part: Part, fork: bytes, *, new: bool) -> Op[None]:
    if new:
        return lambda tx: staging.begin(tx, ours, fork)
    return lambda tx: staging.add_branch(tx, ours, part, fork)


def _putting(page: pages.Page) -> Op[None]:
    return lambda tx: pages.put(tx, page)


def _tips(moment: Moment) -> dict[str, int]:
    return {part.branch.uid: part.tip for part in moment.parts}


def _keys_left_out(count: int, whose: str) -> str:
    return f"{words.count(count, 'idempotency key')} of {whose}: what they stand for cannot be told or is not there"
