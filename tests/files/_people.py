"""A directory in which several sessions and a person work, and a model that knows who made every change.

One thread does everything, so it is known of each change who made it and whose calls were open then. Whatever the store
states about a change is compared with that: a stated author must be the true one, and candidates must contain it.
"""

from __future__ import annotations

import os
import random
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from _callers import Elsewhere, Running
from _hands import RULES, Hand, is_ignored
from test_apply import Things, read

import takeback
from takeback.files import timeline
from takeback.files.authors import CALLS, OUTSIDE, RESTORE, SESSION, START, TURN, UNCLEAR, Author
from takeback.files.disk.scan import Limits
from takeback.model import tree
from takeback.tables.files import TOUCHED

NAMED = (b"n1", b"n2", b"src-named", b"n 3", b"n4", b"n5", b"n6", b"n7")
PERSON, GUARD = "a person", "guard"
_OF_SCAN = "WHERE scope = ? AND wid = ? AND n = ?"


class Truth(NamedTuple):
    """Who really changed a path: a family of sessions with a call, or a person; and whose calls were open then."""

    family: str
    call: str
    open: frozenset[str]
    when: int
    after: Any
    as_of: int = -1  # of a rewind: the time to which it went back


class Spot(NamedTuple):
    """A checkpoint of a session: what the directory held there, and when that was."""

    session: str
    name: str
    tree: Things
    when: int


class World:
    """A directory, a store, its sessions, and what is true of them."""

    def __init__(self, place: Path, *, sessions: dict[str, str] | None = None) -> None:
        """``sessions``: names, each with its family."""
        self.root, self.file = place / "w", place / "s.db"
        self.root.mkdir(parents=True)
        (self.root / ".gitignore").write_bytes(RULES)
        for number, path in enumerate(("a", "b.txt", "src/a", "src/b.txt", "lib/deep/a", "lib/empty/x", "sp ace")):
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_bytes(b"first %d" % number)
        self.families = sessions or {"one": "one", "two": "two", "helper": "one", GUARD: GUARD}
        self.where: dict[str, Path] = {}
        self.ids: dict[str, str] = {}
        self.leased: set[str] = set()
        self.open: list[Running | Elsewhere] = []
        self.left: list[tuple[str, str]] = []  # family and call: open in the log though nobody runs them, as is known
        self.history: dict[bytes, list[Truth]] = {}
        self.spots: list[Spot] = []
        self.now, self.log = 0, list[str]()
        self.counts = Counter[str]()
        self._checked: dict[str, int] = {}
        self._hidden = set[bytes]()
        self._seen_all, self._seen = 0, dict[bytes, int]()  # when the directory, and when a path, was last scanned
        self._first = self.tree()
        self._handles: dict[str, takeback.Session] = {}
        self.start()
        for name in self.families:  # a rewind to before a sub-agent was spawned would take it away
            made = self.handle(name)
            if name != GUARD:  # what happens in a turn of a session that never reported a call is that session's
                made.user("begin")
                with made.tool("look"):
                    pass
        self.check()

    # ------------------------------------------------------------------ the store

    def start(self) -> None:
        self._stack = ExitStack()
        self.store = self._stack.enter_context(takeback.open(self.file, durability="relaxed"))
        self._handles = {}
        for name in self.leased:
            self._enter(name)

    def stop(self) -> None:
        self._handles = {}
        self._stack.close()

    def close(self) -> None:
        for each in self.open:
            if isinstance(each, Elsewhere):
                each.kill()
        self.stop()

    def _enter(self, name: str) -> None:
        made = self._stack.enter_context(self.store.session(self.handle(name)))
        self._handles[name] = made

    def handle(self, name: str) -> takeback.Session:
        """Return a session: its handle with the lease, or one that was just got without it."""
        if name in self._handles:
            return self._handles[name]
        if name in self.ids:
            return self.store.get_session(self.ids[name])
        family = self.families[name]
        if family == name:
            made = self.store.create_session(name, workspace=self.where.get(name, self.root))
        else:
            made = self.handle(family).spawn(f"help {name}", workspace=self.where.get(name)).session
        self.ids[name] = made.id
        return made

    def lease(self, name: str) -> None:
        """Take the lease of a session for the rest of this process's run."""
        self.log.append(f"  {name}: lease")
        if name not in self.leased and name in self.ids:
            self._enter(name)
            self.leased.add(name)

    # ------------------------------------------------------------------ changes

    def tree(self) -> Things:
        return read(self.root, ours=True)

    def change(self, family: str, call: str, does: Callable[[], str]) -> None:
        """Change files, and remember who did it."""
        before, self.now = self.tree(), self.now + 1
        done, after = does(), self.tree()
        self.log.append(f"{self.now} {family} {call[-6:]}: {done} {different(before, after)[:5]}")
        open_now = frozenset({*(each.family for each in self.open), *(family for family, _ in self.left)})
        for path in different(before, after):
            self._changed(path, Truth(family, call, open_now, self.now, after.get(path)))

    def _changed(self, path: bytes, truth: Truth) -> None:
        """Add a change; one that makes a path what it was at the last scan of it takes back those since."""
        seen = max(self._seen_all, self._seen.get(path, 0))
        known = [each for each in self.history.get(path, []) if each.when <= seen]
        before = known[-1].after if known else self._first.get(path)
        fresh = [each for each in self.history.get(path, []) if each.when > seen]
        self.history[path] = known if truth.after == before else [*known, *fresh, truth]

    def act(self, family: str, call: str, rng: random.Random, names: frozenset[bytes] = frozenset()) -> None:
        """Let somebody make a few changes: to the paths that their call names, or to any that no other call names."""
        if names:
            hand = Hand(self.root, rng)
            self.change(family, call, lambda: f"write {sorted(names)} {[self._write(hand, each) for each in names]}")
            return
        taken = {name for each in self.open for name in each.names}
        for _ in range(rng.randrange(2, 6)):
            hand = _Careful(self.root, rng, taken)
            self.change(family, call, hand.act)

    def _write(self, hand: Hand, path: bytes) -> bool:
        whole = os.path.join(os.fsencode(self.root), path)
        if os.path.isdir(whole) or os.path.islink(whole) or not os.path.isdir(os.path.dirname(whole)):
            return False
        hand.write(whole, hand.data() + b"%d" % self.now)
        return True

    def write_rules(self, family: str, call: str, rules: bytes) -> None:
        """Write rules; names that they add may be left out from now on."""
        self._hidden |= {*rules.split(b"\n")}
        self.change(family, call, lambda: f"rules {(self.root / '.gitignore').write_bytes(rules)}")

    # ------------------------------------------------------------------ sessions

    def user(self, name: str) -> None:
        self.log.append(f"  {name}: a turn")
        self.handle(name).user(f"turn {self.now}")
        self.check()

    def begin(self, name: str, rng: random.Random, *, named: bool = False, paths: bool = False) -> Running:
        """Open a call; ``named`` ones say in their arguments what they change."""
        names, arguments = frozenset[bytes](), {"command": "make all"}
        if named:
            free = [each for each in NAMED if all(each not in other.names for other in self.open)]
            names = frozenset(rng.sample(free, min(len(free), rng.randrange(1, 4))))
            arguments = {"command": shlex.join(["sed", "-i", "s/a/b/", *map(os.fsdecode, sorted(names))])}
        only = [os.fsdecode(each) for each in names] if named and paths else None
        run = self.handle(name).tool("write" if named else "shell", arguments, paths=only)
        run.__enter__()
        made = Running(name, self.families[name], run, names)
        self.log.append(f"  {name}: begin {made.id[-6:]} {sorted(names)} {'only these' if only else ''}")
        self.open.append(made)
        made.only = names if only else None
        self.check(made.only)
        return made

    def begin_elsewhere(self, name: str, *, leased: bool = False) -> Elsewhere:
        """Open a call in a process of its own."""
        made = Elsewhere(self.file, self.ids[name], name, self.families[name], leased=leased)
        self.log.append(f"  {name}: begin elsewhere {made.id[-6:]} {leased=}")
        self.open.append(made)
        self.check()
        return made

    def work(self, call: Running | Elsewhere, rng: random.Random) -> None:
        self.act(call.family, call.id, rng, call.names)

    def end(self, call: Running | Elsewhere, how: str = "ended") -> None:
        self.log.append(f"  {call.session}: {how} {call.id[-6:]}")
        away = self.root.with_name("away")
        if how == "unseen":  # the scan at its end fails: the workspace is not a directory
            time.sleep(0.03)  # real tools take longer than the clock of a file system may lag
            self.root.rename(away)
            self.root.touch()
        call.end(how)
        if how == "unseen":
            self.root.unlink()
            away.rename(self.root)
        self.open.remove(call)
        if how != "unseen":
            self.check(call.only if how != "interrupted" else None)

    def kill(self, call: Elsewhere) -> None:
        self.log.append(f"  {call.session}: killed {call.id[-6:]}")
        call.kill()
        self.open.remove(call)

    def checkpoint(self, name: str) -> Spot:
        spot = Spot(name, f"{name} at {self.now} {len(self.spots)}", self.tree(), self.now)
        self.log.append(f"  {name}: checkpoint {spot.name!r}")
        self.handle(name).checkpoint(spot.name)
        self.spots.append(spot)
        self.check()
        return spot

    # ------------------------------------------------------------------ what is stated

    def require(self, holds: object, what: str) -> None:
        """Fail with what happened so far unless something holds."""
        if not holds:
            raise AssertionError("\n".join([what, *self.log[-60:]]))

    def check(self, only: frozenset[bytes] | None = None) -> None:
        """Compare all scans since the last check with what is true."""
        if only is None:
            self._seen_all = self.now
        else:  # a scan of some paths may have had to look at others too
            unseen = self._unseen()
            self._seen |= {path: self.now for path in {*only, *self.history} if path not in unseen}
        for where in {self.root, *self.where.values()}:
            for path, author in self._stated(where):
                self._judge(path, author)

    def _unseen(self) -> set[bytes]:
        """Return the paths that are not as the last scan recorded them."""
        root = os.path.realpath(self.root)
        workspace = self.store._read(timeline.find, self.store.scope, timeline.at(root))
        assert workspace is not None
        place = self.store._place(root, Limits(), ())
        now, recorded = place.glance().tree, place.trees.root(workspace.root).tree
        return {each.path for each in tree.differences(place.trees.load, recorded, now)}

    def _stated(self, where: Path) -> Iterator[tuple[bytes, Author]]:
        """Yield what was recorded since: each changed path, as seen from the whole directory, with its author."""
        scope, inside = self.store.scope, os.fsencode(where.relative_to(self.root))
        workspace = self.store._read(timeline.find, scope, timeline.at(os.path.realpath(where)))
        if workspace is None:
            return
        since, self._checked[workspace.uid] = self._checked.get(workspace.uid, 0), workspace.tip
        for scan in reversed(self.store._read(timeline.since, workspace, since)):
            given = timeline.authors_of(scan)
            for row in self.store._read(TOUCHED.all, _OF_SCAN, (scope, workspace.wid, scan.n)):
                yield os.path.normpath(os.path.join(inside, row.path)), given[row.author]

    def name_of(self, number: int) -> str:
        """Return the family of a session by its number."""
        for name, session_id in self.ids.items():
            if self.store.get_session(session_id)._seen.sid == number:
                return self.families[name]
        raise AssertionError(f"there is no session {number}")

    def _judge(self, path: bytes, author: Author) -> None:
        if author.kind in (START, RESTORE):
            return
        self.require(self.history.get(path), f"{path!r} is stated to be changed by {author}, but nobody changed it")
        truth = self.history[path][-1]
        families = {self.name_of(sid): ids for sid, ids in author.who}
        self._count(truth, author)
        said = f"{path!r} is stated to be changed by {author.kind} {families}, but it was {truth[:4]}"
        if author.kind == OUTSIDE:
            self.require(truth.family == PERSON, said)
        elif author.kind == UNCLEAR:
            self.require(truth.family in (PERSON, *families), said)
        elif author.kind in (SESSION, TURN):
            self.require([*families] == [GUARD], said)
            self.require(truth.family == PERSON, said)
        else:
            self.require(author.kind == CALLS, said)
            self.require(len(families) == 1, said)
            if truth.family == PERSON:  # nobody can tell a person from a call that is open
                self.require(truth.open & families.keys(), said)
            else:
                self.require(truth.family in families, said)
                calls = {call for sid, ids in author.who for call in ids}
                self.require(truth.call in calls, said)

    def _count(self, truth: Truth, author: Author) -> None:
        where = "overlapping" if len(truth.open) > 1 else "alone"
        self.counts[f"{where} changes"] += 1
        self.counts[f"{where} unclear"] += author.kind == UNCLEAR

    # ------------------------------------------------------------------ moves

    def rewind(self, spot: Spot, *, again: bool = False, **how: Any) -> None:
        """Go back; see that the plan is what happens, and that nothing of others' is lost."""
        session, family = self.handle(spot.session), self.families[spot.session]
        before = self.tree()
        self.log.append(f"  {spot.session}: rewind to {spot.name!r} {how}")
        planned = session.preview_rewind(spot.name, **how)
        self.require(self.tree() == before, "a preview changed files")
        self._check_plan(planned, spot, family, before, how)
        operation = planned.apply()
        self.check()
        self.now += 1
        after = self.tree()
        steps = {os.fsencode(each.path) for each in planned.files}
        self.require_effect(steps, before, after)
        for path in steps:
            known = {_plain(spot.tree.get(path)), *(_plain(each.after) for each in self.since(path, spot.when))}
            self.require(_plain(after.get(path)) in known, f"{path!r} came back as {after.get(path)!r}")
        self.restored(family, steps, after, spot.when)
        if again and operation.id in {each.id for each in session.operations(limit=1)}:
            self._undo(session, family, before, steps)

    def require_effect(self, steps: set[bytes], before: Things, after: Things) -> None:
        """See that exactly the steps of a plan happened; what they move aside goes with everything in it."""
        found = {*different(before, after)}
        moved = {each for each in found if b".takeback-" in each or any(each.startswith(step + b"/") for step in steps)}
        self.require(steps <= found and found - steps <= moved, f"plan and effect differ: {steps} {found}")

    def rewind_all(self, spot: Spot) -> None:
        """Bring the whole directory back to a moment, whoever changed it since, and take that back."""
        before, place = self.tree(), self.store.workspace(self.root)
        self.log.append(f"  all: rewind to {spot.name!r}")
        planned = place.preview_rewind((self.ids[spot.session], spot.name))
        steps = {os.fsencode(each.path) for each in planned.files}
        shown = steps | {os.fsencode(each) for each in planned.stays}
        for path in different(before, spot.tree):
            named = path in shown or any(each.startswith(path + b"/") or path.startswith(each + b"/") for each in shown)
            hidden = is_ignored(path) or not self._hidden.isdisjoint(path.split(b"/"))
            self.require(named or hidden, f"{path!r} differs, and the plan does not name it")
        operation = planned.apply()
        self.check()
        self.now += 1
        after = self.tree()
        self.require_effect(steps, before, after)
        for path in steps:
            self.require(_plain(after.get(path)) == _plain(spot.tree.get(path)), f"{path!r} did not come back")
        self.restored(PERSON, steps, after, spot.when)
        if steps:
            self.store.undo(operation)
            self.now += 1
            found = self.tree()
            odd = {path: (before.get(path), found.get(path)) for path in different(found, before)}
            self.require(found == before, f"undo is not exact: {odd} {sorted(steps)} {planned}")
            self.restored(PERSON, steps, found, self.now - 2)

    def _undo(self, session: takeback.Session, family: str, before: Things, steps: set[bytes]) -> None:
        after, back = self.tree(), self.now
        for does, wanted, as_of in (("undo", before, back - 1), ("redo", after, back), ("undo", before, back - 1)):
            self.log.append(f"  {session.name}: {does}")
            getattr(session, does)()
            self.now += 1
            found = self.tree()
            self.require(found == wanted, f"{does} is not exact: {different(found, wanted)}")
            self.check()
            self.restored(family, steps, found, as_of)

    def restored(self, family: str, paths: set[bytes], after: Things, as_of: int) -> None:
        for path in paths:
            truth = Truth(family, "restore", frozenset({family}), self.now, after.get(path), as_of)
            self.history.setdefault(path, []).append(truth)

    def since(self, path: bytes, when: int) -> list[Truth]:
        return [each for each in self.history.get(path, []) if each.when > when]

    def last(self, path: bytes, when: int) -> Truth | None:
        """Return who changed a path last since a time; behind a rewind, it is as it was then."""
        limit: int = self.now
        found: Truth | None = None
        for each in reversed(self.since(path, when)):
            if each.when > limit:
                continue
            found = found or each
            if each.as_of < when:
                return each
            limit = each.as_of
        return found

    def _check_plan(
        self, planned: takeback.Rewind, spot: Spot, family: str, before: Things, how: dict[str, Any]
    ) -> None:
        taken = {family, *(self.families[each] for each in self.named(how.get("sessions", ())))}
        steps = {os.fsencode(each.path) for each in planned.files}
        kept, others, unclear, stays = (
            {os.fsencode(each) for each in found}
            for found in (planned.kept, planned.others, planned.unclear, planned.stays)
        )
        forced = "overwrite" in how
        for path in steps:
            last = self.last(path, spot.when)
            if last is None:
                raise AssertionError("\n".join([f"{path!r} would change, but nobody changed it", *self.log[-60:]]))
            own = last.family in taken or (last.family == PERSON and (last.open | {GUARD}) & taken)
            self.require(own or forced, f"{path!r} would be lost: {last[:4]}")
        for path in kept | others:
            foreign = [each for each in self.since(path, spot.when) if each.family not in taken]
            self.require(foreign, f"{path!r} is stated to be others', but only {taken} changed it")
        wanted = how.get("paths")
        for path in different(before, spot.tree):
            hidden = is_ignored(path) or not self._hidden.isdisjoint(path.split(b"/"))
            if hidden or (wanted is not None and os.fsdecode(path) not in wanted):
                continue
            shown = steps | kept | others | unclear | stays
            named = path in shown or any(each.startswith(path + b"/") or path.startswith(each + b"/") for each in shown)
            self.require(named, f"{path!r} differs, and the plan does not name it")

    def named(self, others: Any) -> list[str]:
        if others == "all":
            return [*self.families]
        return [name for name, session_id in self.ids.items() if session_id in others]


class _Careful(Hand):
    """A hand that leaves alone what another call names in its arguments, and what is in there."""

    def __init__(self, root: Path, rng: random.Random, taken: set[bytes]) -> None:
        super().__init__(root, rng)
        self._taken = {os.path.join(os.fsencode(root), each) for each in taken}

    def _all(self, kind: str) -> list[bytes]:
        return [
            each
            for each in super()._all(kind)
            if not any(each == taken or each.startswith(taken + b"/") for taken in self._taken)
        ]


def different(one: Things, other: Things) -> list[bytes]:
    return sorted(path for path in {*one, *other} if one.get(path) != other.get(path))


def _plain(thing: Any) -> str:
    return repr(thing)
