"""What a provider is: its rules, and how its form is read, written and judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from . import load
from .glance import Judge
from .lenient import merged
from .normal import Item, Part
from .rules import Rules

Note = Callable[[str], None]


def _plain(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def _sound(role: str, value: dict[str, Any], note: Note) -> dict[str, Any]:
    return value


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
    merge: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]
    """These arguments with more of the caller's."""
    judge: Judge
    """What is plainly right as stored."""
    sound: Callable[[str, dict[str, Any], Note], dict[str, Any]]
    """A stored message as its form allows it, for the role that it was understood as.

    Other programs add fields of theirs, and lose some. The providers refuse what they do not know ("Extra inputs are
    not permitted"), so it is taken away before anything is read, whoever said it: nobody can tell what an API said
    itself from what others added to it. A message that is right already is the very same object.
    """


def gathered(name: str) -> Provider:
    """Gather what the modules of a provider's folder offer; some need neither ``plain`` nor ``merge`` of their own."""
    rules, read, write, glance = (load(name, module) for module in ("rules", "read", "write", "glance"))
    plain, merge = getattr(write, "plain", _plain), getattr(write, "merge", merged)
    sound = getattr(read, "sound", _sound)
    return Provider(rules.RULES, read.read, write.write, plain, write.request, merge, glance.judge, sound)
