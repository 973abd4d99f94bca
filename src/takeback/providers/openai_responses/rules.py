"""OpenAI's Responses API: a flat list of items; each call is an item, and so is its output.

Reasoning must be followed by what it led to, as the API itself gave it. Calls of the tools that OpenAI defines
(shell, patches...) are answered by items of their own types, some of which nobody but the tool can make.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ..lenient import kind, word
from ..normal import Call, Item, Media, Notes, Opaque, Part, Result, is_image, is_same, is_there, verbatim, with_parts
from ..rules import Rules
from .form import FORM
from .known import ITEMS, PARTS
from .write import OUTPUTS, is_said

_PREFIXES = {"message": "msg", "function_call": "fc", "reasoning": "rs", "custom_tool_call": "ctc"}
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_TYPES = {name: f"{name}_output" for name in OUTPUTS}


def takes(part: Media, role: str) -> bool:
    """Return whether media can be sent: images and PDF, from the user and from tools."""
    if role == "assistant":
        return False
    return is_image(part) if part.kind == "image" else part.mime == "application/pdf" and is_there(part)


def holds(part: Part, role: str) -> bool:
    """Return whether a part may stand in a message of a role: there is another type of text for each side.

    An item of a type that is not known cannot be sent.
    """
    name = kind(part.raw)
    if name not in PARTS and name not in ITEMS:
        return False
    if name.startswith("input_"):
        return role != "assistant"
    return name not in ("output_text", "refusal") or role == "assistant"


def _free(call: Call) -> bool:
    return kind(call.raw) != "function_call"


def agrees(result: Result) -> bool:
    """Return whether a stored output names its call and is of the call's own type."""
    if result.to is None or result.call_id != result.to.id:
        return False
    asked = verbatim(result.to, FORM)
    return kind(result.raw) == _TYPES.get("function_call" if asked is None else kind(asked), kind(result.raw))


def closes(call: Call) -> bool:
    """Return whether a result can be made up: no screenshot can, nor a list of tools."""
    raw = verbatim(call, FORM)
    return raw is None or kind(raw) in OUTPUTS


# ---------------------------------------------------------------------- reasoning and ids


def forgets(item: Item) -> Item:
    """Leave out reasoning and what OpenAI's own tools did for it; the rest goes without the ids that belong to it."""
    parts = tuple(part for part in item.parts if not (isinstance(part, Opaque) and _is_tied(part.raw)))
    return nameless(with_parts(item, parts))


def _is_tied(raw: dict[str, Any]) -> bool:
    return not kind(raw).startswith("input_") and kind(raw) not in ("compaction", "additional_tools")


def nameless(item: Item) -> Item:
    """Take the id of OpenAI's server from an item, for it names the reasoning that it belongs to."""
    if item.form != FORM:
        return item
    parts = tuple(
        replace(part, raw=_without_id(part.raw)) if isinstance(part, Call) and _has_id(part.raw) else part
        for part in item.parts
    )
    raw = _without_id(item.raw) if _has_id(item.raw) else item.raw
    return item if raw is item.raw and is_same(parts, item.parts) else replace(item, parts=parts, raw=raw)


def _has_id(raw: Any) -> bool:
    return isinstance(raw, dict) and "id" in raw


def _without_id(raw: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in raw.items() if key != "id"}


def tidy(items: Sequence[Item], notes: Notes) -> list[Item]:
    """Let reasoning be followed by what it led to, and let no id be there twice."""
    return _reasoned(_identified(items, notes), notes)


def _identified(items: Sequence[Item], notes: Notes) -> list[Item]:
    """Take away ids that are refused, or that an item before has; what is nothing without its id is left out."""
    found, seen = list[Item](), set[str]()
    for item in items:
        raw = _raw(item)
        id = raw.get("id")
        if id is None or kind(raw) == "local_shell_call_output":
            found.append(item)
        elif has_right_id(raw) and id not in seen:
            seen.add(id)
            found.append(item)
        elif isinstance(only := item.parts[0], Opaque):
            notes.add(f"left out {only.what} with an id that is refused or used before", item.seq)
        else:
            notes.add("sent an item without its id, which is refused or used before", item.seq)
            found.append(nameless(item))
    return found


def has_right_id(raw: dict[str, Any]) -> bool:
    """Return whether the id of an item is one that OpenAI gives to its kind."""
    id, begins = raw.get("id"), _PREFIXES.get(kind(raw), "")
    return isinstance(id, str) and id.startswith(begins) and _ID.fullmatch(id, len(begins)) is not None


def item_id(item: Item) -> str | None:
    """Return the id that a stored item has itself."""
    return word(_raw(item).get("id")) or None


def _raw(item: Item) -> dict[str, Any]:
    """Return the JSON that a stored item is; an item of other forms has none."""
    own = (part.raw for part in item.parts if isinstance(part, Call | Opaque) and not is_said(part))
    raw = next(own, item.raw)
    return raw if item.form == FORM and isinstance(raw, dict) else {}


def _reasoned(items: Sequence[Item], notes: Notes) -> list[Item]:
    """Leave out reasoning that leads to nothing, and the ids of what followed it; seen from the end."""
    found = list[Item]()
    for item in reversed(items):
        if _is_reasoning(item) and not _leads(item, found[-1] if found else None):
            notes.add("left out reasoning that nothing follows", item.seq)
            _untie(found)
        else:
            found.append(item)
    return found[::-1]


def _is_reasoning(item: Item) -> bool:
    return kind(_raw(item)) == "reasoning"


def _leads(item: Item, after: Item | None) -> bool:
    """Return whether what comes after reasoning is its own: reasoning that lies at OpenAI knows that by the id."""
    if after is None or after.role != "assistant":
        return False
    if stands_alone(_raw(item)):
        return True
    return bool(_raw(after).get("id")) and (after.raw is not None or not is_said(after.parts[0]))


def stands_alone(raw: dict[str, Any]) -> bool:
    """Return whether reasoning holds all that it is, so that whatever follows may follow it."""
    return bool(raw.get("encrypted_content") or not raw.get("id"))


def _untie(found: list[Item]) -> None:
    """Take the ids from the items at the end, which come first in the log, up to the next reasoning."""
    for place in range(len(found) - 1, -1, -1):
        if found[place].role != "assistant" or _is_reasoning(found[place]):
            break
        found[place] = nameless(found[place])


RULES = Rules(
    form=FORM,
    takes=takes,
    holds=holds,
    forgets=forgets,
    itemised=True,
    free=_free,
    unique_ids=True,
    id=re.compile(r"[^\x00-\x1f]+"),
    most=64,
    name=re.compile(r"[a-zA-Z0-9_-]{1,128}"),
    agrees=agrees,
    closes=closes,
    tidy=tidy,
    item_id=item_id,
    untied=nameless,
    developer=True,
    prices="openai",
)
