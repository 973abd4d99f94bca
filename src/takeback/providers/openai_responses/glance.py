"""What is plainly right in a stored item of Responses."""

from __future__ import annotations

from typing import Any

from ..glance import MESSAGE, Answer, Count, GlancedMessage, Judge, arguments_of, given_by_tool, is_said
from ..normal import Call, as_json
from .form import FORM
from .known import ITEMS
from .rules import has_right_id, stands_alone
from .write import sendable


def judge(value: dict[str, Any], role: str, count: Count) -> GlancedMessage | None:
    """Judge an item of Responses: a message, a call of a function, its output, or reasoning."""
    if value.get("id") is not None and not has_right_id(value):
        return None
    name = value.get("type") or "message"
    of_item = _ITEMS.get(name) if type(name) is str else None
    if of_item is None or not value.keys() <= ITEMS[name].keys() or value.get("caller") is not None:
        return None
    return of_item(value, role, count)


def _said_item(value: dict[str, Any], role: str, count: Count) -> GlancedMessage | None:
    if role not in ("user", "assistant") or value.get("role") != role:
        return None
    content, tokens, wanted = value.get("content"), MESSAGE, "output_text" if role == "assistant" else "input_text"
    blocks = [{"type": wanted, "text": content}] if type(content) is str else content
    for block in blocks if type(blocks) is list else ():
        text = block.get("text") if type(block) is dict and block.get("type") == wanted else None
        if not is_said(text, False) or (len(block) != 2 and not _is_output(block)):
            return None
        tokens += count(text)
    if not content or not blocks or type(blocks) is not list:
        return None
    return GlancedMessage(role, tokens, sendable(value), True, tied="id" in value, id=value.get("id"))


def _is_output(block: dict[str, Any]) -> bool:
    """Return whether a text is as the API gives it, with nothing cited in it."""
    return block.keys() <= _OUTPUT_TEXT and block.get("annotations", []) == [] == block.get("logprobs", [])


_OUTPUT_TEXT = {"type", "text", "annotations", "logprobs"}


def _call_item(value: dict[str, Any], role: str, count: Count) -> GlancedMessage | None:
    id, name, asked = value.get("call_id"), value.get("name"), arguments_of(value.get("arguments"))
    if role != "assistant" or type(id) is not str or not id or type(name) is not str or not name or asked is None:
        return None
    tokens = MESSAGE + count(name) + count(as_json(asked))
    call = Call(id, name, asked, form=FORM, raw=value)
    message = sendable(value)
    return GlancedMessage(role, tokens, message, False, (call,), (), 0, "id" in value, False, value.get("id"))


def _output_item(value: dict[str, Any], role: str, count: Count) -> GlancedMessage | None:
    given, id = given_by_tool(value.get("output"), "input_text", False, count), value.get("call_id")
    if role != "tool" or given is None or type(id) is not str or not id:
        return None
    message = sendable(value)
    return GlancedMessage(role, 2 * MESSAGE + given[0], message, False, (), (Answer(id),), given[1], id=value.get("id"))


def _reasoning_item(value: dict[str, Any], role: str, count: Count) -> GlancedMessage | None:
    if role != "assistant" or not all(map(_is_thoughts, (value.get("summary"), value.get("content")))):
        return None
    leads = "any" if stands_alone(value) else "id"
    message, tokens = sendable(value), MESSAGE + count(as_json(value))
    return GlancedMessage(role, tokens, message, tied=True, id=value.get("id"), leads=leads)


def _is_thoughts(blocks: Any) -> bool:
    return blocks is None or (type(blocks) is list and all(map(_is_thought, blocks)))


def _is_thought(block: Any) -> bool:
    return type(block) is dict and len(block) == 2 and block.get("type") in _THOUGHTS and "text" in block


_THOUGHTS = ("summary_text", "reasoning_text")
_ITEMS: dict[Any, Judge] = {
    "message": _said_item,
    "function_call": _call_item,
    "function_call_output": _output_item,
    "reasoning": _reasoning_item,
}
