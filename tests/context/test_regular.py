"""Regular steps are neither read nor repaired: whether they are taken over or repaired, the same comes out."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import pytest

import takeback
from takeback import Invalid, Session
from takeback.context.build import build
from takeback.context.regular import Judged, judged
from takeback.context.runs import Run
from takeback.context.value import Context

from ._calm import Calm
from ._checks import ALL, dumped
from ._transcripts import MODELS, play
from .test_transcripts import Cut, cut, read

pytestmark = [pytest.mark.feature("F3"), pytest.mark.trial("T69")]
_BUILDING = sys.modules[build.__module__]
ROOMS = (150, 400, 1200, 4000, 20_000)


class _Watch:
    """Watches how much is taken over, or leaves everything to repair."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.leads, self.taken, self.sources = True, 0, 0
        monkeypatch.setattr(_BUILDING, "judged", self.judge)

    def judge(self, sources: Any, *others: Any, most: float) -> Judged:
        found = judged(sources, *others, most=most)
        if not self.leads:
            found.odd |= set(range(len(found.begins)))
        left = sum(not isinstance(each, Run) for each in found.conversation())
        self.taken, self.sources = len(sources) - left, len(sources)
        return found


def _same_without(watch: _Watch, part: Cut, provider: str, model: str | None, room: int | None) -> int:
    """Check one context; return how many messages were taken over."""
    watch.leads = True
    quick = _asked(part, provider, model, room)
    watch.leads, taken = False, watch.taken
    assert quick == _asked(part, provider, model, room), f"{provider}, {model}, {room}"
    assert watch.taken == 0
    return taken


def _asked(part: Cut, provider: str, model: str | None, room: int | None) -> tuple[object, ...]:
    try:
        found: Context = build(
            provider, part.sources, model=model, prompt="Fix it.", compaction=part.compaction, max_tokens=room
        )
    except Invalid as error:
        return (str(error),)
    return dumped(found.messages), found.system, found.repairs, found.omitted, found.tokens


def test_taking_steps_over_changes_nothing(
    seed: int, counts: Callable[[int, int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, asked = _Watch(monkeypatch), 0
    with takeback.open(":memory:") as store:
        for number in range(counts(30, 2000)):
            rng = random.Random(f"{seed}/{number}/regular")
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
def test_calm_conversations_are_taken_over_and_nothing_changes(
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
def test_a_plain_conversation_is_taken_over_to_the_last_step(
    session: Session, provider: str, ours: float, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be of no use."""
    teller, watch = Calm(random.Random(f"{seed}/{provider}/{ours}/plain"), provider, ours, 0.0), _Watch(monkeypatch)
    for _ in range(30):
        session.append(*teller.turn())
    found = session.context(provider)
    assert watch.taken > 0.9 * watch.sources, f"{watch.taken} of {watch.sources}"
    assert found.repairs == ()
    assert build(provider, [*session.iter_messages()], max_tokens=800).omitted
    assert watch.taken > 0.9 * watch.sources


@pytest.mark.parametrize("ours", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("provider", ALL)
def test_one_long_turn_is_taken_over_to_the_last_step(
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
    assert watch.taken > 0.9 * watch.sources, f"{watch.taken} of {watch.sources}"


@pytest.mark.parametrize("ours", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("provider", ALL)
def test_long_turns_with_slips_are_the_same_either_way(
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


ODD: tuple[Callable[[Session], Any], ...] = (
    lambda session: session.append({"role": "assistant", "content": "I was", "status": "interrupted"}),
    lambda session: session.append({"role": "tool", "tool_call_id": "nobody", "content": "lost"}),
    lambda session: session.append({"role": "assistant", "content": "", "tool_calls": [CALL]}),
    lambda session: session.append({"role": "user", "content": "  "}, {"role": "user", "content": "again"}),
    lambda session: session.append({"role": "critic", "content": "Why?"}),
)
CALL = {"id": "open", "name": "bash", "arguments": {}}


@pytest.mark.promise("P15")
@pytest.mark.parametrize("provider", ALL)
def test_an_oddity_costs_its_neighbours_and_nothing_else(
    session: Session, provider: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However early it is, and whatever it is: an open call, a lost result, a partial answer."""
    rng = random.Random(f"{seed}/{provider}/oddities")
    teller, watch = Calm(rng, provider, 0.0, 0.0), _Watch(monkeypatch)
    session.append(*(each for _ in range(3) for each in teller.turn()))
    for odd in ODD:
        odd(session)
        session.append(*(each for _ in range(20) for each in teller.turn()))
    part = Cut([*session.iter_messages()], None)
    for room in (None, 400):
        _same_without(watch, part, provider, None, room)
    watch.leads = True
    assert build(provider, part.sources).repairs
    assert watch.sources - watch.taken < 14 * len(ODD), f"{watch.taken} of {watch.sources}"


@pytest.mark.promise("P15")
@pytest.mark.parametrize("form", ALL)
@pytest.mark.parametrize("provider", ALL)
def test_a_conversation_of_another_provider_is_taken_over_too(
    session: Session, form: str, provider: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written anew need not be repaired as well; thinking that only its provider reads is odd."""
    teller, watch = Calm(random.Random(f"{seed}/{form}/{provider}"), form, 0.0, 0.0), _Watch(monkeypatch)
    session.append(*(each for _ in range(60) for each in teller.turn()))
    part = Cut([*session.iter_messages()], None)
    for model in (None, *MODELS[provider]):
        for room in (None, *ROOMS):
            _same_without(watch, part, provider, model, room)
    watch.leads = True
    build(provider, part.sources)
    assert watch.taken > 0.1 * watch.sources, f"{watch.taken} of {watch.sources}"


@pytest.mark.parametrize("provider", ALL)
def test_an_id_that_comes_again_changes_nothing(
    session: Session, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where ids must be unique, steps that share one are repaired together, however far apart they are."""
    watch = _Watch(monkeypatch)
    for number in range(40):
        id = "again" if number in (5, 17, 30) else f"c{number}"
        session.user(f"request {number}")
        session.append({"role": "assistant", "tool_calls": [{"id": id, "name": "bash", "arguments": {}}]})
        session.append({"role": "tool", "tool_call_id": id, "content": f"result {number}"})
        session.assistant(f"answer {number}")
        if number == 25:
            session.append({"role": "user", "content": " "})
            session.append({"role": "assistant", "tool_calls": [{"id": "c3", "name": "bash", "arguments": {}}]})
    part = Cut([*session.iter_messages()], None)
    assert _same_without(watch, part, provider, None, None) > 80
    _same_without(watch, part, provider, None, 600)
