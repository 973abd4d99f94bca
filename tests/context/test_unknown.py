"""Fields and types that a provider does not know are left out of what it is sent, and said; nothing else is touched."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from takeback import Invalid, Session

from ._checks import ALL, context_of, dumped

pytestmark = [pytest.mark.feature("F3"), pytest.mark.promise("R18")]
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
_FREE = frozenset({"input", "args", "response", "json", "arguments", "partMetadata", "environment"})

CITED = {
    "type": "char_location",
    "cited_text": "A",
    "document_index": 0,
    "document_title": "T",
    "start_char_index": 0,
    "end_char_index": 1,
}
WEB_RESULT = {"type": "web_search_result", "url": "https://x.org", "title": "X", "encrypted_content": "e"}
CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "anthropic": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Go", "cache_control": {"type": "ephemeral"}},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                {
                    "type": "document",
                    "source": {"type": "url", "url": "https://x.org/a.pdf"},
                    "citations": {"enabled": True},
                },
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                {"type": "text", "text": "A", "citations": [CITED]},
                {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
                {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [WEB_RESULT]},
                {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"a": 1}, "caller": {"type": "direct"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "B"}]},
            ],
        },
    ],
    "openai-chat": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Go"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "low"}},
            ],
        },
        {
            "role": "assistant",
            "content": "A",
            "refusal": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "B"}]},
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "name": "ann", "content": "And?"},
    ],
    "openai-responses": [
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Go"},
                {"type": "input_image", "detail": "low", "image_url": f"data:image/png;base64,{PNG}"},
            ],
        },
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "Hm."}],
            "content": [{"type": "reasoning_text", "text": "Hm."}],
            "encrypted_content": "e",
        },
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [
                {
                    "type": "output_text",
                    "text": "A",
                    "annotations": [
                        {"type": "url_citation", "url": "https://x.org", "title": "X", "start_index": 0, "end_index": 1}
                    ],
                    "logprobs": [],
                }
            ],
        },
        {
            "type": "web_search_call",
            "id": "ws_1",
            "status": "completed",
            "action": {"type": "search", "query": "x", "sources": [{"type": "url", "url": "https://x.org"}]},
        },
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "c1",
            "name": "read",
            "arguments": "{}",
            "status": "completed",
        },
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "B"}]},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
    ],
    "gemini": [
        {"role": "user", "parts": [{"text": "Go"}, {"inlineData": {"mimeType": "image/png", "data": PNG}}]},
        {
            "role": "model",
            "parts": [
                {"text": "Hm.", "thought": True},
                {"executableCode": {"code": "1", "language": "PYTHON"}},
                {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
                {"functionCall": {"id": "c1", "name": "read", "args": {"a": 1}}, "thoughtSignature": "c2ln"},
            ],
        },
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "id": "c1",
                        "name": "read",
                        "response": {"output": "B"},
                        "parts": [{"inlineData": {"mimeType": "image/png", "data": PNG}}],
                    }
                }
            ],
        },
    ],
    "bedrock": [
        {
            "role": "user",
            "content": [
                {"text": "Go"},
                {"image": {"format": "png", "source": {"bytes": PNG}}},
                {"document": {"format": "pdf", "name": "plan", "source": {"s3Location": {"uri": "s3://bucket/a.pdf"}}}},
                {"cachePoint": {"type": "default"}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "s"}}},
                {"text": "A"},
                {"citationsContent": {"content": [{"text": "A"}], "citations": [{"location": {"web": {"url": "x"}}}]}},
                {"toolUse": {"toolUseId": "t1", "name": "read", "input": {"a": 1}}},
            ],
        },
        {
            "role": "user",
            "content": [{"toolResult": {"toolUseId": "t1", "content": [{"text": "B"}, {"json": {"a": 1}}]}}],
        },
    ],
}


def places(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of a message that the provider defines; what tools are asked and give is anybody's."""
    if isinstance(value, dict):
        yield value
        for key, inner in value.items():
            if key not in _FREE:
                yield from places(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from places(inner)


def damaged(conversation: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield a conversation with a field of nobody's in each of its places, one at a time."""
    count = sum(1 for _ in places(conversation))
    for number in range(count):
        made = copy.deepcopy(conversation)
        [*places(made)][number]["zz_own"] = {"a": 1}
        yield made


@pytest.mark.trial("T64")
@pytest.mark.parametrize("provider", ALL)
def test_an_unknown_field_is_left_out_wherever_it_is_and_said(session: Session, provider: str) -> None:
    session.append(*CONVERSATIONS[provider])
    whole = context_of(session, provider)
    assert not whole.repairs
    for number, conversation in enumerate(damaged(CONVERSATIONS[provider])):
        other = session._store.create_session(f"{number}", agent="coder")
        other.append(*conversation)
        context = context_of(other, provider)
        assert dumped(context.messages) == dumped(whole.messages), conversation
        (said,) = context.repairs
        assert said.startswith(f"left out fields that {provider} does not know: zz_own (message")


@pytest.mark.trial("T64")
@pytest.mark.parametrize("provider", ALL)
def test_what_has_nothing_unknown_goes_out_as_it_was_stored(session: Session, provider: str) -> None:
    session.append(*CONVERSATIONS[provider])
    assert dumped(context_of(session, provider).messages) == dumped(CONVERSATIONS[provider])


@pytest.mark.trial("T64")
@pytest.mark.parametrize("provider", ALL)
def test_one_message_with_an_unknown_field_leaves_the_others_alone(session: Session, provider: str) -> None:
    asked = {
        "anthropic": {"role": "user", "content": [{"type": "text", "text": "Go", "citations": None}]},
        "openai-chat": {"role": "user", "content": "Go", "name": "ann"},
        "openai-responses": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go"}]},
        "gemini": {"role": "user", "parts": [{"text": "Go"}]},
        "bedrock": {"role": "user", "content": [{"text": "Go"}]},
    }[provider]
    for turn in range(8):
        session.append({**asked, "zz_own": 1} if turn == 1 else asked, {"role": "assistant", "content": "Yes."})
    context = context_of(session, provider)
    assert all(message == asked for message in context.messages[::2])
    assert context.repairs == (f"left out fields that {provider} does not know: zz_own (message 3)",)


LITELLM = {
    "role": "assistant",
    "content": "A",
    "tool_calls": None,
    "function_call": None,
    "provider_specific_fields": {"refusal": None},
}


@pytest.mark.trial("T64")
def test_what_gateways_and_programs_add_is_left_out(session: Session) -> None:
    session.user("Go", metadata={"own": 1})
    session.append(LITELLM)
    session.append({"role": "user", "content": [{"type": "text", "text": "And?", "uuid": "u"}], "timestamp": 1})
    for provider in ALL:
        context = context_of(session, provider)
        assert b"specific" not in dumped(context.messages)
        assert [each.what.rpartition(": ")[2] for each in context.repairs] == [
            "provider_specific_fields",
            "timestamp, uuid",
        ]


@pytest.mark.trial("T64")
def test_a_tools_name_is_no_field_of_a_chat_result(session: Session) -> None:
    session.append(*CONVERSATIONS["openai-chat"][:2])
    session.append({"role": "tool", "tool_call_id": "c1", "name": "read", "content": "B"})
    context = context_of(session, "openai-chat")
    assert context.messages[-1] == {"role": "tool", "tool_call_id": "c1", "content": "B"}
    assert context.repairs == ("left out fields that openai-chat does not know: name (message 3)",)


# ---------------------------------------------------------------------- unknown types, calls without ids

NEW: dict[str, dict[str, Any]] = {
    "anthropic": {"role": "assistant", "content": [{"type": "hologram", "data": "x"}, {"type": "text", "text": "A"}]},
    "openai-chat": {"role": "assistant", "content": [{"type": "hologram", "data": "x"}, {"type": "text", "text": "A"}]},
    "openai-responses": {"type": "hologram", "id": "h_1", "data": "x"},
    "gemini": {"role": "model", "parts": [{"hologram": {"data": "x"}}, {"text": "A"}]},
    "bedrock": {"role": "assistant", "content": [{"text": "A"}, {"text": "B", "hologram": {"data": "x"}}]},
}


@pytest.mark.trial("T63", "T64")
@pytest.mark.parametrize("form", ALL)
def test_what_has_an_unknown_type_is_kept_and_not_sent(session: Session, form: str) -> None:
    session.user("Go")
    (stored,) = session.append(NEW[form])
    kept = NEW[form]["content"] if stored.raw is None else json.loads(stored.raw)
    assert kept == (stored.content if stored.raw is None else NEW[form])
    for provider in ALL:
        context = context_of(session, provider)
        assert b"hologram" not in dumped(context.messages)
        assert any("hologram" in each for each in context.repairs), provider


@pytest.mark.trial("T63")
@pytest.mark.parametrize(
    "item", [{"type": "text", "text": "A"}, {"type": "response.created"}, {"type": "message_start"}]
)
def test_a_part_or_an_event_of_a_stream_is_no_item(session: Session, item: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        session.append(item)


def nameless_calls(form: str, count: int) -> list[dict[str, Any]]:
    """Return an answer with calls that have no ids, and a result of each."""
    if form == "ours":
        calls = [{"id": "", "name": "read", "arguments": {"n": n}} for n in range(count)]
        results = [{"role": "tool", "content": f"R{n}", "tool_results": [{"call_id": ""}]} for n in range(count)]
        return [{"role": "assistant", "content": "", "tool_calls": calls}, *results]
    if form == "openai-chat":
        function = {"name": "read", "arguments": "{}"}
        calls = [{"id": "", "type": "function", "function": function} for _ in range(count)]
        results = [{"role": "tool", "tool_call_id": "", "content": f"R{n}"} for n in range(count)]
        return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]
    uses = [{"type": "tool_use", "id": "", "name": "read", "input": {}} for _ in range(count)]
    blocks = [{"type": "tool_result", "tool_use_id": "", "content": f"R{n}"} for n in range(count)]
    return [{"role": "assistant", "content": uses}, {"role": "user", "content": blocks}]


@pytest.mark.trial("T63")
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("form", ["ours", "openai-chat", "anthropic"])
def test_results_without_ids_belong_to_calls_without_ids_by_their_places(
    session: Session, form: str, count: int
) -> None:
    session.user("Go")
    session.append(*nameless_calls(form, count))
    assert [(call.status, call.id) for call in session.tool_calls()] == [
        ("completed", f"call-{n}") for n in range(count)
    ]
    assert not session.pending_calls()
    for provider in ALL:
        context = context_of(session, provider)
        shown = dumped(context.messages).decode()
        assert [shown.count(f"R{n}") for n in range(count)] == [1] * count
        assert "interrupted" not in shown
        assert not any("dropped" in each for each in context.repairs)
    assert not session._store.verify()


@pytest.mark.trial("T63")
def test_a_result_without_an_id_is_not_guessed_to_belong_to_one_of_several(session: Session) -> None:
    calls = [{"id": name, "name": "read", "arguments": {}} for name in ("a", "b")]
    session.user("Go")
    session.append({"role": "assistant", "content": "", "tool_calls": calls})
    session.append({"role": "tool", "tool_call_id": "", "content": "R"})
    assert [call.id for call in session.pending_calls()] == ["a", "b"]
    for provider in ALL:
        context = context_of(session, provider)
        assert "dropped a result without a call (message 3)" in context.repairs
    session.tool_result("a", "A")
    session.append({"role": "tool", "tool_call_id": "", "content": "the only one left"})
    assert not session.pending_calls()
    assert not session._store.verify()
