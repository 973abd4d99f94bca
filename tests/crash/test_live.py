"""R26: agents that are killed at any moment lose no message, double none, and never write over each other."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import _postgres

from . import _agents
from ._agents import ROLES, Notes
from ._harness import Child, in_child, told

pytestmark = [
    pytest.mark.slow,
    pytest.mark.promise("R26"),
    pytest.mark.feature("D2", "D4", "D7", "F4", "F6"),
]


_KILLS_PER_STORE = 50


class Town:
    """Three agents, each a process, that are killed and started again."""

    def __init__(self, url: str, place: Path) -> None:
        self.url, self.notes, self.stop = url, Notes(place / "notes"), place / "stop"
        self.ids: dict[str, str] = in_child(_agents.make, url)
        self.runs, self.started = 0, dict[str, int]()
        self.agents = {role: self.start(role) for role in ROLES}
        self.kills, self.interrupted, self.taken_over = 0, 0, 0

    def start(self, role: str, *, take_over: bool = False) -> Child:
        """Start a process for a role."""
        self.runs += 1
        self.started[role] = self.runs
        return Child(_agents.run, self.url, self.ids, role, self.runs, self.notes, self.stop, take_over)

    def wait_for_more(self) -> None:
        """Wait until something was acknowledged."""
        size, deadline = self.notes.size(), time.monotonic() + 120
        while self.notes.size() == size:
            assert time.monotonic() < deadline, "nobody gets anything done"
            self.all_alive()
            time.sleep(0.002)

    def all_alive(self) -> None:
        """Show why a process ended that should not have."""
        for role, agent in self.agents.items():
            assert agent.alive(), f"{role} ended by itself: {agent.result()}"

    def kill(self, role: str) -> None:
        """Kill a process, look at what it left, and start another one."""
        self.agents[role].kill()
        self.kills += 1
        seen = in_child(_agents.shown, self.url, self.ids, role)
        if seen["status"] == "interrupted":
            self.interrupted += 1
            assert (seen["listed"], seen["tree"]) == (["interrupted"], "interrupted"), seen
            assert "running" not in seen["pending"], seen
        else:  # it had not taken the lease yet, or the helper was between two runs
            assert role == "helper" or self.entered[role] != self.started[role], seen
        assert "streaming" not in seen["streaming"], seen
        self.agents[role] = self.start(role)

    @property
    def entered(self) -> dict[str, int]:
        """The last run of each role that entered its session."""
        found = dict.fromkeys(ROLES, 0)
        for role, number, *_ in self.notes.read("entered"):
            found[role] = number
        return found

    def take_over(self, role: str) -> None:
        """Let another process take a session from one that lives: that one is told at its next write."""
        old, self.agents[role] = self.agents[role], self.start(role, take_over=True)
        assert old.result(timeout=30) == "lost"
        self.taken_over += 1

    def end(self) -> dict[str, int]:
        """Let everybody leave in order, take in the rest, and check all of it."""
        self.stop.touch()
        for agent in self.agents.values():
            assert agent.result(timeout=30) == "stopped"
        in_child(_agents.drain, self.url, self.ids, self.notes)
        found: dict[str, int] = in_child(_agents.check, self.url, self.ids, self.notes)
        return found


def _kill_again_and_again(town: Town, seed: str, kills: int) -> dict[str, int]:
    rng = random.Random(f"live {seed}")
    for round_ in range(1, kills + 1):
        with told(seed=seed, round=round_):
            if rng.random() < 0.85:
                town.wait_for_more()
                time.sleep(rng.uniform(0, 0.12))
            town.kill(rng.choice(ROLES))
            if round_ % 10 == 0:
                town.wait_for_more()
                time.sleep(0.1)
                _take_one_over(town, rng)
    time.sleep(0.2)
    with told(seed=seed):
        found = town.end()
    _check_entries(town)
    return found


def _take_one_over(town: Town, rng: random.Random) -> None:
    """Take over an agent that certainly has its session."""
    role = rng.choice(ROLES[:2])
    deadline = time.monotonic() + 120
    while town.started[role] != town.entered[role]:
        assert time.monotonic() < deadline, "it never got its session"
        time.sleep(0.01)
    town.take_over(role)


def _check_entries(town: Town) -> None:
    """Tokens grow with every holder, and whoever came behind one that was cut off is told so."""
    for role in ROLES:
        entered = [each[1:] for each in town.notes.read("entered") if each[0] == role]
        tokens = [token for _, token, *_ in entered]
        assert tokens == sorted(set(tokens)), (role, tokens)
        before = None
        for number, _, resumed, stopped_at, status in entered:
            assert status == "active"
            assert resumed or before is None
            cut_off = before is not None and before != number and number != 10**6 and role != "helper"
            assert not cut_off or stopped_at is not None, f"{role} does not know that run {before} was cut off"
            before = number


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_agents_that_are_killed_at_any_moment_lose_and_double_nothing(
    tmp_path: Path, seed: int, counts: Callable[[int, int], int], tally: Callable[..., int], backend: str
) -> None:
    kills = counts(50, 1000) if backend == "sqlite" else counts(10, 200)
    for first in range(0, kills, _KILLS_PER_STORE):
        place = tmp_path / f"from {first}"
        place.mkdir()
        town = Town(_postgres.url(place) if backend == "postgres" else os.fspath(place / "store" / "a.db"), place)
        found = _kill_again_and_again(town, f"{seed} {first}", min(_KILLS_PER_STORE, kills - first))
        _tell(tally, town, found)


def _tell(tally: Callable[..., int], town: Town, found: dict[str, int]) -> None:
    tally("R26 kills of agents", town.kills)
    tally("R26 agents shown as interrupted", town.interrupted)
    tally("R26 take-overs", town.taken_over)
    for what in ("sent", "received", "finished", "cut off", "flushed", "effect", "tried again", "spawned"):
        tally(f"R26 {what}", found.get(what, 0))
    assert town.interrupted >= town.kills // 3, "most kills must hit an agent at work"
    assert found["sent"] > town.kills
    if town.kills >= 50:
        assert min(found["finished"], found["cut off"], found["tried again"]) > 0, found
