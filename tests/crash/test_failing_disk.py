"""R4: a write, sync, truncate or delete that fails at any point leaves the store whole.

For n = 1, 2, 3 ... the n-th call to the file system fails, until an operation needs fewer calls than that.
Each time: the caller gets a ``takeback.Error``, an open store goes on when the disk does, and after reopening
everything acknowledged is there, the operation was done as a whole or not at all, and verify finds nothing.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import takeback
from takeback.client.store import Store
from takeback.clock import SystemClock
from takeback.storage.sqlite import SqliteBackend
from takeback.storage.wrap import Faulty
from takeback.testing.faults import MODES, FaultyVFS, Mode

from . import _harness
from ._harness import compose, copy_store, in_child, open_through

pytestmark = [pytest.mark.slow, pytest.mark.promise("R4"), pytest.mark.feature("C5")]


class Life:
    """A store on a failing disk, from opening to closing."""

    def __init__(self, path: Path, vfs: FaultyVFS, seed: str) -> None:
        self.path, self.vfs, self.rng = path, vfs, random.Random(seed)
        self.store: takeback.Store | None = None

    def open(self) -> takeback.Store:
        self.store = open_through(self.vfs, self.path)
        return self.store

    def close(self) -> None:
        store, self.store = self.store, None
        if store is not None:
            store.close()

    def subject(self, acknowledged: int) -> takeback.Session:
        """Open the store, have something acknowledged, and give the session that the operation is about."""
        session = self.find(self.open(), "subject")
        for number in range(acknowledged):
            session.user(f"acknowledged {number}")
        return session

    @staticmethod
    def find(store: takeback.Store, name: str) -> takeback.Session:
        session = store.find_session(name)
        assert session is not None
        return session

    def texts(self, count: int, size: int) -> list[dict[str, str]]:
        """Make messages around a size; the same in every life with this seed."""
        sizes = [max(0, size + self.rng.randrange(-size // 4, size // 4 + 1)) for _ in range(count)]
        return [{"role": "user", "content": text} for text in compose("w", 1, sizes)]


# Each prepares what it needs, yields, and then does what must survive the fault.
Work = Callable[[Life, int], Iterator[None]]


def _append(life: Life, variant: int) -> Iterator[None]:
    session = life.subject(1 + 3 * (variant % 2))
    yield
    session.append(*life.texts(1, 200 + 1500 * variant))


def _append_many(life: Life, variant: int) -> Iterator[None]:
    session = life.subject(variant % 5)
    yield
    session.append(*life.texts(30 + 20 * variant, 900))


def _append_spilled(life: Life, variant: int) -> Iterator[None]:
    session = life.subject(variant % 5)
    yield
    session.append(*life.texts(1, 160_000 + 20_000 * variant))


def _append_to_recycled_log(life: Life, variant: int) -> Iterator[None]:
    session = life.subject(5 + variant)
    session.append(*life.texts(20, 500))
    other = apsw.Connection(str(life.path), vfs=life.vfs.name)
    other.pragma("schema_version")
    frames, folded = other.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    assert frames == folded > 0
    other.close()
    yield
    session.append(*life.texts(1 + variant, 200))


def _append_with_a_key(life: Life, variant: int) -> Iterator[None]:
    session = life.subject(variant % 5)
    yield
    session.append(*life.texts(2, 100), idempotency_key="once")


def _append_after_a_rewind(life: Life, variant: int) -> Iterator[None]:
    session = life.subject(3)
    session.rewind(2 + variant)
    yield
    session.append(*life.texts(2, 300))


def _create_session(life: Life, variant: int) -> Iterator[None]:
    life.subject(variant % 5)
    yield
    assert life.store is not None
    life.store.create_session("made", title="t" * (1 + 100 * (variant % 9)))


def _fork(life: Life, variant: int) -> Iterator[None]:
    session = life.subject(variant % 5)
    yield
    session.fork(1 + variant, name="forked")


def _rewind(life: Life, variant: int) -> Iterator[None]:
    session = life.subject(1 + variant % 5)
    yield
    session.rewind(1 + variant)


def _undo(life: Life, variant: int) -> Iterator[None]:
    session = life.subject(variant % 5)
    session.rewind(1 + variant)
    yield
    session.undo()


def _switch(life: Life, variant: int) -> Iterator[None]:
    session = life.subject(variant % 5)
    yield
    session.switch("main")


def _delete_session(life: Life, variant: int) -> Iterator[None]:
    life.subject(variant % 5)
    yield
    assert life.store is not None
    life.store.delete_session(life.find(life.store, "doomed").id)


def _purge_session(life: Life, variant: int) -> Iterator[None]:
    life.subject(variant % 5)
    yield
    assert life.store is not None
    life.store.purge_session("doomed")


def _checkpoint(life: Life, variant: int) -> Iterator[None]:
    session = life.subject(variant % 5)
    yield
    session.checkpoint(f"point {variant}", description="d" * (1 + 300 * (variant % 4)))


def _work(life: Life, variant: int) -> Iterator[None]:
    session = life.subject(variant % 5)
    session.set_tasks([f"task {n}" for n in range(5)])
    yield
    session.update_task(variant % 5, "completed")


def _state(life: Life, variant: int) -> Iterator[None]:
    session = life.subject(variant % 5)
    session.state.set("before", 1)
    yield
    session.state.update({f"k{n}": "v" * 200 for n in range(1 + 10 * variant)})


def _attach(life: Life, variant: int) -> Iterator[None]:
    session = life.subject(variant % 5)
    yield
    session.user("see", attachments=[bytes(range(256)) * (100 + 5000 * (variant % 3))])


def _replace_tail(life: Life, variant: int) -> Iterator[None]:
    session = life.subject(variant % 5)
    yield
    session.replace_tail(3 + variant, life.texts(2, 200), session.revision)


def _fork_session(life: Life, variant: int) -> Iterator[None]:
    session = life.subject(variant % 5)
    yield
    session.fork(2 + variant, as_session=True, name="forked session")


def _delete_agent(life: Life, variant: int) -> Iterator[None]:
    life.subject(variant % 5)
    yield
    assert life.store is not None
    life.store.delete_agent("doomed agent")


def _close(life: Life, variant: int) -> Iterator[None]:
    life.subject(1).append(*life.texts(5 + 20 * variant, 700))
    yield
    life.close()


def _first_open(life: Life, variant: int) -> Iterator[None]:
    yield
    life.open()
    life.close()


def _open_say_close(life: Life, variant: int) -> Iterator[None]:
    yield
    life.find(life.open(), "subject").append(*life.texts(1 + variant, 400))
    life.close()


_WORKS: dict[str, Work] = {
    "append": _append,
    "append many": _append_many,
    "a spilled message": _append_spilled,
    "an append with a key": _append_with_a_key,
    "an append that opens a branch": _append_after_a_rewind,
    "create_session": _create_session,
    "fork": _fork,
    "rewind": _rewind,
    "undo": _undo,
    "switch": _switch,
    "delete_session": _delete_session,
    "purge_session": _purge_session,
    "checkpoint": _checkpoint,
    "update_task": _work,
    "state": _state,
    "an attachment": _attach,
    "replace_tail": _replace_tail,
    "fork into a session": _fork_session,
    "delete_agent": _delete_agent,
    "close": _close,
    "the first open": _first_open,
    "open, append, close": _open_say_close,
    "an append to a recycled log": _append_to_recycled_log,
}


def _make(path: Path) -> None:
    """Make the store that every trial starts with a copy of."""
    with takeback.open(path) as store:
        for name in ("witness", "doomed", "subject"):
            session = store.create_session(name, agent="doomed agent" if name == "doomed" else "main")
            session.append(*({"role": "user", "content": text} for text in compose(name, 1, [300] * 40)))
        session.rewind(30)
        session.append(*({"role": "user", "content": text} for text in compose("branch", 1, [100] * 10)))


def _picture(path: Path) -> tuple[Any, list[str]]:
    """Reopen a store without faults, check it, and give what it holds: the witness apart."""
    with takeback.open(path) as store:
        report = store.verify()
        assert not report, str(report)
        found = {session["name"]: session for session in _harness.picture(store)}
        witness = found.pop("witness", {"messages": []})
        return found, [text for _, text in witness["messages"]]


class Bench:
    """Runs one operation again and again, each time on a fresh copy, with another call that fails."""

    def __init__(self, template: Path, place: Path, work: Work, variant: int, seed: int) -> None:
        self._template, self._place, self._work, self._variant = template, place, work, variant
        self._seed = f"{seed} {variant}"
        self.vfs = FaultyVFS()
        self._before = self._stop_at(0)
        self._after = self._stop_at(1)

    def _life(self) -> Life:
        fresh = self._work is not _first_open
        path = copy_store(self._template, self._place) if fresh else self._empty()
        return Life(path, self.vfs, self._seed)

    def _empty(self) -> Path:
        path = copy_store(self._template, self._place)
        for file in path.parent.iterdir():
            file.unlink()
        return path

    def _stop_at(self, step: int) -> Any:
        """Return what the store holds before (0) or after (1) the operation, when nothing fails."""
        life = self._life()
        for number, _ in enumerate(self._work(life, self._variant)):
            if number == step:
                break
        life.close()
        return _picture(life.path)[0]

    def trial(self, number: int, mode: Mode) -> bool:
        """Fail one call and check everything; say whether there was such a call."""
        life = self._life()
        steps = self._work(life, self._variant)
        next(steps)
        self.vfs.arm(number, mode)
        done = _typed(lambda: next(steps, None))
        fired = bool(self.vfs.fired)
        assert done or fired, "it failed without a fault"
        said = self._go_on(life) if mode != "torn" or not fired else self._look_at_ruins(life)
        self.vfs.disarm()
        found, witness = _picture(life.path)
        assert witness[40:] == said, "what was acknowledged after the fault is lost"
        assert found in ([self._after] if done else [self._before, self._after]), "neither before nor after"
        assert _harness.files_beside(life.path) == _harness.AFTER_A_CLEAN_CLOSE
        return fired

    def _go_on(self, life: Life) -> list[str]:
        """The disk works again: so must the store that was open meanwhile; after a failed sync, one opened anew."""
        unsynced = any(fault.kind == "sync" for fault in self.vfs.fired)
        self.vfs.disarm()
        store = life.store
        if store is None:
            return []
        if not _typed(lambda: life.find(store, "witness").user("still here")):
            assert unsynced, "the disk works again, the store does not"
            life.close()
            life.find(life.open(), "witness").user("still here")
        life.close()
        return ["still here"]

    @staticmethod
    def _look_at_ruins(life: Life) -> list[str]:
        """The disk is dead: every call gives a typed error or a right answer, and closing is quiet."""
        store = life.store
        if store is not None:
            _typed(lambda: store.create_session("never"))
            _typed(lambda: [list(session.iter_messages()) for session in store.list_sessions()])
            _typed(store.verify)
            life.close()
        return []


def _typed(call: Callable[[], object]) -> bool:
    """Whether a call succeeded; only a ``takeback.Error`` may keep it from that."""
    try:
        call()
    except takeback.Error:
        return False
    return True


def _sweep(
    template: Path, place: Path, what: str, variant: int, modes: tuple[Mode, ...], step: int, seed: int
) -> tuple[int, list[str]]:
    """Fail every call in turn, or every so many, in one mode after another; give their count and what went wrong."""
    bench, wrong, tried = Bench(template, place, _WORKS[what], variant, seed), [], 0
    for number in range(1, 3000, step):
        mode = modes[number % len(modes)]
        try:
            if not bench.trial(number, mode):
                return tried, wrong
            tried += 1
        except Exception as error:
            facts = f"seed {seed}, variant {variant}, mode {mode}, call {number}"
            trace = "".join(traceback.format_exception(error)[-4:]) if not wrong else f"{error!r:.200}"
            wrong.append(f"{facts}: {trace}")
            if len(wrong) >= 20:
                return tried, wrong
    raise AssertionError("an operation that never ends")


_swept: set[str] = set()
_EVERY_CALL_IN_EVERY_MODE = [((mode,), 1) for mode in MODES]
_EVERY_CALL = [(MODES, 1), ((*MODES[1:], MODES[0]), 2)]  # and every second one in another mode


@pytest.mark.parametrize("what", _WORKS)
def test_a_failing_disk_at_any_call_leaves_the_store_whole(
    tmp_path: Path, seed: int, deep: bool, tally: Callable[..., int], what: str
) -> None:
    template = tmp_path / "template" / "a.db"
    in_child(_make, template)
    points, variant, wrong, wanted = 0, 0, [], 1 + 10_000 // len(_WORKS) if deep else 1
    while points < wanted:
        for modes, step in _EVERY_CALL_IN_EVERY_MODE if deep else _EVERY_CALL:
            args = (template, tmp_path / "trial", what, variant, modes, step, seed)
            tried, found = in_child(_sweep, *args, timeout=280)
            points, wrong = points + tried, wrong + found
        variant += 1
    tally("R4 fault points", points)
    _swept.add(what)
    assert points > 10, "the faults never came"
    assert not wrong, f"{len(wrong)} of {points} points failed:\n" + "\n".join(wrong)


def test_every_operation_was_tried_at_enough_points(
    tally: Callable[..., int], counts: Callable[[int, int], int]
) -> None:
    if _swept != set(_WORKS):
        pytest.skip("only a part of the operations was run")
    assert tally("R4 fault points") >= counts(800, 10_000)


# ---------------------------------------------------------------------- more than one fault


def _say_much(session: takeback.Session, count: int) -> None:
    session.append(*[{"role": "user", "content": "never acknowledged " * 20}] * count)


def test_failed_commits_before_a_crash_are_not_taken_for_damage(tmp_path: Path) -> None:
    """Two commits that failed at their last page leave frames behind a shorter one that succeeded; then a crash."""

    def count_writes(path: Path, size: int) -> int:
        vfs = FaultyVFS()
        with open_through(vfs, path) as store:
            session = store.create_session("a")
            session.user("one")
            vfs.arm(10_000, "error", kinds=["write"])
            _say_much(session, size)
            return vfs.calls

    def die(path: Path, writes: list[int]) -> None:
        vfs = FaultyVFS()
        session = open_through(vfs, path).create_session("a")
        session.user("one")
        for size, last in zip((60, 30), writes, strict=True):
            vfs.arm(last, "error", kinds=["write"])
            with pytest.raises(takeback.BackendError):
                _say_much(session, size)
        vfs.disarm()
        session.user("two")
        os.kill(os.getpid(), signal.SIGKILL)

    def look(path: Path) -> list[str]:
        with takeback.open(path) as store:
            assert not store.verify()
            return [message.text for message in store.list_sessions()[0].iter_messages()]

    writes = [in_child(count_writes, tmp_path / f"{size}.db", size) for size in (60, 30)]
    with pytest.raises(_harness.ChildDied):
        in_child(die, tmp_path / "a.db", writes)
    assert in_child(look, tmp_path / "a.db") == ["one", "two"]


def test_an_operation_that_fails_late_in_a_shared_commit_leaves_a_store_that_opens(tmp_path: Path) -> None:
    """Its place in the feed is taken back with it, so the high-water mark must not count it."""

    def work(path: Path) -> list[str]:
        backend = SqliteBackend(str(path))
        store, broken = (Store(each, clock=SystemClock()) for each in (backend, Faulty(backend, _refuse_the_head)))
        session = store.create_session("a")
        running, go = threading.Event(), threading.Event()
        leader = threading.Thread(target=lambda: backend.write(lambda tx: (running.set(), go.wait(30))))
        leader.start()
        assert running.wait(30)
        good = threading.Thread(target=session.user, args=("kept",))
        good.start()
        _until(lambda: len(backend._group._queue) == 1)
        refused: list[bool] = []
        bad = threading.Thread(
            target=lambda: refused.append(not _typed(lambda: broken.get_session(session.id).user("refused")))
        )
        bad.start()
        _until(lambda: len(backend._group._queue) == 2)
        go.set()
        for thread in (leader, good, bad):
            thread.join()
        assert refused == [True]
        store.close()
        with takeback.open(path) as store:
            assert not store.verify()
            return [message.text for message in store.list_sessions()[0].iter_messages()]

    assert in_child(work, tmp_path / "a.db") == ["kept"]


def _refuse_the_head(sql: str) -> None:
    if sql.startswith("UPDATE session SET ") and " updated = ?" in sql:
        raise takeback.BackendError("refused (injected)")


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)
