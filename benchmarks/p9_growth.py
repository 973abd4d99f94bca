"""P9: how many bytes a store keeps for each byte that was said.

Messages are appended one call at a time, as agents do, with a checkpoint after each where the row says so, and files
are counted after closing. A checkpoint is worth 1 kB beside the content: that is what is divided by. Sessions that take
turns are counted as well: rows of one session lie together, so turns insert into the middle of a table, which splits
pages. Last comes a workspace in which nothing happens: it must add nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from time import perf_counter, sleep
from typing import Any, NamedTuple

import orjson

import takeback

from . import messages, trees
from .common import Settings, say, show_bytes, show_ratio, show_time
from .peers.adk import GoogleADK
from .peers.agno import Agno
from .peers.json_files import WholeJson
from .peers.langgraph import LangGraph
from .peers.openai_agents import OpenAIAgents
from .report import Check, Section, Table
from .stores import Arm, Limit, Takeback

MOST = 1.3
CHECKPOINT_BYTES = 1000
_HEAD = ("store", "messages", "checkpoints", "content", "on disk", "bytes per message")
_TURN = 4  # messages of a turn of 2 kB
_TURNS = 8
_RESERVE = "-ballast"
_POINTS = 100
_PAGE, _PAGES = 4096, 2
_SETTLED = 0.2  # seconds: files as fresh as that are read again


class Filled(NamedTuple):
    """A closed store: what it was told, what it keeps, and what of that is only set aside."""

    messages: int
    checkpoints: int
    content: int
    total: int
    reserve: int

    @property
    def ratio(self) -> float:
        """Bytes kept for each byte that must be."""
        return self.total / (self.content + CHECKPOINT_BYTES * self.checkpoints)


class TakebackPoints(Takeback):
    """This library with a checkpoint after each message."""

    def append(self, prepared: Sequence[Any]) -> list[float]:
        for number, message in enumerate(prepared):
            self._session.append(message)
            self._session.checkpoint(f"c{number}")
        return []


class WholeJsonPoints(WholeJson):
    """A copy of the file after each message."""

    def append(self, prepared: Sequence[Any]) -> list[float]:
        for number, message in enumerate(prepared):
            self.fill([message])
            shutil.copyfile(self.file, self.directory / f"c{number}.json")
        return []


class LangGraphTurns(LangGraph):
    """A step per turn; every step leaves a checkpoint."""

    def append(self, prepared: Sequence[Any]) -> list[float]:
        for start in range(0, len(prepared), _TURN):
            self.fill(prepared[start : start + _TURN])
        return []


def run(settings: Settings) -> Section:
    """Fill each store, close it, count its files."""
    points, checks = _points(settings, settings.pick(10_000, 2000), settings.pick(400, 100))
    plain, more = _plain(settings, settings.pick(10_000, 2000), settings.pick(1000, 200))
    files, others = _files(settings, settings.pick(1000, 200))
    return Section("Growth on disk", [points, plain, files], checks + more + others)


def _points(settings: Settings, count: int, copied: int) -> tuple[Table, list[Check]]:
    """Count messages with a checkpoint each; what copies the history grows with the square, so it gets fewer."""
    text = (
        f"**How much disk does a conversation take when every message gets a checkpoint?** {count:,} messages of 500 B"
        " are appended one by one, each followed by a checkpoint with a name of its own; then the store is closed and"
        f" all its files are counted against the JSON itself plus {CHECKPOINT_BYTES:,} B for each checkpoint. Takeback"
        " sets 1 MB aside once per store, so that a full disk can still be cleaned up: it counts in the first row."
        " LangGraph keeps the whole history with every step, whole JSON with every copy; both grow with the square of"
        f" the length and were stopped after {copied} checkpoints. No workspace is attached."
    )
    table, ours = (
        Table(text, (*_HEAD, "times content and checkpoints")),
        _fill(settings, TakebackPoints, count, points=count),
    )
    checks = [
        _judge(table, f"{Takeback.name}, a checkpoint each", ours),
        _judge(table, f"{Takeback.name}, a checkpoint each, without the reserve", _without_reserve(ours)),
    ]
    for kind in settings.able([LangGraphTurns]):
        turns = _fill(settings, kind, copied * _TURN, points=copied)
        _row(table, f"{LangGraph.name}, {copied} turns of 2 kB", turns)
    _row(table, f"{WholeJson.name}, a copy each", _fill(settings, WholeJsonPoints, copied, points=copied))
    return table, checks


def _plain(settings: Settings, count: int, fewer: int) -> tuple[Table, list[Check]]:
    """Count messages alone; what grows with its content is as well counted on less of it."""
    text = (
        "**And the messages alone?** The same without checkpoints, against the JSON itself; the peers with"
        f" {fewer:,} messages: they grow with what they hold, and what an empty store takes counts for a little more."
    )
    table = Table(text, (*_HEAD, "times the content"))
    _row(table, Limit.name, _fill(settings, Limit, count))
    _row(table, f"{Limit.name}, {_TURNS} sessions in turns", _fill(settings, Limit, count, sessions=_TURNS))
    ours = _fill(settings, Takeback, count)
    turns = _fill(settings, Takeback, count, sessions=_TURNS)
    checks = [
        _judge(table, Takeback.name, ours),
        _judge(table, f"{Takeback.name}, without the reserve", _without_reserve(ours)),
        _judge(table, f"{Takeback.name}, {_TURNS} sessions in turns, without the reserve", _without_reserve(turns)),
    ]
    for kind in settings.able((OpenAIAgents, Agno, GoogleADK, WholeJson)):
        _row(table, kind.name, _fill(settings, kind, fewer))
    return table, checks


def _files(settings: Settings, count: int) -> tuple[Table, list[Check]]:
    """Count what a workspace adds in which nothing happens."""
    text = (
        f"**Does a workspace in which nothing changes take disk?** A session with a workspace of {count:,} files gets"
        f" {_POINTS} checkpoints after its first, and then {_POINTS} turns: a user message, a tool run, an answer, the"
        " session held, so that files are looked at three times a turn. The same without a workspace. Counted are all"
        f" files of the closed store before and after. Must reach: the same, give or take {_PAGES} pages of the"
        " database: a table may fill its last page sooner."
    )
    table, checks = Table(text, ("work", "without a workspace", "with one", "more")), list[Check]()
    project = settings.directory("p9", "project")
    trees.build(project, count, (), settings.seed)
    sleep(_SETTLED)
    without, beside = (_idle(settings, place) for place in (None, project))
    for what, plain in without.items():
        more, must = beside[what] - plain, f"at most {_PAGES} pages more"
        reached = more <= _PAGES * _PAGE
        say(f"p9: {what}: {plain:,} B without a workspace, {beside[what]:,} B with one")
        table.add(what, f"{plain:,} B", f"{beside[what]:,} B", f"{more:,} B", must=must, reached=reached)
        checks.append(Check(f"an unchanged workspace: {what}", f"{more:,} B more", must, reached))
    return table, checks


def _idle(settings: Settings, workspace: Path | None) -> dict[str, int]:
    """Return the bytes that checkpoints and turns add."""
    directory = settings.directory("p9", "idle", "plain" if workspace is None else "workspace")

    def size() -> int:
        return sum(path.stat().st_size for path in directory.iterdir())

    def work(turns: int, points: int) -> int:
        before = size()
        with takeback.open(directory / "store.db") as store:
            session = store.session("session", workspace=workspace)
            for _ in range(points):
                session.checkpoint()
            with session if turns else nullcontext():
                for _ in range(turns):
                    session.user("Look around.")
                    with session.tool("look", {}) as run:
                        run.result("nothing")
                    session.assistant("Nothing happened.")
            if workspace is not None:
                session.file_at("d00/p00/f0.py", session.head.seq)  # NotFound unless files are captured
        return size() - before

    work(1, 1)
    return {f"{_POINTS} checkpoints": work(0, _POINTS), f"{_POINTS} turns": work(_POINTS, 0)}


def _fill(settings: Settings, kind: type[Arm], count: int, *, sessions: int = 1, points: int = 0) -> Filled:
    started, said = perf_counter(), messages.take(count, settings.seed)
    arm = kind(settings.directory("p9", kind.__name__, sessions))
    arm.open()
    prepared, step = arm.prepare(said), 1 if sessions > 1 else count
    for number, start in enumerate(range(0, count, step)):
        arm.use(f"session {number % sessions}")
        arm.append(prepared[start : start + step])
    arm.close()
    files = {path.name: path.stat().st_size for path in arm.directory.iterdir()}
    content, total = sum(len(orjson.dumps(message)) for message in said), sum(files.values())
    took, reserve = perf_counter() - started, sum(size for name, size in files.items() if name.endswith(_RESERVE))
    say(f"p9: {kind.__name__}, {sessions} sessions: {count:,} messages, {show_bytes(total)}, {show_time(took)}")
    return Filled(count, points, content, total, reserve)


def _without_reserve(filled: Filled) -> Filled:
    return filled._replace(total=filled.total - filled.reserve)


def _cells(name: str, filled: Filled) -> tuple[str, ...]:
    said = (f"{filled.messages:,}", f"{filled.checkpoints:,}", show_bytes(filled.content), show_bytes(filled.total))
    return name, *said, f"{filled.total / filled.messages:,.0f}", show_ratio(filled.ratio)


def _row(table: Table, name: str, filled: Filled) -> None:
    table.add(*_cells(name, filled))


def _judge(table: Table, name: str, filled: Filled) -> Check:
    ratio, must = filled.ratio, f"at most {MOST}"
    table.add(*_cells(name, filled), must=must, reached=ratio <= MOST)
    return Check(f"bytes on disk per byte said: {name}", show_ratio(ratio), must, ratio <= MOST)
