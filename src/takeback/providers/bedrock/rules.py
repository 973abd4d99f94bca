"""Converse: user and assistant take turns, results lie in the user's next message, and documents have names.

A document's name holds few kinds of characters, no two documents of a request may have the same one, and a message
with a document has a text too. Of documents and images the newest stay where there are too many.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from ..lenient import dicts, fields, word
from ..normal import (
    Item,
    Media,
    Notes,
    Opaque,
    Part,
    Result,
    Text,
    is_base64,
    is_same,
    is_there,
    verbatim,
    with_parts,
)
from ..rules import Rules, stripped
from .form import FORM
from .read import DOCUMENTS, IMAGES, SOUNDS, VIDEOS

BESIDE = "(See the document.)"
_LARGEST_IMAGE = 5 * 1024 * 1024  # in base64: 3.75 MB
_LARGEST_DOCUMENT = 6 * 1024 * 1024  # 4.5 MB
_MOST_IMAGES = 20  # of a message
_MOST_DOCUMENTS = 5  # of a request
_MOST_MARKS = 2  # of the four that a request may have, one is left for the system prompt and one for the tools
_NAME = re.compile(r"(?!.*  )[a-zA-Z0-9 ()\[\]-]{1,200}")
_CLAUDE = re.compile(r"claude|anthropic", re.IGNORECASE)
_S3 = re.compile(r"s3://[a-z0-9][.a-z0-9-]{1,61}[a-z0-9](/.*)?")
_TAKEN = {"image": IMAGES, "document": DOCUMENTS, "video": VIDEOS, "audio": SOUNDS}
_OF_ASSISTANT = ("toolUse", "reasoningContent", "citationsContent")
_OF_USER = ("guardContent", "searchResult", "document", "image", "video", "audio")


def takes(part: Media, role: str) -> bool:
    """Return whether media can be sent: at hand or in S3, from the user, and all but sound from tools."""
    if role in ("assistant", "failed") or (role == "tool" and part.kind == "audio"):
        return False
    if part.mime not in _TAKEN.get(part.kind, ()):
        return False
    if part.data is None:
        return part.url is not None and _S3.fullmatch(part.url) is not None
    largest = {"image": _LARGEST_IMAGE, "document": _LARGEST_DOCUMENT}.get(part.kind)
    return is_there(part) and (largest is None or len(part.data) <= largest)


def holds(part: Part, role: str) -> bool:
    """Return whether a block may stand in a message of a role; results hold fewer kinds."""
    name = next(iter(part.raw), "")
    if role == "assistant":
        return name not in _OF_USER
    if role in ("tool", "failed"):
        return name in ("text", "json", "searchResult") or (role == "tool" and name in ("image", "document", "video"))
    return name not in _OF_ASSISTANT and name != "json" and not _is_servers(part)


def _is_servers(part: Part) -> bool:
    """Return whether a use or a result of a tool is the server's, which stands in the assistant's message."""
    return isinstance(part, Opaque) and not part.raw.keys().isdisjoint(("toolUse", "toolResult"))


def _is_thinking(part: Part) -> bool:
    return isinstance(part, Opaque) and "reasoningContent" in part.raw


def _is_mark(part: Part) -> bool:
    return isinstance(part, Opaque) and "cachePoint" in part.raw


def forgets(item: Item) -> Item:
    """Leave out reasoning: its signature is good for one model."""
    return with_parts(item, tuple(part for part in item.parts if not _is_thinking(part)))


def agrees(result: Result) -> bool:
    """Return whether a stored result can go out: it names its call, and says something."""
    given = list(dicts(fields(result.raw.get("toolResult")).get("content")))
    return result.to is not None and result.call_id == result.to.id and bool(given)


# ---------------------------------------------------------------------- what else is demanded


def tidy(items: Sequence[Item], notes: Notes) -> list[Item]:
    """Remove reasoning in wrong places, old marks, media that is too much; name documents, and put text beside them."""
    found = _marked(_without_halves(items, notes), notes)
    found = [kept for item in found if (kept := _without_thinking(item, notes)).parts]
    found = _fewer(stripped(found, notes), _is_document, _MOST_DOCUMENTS, notes)
    found = [each for item in found for each in _fewer([item], _is_picture, _MOST_IMAGES, notes)]
    return [_accompanied(item, notes) for item in _named(found, notes)]


def _without_halves(items: Sequence[Item], notes: Notes) -> list[Item]:
    """Leave out results of the server's tools without a use in the same message, and uses without a result."""
    found = list[Item]()
    for item in items:
        uses, results = _server_ids(item, "toolUse"), _server_ids(item, "toolResult")
        whole = uses & results
        parts = tuple(part for part in item.parts if not _is_servers(part) or _server_id(part) in whole)
        if len(parts) < len(item.parts):
            notes.add("left out half of a server's tool call", item.seq)
        if parts:
            found.append(with_parts(item, parts))
    return found


def _server_ids(item: Item, kind: str) -> set[str]:
    return {_server_id(part) for part in item.parts if _is_servers(part) and kind in part.raw}


def _server_id(part: Part) -> str:
    return word(fields(next(iter(part.raw.values()))).get("toolUseId"))


def _without_thinking(item: Item, notes: Notes) -> Item:
    """Leave out reasoning that does not begin a message or follow reasoning that does, and that ends it."""
    if not any([_is_thinking(part) for part in item.parts]):  # noqa: C419
        return item
    parts = list[Part]()
    for part in item.parts:
        fits = not parts or _is_thinking(parts[0])
        if not _is_thinking(part) or (fits and _is_whole(part.raw["reasoningContent"])):
            parts.append(part)
    while parts and (_is_thinking(parts[-1]) or (_is_mark(parts[-1]) and all(map(_is_silent, parts)))):
        parts.pop()
    if len(parts) < len(item.parts):
        notes.add("left out thinking that is damaged or in a wrong place", item.seq)
    return with_parts(item, tuple(parts))


def _is_silent(part: Part) -> bool:
    return _is_thinking(part) or _is_mark(part)


def _is_whole(reasoning: Any) -> bool:
    """Return whether reasoning is a text, or bytes as base64."""
    redacted = fields(reasoning).get("redactedContent")
    if redacted is None:
        return isinstance(fields(fields(reasoning).get("reasoningText")).get("text"), str)
    return is_base64(redacted)


def _marked(items: Sequence[Item], notes: Notes) -> list[Item]:
    """Keep the newest marks for the cache: more than four in a request are refused, and old ones do nothing.

    A mark stands behind what it marks, so one that begins a message leaves too.
    """
    left, found, changed = _MOST_MARKS, list[Item](), list[int]()
    for item in reversed(items):
        parts = list[Part]()
        for place in range(len(item.parts) - 1, -1, -1):
            part = item.parts[place]
            if not _is_mark(part):
                parts.append(part)
            elif left and any(not _is_mark(each) for each in item.parts[:place]):
                parts.append(part)
                left -= 1
        if len(parts) < len(item.parts):
            changed.append(item.seq)
        if parts:
            found.append(with_parts(item, tuple(reversed(parts))))
    if changed:
        notes.add("left out cache points that are old or mark nothing", *reversed(changed))
    return found[::-1]


# ---------------------------------------------------------------------- documents and images


def _is_document(part: Part) -> bool:
    return (isinstance(part, Media) and part.kind == "document") or "document" in (verbatim(part, FORM) or ())


def _is_picture(part: Part) -> bool:
    return isinstance(part, Media) and part.kind == "image"


def _fewer(items: Sequence[Item], counts: Callable[[Part], bool], most: int, notes: Notes) -> list[Item]:
    """Leave the newest of a kind of media, and say in the place of older ones that these are left out."""
    left = sum(counts(part) for item in items for part in _inside(item)) - most
    if left <= 0:
        return list(items)

    def fewer(part: Part) -> Part:
        nonlocal left
        if isinstance(part, Result):
            return _with_inner(part, tuple(map(fewer, part.parts)))
        if left <= 0 or not counts(part):
            return part
        left -= 1
        what = f"{part.kind} {part.name or part.mime}" if isinstance(part, Media) else "document"
        return Text(f"[left out: {what}]")

    found = [with_parts(item, tuple(map(fewer, item.parts))) for item in items]
    notes.add(f"left out media beyond the newest {most}", *_changed(found, items))
    return found


def _changed(found: Sequence[Item], items: Sequence[Item]) -> list[int]:
    return [new.seq for new, old in zip(found, items, strict=True) if new is not old]


def _inside(item: Item) -> list[Part]:
    return [each for part in item.parts for each in (part.parts if isinstance(part, Result) else (part,))]


def _with_inner(part: Result, parts: tuple[Part, ...]) -> Result:
    return part if is_same(parts, part.parts) else replace(part, parts=parts, raw=None)


def _named(items: Sequence[Item], notes: Notes) -> list[Item]:
    """Let every document have a name that is taken by no other; documents that others gave are named as they came."""
    used, renamed = set[str](), list[Part]()

    def named(part: Part) -> Part:
        if isinstance(part, Result):
            return _with_inner(part, tuple(map(named, part.parts)))
        if not _is_document(part):
            return part
        raw = verbatim(part, FORM)
        given = part.name if isinstance(part, Media) else fields(raw["document"]).get("name")
        name = _free_name(given, used)
        used.add(name.lower())
        if name == given:
            return part
        if raw is not None:
            renamed.append(part)
            raw = {"document": {**fields(raw["document"]), "name": name}}
        return replace(part, raw=raw, **({"name": name} if isinstance(part, Media) else {}))

    found = [with_parts(item, tuple(map(named, item.parts))) for item in items]
    if renamed:
        notes.add("gave a document another name", *_changed(found, items))
    return found


def _free_name(given: object, used: set[str]) -> str:
    """Keep a name that is valid and free, regardless of case; else make one from it, the same at every time."""
    name = given if isinstance(given, str) else ""
    if not _NAME.fullmatch(name):
        base = re.sub(r"\.[a-zA-Z0-9]{1,5}$", "", name)
        name = " ".join(re.sub(r"[^a-zA-Z0-9()\[\]-]", " ", base).split())[:190].strip() or "document"
    base, number = name[:190], 1
    while name.lower() in used:
        number += 1
        name = f"{base} {number}"
    return name


def _accompanied(item: Item, notes: Notes) -> Item:
    """Put a text into a message that has a document and none."""
    if item.role == "assistant" or not any(map(_is_document, item.parts)) or any(map(_is_text, item.parts)):
        return item
    notes.add("put a text beside a document", item.seq)
    return with_parts(item, (*item.parts, Text(BESIDE)))


def _is_text(part: Part) -> bool:
    return isinstance(part, Text) and (verbatim(part, FORM) is None or "text" in part.raw)


def suits(items: Sequence[Item], model: str, notes: Notes) -> list[Item]:
    """Leave out unsigned reasoning for Claude, which refuses it; other models sign nothing."""
    return [_signed(item, notes) for item in items] if _CLAUDE.search(model) else list(items)


def _signed(item: Item, notes: Notes) -> Item:
    parts = tuple(part for part in item.parts if not (_is_thinking(part) and is_bare(part.raw["reasoningContent"])))
    if len(parts) == len(item.parts):
        return item
    notes.add("left out thinking that is not signed", item.seq)
    return with_parts(item, parts)


def is_bare(reasoning: Any) -> bool:
    """Return whether reasoning is a text without a signature."""
    said = fields(reasoning).get("reasoningText")
    return said is not None and not word(fields(said).get("signature"))


RULES = Rules(
    form=FORM,
    takes=takes,
    holds=holds,
    forgets=forgets,
    alternates=True,
    refuses_blank=True,
    unique_ids=True,
    id=re.compile(r"[a-zA-Z0-9_.:-]+"),
    most=64,
    name=re.compile(r"[a-zA-Z0-9_-]{1,64}"),
    agrees=agrees,
    tidy=tidy,
    suits=suits,
    prices="aws",
)
