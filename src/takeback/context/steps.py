"""A conversation as those see it who count it: light steps, made of items, or of what a glance saw before any item."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ..model.message import Message
from .normal import Call, Item, Part, Result, Text
from .tokens import Count, item_tokens


class Unsure(Exception):
    """A short cut cannot be taken to its end: whoever took it goes the long way."""


class Answer(msgspec.Struct, frozen=True, gc=False):
    """A result: the id of its call or None, the name of the tool if it says that; itself if it is to be written."""

    id: str | None
    name: str | None = None
    result: Result | None = None


class Step(msgspec.Struct, gc=False):
    """One message: what counts of it. Where it stands is told once it is known."""

    role: str
    tokens: int
    message: Any = None
    """As it is sent, if that is known."""
    speaks: bool = False
    """Whether it holds text beside calls and results."""
    calls: Sequence[Call] = ()
    answers: Sequence[Answer] = ()
    longest: int = 0
    """The characters of the longest text among its results."""
    tied: bool = False
    """Whether it holds what only the model that made it can read."""
    bare: bool = False
    """Whether its first call has no signature, in a form that has some."""
    id: str | None = None
    """The id that the message itself has."""
    leads: str = ""
    """What has to follow: ``any`` answer, or one with an ``id``."""
    item: Item | None = None
    """What it was made of, or else..."""
    source: Message | None = None
    """... what an item can be read from."""
    seq: int = 0
    is_request: bool = False
    """Whether somebody asks for something; what was made up to be valid has no place in the log."""
    place: int = 0
    """How many messages are sent before it."""
    joined: bool = False
    """Whether it is sent in one message with the step before it."""


def step_of(item: Item, count: Count) -> Step:
    """Make the step of an item."""
    found = Step(item.role, item_tokens(item, count), item=item, seq=item.seq)
    found.calls = [part for part in item.parts if type(part) is Call]
    found.answers = [Answer(part.call_id, None, part) for part in item.parts if type(part) is Result]
    found.longest = max((len(longest_text(part)) for part in item.parts), default=0) if found.answers else 0
    found.is_request = item.role == "user" and item.seq > 0 and not found.answers
    return found


def longest_text(part: Part) -> str:
    """Give the longest text in what a tool gave; nothing if it is something else."""
    return max(_texts(part), key=len, default="")


def _texts(part: Part) -> Iterator[str]:
    return (each.text for each in part.parts if isinstance(each, Text)) if isinstance(part, Result) else iter(())
