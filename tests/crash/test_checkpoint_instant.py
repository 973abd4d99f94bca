"""R13: a checkpoint of an agent is one instant, while three writers append to its sessions.

Each message says how many messages of each writer had been acknowledged when it was written. A checkpoint that holds
it must hold those, too; of each writer it holds a beginning of what was written; and it holds everything that was
acknowledged before it was asked for.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import _postgres
import takeback
from takeback.ops import agent_checkpoints, agents
from takeback.testing.contract.base import eventually

pytestmark = [pytest.mark.slow, pytest.mark.promise("R13"), pytest.mark.feature("E4", "E5")]

_WRITERS, _SESSIONS = 3, 5


class _Writers:
    """Threads that append to the sessions of one agent, each through a store of its own."""

    def __init__(self, url: str, seed: int) -> None:
        self.acknowledged = [0] * _WRITERS
        self.failures = list[BaseException]()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(url, number, seed)) for number in range(_WRITERS)]

    def __enter__(self) -> _Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, url: str, number: int, seed: int) -> None:
        rng = random.Random(f"writer {seed} {number}")
        try:
            with takeback.open(url) as store:
                sessions = [store.get_session(f"s{each}") for each in range(_SESSIONS)]
                while not self._stop.wait(0.001):  # however fast the disk is, there is not too much to look through
                    known = list(self.acknowledged)
                    said = f"{number} {known[number] + 1} {' '.join(map(str, known))}"
                    sessions[0 if rng.random() < 0.5 else rng.randrange(_SESSIONS)].user(said)
                    self.acknowledged[number] += 1
        except BaseException as error:
            self.failures.append(error)


def _held(store: takeback.Store, made: list[str]) -> list[dict[str, int]]:
    """Return how many entries of each session each checkpoint holds."""
    rows = store._read(lambda tx: agent_checkpoints.of_agent(tx, agents.get(tx, "", "a")))
    assert [row.id for row in rows] == made
    # Each in a read of its own: no single one may take longer than the store waits for an answer.
    each = (store._read(agent_checkpoints.all_in_force, row) for row in rows)
    names = {session._seen.sid: session.name or "" for session in store.iter_sessions(agent="a")}
    return [{names[sid]: pin.seq for sid, pin in pins.items()} for pins in each]


def _require_instant(logs: dict[str, list[list[int]]], held: dict[str, int], before: list[int], where: str) -> None:
    """Check that what a checkpoint holds is what was there at one moment."""
    there = [message for name, seq in held.items() for message in logs[name][:seq]]
    counts = [sum(message[0] == writer for message in there) for writer in range(_WRITERS)]
    for writer in range(_WRITERS):
        numbers = sorted(message[1] for message in there if message[0] == writer)
        assert numbers == list(range(1, counts[writer] + 1)), f"{where}: not a beginning of what was written"
        assert counts[writer] >= before[writer], f"{where}: something acknowledged is missing"
    for message in there:
        assert all(known <= count for known, count in zip(message[2:], counts, strict=True)), f"{where}: {message}"


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_a_checkpoint_is_one_instant_while_others_write(
    tmp_path: Path, engine: str, seed: int, counts: Callable[[int, int], int], tally: Callable[..., int]
) -> None:
    number = counts(200, 5000)
    url = str(tmp_path / "a.db") if engine == "sqlite" else _postgres.app_url(tmp_path)
    with takeback.open(url) as store:
        for each in range(_SESSIONS):
            store.create_session(f"s{each}", agent="a")
        made, before = list[str](), list[list[int]]()
        with _Writers(url, seed) as writers:
            for each in range(number):
                assert eventually(lambda each=each: sum(writers.acknowledged) >= each / 4 or writers.failures)
                before.append(list(writers.acknowledged))
                made.append(store.checkpoint_agent("a").id)
        assert not writers.failures
        logs = {
            session.name or "": [list(map(int, message.text.split())) for message in session.iter_messages()]
            for session in store.iter_sessions(agent="a")
        }
        for at, held in enumerate(_held(store, made)):
            _require_instant(logs, held, before[at], f"seed {seed}, checkpoint {at}")
        rng, last = random.Random(f"restore {seed}"), _held(store, made)
        for at in rng.sample(range(number), 10):
            store.restore_checkpoint(made[at])
            for name, seq in last[at].items():
                said = [list(map(int, each.text.split())) for each in store.get_session(name).iter_messages()]
                assert said == logs[name][:seq], f"seed {seed}, checkpoint {at}"
        assert not (report := store.verify()), str(report)
    tally("R13 checkpoints", number)
