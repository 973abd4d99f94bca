"""Requests for boto3's ``client.converse``.

Messages are written as the wire has them, bytes as base64, so that they are JSON like those of every provider and can
be stored and shown. ``request`` turns that into the bytes that boto3 takes, and boto3 into base64 again.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any

from ..lenient import fields, given, merged
from ..normal import Call, Item, Media, Part, Result, Text, verbatim
from .form import FORM
from .read import DOCUMENTS, IMAGES, SOUNDS, VIDEOS

_EMPTY = "(no output)"
_FAILED = "failed without a word"
_FORMATS = {"image": IMAGES, "document": DOCUMENTS, "video": VIDEOS, "audio": SOUNDS}


def write(items: Sequence[Item], model: str | None) -> list[dict[str, Any]]:
    """Write messages for ``converse``."""
    return [_message(item) for item in items]


def _message(item: Item) -> dict[str, Any]:
    if item.form == FORM and item.raw is not None:
        return sendable(item.raw)
    return {
        "role": "assistant" if item.role == "assistant" else "user",
        "content": [_block(part) for part in item.parts],
    }


def sendable(raw: dict[str, Any]) -> dict[str, Any]:
    """Return a stored message as a request may hold it: a role and its content."""
    return raw if len(raw) == 2 else {"role": raw["role"], "content": raw["content"]}


def plain(role: str, text: str) -> dict[str, Any]:
    """Write a message of nothing but text."""
    return {"role": role, "content": [{"text": text}]}


def _block(part: Part) -> Any:
    raw = verbatim(part, FORM)
    if raw is not None:
        return raw
    match part:
        case Text():
            return {"text": part.text}
        case Call():
            return {"toolUse": {"toolUseId": part.id, "name": part.name, "input": part.arguments}}
        case Result():
            return {"toolResult": _result(part)}
        case Media():
            return {part.kind: _media(part)}
    raise TypeError(f"{type(part).__name__} should have been left out")


def _result(part: Result) -> dict[str, Any]:
    """Write a result: an object as JSON, anything else as blocks; there is always one."""
    content = [{"json": part.value}] if isinstance(part.value, dict) and part.success else list(map(_block, part.parts))
    if not content:
        content = [{"text": _EMPTY if part.success else _FAILED}]
    status = "success" if part.success else "error"
    return {"toolUseId": part.call_id, "content": content, "status": status}


def _media(part: Media) -> dict[str, Any]:
    source = {"s3Location": {"uri": part.url}} if part.data is None else {"bytes": part.data}
    named = {"name": part.name} if part.kind == "document" else {}
    return {"format": _FORMATS[part.kind][part.mime], **named, "source": source}


# ---------------------------------------------------------------------- as boto3 takes it


def request(model: str | None, system: str | None, messages: list[Any]) -> dict[str, Any]:
    """Return the arguments of ``client.converse``."""
    told = None if system is None else [{"text": system}]
    return given(modelId=model, system=told, messages=[_for_boto(message) for message in messages])


def merge(given: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with more of the caller's; ``tools`` go into ``toolConfig``."""
    tools = more.get("tools")
    if tools is None:
        return merged(given, more)
    config = merged(dict(more.get("toolConfig") or {}), {"tools": tools}, "toolConfig")
    rest = {name: value for name, value in more.items() if name not in ("tools", "toolConfig")}
    return merged(given, {**rest, "toolConfig": config})


def _for_boto(message: dict[str, Any]) -> dict[str, Any]:
    blocks = [dict(_with_bytes(block)) if isinstance(block, dict) else block for block in message["content"]]
    return {"role": message["role"], "content": blocks}


def _with_bytes(block: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Go through a block with bytes where boto3 wants them; what tools were asked and gave as data stays as it is."""
    for key, value in block.items():
        if not isinstance(value, dict):
            yield key, value
        elif key in _FORMATS and "bytes" in fields(value.get("source")):
            yield key, {**value, "source": {**value["source"], "bytes": _bytes(value["source"]["bytes"])}}
        elif key == "reasoningContent" and "redactedContent" in value:
            yield key, {**value, "redactedContent": _bytes(value["redactedContent"])}
        elif key == "guardContent":
            yield key, dict(_with_bytes(value))
        elif key == "toolResult" and isinstance(value.get("content"), list):
            inner = [dict(_with_bytes(each)) if isinstance(each, dict) else each for each in value["content"]]
            yield key, {**value, "content": inner}
        else:
            yield key, value


def _bytes(data: Any) -> Any:
    return base64.b64decode(data) if isinstance(data, str) else data
