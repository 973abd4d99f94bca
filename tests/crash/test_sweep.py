"""R17: a sweep removes nothing that anything leads to, whoever writes, forks, purges or is killed meanwhile.

What must be at a point is told by the point itself: a checkpoint is named by the digest of its files, a large message
begins with the digest of the rest. Few different contents are used, so that most of them are shared, come free in a
purge, and are wanted again while they are swept out.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest

import takeback

from ._harness import Barrier, Child, ChildDied, in_child, told
from ._rewinds import clear, read

pytestmark = [pytest.mark.slow, pytest.mark.feature("F1"), pytest.mark.promise("R17")]

_ROUNDS_PER_STORE = 25
_WRITERS = ("alpha", "beta", "gamma")


@pytest.fixture
def above() -> Iterator[Path]:
    """A place in memory where there is such a thing."""
    made = Path(tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    yield made
    clear(made)


def digest(root: Path) -> str:
    """Name what a directory holds."""
    return "files " + sha256(repr(sorted(read(root).items())).encode()).hexdigest()


def large(rng: random.Random) -> str:
    """Return one of few large texts."""
    text = random.Random(rng.randrange(3)).randbytes(40_000).hex()
    return f"{sha256(text.encode()).hexdigest()} {text}"


class Writer:
    """A session that works in a directory of its own."""

    def __init__(self, place: Path, store: takeback.Store, name: str, rng: random.Random) -> None:
        self.root, self.store, self.name, self.rng = place / name, store, name, rng
        self.root.mkdir(exist_ok=True)

    def work(self, steps: int) -> None:
        """Do some things at random; what was swept out meanwhile is tried again, as the error says."""
        with self.store.session(self.name, workspace=self.root) as self.session:
            for _ in range(steps):
                act = self.rng.choice(("edit", "edit", "say", "point", "point", "back", "undo", "fork", "purge"))
                try:
                    getattr(self, act)()
                except takeback.Conflict as error:
                    if act not in ("undo", "fork") and "try again" not in str(error):
                        raise
                except takeback.Unsupported as error:
                    self.session.capture_error = str(error)
                self.note_missed()

    def note_missed(self) -> None:
        """Note that a look gave up, since all it stored was swept out each time: what changed then is nobody's."""
        if self.session.capture_error is not None:
            assert "try again" in self.session.capture_error, self.session.capture_error
            self.root.with_suffix(".missed").touch()

    def edit(self) -> None:
        rng = self.rng
        with self.session.tool("shell"):
            for _ in range(rng.randrange(1, 5)):
                path = self.root / rng.choice(("a", "b", "c", "folder/a", "folder/b", "folder/deep/a"))
                path.parent.mkdir(parents=True, exist_ok=True)
                if path.exists() and rng.random() < 0.3:
                    path.unlink()
                else:
                    path.write_text(f"content {rng.randrange(6)}" * rng.choice((1, 1, 1000)))

    def say(self) -> None:
        self.session.user(large(self.rng))

    def point(self) -> None:
        self.session.checkpoint(digest(self.root))

    def back(self) -> None:
        points = self.session.checkpoints()
        if points:
            self.session.rewind(self.rng.choice(points))

    def undo(self) -> None:
        self.session.undo()

    def fork(self) -> None:
        points = self.session.checkpoints()
        at = self.rng.choice(points) if points else None
        if self.rng.random() < 0.5:
            self.session.fork(at)
        else:
            self.session.fork(at, as_session=True, name=f"fork of {self.name} {self.rng.randrange(1 << 30)}")

    def purge(self) -> None:
        """Erase a fork for good, or a session that has some."""
        forks = [each for each in self.store.iter_sessions() if each.name and f"of {self.name} " in each.name]
        if forks:
            self.store.purge_session(self.rng.choice(forks).id)


def _write(place: Path, name: str, seed: str, barrier: Barrier) -> None:
    with takeback.open(place / "s.db", durability="relaxed") as store:
        barrier.wait()
        Writer(place, store, name, random.Random(f"{seed} {name}")).work(6)


def _write_in_threads(place: Path, names: tuple[str, ...], seed: str, barrier: Barrier) -> None:
    """Write in several threads of one process, and sweep in one more."""
    failures: list[BaseException] = []

    def run(store: takeback.Store, name: str) -> None:
        try:
            Writer(place, store, name, random.Random(f"{seed} {name}")).work(6)
        except BaseException as failure:
            failures.append(failure)

    with takeback.open(place / "s.db", durability="relaxed") as store:
        threads = [threading.Thread(target=run, args=(store, name)) for name in names]
        barrier.wait()
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            store.prune(dry_run=False, spare_seconds=0)
            time.sleep(0.01)
    if failures:
        raise failures[0]


def _sweep(place: Path, barrier: Barrier) -> None:
    """Sweep until killed."""
    with takeback.open(place / "s.db", durability="relaxed") as store:
        barrier.wait()
        while True:
            store.prune(dry_run=False, spare_seconds=0)
            time.sleep(0.02)


def _check(place: Path, seed: str, *, every: bool) -> int:
    """See that nothing dangles and that points have their files; give how many points were gone to."""
    rng, count = random.Random(f"{seed} check"), 0
    with takeback.open(place / "s.db", durability="relaxed") as store:
        report = store.verify()
        assert not report, str(report)
        for session in store.iter_sessions():
            for message in session.iter_messages():
                said, _, rest = message.text.partition(" ")
                assert not rest or message.role != "user" or sha256(rest.encode()).hexdigest() == said
        for name in _WRITERS:
            session = store.find_session(name)
            points = [] if session is None else session.checkpoints()
            for point in points if every else rng.sample(points, min(2, len(points))):
                assert session is not None
                planned = session.preview_rewind(point)
                if (place / "killed").exists():  # what a call did that was cut off is unclear, and is kept by default
                    planned = session.preview_rewind(point, overwrite="all")
                elif (place / name).with_suffix(".missed").exists():
                    planned = session.preview_rewind(point, overwrite=planned.kept)
                planned.apply()
                assert digest(place / name) == point.name, f"{name} is not as it was at {point}\n{planned}"
                count += 1
    return count


def _round(place: Path, rng: random.Random, seed: str, *, last: bool) -> int:
    names = rng.sample(_WRITERS, 3)
    barrier = Barrier()
    writers = [Child(_write, place, names[0], seed, barrier)]
    writers.append(Child(_write_in_threads, place, (names[1], names[2]), seed, barrier))
    sweeper = Child(_sweep, place, barrier)
    barrier.open()
    if rng.random() < 0.4:
        time.sleep(rng.uniform(0, 0.15))
        (place / "killed").touch()
        rng.choice(writers).kill()
    for writer in writers:
        with contextlib.suppress(ChildDied):
            writer.result()
    assert sweeper.alive(), sweeper.result()
    sweeper.kill()
    return int(in_child(lambda: _check(place, seed, every=last)))


def test_a_sweep_removes_nothing_that_anything_leads_to(
    above: Path, seed: int, counts: Callable[[int, int], int], tally: Callable[..., int]
) -> None:
    rounds, place = -(-counts(200, 5000) // len(_WRITERS)), above / "place"
    for number in range(rounds):
        first = number % _ROUNDS_PER_STORE == 0
        if first:
            clear(place)
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
        rng = random.Random(f"sweep {seed} {number}")
        with told(seed=seed, round=number):
            last = number == rounds - 1 or number % _ROUNDS_PER_STORE == _ROUNDS_PER_STORE - 1
            tally("R17 points", _round(place, rng, f"{seed} {number}", last=last))
        tally("R17 rounds", len(_WRITERS))
