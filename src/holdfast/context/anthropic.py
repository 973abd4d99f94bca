"""Anthropic's Messages API: user and assistant take turns, results lie in user messages, before all else in them.

A message that was stored as this API gave it goes out with its content untouched; the fields that only a response
has are left out, since a request may not hold them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ..model.forms.given import kind, word
from .normal import Call, Item, Media, Notes, Opaque, Part, Result, Text, is_image, is_there, verbatim, with_parts
from .rules import Rules

FORM = "anthropic"
_FAILED = "failed without a word"


def takes(part: Part, role: str) -> bool:
    """Say whether media can be written: images of four types and PDF, not from the assistant."""
    if not isinstance(part, Media) or role == "assistant":
        return False
    return is_image(part) if part.kind == "image" else part.mime == "application/pdf" and is_there(part)


def agrees(result: Result) -> bool:
    """Say whether a stored result can go out: it names its call, and a failure says something."""
    silent = result.raw.get("is_error") is True and not result.raw.get("content")
    return result.to is not None and result.call_id == result.to.id and not silent


# ---------------------------------------------------------------------- what else is demanded


def tidy(items: Sequence[Item], notes: Notes) -> list[Item]:
    """Remove thinking that is unsigned or ends a message, halves of server tools, white space at the very end."""
    found = []
    for number, item in enumerate(items):
        is_last = number == len(items) - 1
        if item.role == "assistant":
            item = _without_thinking(item, notes)
            item = item if is_last else _without_halves(item, notes)
            item = _stripped(item, notes) if is_last else item
        if item.parts:
            found.append(item)
    return found


def _without_thinking(item: Item, notes: Notes) -> Item:
    parts = [part for part in item.parts if not _is_unsigned(part)]
    while parts and _is_thinking(parts[-1]):
        parts.pop()
    if len(parts) < len(item.parts):
        notes.add("left out thinking that is unsigned or ends a message", item.seq)
    return with_parts(item, tuple(parts))


def _is_thinking(part: Part) -> bool:
    return isinstance(part, Opaque) and kind(part.raw) in ("thinking", "redacted_thinking")


def _is_unsigned(part: Part) -> bool:
    return isinstance(part, Opaque) and kind(part.raw) == "thinking" and not word(part.raw.get("signature"))


def _without_halves(item: Item, notes: Notes) -> Item:
    """Leave out a call of a server's tool without its result and the other way round."""
    raws = [part.raw for part in item.parts if isinstance(part, Opaque)]
    asked = {word(raw.get("id")) for raw in raws if kind(raw) in ("server_tool_use", "mcp_tool_use")}
    given = {word(raw.get("tool_use_id")) for raw in raws if kind(raw).endswith("_tool_result")}
    parts = tuple(part for part in item.parts if not _names(part, asked ^ given))
    if len(parts) < len(item.parts):
        notes.add("left out half of a server's tool call", item.seq)
    return with_parts(item, parts)


def _names(part: Part, ids: set[str]) -> bool:
    if not isinstance(part, Opaque):
        return False
    name = kind(part.raw)
    if name.endswith("_tool_result"):
        return word(part.raw.get("tool_use_id")) in ids
    return name in ("server_tool_use", "mcp_tool_use") and word(part.raw.get("id")) in ids


def _stripped(item: Item, notes: Notes) -> Item:
    """Take white space off the end: what an assistant's last text ends in is what it goes on from."""
    last = item.parts[-1] if item.parts else None
    if not isinstance(last, Text) or last.text == last.text.rstrip():
        return item
    notes.add("took white space off the end of the last answer", item.seq)
    return with_parts(item, (*item.parts[:-1], replace(last, text=last.text.rstrip(), raw=None)))


RULES = Rules(
    form=FORM,
    takes=takes,
    alternates=True,
    refuses_blank=True,
    objects=True,
    unique_ids=True,
    id=re.compile(r"[a-zA-Z0-9_-]+"),
    most=200,
    name=re.compile(r"[a-zA-Z0-9_-]{1,128}"),
    agrees=agrees,
    tidy=tidy,
)


# ---------------------------------------------------------------------- writing


def write(items: Sequence[Item], model: str | None) -> list[dict[str, Any]]:
    """Write messages for ``messages.create``."""
    return [_message(item) for item in items]


def _message(item: Item) -> dict[str, Any]:
    if item.form == FORM and item.raw is not None:
        extra = item.raw.keys() - {"role", "content"}
        return {key: item.raw[key] for key in item.raw if key not in extra} if extra else item.raw
    only = item.parts[0] if len(item.parts) == 1 else None
    plain = isinstance(only, Text) and verbatim(only, FORM) is None
    content = only.text if plain and isinstance(only, Text) else [_block(part) for part in item.parts]
    return {"role": "assistant" if item.role == "assistant" else "user", "content": content}


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


def request(system: str | None, messages: list[Any]) -> dict[str, Any]:
    """Give the arguments of ``client.messages.create``."""
    return {"messages": messages} if system is None else {"system": system, "messages": messages}
