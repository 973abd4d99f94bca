"""A conversation as those see it who count it: light steps, made of items, or of what a glance saw before any item."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ..model.message import Message
from .normal import Call, Item, Part, Result, Text
from .tokens import Count, item_tokens


class Unsure(Exception):
    """A short cut cannot be taken to its end: whoever took it goes the long way."""


class Step(msgspec.Struct, frozen=True, gc=False):
    """One message: what counts of it, and either the item that it is or the source that an item can be read from."""

    seq: int
    tokens: int
    calls: int
    results: int
    is_request: bool
    """Whether somebody asks for something; what was made up to be valid has no place in the log."""
    longest: int
    """The characters of the longest text that a tool gave."""
    item: Item | None = None
    source: Message | None = None
    place: int = 0
    """How many messages are sent before it."""
    joined: bool = False
    """Whether it is sent in one message with the step before it."""


def step_of(item: Item, count: Count) -> Step:
    """Make the step of an item."""
    calls = results = longest = 0
    for part in item.parts:
        if type(part) is Call:
            calls += 1
        elif type(part) is Result:
            results += 1
            longest = max(longest, len(longest_text(part)))
    is_request = item.role == "user" and item.seq > 0 and not results
    return Step(item.seq, item_tokens(item, count), calls, results, is_request, longest, item)


def longest_text(part: Part) -> str:
    """Give the longest text in what a tool gave; nothing if it is something else."""
    return max(_texts(part), key=len, default="")


def _texts(part: Part) -> Iterator[str]:
    return (each.text for each in part.parts if isinstance(each, Text)) if isinstance(part, Result) else iter(())
