"""Anthropic's Messages API: user and assistant take turns, results lie in user messages, before all else in them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ..lenient import dicts, kind, word
from ..normal import Item, Media, Notes, Opaque, Part, Result, is_image, is_there, verbatim, with_parts
from ..rules import Rules, stripped
from .form import FORM

_LARGEST_IMAGE = 5 * 1024 * 1024  # in base64
_MOST_MARKS = 2  # of the four that a request may have, one is left for the system prompt and one for the tools
_THOUGHTS = ("thinking", "redacted_thinking")
_SERVER_CALLS = ("server_tool_use", "mcp_tool_use")
_SERVER_ID = re.compile(r"srvtoolu_[a-zA-Z0-9_]+")
_USERS = ("image", "document", "search_result", "container_upload", "tool_reference")


def takes(part: Media, role: str) -> bool:
    """Return whether media can be sent: images of four types and PDF, not from the assistant, not with a failure."""
    if role in ("assistant", "failed") or (part.url is not None and not part.url.startswith("https://")):
        return False
    if part.kind == "image":
        return is_image(part) and len(part.data or "") <= _LARGEST_IMAGE
    return part.mime == "application/pdf" and is_there(part)


def holds(part: Part, role: str) -> bool:
    """Return whether a block may stand in a message of a role."""
    name = kind(part.raw)
    if name in _THOUGHTS or _is_server(name):
        return role == "assistant"
    return not (name in _USERS and role in ("assistant", "failed"))


def _is_server(name: str) -> bool:
    return name in _SERVER_CALLS or name.endswith("_tool_result")


def forgets(item: Item) -> Item:
    """Leave out thinking: its signature is good for one model."""
    return with_parts(item, tuple(part for part in item.parts if not _is_thinking(part)))


def agrees(result: Result) -> bool:
    """Return whether a stored result can go out: it names its call, and a failure says something."""
    raw = result.raw
    silent = (raw.get("is_error") is True and not raw.get("content")) or raw.get("content", "") is None
    return result.to is not None and result.call_id == result.to.id and not silent


# ---------------------------------------------------------------------- what else is demanded


def tidy(items: Sequence[Item], notes: Notes) -> list[Item]:
    """Remove halves of server tools, thinking in wrong places, white space at the very end, old marks for the cache."""
    found = [item for item in _without_halves(items, notes) if item.parts]
    found = [kept for item in found if (kept := _without_thinking(item, notes)).parts]
    return _with_few_marks(stripped(found, notes), notes)


def _without_thinking(item: Item, notes: Notes) -> Item:
    """Leave out thinking that is unsigned, that ends a message, or that neither begins it nor what a server gave."""
    if item.role != "assistant" or not any([isinstance(part, Opaque) for part in item.parts]):  # noqa: C419
        return item
    parts = list[Part]()
    for part in item.parts:
        fits = not parts or _is_thinking(parts[0]) or _is_thinking(parts[-1]) or _is_given(parts[-1])
        if not _is_thinking(part) or (fits and not _is_unsigned(part)):
            parts.append(part)
    while parts and _is_thinking(parts[-1]):
        parts.pop()
    if len(parts) < len(item.parts):
        notes.add("left out thinking that is unsigned or in a wrong place", item.seq)
    return with_parts(item, tuple(parts))


def _is_thinking(part: Part) -> bool:
    return isinstance(part, Opaque) and kind(part.raw) in _THOUGHTS


def _is_given(part: Part) -> bool:
    return isinstance(part, Opaque) and kind(part.raw).endswith("_tool_result")


def _is_unsigned(part: Part) -> bool:
    return _is_thinking(part) and not (word(part.raw.get("signature")) or word(part.raw.get("data")))


def _without_halves(items: Sequence[Item], notes: Notes) -> list[Item]:
    """Leave out calls of a server's tools without a result, unless the turn goes on, and results without a call."""
    halves = _halves(items)
    if not halves:
        return list(items)
    found = list[Item]()
    for number, item in enumerate(items):
        parts = tuple(part for place, part in enumerate(item.parts) if (number, place) not in halves)
        if len(parts) < len(item.parts):
            notes.add("left out half of a server's tool call", item.seq)
        found.append(with_parts(item, parts))
    return found


def _halves(items: Sequence[Item]) -> set[tuple[int, int]]:
    """Find the blocks of server tools that lack their other half, or whose id is refused or used before."""
    asked = max((number for number, item in enumerate(items) if item.role == "user"), default=0)
    waiting, seen, halves = dict[str, tuple[int, int]](), set[str](), set[tuple[int, int]]()
    for number, item in enumerate(items):
        for place, part in enumerate(item.parts):
            if type(part) is not Opaque:
                continue
            name = kind(part.raw)
            if name in _SERVER_CALLS:
                id = word(part.raw.get("id"))
                if id in seen or not (name != "server_tool_use" or _SERVER_ID.fullmatch(id)):
                    halves.add((number, place))
                else:
                    seen.add(id)
                    waiting[id] = (number, place)
            elif _is_server(name) and waiting.pop(word(part.raw.get("tool_use_id")), None) is None:
                halves.add((number, place))
    return halves | {place for place in waiting.values() if place[0] < asked}


def _with_few_marks(items: list[Item], notes: Notes) -> list[Item]:
    """Keep the newest marks for the cache: more than four in a request are refused, and old ones do nothing."""
    if sum(_marks_of(part) for item in items for part in item.parts) <= _MOST_MARKS:
        return items
    left, found = _MOST_MARKS, list[Item]()
    for item in reversed(items):
        parts = list[Part]()
        for part in reversed(item.parts):
            marks = _marks_of(part)
            parts.append(replace(part, raw=_unmarked(part.raw)) if marks > left else part)
            left -= marks if marks <= left else 0
        found.append(with_parts(item, tuple(reversed(parts))))
    changed = [new.seq for new, old in zip(found[::-1], items, strict=True) if new is not old]
    if changed:
        notes.add("left out old cache_control marks", *changed)
    return found[::-1]


def _marks_of(part: Part) -> int:
    return 0 if verbatim(part, FORM) is None else _marks(part.raw)


def _marks(block: dict[str, Any]) -> int:
    content = block.get("content")
    inner = sum(map(_marks, dicts(content))) if type(content) is list else 0
    return inner + (block.get("cache_control") is not None)


def _unmarked(block: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in block.items() if key != "cache_control"}
    if isinstance(block.get("content"), list):
        kept["content"] = [_unmarked(each) if isinstance(each, dict) else each for each in block["content"]]
    return kept


RULES = Rules(
    form=FORM,
    takes=takes,
    holds=holds,
    forgets=forgets,
    alternates=True,
    refuses_blank=True,
    unique_ids=True,
    id=re.compile(r"[a-zA-Z0-9_-]+"),
    most=200,
    name=re.compile(r"[a-zA-Z0-9_-]{1,128}"),
    agrees=agrees,
    tidy=tidy,
)
