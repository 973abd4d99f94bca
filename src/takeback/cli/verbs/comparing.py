"""``compare``: two branches, or any two points of a session, side by side from where they diverge."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from ...client.refs import Resolved
from ...client.session import Session
from ...model import words
from ...model.comparison import Comparison, Side
from ...model.message import Message
from ...model.session import Stats, show_duration
from ...shell import documents
from ...shell.failures import USAGE, Stop
from ...shell.points import point_of
from ..consent import tell
from ..frame import Frame, ref_argument, verb
from ..output import cut, line, width
from .moving import find_side
from .status import change_line

_SHOWN = 40  # messages of each side
_WIDTH = 100  # columns without a terminal


@verb("compare")
@ref_argument("a")
@ref_argument("b", required=False)
def compare(frame: Frame, a: str, b: str | None) -> None:
    """Compare two branches from where they diverge: messages, tools, tokens, cost, time and files.

    A and B are branches or points of one session; without B, A is compared with where the session is now.
    """
    first = find_side(frame, a)
    second = Resolved(first.session, None, None, None) if b is None else find_side(frame, b)
    session, point = first.session, point_of(first)
    if session.id != second.session.id:
        raise Stop("both must belong to the same session; for a single session use: takeback stats REF", USAGE)
    found = session.compare(session.head if point is None else point, point_of(second))
    names = [_name(session, each) for each in (first, second)]
    frame.out.one("comparison", _document(session, found, names), lambda: _lines(frame, found, names), long=True)
    if frame.out.for_people and not found:
        tell("No differences.")


def _name(session: Session, found: Resolved[Session]) -> str:
    branch = found.branch or documents.head_branch(session)
    return branch if found.seq is None else f"{branch}:e{found.seq}"


def _document(session: Session, found: Comparison, names: list[str]) -> dict[str, Any]:
    return {
        "id": session.id,
        "parted": found.parted,
        "left": _counted(found.left, names[0]),
        "right": _counted(found.right, names[1]),
        "files": [documents.file_diff(each) for each in found.files],
    }


def _counted(side: Side, name: str) -> dict[str, Any]:
    stats = side.stats
    return {
        "name": name,
        "turns": stats.turns,
        "tool_calls": stats.tool_calls,
        "tool_failures": stats.tool_failures,
        "tokens": stats.estimated_tokens,
        "cost": stats.usage.cost,
        "seconds": stats.duration,
        "messages": [documents.message(each) for each in side.messages],
    }


# ---------------------------------------------------------------------- for people


def _lines(frame: Frame, found: Comparison, names: list[str]) -> Iterator[str]:
    rows = zip(_COUNTS, _counts(found.left.stats), _counts(found.right.stats), strict=True)
    yield from frame.out.table(("<", *(f">{line(each)}" for each in names)), [*map(list, rows)])
    if found.left.messages or found.right.messages:
        yield ""
        yield from _beside(frame, found)
    if found.files:
        yield ""
        yield f"from {line(names[0])} to {line(names[1])}:"
        yield from (f"  {change_line(frame, each)}" for each in found.files)


_COUNTS = ("messages", "turns", "tool calls", "tokens", "cost", "time")


def _counts(stats: Stats) -> tuple[str, ...]:
    failed = f" ({stats.tool_failures} failed)" if stats.tool_failures else ""
    return (
        str(stats.messages),
        str(stats.turns),
        f"{stats.tool_calls}{failed}",
        words.short_number(stats.estimated_tokens),
        words.money(stats.usage.cost) if stats.usage.cost else "-",
        show_duration(stats.duration),
    )


def _beside(frame: Frame, found: Comparison) -> Iterator[str]:
    """Yield the messages of both sides in two columns, one line each."""
    columns = shutil.get_terminal_size().columns if frame.out.is_terminal else _WIDTH
    half = max((columns - 3) // 2, 20)
    left, right = ([_line(each) for each in side.messages] for side in (found.left, found.right))
    for one, other in zip_longest(left[:_SHOWN], right[:_SHOWN], fillvalue=""):
        shown = cut(one, half)
        yield f"{shown}{' ' * (half - width(shown))} | {cut(other, half)}".rstrip()
    hidden = max(len(left), len(right)) - _SHOWN
    if hidden > 0:
        yield f"... and {hidden:,} more; --json shows all"


def _line(message: Message) -> str:
    named = [
        *(call.name for call in message.tool_calls),
        *(each.name or message.tool_name or "tool" for each in message.tool_results),
    ]
    text = " ".join(message.text.split()) if not message.tool_results else ""
    return line(f"{message.role}: {text or ', '.join(named)}")


COMMANDS = {"compare": compare}
