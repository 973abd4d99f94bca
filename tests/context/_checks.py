"""What the providers demand, checked twice: by the SDKs' own input types and by their documented rules."""

from __future__ import annotations

import json
import re
from typing import Any

import pydantic
from anthropic.types import MessageParam
from google.genai import types as gemini
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputItemParam

from holdfast import Session
from holdfast.context import PROVIDERS, Context

ALL = tuple(PROVIDERS)
_ANTHROPIC = pydantic.TypeAdapter(list[MessageParam])
_CHAT = pydantic.TypeAdapter(list[ChatCompletionMessageParam])
_RESPONSES = pydantic.TypeAdapter(list[ResponseInputItemParam])
_CONTENTS = pydantic.TypeAdapter(list[gemini.Content])


def context_of(session: Session, provider: str, **options: Any) -> Context:
    """Give a context that is valid, the same at a second look, and nothing that a store could not hold."""
    found = session.context(provider, **options)
    require_valid(found)
    assert dumped(session.context(provider, **options).request()) == dumped(found.request())
    return found


def dumped(value: Any) -> bytes:
    """Write JSON as a client would; what JSON or UTF-8 cannot hold fails."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


def require_valid(context: Context) -> None:
    """Check a context by its provider's types and rules."""
    dumped(context.request())
    {
        "anthropic": _anthropic,
        "openai-chat": _chat,
        "openai-responses": _responses,
        "gemini": _gemini,
    }[context.provider](context.messages)


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _anthropic(messages: list[Any]) -> None:
    _ANTHROPIC.validate_python(messages)
    seen, waiting = set[str](), list[str]()
    for number, message in enumerate(messages):
        assert set(message) == {"role", "content"}
        assert message["role"] == ("user", "assistant")[number % 2]
        blocks = _blocks(message)
        assert blocks
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert sorted(results) == sorted(waiting), "every call has its result in the next message"
        assert all(block["type"] == "tool_result" for block in blocks[: len(results)]), "results come first"
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert not seen & {*waiting}
        assert len({*waiting}) == len(waiting)
        seen |= {*waiting}
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]+", each) for each in waiting)
        for block in blocks:
            _anthropic_block(block)
        if message["role"] == "assistant":
            assert blocks[-1]["type"] not in ("thinking", "redacted_thinking")
    assert not waiting
    if messages and messages[-1]["role"] == "assistant" and _blocks(messages[-1])[-1]["type"] == "text":
        last = _blocks(messages[-1])[-1]["text"]
        assert last == last.rstrip()


def _anthropic_block(block: dict[str, Any]) -> None:
    if block["type"] == "text":
        assert block["text"].strip()
    if block["type"] == "tool_use":
        assert isinstance(block["input"], dict)
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", block["name"])
    if block["type"] == "tool_result" and isinstance(block.get("content"), list):
        assert all(inner["type"] != "text" or inner["text"].strip() for inner in block["content"])


def _chat(messages: list[Any]) -> None:
    _CHAT.validate_python(messages)
    waiting = list[str]()
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] in waiting, "a result follows its call"
            waiting.remove(message["tool_call_id"])
            continue
        if message["role"] == "function":
            continue
        assert not waiting, "all results come before anybody speaks"
        calls = message.get("tool_calls", ())
        assert message.get("content") or calls or message.get("function_call") or message.get("refusal")
        assert "tool_calls" not in message or calls
        waiting = [call["id"] for call in calls]
        assert len({*waiting}) == len(waiting)
        assert all(0 < len(each) <= 40 for each in waiting)
    assert not waiting


def _responses(items: list[Any]) -> None:
    _RESPONSES.validate_python(items)
    open_calls = list[str]()
    for number, item in enumerate(items):
        name = item.get("type", "message")
        if name.endswith("_call_output"):
            open_calls.remove(item.get("call_id") or item["id"])
        elif name in ("function_call", "custom_tool_call", "shell_call", "local_shell_call", "apply_patch_call"):
            assert item["call_id"] not in open_calls
            open_calls.append(item["call_id"])
            assert 0 < len(item["call_id"]) <= 64
        elif name == "message" and item["role"] == "user":
            assert not open_calls, "all results come before the user speaks"
            assert item["content"]
        elif name == "reasoning":
            following = items[number + 1]
            assert following.get("role", "assistant") == "assistant"
            assert not following["type"].endswith("_output")
    assert not open_calls


def _gemini(contents: list[Any]) -> None:
    _CONTENTS.validate_python(contents)
    waiting = list[tuple[str, str | None]]()
    for number, content in enumerate(contents):
        assert set(content) == {"role", "parts"}
        assert content["role"] == ("user", "model")[number % 2]
        assert content["parts"]
        answers = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        assert [(answer["name"], answer.get("id") or None) for answer in answers] == waiting, (
            "responses in the order of calls"
        )
        assert all(isinstance(answer["response"], dict) for answer in answers)
        calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        waiting = [(call["name"], call.get("id") or None) for call in calls]
        assert all(part.get("text") != "" for part in content["parts"])
    assert not waiting
