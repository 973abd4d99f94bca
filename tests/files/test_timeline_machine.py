"""R14: nobody's change is stated to be somebody else's, whatever sessions, people and processes do in one directory."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from _callers import Elsewhere
from _hands import RULES
from _people import GUARD, PERSON, World
from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from test_apply_faults import remove

pytestmark = [
    pytest.mark.slow,
    pytest.mark.feature("F1", "F14", "A4"),
    pytest.mark.promise("R14"),
    pytest.mark.trial("T34", "T35", "T36", "T37"),
]

_STEPS = 50  # of one world
_MOST_OPEN, _MOST_ELSEWHERE = 3, 2
RULES_IN_THE_MIDDLE = (RULES, RULES + b"[z-a]*\n", RULES + b"deep\n", b"[\n\\\n" + RULES)
SESSIONS = ("one", "two", "helper")
SETTINGS = settings(
    stateful_step_count=_STEPS,
    deadline=None,
    database=None,
    phases=(Phase.generate,),  # what failed is told step by step; a shorter one would meet other times
    suppress_health_check=[*HealthCheck],
)
numbers = st.integers(0, 1 << 30)
totals = Counter[str]()
above: list[Path] = []


class TimelineMachine(RuleBasedStateMachine):
    """Two sessions, one with a sub-agent, a guard and a person in one directory."""

    def __init__(self) -> None:
        super().__init__()
        self._place = Path(tempfile.mkdtemp(dir=above[-1]))
        self.world = World(self._place)
        self._elsewhere = 0

    def teardown(self) -> None:
        try:
            report = self.world.store.verify()
            assert not report, str(report)
        finally:
            self.world.close()
            totals.update(self.world.counts)
            remove(self._place)
            shutil.rmtree(self._place, ignore_errors=True)

    @invariant()
    def a_step(self) -> None:
        totals["steps"] += 1

    def _ours(self) -> list[Any]:
        return [each for each in self.world.open if not isinstance(each, Elsewhere)]

    def _theirs(self) -> list[Elsewhere]:
        return [each for each in self.world.open if isinstance(each, Elsewhere)]

    # ------------------------------------------------------------------ work

    @rule(number=numbers)
    def person(self, number: int) -> None:
        self.world.act(PERSON, "", random.Random(number))

    @precondition(lambda self: len(self.world.open) < _MOST_OPEN)
    @rule(name=st.sampled_from(SESSIONS), number=numbers, named=st.booleans(), paths=st.booleans())
    def begin(self, name: str, number: int, named: bool, paths: bool) -> None:
        self.world.begin(name, random.Random(number), named=named, paths=paths)

    @precondition(lambda self: self.world.open)
    @rule(number=numbers)
    def work(self, number: int) -> None:
        rng = random.Random(number)
        self.world.work(rng.choice(self.world.open), rng)

    @rule(name=st.sampled_from(SESSIONS), number=numbers, named=st.booleans(), paths=st.booleans())
    def call(self, name: str, number: int, named: bool, paths: bool) -> None:
        """Run a tool from its start to its end, whatever else is open."""
        rng = random.Random(number)
        call = self.world.begin(name, rng, named=named, paths=paths)
        self.world.work(call, rng)
        self.world.end(call)

    @rule(name=st.sampled_from(SESSIONS), number=numbers)
    def call_more(self, name: str, number: int) -> None:
        self.call(name, number, number % 3 == 0, number % 2 == 0)

    @precondition(lambda self: self._ours())
    @rule(number=numbers, how=st.sampled_from(("ended", "failed", "interrupted", "unseen")))
    def end(self, number: int, how: str) -> None:
        self.world.end(random.Random(number).choice(self._ours()), how)

    # ------------------------------------------------------------------ other processes

    @precondition(lambda self: len(self.world.open) < _MOST_OPEN and self._elsewhere < _MOST_ELSEWHERE)
    @rule(name=st.sampled_from(("two", "helper")))
    def begin_elsewhere(self, name: str) -> None:
        self._elsewhere += 1
        self.world.begin_elsewhere(name)

    @precondition(lambda self: self._theirs())
    @rule(number=numbers)
    def kill(self, number: int) -> None:
        self.world.kill(random.Random(number).choice(self._theirs()))

    @precondition(lambda self: self._theirs())
    @rule(number=numbers)
    def end_elsewhere(self, number: int) -> None:
        self.world.end(random.Random(number).choice(self._theirs()))

    # ------------------------------------------------------------------ points

    @rule(name=st.sampled_from(SESSIONS))
    def turn(self, name: str) -> None:
        self.world.user(name)

    @rule(name=st.sampled_from((*SESSIONS, GUARD)))
    def checkpoint(self, name: str) -> None:
        self.world.checkpoint(name)

    @rule(name=st.sampled_from(SESSIONS))
    def lease(self, name: str) -> None:
        self.world.lease(name)

    @precondition(lambda self: not self._ours())
    @rule()
    def restart(self) -> None:
        self.world.log.append("  restart")
        self.world.stop()
        self.world.start()
        self.world.check()

    @rule(rules=st.sampled_from(RULES_IN_THE_MIDDLE))
    def write_rules(self, rules: bytes) -> None:
        self.world.write_rules(PERSON, "", rules)

    # ------------------------------------------------------------------ moves

    @precondition(lambda self: self.world.spots and not self.world.open)
    @rule(number=numbers, how=st.sampled_from(({}, {}, {"sessions": "all"}, {"overwrite": "all"})), again=st.booleans())
    def rewind(self, number: int, how: dict[str, Any], again: bool) -> None:
        self.world.rewind(random.Random(number).choice(self.world.spots), again=again, **how)

    @precondition(lambda self: self.world.spots and not self.world.open)
    @rule(number=numbers)
    def rewind_all(self, number: int) -> None:
        self.world.rewind_all(random.Random(number).choice(self.world.spots))


def test_no_author_is_wrong_and_no_edit_is_lost(
    tmp_path: Path, seed: int, counts: Callable[[int, int], int], tally: Callable[..., int]
) -> None:
    wanted, run = counts(500, 20_000), 0
    totals.clear()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as place:
        above.append(Path(place))
        while totals["steps"] < wanted:  # a world may end early
            machine = type("Machine", (TimelineMachine,), {})
            missing = wanted - totals["steps"]
            how = settings(SETTINGS, max_examples=-(-missing // _STEPS))
            run_state_machine_as_test(seeded(f"{seed} {run}")(machine), settings=how)
            run += 1
        above.pop()
    for what, number in totals.items():
        tally(f"R14 timeline {what}", number)
