"""A model that follows a script, behind the real SDK clients: the examples need no network, no key and no money.

A script is a list of replies; a reply is a list of texts and tool calls ``(name, arguments)``. As with a real model,
the request alone decides which reply comes next: by how many answers the conversation contains. And like the real
providers, it answers 400 to a conversation in which a tool call has no result.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httpx2 as httpx  # the HTTP client of the SDKs; older ones use httpx

if TYPE_CHECKING:
    import anthropic
    import openai

Reply = list[str | tuple[str, dict[str, Any]]]


def anthropic_client(script: list[Reply]) -> anthropic.Anthropic:
    """Return a client of the anthropic SDK whose model follows the script."""
    import anthropic

    transport = httpx.MockTransport(_player(script, _as_anthropic, _open_in_anthropic))
    return anthropic.Anthropic(api_key="none", max_retries=0, http_client=httpx.Client(transport=transport))


def async_anthropic_client(script: list[Reply]) -> anthropic.AsyncAnthropic:
    """Return an async client of the anthropic SDK whose model follows the script."""
    import anthropic

    transport = httpx.MockTransport(_player(script, _as_anthropic, _open_in_anthropic))
    return anthropic.AsyncAnthropic(api_key="none", max_retries=0, http_client=httpx.AsyncClient(transport=transport))


def openai_client(script: list[Reply]) -> openai.OpenAI:
    """Return a client of the openai SDK whose model follows the script."""
    import openai

    transport = httpx.MockTransport(_player(script, _as_chat, _open_in_chat))
    return openai.OpenAI(api_key="none", max_retries=0, http_client=httpx.Client(transport=transport))


def _player(
    script: list[Reply], write: Callable[[int, Reply, str], Any], open_calls: Callable[[list[Any]], set[str]]
) -> Callable[[httpx.Request], httpx.Response]:
    def play(request: httpx.Request) -> httpx.Response:
        asked = json.loads(request.content)
        if unanswered := open_calls(asked["messages"]):
            message = f"tool calls without results: {', '.join(sorted(unanswered))}"
            return httpx.Response(400, json={"error": {"type": "invalid_request_error", "message": message}})
        turn = sum(message["role"] == "assistant" for message in asked["messages"])
        return httpx.Response(200, json=write(turn, script[turn], asked["model"]))

    return play


# ---------------------------------------------------------------------- Anthropic's format


def _as_anthropic(turn: int, reply: Reply, model: str) -> dict[str, Any]:
    blocks = list[dict[str, Any]]()
    for place, part in enumerate(reply):
        if isinstance(part, str):
            blocks.append({"type": "text", "text": part})
        else:
            blocks.append({"type": "tool_use", "id": f"toolu_{turn}{place}", "name": part[0], "input": part[1]})
    return {
        "id": f"msg_{turn}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": blocks,
        "stop_reason": "end_turn" if all(isinstance(part, str) for part in reply) else "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 400 + 150 * turn, "output_tokens": 30 * len(reply)},
    }


def _open_in_anthropic(messages: list[Any]) -> set[str]:
    """Return the calls that the next message does not answer."""
    unanswered = set[str]()
    for message, following in zip(messages, [*messages[1:], {"content": []}], strict=True):
        blocks = message["content"] if isinstance(message["content"], list) else []
        asked = {block["id"] for block in blocks if block["type"] == "tool_use"}
        answers = following["content"] if isinstance(following["content"], list) else []
        unanswered |= asked - {block["tool_use_id"] for block in answers if block["type"] == "tool_result"}
    return unanswered


# ---------------------------------------------------------------------- OpenAI's format


def _as_chat(turn: int, reply: Reply, model: str) -> dict[str, Any]:
    text = "\n".join(part for part in reply if isinstance(part, str)) or None
    calls = [
        {
            "id": f"call_{turn}{place}",
            "type": "function",
            "function": {"name": part[0], "arguments": json.dumps(part[1])},
        }
        for place, part in enumerate(reply)
        if not isinstance(part, str)
    ]
    said = {"role": "assistant", "content": text} | ({"tool_calls": calls} if calls else {})
    used = {"prompt_tokens": 400 + 150 * turn, "completion_tokens": 30 * len(reply)}
    return {
        "id": f"chatcmpl-{turn}",
        "object": "chat.completion",
        "created": 1_700_000_000 + turn,
        "model": model,
        "choices": [{"index": 0, "message": said, "finish_reason": "tool_calls" if calls else "stop"}],
        "usage": {**used, "total_tokens": sum(used.values())},
    }


def _open_in_chat(messages: list[Any]) -> set[str]:
    asked = {call["id"] for message in messages for call in message.get("tool_calls") or ()}
    return asked - {message["tool_call_id"] for message in messages if message["role"] == "tool"}
