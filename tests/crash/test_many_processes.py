"""R6, R7: many processes on one session, and many that make the same store at once."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import takeback
from takeback.storage import files

from . import _harness
from ._harness import Acks, Barrier, Child, compose, in_child, say, told

pytestmark = pytest.mark.slow


def _make(path: Path) -> str:
    with takeback.open(path) as store:
        return store.create_session("shared").id


def _append_as(store: takeback.Store, session_id: str, writer: str, calls: int, seed: int, acks: Acks) -> None:
    rng, acknowledge = random.Random(f"{seed} {writer}"), acks.writer()
    session = store.get_session(session_id)
    for call in range(1, calls + 1):
        sizes = [rng.randrange(400) for _ in range(rng.choice((1, 1, 1, 2, 4)))]
        say(session, compose(writer, call, sizes))
        acknowledge(writer, call)
        if rng.random() < 0.02:
            session.messages(limit=20)


def _append_from_one_process(
    path: Path, session_id: str, name: str, threads: int, calls: int, seed: int, acks: Acks, barrier: Barrier
) -> None:
    barrier.wait()
    failures: list[BaseException] = []

    def work(store: takeback.Store, writer: str, share: int) -> None:
        try:
            _append_as(store, session_id, writer, share, seed, acks)
        except BaseException as error:
            failures.append(error)

    with takeback.open(path) as store:
        shares = [calls // threads + (number < calls % threads) for number in range(threads)]
        workers = [threading.Thread(target=work, args=(store, f"{name}t{n}", share)) for n, share in enumerate(shares)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    if failures:
        raise failures[0]


def _check(path: Path, session_id: str, acks: Acks) -> tuple[dict[str, int], int]:
    with takeback.open(path) as store:
        session = store.get_session(session_id)
        stored = _harness.check_history(session.iter_messages(), acks.read())
        report = store.verify()
        assert not report, str(report)
        return stored, session.revision


@pytest.mark.promise("R6")
def test_many_processes_and_threads_append_to_one_session(
    tmp_path: Path, seed: int, counts: Callable[[int, int], int], tally: Callable[..., int]
) -> None:
    """Nothing is lost, doubled or out of order, seq has no gaps, and no lock error reaches a caller."""
    path, acks, barrier = tmp_path / "store" / "a.db", Acks(tmp_path / "acks"), Barrier()
    session_id, processes, calls = in_child(_make, path), counts(4, 16), counts(150, 2000)
    children = [
        Child(_append_from_one_process, path, session_id, f"p{n}", (1, 3)[n % 2], calls, seed, acks, barrier)
        for n in range(processes)
    ]
    barrier.open()
    with told(seed=seed):
        for child in children:
            child.result(timeout=250 if calls == 150 else 3600)
        stored, revision = in_child(_check, path, session_id, acks, timeout=600)
        assert stored == acks.read()
        assert sum(stored.values()) == revision == processes * calls
        assert _harness.files_beside(path) == _harness.AFTER_A_CLEAN_CLOSE
    tally("R6 calls", processes * calls)


def _open_new_store(path: Path, name: str, barrier: Barrier) -> str:
    barrier.wait()
    with takeback.open(path) as store:
        session = store.create_session(name)
        session.user(f"hello from {name}")
        return session.id


def _look(path: Path) -> list[tuple[str | None, list[str]]]:
    with takeback.open(path) as store:
        report = store.verify()
        assert not report, str(report)
        found = [(session.name, [message.text for message in session.messages()]) for session in store.list_sessions()]
        return sorted(found)


@pytest.mark.promise("R7")
def test_many_processes_open_a_new_store_at_once(
    tmp_path: Path, seed: int, counts: Callable[[int, int], int], tally: Callable[..., int]
) -> None:
    rounds = counts(40, 500)
    for round_ in range(rounds):
        path, barrier = tmp_path / f"{round_}" / "a.db", Barrier()
        with told(seed=seed, round=round_):
            children = [Child(_open_new_store, path, f"p{number}", barrier) for number in range(8)]
            barrier.open()
            ids = {child.result() for child in children}
            assert len(ids) == 8
            expected = [[f"p{number}", [f"hello from p{number}"]] for number in range(8)]
            assert in_child(_look, path) == expected
            assert _harness.files_beside(path) == _harness.AFTER_A_CLEAN_CLOSE
    tally("R7 rounds", rounds)


@pytest.mark.promise("R7")
def test_many_processes_make_the_directories_of_a_store_at_once(tmp_path: Path) -> None:
    """The one that comes second finds a directory where there was none a moment ago."""

    def work(place: Path, barrier: Barrier) -> None:
        barrier.wait()
        for number in range(400):
            files.prepare_directory(f"{place}/{number}/deep/a.db")

    for round_ in range(4):
        barrier = Barrier()
        children = [Child(work, tmp_path / f"{round_}", barrier) for _ in range(8)]
        barrier.open()
        for child in children:
            child.result()
