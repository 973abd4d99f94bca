"""Real tool loops: each provider's own objects go in, the next request comes out, and the SDK takes it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from anthropic.types import Message as AnthropicMessage
from botocore.awsrequest import AWSResponse
from botocore.session import Session as BotoSession
from google import genai
from google.genai import types as gemini
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from takeback import Session
from takeback.model.message import encode_raw

from ._checks import ALL, context_of, dumped

pytestmark = pytest.mark.feature("F3")
CALLS = (("bash", {"command": "ls", "all": None}), ("read", {"path": "ä.py", "lines": [1, 2.5]}))


def anthropic_reply(turn: int, calls: bool) -> Any:
    content: list[dict[str, Any]] = [{"signature": "c2ln", "thinking": "Hm.", "type": "thinking"}]
    content.append({"citations": None, "text": f"Turn {turn}.", "type": "text"})
    for number, (name, arguments) in enumerate(CALLS if calls else ()):
        content.append({"id": f"toolu_{turn}_{number}", "input": arguments, "name": name, "type": "tool_use"})
    return AnthropicMessage.model_validate(
        {
            "id": f"msg_{turn}",
            "content": content,
            "model": "claude-x",
            "role": "assistant",
            "stop_reason": "tool_use" if calls else "end_turn",
            "stop_sequence": None,
            "type": "message",
            "usage": {"input_tokens": 1, "output_tokens": 2},
        }
    )


def chat_reply(turn: int, calls: bool) -> Any:
    message: dict[str, Any] = {"role": "assistant", "content": None if calls else f"Turn {turn}.", "refusal": None}
    if calls:
        message["tool_calls"] = [
            {
                "id": f"call_{turn}_{number}",
                "function": {"arguments": json.dumps(given), "name": name},
                "type": "function",
            }
            for number, (name, given) in enumerate(CALLS)
        ]
    choice = {"finish_reason": "stop", "index": 0, "logprobs": None, "message": message}
    reply = {"id": f"chat_{turn}", "choices": [choice], "created": 1, "model": "gpt-x", "object": "chat.completion"}
    return ChatCompletion.model_validate(reply)


def responses_reply(turn: int, calls: bool) -> Any:
    output: list[dict[str, Any]] = [
        {"id": f"rs_{turn}_{calls:d}", "summary": [], "type": "reasoning", "encrypted_content": "x"}
    ]
    if calls:
        output += [
            {
                "arguments": json.dumps(given),
                "call_id": f"call_{turn}_{number}",
                "name": name,
                "type": "function_call",
                "id": f"fc_{turn}_{number}",
                "status": "completed",
            }
            for number, (name, given) in enumerate(CALLS)
        ]
    else:
        text = {"annotations": [], "text": f"Turn {turn}.", "type": "output_text"}
        output.append(
            {"id": f"msg_{turn}", "content": [text], "role": "assistant", "status": "completed", "type": "message"}
        )
    reply = {"id": f"resp_{turn}", "created_at": 1, "model": "gpt-x", "object": "response", "output": output}
    return Response.model_validate({**reply, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []})


def gemini_reply(turn: int, calls: bool) -> Any:
    parts: list[dict[str, Any]] = [{"text": "Hm.", "thought": True}]
    if calls:
        parts += [{"functionCall": {"name": name, "args": given}} for name, given in CALLS]
        parts[1]["thoughtSignature"] = "c2ln"
    else:
        parts.append({"text": f"Turn {turn}.", "thoughtSignature": "c2ln"})
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
    return gemini.GenerateContentResponse.model_validate({"candidates": [candidate], "modelVersion": "gemini-x"})


def bedrock_reply(turn: int, calls: bool) -> Any:
    content: list[dict[str, Any]] = [
        {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "c2ln"}}},
        {"reasoningContent": {"redactedContent": b"sealed"}},
        {"text": f"Turn {turn}."},
    ]
    for number, (name, given) in enumerate(CALLS if calls else ()):
        content.append({"toolUse": {"toolUseId": f"tooluse_{turn}_{number}", "name": name, "input": given}})
    return {
        "ResponseMetadata": {"RequestId": f"r{turn}", "HTTPStatusCode": 200},
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": "tool_use" if calls else "end_turn",
        "usage": {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3},
        "metrics": {"latencyMs": 4},
    }


REPLIES: dict[str, Callable[[int, bool], Any]] = {
    "anthropic": anthropic_reply,
    "openai-chat": chat_reply,
    "openai-responses": responses_reply,
    "gemini": gemini_reply,
    "bedrock": bedrock_reply,
}


def play(session: Session, provider: str, turn: int) -> None:
    """Play a turn as the quick start does."""
    session.user(f"Do {turn}")
    session.append(REPLIES[provider](turn, True))
    for call in session.pending_calls():
        with session.tool(call) as running:
            running.result(f"{call.name} ran")
    session.append(REPLIES[provider](turn, False))


@pytest.mark.parametrize("provider", ALL)
def test_a_loop_needs_no_repair(session: Session, provider: str) -> None:
    for turn in range(3):
        play(session, provider, turn)
    context = context_of(session, provider)
    assert context.repairs == ()
    assert context.omitted == ()
    assert context.system == "You fix code."
    assert context.tokens


@pytest.mark.parametrize("provider", ALL)
def test_what_the_provider_said_goes_back_byte_for_byte(session: Session, provider: str) -> None:
    for turn in range(2):
        play(session, provider, turn)
    sent = {encode_raw(message) for message in context_of(session, provider).messages}
    for message in session.messages():
        if message.raw is None:
            continue
        given = json.loads(message.raw)
        if provider == "anthropic":
            given = {key: given[key] for key in given if key in ("role", "content")}
            assert encode_raw(given) in sent
        else:
            assert message.raw in sent


@pytest.mark.parametrize("provider", ALL)
def test_a_longer_log_gives_the_same_bytes_in_front(session: Session, provider: str) -> None:
    """Or the provider's cache is lost."""
    play(session, provider, 0)
    before = context_of(session, provider).messages
    play(session, provider, 1)
    assert dumped(context_of(session, provider).messages[: len(before)]) == dumped(before)


@pytest.mark.parametrize("provider", ALL)
@pytest.mark.parametrize("written_by", ALL)
def test_every_prefix_is_valid_for_every_provider(session: Session, written_by: str, provider: str) -> None:
    for turn in range(2):
        play(session, written_by, turn)
    for seq in range(session.head.seq, -1, -1):
        session.rewind(seq)
        context_of(session, provider)


@pytest.mark.parametrize("provider", ALL)
def test_the_provider_may_change_at_any_time(session: Session, provider: str) -> None:
    for turn, other in enumerate((*ALL, *reversed(ALL))):
        play(session, other, turn)
    context = context_of(session, provider)
    said = " ".join(context.repairs)
    assert not any(word in said for word in ("closed", "dropped", "moved", "joined", "removed"))
    shown = dumped(context.messages).decode()
    assert all(f"Turn {turn}." in shown for turn in range(2 * len(ALL)))
    assert shown.count("bash ran") == 2 * len(ALL)


@pytest.mark.parametrize("provider", ALL)
def test_results_in_the_providers_own_form_go_back_as_they_are(session: Session, provider: str) -> None:
    session.user("Do it")
    session.append(REPLIES[provider](0, True))
    first, second = (call.id for call in session.pending_calls())
    given: dict[str, list[dict[str, Any]]] = {
        "anthropic": [
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": second, "content": "b"},
                    {"type": "tool_result", "tool_use_id": first, "content": [{"type": "text", "text": "a"}]},
                ],
            }
        ],
        "openai-chat": [{"tool_call_id": each, "role": "tool", "content": each} for each in (first, second)],
        "openai-responses": [
            {"output": each, "call_id": each, "type": "function_call_output"} for each in (first, second)
        ],
        "gemini": [
            {"role": "user", "parts": [{"functionResponse": {"name": name, "response": {"n": 1}}} for name, _ in CALLS]}
        ],
        "bedrock": [
            {
                "role": "user",
                "content": [
                    {"toolResult": {"toolUseId": second, "content": [{"json": {"b": 1}}]}},
                    {"toolResult": {"toolUseId": first, "content": [{"text": "a"}], "status": "error"}},
                ],
            }
        ],
    }
    session.append(*given[provider])
    context = context_of(session, provider)
    assert context.repairs == ()
    assert dumped(context.messages[-len(given[provider]) :]) == dumped(given[provider])
    for other in ALL:
        context_of(session, other)


# ---------------------------------------------------------------------- the SDKs themselves


def answering(reply: Any, seen: list[Any]) -> httpx2.Client:
    """Return an HTTP client whose server always gives the same reply."""

    def handle(request: Any) -> Any:
        seen.append(json.loads(request.content))
        return httpx2.Response(200, json=reply.model_dump(mode="json", by_alias=True, exclude_unset=True))

    return httpx2.Client(transport=httpx2.MockTransport(handle))


def converse(request: dict[str, Any], reply: Any, seen: list[Any]) -> Any:
    """Call the real botocore, which validates, writes and reads; only the wire is not there."""

    def send(request: Any, **_: Any) -> AWSResponse:
        seen.append(json.loads(request.body))
        body = json.loads(dumped({key: value for key, value in reply.items() if key != "ResponseMetadata"}))
        answer = AWSResponse(request.url, 200, {"Content-Type": "application/json"}, None)
        answer._content = json.dumps(body).encode()
        return answer

    keys = {"aws_access_key_id": "k", "aws_secret_access_key": "k"}
    client = BotoSession().create_client("bedrock-runtime", region_name="us-east-1", **keys)
    client.meta.events.register("before-send.bedrock-runtime.Converse", send)
    return client.converse(**request)


def ask(provider: str, session: Session, reply: Any, seen: list[Any]) -> Any:
    request = context_of(session, provider, model="m").request()
    if provider == "bedrock":
        return converse(request, reply, seen)
    http = answering(reply, seen)
    if provider == "anthropic":
        return anthropic.Anthropic(api_key="k", http_client=http).messages.create(**request, max_tokens=9)
    if provider == "openai-chat":
        return openai.OpenAI(api_key="k", http_client=http).chat.completions.create(**request)
    if provider == "openai-responses":
        return openai.OpenAI(api_key="k", http_client=http).responses.create(**request)
    options = gemini.HttpOptions(httpx_client=http)
    return genai.Client(api_key="k", http_options=options).models.generate_content(**request)


@pytest.mark.parametrize("provider", ALL)
def test_the_quick_start_runs_on_the_real_sdk(session: Session, provider: str) -> None:
    seen = list[Any]()
    session.user("Fix the flaky test")
    session.append(ask(provider, session, REPLIES[provider](0, True), seen))
    for call in session.pending_calls():
        with session.tool(call) as running:
            running.result("ran")
    session.append(ask(provider, session, REPLIES[provider](0, False), seen))
    assert len(session.tool_calls()) == 2
    assert "You fix code." in json.dumps(seen[1])
    assert json.dumps(seen[1]).count('"ran"') == 2
    context_of(session, provider)
