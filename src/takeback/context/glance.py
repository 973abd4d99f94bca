"""What all judges of stored messages share: careful looks at decoded JSON, and the judge of our own form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeGuard

import msgspec

from .normal import Call, Item, Result, Text
from .steps import Step, step_of
from .tokens import Count

decode = msgspec.json.Decoder().decode  # quicker than the function of the module
Judge: TypeAlias = Callable[[dict[str, Any], str, Count], Step | None]


def of_item(item: Item, count: Count, refuses_blank: bool) -> Step | None:
    """Judge a message in our own form that was read: texts, then calls; or nothing but results that are text."""
    found = step_of(item, count)
    kinds = [type(part) for part in item.parts]
    said = kinds.count(Text)
    for part in item.parts:
        for each in part.parts if type(part) is Result else (part,) if type(part) is Text else ():
            if type(each) is not Text or not is_said(each.text, refuses_blank):
                return None
    found.speaks = said > 0
    wanted = {"user": [Text] * said, "assistant": [Text] * said + [Call] * len(found.calls)}
    return found if kinds and kinds == wanted.get(item.role, [Result] * len(kinds)) else None


def is_said(text: Any, refuses_blank: bool) -> TypeGuard[str]:
    """Say whether something is a text that may be sent."""
    return type(text) is str and text != "" and not (refuses_blank and text.isspace())


def texts_of(content: Any, kind: str, refuses_blank: bool = False) -> list[str] | None:
    """Give the texts of content that is a text, or a list of blocks of one type with nothing but a text."""
    if type(content) is str:
        return [content] if is_said(content, refuses_blank) else None
    if type(content) is not list or not content:
        return None
    for block in content:
        if type(block) is not dict or len(block) != 2 or block.get("type") != kind:
            return None
        if not is_said(block.get("text"), refuses_blank):
            return None
    return [block["text"] for block in content]


def given_by_tool(content: Any, kind: str, refuses_blank: bool, count: Count) -> tuple[int, int] | None:
    """Give the tokens of what a tool gave, and the characters of its longest text; it may have given nothing."""
    if type(content) is str:
        return None if refuses_blank and content.isspace() else (count(content) if content else 0, len(content))
    found = texts_of(content, kind, refuses_blank)
    return None if found is None else (sum(map(count, found)), max(map(len, found)))


def arguments_of(arguments: Any) -> Any:
    """Decode the arguments of OpenAI's calls; what is no object is unusual."""
    try:
        found = decode(arguments)
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError):
        return None
    return found if type(found) is dict else None
