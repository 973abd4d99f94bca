"""Chat messages as parts, and what other programs did to them put right."""

from __future__ import annotations

from typing import Any

from ..blocks import Read, blocks, kept, media, result, text
from ..known import Shape, only_known
from ..lenient import dicts, fields, with_role, word
from ..normal import Call, Opaque, Part, Text, as_text, is_same
from ..provider import Note
from .form import FORM, REASONING, calls
from .known import ROLES

_PLAIN = frozenset({"role", "content", "tool_calls"})


def read(value: dict[str, Any]) -> list[Part]:
    """Read a chat message: content, the reasoning that some providers put beside it, calls; or the result it is."""
    if value.get("role") in ("tool", "function"):
        name, given = word(value.get("name")), value.get("content")
        return [result(word(value.get("tool_call_id")) or name, given, name=name or None, form=FORM, raw=value)]
    found = blocks(value.get("content"), FORM)
    if not value.keys() <= _PLAIN:
        if beside := {key: value[key] for key in REASONING if value.get(key) is not None}:
            found.insert(0, Opaque("thinking", form=FORM, raw=beside))
        said = word(value.get("refusal")), word(fields(value.get("audio")).get("transcript"))
        found += [Text(text) for text in said if text]
    old = value.get("function_call")
    asked = [*dicts(value.get("tool_calls")), *([{"function_call": old}] if isinstance(old, dict) else [])]
    for call, raw in zip(calls(value) if asked else (), asked, strict=True):
        has_id = "function_call" in raw or word(raw.get("id"))
        found.append(Call(call.id, call.name, call.arguments, form=FORM, raw=raw if has_id else None))
    return found


def image_url(block: dict[str, Any], form: str | None) -> Part | None:
    """Read an image of OpenAI's, of either API."""
    given = block.get("image_url")
    url = word(given) or word(fields(given).get("url"))
    return media("image/*", url=url, **kept(form, block)) if url else None


def _audio(block: dict[str, Any], form: str | None) -> Part | None:
    sound = fields(block.get("input_audio"))
    if not word(sound.get("data")):
        return None
    return media(f"audio/{word(sound.get('format')) or 'wav'}", data=sound["data"], **kept(form, block))


def file(block: dict[str, Any], form: str | None) -> Part | None:
    """Read a file of OpenAI's, of either API; one that lies on their servers is opaque."""
    given = fields(block.get("file")) or block
    url, name = word(given.get("file_data")) or word(given.get("file_url")), word(given.get("filename")) or None
    return media("application/pdf", url=url, name=name, **kept(form, block)) if url else None


BLOCKS: dict[str, Read] = {
    "text": text,
    "refusal": text,
    "image_url": image_url,
    "input_audio": _audio,
    "file": file,
}


# ---------------------------------------------------------------------- put right


def sound(role: str, value: dict[str, Any], note: Note) -> dict[str, Any]:
    """Return a message as the API allows it: with the fields that its role has, and calls with arguments as text."""
    value = with_role(role, value, note, ("tool", "function"))
    calls = value.get("tool_calls")
    if isinstance(calls, list):
        right = [_call(call) if isinstance(call, dict) else call for call in calls]
        if not is_same(right, calls):
            note("put calls right that openai-chat does not allow")
            value = {**value, "tool_calls": right}
    if "name" in value and value["name"] is None:
        value = {key: each for key, each in value.items() if key != "name"}
    known: Shape = ROLES.get(word(value.get("role")))
    if known is not None and value.get("role") == "tool" and not word(value.get("tool_call_id")):
        known = {**known, "name": None}  # it says which call is meant
    kept: dict[str, Any] = only_known(value, known, FORM, note)
    return kept


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function, custom = fields(call.get("function")), fields(call.get("custom"))
    if not function and not custom and word(call.get("name")):
        function = {key: call[key] for key in ("name", "arguments") if key in call}
        call = {key: each for key, each in call.items() if key not in function}
    spelled = not function or isinstance(function.get("arguments"), str)
    if spelled and "index" not in call and call.get("type") in ("function", "custom") and (custom or function):
        return call
    made = {"type": "function" if function else "custom", **call}
    if function:
        made |= {"type": "function", "function": {**function, "arguments": as_text(function.get("arguments"))}}
    return {key: each for key, each in made.items() if key != "index"}  # a piece of a stream has one
