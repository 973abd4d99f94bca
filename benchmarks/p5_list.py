"""P5: what it costs to list the 50 newest of many sessions, each with its name, title and number of messages.

Every tenth session holds two messages, the others are new; then some are touched again, so that the newest are not the
last ones made; on Takeback's clock all that happens half a minute apart. The limit is one indexed query over rows that
hold all that a listing shows. Peers are asked the nearest question that they answer, which is not always the same one:
their rows say what is missing. What comes back is compared with what must come, counts included. Stores of both sizes
take turns: only so does growth mean anything.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias

import takeback
from takeback.clock import SystemClock
from takeback.testing.clock import ManualClock

from . import messages
from .common import Settings, median, say, show_both, show_ratio, show_time, steady
from .peers import adk, agno
from .peers.adk import GoogleADK
from .peers.agno import Agno
from .peers.json_files import WholeJson
from .peers.langgraph import LangGraph
from .report import Check, Section, Table
from .stores import connect

LIMIT = 50
MOST, FLAT = 2.5, 1.5
_SPOKEN, _MESSAGES = 10, 2  # every tenth session holds two messages
_BATCH = 1000
_SLOW_EVERY = 5  # rounds
_APART_MS = 30_000
_COLUMNS = "id, name, title, agent, workspace, created, updated, turns, messages"
Line: TypeAlias = tuple[str, int | None]
Found: TypeAlias = dict[str, dict[int, list[float]]]


class Step(NamedTuple):
    """A session is made or touched: its new messages, all that it holds then, and its rank among the newest."""

    rank: int
    number: int
    new: list[messages.Message]
    held: list[messages.Message]

    @property
    def name(self) -> str:
        """Name the session."""
        return f"session {self.number}"


class Plan(NamedTuple):
    """Which sessions there are and which of them get one more message, in this order."""

    size: int
    touched: list[int]
    said: list[messages.Message]

    def steps(self) -> Iterator[Step]:
        """Return all that happens, oldest first."""
        for number in range(self.size):
            held = self._held(number)
            yield Step(number, number, held, held)
        yield from self._touches()

    def newest(self) -> list[Line]:
        """Return what a listing must say."""
        return [(step.name, len(step.held)) for step in reversed(list(self._touches())[-LIMIT:])]

    def _touches(self) -> Iterator[Step]:
        for rank, number in enumerate(self.touched, self.size):
            held = self.said[: len(self._held(number)) + 1]
            yield Step(rank, number, held[-1:], held)

    def _held(self, number: int) -> list[messages.Message]:
        return self.said[:_MESSAGES] if number % _SPOKEN == 0 else []


class Shelf(ABC):
    """A store of many sessions."""

    name: str
    needs = ""
    slow = False  # few samples, and only up to a size

    def __init__(self, directory: Path, plan: Plan) -> None:
        self.directory = directory
        self.plan = plan

    @abstractmethod
    def build(self) -> None:
        """Make the sessions and touch some; leave the store open."""

    @abstractmethod
    def newest(self) -> list[Line]:
        """List the newest sessions with their message counts, or None where the store does not say."""

    @abstractmethod
    def close(self) -> None:
        """Close the store."""


class Limit(Shelf):
    """One indexed query over a row that holds everything a listing shows."""

    name = "limit: one indexed query"

    def build(self) -> None:
        self._connection = connect(self.directory / "store.db")
        execute = self._connection.cursor().execute
        execute(f"CREATE TABLE session (number INTEGER PRIMARY KEY, {_COLUMNS})")
        execute("CREATE UNIQUE INDEX newest ON session (updated)")
        with self._connection:
            insert = f"INSERT OR REPLACE INTO session VALUES (?{', ?' * 9})"
            self._connection.executemany(insert, (self._row(step) for step in self.plan.steps()))
        self._select = f"SELECT {_COLUMNS} FROM session ORDER BY updated DESC LIMIT {LIMIT}"

    def _row(self, step: Step) -> tuple[Any, ...]:
        title, count = "What people read in listings, cut to its length", len(step.held)
        where = ("main", "some/project", step.number, step.rank, count, count)
        return step.number, uuid.uuid4().hex, step.name, title, *where

    def newest(self) -> list[Line]:
        return [(row[1], row[-1]) for row in self._connection.execute(self._select)]

    def close(self) -> None:
        self._connection.close()


class Takeback(Shelf):
    """This library; it is filled without a sync per commit and opened again for the measurement."""

    name = "Takeback"

    def build(self) -> None:
        path = self.directory / "store.db"
        session: Any
        # Sessions come one after another, as people's do: half a minute apart, the last one just now.
        steps = list(self.plan.steps())
        clock = ManualClock(SystemClock().now_ms() - _APART_MS * len(steps))
        with takeback.open(path, durability="relaxed", clock=clock) as store:
            for step in steps:
                clock.advance(_APART_MS)
                is_new = step.rank == step.number
                session = store.create_session(step.name) if is_new else store.find_session(step.name)
                if step.new:
                    session.append(*step.new)
        self._store = takeback.open(path)

    def newest(self) -> list[Line]:
        page = self._store.list_sessions(limit=LIMIT)
        found = [(session.name or "", session.title, session.message_count) for session in page]
        return [(name, count) for name, _, count in found]

    def close(self) -> None:
        self._store.close()


class AgnoRows(Shelf):
    """agno's listing of session rows, which say nothing about messages."""

    name = "agno SqliteDb, without counts"
    needs = "agno"
    slow = True
    _with_runs = False

    def build(self) -> None:
        self._arm = Agno(self.directory)
        self._arm.open()
        for steps in _batches(self.plan.steps()):
            made: list[Any] = [agno.as_session(step.name, updated_at=step.rank + 1) for step in steps]
            self._arm.db.upsert_sessions(made, deserialize=False, preserve_updated_at=True)
            self._arm.insert_runs([(agno.as_run([said]), name, index) for name, index, said in _numbered(steps)])

    def newest(self) -> list[Line]:
        found: Any = self._arm.db.get_sessions(
            limit=LIMIT, page=1, sort_by="updated_at", sort_order="desc", include_runs=self._with_runs
        )
        return [(session.session_data["session_name"], self._count(session)) for session in found]

    def _count(self, session: Any) -> int | None:
        return None

    def close(self) -> None:
        self._arm.close()


class AgnoRuns(AgnoRows):
    """The same with all runs loaded: the only way to count messages."""

    name = "agno SqliteDb, runs loaded to count"
    _with_runs = True

    def _count(self, session: Any) -> int | None:
        return sum(len(run.messages) for run in session.runs)


class LangGraphList(Shelf):
    """LangGraph lists checkpoints, newest first, each with the whole state: here the last 50 are of 50 threads."""

    name = "LangGraph SqliteSaver, checkpoints"
    needs = "langgraph"
    slow = True

    def build(self) -> None:
        self._arm = LangGraph(self.directory)
        self._arm.open()
        self._arm.connection.execute("PRAGMA synchronous = OFF")
        for step in self.plan.steps():
            self._arm.use(step.name)
            self._arm.fill(self._arm.prepare(step.new))

    def newest(self) -> list[Line]:
        found = list(self._arm.saver.list(None, limit=LIMIT))
        return [(entry.config["configurable"]["thread_id"], _held(entry.checkpoint)) for entry in found]

    def close(self) -> None:
        self._arm.close()


def _held(checkpoint: Any) -> int:
    return len(checkpoint["channel_values"]["messages"])


class GoogleADKList(Shelf):
    """ADK lists every session, oldest first, without events: no limit can be given."""

    name = "Google ADK SqliteSessionService, all, without counts"
    needs = "google.adk"
    slow = True

    def build(self) -> None:
        self._arm = GoogleADK(self.directory)
        self._arm.open()
        self._arm.use("first")
        with sqlite3.connect(self._arm.path) as connection:
            rows = ((adk.APP, adk.USER, step.name, "{}", step.rank, step.rank) for step in self.plan.steps())
            connection.executemany("INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?, ?)", rows)
            connection.execute("DELETE FROM sessions WHERE id = 'first'")
        connection.close()

    def newest(self) -> list[Line]:
        found = self._arm.list_sessions()
        return [(session.id, None) for session in reversed(found[-LIMIT:])]

    def close(self) -> None:
        self._arm.close()


class JsonFiles(Shelf):
    """A JSON file per session: the way to the newest leads through all of them."""

    name = f"{WholeJson.name}: every file read"
    slow = True

    def build(self) -> None:
        for step in self.plan.steps():
            document = {"id": step.name, "updated_at": step.rank, "messages": step.held}
            (self.directory / f"{step.name}.json").write_text(json.dumps(document, indent=2), "utf-8")

    def newest(self) -> list[Line]:
        found = sorted(self._all(), key=lambda document: document["updated_at"], reverse=True)[:LIMIT]
        return [(document["id"], len(document["messages"])) for document in found]

    def _all(self) -> Iterator[dict[str, Any]]:
        for entry in os.scandir(self.directory):
            with open(entry.path, encoding="utf-8") as file:
                yield json.load(file)

    def close(self) -> None:
        pass


def _batches(steps: Iterator[Step]) -> Iterator[list[Step]]:
    while batch := list(islice(steps, _BATCH)):
        yield batch


def _numbered(steps: list[Step]) -> Iterator[tuple[str, int, messages.Message]]:
    """Return every new message with its place in its session."""
    for step in steps:
        for index, said in enumerate(step.new, len(step.held) - len(step.new)):
            yield step.name, index, said


KINDS: tuple[type[Shelf], ...] = (Limit, Takeback, AgnoRows, AgnoRuns, LangGraphList, GoogleADKList, JsonFiles)


def run(settings: Settings) -> Section:
    """Build stores of both sizes, the slow ones of the smaller only, and let all of them take turns."""
    sizes = settings.sizes((10_000, 100_000), (1000, 10_000), (200, 400))
    shelves = [shelf for size in sizes for shelf in _build(settings, size, slow=size == sizes[0])]
    found = _measure(settings, shelves)
    for shelf in shelves:
        shelf.close()
    return _section(found, sizes)


def _build(settings: Settings, size: int, *, slow: bool) -> Iterator[Shelf]:
    touched = random.Random(settings.seed).sample(range(size), 2 * LIMIT)
    plan = Plan(size, touched, messages.take(_MESSAGES + 1, settings.seed))
    for kind in settings.able(KINDS):
        if kind.slow and not slow:
            continue
        shelf, started = kind(settings.directory("p5", size, kind.__name__), plan), perf_counter()
        shelf.build()
        say(f"p5: {shelf.name}: {size:,} sessions made in {show_time(perf_counter() - started)}")
        yield shelf


def _measure(settings: Settings, shelves: list[Shelf]) -> Found:
    """List in turns, the stores in a new order each time, and see that the right sessions came."""
    found: Found = {shelf.name: {} for shelf in shelves}
    for shelf in shelves:
        found[shelf.name][shelf.plan.size] = []
        _list(shelf)
    with steady():
        for number in range(settings.pick(40, 10)):
            for shelf in settings.rng.sample(shelves, len(shelves)):
                if not (shelf.slow and number % _SLOW_EVERY):
                    found[shelf.name][shelf.plan.size] += [_list(shelf) for _ in range(1 if shelf.slow else 10)]
    for shelf in shelves:
        middle, base = (median(found[name][shelf.plan.size]) for name in (shelf.name, Limit.name))
        say(f"p5: {LIMIT} of {shelf.plan.size:,}: {shelf.name}: {show_time(middle)}, {show_ratio(middle / base)} times")
    return found


def _list(shelf: Shelf) -> float:
    """Return the seconds of a listing, once it is seen to be the right one."""
    started = perf_counter()
    listed = shelf.newest()
    seconds, expected = perf_counter() - started, shelf.plan.newest()
    if listed[0][1] is None:
        expected = [(name, None) for name, _ in expected]
    if listed != expected:
        raise RuntimeError(f"{shelf.name} listed {listed[:3]}..., not {expected[:3]}...")
    return seconds


def _section(found: Found, sizes: tuple[int, ...]) -> Section:
    small, large = sizes
    text = (
        f"**What does it cost to list the {LIMIT} newest sessions with their message counts, and does it grow with the"
        " number of sessions?** Each cell is the median time and its ratio to the limit. Peers answer the nearest"
        " question that they have, as their rows say: agno's rows and ADK's carry no counts, ADK takes no limit,"
        " LangGraph knows checkpoints rather than sessions, and here every thread has one or two of them; it and whole"
        f" JSON load all messages of what they list. Peers were run at {small:,} sessions only. Must reach: at most"
        f" {MOST:g} times the limit at both sizes, and {large:,} sessions at most {FLAT} times as dear as {small:,}."
    )
    table, checks = Table(text, ("store", *(f"{LIMIT} of {size:,}" for size in sizes), "growth")), []
    for name, times in found.items():
        ratios = {size: median(taken) / median(found[Limit.name][size]) for size, taken in times.items()}
        growth = median(times[large]) / median(times[small]) if large in times else None
        cells = [show_both(median(times[size]), ratios[size]) if size in times else "not run" for size in sizes]
        shown = "-" if growth is None else show_ratio(growth)
        if name != Takeback.name or growth is None:
            table.add(name, *cells, shown)
            continue
        worst = max(ratios.values())
        missed = {"ratio": worst > MOST, "growth": growth > FLAT}
        why, must = ", ".join(what for what, is_missed in missed.items() if is_missed), f"at most {MOST:g}, and flat"
        table.add(name, *cells, shown, must=must, reached=not why, why=why)
        measured = f"{show_ratio(worst)} at the worst size, growth {show_ratio(growth)}"
        checks.append(Check(f"list {LIMIT} of {large:,} sessions", measured, must, not why))
    return Section("Listing sessions", [table], checks)
