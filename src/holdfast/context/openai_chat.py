"""OpenAI's Chat Completions: calls beside an assistant's content, each result a message of its own behind them.

Every message with calls is followed by its results before anybody else speaks; nothing else is demanded of the order.
Many other providers speak this form with fields of their own, which a stored message keeps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from .normal import Call, Item, Media, Opaque, Part, Result, Text, as_text, is_image, texts, verbatim
from .rules import Rules

FORM = "openai-chat"
_SOUNDS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mp3": "mp3", "audio/mpeg": "mp3"}


def takes(part: Part, role: str) -> bool:
    """Say whether media can be written: from the user only, since results are text here."""
    if not isinstance(part, Media) or role != "user":
        return False
    if part.kind == "image":
        return is_image(part)
    return part.data is not None and (part.mime in _SOUNDS or part.mime == "application/pdf")


RULES = Rules(
    form=FORM,
    takes=takes,
    per_message=True,
    id=re.compile(r"[^\x00-\x1f]+"),
    most=40,
    name=re.compile(r"[a-zA-Z0-9_-]{1,64}"),
)


def write(items: Sequence[Item], model: str | None) -> list[dict[str, Any]]:
    """Write messages for ``chat.completions.create``."""
    return [message for item in items for message in _messages(item)]


def _messages(item: Item) -> Iterator[dict[str, Any]]:
    if item.form == FORM and item.raw is not None:
        yield _verbatim(item.raw)
        return
    if item.role == "assistant":
        yield _assistant(item)
        return
    said = tuple(part for part in item.parts if not isinstance(part, Result))
    yield from (_result(part) for part in item.parts if isinstance(part, Result))
    if said:
        yield {"role": "user", "content": _content(said)}


def _verbatim(raw: dict[str, Any]) -> dict[str, Any]:
    """Give a stored message as a request may hold it: no empty list of calls, of spoken words only their id."""
    fresh = {key: value for key, value in raw.items() if key != "tool_calls" or value}
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
    """Give text as text, which every server of this form takes, and parts only where there is more."""
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
        return {"type": "input_audio", "input_audio": {"data": part.data, "format": _SOUNDS[part.mime]}}
    return {"type": "file", "file": {"filename": part.name or "document.pdf", "file_data": url}}


def request(system: str | None, messages: list[Any]) -> dict[str, Any]:
    """Give the arguments of ``client.chat.completions.create``."""
    return {"messages": messages if system is None else [{"role": "system", "content": system}, *messages]}
