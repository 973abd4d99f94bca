"""Copying sessions: first where nobody sees them, in the order they were made; then shown, in the order they changed.

What a session needs is decided by comparing it as of one moment in both stores. Entries are brought page by page; the
last step is one transaction, and what was brought is compared with the original before anybody sees it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TypeAlias

from ..errors import Corrupt
from ..ops import branches, sessions
from ..ops.transfer import base, finishing, moments, pages, soundness, staging
from ..ops.transfer.choice import Choice
from ..ops.transfer.moments import Moment, Part, Who
from ..storage.base import Op, Tx
from ..tables.sessions import SESSION, SessionRow
from .copying_base import Stores

PLACES = "SELECT scope, sid, rank, updated FROM session"

_PAGE = 50
_Place: TypeAlias = tuple[str, int, int]  # in the order in which the sessions of a scope last changed


class Sessions:
    """The sessions of one store on their way into another."""

    def __init__(self, stores: Stores, chosen: Choice | None = None) -> None:
        self._stores = stores
        self._chosen = None if chosen is None else [Who(chosen.scope, sid) for sid in chosen.sids]  # None: all
        self._read, self._look, self._write = stores.read, stores.look, stores.write
        self._now_ms = stores.clock.now_ms
        self._todo: set[Who] = set()
        self._same: set[Who] = set()
        self._places: dict[Who, _Place] | None = None  # while sessions that changed meanwhile have to wait
        self._late: list[tuple[_Place, Who]] = []
        self._purged: set[Who] = set()

    # ------------------------------------------------------------------ where nobody sees them

    def stage(self, newest: int) -> None:
        """Bring the branches and entries of new sessions, and find out which others have gone on."""
        for found in self._pages(newest):
            names = [(ours.session.scope, ours.session.id) for ours in found]
            twins = self._look(lambda tx: [moments.find(tx, *name) for name in names])  # noqa: B023
            for ours, theirs in zip(found, twins, strict=True):
                self._stores.attempt(lambda: self._stage_one(ours, theirs))  # noqa: B023

    def _pages(self, newest: int) -> Iterator[list[Moment]]:
        """Yield the sessions that are to be copied, by their numbers."""
        for some in self._numbers(newest):
            yield self._read(lambda tx: [moments.get(tx, who) for who in some])  # noqa: B023

    def _numbers(self, newest: int) -> Iterator[list[Who]]:
        if self._chosen is not None:
            yield from (self._chosen[at : at + _PAGE] for at in range(0, len(self._chosen), _PAGE))
            return
        for rows in base.pages_of(self._read, SESSION, newest, _PAGE):
            yield [Who(row.scope, row.sid) for row in rows]

    def _stage_one(self, ours: Moment, theirs: Moment | None) -> None:
        try:
            self._begin(ours, theirs)
        except Corrupt:
            again = self._moment(ours.who)
            if not again.purged or ours.purged:
                raise
            self._begin(again, self._twin(again))  # it was purged meanwhile

    def _moment(self, who: Who) -> Moment:
        return self._read(lambda tx: moments.get(tx, who))

    def _twin(self, ours: Moment) -> Moment | None:
        return self._look(lambda tx: moments.find(tx, ours.session.scope, ours.session.id))

    def _begin(self, ours: Moment, theirs: Moment | None) -> None:
        """Decide what a session needs, and bring the entries of one that nobody sees yet."""
        if theirs is not None and not theirs.staged:
            behind = self._is_behind(ours, theirs)
            self._count_there(theirs, sessions=int(not behind))
            if not behind:
                return
        self._read(lambda tx: soundness.require_session(tx, *ours.who))
        if theirs is None:
            self._look(lambda tx: staging.require_room(tx, ours, self._read))
            self._bring(ours, {})
        elif theirs.staged:
            self._require_resumable(ours, theirs)
            self._count_there(theirs, sessions=0)
            self._bring(ours, _tips(theirs))
        if not ours.staged:
            self._todo.add(ours.who)

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
        """Whether a session that is whole in the destination lacks something."""
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
            self._same.add(ours.who)
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
                begin = partial(staging.begin, ours=ours, fork=fork, now_ms=self._now_ms())
                batch.add(begin if new else partial(staging.add_branch, ours=ours, part=part, fork=fork))
                tips[uid], new = part.branch.fork_seq, False
            while tips[uid] < part.tip:
                page = self._read(lambda tx: pages.read(tx, part, tips[uid], ours.session.states))  # noqa: B023
                put = partial(pages.put, page=page, now_ms=self._now_ms())
                batch.add(put, entries=len(page.rows), size=page.size)
                tips[uid] = page.high
        batch.flush()

    def _reach(self, part: Part) -> None:
        """Bring the session that a fork starts on as far as the fork needs it, where it has gone on meanwhile."""
        scope, uid, seq = part.branch.scope, part.parent or "", part.branch.fork_seq

        def there(tx: Tx) -> bool:
            branch = branches.find_by_uid(tx, scope, uid)
            return branch is not None and base.hash_at(tx, branch, seq) is not None

        if self._look(there):
            return
        origin = self._read(lambda tx: branches.find_by_uid(tx, scope, uid))
        ours = None if origin is None else self._moment(Who(scope, origin.session))
        theirs = None if ours is None else self._twin(ours)
        if ours is None or theirs is None or theirs.purged:
            return  # opening the branch says so
        # Branches are listed as they were opened, so those before it come along; of a purged session only what is read.
        upto = [part.branch.uid for part in ours.parts].index(uid) + 1
        parts = _path(ours, uid, seq) if ours.purged else ours.parts[:upto]
        self._bring(ours._replace(parts=parts), _tips(theirs))
        self._todo.add(ours.who)

    # ------------------------------------------------------------------ showing them

    def finish(self) -> None:
        """Finish sessions in the order in which they last changed; those that change meanwhile come last."""
        self._places = places = self._read(_places)
        first = dict[str, _Place]()
        for who in self._todo:
            first[who.scope] = min(places[who], first.get(who.scope, places[who]))
        above = {who for who in self._same if who.scope in first and places[who] > first[who.scope]}
        waiting = sorted(self._todo | above, key=places.__getitem__)
        for new, group in itertools.groupby(waiting, self._todo.copy().__contains__):
            if new:
                self._finish_all(group)
            else:
                self._rise(group)
        late, self._places, self._late = sorted(self._late), None, []
        self._finish_all(who for _, who in late)
        if self._late != sorted(self._late):
            self._rise(who for _, who in sorted(self._late))
        for who in sorted(self._purged, reverse=True):
            self._stores.attempt(lambda: self._erase(who))  # noqa: B023

    def _finish_all(self, found: Iterable[Who]) -> None:
        for who in found:
            self._stores.attempt(lambda: self._finish_one(who))  # noqa: B023

    def _rise(self, found: Iterable[Who]) -> None:
        """Let sessions that changed after others, but were copied before them, be listed after them again."""
        for scope, group in itertools.groupby(found, lambda who: who.scope):
            batch = _Batch(self._stores, scope)
            for who in group:
                row = self._read(lambda tx: sessions.by_number(tx, *who))  # noqa: B023
                batch.add(partial(finishing.rise, scope=scope, session_id=row.id, now_ms=self._now_ms()))
            batch.flush()

    def _finish_one(self, who: Who, under: tuple[Who, ...] = ()) -> None:
        ours = self._moment(who)
        theirs = self._twin(ours)
        if theirs is None or theirs.purged:
            return  # it is in conflict, or it was purged there since
        if ours.purged:
            self._purged.add(who)
            return
        tips = _tips(theirs)
        compared = {} if theirs.staged else dict(tips)
        if sum(part.tip - tips.get(part.branch.uid, part.branch.fork_seq) for part in ours.parts) > base.ROWS:
            self._bring(ours, tips)
        if theirs.staged:
            self._compare(ours, compared, tips)
        whole = self._shown(ours, theirs, (*under, who))
        if whole is not None:
            self._compare(whole.moment, compared, _tips(whole.moment))

    def _shown(self, ours: Moment, theirs: Moment, under: tuple[Who, ...]) -> finishing.Whole | None:
        """Finish a session; one that has given up the name that this one needs is finished first."""
        scope, session_id = ours.session.scope, ours.session.id
        while True:
            whole = self._read(lambda tx: finishing.whole(tx, scope, session_id, theirs.checkpoints.id))
            if whole is None or whole.moment.purged:
                self._purged.add(ours.who)
                return None
            place = _place(whole.moment.session)
            if self._places is not None and self._places[ours.who] != place:
                self._late.append((place, ours.who))
                if len(under) == 1:
                    return None  # it changed meanwhile, and others come before it now
            try:
                op = partial(finishing.finish, whole=whole, read=self._read, now_ms=self._now_ms())
                done = self._write(scope, op, alone=True)
            except base.Taken as taken:
                self._free(whole.moment, taken, under)
                continue
            if self._places is None:
                self._late.append((place, ours.who))
            self._count_done(ours, done)
            return whole

    def _free(self, ours: Moment, taken: base.Taken, under: tuple[Who, ...]) -> None:
        named = taken.holder.scope, taken.holder.id
        holder = self._read(lambda tx: sessions.find_any(tx, *named))
        if holder is None or holder.hidden == base.HIDDEN or not self._may_finish(Who(holder.scope, holder.sid), under):
            raise staging.refused(ours, taken) from taken
        self._finish_one(Who(holder.scope, holder.sid), under)
        there = self._look(lambda tx: sessions.find_any(tx, *named))
        if there is not None and _names(there) == _names(taken.holder):
            raise staging.refused(ours, taken) from taken

    def _may_finish(self, who: Who, under: tuple[Who, ...]) -> bool:
        return who not in under and (self._chosen is None or who in self._chosen)

    def _count_done(self, ours: Moment, done: finishing.Done) -> None:
        new = ours.who in self._todo
        self._todo.discard(ours.who)
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

    def _erase(self, who: Who) -> None:
        """Let a session that was purged in the source be purged in the destination too."""
        ours, now_ms = self._moment(who), self._now_ms()
        theirs = self._twin(ours)
        if theirs is not None and theirs.staged:
            self._compare(ours, {}, _tips(theirs))
            self._write(who.scope, lambda tx: finishing.erase(tx, ours, now_ms=now_ms), alone=True)
            self._todo.discard(who)
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


def _places(tx: Tx) -> dict[Who, _Place]:
    return {Who(scope, sid): (scope, rank, updated) for scope, sid, rank, updated in tx.all(PLACES)}


def _place(row: SessionRow) -> _Place:
    return row.scope, row.rank, row.updated


def _names(row: SessionRow) -> tuple[object, ...]:
    """Return what no two visible sessions share."""
    return row.hidden, row.key, row.name, row.label


def _path(moment: Moment, uid: str | None, seq: int) -> tuple[Part, ...]:
    """Return the branches of a session that lead to an entry, each up to where the next one starts."""
    parts, found = {part.branch.uid: part for part in moment.parts}, list[Part]()
    while uid in parts:
        part = parts[uid]
        found.append(part._replace(tip=seq))
        uid, seq = part.parent, part.branch.fork_seq
    return tuple(reversed(found))


def _tips(moment: Moment) -> dict[str, int]:
    return {part.branch.uid: part.tip for part in moment.parts}
