"""R14: scenarios of real work over real trees, from one seed: no wrong author, no lost edit, little that is unclear.

Unlike in the machine, tools say what they change, as real ones mostly do: editors name a file, commands their paths.
One call in twelve that overlaps with another session's is a command that names nothing, such as ``make``.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from _people import GUARD, PERSON, World
from test_rewind_machine import places

pytestmark = [
    pytest.mark.feature("F1", "F14", "A4", "B3"),
    pytest.mark.promise("R14"),
    pytest.mark.trial("T34", "T35", "T36", "T37"),
]
__all__ = ["places"]
SESSIONS = ("one", "two", "helper")
_NAMED = 11 / 12
ENDS = ("ended",) * 6 + ("failed", "interrupted", "unseen")


class Scenario:
    """Some turns of two sessions and a person in one directory, or one inside the other."""

    def __init__(self, place: Path, number: int, seed: int) -> None:
        self.rng = random.Random(f"{seed} {number}")
        self.world = World(place)
        self.overlaps = number % 2 == 1
        self.processes = number % 12 == 11
        if number % 3 == 0:
            self.world.lease(self.rng.choice(SESSIONS))

    def run(self) -> None:
        world, rng = self.world, self.rng
        for _ in range(rng.randrange(2, 5)):
            self._turn(rng.choice(SESSIONS))
            if rng.random() < 0.3:
                world.act(PERSON, "", rng)
            if rng.random() < 0.2:
                world.checkpoint(GUARD)
        if self.processes:
            self._elsewhere(rng.choice(SESSIONS))
        world.rewind(rng.choice(world.spots), again=True, **rng.choice(({}, {}, {"sessions": "all"})))
        world.rewind_all(rng.choice(world.spots))

    def _turn(self, name: str) -> None:
        world, rng = self.world, self.rng
        world.user(name)
        world.checkpoint(name)
        for _ in range(rng.randrange(1, 4)):
            other = None
            if self.overlaps:
                other = world.begin(_other(name), rng, named=rng.random() < _NAMED)
            call = world.begin(name, rng, named=not self.overlaps or rng.random() < _NAMED, paths=rng.random() < 0.2)
            world.work(call, rng)
            if other is not None:
                world.work(other, rng)
                world.end(other)
            world.end(call, rng.choice(ENDS))

    def _elsewhere(self, name: str) -> None:
        """Let another process work, and end or die; the person edits after that."""
        world, rng = self.world, self.rng
        if name in world.leased:
            return
        there = world.begin_elsewhere(name)
        world.work(there, rng)
        if rng.random() < 0.5:
            world.end(there)
        else:
            world.kill(there)
        world.act(PERSON, "", rng)
        world.user(name)


def _other(name: str) -> str:
    return "one" if name == "two" else "two"


def test_scenarios_without_a_wrong_author(
    places: Callable[[], Path],
    seed: int,
    counts: Callable[[int, int], int],
    tally: Callable[..., int],
) -> None:
    number, totals = counts(20, 300), Counter[str]()
    for each in range(number):
        one = Scenario(places(), each, seed)
        try:
            one.run()
            report = one.world.store.verify()
            assert not report, str(report)
        except BaseException as error:
            error.add_note("\n".join([f"scenario {each}", *one.world.log[-60:]]))
            raise
        finally:
            one.world.close()
        totals.update(one.world.counts)
    for what, count in totals.items():
        tally(f"R14 scenarios {what}", count)
    tally("R14 scenarios", number)
    assert totals["alone unclear"] <= 0.05 * totals["alone changes"], totals
    assert totals["overlapping unclear"] <= 0.20 * totals["overlapping changes"], totals
