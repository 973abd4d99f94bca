"""OpenAI's Chat Completions: calls beside an assistant's content, each result a message of its own behind them.

Every message with calls is followed by its results before anybody else speaks; nothing else is demanded of the order.
Many other providers speak this form with fields of their own, which a stored message keeps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from ..model.forms.given import kind
from .blocks import REASONING
from .normal import (
    Call,
    Item,
    Media,
    Notes,
    Opaque,
    Part,
    Result,
    Text,
    as_text,
    is_image,
    is_there,
    texts,
    verbatim,
    with_parts,
)
from .rules import Rules

FORM = "openai-chat"
_PERSON = re.compile(r"[^\s<|\\/>]{1,64}")
_OPENAIS = re.compile(r"(openai/)?(gpt-\d|o\d|chatgpt)")
_SOUNDS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mp3": "mp3", "audio/mpeg": "mp3"}


def takes(part: Media, role: str) -> bool:
    """Say whether media can be sent: from the user only, since results are text here."""
    if role != "user":
        return False
    if part.kind == "image":
        return is_image(part)
    return part.data is not None and is_there(part) and (part.mime in _SOUNDS or part.mime == "application/pdf")


def holds(part: Part, role: str) -> bool:
    """Say whether a part may stand in a message of a role: what an assistant says is text, beside it is reasoning."""
    name = kind(part.raw)
    if role == "assistant":
        return name in ("", "text", "refusal")
    return name == "text" or (role == "user" and name != "refusal")


def forgets(item: Item) -> Item:
    """Leave out the reasoning that some servers put beside the content."""
    return with_parts(item, tuple(part for part in item.parts if not isinstance(part, Opaque)))


def _blind(model: str) -> bool:
    """Say whether a model is OpenAI's own, which says nothing beside the content and refuses that from others."""
    return _OPENAIS.match(model) is not None


def _free(call: Call) -> bool:
    return "custom" in call.raw


def agrees(result: Result) -> bool:
    """Say whether a stored result answers its call in the call's own way, the old one or the new."""
    if result.to is None or result.call_id != result.to.id:
        return False
    is_old = "function_call" in (verbatim(result.to, FORM) or ())
    return bool((result.raw.get("role") == "function") == is_old)


def tidy(items: Sequence[Item], notes: Notes) -> list[Item]:
    """Leave out answers of nothing but reasoning, and names of people that are refused."""
    found = list[Item]()
    for item in items:
        if all(isinstance(part, Opaque) for part in item.parts) and item.role == "assistant":
            notes.add("left out an answer of nothing but reasoning", item.seq)
            continue
        name = item.raw.get("name") if item.form == FORM and item.raw is not None else None
        if name is not None and not (isinstance(name, str) and _PERSON.fullmatch(name)) and item.role != "tool":
            notes.add("left out a name that is refused", item.seq)
            item = replace(item, raw={key: value for key, value in item.raw.items() if key != "name"})
        found.append(item)
    return found


RULES = Rules(
    form=FORM,
    takes=takes,
    holds=holds,
    forgets=forgets,
    blind=_blind,
    per_message=True,
    free=_free,
    id=re.compile(r"[^\x00-\x1f]+"),
    most=40,
    name=re.compile(r"[a-zA-Z0-9_-]{1,64}"),
    agrees=agrees,
    tidy=tidy,
)


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
        yield {"role": "user", "content": _content(said)}


def plain(role: str, text: str) -> dict[str, Any]:
    """Write a message of nothing but text."""
    return {"role": role, "content": text}


def sendable(raw: dict[str, Any]) -> dict[str, Any]:
    """Give a stored message as a request may hold it: no empty list of calls, of spoken words only their id."""
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
