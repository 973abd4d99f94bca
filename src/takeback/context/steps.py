"""The light steps in which a conversation is counted, made from items; a glance makes them from stored messages."""

from __future__ import annotations

from collections.abc import Iterator

from ..providers.glance import Answer, Count, GlancedMessage, is_said
from ..providers.normal import Call, Item, Part, Result, Text
from .tokens import item_tokens


class Unsure(Exception):
    """A shortcut turned out not to apply: its caller must go the long way."""


def step_of(item: Item, count: Count) -> GlancedMessage:
    """Make the step of an item."""
    found = GlancedMessage(item.role, item_tokens(item, count), item=item, seq=item.seq)
    found.calls = [part for part in item.parts if type(part) is Call]
    found.answers = [Answer(part.call_id, None, part) for part in item.parts if type(part) is Result]
    found.longest = max((len(longest_text(part)) for part in item.parts), default=0) if found.answers else 0
    found.is_request = item.role == "user" and item.seq > 0 and not found.answers
    return found


def of_item(item: Item, count: Count, refuses_blank: bool) -> GlancedMessage | None:
    """Judge a message in our own form: texts, then calls, or only text results; None if it is anything else."""
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


def longest_text(part: Part) -> str:
    """Return the longest text in a tool result; empty for anything else."""
    return max(_texts(part), key=len, default="")


def _texts(part: Part) -> Iterator[str]:
    return (each.text for each in part.parts if isinstance(each, Text)) if isinstance(part, Result) else iter(())
