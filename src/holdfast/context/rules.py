"""What a provider demands of a conversation, as data that the repair reads.

Each provider's file says its own rules beside the code that writes its form; the repair knows no provider.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec

from .normal import Call, Item, Notes, Part, Result


def _named(result: Result) -> bool:
    return result.to is not None and result.call_id == result.to.id


def _any(call: Call) -> bool:
    return True


def _as_is(items: Sequence[Item], notes: Notes) -> list[Item]:
    return list(items)


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The demands of one provider."""

    form: str
    takes: Callable[[Part, str], bool]
    """Whether a part of another form can be written for a role (``tool``: inside a result)."""
    alternates: bool = False
    """Roles take turns and the user begins."""
    per_message: bool = False
    """Results follow the very message of their calls, not the last one of an assistant's run."""
    ordered: bool = False
    """Results lie in the order of their calls."""
    refuses_blank: bool = False
    """Text of nothing but white space is refused, not only empty text."""
    objects: bool = False
    """Arguments must be an object."""
    unique_ids: bool = False
    """No two calls of a request may have the same id; else no two of one step."""
    id: re.Pattern[str] | None
    """What ids look like; None where calls and results go by their order and need no id."""
    most: int = 0
    """The longest id."""
    name: re.Pattern[str]
    """What the names of tools look like."""
    agrees: Callable[[Result], bool] = _named
    """Whether the JSON of a result fits the call it was paired with."""
    closes: Callable[[Call], bool] = _any
    """Whether a result can be made up for a call."""
    tidy: Callable[[Sequence[Item], Notes], list[Item]] = _as_is
    """What else this provider demands, once items are paired and joined."""
