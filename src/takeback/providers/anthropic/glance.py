"""What is plainly right in a stored message of Anthropic's."""

from __future__ import annotations

from typing import Any

from ..glance import MESSAGE, Answer, Count, GlancedMessage, given_by_tool, is_said
from ..normal import Call, as_json
from .form import FORM
from .known import FIELDS
from .write import sendable


def judge(value: dict[str, Any], role: str, count: Count) -> GlancedMessage | None:
    """Judge a message of Anthropic's: text, signed thinking before all else, calls behind it; or results."""
    content = value.get("content")
    if value.get("role") != ("assistant" if role == "assistant" else "user") or not value.keys() <= FIELDS.keys():
        return None
    if role == "tool":
        return _results(value, content, count)
    if type(content) is not list:
        if not is_said(content, True):
            return None
        return GlancedMessage(role, MESSAGE + count(content), sendable(value), True)
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
            if size != 4 and not (size == 5 and block.get("caller", "") in _USUAL_CALLERS):
                return None
            calls.append(Call(id, tool, asked, form=FORM, raw=block))
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
    return GlancedMessage(role, tokens, sendable(value), speaks, calls, (), 0, thinks)


_USUAL_CALLERS = (None, {"type": "direct"})
_SIGNED = {"thinking": {"type", "thinking", "signature"}, "redacted_thinking": {"type", "data"}}


def _results(value: dict[str, Any], content: Any, count: Count) -> GlancedMessage | None:
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
    return GlancedMessage("tool", tokens, sendable(value), False, (), answers, longest) if answers else None
