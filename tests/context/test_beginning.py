"""What is right at the beginning is neither read nor repaired: with and without that short cut the same comes out."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import pytest

import takeback
from takeback import Invalid, Session
from takeback.context.beginning import Beginning, find_beginning
from takeback.context.build import build
from takeback.context.value import Context

from ._calm import Calm
from ._checks import ALL, dumped
from ._transcripts import MODELS, play
from .test_transcripts import Cut, cut, read

pytestmark = pytest.mark.feature("F3")
_BUILDING = sys.modules[build.__module__]
ROOMS = (150, 400, 1200, 4000, 20_000)


class _Watch:
    """Watches how far the short cut leads, or lets it lead nowhere."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.leads, self.steps, self.sources, self.given_up = True, 0, 0, 0
        monkeypatch.setattr(_BUILDING, "find_beginning", self.find)
        monkeypatch.setattr(_BUILDING, "Beginning", self.give_up)

    def find(self, sources: Any, *others: Any, amid: bool) -> Beginning:
        if not self.leads:
            return Beginning()
        found = find_beginning(sources, *others, amid=amid)
        self.steps, self.sources = found.count, len(sources)
        return found

    def give_up(self) -> Beginning:
        self.given_up += 1
        return Beginning()


def _same_without(watch: _Watch, part: Cut, provider: str, model: str | None, room: int | None) -> int:
    """Check one context; give how many messages the short cut took."""
    watch.leads, watch.steps = True, 0
    quick = _asked(part, provider, model, room)
    watch.leads, steps = False, watch.steps
    assert quick == _asked(part, provider, model, room), f"{provider}, {model}, {room}"
    return steps


def _asked(part: Cut, provider: str, model: str | None, room: int | None) -> tuple[object, ...]:
    try:
        found: Context = build(
            provider, part.sources, model=model, prompt="Fix it.", compaction=part.compaction, max_tokens=room
        )
    except Invalid as error:
        return (str(error),)
    return dumped(found.messages), found.system, found.repairs, found.omitted, found.tokens


def test_the_short_cut_changes_nothing(
    seed: int, counts: Callable[[int, int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, asked = _Watch(monkeypatch), 0
    with takeback.open(":memory:") as store:
        for number in range(counts(30, 2000)):
            rng = random.Random(f"{seed}/{number}/beginning")
            for session in play(store.create_session(f"{number}"), rng):
                entries, sources = read(session)
                for seq in range(len(entries) + 1):
                    part = cut(entries, sources, seq)
                    for provider in ALL:
                        model = rng.choice((None, *MODELS[provider]))
                        _same_without(watch, part, provider, model, None)
                        _same_without(watch, part, provider, model, rng.choice(ROOMS))
                        asked += 1
    assert asked > 500


@pytest.mark.parametrize("ours", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("provider", ALL)
def test_calm_conversations_take_it_and_nothing_changes(
    provider: str, ours: float, seed: int, counts: Callable[[int, int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, taken, known = _Watch(monkeypatch), 0, 0
    with takeback.open(":memory:") as store:
        for number in range(counts(15, 1000)):
            rng = random.Random(f"{seed}/{number}/{provider}/{ours}/calm")
            teller = Calm(rng, provider, ours, rng.choice([0.0, 0.002, 0.01, 0.03]))
            session = store.create_session(f"{provider} {ours} {number}")
            session.append(*(each for _ in range(rng.randrange(2, 25)) for each in teller.turn()))
            part = Cut([*session.iter_messages()], None)
            for model in (None, *MODELS[provider]):
                taken += _same_without(watch, part, provider, model, None)
                known += len(part.sources)
                for room in ROOMS:
                    _same_without(watch, part, provider, model, room)
    assert taken > known * 0.2, f"{taken} of {known} messages"


@pytest.mark.parametrize("ours", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("provider", ALL)
def test_a_plain_conversation_takes_it_to_the_last_turn(
    session: Session, provider: str, ours: float, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be of no use."""
    teller, watch = Calm(random.Random(f"{seed}/{provider}/{ours}/plain"), provider, ours, 0.0), _Watch(monkeypatch)
    for _ in range(30):
        session.append(*teller.turn())
    found = session.context(provider)
    assert watch.steps > 0.9 * watch.sources, f"{watch.steps} of {watch.sources}"
    assert found.repairs == ()
    assert session.context(provider, max_tokens=800).omitted
    assert watch.steps > 0.9 * watch.sources
    assert not watch.given_up


@pytest.mark.parametrize("ours", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("provider", ALL)
def test_one_long_turn_takes_it_nearly_to_its_end(
    session: Session, provider: str, ours: float, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that works on one request for hours is what most of them do."""
    teller, watch = Calm(random.Random(f"{seed}/{provider}/{ours}/long"), provider, ours, 0.0), _Watch(monkeypatch)
    session.user("Do it all.")
    session.append(*(each for _ in range(40) for each in teller.step()))
    part = Cut([*session.iter_messages()], None)
    for model in (None, *MODELS[provider]):
        _same_without(watch, part, provider, model, None)
        _same_without(watch, part, provider, model, 800)
    watch.leads = True
    build(provider, part.sources)
    assert watch.steps > 0.9 * watch.sources, f"{watch.steps} of {watch.sources}"


@pytest.mark.parametrize("ours", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("provider", ALL)
def test_long_turns_with_slips_are_the_same_with_and_without_it(
    provider: str, ours: float, seed: int, counts: Callable[[int, int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = _Watch(monkeypatch)
    with takeback.open(":memory:") as store:
        for number in range(counts(10, 1000)):
            rng = random.Random(f"{seed}/{number}/{provider}/{ours}/long turns")
            teller = Calm(rng, provider, ours, rng.choice([0.002, 0.01, 0.03]))
            session = store.create_session(f"{number}")
            for _ in range(rng.randrange(1, 3)):
                session.append(teller.request(), *(each for _ in range(rng.randrange(15)) for each in teller.step()))
            sources = [*session.iter_messages()]
            for model in (None, *MODELS[provider]):
                for end in {len(sources), rng.randrange(len(sources) + 1), rng.randrange(len(sources) + 1)}:
                    _same_without(watch, Cut(sources[:end], None), provider, model, None)
                    _same_without(watch, Cut(sources[:end], None), provider, model, rng.choice(ROOMS))
