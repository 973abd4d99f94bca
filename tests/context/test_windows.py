"""A context within a budget reads the end of a log, not all of it, and still holds what has to stay."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback import Session, Store
from takeback.context.build import build
from takeback.testing.work import SqliteSteps

from ._calm import Calm
from ._checks import ALL, context_of, dumped, require_valid
from ._transcripts import MODELS

pytestmark = [pytest.mark.feature("F3"), pytest.mark.promise("P15"), pytest.mark.trial("T7")]
MOST = 300


def talk(session: Session, turns: int, *, first: int = 0, words: int = 20) -> None:
    """Append turns of a request, a call with its result, and an answer."""
    said = list[Any]()
    for number in range(first, first + turns):
        call = {"id": f"c{number}", "name": "look", "arguments": {"at": number}}
        said.append({"role": "user", "content": f"request {number} " + "please " * words})
        said.append({"role": "assistant", "content": "let me see", "tool_calls": [call]})
        said.append({"role": "tool", "tool_call_id": f"c{number}", "content": f"result {number}"})
        said.append({"role": "assistant", "content": f"answer {number} " + "done " * words})
    session.append(*said)


@pytest.mark.parametrize("size", [50, 1000])
def test_the_end_of_a_long_log_is_what_is_sent(session: Session, size: int) -> None:
    talk(session, size)
    found = context_of(session, "anthropic", max_tokens=MOST)
    assert f"answer {size - 1} " in str(found.messages[-1])
    assert found.tokens <= MOST
    assert f"left out messages 1 to {4 * size - 8}: more than " in found.omitted[0]
    behind = build("anthropic", session.messages()[-40:], max_tokens=MOST)
    assert dumped(found.messages) == dumped(behind.messages)


def test_a_log_that_is_not_much_longer_than_its_budget_is_read_whole(session: Session) -> None:
    talk(session, 12)
    found = session.context("anthropic", max_tokens=MOST)
    assert found == build("anthropic", session.messages(), prompt="You fix code.", max_tokens=MOST)
    assert "about" in found.omitted[0]


def test_work_does_not_grow_with_the_history(tmp_path: Path) -> None:
    found = list[int]()
    with SqliteSteps() as counter, takeback.open(tmp_path / "a.db", durability="relaxed") as store:
        for size in (200, 1000, 10_000):
            session = store.create_session(f"{size}")
            session.system("the rules")
            talk(session, size // 4, words=5)
            session.context("anthropic", max_tokens=MOST)
            with counter.counted() as work:
                assert session.context("anthropic", max_tokens=MOST).system == "the rules"
            found.append(work.total)
    assert max(found) < 1.5 * min(found), found


@pytest.mark.parametrize("provider", ALL)
def test_what_stays_is_found_however_far_back_it_is(session: Session, provider: str) -> None:
    session.system("the rules")
    session.user("never push", metadata={"pinned": True})
    talk(session, 3)
    call = {"id": "pin", "name": "depth", "arguments": {}}
    session.append({"role": "assistant", "content": "", "tool_calls": [call], "metadata": {"pinned": True}})
    session.append({"role": "tool", "tool_call_id": "pin", "content": "three fathoms"})
    asked = {"id": "other", "name": "width", "arguments": {}}
    session.append({"role": "assistant", "content": "", "tool_calls": [asked]})
    session.append({"role": "tool", "tool_call_id": "other", "content": "two miles", "metadata": {"pinned": True}})
    talk(session, 100, first=3)
    session.system("more rules")
    talk(session, 300, first=103)
    found = context_of(session, provider, max_tokens=MOST)
    said = dumped(found.messages).decode()
    assert found.system == "You fix code.\n\nthe rules\n\nmore rules"
    assert all(words in said for words in ("never push", "depth", "three fathoms", "width", "two miles", "answer 402 "))
    assert "request 2 " not in said
    assert "left out messages 3 to 1615, but for 15, 16, 17, 18: more than " in found.omitted[0]
    assert not any("dropped" in repair or "closed" in repair for repair in found.repairs)


@pytest.mark.parametrize("provider", ALL)
def test_work_of_days_keeps_the_request_it_is_for(session: Session, provider: str) -> None:
    talk(session, 2)
    session.user("paint the boat green")
    for step in range(600):
        call = {"id": f"w{step}", "name": "paint", "arguments": {"plank": step}}
        session.append(
            {"role": "assistant", "content": f"plank {step}", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"w{step}", "content": "painted " * 5},
        )
    found = context_of(session, provider, max_tokens=MOST)
    said = dumped(found.messages).decode()
    assert "paint the boat green" in said
    assert "plank 599" in said
    assert ", but for 9: more than " in found.omitted[0]


@pytest.mark.parametrize("provider", ALL)
def test_a_compaction_is_found_before_a_long_rest(session: Session, provider: str) -> None:
    session.system("the rules")
    session.user("never push", metadata={"pinned": True})
    talk(session, 5)
    session.compact(session.head.seq, "the boat was painted green")
    talk(session, 300, first=5)
    said = dumped(context_of(session, provider, max_tokens=MOST).messages).decode()
    assert "painted green" in said
    assert "never push" in said
    assert "request 4 " not in said
    assert "answer 304 " in said


def test_a_large_pinned_message_lies_elsewhere_and_is_found(session: Session) -> None:
    """Content of more than 64 kB is no part of its row."""
    session.system("the rules " * 10_000)
    talk(session, 300)
    found = context_of(session, "anthropic", max_tokens=26_000)
    assert "the rules the rules" in str(found.system)
    with pytest.raises(takeback.Invalid, match="max_tokens"):
        session.context("anthropic", max_tokens=MOST)


def test_a_tokenizer_that_counts_little_gets_more_of_the_log(session: Session) -> None:
    talk(session, 500)

    def lines(text: str) -> int:
        return text.count("\n") + 1

    found = context_of(session, "anthropic", max_tokens=2000, count=lines)
    assert 900 < found.tokens <= 2000
    assert len(found.messages) > 100


def test_a_fork_reads_back_through_its_origin(store: Store) -> None:
    session = store.create_session("origin")
    session.system("the rules")
    talk(session, 200)
    session.user("pinned in the origin", metadata={"pinned": True})
    talk(session, 100, first=200)
    session.rewind(4 * 250 + 2)
    talk(session, 2, first=900)
    found = context_of(session, "anthropic", max_tokens=MOST)
    said = dumped(found.messages).decode()
    assert found.system == "the rules"
    assert "pinned in the origin" in said
    assert "answer 901 " in said
    assert "answer 299 " not in said
    early = session.context("anthropic", max_tokens=MOST, at=4 * 150 + 1)
    assert "pinned in the origin" not in str(early.messages)
    assert "answer 149 " in str(early.messages)


@pytest.mark.promise("R18")
@pytest.mark.parametrize("provider", ALL)
def test_every_prefix_of_a_long_log_is_valid_and_the_same_after_a_restart(
    tmp_path: Path, provider: str, seed: int, counts: Callable[[int, int], int]
) -> None:
    for number in range(counts(2, 200)):
        rng = random.Random(f"{seed}/{number}/{provider}/windows")
        before, path = dict[int, bytes](), tmp_path / f"{number}.db"
        with takeback.open(path, durability="relaxed") as store:
            session = store.create_session("long")
            teller = Calm(rng, provider, rng.choice([0.0, 0.3, 1.0]), rng.choice([0.0, 0.01, 0.05]))
            session.append(*(each for _ in range(150) for each in teller.turn()))
            for seq in sorted(rng.sample(range(1, session.head.seq + 1), 40)):
                other = rng.choice(ALL)
                model = rng.choice((None, *MODELS[other]))
                try:
                    found = session.context(other, model=model, max_tokens=400, at=seq)
                except takeback.Invalid:
                    continue  # one message alone is too long
                require_valid(found, sdk=False)
                assert found.tokens <= 400
                before[seq] = dumped([found.request(), found.repairs, found.omitted, other, model])
            assert len(before) > 10
        with takeback.open(path, read_only=True) as store:
            session = store.get_session("long")
            for seq, then in before.items():
                *_, other, model = json.loads(then)
                found = session.context(other, model=model, max_tokens=400, at=seq)
                assert dumped([found.request(), found.repairs, found.omitted, other, model]) == then


def test_the_beginning_stays_while_a_long_log_grows(session: Session) -> None:
    """Prompt caches go by the beginning: it changes hardly more often than if the whole log had been read."""
    talk(session, 100, words=3)
    before: tuple[list[Any], list[Any]] = ([], [])
    changes = [0, 0]
    for number in range(100):
        talk(session, 1, first=100 + number, words=3)
        now = (
            session.context("anthropic", max_tokens=MOST).messages,
            build("anthropic", session.messages(), max_tokens=MOST).messages,
        )
        for place, (old, new) in enumerate(zip(before, now, strict=True)):
            changes[place] += old[:-1] != new[: len(old) - 1]
        before = now
    assert 0 < changes[0] <= 1.25 * changes[1], changes
