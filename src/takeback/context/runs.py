"""Runs of regular steps, and messages at a glance: made from items, or by a look at what is stored.

Messages that are sent as they are stored need no items. In a conversation, a ``Run`` stands for many of them: a few
items that no repair touches, with the sides that the run begins and ends with.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from ..providers.glance import MESSAGE, Answer, Count, GlancedMessage, is_said
from ..providers.normal import Call, Item, Result, Text
from .tokens import part_tokens


class Run(msgspec.Struct, frozen=True):
    """Steps that are sent as they are: what was judged, the messages, where each step begins, and the first place."""

    glances: Sequence[GlancedMessage]
    messages: list[Any]
    starts: Sequence[int]
    place: int

    def behind(self, glance: int) -> Run | None:
        """Return the part of a run that does not touch what comes before a glance; None if that is nothing."""
        step = bisect_right(self.starts, self.starts[0] + glance) + 1
        if step >= len(self.starts):
            return None
        rest = self.glances[self.starts[step] - self.starts[0] :]
        return Run(rest, self.messages[rest[0].place - self.place :], self.starts[step:], rest[0].place)


class _StandIn(Text, frozen=True, gc=False):
    """What stands for a run in an item; of several items, the first holds it."""

    run: Run | None = None


def stand_ins(run: Run) -> list[Item]:
    """Return items that stand for a run: with the same sides first and last, and a request if there is one."""
    first, last = run.glances[0].role == "assistant", run.glances[-1].role == "assistant"
    answer = "assistant"
    user = "user" if any(glance.is_request for glance in run.glances) else "tool"
    roles = ([answer] if first else []) + [user] + ([answer] if last or not first else [])
    roles += [user] if not first and not last else []
    return [Item(role, (_StandIn(".", run=None if at else run),)) for at, role in enumerate(roles)]


def runs_in(items: Iterable[Item]) -> Iterator[Item | Run]:
    """Yield items, with runs in the place of what stands for them."""
    for item in items:
        part = item.parts[0] if item.parts else None
        if type(part) is not _StandIn:
            yield item
        elif part.run is not None:
            yield part.run


def glances_of(items: Iterable[Item], count: Count) -> list[GlancedMessage]:
    """Return the messages of a conversation at a glance, those of its runs too."""
    found = list[GlancedMessage]()
    for each in runs_in(items):
        if type(each) is Run:
            found += each.glances
        else:
            found.append(glance_of(each, count))  # type: ignore[arg-type]
    return found


def glance_of(item: Item, count: Count, refuses_blank: bool = False) -> GlancedMessage:
    """Look at an item; it is plain if it holds texts and then calls, or nothing but results of text."""
    tokens, role, speaks, longest, plain = MESSAGE, item.role, False, 0, bool(item.parts)
    calls: list[Call] = []
    answers: list[Answer] = []
    for part in item.parts:
        tokens += part_tokens(part, count)
        if type(part) is Text:
            speaks = True
            plain = plain and role != "tool" and not calls and is_said(part.text, refuses_blank)
        elif type(part) is Call:
            plain = plain and role == "assistant"
            calls.append(part)
        elif type(part) is Result:
            plain = plain and role == "tool"
            for each in part.parts:
                text = each.text if type(each) is Text else ""
                plain = plain and is_said(text, refuses_blank)
                longest = max(longest, len(text))
            answers.append(Answer(part.call_id, None, part))
        else:
            plain = False
    is_request = role == "user" and item.seq > 0 and not answers
    return GlancedMessage(
        role, tokens, None, speaks, calls, answers, longest, item=item, seq=item.seq, is_request=is_request, plain=plain
    )
