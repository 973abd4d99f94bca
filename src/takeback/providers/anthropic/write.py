"""Requests for ``client.messages.create``.

A message that was stored as the API gave it goes out with its content untouched; the fields that only a response has
are left out, since a request may not hold them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..lenient import given
from ..normal import Call, Item, Media, Part, Result, Text, verbatim
from .form import FORM

_FAILED = "failed without a word"


def write(items: Sequence[Item], model: str | None) -> list[dict[str, Any]]:
    """Write messages for ``messages.create``."""
    return [_message(item) for item in items]


def _message(item: Item) -> dict[str, Any]:
    if item.form == FORM and item.raw is not None:
        return sendable(item.raw)
    only = item.parts[0] if len(item.parts) == 1 else None
    is_plain = isinstance(only, Text) and verbatim(only, FORM) is None
    content = only.text if is_plain and isinstance(only, Text) else [_block(part) for part in item.parts]
    return {"role": "assistant" if item.role == "assistant" else "user", "content": content}


def sendable(raw: dict[str, Any]) -> dict[str, Any]:
    """Return a stored message as a request may hold it: without what only a response has."""
    if len(raw) == 2 and "role" in raw and "content" in raw:
        return raw
    return {key: value for key, value in raw.items() if key in ("role", "content")}


def _block(part: Part) -> Any:
    raw = verbatim(part, FORM)
    if raw is not None:
        return raw
    match part:
        case Text():
            return {"type": "text", "text": part.text}
        case Call():
            return {"type": "tool_use", "id": part.id, "name": part.name, "input": part.arguments}
        case Result():
            return _result(part)
        case Media():
            return {"type": "image" if part.kind == "image" else "document", "source": _source(part)}
    raise TypeError(f"{type(part).__name__} should have been left out")


def _result(part: Result) -> dict[str, Any]:
    content: Any = [_block(each) for each in part.parts]
    if len(part.parts) == 1 and isinstance(part.parts[0], Text):
        content = part.parts[0].text
    block = {"type": "tool_result", "tool_use_id": part.call_id, "content": content or ""}
    return block if part.success else {**block, "content": content or _FAILED, "is_error": True}


def _source(part: Media) -> dict[str, Any]:
    if part.data is None:
        return {"type": "url", "url": part.url}
    return {"type": "base64", "media_type": part.mime, "data": part.data}


def request(model: str | None, system: str | None, messages: list[Any]) -> dict[str, Any]:
    """Return the arguments of ``client.messages.create``."""
    return given(model=model, system=system, messages=messages)
