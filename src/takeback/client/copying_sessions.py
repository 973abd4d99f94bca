"""Copying sessions: first where nobody sees them, in the order they were made; then shown, in the order they changed.

What a session needs is decided by comparing it as of one moment in both stores. Entries are brought page by page; the
last step is one transaction, and what was brought is compared with the original before anybody sees it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from ..errors import Corrupt
from ..ops import sessions
from ..ops.sessions import SessionRow
from ..ops.transfer import base, finishing, moments, pages, soundness, staging
from ..ops.transfer.moments import Moment, Part
from ..storage.base import Op, Tx
from .copying_base import Stores

RANKS = "SELECT sid, rank FROM session"

_PAGE = 50


class Sessions:
    """The sessions of one store on their way into another."""

    def __init__(self, stores: Stores, chosen: Sequence[int] | None = None) -> None:
        self._stores = stores
        self._chosen = chosen  # the numbers of those that are copied; None: all
        self._read, self._look, self._write = stores.read, stores.look, stores.write
        self._todo: set[int] = set()
        self._same: set[int] = set()
        self._ranks: dict[int, int] | None = None  # while sessions that changed meanwhile have to wait
        self._late: list[tuple[int, int]] = []
        self._purged: set[int] = set()

    # ------------------------------------------------------------------ where nobody sees them

    def stage(self, newest: int) -> None:
        """Bring the branches and entries of new sessions, and find out which others have gone on."""
        for found in self._pages(newest):
            names = [(ours.session.scope, ours.session.id) for ours in found]
            twins = self._look(lambda tx: [moments.find(tx, *name) for name in names])  # noqa: B023
            for ours, theirs in zip(found, twins, strict=True):
                self._stores.attempt(lambda: self._stage_one(ours, theirs))  # noqa: B023

    def _pages(self, newest: int) -> Iterator[list[Moment]]:
        """Give the sessions that are to be copied, by their numbers."""
        if self._chosen is not None:
            for start in range(0, len(self._chosen), _PAGE):
                sids = self._chosen[start : start + _PAGE]
                yield self._read(lambda tx: [moments.of(tx, sessions.by_number(tx, sid)) for sid in sids])  # noqa: B023
            return
        after = 0
        while found := self._read(lambda tx: moments.page(tx, after, newest, _PAGE)):  # noqa: B023
            after = found[-1].session.sid
            yield found

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
        if theirs is not None and not theirs.staged:
            behind = self._is_behind(ours, theirs)
            self._count_there(theirs, sessions=int(not behind))
            if not behind:
                return
        self._read(lambda tx: soundness.require_session(tx, ours.session.sid))
        if theirs is None:
            self._look(lambda tx: staging.require_room(tx, ours, self._read))
            self._bring(ours, {})
        elif theirs.staged:
            self._require_resumable(ours, theirs)
            self._count_there(theirs, sessions=0)
            self._bring(ours, _tips(theirs))
        if not ours.staged:
            self._todo.add(ours.session.sid)

    def _count_there(self, theirs: Moment, *, sessions: int) -> None:
        counts = {"operations": theirs.operations.total, "checkpoints": theirs.checkpoints.total}
        self._stores.count(already=True, sessions=sessions, entries=theirs.entries, **counts)

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
        if theirs.purged and session.hidden < base.HIDDEN:
            self._stores.left_out.append(f"session {session.id}, which was purged in the destination")
        if ours.purged and not theirs.purged:
            self._stores.left_out.append(f"the purge of session {session.id}, which stays in the destination")
        if theirs.purged or session.hidden == base.HIDDEN:
            return False
        sides = moments.compare(ours, theirs, self._read, self._look)
        if sides.ours or sides.theirs:
            return sides.ours
        if moments.is_settled(ours, theirs):
            self._same.add(session.sid)
            return False
        return moments.is_newer(ours, theirs, self._read, self._look)

    def _bring(self, ours: Moment, tips: dict[str, int]) -> None:
        """Write branches and entries that the destination lacks, as many at once as make one page."""
        batch = _Batch(self._stores, ours.session.scope)
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
        # Branches are listed as they were opened, so those before it come along; of a purged session only what is read.
        upto = [part.branch.uid for part in ours.parts].index(uid) + 1
        parts = _path(ours, uid, seq) if ours.purged else ours.parts[:upto]
        self._bring(ours._replace(parts=parts), _tips(theirs))
        self._todo.add(ours.session.sid)

    # ------------------------------------------------------------------ showing them

    def finish(self) -> None:
        """Finish sessions in the order in which they last changed; those that change meanwhile come last."""
        self._ranks = ranks = dict[int, int](self._read(lambda tx: tx.all(RANKS)))
        first = min((ranks[sid] for sid in self._todo), default=0)
        above = {sid for sid in self._same if ranks[sid] > first} if self._todo else set[int]()
        for new, group in itertools.groupby(sorted(self._todo | above, key=ranks.__getitem__), self._todo.__contains__):
            if new:
                self._finish_all(list(group))
            else:
                self._rise(list(group))
        waiting, self._ranks, self._late = sorted(self._late), None, []
        self._finish_all([sid for _, sid in waiting])
        if self._late != sorted(self._late):
            self._rise([sid for _, sid in sorted(self._late)])
        for sid in sorted(self._purged, reverse=True):
            self._stores.attempt(lambda: self._erase(sid))  # noqa: B023

    def _finish_all(self, sids: list[int]) -> None:
        for sid in sids:
            self._stores.attempt(lambda: self._finish_one(sid))  # noqa: B023

    def _rise(self, sids: list[int]) -> None:
        """Let sessions that changed after others, but were copied before them, be listed after them again."""
        batch: _Batch | None = None
        for sid in sids:
            row = self._read(lambda tx: sessions.by_number(tx, sid))  # noqa: B023
            if batch is None or batch.scope != row.scope:
                if batch is not None:
                    batch.flush()
                batch = _Batch(self._stores, row.scope)
            batch.add(_rising(row))
        if batch is not None:
            batch.flush()

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
            at = whole.moment.session.rank, ours.session.sid
            if self._ranks is not None and self._ranks[at[1]] != at[0]:
                self._late.append(at)
                if len(under) == 1:
                    return None  # it changed meanwhile, and others come before it now
            try:
                done = self._write(scope, lambda tx: finishing.finish(tx, whole, self._read), alone=True)  # noqa: B023
            except base.Taken as taken:
                self._free(whole.moment, taken, under)
                continue
            if self._ranks is None:
                self._late.append(at)
            self._count_done(ours, done)
            return whole

    def _free(self, ours: Moment, taken: base.Taken, under: tuple[int, ...]) -> None:
        holder = self._read(lambda tx: base.find_session(tx, taken.holder.scope, taken.holder.id))
        if holder is None or holder.sid in under or holder.hidden == base.HIDDEN or not self._is_chosen(holder.sid):
            raise staging.refused(ours, taken) from taken
        self._finish_one(holder.sid, under)
        there = self._look(lambda tx: base.find_session(tx, taken.holder.scope, taken.holder.id))
        if there is not None and there[:21] == taken.holder[:21]:
            raise staging.refused(ours, taken) from taken

    def _is_chosen(self, sid: int) -> bool:
        return self._chosen is None or sid in self._chosen

    def _count_done(self, ours: Moment, done: finishing.Done) -> None:
        new, sid = ours.session.sid in self._todo, ours.session.sid
        self._todo.discard(sid)
        self._stores.count(sessions=int(new), entries=done.entries, bytes=done.size)
        self._stores.count(operations=done.operations, checkpoints=done.checkpoints)
        self._stores.leave_keys(done.keys_left_out, f"session {ours.session.id}")

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
        self._stores.tell()

    def _erase(self, sid: int) -> None:
        """Let a session that was purged in the source be purged in the destination too."""
        ours, now_ms = self._moment(sid), self._stores.clock.now_ms()
        theirs = self._twin(ours)
        if theirs is not None and theirs.staged:
            self._compare(ours, {}, _tips(theirs))
            self._write(ours.session.scope, lambda tx: finishing.erase(tx, ours, now_ms=now_ms), alone=True)
            self._todo.discard(sid)
            self._stores.count(sessions=1)


class _Batch:
    """Writes into one scope that are made together, until they are enough for a transaction."""

    def __init__(self, stores: Stores, scope: str) -> None:
        self._stores = stores
        self.scope = scope
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
            self._stores.write(self.scope, lambda tx: _run_all(tx, ops))
            self._stores.count(already=False, **counts)


def _run_all(tx: Tx, ops: list[Op[None]]) -> None:
    for op in ops:
        op(tx)


def _opening(ours: Moment, part: Part, fork: bytes, *, new: bool) -> Op[None]:
    if new:
        return lambda tx: staging.begin(tx, ours, fork)
    return lambda tx: staging.add_branch(tx, ours, part, fork)


def _putting(page: pages.Page) -> Op[None]:
    return lambda tx: pages.put(tx, page)


def _rising(row: SessionRow) -> Op[None]:
    return lambda tx: finishing.rise(tx, row.scope, row.id)


def _path(moment: Moment, uid: str | None, seq: int) -> tuple[Part, ...]:
    """Give the branches of a session that lead to an entry, each up to where the next one starts."""
    parts, found = {part.branch.uid: part for part in moment.parts}, list[Part]()
    while uid in parts:
        part = parts[uid]
        found.append(part._replace(tip=seq))
        uid, seq = part.parent, part.branch.fork_seq
    return tuple(reversed(found))


def _tips(moment: Moment) -> dict[str, int]:
    return {part.branch.uid: part.tip for part in moment.parts}
