"""JSON pointers (RFC 6901): where something lies inside a value, so that it need not be stored a second time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_SHORTEST = 24  # a pointer to a shorter text would take as much room as the text
_DEEPEST = 12
_TEXT = "text"
_INDEX = re.compile("0|[1-9][0-9]{0,9}")


def resolve(value: Any, pointer: str) -> Any:
    """Return what a pointer leads to inside a value; None if it leads nowhere."""
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list):
            value = value[int(name)] if _INDEX.fullmatch(name) and int(name) < len(value) else None
        else:
            return None
    return value


def joined(value: Any, pointers: list[str]) -> Any:
    """Return what one pointer leads to, or the texts that several lead to, a line each."""
    if len(pointers) == 1:
        return resolve(value, pointers[0])
    return "\n".join(part for each in pointers if isinstance(part := resolve(value, each), str))


def locate(value: Any, content: Any) -> list[str] | None:
    """Find content inside a value: as a whole, or as the texts of its parts, a line each. None if it is not there."""
    if isinstance(content, str):
        if len(content) < _SHORTEST:
            return None
    elif not isinstance(content, list) or not content:
        return None
    places = list(_places(value, ""))
    for place, found in places:
        if type(found) is type(content) and found == content:
            return [place]
    texts = [(place, found) for place, found in places if isinstance(found, str) and place.endswith(f"/{_TEXT}")]
    if isinstance(content, str) and "\n".join(found for _, found in texts if found) == content:
        return [place for place, found in texts if found]
    return None


def _places(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Yield everything inside a value with the pointer to it, itself first."""
    yield place, value
    if place.count("/") >= _DEEPEST:
        return
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _places(inner, f"{place}/{str(name).replace('~', '~0').replace('/', '~1')}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _places(inner, f"{place}/{index}")
