"""What all forms share: careful looks at data that may be odd.

Nothing here or in the readers may raise on odd data: a message that was stored once can always
be read again, and a field of an unexpected type is treated as one that is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from ..errors import Invalid
from ..model.usage import Usage

_ROLES = {"model": "assistant", "developer": "system", "function": "tool"}
_NONE: frozenset[str] = frozenset()
_NOT_SAID = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_text", "summary_text"})


def normal_role(role: str) -> str:
    """Return our word for a provider's role; an unknown role stays as it is."""
    return _ROLES.get(role, role)


def fields(value: object) -> dict[str, Any]:
    """Return a dict as it is, anything else as an empty one."""
    return value if isinstance(value, dict) else {}


def dicts(value: object) -> Iterator[dict[str, Any]]:
    """Go through the dicts of a list; anything else holds none."""
    return (item for item in value if isinstance(item, dict)) if isinstance(value, list) else iter(())


def word(value: object) -> str:
    """Return a text as it is, anything else as an empty one."""
    return value if isinstance(value, str) else ""


def kind(part: dict[str, Any]) -> str:
    """Return the ``type`` of a part, block or item."""
    return word(part.get("type"))


def kinds(content: object) -> frozenset[str]:
    """Return the types of all parts of a content; most questions about a message need no more."""
    if not isinstance(content, list):
        return _NONE
    found = [part.get("type") for part in content if isinstance(part, dict)]
    return frozenset([name for name in found if isinstance(name, str)])


def present(value: object) -> Any:
    """Return content as it is, none as empty text."""
    return "" if value is None else value


def usage_of(value: object) -> Usage | None:
    """Read a response's usage; one that cannot be understood must not keep the message from being stored."""
    try:
        return None if value is None else Usage.of(value)
    except Invalid:
        return None


def decoded(arguments: object) -> Any:
    """Decode arguments that came as JSON text; text that is no JSON stays text."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return msgspec.json.decode(arguments)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return arguments


def joined(*texts: str) -> str:
    """Join the texts that are not empty, one per line."""
    return "\n".join(text for text in texts if text)


def said(content: object) -> str:
    """Join what is said in a text or in a list of parts; thinking is not said, refusals are."""
    if not isinstance(content, list):
        return word(content)
    return joined(*(_part_text(part) for part in content))


def _part_text(part: object) -> str:
    if not isinstance(part, dict):
        return word(part)
    if kind(part) in _NOT_SAID:
        return ""
    return word(part.get("text")) or word(part.get("refusal"))


def with_role(
    role: str, value: dict[str, Any], note: Callable[[str], None], tools: tuple[str, ...] = ("user",)
) -> dict[str, Any]:
    """Return a message that is sent with a role that its form knows; what the system says is not sent as a message."""
    given = value.get("role")
    known = tools if role == "tool" else (role,)
    if given is None or given in known or role not in ("user", "assistant", "tool"):
        return value
    note(f"sent role {given!r} as {known[0]}")
    return {**value, "role": known[0]}


def merged(given: dict[str, Any], more: dict[str, Any], where: str = "request") -> dict[str, Any]:
    """Return arguments of a call with more of the caller's; raises ``Invalid`` for one that is there already."""
    for name, value in more.items():
        if name in given and given[name] != value:
            how = _INSTEAD.get(name, "change it in the dict that request() returns")
            raise Invalid(f"{name!r} of the {where} comes from the context; leave it out, or {how}")
    return {**given, **more}


_INSTEAD = dict.fromkeys(("model", "modelId"), "build the context for that model: context(..., model=...)")


def given(**arguments: Any) -> dict[str, Any]:
    """Return the arguments that are there."""
    return {name: value for name, value in arguments.items() if value is not None}
