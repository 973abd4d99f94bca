"""Items of Responses as parts, and what other programs did to them put right."""

from __future__ import annotations

from typing import Any

from ..blocks import Read, blocks, named, result, text
from ..known import only_known
from ..lenient import kind, with_role, word
from ..normal import Call, Opaque, Part, as_text
from ..openai_chat.read import file, image_url
from ..provider import Note
from .form import FORM, calls, results
from .known import ITEMS


def read(value: dict[str, Any]) -> list[Part]:
    """Read an item of the Responses API."""
    name = kind(value)
    if name in ("", "message"):
        return blocks(value.get("content"), FORM)
    for call in calls(value):
        has_id = word(value.get("call_id"))
        return [Call(call.id, call.name, call.arguments, form=FORM, raw=value if has_id else None)]
    for each in results(value):
        return [result(each.call_id, each.content, success=each.success, name=each.name, form=FORM, raw=value)]
    return [Opaque(named(name), form=FORM, raw=value)]


BLOCKS: dict[str, Read] = {
    "input_text": text,
    "output_text": text,
    "refusal": text,
    "input_image": image_url,
    "computer_screenshot": image_url,
    "input_file": file,
}


# ---------------------------------------------------------------------- put right


def sound(role: str, value: dict[str, Any], note: Note) -> dict[str, Any]:
    """Return an item as the API allows it: with the fields that its type has, and arguments as text."""
    name = kind(value) or "message"
    if name == "message":  # other items need no role
        value = with_role(role, value, note)
    if name == "function_call" and not isinstance(value.get("arguments"), str):
        note("put calls right that openai-responses does not allow")
        value = {**value, "arguments": as_text(value.get("arguments"))}
    if name == "local_shell_call_output" and word(value.get("call_id")):  # which has no other place for it
        value = {**{key: each for key, each in value.items() if key != "call_id"}, "id": value["call_id"]}
    kept: dict[str, Any] = only_known(value, ITEMS.get(name), FORM, note)
    return _without_nulls(kept)


def _without_nulls(value: dict[str, Any]) -> dict[str, Any]:
    """Return a message whose parts say nothing of what they do not have."""
    content = value.get("content")
    if not isinstance(content, list) or not any(isinstance(part, dict) and None in part.values() for part in content):
        return value
    filled = [
        {key: each for key, each in part.items() if each is not None} if isinstance(part, dict) else part
        for part in content
    ]
    return {**value, "content": filled}
