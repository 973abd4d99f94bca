"""What is plainly right in a stored message, seen at a glance: its decoded JSON is judged as it is, form by form.

It is judged conservatively: what is unusual in any way - another field, media, tools of the servers - is not judged
at all, and left to those who read and repair. What is judged must say what reading would say, to the token.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeGuard

import msgspec

from . import anthropic, gemini, openai_chat, openai_responses
from .blocks import REASONING, only_text
from .normal import Call, Item, Result, Text, as_json
from .steps import Answer, Step, step_of
from .tokens import MESSAGE, Count

decode = msgspec.json.Decoder().decode  # quicker than the function of the module
Judge: TypeAlias = Callable[[dict[str, Any], str, Count], Step | None]


def of_item(item: Item, count: Count, refuses_blank: bool) -> Step | None:
    """Judge a message in our own form that was read: texts, then calls; or nothing but results that are text."""
    found = step_of(item, count)
    kinds = [type(part) for part in item.parts]
    said = kinds.count(Text)
    for part in item.parts:
        for each in part.parts if type(part) is Result else (part,) if type(part) is Text else ():
            if type(each) is not Text or not _is_said(each.text, refuses_blank):
                return None
    found.speaks = said > 0
    wanted = {"user": [Text] * said, "assistant": [Text] * said + [Call] * len(found.calls)}
    return found if kinds and kinds == wanted.get(item.role, [Result] * len(kinds)) else None


def _is_said(text: Any, refuses_blank: bool) -> TypeGuard[str]:
    return type(text) is str and text != "" and not (refuses_blank and text.isspace())


def _text(content: Any, kind: str, refuses_blank: bool = False) -> list[str] | None:
    """Give the texts of content that is a text, or a list of blocks of one type with nothing but a text."""
    if type(content) is str:
        return [content] if _is_said(content, refuses_blank) else None
    if type(content) is not list or not content:
        return None
    for block in content:
        if type(block) is not dict or len(block) != 2 or block.get("type") != kind:
            return None
        if not _is_said(block.get("text"), refuses_blank):
            return None
    return [block["text"] for block in content]


def _given(content: Any, kind: str, refuses_blank: bool, count: Count) -> tuple[int, int] | None:
    """Give the tokens of what a tool gave, and the characters of its longest text; it may have given nothing."""
    if type(content) is str:
        return None if refuses_blank and content.isspace() else (count(content) if content else 0, len(content))
    found = _text(content, kind, refuses_blank)
    return None if found is None else (sum(map(count, found)), max(map(len, found)))


def _object(arguments: Any) -> Any:
    """Decode the arguments of OpenAI's calls; what is no object is unusual."""
    try:
        found = decode(arguments)
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError):
        return None
    return found if type(found) is dict else None


# ---------------------------------------------------------------------- anthropic


def of_anthropic(value: dict[str, Any], role: str, count: Count) -> Step | None:
    """Judge a message of Anthropic's: text, signed thinking before all else, calls behind it; or results."""
    content = value.get("content")
    if value.get("role") != ("assistant" if role == "assistant" else "user"):
        return None
    if role == "tool":
        return _anthropic_results(value, content, count)
    if type(content) is not list:
        if not _is_said(content, True):
            return None
        return Step(role, MESSAGE + count(content), anthropic.sendable(value), True)
    tokens, speaks, thinks = MESSAGE, False, False
    calls: list[Call] = []  # to make one by its type takes far longer, here and below
    for block in content:
        name = block.get("type") if type(block) is dict else None
        if name == "text" and not calls:
            text, size = block.get("text"), len(block)
            if not _is_said(text, True) or not (size == 2 or (size == 3 and block.get("citations", "") is None)):
                return None
            speaks = True
            tokens += count(text)
        elif name == "tool_use" and role == "assistant":
            id, tool, asked, size = block.get("id"), block.get("name"), block.get("input"), len(block)
            if type(id) is not str or not id or type(tool) is not str or type(asked) is not dict:
                return None
            if size != 4 and not (size == 5 and "caller" in block):
                return None
            calls.append(Call(id, tool, asked, form="anthropic", raw=block))
            tokens += count(tool) + count(as_json(asked))
        elif type(name) is str and name in _SIGNED and not speaks and not calls and role == "assistant":
            if block.keys() != _SIGNED[name] or not _is_said(block.get("signature") or block.get("data"), False):
                return None
            thinks = True
            tokens += count(as_json(block))
        else:
            return None
    if not speaks and not calls:
        return None
    return Step(role, tokens, anthropic.sendable(value), speaks, calls, (), 0, thinks)


_SIGNED = {"thinking": {"type", "thinking", "signature"}, "redacted_thinking": {"type", "data"}}


def _anthropic_results(value: dict[str, Any], content: Any, count: Count) -> Step | None:
    answers: list[Answer] = []
    tokens, longest = MESSAGE, 0
    for block in content if type(content) is list else ():
        if type(block) is not dict or block.get("type") != "tool_result":
            return None
        id, failed, size = block.get("tool_use_id"), block.get("is_error"), len(block)
        given = _given(block.get("content"), "text", True, count)
        if given is None or type(id) is not str or not (size == 3 or (size == 4 and type(failed) is bool)):
            return None
        if failed and not given[1]:
            return None
        answers.append(Answer(id))
        tokens += MESSAGE + given[0]
        longest = max(longest, given[1])
    return Step("tool", tokens, anthropic.sendable(value), False, (), answers, longest) if answers else None


# ---------------------------------------------------------------------- openai


def of_chat(value: dict[str, Any], role: str, count: Count) -> Step | None:
    """Judge a chat message: text, reasoning beside it, calls of functions; or a result."""
    if value.get("role") != role:
        return None
    if role == "tool":
        return _chat_result(value, count)
    content, asked, tokens, tied = value.get("content"), value.get("tool_calls") or [], MESSAGE, False
    calls: list[Call] = []
    if content is not None and content != "":
        said = _text(content, "text")
        if said is None:
            return None
        for text in said:
            tokens += count(text)
    elif not asked:
        return None
    for call in asked if type(asked) is list else ({},):
        function = call.get("function") if type(call) is dict and len(call) == 3 else None
        if type(function) is not dict or len(function) != 2 or call.get("type") != "function":
            return None
        id, name, arguments = call.get("id"), function.get("name"), _object(function.get("arguments"))
        if type(id) is not str or not id or type(name) is not str or arguments is None:
            return None
        calls.append(Call(id, name, arguments, form="openai-chat", raw=call))
        tokens += count(name) + count(as_json(arguments))
    if len(value) != 1 + ("content" in value) + ("tool_calls" in value) or (role == "user" and len(value) > 2):
        if role == "user" or not value.keys() <= _CHAT or any(value.get(key) is not None for key in _ABSENT):
            return None
        if beside := {key: value[key] for key in REASONING if value.get(key) is not None}:
            tied = True
            tokens += count(as_json(beside))
    return Step(role, tokens, openai_chat.sendable(value), bool(content), calls, (), 0, tied)


_ABSENT = ("refusal", "audio", "function_call")
_CHAT = {"role", "content", "tool_calls", "annotations", *_ABSENT, *REASONING}


def _chat_result(value: dict[str, Any], count: Count) -> Step | None:
    given, id, size = _given(value.get("content"), "text", False, count), value.get("tool_call_id"), len(value)
    if given is None or type(id) is not str or not id or size != 3 + ("name" in value):
        return None
    return Step("tool", 2 * MESSAGE + given[0], openai_chat.sendable(value), False, (), (Answer(id),), given[1])


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
        if not _is_said(text, False):
            return None
        tokens += count(text)
    if not content or not blocks or type(blocks) is not list:
        return None
    return Step(role, tokens, openai_responses.sendable(value), True, tied="id" in value, id=value.get("id"))


def _call_item(value: dict[str, Any], role: str, count: Count) -> Step | None:
    id, name, asked = value.get("call_id"), value.get("name"), _object(value.get("arguments"))
    if role != "assistant" or type(id) is not str or not id or type(name) is not str or not name or asked is None:
        return None
    tokens = MESSAGE + count(name) + count(as_json(asked))
    call = Call(id, name, asked, form="openai-responses", raw=value)
    message = openai_responses.sendable(value)
    return Step(role, tokens, message, False, (call,), (), 0, "id" in value, False, value.get("id"))


def _output_item(value: dict[str, Any], role: str, count: Count) -> Step | None:
    given, id = _given(value.get("output"), "input_text", False, count), value.get("call_id")
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


# ---------------------------------------------------------------------- gemini


def of_gemini(value: dict[str, Any], role: str, count: Count) -> Step | None:
    """Judge a content of Gemini's: text and thoughts, calls behind them, signatures; or responses."""
    parts = value.get("parts")
    if role == "tool":
        return _gemini_results(value, parts, count)
    calls: list[Call] = []
    tokens, speaks, tied, bare = MESSAGE, False, False, False
    for part in parts if type(parts) is list else ():
        if type(part) is not dict:
            return None
        size, signature, text, asked = (
            len(part),
            part.get("thoughtSignature"),
            part.get("text"),
            part.get("functionCall"),
        )
        if signature is not None:
            if not gemini.is_signature(signature):
                return None
            size, tied = size - 1, True
        if type(text) is str and not calls and (text or signature):
            if size == 2 and part.get("thought") is True and role == "assistant" and text:
                tied = True
                tokens += count(as_json(part))
            elif size == 1:
                speaks = True
                tokens += count(text or as_json(part))  # a signature may come with no text
            else:
                return None
        elif type(asked) is dict and size == 1 and role == "assistant":
            call = _gemini_call(part, asked, len(calls))
            if call is None:
                return None
            bare = bare or (not calls and not signature)
            calls.append(call)
            tokens += count(call.name) + count(as_json(call.arguments))
        else:
            return None
    if not speaks and not calls:
        return None
    return Step(role, tokens, gemini.sendable(value, role), speaks, calls, (), 0, tied, bare)


def _gemini_call(part: dict[str, Any], asked: dict[str, Any], number: int) -> Call | None:
    id, name, arguments = asked.get("id"), asked.get("name"), asked.get("args", {})
    if len(asked) != 1 + ("id" in asked) + ("args" in asked) or not (id is None or type(id) is str):
        return None
    if type(name) is not str or type(arguments) is not dict:
        return None
    return Call(id or f"call-{number}", name, arguments, form="gemini", raw=part)


def _gemini_results(value: dict[str, Any], parts: Any, count: Count) -> Step | None:
    answers: list[Answer] = []
    tokens, longest = MESSAGE, 0
    for part in parts if type(parts) is list else ():
        answer = part.get("functionResponse") if type(part) is dict and len(part) == 1 else None
        if type(answer) is not dict or len(answer) != 2 + ("id" in answer):
            return None
        id, name, response = answer.get("id"), answer.get("name"), answer.get("response")
        if not (id is None or type(id) is str) or type(name) is not str or not name:
            return None
        if type(response) is not dict or "type" in response:
            return None
        text = only_text(response)
        text = as_json(response) if text is None else text
        answers.append(Answer(id or None, name))
        tokens += MESSAGE + (count(text) if text else 0)
        longest = max(longest, len(text))
    return Step("tool", tokens, gemini.sendable(value, "tool"), False, (), answers, longest) if answers else None


GLANCES: dict[str, Judge] = {
    "anthropic": of_anthropic,
    "openai-chat": of_chat,
    "openai-responses": of_responses,
    "gemini": of_gemini,
}
