"""P7: what a point in time costs: setting a checkpoint, going back to one, forking there.

Counted in appends: the unit is Takeback's own append to the same session in the same round, whatever the disk does just
then. Sessions differ in length, and one of them was popped 3,000 times, which opens a branch each time: neither may
show. Every round goes back and appends, so paths grow branches while they are measured, as they do in use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias

import takeback

from . import messages, p7_agents, stores
from .common import Settings, median, say, show_both, show_ratio, show_time, steady
from .peers import json_files, langgraph
from .report import Check, Section, Table

MOST = 3.0
FLAT = 1.5  # times what the shortest session takes
POPPED = 3000
_POPPED_NAME = f"popped {POPPED:,} times"
_APPENDS = 5  # a round
_SLOW_EVERY = 4  # rounds
_BATCH = 1000
APPEND, CHECKPOINT, REWIND = "one append", "checkpoint", "rewind to it"
MIDDLE, FORK, AFTER = "rewind to the middle", "fork there", "the append after a rewind"
_ORDER = (APPEND, CHECKPOINT, REWIND, MIDDLE, AFTER, FORK)
_JUDGED = (CHECKPOINT, REWIND, MIDDLE)
Times: TypeAlias = dict[str, list[float]]


class Traveller(ABC):
    """A store that can mark a point of a session and go back to it."""

    name: str
    needs = ""
    slow = False  # few samples
    most: int | None = None  # messages; what has a most has no pop either

    def __init__(self, directory: Path, filling: list[messages.Message], *, popped: int) -> None:
        self.times: Times = {}
        self.build(directory, filling, popped=popped)

    @abstractmethod
    def build(self, directory: Path, filling: list[messages.Message], *, popped: int) -> None:
        """Open the store and fill its session; then pop and append again and again, if asked to."""

    @abstractmethod
    def round(self, number: int, said: Sequence[messages.Message]) -> None:
        """Append, mark, go back; keep the seconds of each."""

    @abstractmethod
    def close(self) -> None:
        """Close the store."""

    def time(self, what: str, call: Callable[..., Any], *given: Any) -> Any:
        """Call and keep the seconds."""
        started = perf_counter()
        found = call(*given)
        self.times.setdefault(what, []).append(perf_counter() - started)
        return found


class Limit(Traveller):
    """One bare INSERT into a log of full length, to see what the unit itself costs."""

    name = stores.Limit.name

    def build(self, directory: Path, filling: list[messages.Message], *, popped: int) -> None:
        self._arm = stores.ExtendedLimit(directory)
        self._arm.open()
        self._arm.use("session")
        self._arm.fill(self._arm.prepare(filling))
        self._arm.extend_log()

    def round(self, number: int, said: Sequence[messages.Message]) -> None:
        self.times.setdefault(APPEND, []).extend(self._arm.append(self._arm.prepare(said[:_APPENDS])))

    def close(self) -> None:
        self._arm.close()


class Takeback(Traveller):
    """This library; long sessions are filled without a sync per commit and opened again for the measurement."""

    name = "Takeback"

    def build(self, directory: Path, filling: list[messages.Message], *, popped: int) -> None:
        path = directory / "store.db"
        with takeback.open(path, durability="relaxed") as store:
            session = store.create_session("session")
            for start in range(0, len(filling), _BATCH):
                session.append(*filling[start : start + _BATCH])
            for number in range(popped):
                session.pop()
                session.user(f"another try, number {number}")
        self._store = takeback.open(path)
        self._session: Any = self._store.find_session("session")

    def round(self, number: int, said: Sequence[messages.Message]) -> None:
        session = self._session
        for message in said[:_APPENDS]:
            self.time(APPEND, session.append, message)
        middle = session.message_count // 2
        point = self.time(CHECKPOINT, session.checkpoint, f"c{number}")
        session.append(*said[_APPENDS:-1])
        self.time(REWIND, session.rewind, point)
        self.time(AFTER, session.append, said[-1])
        self.time(FORK, session.fork, point)
        self.time(MIDDLE, session.rewind, middle)
        session.undo()

    def close(self) -> None:
        self._store.close()


class LangGraph(Traveller):
    """LangGraph: each checkpoint holds the whole state; going back copies an old one to the front."""

    name = langgraph.LangGraph.name
    needs = langgraph.LangGraph.needs
    slow = True
    most = 10_000

    def build(self, directory: Path, filling: list[messages.Message], *, popped: int) -> None:
        self._arm = langgraph.LangGraph(directory)
        self._arm.open()
        self._arm.use("session")
        self._arm.fill(self._arm.prepare(filling))

    def round(self, number: int, said: Sequence[messages.Message]) -> None:
        point = self.time(CHECKPOINT, self._save, self._arm.config)
        self._arm.append(self._arm.prepare(said[:1]))
        self.time(REWIND, self._save, point)

    def _save(self, config: Any) -> Any:
        return self._arm.graph.update_state(config, {"messages": []}, as_node="agent")

    def close(self) -> None:
        self._arm.close()


class WholeJson(Traveller):
    """A JSON file that is copied to mark a point, and copied back."""

    name = json_files.WholeJson.name
    slow = True
    most = 100_000

    def build(self, directory: Path, filling: list[messages.Message], *, popped: int) -> None:
        self._arm = json_files.WholeJson(directory)
        self._arm.open()
        self._arm.use("session")
        self._arm.fill(filling)

    def round(self, number: int, said: Sequence[messages.Message]) -> None:
        point = self._arm.file.with_suffix(".checkpoint")
        self.time(CHECKPOINT, _copy, self._arm.file, point)
        self.time(REWIND, _copy, point, self._arm.file)

    def close(self) -> None:
        self._arm.close()


def _copy(source: Path, target: Path) -> None:
    json_files.replace(target, source.read_bytes())


KINDS: tuple[type[Traveller], ...] = (Limit, Takeback, LangGraph, WholeJson)


def run(settings: Settings) -> Section:
    """Let stores of all sizes take turns."""
    sizes = settings.sizes((10, 10_000, 100_000), (10, 1000, 10_000), (10, 100))
    travellers = {kind.name: _build(settings, kind, sizes) for kind in settings.able(KINDS)}
    everyone = [traveller for sized in travellers.values() for traveller in sized.values()]
    source = messages.stream(settings.seed + 1)
    with steady():
        for number in range(settings.pick(24, 6)):
            said = [next(source) for _ in range(_APPENDS + 3)]
            for traveller in settings.rng.sample(everyone, len(everyone)):
                if not (traveller.slow and number % _SLOW_EVERY):
                    traveller.round(number, said)
    for traveller in everyone:
        traveller.close()
    section = _section(travellers, [_label(size) for size in (*sizes, None)])
    tables, checks = p7_agents.measure(settings, MOST, FLAT)
    return Section(section.title, [*section.tables, *tables], [*section.checks, *checks])


def _build(settings: Settings, kind: type[Traveller], sizes: tuple[int, ...]) -> dict[str, Traveller]:
    """Open a store per size, and one that was popped where that means something."""
    wanted = [*sizes, None] if kind.most is None else [size for size in sizes if size <= kind.most]
    found, started = {}, perf_counter()
    for size in wanted:
        directory, filling = (
            settings.directory("p7", kind.__name__, size or "popped"),
            messages.take(size or 10, settings.seed),
        )
        found[_label(size)] = kind(directory, filling, popped=0 if size else settings.pick(POPPED, POPPED))
    say(f"p7: {kind.name}: {len(found)} sessions are ready after {show_time(perf_counter() - started)}")
    return found


def _label(size: int | None) -> str:
    return _POPPED_NAME if size is None else f"{size:,} messages"


def _section(travellers: dict[str, dict[str, Traveller]], labels: list[str]) -> Section:
    text = (
        "**What does it cost to set a checkpoint of a conversation, and to go back?** Each cell is the median time and,"
        " in brackets, how many of Takeback's own durable appends to a session of that kind it takes; a dear append"
        " would flatter, so a bare one stands in the first row. All sessions take turns; the last was popped"
        f" {POPPED:,} times, with a new message after each. LangGraph's checkpoint holds"
        " the whole state and going back copies it to the front; whole JSON copies its file and copies it back. No"
        f" workspace is attached: files are another promise. Must reach: at most {MOST:g} appends everywhere, and flat:"
        f" no session dearer than {FLAT:g} times the shortest one."
    )
    table, checks = Table(text, ("work", *labels)), []
    units = {label: median(ours.times[APPEND]) for label, ours in travellers[Takeback.name].items()}
    for name, sized in travellers.items():
        done = next(iter(sized.values())).times
        for what in (what for what in _ORDER if what in done):
            found = {label: median(traveller.times[what]) for label, traveller in sized.items()}
            cells = [_cell(found.get(label), units[label]) for label in labels]
            row = f"{name}: {what}"
            say(f"p7: {row}: {', '.join(cells)}")
            if name != Takeback.name or what not in _JUDGED:
                table.add(row, *cells)
                continue
            ratios = {label: seconds / units[label] for label, seconds in found.items()}
            missed, must = [label for label in labels if ratios[label] > MOST], f"at most {MOST:g} appends, and flat"
            growth = max(found.values()) / found[labels[0]]
            if growth > FLAT:
                missed.append(f"growth {show_ratio(growth)}")
            table.add(row, *cells, must=must, reached=not missed, why=", ".join(missed))
            worst = f"{show_ratio(max(ratios.values()))} appends at the worst size, growth {show_ratio(growth)}"
            checks.append(Check(f"points: {what}", worst, must, not missed))
    return Section("Checkpoint and rewind", [table], checks)


def _cell(seconds: float | None, unit: float) -> str:
    return "not run" if seconds is None else show_both(seconds, seconds / unit)
