"""P9, a first look: how many bytes a store keeps for each byte that was said.

Messages are appended one call at a time, as agents do, and files are counted after closing. Sessions that take turns
are counted as well: rows of one session lie together, so turns insert into the middle of a table, which splits pages.
Checkpoints, which the promise counts too, come with a later release.
"""

from __future__ import annotations

from typing import NamedTuple

import orjson

from . import messages
from .common import Settings, say, show_bytes, show_ratio
from .peers import LangGraph, OpenAIAgents
from .report import Check, Section, Table
from .stores import Arm, Holdfast, Limit

MOST = 1.6
_COUNT = 10_000
_LANGGRAPH_COUNT = 400  # it grows with the square: 10,000 would fill the disk
_TURNS = 8
_RESERVE = "-ballast"


class Filled(NamedTuple):
    """A closed store: what it was told, what it keeps, and what of that is only set aside."""

    messages: int
    content: int
    total: int
    reserve: int


def run(settings: Settings) -> Section:
    """Fill each store, close it, count its files."""
    text = (
        f"**How much disk does a conversation take?** {_COUNT:,} messages of 500 B are appended one by one, then the"
        " store is closed and all its files are counted against the JSON itself. Holdfast sets 1 MB aside once per"
        " store, so that a full disk can still be cleaned up: it counts in the first row. LangGraph keeps the whole"
        f" history with every append and was stopped at {_LANGGRAPH_COUNT} messages."
    )
    head = ("store", "messages", "content", "on disk", "bytes per message", "times the content")
    table = Table(text, head)
    ours = _fill(settings, Holdfast, _COUNT, sessions=1)
    turns = _fill(settings, Holdfast, _COUNT, sessions=_TURNS)
    _row(table, Limit.name, _fill(settings, Limit, _COUNT, sessions=1))
    _row(table, f"{Limit.name}, {_TURNS} sessions in turns", _fill(settings, Limit, _COUNT, sessions=_TURNS))
    checks = [
        _judge(table, Holdfast.name, ours),
        _judge(table, f"{Holdfast.name}, without the reserve", _without_reserve(ours)),
        _judge(table, f"{Holdfast.name}, {_TURNS} sessions in turns, without the reserve", _without_reserve(turns)),
    ]
    _row(table, OpenAIAgents.name, _fill(settings, OpenAIAgents, _COUNT, sessions=1))
    _row(table, LangGraph.name, _fill(settings, LangGraph, _LANGGRAPH_COUNT, sessions=1))
    return Section("Growth on disk", [table], checks)


def _fill(settings: Settings, kind: type[Arm], count: int, *, sessions: int) -> Filled:
    said = messages.take(count, settings.seed)
    arm = kind(settings.directory("p9", kind.__name__, sessions))
    arm.open()
    prepared, step = arm.prepare(said), 1 if sessions > 1 else count
    for number, start in enumerate(range(0, count, step)):
        arm.use(f"session {number % sessions}")
        arm.append(prepared[start : start + step])
    arm.close()
    files = {path.name: path.stat().st_size for path in arm.directory.iterdir()}
    content, total = sum(len(orjson.dumps(message)) for message in said), sum(files.values())
    say(f"p9: {kind.name}, {sessions} sessions: {count:,} messages of {content / count:.0f} B took {show_bytes(total)}")
    return Filled(count, content, total, sum(size for name, size in files.items() if name.endswith(_RESERVE)))


def _without_reserve(filled: Filled) -> Filled:
    return filled._replace(total=filled.total - filled.reserve)


def _cells(name: str, filled: Filled) -> tuple[str, ...]:
    count, content, total, _ = filled
    ratio = show_ratio(total / content)
    return name, f"{count:,}", show_bytes(content), show_bytes(total), f"{total / count:,.0f}", ratio


def _row(table: Table, name: str, filled: Filled) -> None:
    table.add(*_cells(name, filled))


def _judge(table: Table, name: str, filled: Filled) -> Check:
    ratio, must = filled.total / filled.content, f"at most {MOST}"
    table.add(*_cells(name, filled), must=must, reached=ratio <= MOST)
    return Check(f"bytes on disk per byte said: {name}", show_ratio(ratio), must, ratio <= MOST)
