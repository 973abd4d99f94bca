"""Stored messages that their own form does not allow: other programs add fields of theirs, and lose some.

The providers refuse what they do not know ("Extra inputs are not permitted"), so it is taken away before anything is
read. What an API said itself is trusted, for it may know more than this file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..model.forms.anthropic import is_block
from ..model.forms.given import fields, kind
from .normal import as_text

Note = Callable[[str], None]
_NOT_CHAT = frozenset({"usage", "metadata", "model", "id"})  # of the answer as a whole, or of ours
_MARK = frozenset({"type", "cache_control"})
_FIELDS: dict[str, frozenset[str]] = {
    "text": _MARK | {"text", "citations"},
    "image": _MARK | {"source", "transformations"},
    "document": _MARK | {"source", "title", "context", "citations"},
    "thinking": frozenset({"type", "thinking", "signature"}),
    "redacted_thinking": frozenset({"type", "data"}),
    "tool_use": _MARK | {"id", "name", "input", "caller", "toolset_name"},
    "tool_result": _MARK | {"tool_use_id", "content", "is_error", "toolset_name"},
}

_SPEAKERS: dict[str, dict[str, tuple[str, ...]]] = {
    "anthropic": {"user": ("user",), "assistant": ("assistant",), "tool": ("user",)},
    "openai-chat": {"user": ("user",), "assistant": ("assistant",), "tool": ("tool", "function")},
    "openai-responses": {"user": ("user",), "assistant": ("assistant",), "tool": ("user",)},
}


def sound(form: str, role: str, value: dict[str, Any], note: Note) -> dict[str, Any]:
    """Give a message as its form allows it; one that is right already is the very same object.

    ``role`` is the one that it was understood as. Gemini's two roles are the writer's business.
    """
    return _FORMS[form](_with_role(form, role, value, note), note) if form in _FORMS else value


def _with_role(form: str, role: str, value: dict[str, Any], note: Note) -> dict[str, Any]:
    """Give a message that is sent a role that its form knows; what the system says is not sent as a message."""
    given, known = value.get("role"), _SPEAKERS[form].get(role)
    has_role = form != "openai-responses" or kind(value) in ("", "message")  # other items need none
    if known is None or given is None or given in known or not has_role:
        return value
    note(f"sent role {given!r} as {known[0]}")
    return {**value, "role": known[0]}


# ---------------------------------------------------------------------- anthropic


def _anthropic(value: dict[str, Any], note: Note) -> dict[str, Any]:
    if "stop_reason" in value and kind(value) == "message":
        return value
    return _with_blocks(value, note)


def _with_blocks(holder: dict[str, Any], note: Note) -> dict[str, Any]:
    """Give a message or a result with the blocks that are known, each with the fields that are known."""
    content = holder.get("content")
    if not isinstance(content, list) or all(map(_is_plain, content)):
        return holder
    kept = [_block(block, note) for block in content if _is_known(block, note)]
    same = len(kept) == len(content) and all(new is old for new, old in zip(kept, content, strict=True))
    return holder if same else {**holder, "content": kept}


def _is_plain(block: Any) -> bool:
    """Say whether a block is right at a glance, as nearly all are."""
    if type(block) is not dict:
        return False
    name = block.get("type")
    known = _FIELDS.get(name) if type(name) is str else None
    return known is not None and block.keys() <= known and (name != "tool_result" or type(block.get("content")) is str)


def _is_known(block: Any, note: Note) -> bool:
    known = not isinstance(block, dict) or kind(block) == "text" or is_block(block)
    if not known:
        note(f"left out {kind(block) or 'a block without a type'}, which anthropic does not know")
    return known


def _block(block: Any, note: Note) -> Any:
    if not isinstance(block, dict):
        return block
    known = _FIELDS.get(kind(block))
    if known is not None and block.keys() - known:
        note("left out fields that anthropic does not know")
        block = {key: value for key, value in block.items() if key in known}
    return _with_blocks(block, note) if kind(block) == "tool_result" else block


# ---------------------------------------------------------------------- openai


def _chat(value: dict[str, Any], note: Note) -> dict[str, Any]:
    if not _NOT_CHAT.isdisjoint(value):
        note("left out fields that openai-chat does not know")
        value = {key: each for key, each in value.items() if key not in _NOT_CHAT}
    calls = value.get("tool_calls")
    if not isinstance(calls, list):
        return value
    right = [_chat_call(call) if isinstance(call, dict) else call for call in calls]
    if all(new is old for new, old in zip(right, calls, strict=True)):
        return value
    note("put calls right that openai-chat does not allow")
    return {**value, "tool_calls": right}


def _chat_call(call: dict[str, Any]) -> dict[str, Any]:
    function = fields(call.get("function"))
    spelled = not function or isinstance(function.get("arguments"), str)
    if spelled and "index" not in call and call.get("type") in ("function", "custom"):
        return call
    made = {"type": "function" if function else "custom", **call}
    if function:
        made |= {"type": "function", "function": {**function, "arguments": _written(function.get("arguments"))}}
    return {key: each for key, each in made.items() if key != "index"}  # a piece of a stream has one


def _responses(value: dict[str, Any], note: Note) -> dict[str, Any]:
    if kind(value) != "function_call" or isinstance(value.get("arguments"), str):
        return value
    note("put calls right that openai-responses does not allow")
    known = {key: each for key, each in value.items() if key in ("type", "id", "call_id", "name", "status")}
    return {**known, "arguments": _written(value.get("arguments"))}


def _written(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else as_text(arguments)


_FORMS: dict[str, Callable[[dict[str, Any], Note], dict[str, Any]]] = {
    "anthropic": _anthropic,
    "openai-chat": _chat,
    "openai-responses": _responses,
}
