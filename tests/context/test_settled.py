"""What is right at the beginning is not repaired: with and without that short cut the same comes out."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

import holdfast
from holdfast import Session
from holdfast.context import repair
from holdfast.context.normal import Item
from holdfast.context.settled import Settled

from ._checks import ALL, dumped
from ._transcripts import MODELS, play
from .test_transcripts import cut, read

pytestmark = pytest.mark.feature("F3")


class _Nothing:
    """A short cut that leads nowhere."""

    def __init__(self, *_: object) -> None:
        self.items, self.count = list[Item](), 0


def test_the_short_cut_changes_nothing(
    seed: int, counts: Callable[[int, int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = 0
    with holdfast.open(":memory:") as store:
        for number in range(counts(60, 2000)):
            rng = random.Random(f"{seed}/{number}/settled")
            for session in play(store.create_session(f"{number}"), rng):
                entries, sources = read(session)
                for seq in range(len(entries) + 1):
                    part = cut(entries, sources, seq)
                    for provider in ALL:
                        model = rng.choice((None, *MODELS[provider]))
                        found = part.context(provider, model)
                        with monkeypatch.context() as patch:
                            patch.setattr(repair, "Settled", _Nothing)
                            whole = part.context(provider, model)
                        assert dumped(found.messages) == dumped(whole.messages), f"{number} {seq} {provider} {model}"
                        assert (found.repairs, found.tokens) == (whole.repairs, whole.tokens)
                        taken += 1
    assert taken > 1000


@pytest.mark.parametrize("provider", ALL)
def test_a_conversation_of_one_provider_takes_it_to_the_last_turn(
    session: Session, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be of no use: told in our own form, and again in the provider's."""
    for number in range(20):
        session.user(f"request {number}")
        names = [f"c{number}_{n}" for n in range(1 + number % 3)]
        calls = [{"id": name, "name": "look", "arguments": {"at": name}} for name in names]
        session.append({"role": "assistant", "content": "looking", "tool_calls": calls})
        for name in names:
            session.tool_result(name, f"found {name}")
        session.assistant(f"answer {number}")
    other = session._store.create_session("again")
    other.append(*session.context(provider).messages)
    counts = list[tuple[int, int]]()

    class Watched(Settled):
        def __init__(self, items: list[Item], *others: object) -> None:
            super().__init__(items, *others)  # type: ignore[arg-type]
            counts.append((self.count, len(items)))

    monkeypatch.setattr(repair, "Settled", Watched)
    assert dumped(other.context(provider).messages) == dumped(session.context(provider).messages)
    assert all(count > 0.9 * length for count, length in counts), counts
