"""A message as plain data and back.

The dict has what a message shows: its place, and the fields of its stored form. With a ``form`` the content, the calls
and the results lie in the provider's bytes alone (``raw``): they are shown, and taken from there again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from .. import codec
from ..errors import Corrupt, Invalid
from ..ids import entry_id
from . import values
from .message import REDACTED, Body, Message, decode_body

_PLACE = ("branch", "seq", "turn")
_SHOWN = ("content", "tool_calls", "tool_results")  # what a provider's form holds in its own way
_EMPTY = {"tool_calls": list, "tool_results": list, "attachments": list, "metadata": dict, "extra": dict}
_INNER = ("form", "answers", "pointer", "content_at")  # how it is stored: left out where it is stored in our own form


def parts(message: Message) -> dict[str, Any]:
    """Return what ``to_dict`` shows of a message."""
    body = message.body
    stored = {name: getattr(body, name) for name in Body.__struct_fields__ if name != "id"}
    stored |= {name: stored[name] or empty() for name, empty in _EMPTY.items()}
    found = {"id": message.id, **{name: getattr(message, name) for name in _PLACE}}
    found |= {"created_at": values.time_text(message.at_ms), "stored_at": message.stored_at.isoformat()}
    found |= {name: value for name, value in stored.items() if value is not None or name not in _INNER}
    if body.form is not None:
        calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.tool_calls]
        results = [msgspec.structs.asdict(result) for result in message.tool_results]
        found |= {"content": message.content, "tool_calls": calls, "tool_results": results}
    elif body.content_at is not None:
        found["content"] = message.content
    found["usage"] = None if body.usage is None else values.parts(body.usage)
    return {**found, "raw": message.raw}


def made(given: Mapping[str, Any]) -> Message:
    """Make a message from its parts."""
    fields = dict(given)
    branch, seq, turn = [_taken(fields, name, str if name == "branch" else int) for name in _PLACE]
    at_ms = values.time_ms(fields.pop("created_at", None), "Message.created_at")
    stored = fields.pop("stored_at", None)
    late_ms = 0 if stored is None else values.time_ms(stored, "Message.stored_at") - at_ms
    raw = values.field(bytes | None, fields.pop("raw", None), "Message.raw")
    if unknown := fields.keys() - {*Body.__struct_fields__}:
        raise Invalid(f"Message has no field {sorted(map(str, unknown))[0]!r}")
    if fields.get("form") is not None:
        fields = {name: value for name, value in fields.items() if name not in _SHOWN}
    elif fields.get("content_at") is not None:
        fields.pop("content", None)
    if fields.get("id") == entry_id(branch, seq):
        del fields["id"]
    body = {name: value for name, value in fields.items() if name == "content" or not _is_default(name, value)}
    if (body.get("role"), body.get("status")) == (REDACTED.role, REDACTED.status):
        return Message(branch, seq, turn, at_ms, None, raw, _rest=late_ms)
    data = codec.encode(body)
    try:
        decode_body(data)
    except Corrupt as error:
        raise Invalid(f"Message cannot be made from this: {error.__cause__}") from error
    return Message(branch, seq, turn, at_ms, data, raw, _rest=late_ms)


def _taken(fields: dict[str, Any], name: str, kind: type) -> Any:
    if name not in fields:
        raise Invalid(f"Message needs the field {name!r}, which is missing")
    return values.field(kind, fields.pop(name), f"Message.{name}")


def _is_default(name: str, value: Any) -> bool:
    return value is None or (name in _EMPTY and not value)
