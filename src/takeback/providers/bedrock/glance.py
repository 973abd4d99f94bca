"""What is plainly right in a stored message of Converse."""

from __future__ import annotations

from typing import Any

from ..glance import MESSAGE, Answer, Count, GlancedMessage, is_said
from ..normal import Call, as_json
from .form import FORM
from .known import FIELDS
from .rules import is_bare
from .write import sendable


def judge(value: dict[str, Any], role: str, count: Count) -> GlancedMessage | None:
    """Judge a message: text, signed reasoning before all else, calls behind it; or results."""
    content = value.get("content")
    if value.get("role") != ("assistant" if role == "assistant" else "user") or type(content) is not list:
        return None
    if not value.keys() <= FIELDS.keys():
        return None
    if role == "tool":
        return _results(value, content, count)
    tokens, speaks, thinks = MESSAGE, False, False
    calls: list[Call] = []  # to make one by its type takes far longer
    for block in content:
        if type(block) is not dict or len(block) != 1:
            return None
        if "text" in block and not calls:
            if not is_said(text := block["text"], True):
                return None
            speaks = True
            tokens += count(text)
        elif "toolUse" in block and role == "assistant":
            call = _call(block, block["toolUse"])
            if call is None:
                return None
            calls.append(call)
            tokens += count(call.name) + count(as_json(call.arguments))
        elif "reasoningContent" in block and role == "assistant" and not speaks and not calls:
            if not _is_signed(block["reasoningContent"]):
                return None
            thinks = True
            tokens += count(as_json(block))
        else:
            return None
    if not speaks and not calls:
        return None
    return GlancedMessage(role, tokens, sendable(value), speaks, calls, (), 0, thinks)


def _call(block: dict[str, Any], use: Any) -> Call | None:
    if type(use) is not dict or len(use) != 3:
        return None
    id, name, asked = use.get("toolUseId"), use.get("name"), use.get("input")
    if type(id) is not str or not id or type(name) is not str or type(asked) is not dict:
        return None
    return Call(id, name, asked, form=FORM, raw=block)


def _is_signed(reasoning: Any) -> bool:
    said = reasoning.get("reasoningText") if type(reasoning) is dict and len(reasoning) == 1 else None
    return type(said) is dict and type(said.get("text")) is str and len(said) == 2 and not is_bare(reasoning)


def _results(value: dict[str, Any], content: list[Any], count: Count) -> GlancedMessage | None:
    answers: list[Answer] = []
    tokens, longest = MESSAGE, 0
    for block in content:
        answer = block.get("toolResult") if type(block) is dict and len(block) == 1 else None
        if type(answer) is not dict or len(answer) != 2 + ("status" in answer):
            return None
        id, given, status = answer.get("toolUseId"), answer.get("content"), answer.get("status", "success")
        if type(id) is not str or status not in ("success", "error") or type(given) is not list or not given:
            return None
        tokens += MESSAGE
        for each in given:
            text = _said(each)
            if not is_said(text, True):
                return None
            tokens += count(text)
            longest = max(longest, len(text))
        answers.append(Answer(id))
    return GlancedMessage("tool", tokens, sendable(value), False, (), answers, longest) if answers else None


def _said(block: Any) -> Any:
    if type(block) is not dict or len(block) != 1:
        return None
    return as_json(block["json"]) if "json" in block else block.get("text")
