"""One way of counting for every provider's usage."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from anthropic.types import Usage as AnthropicUsage
from google.genai.types import GenerateContentResponseUsageMetadata
from openai.types import CompletionUsage
from openai.types.responses import ResponseUsage

import takeback
from takeback import Invalid, Usage


@pytest.mark.feature("B1")
def test_anthropic_input_leaves_out_the_cache_and_ours_does_not() -> None:
    given = AnthropicUsage(input_tokens=10, output_tokens=5, cache_read_input_tokens=100, cache_creation_input_tokens=7)
    assert Usage.of(given) == Usage(117, 5, cache_read_tokens=100, cache_write_tokens=7)


@pytest.mark.feature("B1")
def test_anthropic_thinking_is_reasoning() -> None:
    given = {"input_tokens": 1, "output_tokens": 9, "output_tokens_details": {"thinking_tokens": 4}}
    assert Usage.of(AnthropicUsage.model_validate(given)) == Usage(1, 9, reasoning_tokens=4)


@pytest.mark.feature("B1")
def test_chat_prompt_holds_the_cached_part() -> None:
    given = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 60, "audio_tokens": None},
        "completion_tokens_details": {"reasoning_tokens": 15},
    }
    wanted = Usage(100, 20, cache_read_tokens=60, reasoning_tokens=15)
    assert Usage.of(CompletionUsage.model_validate(given)) == Usage.of(given) == wanted


@pytest.mark.feature("B1")
def test_responses_input_holds_the_cached_part() -> None:
    given = {
        "input_tokens": 100,
        "output_tokens": 20,
        "total_tokens": 120,
        "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 3},
        "output_tokens_details": {"reasoning_tokens": 15},
    }
    wanted = Usage(100, 20, cache_read_tokens=60, cache_write_tokens=3, reasoning_tokens=15)
    assert Usage.of(ResponseUsage.model_validate(given)) == Usage.of(given) == wanted


@pytest.mark.feature("B1")
def test_gemini_output_leaves_out_thoughts_and_ours_does_not() -> None:
    given = GenerateContentResponseUsageMetadata(
        prompt_token_count=100,
        candidates_token_count=20,
        thoughts_token_count=30,
        cached_content_token_count=50,
        tool_use_prompt_token_count=4,
        total_token_count=154,
    )
    wanted = Usage(104, 50, cache_read_tokens=50, reasoning_tokens=30)
    assert Usage.of(given) == wanted
    assert wanted.input_tokens + wanted.output_tokens == given.total_token_count
    assert Usage.of({"promptTokenCount": 100, "candidatesTokenCount": 20}) == Usage(100, 20)
    assert Usage.of({"prompt_token_count": 100, "thoughts_token_count": 5}) == Usage(100, 5, reasoning_tokens=5)


@pytest.mark.feature("B1")
def test_converse_counts_the_cache_beside_the_input() -> None:
    given = {"inputTokens": 4, "outputTokens": 190, "totalTokens": 2038, "cacheReadInputTokens": 1800}
    assert Usage.of({**given, "cacheWriteInputTokens": 44}) == Usage(
        1848, 190, cache_read_tokens=1800, cache_write_tokens=44
    )
    assert Usage.of({"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}) == Usage(1, 2)


@pytest.mark.feature("B1")
@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        pytest.param({}, Usage(), id="nothing"),
        pytest.param({"input_tokens": 1, "cost": 0.5}, Usage(1, cost=0.5), id="ours"),
        pytest.param({"input_tokens": None, "output_tokens": 2}, Usage(0, 2), id="null"),
        pytest.param(
            {"input_tokens": 9, "output_tokens": 2, "input_token_details": {"cache_read": 4, "cache_creation": 1}},
            Usage(9, 2, cache_read_tokens=4, cache_write_tokens=1),
            id="langchain",
        ),
        pytest.param(
            {"prompt_tokens": 9, "completion_tokens": 1, "cache_read_input_tokens": 4, "cost": 0.25},
            Usage(9, 1, cache_read_tokens=4, cost=0.25),
            id="gateway",
        ),
    ],
)
def test_other_shapes_are_read(given: dict[str, Any], wanted: Usage) -> None:
    assert Usage.of(given) == wanted


@pytest.mark.feature("B1")
def test_a_dataclass_with_our_names_is_read() -> None:
    @dataclass
    class RunUsage:  # as Pydantic AI's
        requests: int = 1
        input_tokens: int = 10
        cache_read_tokens: int = 4
        output_tokens: int = 3
        details: dict[str, int] = field(default_factory=lambda: {"reasoning_tokens": 2})

    assert Usage.of(RunUsage()) == Usage(10, 3, cache_read_tokens=4, reasoning_tokens=2, extra={"requests": 1})


@pytest.mark.feature("B1")
def test_a_usage_is_given_back_as_it_is() -> None:
    usage = Usage(1, 2, cost=0.1)
    assert Usage.of(usage) is usage


@pytest.mark.feature("B1")
@pytest.mark.parametrize(
    "given",
    [
        {"tokens": 5},
        {"input_tokens": -1},
        {"input_tokens": -5, "cache_read_input_tokens": 10},
        {"inputTokens": -5, "cacheReadInputTokens": 10},
        {"input_tokens": "5"},
        {"input_tokens": 5.0},
        {"input_tokens": True},
        {"input_tokens": 10**5000},
        {"cost": "1.50"},
        {"cost": -1},
        {"cost": 10**5000},
        {"cost": float("nan")},
        {"prompt_tokens": 1, "prompt_tokens_details": 3},
        Usage(input_tokens=-1),
        [1, 2],
        7,
        None,
        object(),
    ],
    ids=lambda given: f"{type(given).__name__} {list(given) if isinstance(given, dict) else ''}",
)
def test_what_cannot_be_understood_is_refused(given: object) -> None:
    with pytest.raises(Invalid):
        Usage.of(given)


@pytest.mark.trial("T67")
@pytest.mark.parametrize(
    ("given", "extra"),
    [
        ({"input_tokens": 5, "pages": 2, "tier": "fast", "nothing": None}, {"pages": 2, "tier": "fast"}),
        ({"input_tokens": 5, "extra": {"a": 1}}, {"a": 1}),
        (
            {"input_tokens": 1, "cache_read_input_tokens": 2, "server_tool_use": {"web_search_requests": 3}},
            {"server_tool_use": {"web_search_requests": 3}},
        ),
        (
            {"prompt_tokens": 1, "total_tokens": 1, "prompt_tokens_details": {"cached_tokens": 1, "audio_tokens": 4}},
            {"prompt_tokens_details": {"audio_tokens": 4}},
        ),
        ({"input_tokens": 1, "input_tokens_details": {"cached_tokens": 1}, "seats": [1]}, {"seats": [1]}),
        ({"promptTokenCount": 1, "totalTokenCount": 1, "trafficType": "ON_DEMAND"}, {"trafficType": "ON_DEMAND"}),
        ({"inputTokens": 1, "totalTokens": 1, "serverToolUsage": {}}, {"serverToolUsage": {}}),
    ],
)
def test_members_without_a_name_of_ours_are_kept(given: dict[str, Any], extra: dict[str, Any]) -> None:
    found = Usage.of(given)
    assert found.extra == extra
    assert Usage.of(found.to_dict()) == Usage.from_dict(found.to_dict()) == found
    assert found.counts() == Usage.of({k: v for k, v in given.items() if k != "extra" and extra.get(k) != v}).counts()


@pytest.mark.trial("T67")
def test_a_sum_keeps_what_was_told_beside_the_counts() -> None:
    one = Usage(1, extra={"pages": 2, "tier": "slow", "inside": {"a": 1}})
    two = Usage(2, extra={"pages": 3, "tier": "fast", "inside": {"a": 1, "b": True}, "more": [1]})
    assert one + two == Usage(3, extra={"pages": 5, "tier": "fast", "inside": {"a": 2, "b": True}, "more": [1]})
    assert sum([one, two], start=Usage()).counts() == Usage(3).counts()
    assert len({one, Usage(1)}) == 2


@pytest.mark.trial("T67")
def test_stored_usage_is_what_was_given() -> None:
    given = {"input_tokens": 5, "output_tokens": 1, "pages": {"read": 2}}
    with takeback.open(":memory:") as store:
        session = store.create_session("work")
        session.assistant("Hi", usage=given)
        session.append({"role": "assistant", "content": "Ho", "usage": given})
        chat = {"choices": [{"message": {"role": "assistant", "content": "A"}}], "usage": {"prompt_tokens": 1, "x": 2}}
        session.append(chat)
        found = [message.usage.extra for message in session.messages() if message.usage is not None]
        assert found == [{"pages": {"read": 2}}, {"pages": {"read": 2}}, {"x": 2}]
        assert session.stats().usage == Usage(11, 2)
