"""Another model is not shown what only the first one can read; the same one gets back the bytes that it said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

import takeback
import takeback.testing.validators
from takeback import Session
from takeback.context.build import build
from takeback.context.models import is_other
from takeback.model.message import encode_raw
from takeback.providers.gemini.rules import UNSIGNED

from ._checks import ALL, context_of, dumped
from ._teller import SIGNED

pytestmark = pytest.mark.feature("F3")


def anthropic(model: str) -> dict[str, Any]:
    thoughts = [
        {"type": "thinking", "thinking": "SECRET", "signature": SIGNED},
        {"type": "redacted_thinking", "data": SIGNED},
    ]
    use = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}}
    said = {"type": "text", "text": "I look.", "citations": None}
    whole = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [*thoughts, said, use]}
    return {**whole, "stop_reason": "tool_use", "usage": {"input_tokens": 1, "output_tokens": 1}}


def chat(model: str) -> dict[str, Any]:
    call = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}
    message = {"role": "assistant", "content": "I look.", "reasoning_content": "SECRET", "tool_calls": [call]}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    return {"id": "chat_1", "object": "chat.completion", "created": 1, "model": model, "choices": [choice]}


def responses(model: str) -> dict[str, Any]:
    output = [
        {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "SECRET"}]},
        {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "a"}},
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
        },
        {
            "id": "fc_1",
            "type": "function_call",
            "call_id": "call_1",
            "name": "read",
            "arguments": '{"path": "a"}',
            "status": "completed",
        },
    ]
    return {"id": "resp_1", "object": "response", "created_at": 1, "model": model, "output": output}


def gemini(model: str) -> dict[str, Any]:
    parts = [
        {"text": "SECRET", "thought": True},
        {"text": "I look."},
        {"functionCall": {"name": "read", "args": {"path": "a"}}, "thoughtSignature": SIGNED},
    ]
    return {"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}], "modelVersion": model}


def bedrock(model: str) -> dict[str, Any]:
    content = [
        {"reasoningContent": {"reasoningText": {"text": "SECRET", "signature": SIGNED}}},
        {"reasoningContent": {"redactedContent": b"a signature"}},
        {"text": "I look."},
        {"toolUse": {"toolUseId": "tooluse_1", "name": "read", "input": {"path": "a"}}},
    ]
    return {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": "tool_use",
        "modelId": model,
    }


SAID = {
    "anthropic": anthropic,
    "bedrock": bedrock,
    "openai-chat": chat,
    "openai-responses": responses,
    "gemini": gemini,
}
# of each provider: the model that spoke, other names of the same one, another one
NAMES = {
    "anthropic": (
        "claude-sonnet-4-5-20250929",
        ("claude-sonnet-4-5", "anthropic/claude-sonnet-4.5"),
        "claude-opus-4-8",
    ),
    "openai-chat": ("deepseek-chat", ("deepseek/deepseek-chat",), "mistral-large-latest"),
    "openai-responses": ("gpt-5-2025-08-07", ("gpt-5", "openai/gpt-5"), "gpt-4.1"),
    "gemini": ("gemini-2.5-pro-002", ("gemini-2.5-pro", "models/gemini-2.5-pro"), "gemini-3-pro-preview"),
    "bedrock": (
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        ("anthropic.claude-sonnet-4-5-20250929-v1:0", "us-gov.anthropic.claude-sonnet-4-5-20250929-v1:0"),
        "amazon.nova-pro-v1:0",
    ),
}


def told(session: Session, provider: str) -> Session:
    session.user("Look.")
    session.append(SAID[provider](NAMES[provider][0]))
    session.tool_result(session.pending_calls()[0].id, "nothing there")
    return session


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("claude-sonnet-4-5", "claude-sonnet-4-5-20250929", False),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5@20250929", False),
        ("anthropic/claude-sonnet-4.5", "claude-sonnet-4-5", False),
        ("arn:aws:bedrock:us-east-1:1:inference-profile/eu.amazon.nova-pro-v1:0", "amazon.nova-pro-v1:0", False),
        ("amazon.nova-pro-v1:0", "amazon.nova-lite-v1:0", True),
        ("claude-sonnet-4-5", "claude-sonnet-4", True),
        ("claude-sonnet-4-5", "claude-opus-4-5", True),
        ("gpt-4o-2024-08-06", "gpt-4o", False),
        ("gpt-4o-2024-08-06", "gpt-4o-2024-05-13", True),
        ("gpt-5", "gpt-5-mini", True),
        ("gpt-4-0613", "gpt-4", False),
        ("models/gemini-2.5-flash", "gemini-2.5-flash-001", False),
        ("gemini-2.5-flash", "gemini-3-flash", True),
        ("mistral-large-latest", "mistral-large-2411", False),
        (None, "gpt-5", False),
        ("gpt-5", None, False),
        ("", "gpt-5", False),
    ],
)
def test_a_name_without_a_date_is_any_version_of_its_model(one: str | None, other: str | None, expected: bool) -> None:
    assert is_other(one, other) is expected
    assert is_other(other, one) is expected


@pytest.mark.parametrize("provider", ALL)
def test_another_model_is_not_shown_what_it_cannot_read(session: Session, provider: str) -> None:
    spoke, _, other = NAMES[provider]
    context = context_of(told(session, provider), provider, model=other)
    shown = dumped(context.messages).decode()
    assert "SECRET" not in shown
    assert SIGNED not in shown
    assert all(each in shown for each in ("I look.", "nothing there", "read"))
    assert f"left out what only {spoke} can read" in " ".join(context.repairs)


@pytest.mark.parametrize("provider", ALL)
def test_the_same_model_and_an_unknown_one_get_all_of_it(session: Session, provider: str) -> None:
    told(session, provider)
    spoke, names, _ = NAMES[provider]
    whole = context_of(session, provider)
    assert whole.repairs == ()
    assert "SECRET" in dumped(whole.messages).decode()
    for name in (spoke, *names):
        context = context_of(session, provider, model=name)
        assert dumped(context.messages) == dumped(whole.messages)
        assert context.repairs == ()


@pytest.mark.parametrize("provider", ALL)
def test_what_a_model_said_goes_back_byte_for_byte_after_a_restart(tmp_path: Path, provider: str) -> None:
    path, model = str(tmp_path / "a.db"), NAMES[provider][0]
    with takeback.open(path) as store:
        told(store.create_session("s"), provider)
    with takeback.open(path) as store:
        session = store.get_session("s")
        sent = b"".join(encode_raw(each) for each in context_of(session, provider, model=model).messages)
        for message in session.messages():
            if message.body.form == provider:
                value = msgspec.json.decode(message.raw or b"")
                body = value["content"] if provider == "anthropic" else value
                assert encode_raw(body) in sent


def test_responses_go_without_the_ids_that_belong_to_reasoning(session: Session) -> None:
    """The API says: Item 'fc_...' of type 'function_call' was provided without its required 'reasoning' item."""
    context = context_of(told(session, "openai-responses"), "openai-responses", model="gpt-4.1")
    said, call, output = context.messages[1:]
    assert "id" not in said
    assert said["content"] == [{"type": "output_text", "text": "I look.", "annotations": []}]
    assert call["call_id"] == output["call_id"] == "call_1"
    assert "id" not in call
    assert "web_search_call" not in dumped(context.messages).decode()


def test_gemini_wants_a_signature_where_another_model_called(session: Session) -> None:
    context = context_of(told(session, "gemini"), "gemini", model="gemini-3-pro-preview")
    assert context.messages[1]["parts"][-1]["thoughtSignature"] == UNSIGNED
    context = context_of(session, "gemini", model="gemini-2.0-flash")
    assert "thoughtSignature" not in context.messages[1]["parts"][-1]


def test_openais_models_are_sent_no_reasoning_of_others(session: Session) -> None:
    """Nobody else is known to have said it, but OpenAI never puts reasoning beside the content."""
    session.user("Look.")
    session.append({"role": "assistant", "content": "I look.", "reasoning_content": "SECRET"})
    context = context_of(session, "openai-chat", model="gpt-5")
    assert context.messages[-1] == {"role": "assistant", "content": "I look."}
    assert context.repairs == ("left out what only another model can read (message 2)",)
    assert "SECRET" in dumped(context_of(session, "openai-chat", model="kimi-k2").messages).decode()


def test_reasoning_that_was_erased_takes_the_ids_with_it(session: Session) -> None:
    told(session, "openai-responses")
    kept = [message for message in session.messages() if b"rs_1" not in (message.raw or b"")]
    erased = takeback.Message(kept[0].branch, 2, 1, 0, None)
    context = build("openai-responses", [kept[0], erased, *kept[2:]])
    assert not any("id" in item for item in context.messages)
    assert "sent an answer without its id, which belongs to reasoning that is gone (messages 4, 5)" in context.repairs


def test_reasoning_that_cannot_be_sent_takes_the_ids_with_it(session: Session) -> None:
    """Reasoning that lies at OpenAI names what follows it by id; a call that is written anew has none."""
    session.user("Look.")
    call = {"type": "function_call", "name": "read", "arguments": "{}"}
    session.append({"type": "reasoning", "id": "rs_1", "summary": []})
    session.append({**call, "id": "fc_1", "call_id": "i" * 70}, {**call, "id": "fc_2", "call_id": "call_2"})
    context = context_of(session, "openai-responses")
    assert not any("id" in item for item in context.messages)
    assert "left out reasoning that nothing follows (message 2)" in context.repairs


@pytest.mark.parametrize("provider", ALL)
def test_half_an_answer_is_followed_by_a_word_of_the_user(session: Session, provider: str) -> None:
    """Newer models refuse to go on with the last message of an assistant; what was sent then stays so later."""
    session.user("Tell me.")
    session.append({"role": "assistant", "content": "Once upon", "status": "interrupted"})
    models = {"anthropic": "claude-opus-4-8", "gemini": "gemini-3.5-pro"}
    context = session.context(provider, model=models.get(provider))
    assert takeback.testing.validators.problems(provider, context.request()) == []
    assert "added a user message after a partial answer (message 2)" in context.repairs
    session.append({"role": "assistant", "content": "a time."})
    later = context_of(session, provider)
    assert dumped(later.messages[: len(context.messages)]) == dumped(context.messages)
    assert len(later.messages) == len(context.messages) + 1


@pytest.mark.parametrize("provider", ALL)
def test_a_finished_answer_ends_a_context_as_it_is(session: Session, provider: str) -> None:
    session.user("Hi")
    session.assistant("Hello.")
    context = context_of(session, provider)
    assert len(context.messages) == 2
    assert context.repairs == ()
