"""What is plainly right in a message of OpenAI's, of either API: as ``glances``, which tells what that means."""

from __future__ import annotations

from typing import Any

from . import openai_chat, openai_responses
from .blocks import REASONING
from .glance import Judge, arguments_of, given_by_tool, is_said, texts_of
from .normal import Call, as_json
from .steps import Answer, Step
from .tokens import MESSAGE, Count


def of_chat(value: dict[str, Any], role: str, count: Count) -> Step | None:
    """Judge a chat message: text, reasoning beside it, calls of functions; or a result."""
    if value.get("role") != role:
        return None
    if role == "tool":
        return _chat_result(value, count)
    content, asked, tokens, tied = value.get("content"), value.get("tool_calls") or [], MESSAGE, False
    calls: list[Call] = []
    if type(content) is str and content:
        tokens += count(content)
    elif content:
        said = texts_of(content, "text")
        if said is None:
            return None
        tokens += sum(map(count, said))
    elif not asked:
        return None
    for call in asked if type(asked) is list else ({},):
        function = call.get("function") if type(call) is dict and len(call) == 3 else None
        if type(function) is not dict or len(function) != 2 or call.get("type") != "function":
            return None
        id, name, arguments = call.get("id"), function.get("name"), arguments_of(function.get("arguments"))
        if type(id) is not str or not id or type(name) is not str or arguments is None:
            return None
        calls.append(Call(id, name, arguments, form="openai-chat", raw=call))
        tokens += count(name) + count(as_json(arguments))
    if len(value) == 2 + bool(asked) and "content" in value and (role == "assistant" or not asked):  # what most are
        return Step(role, tokens, value, bool(content), calls)
    if role == "user" or not value.keys() <= _CHAT or any(value.get(key) is not None for key in _ABSENT):
        return None
    if beside := {key: value[key] for key in REASONING if value.get(key) is not None}:
        tied = True
        tokens += count(as_json(beside))
    return Step(role, tokens, openai_chat.sendable(value), bool(content), calls, (), 0, tied)


_ABSENT = ("refusal", "audio", "function_call")
_CHAT = {"role", "content", "tool_calls", "annotations", *_ABSENT, *REASONING}


def _chat_result(value: dict[str, Any], count: Count) -> Step | None:
    given, id, size = given_by_tool(value.get("content"), "text", False, count), value.get("tool_call_id"), len(value)
    if given is None or type(id) is not str or not id or size != 3 + ("name" in value):
        return None
    return Step("tool", 2 * MESSAGE + given[0], value, False, (), (Answer(id),), given[1])


def of_responses(value: dict[str, Any], role: str, count: Count) -> Step | None:
    """Judge an item of Responses: a message, a call of a function, its output, or reasoning."""
    if value.get("id") is not None and not openai_responses.has_right_id(value):
        return None
    name = value.get("type") or "message"
    judge = _ITEMS.get(name) if type(name) is str else None
    return None if judge is None else judge(value, role, count)


def _said_item(value: dict[str, Any], role: str, count: Count) -> Step | None:
    if role not in ("user", "assistant") or value.get("role") != role:
        return None
    content, tokens, wanted = value.get("content"), MESSAGE, "output_text" if role == "assistant" else "input_text"
    blocks = [{"type": wanted, "text": content}] if type(content) is str else content
    for block in blocks if type(blocks) is list else ():
        text = block.get("text") if type(block) is dict and block.get("type") == wanted else None
        if not is_said(text, False):
            return None
        tokens += count(text)
    if not content or not blocks or type(blocks) is not list:
        return None
    return Step(role, tokens, openai_responses.sendable(value), True, tied="id" in value, id=value.get("id"))


def _call_item(value: dict[str, Any], role: str, count: Count) -> Step | None:
    id, name, asked = value.get("call_id"), value.get("name"), arguments_of(value.get("arguments"))
    if role != "assistant" or type(id) is not str or not id or type(name) is not str or not name or asked is None:
        return None
    tokens = MESSAGE + count(name) + count(as_json(asked))
    call = Call(id, name, asked, form="openai-responses", raw=value)
    message = openai_responses.sendable(value)
    return Step(role, tokens, message, False, (call,), (), 0, "id" in value, False, value.get("id"))


def _output_item(value: dict[str, Any], role: str, count: Count) -> Step | None:
    given, id = given_by_tool(value.get("output"), "input_text", False, count), value.get("call_id")
    if role != "tool" or given is None or type(id) is not str or not id:
        return None
    message = openai_responses.sendable(value)
    return Step(role, 2 * MESSAGE + given[0], message, False, (), (Answer(id),), given[1], id=value.get("id"))


def _reasoning_item(value: dict[str, Any], role: str, count: Count) -> Step | None:
    if role != "assistant":
        return None
    leads = "any" if openai_responses.stands_alone(value) else "id"
    message, tokens = openai_responses.sendable(value), MESSAGE + count(as_json(value))
    return Step(role, tokens, message, tied=True, id=value.get("id"), leads=leads)


_ITEMS: dict[Any, Judge] = {
    "message": _said_item,
    "function_call": _call_item,
    "function_call_output": _output_item,
    "reasoning": _reasoning_item,
}
