"""R14: a rewind is exact. A random walk over a real directory, step by step against a model of it.

The agent changes files inside tool calls, a person between them. The model is what the directory held at each point,
and who touched what since: a rewind gives back every path that the person left alone, exactly, and none of the others.
Each step draws from a generator of its own, so a walk can be made shorter and stays what it is.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from _hands import RULES, Hand, is_ignored
from test_apply import Things, read
from test_apply_faults import remove

import takeback

pytestmark = [pytest.mark.slow, pytest.mark.feature("F1"), pytest.mark.promise("R14")]

_STEPS = 100  # of one walk; the next one begins anew
MINE = (b"mine", b"mine too", b"yours.txt")


class Spot(NamedTuple):
    """A point of the path: what the directory held there, and when that was."""

    target: Any
    tree: Things
    when: int


class Move(NamedTuple):
    """A move that can be taken back: what there was before it."""

    spot: Spot
    path: dict[int, Spot]


class Walk:
    """A session in a directory, and what is known of both."""

    def __init__(self, place: Path, seed: str) -> None:
        self.root, self._file, self._seed = place / "w", place / "s.db", seed
        self.root.mkdir(parents=True)
        (self.root / ".gitignore").write_bytes(RULES)
        (self.root / "a").write_bytes(b"first")
        self.now = 0
        self.path: dict[int, Spot] = {}  # by seq: where the session was on its way to its head
        self.checkpoints: list[tuple[Spot, dict[int, Spot]]] = []  # each with the path that it is on
        self.touched: dict[bytes, int] = {}  # by the person, and when last
        self.worked: dict[bytes, int] = {}  # by the agent
        self.known: dict[
            bytes, set[Any]
        ] = {}  # all that was ever at a path: a person's edit comes back as they left it
        self.undoable: list[Move] = []
        self.redoable: list[Move] = []
        self.held: set[bytes] = set()  # what a move left: later ones may take it for somebody else's, or for theirs
        self.unseen = False  # the person changed something since the last look
        self._base: tuple[Things, dict[bytes, int]] = {}, {}  # what was there then, and what the person had touched
        self.log: list[str] = []
        self.moves = 0
        self.open()
        self.do_turn(random.Random(0))

    # ------------------------------------------------------------------ the session

    def open(self) -> None:
        self.store = takeback.open(self._file, durability="relaxed")
        self.session = self.store.session("walk", workspace=self.root)
        self.session.__enter__()

    def close(self) -> None:
        self.session.__exit__(None, None, None)
        self.store.close()

    def tree(self) -> Things:
        found = read(self.root, ours=True)
        for path, thing in found.items():
            self.known.setdefault(path, {None}).add(thing)
        return found

    def note(self, target: Any = None) -> Spot:
        """Remember where the session is."""
        seq = self.session.refresh().head.seq
        self.path[seq] = Spot(seq if target is None else target, self.tree(), self.now)
        return self.path[seq]

    def settle(self) -> None:
        """Let the session see what the person did before a step that would put it down to somebody else."""
        if self.unseen:
            self.do_turn(random.Random(0))

    # ------------------------------------------------------------------ steps

    def step(self, number: int) -> None:
        """Do one step, the same for the same number whatever went before."""
        rng = random.Random(f"{self._seed} {number}")
        self.now += 1
        does = rng.choices([each[0] for each in STEPS], [each[1] for each in STEPS])[0]
        self.log.append(f"{number} {does}")
        getattr(self, f"do_{does}")(rng)

    def do_turn(self, rng: random.Random) -> None:
        message = self.session.user(f"turn {self.now}")
        self.unseen, self.redoable = False, []
        self.note(rng.choice((None, message)))

    def do_call(self, rng: random.Random) -> None:
        hand, before = Hand(self.root, rng), self.tree()
        with self.session.tool("shell"):
            self.log[-1] += ": " + ", ".join(hand.act() for _ in range(rng.randrange(1, 8)))
        self._worked(before)

    def do_call_with_paths(self, rng: random.Random) -> None:
        hand, before = Hand(self.root, rng), self.tree()
        path = hand.some("file") or hand.free()
        if os.path.isdir(path) or os.path.islink(path) or os.path.exists(path) > os.access(path, os.W_OK):
            return
        with self.session.tool("write", paths=[os.fsdecode(path)]):
            if os.path.exists(path) and rng.random() < 0.2:
                os.unlink(path)
            else:
                hand.write(path, hand.data())
        unseen = self.unseen
        self._worked(before)
        self.unseen = unseen  # only that path was looked at

    def _worked(self, before: Things) -> None:
        after = self.tree()
        seen, touched = self._base
        for path in different(before, after):
            self.worked[path] = self.now
            seen[path] = after.get(path, _NOTHING)
            touched |= {path: self.touched[path]} if path in self.touched else {}
        self.unseen, self.redoable = False, []
        self.note()

    def do_person(self, rng: random.Random) -> None:
        hand, before = Hand(self.root, rng, MINE), self.tree()
        if not self.unseen:
            self._base = dict(before), dict(self.touched)
        for _ in range(rng.randrange(1, 3)):
            path = hand.some("file") if rng.random() < 0.3 else os.path.join(os.fsencode(self.root), rng.choice(MINE))
            if path is None or os.path.isdir(path) or os.path.islink(path):
                continue
            if os.path.exists(path) and rng.random() < 0.3:
                os.unlink(path)
            elif not os.path.exists(path) or os.access(path, os.W_OK):
                hand.write(path, b"a person wrote this %d" % self.now)
        after = self.tree()
        self.touched |= dict.fromkeys(different(before, after), self.now)
        seen, touched = self._base
        for path in different(before, after):
            if seen.get(path, _NOTHING) == after.get(path, _NOTHING):
                del self.touched[path]
                self.touched |= {path: touched[path]} if path in touched else {}
        self.unseen = True

    def do_checkpoint(self, rng: random.Random) -> None:
        self.settle()
        made = self.session.checkpoint(f"point {self.now}")
        self.redoable = []
        spot = self.note(rng.choice((made, made.name, made.id)))
        self.checkpoints.append((spot, dict(self.path)))

    def do_reopen(self, rng: random.Random) -> None:
        self.settle()
        self.close()
        self.open()

    def do_rewind(self, rng: random.Random) -> None:
        known = [(each, self.path) for each in self.path.values()]
        spot, path = rng.choice([*known, *self.checkpoints])

        def go(one: takeback.Session) -> Spot:
            one.rewind(spot.target)
            return spot

        self._move(go, rng, kind="rewind", onto=path)

    def do_undo(self, rng: random.Random) -> None:
        if self.undoable:
            self._move(lambda one: (one.undo(), self.undoable[-1].spot)[1], rng, kind="undo")

    def do_redo(self, rng: random.Random) -> None:
        if self.redoable:
            self._move(lambda one: (one.redo(), self.redoable[-1].spot)[1], rng, kind="redo")

    def do_look(self, rng: random.Random) -> None:
        """A preview changes nothing, on disk and in the store."""
        before, revision = self.tree(), self.session.refresh().revision
        str(self.session.preview_rewind(rng.choice([*self.path.values()]).target))
        assert self.tree() == before
        assert self.session.refresh().revision == revision

    def do_stale(self, rng: random.Random) -> None:
        """A preview that is no longer true changes nothing."""
        planned = self.session.preview_rewind(rng.choice([*self.path.values()]).target)
        steps = [each.path for each in planned.files if each.action in ("overwrite", "delete", "chmod")]
        steps = [each for each in steps if not (self.root / each).is_dir() or (self.root / each).is_symlink()]
        if not steps:
            return
        stale = rng.choice(steps)
        (self.root / stale).unlink()
        self.touched[os.fsencode(stale)] = self.now
        before = self.tree()
        with pytest.raises(takeback.Conflict):
            planned.apply()
        assert self.tree() == before

    # ------------------------------------------------------------------ moves

    def _move(
        self,
        go: Callable[[takeback.Session], Spot],
        rng: random.Random,
        *,
        kind: str,
        onto: dict[int, Spot] | None = None,
    ) -> None:
        before, path = self.tree(), self.path
        one = self.session if rng.random() < 0.7 else self.store.get_session(self.session.id)
        operations = len(self.session.operations(limit=1000))
        try:
            spot = go(one)
        except takeback.Conflict:
            assert kind == "undo"  # something else was done since
            assert self.tree() == before
            self.undoable.clear()
            return
        found, move = read(self.root, ours=True), Move(Spot(None, before, self.now), path)
        self.log[-1] += f" to {spot.target} of step {spot.when}"
        self._check(before, spot, found)
        if kind == "undo" and spot.when == self.now - 1 and self.log[-2].split()[1] == "rewind":
            wrong = [path for path in different(spot.tree, found) if not self._is_near(path)]
            assert not wrong, f"undo is not exact: {wrong}"
        self._moved(kind, spot, move, onto or {}, len(self.session.operations(limit=1000)) > operations)
        self.unseen = True
        self._base = dict(found), dict(self.touched)
        self.moves += 1

    def _moved(self, kind: str, spot: Spot, move: Move, onto: dict[int, Spot], noted: bool) -> None:
        if kind == "rewind":
            seq = self.session.refresh().head.seq
            self.path = {at: each for at, each in onto.items() if at <= seq}
            self.path[seq] = spot
            if noted:
                self.undoable.append(move)
                self.redoable = []
        elif kind == "undo":
            self.path = self.undoable.pop().path
            self.redoable.append(move)
        else:
            self.path = self.redoable.pop().path
            self.undoable.append(move)

    def _check(self, before: Things, spot: Spot, found: Things) -> None:
        """See that a move gave back what it must, and kept what it must."""
        wrong = []
        for path in sorted({*before, *spot.tree, *found}):
            was, wanted, now = before.get(path), spot.tree.get(path), found.get(path)
            if is_ignored(path) or (path not in self.held and self._is_theirs(path, spot.when)):
                right = now == was

            elif self._is_near(path) or _holds_ignored(path, before):
                right = now in (was, wanted) or now in self.known.get(path, {None})
                self.held |= {path} if now != wanted else set()
            else:
                right = now == wanted
            if not right:
                wrong.append(f"{path!r}: was {_brief(was)}, should be {_brief(wanted)}, is {_brief(now)}")
        assert not wrong, "\n".join(wrong)
        self.held |= {*self.touched}  # what a move passed over is no longer in the way of the next one

    def _is_theirs(self, path: bytes, since: int) -> bool:
        """Whether the person changed a path since a point, and nobody else after that."""
        at = self.touched.get(path, -1)
        return at > since and self.worked.get(path, -1) < at

    def _is_near(self, path: bytes) -> bool:
        return any(f"{a}/".startswith(f"{b}/") for a, b in self._pairs(path))

    def _pairs(self, path: bytes) -> Iterator[tuple[str, str]]:
        here = os.fsdecode(path)
        for each in map(os.fsdecode, {*self.touched, *self.held}):
            yield here, each
            yield each, here


_NOTHING = ()  # at a path
STEPS = (
    ("call", 30),
    ("call_with_paths", 5),
    ("person", 12),
    ("turn", 12),
    ("checkpoint", 8),
    ("rewind", 14),
    ("undo", 10),
    ("redo", 6),
    ("reopen", 3),
    ("look", 3),
    ("stale", 2),
)


def different(one: Things, other: Things) -> list[bytes]:
    return sorted(path for path in {*one, *other} if one.get(path) != other.get(path))


def _brief(thing: Any) -> str:
    return repr(thing)[:60]


def _holds_ignored(path: bytes, tree: Things) -> bool:
    return any(each.startswith(path + b"/") and is_ignored(each) for each in tree)


def walk(place: Path, seed: str, steps: Iterable[int]) -> int:
    """Take a walk in an empty place; give how many moves it made."""
    one = Walk(place, seed)
    try:
        for number in steps:
            one.step(number)
        report = one.store.verify()
        assert not report, str(report)
    except BaseException as error:
        error.add_note("\n".join([f"walk {seed!r}", *one.log[-200:]]))
        raise
    finally:
        one.close()
    return one.moves


@pytest.fixture
def places() -> Iterator[Callable[[], Path]]:
    """Return empty places in memory where there is such a thing."""
    above = Path(tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))

    def make() -> Path:
        remove(above / "p")
        return above / "p"

    yield make
    remove(above)
    shutil.rmtree(above, ignore_errors=True)


def test_a_rewind_gives_back_exactly_what_was_there(
    places: Callable[[], Path], seed: int, counts: Callable[[int, int], int], tally: Callable[..., int]
) -> None:
    steps = counts(500, 20_000)
    for first in range(0, steps, _STEPS):
        moves = walk(places(), f"{seed} {first}", range(_STEPS))
        tally("R14 moves", moves)
    tally("R14 steps", steps)
