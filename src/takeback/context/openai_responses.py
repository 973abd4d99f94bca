"""OpenAI's Responses API: a flat list of items; each call is an item, and so is its output.

Reasoning must be followed by what it led to, as the API itself gave it. Calls of the tools that OpenAI defines
(shell, patches...) are answered by items of their own types, some of which nobody but the tool can make.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from ..model.forms.given import kind, word
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

FORM = "openai-responses"
_PREFIXES = {"message": "msg", "function_call": "fc", "reasoning": "rs", "custom_tool_call": "ctc"}
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_OF_SDK = frozenset({"parsed_arguments", "parsed", "created_by"})
_NULLS = frozenset({"encrypted_content"})


def takes(part: Media, role: str) -> bool:
    """Say whether media can be sent: images and PDF, from the user and from tools."""
    if role == "assistant":
        return False
    return is_image(part) if part.kind == "image" else part.mime == "application/pdf" and is_there(part)


def holds(part: Part, role: str) -> bool:
    """Say whether a part may stand in a message of a role: there is another type of text for each side."""
    name = kind(part.raw)
    if name.startswith("input_"):
        return role != "assistant"
    return name not in ("output_text", "refusal") or role == "assistant"


def _free(call: Call) -> bool:
    return kind(call.raw) != "function_call"


def agrees(result: Result) -> bool:
    """Say whether a stored output names its call and is of the call's own type."""
    if result.to is None or result.call_id != result.to.id:
        return False
    asked = verbatim(result.to, FORM)
    return kind(result.raw) == _TYPES.get("function_call" if asked is None else kind(asked), kind(result.raw))


def closes(call: Call) -> bool:
    """Say whether a result can be made up: no screenshot can, nor a list of tools."""
    raw = verbatim(call, FORM)
    return raw is None or kind(raw) in _OUTPUTS


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
    return item if raw is item.raw and all(map(_is, parts, item.parts)) else replace(item, parts=parts, raw=raw)


def _is(one: object, other: object) -> bool:
    return one is other


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
    """Say whether the id of an item is one that OpenAI gives to its kind."""
    id, begins = raw.get("id"), _PREFIXES.get(kind(raw), "")
    return isinstance(id, str) and id.startswith(begins) and _ID.fullmatch(id, len(begins)) is not None


def item_id(item: Item) -> str | None:
    """Give the id that a stored item has itself."""
    return word(_raw(item).get("id")) or None


def _raw(item: Item) -> dict[str, Any]:
    """Give the JSON that a stored item is; an item of other forms has none."""
    own = (part.raw for part in item.parts if isinstance(part, Call | Opaque) and not _is_said(part))
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
    """Say whether what comes after reasoning is its own: reasoning that lies at OpenAI knows that by the id."""
    if after is None or after.role != "assistant":
        return False
    if stands_alone(_raw(item)):
        return True
    return bool(_raw(after).get("id")) and (after.raw is not None or not _is_said(after.parts[0]))


def stands_alone(raw: dict[str, Any]) -> bool:
    """Say whether reasoning holds all that it is, so that whatever follows may follow it."""
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
    free=_free,
    unique_ids=True,
    id=re.compile(r"[^\x00-\x1f]+"),
    most=64,
    name=re.compile(r"[a-zA-Z0-9_-]{1,128}"),
    agrees=agrees,
    closes=closes,
    tidy=tidy,
    item_id=item_id,
)


# ---------------------------------------------------------------------- writing


def write(items: Sequence[Item], model: str | None) -> list[dict[str, Any]]:
    """Write items for ``responses.create``."""
    return [written for item in items for written in _items(item)]


def _items(item: Item) -> Iterator[dict[str, Any]]:
    if item.form == FORM and item.raw is not None:
        yield sendable(item.raw)
        return
    yield from (_result(part) for part in item.parts if isinstance(part, Result))
    said = tuple(part for part in item.parts if _is_said(part))
    if said:
        role = "assistant" if item.role == "assistant" else "user"
        yield {"role": role, "content": texts(said) if role == "assistant" else _content(said)}
    for part in item.parts:
        if isinstance(part, Call):
            yield _call(part)
        elif isinstance(part, Opaque) and not _is_said(part):
            yield sendable(part.raw)


def _is_said(part: Part) -> bool:
    return isinstance(part, Text | Media) or (isinstance(part, Opaque) and kind(part.raw).startswith("input_"))


def plain(role: str, text: str) -> dict[str, Any]:
    """Write a message of nothing but text."""
    return {"role": role, "content": text}


def sendable(raw: dict[str, Any]) -> dict[str, Any]:
    """Give an item as a request may hold it: without what only the SDK adds, and without nulls."""
    if None not in raw.values() and _OF_SDK.isdisjoint(raw):  # as nearly all are
        return raw
    kept = {key: value for key, value in raw.items() if key not in _OF_SDK and (value is not None or key in _NULLS)}
    return raw if len(kept) == len(raw) else kept


def _call(part: Call) -> Any:
    raw = verbatim(part, FORM)
    if raw is not None:
        return sendable(raw)
    arguments = as_text(part.arguments)
    return {"type": "function_call", "call_id": part.id, "name": part.name, "arguments": arguments}


def _result(part: Result) -> Any:
    raw = verbatim(part, FORM)
    if raw is not None:
        return raw
    asked = None if part.to is None else verbatim(part.to, FORM)
    return _OUTPUTS[kind(asked) if isinstance(asked, dict) else "function_call"](part)


def _said(part: Result) -> str:
    return texts(part.parts) or ("" if part.success else "failed")


def _function(part: Result) -> dict[str, Any]:
    has_media = any(isinstance(each, Media) for each in part.parts)
    output = [_part(each) for each in part.parts] if has_media else _said(part)
    return {"type": "function_call_output", "call_id": part.call_id, "output": output}


def _custom(part: Result) -> dict[str, Any]:
    return {"type": "custom_tool_call_output", "call_id": part.call_id, "output": _said(part)}


def _local_shell(part: Result) -> dict[str, Any]:
    return {"type": "local_shell_call_output", "id": part.call_id, "output": _said(part)}


def _shell(part: Result) -> dict[str, Any]:
    outcome = {"type": "exit", "exit_code": 0 if part.success else 1}
    output = {"stdout": _said(part) if part.success else "", "stderr": "" if part.success else _said(part)}
    return {"type": "shell_call_output", "call_id": part.call_id, "output": [{**output, "outcome": outcome}]}


def _patch(part: Result) -> dict[str, Any]:
    status = "completed" if part.success else "failed"
    return {"type": "apply_patch_call_output", "call_id": part.call_id, "status": status, "output": _said(part)}


_OUTPUTS: dict[str, Callable[[Result], dict[str, Any]]] = {
    "function_call": _function,
    "custom_tool_call": _custom,
    "local_shell_call": _local_shell,
    "shell_call": _shell,
    "apply_patch_call": _patch,
}
_TYPES = {name: f"{name}_output" for name in _OUTPUTS}


def _content(parts: tuple[Part, ...]) -> Any:
    if all(isinstance(part, Text) and verbatim(part, FORM) is None for part in parts):
        return texts(parts)
    return [_part(part) for part in parts]


def _part(part: Part) -> Any:
    raw = verbatim(part, FORM)
    if raw is not None:
        return raw
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    if not isinstance(part, Media):
        raise TypeError(f"{type(part).__name__} should have been left out")
    url = part.url or f"data:{part.mime};base64,{part.data}"
    if part.kind == "image":
        return {"type": "input_image", "detail": "auto", "image_url": url}
    if part.url is not None:
        return {"type": "input_file", "file_url": url}
    return {"type": "input_file", "filename": part.name or "document.pdf", "file_data": url}


def request(system: str | None, messages: list[Any]) -> dict[str, Any]:
    """Give the arguments of ``client.responses.create``."""
    return {"input": messages} if system is None else {"instructions": system, "input": messages}
