"""R1, R3: what was acknowledged survives kill -9; what was not is absent, or there once and whole."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback.testing.faults import FaultyVFS

from . import _harness
from ._harness import Acks, Child, compose, in_child, open_through, say, some_sizes, told

pytestmark = [pytest.mark.slow, pytest.mark.promise("R1", "R3")]


_KILLS_PER_STORE = 250


def _make(path: Path) -> str:
    with takeback.open(path) as store:
        return store.create_session("victim").id


def _write_until_killed(path: Path, session_id: str, writer: str, acks: Acks, seed: str) -> None:
    """Append for ever and acknowledge each call; now and then close the store and open it again."""
    rng, acknowledge, call = random.Random(seed), acks.writer(), 0
    while True:
        with takeback.open(path) as store:
            session = store.get_session(session_id)
            for _ in range(rng.randrange(1, 120)):
                call += 1
                say(session, compose(writer, call, some_sizes(rng)))
                acknowledge(writer, call)


def _check(path: Path, session_id: str, acks: Acks, after: int, calls: dict[str, int]) -> tuple[int, dict[str, int]]:
    """Open the store after a kill and check what came behind seq ``after``; give where the next check begins."""
    with takeback.open(path) as store:
        session = store.get_session(session_id)
        calls = _harness.check_history(session.iter_messages(after=after), acks.read(), after=after, calls=calls)
        return session.refresh().message_count, calls


def _verify(path: Path) -> str:
    with takeback.open(path) as store:
        report = store.verify()
        return str(report) if report else ""


def _kill_at_a_random_moment(writers: list[Child], acks: Acks, rng: random.Random) -> None:
    """Kill during opening in a quarter of the rounds, else some time after the first acknowledgement."""
    if rng.random() < 0.25:
        time.sleep(rng.uniform(0, 0.025))
    else:
        size, deadline = acks.size(), time.monotonic() + 120
        while acks.size() == size and time.monotonic() < deadline:
            time.sleep(0.001)
        assert acks.size() > size, "the writers acknowledged nothing"
        time.sleep(rng.uniform(0, 0.06))
    for writer in writers:
        assert writer.alive(), f"the writer ended by itself: {writer.result()}"
        writer.kill()
        time.sleep(rng.choice((0, 0, 0.01)))


def _kill_again_and_again(place: Path, seed: int, rounds: range) -> int:
    """Kill writers of one store in every round and check it each time; give the count of acknowledged calls."""
    rng, acks = random.Random(f"kill {seed} {rounds}"), Acks(place / "acks")
    path, seen, calls = place / "store" / "a.db", 0, dict[str, int]()
    session_id = in_child(_make, path)
    for round_ in rounds:
        with told(seed=seed, round=round_):
            names = [f"r{round_}w{number}" for number in range(rng.choice((1, 1, 2)))]
            args = [(path, session_id, name, acks, f"{seed} {name}") for name in names]
            _kill_at_a_random_moment([Child(_write_until_killed, *each) for each in args], acks, rng)
            seen, calls = in_child(_check, path, session_id, acks, seen, calls)
            if round_ % 10 == 0:
                assert in_child(_check, path, session_id, acks, 0, {}) == [seen, calls], "another history than before"
                assert in_child(_verify, path) == ""
    assert _harness.files_beside(path) == _harness.AFTER_A_CLEAN_CLOSE
    return sum(acks.read().values())


def test_an_acknowledged_append_survives_kill_9(
    tmp_path: Path, seed: int, counts: Callable[[int, int], int], tally: Callable[..., int]
) -> None:
    kills = counts(50, 2000)
    for first in range(1, kills + 1, _KILLS_PER_STORE):
        place = tmp_path / f"from {first}"
        place.mkdir()
        rounds = range(first, min(first + _KILLS_PER_STORE, kills + 1))
        tally("R1 acknowledged calls", _kill_again_and_again(place, seed, rounds))
        shutil.rmtree(place)
    tally("R1 kills", kills)


_MOMENTS: dict[str, list[int]] = {"one message": [300], "a batch": [700] * 20, "a spilled message": [150_000]}


def _append_and_die(path: Path, session_id: str, writer: str, acks: Acks, sizes: list[int], number: int) -> int:
    """Die at the n-th call to the file system during an append and the close after it, if there are so many."""
    vfs, acknowledge = FaultyVFS(), acks.writer()
    with open_through(vfs, path) as store:
        session = store.get_session(session_id)
        say(session, compose(writer, 1, [10]))
        acknowledge(writer, 1)
        vfs.arm(number, "kill")
        say(session, compose(writer, 2, sizes))
        acknowledge(writer, 2)
    return vfs.calls


@pytest.mark.parametrize("what", _MOMENTS)
def test_a_kill_at_any_write_sync_or_delete_of_an_append_loses_nothing(
    tmp_path: Path, seed: int, tally: Callable[..., int], what: str, counts: Callable[[int, int], int]
) -> None:
    path, acks = tmp_path / "store" / "a.db", Acks(tmp_path / "acks")
    session_id = in_child(_make, path)
    seen: int = 0
    calls: dict[str, int] = {}
    for number in range(1, 1000, counts(2, 1)):
        with told(seed=seed, call=number):
            child = Child(_append_and_die, path, session_id, f"w{number}", acks, _MOMENTS[what], number)
            survived = _answer(child)
            seen, calls = in_child(_check, path, session_id, acks, seen, calls)
            assert in_child(_verify, path) == ""
        tally("R1 kills", 1)
        if survived is not None:
            assert number > 10, "the fault never came"
            assert _harness.files_beside(path) == _harness.AFTER_A_CLEAN_CLOSE
            return
    pytest.fail("an append that never ends")


def _answer(child: Child) -> Any:
    """Return the answer of a child that may have been killed: None then."""
    try:
        return child.result()
    except _harness.ChildDied:
        return None


def test_an_error_in_a_batch_leaves_nothing_of_it(tmp_path: Path) -> None:
    """A call whose last message cannot be stored stores none of them."""

    def work(path: Path) -> list[str]:
        with takeback.open(path) as store:
            session = store.create_session()
            session.user("kept")
            with pytest.raises(takeback.Invalid):
                session.append({"role": "user", "content": "a"}, {"role": "user", "content": object()})
            return [message.text for message in session.messages()]

    assert in_child(work, tmp_path / "a.db") == ["kept"]


def test_a_child_of_a_fork_cannot_use_or_harm_an_open_store(tmp_path: Path) -> None:
    """A handle made before a fork is closed in the child; the parent goes on."""

    def work(path: Path) -> list[str]:
        with takeback.open(path) as store:
            session = store.create_session()
            session.user("before")
            pid = os.fork()
            if pid == 0:
                try:
                    session.user("from the child")
                except takeback.Closed:
                    os._exit(7)
                os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
            session.user("after")
            return [message.text for message in session.messages()]

    assert in_child(work, tmp_path / "a.db") == ["before", "after"]
