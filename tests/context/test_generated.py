"""Any log, cut anywhere, in every mixture of forms, gives a valid context for every provider."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from takeback import codec
from takeback import providers as forms
from takeback.context.build import build
from takeback.model.entry import Entry
from takeback.model.message import Message, encode_raw

from ._checks import ALL, as_sent, dumped, kept, require_valid

pytestmark = pytest.mark.feature("F3")
TEXTS = st.sampled_from(["", " ", "Hi", "ä\ud83d", "end \n"])
IDS = st.sampled_from(["a", "call-0", "x" * 50, "dot.id:1", ""])
NAMES = st.sampled_from(["bash", "a.b", "read"])
VALUES = st.sampled_from([None, {}, {"a": [1, None]}, "text", [1], 2.5])


def ours() -> st.SearchStrategy[dict[str, Any]]:
    calls = st.lists(st.fixed_dictionaries({"id": IDS, "name": NAMES, "arguments": VALUES}), max_size=3)
    said = st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system", "critic"]), "content": TEXTS},
        optional={"status": st.sampled_from(["interrupted", "complete"])},
    )
    asked = st.fixed_dictionaries({"role": st.just("assistant"), "content": TEXTS, "tool_calls": calls})
    results = st.lists(st.fixed_dictionaries({"call_id": IDS, "success": st.booleans()}), max_size=2)
    answered = st.fixed_dictionaries({"role": st.just("tool"), "content": VALUES, "tool_results": results})
    return st.one_of(said, asked, answered)


def anthropic() -> st.SearchStrategy[dict[str, Any]]:
    blocks = st.one_of(
        st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS, "citations": st.none()}),
        st.fixed_dictionaries(
            {"type": st.just("thinking"), "thinking": TEXTS, "signature": st.sampled_from(["", "s"])}
        ),
        st.fixed_dictionaries({"type": st.just("tool_use"), "id": IDS, "name": st.just("bash"), "input": st.just({})}),
    )
    answers = st.fixed_dictionaries(
        {"type": st.just("tool_result"), "tool_use_id": IDS, "content": TEXTS},
        optional={"is_error": st.booleans()},
    )
    user = st.one_of(answers, st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS}))
    return st.one_of(
        st.fixed_dictionaries({"role": st.just("assistant"), "content": st.lists(blocks, max_size=4)}),
        st.fixed_dictionaries({"role": st.just("user"), "content": st.lists(user, max_size=4)}),
    )


def chat() -> st.SearchStrategy[dict[str, Any]]:
    function = st.fixed_dictionaries({"name": st.just("bash"), "arguments": st.sampled_from(["{}", "{", '{"a":1}'])})
    calls = st.lists(st.fixed_dictionaries({"id": IDS, "type": st.just("function"), "function": function}), max_size=3)
    return st.one_of(
        st.fixed_dictionaries(
            {"role": st.just("assistant"), "content": st.one_of(st.none(), TEXTS), "refusal": st.none()},
            optional={"tool_calls": calls},
        ),
        st.fixed_dictionaries({"role": st.just("tool"), "tool_call_id": IDS, "content": TEXTS}),
        st.fixed_dictionaries({"role": st.just("user"), "name": st.just("ann"), "content": TEXTS}),
    )


def responses() -> st.SearchStrategy[dict[str, Any]]:
    text = st.fixed_dictionaries({"type": st.just("output_text"), "text": TEXTS, "annotations": st.just([])})
    message = {"type": st.just("message"), "id": st.just("m"), "status": st.just("completed")}
    return st.one_of(
        st.fixed_dictionaries({"type": st.just("reasoning"), "id": st.just("rs"), "summary": st.just([])}),
        st.fixed_dictionaries(
            {
                "type": st.just("function_call"),
                "call_id": IDS,
                "id": st.just("fc"),
                "name": st.just("bash"),
                "arguments": st.just("{}"),
            }
        ),
        st.fixed_dictionaries({"type": st.just("function_call_output"), "call_id": IDS, "output": TEXTS}),
        st.fixed_dictionaries({**message, "role": st.just("assistant"), "content": st.lists(text, max_size=2)}),
    )


def gemini() -> st.SearchStrategy[dict[str, Any]]:
    call = st.fixed_dictionaries({"name": NAMES, "args": st.just({"a": 1})}, optional={"id": IDS})
    answer = st.fixed_dictionaries({"name": NAMES, "response": st.just({"output": "ok"})}, optional={"id": IDS})
    said = st.fixed_dictionaries({"text": TEXTS}, optional={"thought": st.booleans()})
    model = st.lists(st.one_of(said, st.fixed_dictionaries({"functionCall": call})), max_size=4)
    user = st.lists(st.one_of(said, st.fixed_dictionaries({"functionResponse": answer})), max_size=4)
    return st.one_of(
        st.fixed_dictionaries({"role": st.just("model"), "parts": model}),
        st.fixed_dictionaries({"role": st.just("user"), "parts": user}),
    )


def bedrock() -> st.SearchStrategy[dict[str, Any]]:
    thought = st.fixed_dictionaries({"text": TEXTS}, optional={"signature": st.sampled_from(["", "s"])})
    use = st.fixed_dictionaries({"toolUseId": IDS, "name": NAMES, "input": VALUES})
    paper = st.fixed_dictionaries(
        {"format": st.just("pdf"), "name": st.sampled_from(["a", "A", "b.pdf"]), "source": st.just({"bytes": b"%PDF"})}
    )
    answer = st.fixed_dictionaries(
        {
            "toolUseId": IDS,
            "content": st.lists(
                st.one_of(
                    st.fixed_dictionaries({"text": TEXTS}),
                    st.fixed_dictionaries({"json": VALUES}),
                    st.fixed_dictionaries({"document": paper}),
                ),
                max_size=2,
            ),
        },
        optional={"status": st.sampled_from(["success", "error"])},
    )
    said, mark = st.fixed_dictionaries({"text": TEXTS}), st.just({"cachePoint": {"type": "default"}})
    model = st.one_of(
        said,
        mark,
        st.fixed_dictionaries({"reasoningContent": st.fixed_dictionaries({"reasoningText": thought})}),
        st.fixed_dictionaries({"toolUse": use}),
    )
    user = st.one_of(
        said, mark, st.fixed_dictionaries({"toolResult": answer}), st.fixed_dictionaries({"document": paper})
    )
    return st.one_of(
        st.fixed_dictionaries({"role": st.just("assistant"), "content": st.lists(model, min_size=1, max_size=4)}),
        st.fixed_dictionaries({"role": st.just("user"), "content": st.lists(user, min_size=1, max_size=4)}),
    )


def starts() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"call_id": IDS, "name": NAMES, "arguments": VALUES})


def stored(seq: int, item: dict[str, Any]) -> Message | Entry:
    """Make what the log would hold, without a store."""
    if "call_id" in item and "role" not in item and "type" not in item:
        return Entry("b", seq, "call", 0, 0, msgspec.json.encode(item))
    recognised = forms.recognise(item)
    if not recognised:
        known = item if item["role"] != "tool" or "tool_results" in item else {**item, "tool_results": []}
        return Message("b", seq, 0, 0, codec.encode({k: v for k, v in known.items() if k in KEPT}))
    (found,) = recognised
    body = msgspec.json.encode({"role": found.role, "form": found.form})
    return Message("b", seq, 0, 0, body, encode_raw(found.value))


KEPT = ("role", "content", "status", "tool_calls", "tool_results")
LOGS = st.lists(st.one_of(ours(), anthropic(), chat(), responses(), gemini(), bedrock(), starts()), max_size=14)


@settings(max_examples=300, deadline=None)
@given(LOGS)
def test_any_mixture_is_valid_for_every_provider(log: list[dict[str, Any]]) -> None:
    sources = [stored(seq, item) for seq, item in enumerate(log, 1)]
    for provider in ALL:
        context = build(provider, sources)
        require_valid(context)
        assert as_sent(build(provider, sources)) == as_sent(context)


@settings(max_examples=100, deadline=None)
@pytest.mark.parametrize("provider", ALL)
@given(st.data())
def test_a_valid_context_comes_back_as_it_is(provider: str, data: st.DataObject) -> None:
    """What was sent once can be stored and sent again: repairing twice is repairing once."""
    log = data.draw(LOGS)
    first = build(provider, [stored(seq, item) for seq, item in enumerate(log, 1)])
    again = build(provider, [kept(seq, item, provider) for seq, item in enumerate(first.messages, 1)])
    assert dumped(again.messages) == dumped(first.messages)
