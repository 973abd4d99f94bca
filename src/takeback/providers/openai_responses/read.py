"""Items of Responses as parts, and what other programs did to them put right."""

from __future__ import annotations

from typing import Any

from ..blocks import Read, blocks, named, result, text
from ..lenient import kind, with_role, word
from ..normal import Call, Opaque, Part, as_text
from ..openai_chat.read import file, image_url
from ..provider import Note
from .form import FORM, calls, results


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
    """Return an item as the API allows it: arguments are text."""
    if kind(value) in ("", "message"):  # other items need no role
        value = with_role(role, value, note)
    if kind(value) != "function_call" or isinstance(value.get("arguments"), str):
        return value
    note("put calls right that openai-responses does not allow")
    known = {key: each for key, each in value.items() if key in ("type", "id", "call_id", "name", "status")}
    return {**known, "arguments": as_text(value.get("arguments"))}
