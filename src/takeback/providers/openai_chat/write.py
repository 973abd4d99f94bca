"""Requests for ``client.chat.completions.create``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..lenient import given
from ..normal import Call, Item, Media, Opaque, Part, Result, Text, as_text, texts, verbatim
from .form import FORM, REASONING
from .rules import SOUNDS


def write(items: Sequence[Item], model: str | None) -> list[dict[str, Any]]:
    """Write messages for ``chat.completions.create``."""
    return [message for item in items for message in _messages(item)]


def _messages(item: Item) -> Iterator[dict[str, Any]]:
    if item.form == FORM and item.raw is not None:
        yield sendable(item.raw)
        return
    if item.role == "assistant":
        yield _assistant(item)
        return
    said = tuple(part for part in item.parts if not isinstance(part, Result))
    yield from (_result(part) for part in item.parts if isinstance(part, Result))
    if said:
        yield {"role": "developer" if item.role == "developer" else "user", "content": _content(said)}


def sendable(raw: dict[str, Any]) -> dict[str, Any]:
    """Return a stored message as a request may hold it: no empty list of calls, of spoken words only their id."""
    if "content" in raw and len(raw) == 2 + bool(raw.get("tool_calls") or raw.get("tool_call_id")):
        return raw  # as nearly all are
    fresh = {key: value for key, value in raw.items() if value is not None or key not in REASONING}
    if not fresh.get("tool_calls"):
        fresh.pop("tool_calls", None)
    if isinstance(audio := raw.get("audio"), dict) and audio.keys() - {"id"}:
        fresh["audio"] = {"id": audio.get("id")}
    return raw if fresh == raw else fresh


def _assistant(item: Item) -> dict[str, Any]:
    calls = [_call(part) for part in item.parts if isinstance(part, Call)]
    message: dict[str, Any] = {"role": "assistant", "content": texts(item.parts) or None}
    for part in item.parts:
        if isinstance(part, Opaque) and "type" not in part.raw:
            message.update(part.raw)
    old = [call for call in calls if "function_call" in call]
    new = [call for call in calls if "function_call" not in call]
    return {**message, **({"tool_calls": new} if new else {}), **(old[0] if old else {})}


def _call(part: Call) -> dict[str, Any]:
    raw = verbatim(part, FORM)
    if isinstance(raw, dict):
        return raw
    arguments = as_text(part.arguments)
    return {"id": part.id, "type": "function", "function": {"name": part.name, "arguments": arguments}}


def _result(part: Result) -> dict[str, Any]:
    raw = verbatim(part, FORM)
    if isinstance(raw, dict):
        return raw
    said = texts(part.parts) or ("" if part.success else "failed")
    if part.to is not None and "function_call" in (verbatim(part.to, FORM) or ()):
        return {"role": "function", "name": part.name, "content": said}
    return {"role": "tool", "tool_call_id": part.call_id, "content": said}


def _content(parts: tuple[Part, ...]) -> Any:
    """Return text as text, which every server of this form takes, and parts only where there is more."""
    if all(isinstance(part, Text) and verbatim(part, FORM) is None for part in parts):
        return texts(parts)
    return [_part(part) for part in parts]


def _part(part: Part) -> Any:
    raw = verbatim(part, FORM)
    if raw is not None:
        return raw
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if not isinstance(part, Media):
        raise TypeError(f"{type(part).__name__} should have been left out")
    url = part.url or f"data:{part.mime};base64,{part.data}"
    if part.kind == "image":
        return {"type": "image_url", "image_url": {"url": url}}
    if part.kind == "audio":
        return {"type": "input_audio", "input_audio": {"data": part.data, "format": SOUNDS[part.mime]}}
    return {"type": "file", "file": {"filename": part.name or "document.pdf", "file_data": url}}


def request(model: str | None, system: str | None, messages: list[Any]) -> dict[str, Any]:
    """Return the arguments of ``client.chat.completions.create``."""
    told = [] if system is None else [{"role": "system", "content": system}]
    return given(model=model, messages=[*told, *messages])
