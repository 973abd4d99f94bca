"""Contents of Gemini's as parts, which are told apart by their keys, and what other programs did to them put right."""

from __future__ import annotations

from typing import Any

from ...model.tools import ToolResult
from ..blocks import Read, media, named, result
from ..known import only_known
from ..lenient import dicts, fields, word
from ..normal import Call, Opaque, Part, Text
from ..provider import Note
from .form import FORM, call_of, either, result_of
from .known import CONTENT, DATA

BLOCKS: dict[str, Read] = {}  # none has a type


def read(value: dict[str, Any]) -> list[Part]:
    """Read a content of Gemini's."""
    found, number = list[Part](), 0
    for part in dicts(value.get("parts")):
        if len(part) == 1 and type(text := part.get("text")) is str and text:  # the common case
            found.append(Text(text, form=FORM, raw=part))
            continue
        asked, answered = either(part, "functionCall"), either(part, "functionResponse")
        if isinstance(asked, dict):
            call = call_of(number, asked)
            number += 1
            found.append(Call(call.id, call.name, call.arguments, form=FORM, raw=part))
        if isinstance(answered, dict):
            found.append(_result(result_of(answered), part))
        elif not isinstance(asked, dict) and part:
            found.append(_part(part, {"form": FORM, "raw": part}))
    return found


def _part(part: dict[str, Any], kept: dict[str, Any]) -> Part:
    text, blob, file = part.get("text"), fields(either(part, "inlineData")), fields(either(part, "fileData"))
    if text == "" and not either(part, "thoughtSignature"):
        return Text("", **kept)
    if part.get("thought") is True:
        return Opaque("thinking", **kept)
    if blob:
        data = word(blob.get("data")).replace("-", "+").replace("_", "/")  # the SDK writes base64 as for URLs
        return media(word(either(blob, "mimeType")), data=data, **kept)
    if file:
        return media(word(either(file, "mimeType")), url=word(either(file, "fileUri")), **kept)
    if isinstance(text, str) and text:
        return Text(text, **kept)
    return Opaque(named(next(iter(part))), **kept)


def _result(given: ToolResult, part: dict[str, Any]) -> Part:
    """Read a function response; one of a single text says that text."""
    only = only_text(fields(given.content))
    content = given.content if only is None else only
    return result(given.call_id, content, success=given.success, name=given.name, form=FORM, raw=part)


def only_text(response: dict[str, Any]) -> str | None:
    """Return the text that a response of Gemini's is, if it is nothing else."""
    only = next(iter(response.values())) if len(response) == 1 and not _SAYS.isdisjoint(response) else None
    return only if isinstance(only, str) else None


_SAYS = frozenset({"output", "result", "error"})


# ---------------------------------------------------------------------- put right


def sound(role: str, value: dict[str, Any], note: Note) -> dict[str, Any]:
    """Return a content as the API allows it: each part is something that is known, with the fields that are known."""
    parts = value.get("parts")
    if isinstance(parts, list) and not all(map(_is_known, parts)):
        for part in parts:
            if not _is_known(part):
                note(f"left out {named(next(iter(part), ''))}, which gemini does not know")
        value = {**value, "parts": [part for part in parts if _is_known(part)]}
    kept: dict[str, Any] = only_known(value, CONTENT, FORM, note)
    return kept


def _is_known(part: Any) -> bool:
    return not isinstance(part, dict) or any(part.get(name) is not None for name in part.keys() & DATA.keys())
