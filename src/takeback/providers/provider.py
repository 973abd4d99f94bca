"""What a provider is: its rules, and how its form is read, written and judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .glance import Judge
from .normal import Item, Part
from .rules import Rules

Note = Callable[[str], None]


def _sound(role: str, value: dict[str, Any], note: Note) -> dict[str, Any]:
    return value


def _untied(item: Item) -> Item:
    return item


class Provider(NamedTuple):
    """Everything that contexts need to know of a provider."""

    rules: Rules
    read: Callable[[dict[str, Any]], list[Part]]
    """The parts of a message, each with its own JSON."""
    write: Callable[[Sequence[Item], str | None], list[dict[str, Any]]]
    """The messages of a valid conversation, for a model if it is known."""
    plain: Callable[[str, str], dict[str, Any]]
    """A message of nothing but text, of a role."""
    request: Callable[[str | None, str | None, list[Any]], dict[str, Any]]
    """The arguments of the SDK's call: of a model, the system's words and messages."""
    judge: Judge
    """What is plainly right as stored."""
    sound: Callable[[str, dict[str, Any], Note], dict[str, Any]] = _sound
    """A stored message as its form allows it, for the role that it was understood as.

    Other programs add fields of theirs, and lose some. The providers refuse what they do not know ("Extra inputs are
    not permitted"), so it is taken away before anything is read; what an API said itself is trusted, for it may know
    more than we do. A message that is right already is the very same object.
    """
    untied: Callable[[Item], Item] = _untied
    """An answer without the ids that belong to reasoning which is gone."""
    prices: str | None = None
    """The provider's name in the list of prices, if that is another one."""
