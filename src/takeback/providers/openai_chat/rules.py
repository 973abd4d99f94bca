"""OpenAI's Chat Completions: calls beside an assistant's content, each result a message of its own behind them.

Every message with calls is followed by its results before anybody else speaks; nothing else is demanded of the order.
Many other providers speak this form with fields of their own, which a stored message keeps.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from ..lenient import kind
from ..normal import Call, Item, Media, Notes, Opaque, Part, Result, is_image, is_there, verbatim, with_parts
from ..rules import Rules
from .form import FORM
from .known import USERS_PARTS

_PERSON = re.compile(r"[^\s<|\\/>]{1,64}")
_OPENAIS = re.compile(r"(openai/)?(gpt-\d|o\d|chatgpt)")
SOUNDS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mp3": "mp3", "audio/mpeg": "mp3"}


def takes(part: Media, role: str) -> bool:
    """Return whether media can be sent: from the user only, since results are text here."""
    if role != "user":
        return False
    if part.kind == "image":
        return is_image(part)
    return part.data is not None and is_there(part) and (part.mime in SOUNDS or part.mime == "application/pdf")


def holds(part: Part, role: str) -> bool:
    """Return whether a part may stand in a message of a role: an assistant says text, beside it is reasoning."""
    name = kind(part.raw)
    if role == "assistant":
        return name in ("", "text", "refusal")
    return name == "text" or (role == "user" and name in USERS_PARTS)


def forgets(item: Item) -> Item:
    """Leave out the reasoning that some servers put beside the content."""
    return with_parts(item, tuple(part for part in item.parts if not isinstance(part, Opaque)))


def _blind(model: str) -> bool:
    """Return whether a model is OpenAI's own, which says nothing beside the content and refuses that from others."""
    return _OPENAIS.match(model) is not None


def _free(call: Call) -> bool:
    return "custom" in call.raw


def agrees(result: Result) -> bool:
    """Return whether a stored result answers its call in the call's own way, the old one or the new."""
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
    developer=True,
    prices="openai",
)
