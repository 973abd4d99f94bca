"""What is plainly right in a stored chat message."""

from __future__ import annotations

from typing import Any

from ..glance import MESSAGE, Answer, Count, GlancedMessage, arguments_of, given_by_tool, texts_of
from ..normal import Call, as_json
from .form import FORM, REASONING
from .write import sendable


def judge(value: dict[str, Any], role: str, count: Count) -> GlancedMessage | None:
    """Judge a chat message: text, reasoning beside it, calls of functions; or a result."""
    if value.get("role") != role:
        return None
    if role == "tool":
        return _result(value, count)
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
        calls.append(Call(id, name, arguments, form=FORM, raw=call))
        tokens += count(name) + count(as_json(arguments))
    if len(value) == 2 + bool(asked) and "content" in value and (role == "assistant" or not asked):  # what most are
        return GlancedMessage(role, tokens, value, bool(content), calls)
    if role == "user" or not value.keys() <= _CHAT or any(value.get(key) is not None for key in _ABSENT):
        return None
    if beside := {key: value[key] for key in REASONING if value.get(key) is not None}:
        tied = True
        tokens += count(as_json(beside))
    return GlancedMessage(role, tokens, sendable(value), bool(content), calls, (), 0, tied)


_ABSENT = ("refusal", "audio", "function_call")
_CHAT = {"role", "content", "tool_calls", "annotations", *_ABSENT, *REASONING}


def _result(value: dict[str, Any], count: Count) -> GlancedMessage | None:
    given, id, size = given_by_tool(value.get("content"), "text", False, count), value.get("tool_call_id"), len(value)
    if given is None or type(id) is not str or not id or size != 3:
        return None
    return GlancedMessage("tool", 2 * MESSAGE + given[0], value, False, (), (Answer(id),), given[1])
