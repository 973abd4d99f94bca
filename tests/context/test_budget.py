"""A context within its budget: pairs whole, a beginning that stays, and nothing left out without a word."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback import Invalid, Session, Store, Unsupported
from takeback.context.budget import EARLIER
from takeback.context.tokens import estimate
from takeback.providers import NAMES
from takeback.testing.validators import problems

pytestmark = pytest.mark.feature("F3")

ALL = tuple(sorted(NAMES))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with takeback.open(tmp_path / "a.db") as store:
        yield store


def dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def turn(session: Session, number: int, rng: random.Random, *, steps: int | None = None) -> None:
    """Let a user ask and an agent work: some steps with calls side by side, then an answer."""
    session.user(f"request {number}: {'please ' * rng.randrange(1, 40)}")
    for step in range(rng.randrange(4) if steps is None else steps):
        names = [f"c{number}_{step}_{n}" for n in range(rng.randrange(1, 4))]
        calls = [{"id": name, "name": "look", "arguments": {"at": name}} for name in names]
        session.append({"role": "assistant", "content": f"step {step}", "tool_calls": calls})
        for name in rng.sample(names, len(names)):
            session.append({"role": "tool", "tool_call_id": name, "content": f"{name} " * rng.randrange(1, 60)})
    session.assistant(f"answer {number}: {'done ' * rng.randrange(1, 60)}")


def in_form(session: Session, provider: str, **options: Any) -> takeback.Context:
    """Return a context that its provider accepts."""
    found = session.context(provider, **options)
    wrong = problems(provider, found.request(), sdk=False)
    assert not wrong, wrong
    return found


# ---------------------------------------------------------------------- what stays and what leaves


@pytest.mark.promise("R18")
@pytest.mark.parametrize("provider", ALL)
def test_any_budget_is_kept_and_gives_what_the_provider_accepts(
    store: Store, provider: str, seed: int, counts: Callable[[int, int], int]
) -> None:
    rng = random.Random(f"{seed} {provider}")
    for number in range(counts(6, 100)):
        session = store.create_session(f"s{number}")
        for each in range(rng.randrange(1, 25)):
            turn(session, each, rng)
        whole = in_form(session, provider)
        assert not whole.omitted
        for _ in range(6):
            most = rng.randrange(400, max(500, whole.tokens + 200))
            found = in_form(session, provider, max_tokens=most)
            assert found.tokens <= most
            assert bool(found.omitted) == (dumped(found.messages) != dumped(whole.messages))
            assert dumped(found.messages[-1])[-200:] == dumped(whole.messages[-1])[-200:]


@pytest.mark.parametrize("provider", ALL)
def test_the_beginning_stays_for_many_turns(store: Store, provider: str) -> None:
    """Prompt caches go by the beginning: it may change only when the room is full."""
    session, rng, most = store.create_session(), random.Random(3), 2000
    before, changes, sent = list[Any](), 0, 0
    for number in range(70):
        turn(session, number, rng)
        found = in_form(session, provider, max_tokens=most)
        now, sent = found.messages, sent + found.tokens
        changes += before[:-1] != now[: len(before) - 1]
        before = now
    total = in_form(session, provider).tokens
    assert total > 8 * most
    assert changes <= 2 * total / most + 1
    assert sent / 70 > most / 3  # and the room is used


def test_nothing_but_the_log_decides(tmp_path: Path) -> None:
    """A look in between, another process or a restart changes nothing."""
    rng, places = random.Random(5), [tmp_path / "a.db", tmp_path / "b.db"]
    found = []
    for place in places:
        rng = random.Random(5)
        with takeback.open(place) as store:
            session = store.session("work")
            for number in range(40):
                turn(session, number, rng)
                if place == places[0]:
                    session.context("anthropic", max_tokens=3000)
                    session.context("gemini", max_tokens=1000)
        with takeback.open(place, read_only=True) as store:
            found.append(dumped(store.get_session("work").context("anthropic", max_tokens=3000).request()))
    assert found[0] == found[1]


@pytest.mark.parametrize("provider", ALL)
def test_what_is_pinned_stays_with_its_calls_and_results(store: Store, provider: str) -> None:
    session, rng = store.create_session(), random.Random(7)
    session.system("the rules")
    session.user("never touch the harbour", metadata={"pinned": True})
    session.assistant("understood")
    session.user("and how deep is it?")
    session.assistant("let me see")
    call = {"id": "pin", "name": "depth", "arguments": {"of": "pool"}}
    other = {"id": "other", "name": "depth", "arguments": {"of": "weir"}}
    session.append({"role": "assistant", "content": "", "tool_calls": [call, other], "metadata": {"pinned": True}})
    session.append({"role": "tool", "tool_call_id": "other", "content": "one fathom"})
    session.append({"role": "tool", "tool_call_id": "pin", "content": "three fathoms"})
    session.assistant("so deep")
    session.user("not pinned, not kept")
    for number in range(40):
        turn(session, number, rng)
    found = in_form(session, provider, max_tokens=2000)
    said = dumped(found.messages)
    assert "never touch the harbour" in said
    assert "three fathoms" in said
    assert "one fathom" in said
    assert "weir" in said
    assert "not kept" not in said
    assert "understood" not in said
    assert EARLIER in said
    assert found.system == "the rules"
    assert "left out messages 3 to " in found.omitted[0]
    assert ", but for 6" in found.omitted[0] or ", but for 5" in found.omitted[0]


@pytest.mark.parametrize("provider", ALL)
def test_long_work_keeps_the_request_it_is_for(store: Store, provider: str) -> None:
    session, rng = store.create_session(), random.Random(11)
    turn(session, 0, rng)
    session.user("paint the boat green")
    for step in range(80):
        call = {"id": f"w{step}", "name": "paint", "arguments": {"plank": step}}
        session.append({"role": "assistant", "content": f"plank {step}", "tool_calls": [call]})
        session.append({"role": "tool", "tool_call_id": f"w{step}", "content": "painted " * 30})
    found = in_form(session, provider, max_tokens=1500)
    assert "paint the boat green" in dumped(found.messages[:2])
    assert "plank 79" in dumped(found.messages)
    assert '"plank 3"' not in dumped(found.messages)
    assert len(found.omitted) == 1


def test_a_compaction_stays_too(store: Store) -> None:
    session, rng = store.create_session(), random.Random(13)
    for number in range(5):
        turn(session, number, rng)
    session.compact(session.head.seq, "the boat was painted green")
    for number in range(40):
        turn(session, number, rng)
    assert "painted green" in dumped(in_form(session, "anthropic", max_tokens=1500).messages)


# ---------------------------------------------------------------------- when the last step alone is too much


@pytest.mark.parametrize("provider", ALL)
def test_results_that_fill_the_room_are_shortened(store: Store, provider: str) -> None:
    session = store.create_session()
    session.user("read the log")
    session.append({"role": "assistant", "content": "", "tool_calls": [{"id": "a", "name": "read", "arguments": {}}]})
    session.append({"role": "tool", "tool_call_id": "a", "content": "first line\n" + "x" * 100_000 + "\nlast line"})
    found = in_form(session, provider, max_tokens=3000)
    said = dumped(found.messages)
    assert "first line" in said
    assert "last line" in said
    assert "characters are left out" in said
    assert 600 < found.tokens <= 3000
    assert found.omitted == ("shortened tool results in message 3",)
    assert len(session.messages()[-1].text) > 100_000  # the original is untouched


def test_what_cannot_be_made_to_fit_is_said(store: Store) -> None:
    session = store.create_session()
    session.user("long " * 5000)
    with pytest.raises(Invalid, match=r"max_tokens is 1,000, .* take about 6,\d\d\d"):
        session.context("anthropic", max_tokens=1000)
    for wrong in (0, -1, 1.5, True, "many"):
        with pytest.raises(Invalid, match="max_tokens"):
            session.context("anthropic", max_tokens=wrong)  # type: ignore[arg-type]


def test_an_empty_session_fits(store: Store) -> None:
    found = store.create_session().context("anthropic", max_tokens=10)
    assert (found.messages, found.omitted, found.tokens) == ([], (), 0)


# ---------------------------------------------------------------------- counting


def test_a_provider_that_counted_is_believed(store: Store) -> None:
    """What the last answer's prompt and words came to is what the context so far takes."""
    session = store.create_session()
    session.user("word " * 400)
    plain = in_form(session, "anthropic").tokens
    session.assistant("word " * 400, usage={"input_tokens": 700, "output_tokens": 700})
    assert 490 < plain < 530
    assert in_form(session, "anthropic").tokens == pytest.approx(1400, abs=30)
    session.user("word " * 400)
    assert in_form(session, "anthropic").tokens == pytest.approx(2100, abs=50)


@pytest.mark.parametrize("usage", [{"input_tokens": 90_000, "output_tokens": 1}, {"input_tokens": 3}])
def test_a_count_of_something_else_is_not_believed(store: Store, usage: dict[str, int]) -> None:
    session = store.create_session()
    session.user("word " * 400)
    session.assistant("word " * 400, usage=usage)
    assert in_form(session, "anthropic").tokens == pytest.approx(1010, abs=30)


def test_a_count_of_another_provider_is_not_taken_over(store: Store) -> None:
    session = store.create_session()
    session.user("word " * 400)
    message = {"role": "assistant", "content": [{"type": "text", "text": "word " * 400}]}
    session.append({**message, "type": "message", "usage": {"input_tokens": 700, "output_tokens": 700}, "model": "m"})
    assert in_form(session, "anthropic").tokens == pytest.approx(1400, abs=40)
    assert in_form(session, "gemini").tokens == pytest.approx(1010, abs=40)


def test_a_tokenizer_can_be_plugged_in(store: Store) -> None:
    session, rng = store.create_session(), random.Random(17)
    for number in range(30):
        turn(session, number, rng)

    def words(text: str) -> int:
        return len(text.split())

    whole, found = (
        session.context("openai-chat", count=words),
        session.context("openai-chat", count=words, max_tokens=900),
    )
    assert whole.tokens < session.context("openai-chat").tokens
    assert found.tokens <= 900 < whole.tokens
    for wrong in (lambda text: -1, lambda text: 1.5, lambda text: None, 7):
        with pytest.raises(Invalid, match="count"):
            session.context("openai-chat", count=wrong)  # type: ignore[arg-type]


def test_the_offline_tokenizer_counts(store: Store) -> None:
    count = takeback.offline_tokens()
    assert count("hello world") == 2
    assert count("<|endoftext|>") > 1  # of a user, it is text
    prose = "The pilot looked at the water and said nothing for a while. " * 50
    assert 0.7 < estimate(prose) / count(prose) < 1.4
    session = store.create_session()
    session.user(prose)
    assert session.context("openai-chat", count=count).tokens == pytest.approx(count(prose), abs=10)


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tiktoken", None)
    with pytest.raises(Unsupported, match=r"takeback\[tokens\]"):
        takeback.offline_tokens()


# ---------------------------------------------------------------------- from another point


@pytest.mark.parametrize("provider", ALL)
def test_a_context_from_any_point_is_what_it_was_then(store: Store, provider: str) -> None:
    session, rng, then = store.create_session(), random.Random(19), dict[int, str]()
    for number in range(8):
        turn(session, number, rng)
        if number == 4:
            session.compact(session.head.seq // 2, "what came first")
        then[session.head.seq] = dumped(session.context(provider, max_tokens=1500).request())
    early = session.checkpoint("early")
    session.rewind(min(then))
    turn(session, 99, rng)
    assert dumped(session.context(provider, at=early, max_tokens=1500).request()) == then[max(then)]
    assert dumped(session.context(provider, at="early", max_tokens=1500).request()) == then[max(then)]
    assert dumped(session.context(provider, at=min(then), max_tokens=1500).request()) == then[min(then)]
    assert session.context(provider, at=0).messages == []


# ---------------------------------------------------------------------- compactions can be taken back


@pytest.mark.feature("A2")
def test_a_compaction_is_taken_back(store: Store) -> None:
    session = store.create_session()
    for text in ("one", "two", "three"):
        session.user(text)
    whole = dumped(session.context("anthropic").messages)
    first = session.compact(1, "summary one")
    session.compact(2, "summary two")
    assert session.compaction() != first
    assert "summary two" in dumped(session.context("anthropic").messages)
    assert session.uncompact() == first == session.compaction()
    assert "summary one" in dumped(session.context("anthropic").messages)
    session.compact(3, "summary three")
    assert session.uncompact(idempotency_key="k") == first
    assert session.uncompact(idempotency_key="k") == first  # a retry takes nothing more back
    assert session.uncompact() is None is session.compaction()
    assert dumped(session.context("anthropic").messages) == whole
    with pytest.raises(takeback.NotFound, match="nothing to take back"):
        session.uncompact()
    session.rewind(4)
    assert session.compaction() == first
    assert [message.text for message in session.messages()] == ["one", "two", "three"]
    assert not store.verify()


# ---------------------------------------------------------------------- what a hostile review broke once


def _step(session: Session, number: int, size: int) -> None:
    call = {"type": "tool_use", "id": f"t{number}", "name": "read", "input": {}}
    session.append({"role": "assistant", "content": [call]})
    result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": f"result {number} " + "R" * size}
    session.append({"role": "user", "content": [result]})


@pytest.mark.parametrize("provider", ALL)
def test_a_compaction_hides_neither_pinned_messages_nor_the_system(store: Store, provider: str) -> None:
    session = store.create_session()
    session.system("SYSTEM RULE")
    session.user("never push", metadata={"pinned": True})
    call = {"id": "a", "name": "look", "arguments": {}}
    session.append({"role": "assistant", "content": "", "tool_calls": [call], "metadata": {"pinned": True}})
    session.tool_result("a", "deep water")
    session.user("hidden")
    session.assistant("hidden too")
    session.compact(session.head.seq, "THE SUMMARY")
    session.user("go on")
    for options in ({}, {"max_tokens": 500}):
        found = in_form(session, provider, **options)
        said = dumped(found.messages)
        assert found.system == "SYSTEM RULE"
        assert all(words in said for words in ("never push", "deep water", "THE SUMMARY", "go on"))
        assert "hidden" not in said


def test_a_made_up_word_is_no_request(store: Store) -> None:
    session = store.create_session()
    session.user("REAL REQUEST")
    session.append({"role": "assistant", "content": "I will", "status": "interrupted"})
    for number in range(30):
        _step(session, number, 600)
    found = in_form(session, "anthropic", max_tokens=1500)
    assert "REAL REQUEST" in dumped(found.messages)
    assert " 0" not in found.omitted[0].partition(":")[0]


def test_metadata_is_ours_in_any_form(store: Store) -> None:
    session = store.create_session()
    session.user("hi")
    function = {"id": "t1", "type": "function", "function": {"name": "rd", "arguments": "{}"}}
    usage = {"prompt_tokens": 5, "completion_tokens": 1}
    said = {"role": "assistant", "content": None, "tool_calls": [function], "usage": usage}
    session.append({**said, "metadata": {"pinned": True}})
    assert session.messages()[-1].metadata == {"pinned": True}
    assert session.messages()[-1].usage == takeback.Usage(5, 1)
    in_form(session, "openai-chat", model="m")


@pytest.mark.parametrize("provider", ALL)
def test_a_budget_holds_however_providers_count(store: Store, provider: str) -> None:
    rng = random.Random(23)
    for _ in range(40):
        session = store.create_session()
        for _ in range(rng.randrange(1, 12)):
            session.user("w " * rng.randrange(1, 1500))
            for _ in range(rng.randrange(1, 3)):
                usage = {"input_tokens": rng.randrange(1, 4000), "output_tokens": rng.randrange(1, 300)}
                session.append({"role": "assistant", "content": "x " * rng.randrange(1, 200), "usage": usage})
        most = rng.randrange(1500, 4000)
        try:
            found = in_form(session, provider, max_tokens=most)
        except Invalid:
            continue
        assert found.tokens <= most


def test_one_large_result_does_not_wipe_out_the_rest(store: Store) -> None:
    session = store.create_session()
    for number in range(20):
        session.user(f"early{number} " + "w " * 40)
        session.assistant("fine " * 20)
    session.user("the request")
    _step(session, 1, 40_000)
    first = in_form(session, "anthropic", max_tokens=4000)
    _step(session, 2, 100)
    second = in_form(session, "anthropic", max_tokens=4000)
    for found in (first, second):
        assert "early0 " in dumped(found.messages)
        assert "result 1 " in dumped(found.messages)
        assert found.omitted == ("shortened tool results in message 43",)
    assert second.messages[: len(first.messages)] == first.messages  # and it stays as it is


def test_large_pins_leave_room_to_be_used(store: Store) -> None:
    session, sizes = store.create_session(), list[int]()
    session.user("P " * 1200, metadata={"pinned": True})
    for number in range(60):
        session.user(f"q{number} " + "w " * 30)
        session.assistant(f"a{number} " + "w " * 30)
        sizes.append(len(in_form(session, "anthropic", max_tokens=1000).messages))
    assert min(sizes[10:]) >= 6


def test_only_what_is_inside_the_range_is_an_exception_to_it(store: Store) -> None:
    session = store.create_session()
    for number in range(200):
        pinned = {"pinned": True} if number % 4 == 0 else None
        session.user(f"q{number}", metadata=pinned)
        session.assistant(f"a{number} " + "w " * 40)
    found = in_form(session, "anthropic", max_tokens=3000)
    assert re.search(r"left out messages 2 to \d+, but for 9, 17, 25, 33, 41 and \d+ more: about", found.omitted[0])


def test_a_pinned_system_message_pins_nothing_else(store: Store) -> None:
    session = store.create_session()
    for number in range(80):
        session.user(f"q{number} " + "w " * 30)
        session.assistant(f"a{number} " + "w " * 30)
        if number == 20:
            session.append({"role": "system", "content": "RULE", "metadata": {"pinned": True}})
    found = in_form(session, "anthropic", max_tokens=1500)
    assert found.system == "RULE"
    assert "a20 " not in dumped(found.messages)
    assert "but for" not in found.omitted[0]


def test_content_of_any_kind_is_said(store: Store) -> None:
    session = store.create_session()
    session.append({"role": "user", "content": {"question": "what is up"}})
    assert "what is up" in dumped(in_form(session, "anthropic").messages)


def test_a_tokenizer_takes_a_million_blanks() -> None:
    assert takeback.offline_tokens()(" " * 1_000_000 + "x") > 1000


@pytest.mark.feature("A2")
def test_a_compaction_at_the_point_of_a_fork(store: Store) -> None:
    session = store.create_session()
    for number in range(4):
        session.user(f"q{number}")
        session.assistant(f"a{number}")
    other = session.fork(2, as_session=True)
    assert other.compact(2, "up to here").upto == 2
    session.fork(4, name="side")
    session.switch("side")
    assert session.compact(4, "here, too").upto == 4
    for blank in ("", "  \n"):
        with pytest.raises(Invalid, match="summary is empty"):
            session.compact(1, blank)
