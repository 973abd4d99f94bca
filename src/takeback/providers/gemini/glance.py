"""What is plainly right in a stored content of Gemini's."""

from __future__ import annotations

from typing import Any

from ..glance import MESSAGE, Answer, Count, GlancedMessage
from ..normal import Call, as_json
from .form import FORM
from .known import CONTENT
from .read import only_text
from .rules import is_signature
from .write import sendable


def judge(value: dict[str, Any], role: str, count: Count) -> GlancedMessage | None:
    """Judge a content of Gemini's: text and thoughts, calls behind them, signatures; or responses."""
    parts = value.get("parts")
    if not value.keys() <= CONTENT.keys():
        return None
    if role == "tool":
        return _results(value, parts, count)
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
            if not is_signature(signature):
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
            call = _call(part, asked, len(calls))
            if call is None:
                return None
            bare = bare or (not calls and not signature)
            calls.append(call)
            tokens += count(call.name) + count(as_json(call.arguments))
        else:
            return None
    if not speaks and not calls:
        return None
    return GlancedMessage(role, tokens, sendable(value, role), speaks, calls, (), 0, tied, bare)


def _call(part: dict[str, Any], asked: dict[str, Any], number: int) -> Call | None:
    id, name, arguments = asked.get("id"), asked.get("name"), asked.get("args", {})
    if len(asked) != 1 + ("id" in asked) + ("args" in asked) or not (id is None or type(id) is str):
        return None
    if type(name) is not str or type(arguments) is not dict:
        return None
    return Call(id or f"call-{number}", name, arguments, form=FORM, raw=part)


def _results(value: dict[str, Any], parts: Any, count: Count) -> GlancedMessage | None:
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
    return GlancedMessage("tool", tokens, sendable(value, "tool"), False, (), answers, longest) if answers else None
