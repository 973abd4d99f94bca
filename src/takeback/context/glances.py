"""What is plainly right in a stored message, seen at a glance: its decoded JSON is judged as it is, form by form.

It is judged conservatively: what is unusual in any way - another field, media, tools of the servers - is not judged
at all, and left to those who read and repair. What is judged must say what reading would say, to the token.
"""

from __future__ import annotations

from typing import Any

from . import anthropic, gemini
from .blocks import only_text
from .glance import Judge, given_by_tool, is_said
from .glances_openai import of_chat, of_responses
from .normal import Call, as_json
from .steps import Answer, Step
from .tokens import MESSAGE, Count

# ---------------------------------------------------------------------- anthropic


def of_anthropic(value: dict[str, Any], role: str, count: Count) -> Step | None:
    """Judge a message of Anthropic's: text, signed thinking before all else, calls behind it; or results."""
    content = value.get("content")
    if value.get("role") != ("assistant" if role == "assistant" else "user"):
        return None
    if role == "tool":
        return _anthropic_results(value, content, count)
    if type(content) is not list:
        if not is_said(content, True):
            return None
        return Step(role, MESSAGE + count(content), anthropic.sendable(value), True)
    tokens, speaks, thinks = MESSAGE, False, False
    calls: list[Call] = []  # to make one by its type takes far longer, here and below
    for block in content:
        name = block.get("type") if type(block) is dict else None
        if name == "text" and not calls:
            text, size = block.get("text"), len(block)
            if not is_said(text, True) or not (size == 2 or (size == 3 and block.get("citations", "") is None)):
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
            if block.keys() != _SIGNED[name] or not is_said(block.get("signature") or block.get("data"), False):
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
        given = given_by_tool(block.get("content"), "text", True, count)
        if given is None or type(id) is not str or not (size == 3 or (size == 4 and type(failed) is bool)):
            return None
        if failed and not given[1]:
            return None
        answers.append(Answer(id))
        tokens += MESSAGE + given[0]
        longest = max(longest, given[1])
    return Step("tool", tokens, anthropic.sendable(value), False, (), answers, longest) if answers else None


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
