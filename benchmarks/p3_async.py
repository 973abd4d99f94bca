"""P3: what an append costs the processor when 32 tasks of one event loop write at once.

Waiting for the disk is shared by all tasks, so the rate says more about the disk than about the library; what an agent
server pays for is processor time, user and system, of all threads of the process. The limit is one bare durable INSERT
after another in one thread: no event loop, no hand-over, no other task to serve. A library that hands each call to a
thread pays for two switches beside that; only one that hands over a batch at a time, and syncs once for all of it, can
come below.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import orjson

import takeback

from . import messages
from .common import Settings, median, say, show_ratio, show_time, steady
from .report import Check, Section, Table
from .stores import connect

TASKS = 32
MOST = 0.9
_EACH, _SLOW_EACH = 50, 2  # appends of a task in a round
_SLOW_EVERY = 3  # rounds
_INSERT = "INSERT INTO message (body) VALUES (?)"


@dataclass
class Round:
    """What one round took, and what it got done."""

    cpu: float = 0.0
    seconds: float = 0.0
    done: int = 0
    errors: list[str] = field(default_factory=list)


class Way(ABC):
    """A store that tasks of one event loop append to."""

    name: str
    slow = False  # few appends, few rounds

    def __init__(self, directory: Path) -> None:
        self.path = directory / "store.db"

    @property
    def each(self) -> int:
        """How much a task appends in a round."""
        return _SLOW_EACH if self.slow else _EACH

    @abstractmethod
    async def open(self) -> None:
        """Open the store and the sessions of all tasks."""

    @abstractmethod
    async def close(self) -> None:
        """Close the store."""

    def prepare(self, texts: Sequence[str]) -> Sequence[Any]:
        """Turn texts into what the store takes; this is not measured."""
        return texts

    @abstractmethod
    async def append(self, number: int, given: Any) -> None:
        """Append a message in the session of one task, durably."""

    async def write(self, prepared: Sequence[Sequence[Any]], found: Round) -> None:
        """Let every task append its share, one message after the other."""
        await asyncio.gather(*(self._task(number, share, found) for number, share in enumerate(prepared)))

    async def _task(self, number: int, share: Sequence[Any], found: Round) -> None:
        for given in share:
            try:
                await self.append(number, given)
            except Exception as error:
                found.errors.append(f"{type(error).__name__}: {error}")
            else:
                found.done += 1


class Limit(Way):
    """The least work there is: one statement after another on one connection, no tasks at all."""

    name = "limit: bare SQLite, one thread"

    async def open(self) -> None:
        self._connection = connect(self.path)

    async def close(self) -> None:
        self._connection.close()

    def prepare(self, texts: Sequence[str]) -> Sequence[Any]:
        return [(orjson.dumps({"role": "user", "content": text}),) for text in texts]

    async def append(self, number: int, given: Any) -> None:
        self._connection.execute(_INSERT, given)

    async def write(self, prepared: Sequence[Sequence[Any]], found: Round) -> None:
        execute = self._connection.cursor().execute
        for share in prepared:
            for given in share:
                execute(_INSERT, given)
            found.done += len(share)


class Takeback(Way):
    """This library, every task in a session of its own."""

    name = "Takeback"

    async def open(self) -> None:
        self._stack = AsyncExitStack()
        store = await self._stack.enter_async_context(takeback.aopen(self.path))
        self._sessions = await self._make(store)

    async def _make(self, store: Any) -> list[Any]:
        return [await store.create_session(f"task {number}") for number in range(TASKS)]

    async def close(self) -> None:
        await self._stack.aclose()

    async def append(self, number: int, given: Any) -> None:
        await self._sessions[number].user(given)


class TakebackShared(Takeback):
    """The same, all tasks in one session."""

    name = "Takeback, one session for all"

    async def _make(self, store: Any) -> list[Any]:
        return [await store.create_session("shared")] * TASKS


class Aiosqlite(Way):
    """What one writes first: a connection in a thread of its own, a hand-over and a commit per append."""

    name = "aiosqlite, one plain INSERT"
    needs = "aiosqlite"

    async def open(self) -> None:
        import aiosqlite

        self._connection = await aiosqlite.connect(self.path, isolation_level=None)
        for statement in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL"):
            await self._connection.execute(statement)
        await self._connection.execute("CREATE TABLE message (key INTEGER PRIMARY KEY, body BLOB NOT NULL)")

    async def close(self) -> None:
        await self._connection.close()

    def prepare(self, texts: Sequence[str]) -> Sequence[Any]:
        return [(orjson.dumps({"role": "user", "content": text}),) for text in texts]

    async def append(self, number: int, given: Any) -> None:
        await self._connection.execute_insert(_INSERT, given)


class OpenAIAgents(Way):
    """SQLiteSession of openai-agents, which hands each call to a worker thread."""

    name = "OpenAI Agents SQLiteSession"
    needs = "agents"

    async def open(self) -> None:
        from agents import SQLiteSession

        self._sessions = [SQLiteSession(f"task {number}", self.path) for number in range(TASKS)]

    async def close(self) -> None:
        for session in self._sessions:
            session.close()

    async def append(self, number: int, given: Any) -> None:
        await self._sessions[number].add_items([{"role": "user", "content": given}])


class Agno(Way):
    """AsyncSqliteDb of agno, one run per message, as its own agents save it."""

    name = "agno AsyncSqliteDb"
    needs = "agno"
    slow = True

    async def open(self) -> None:
        from agno.db.sqlite import AsyncSqliteDb

        from .peers.agno import as_session

        self._db = AsyncSqliteDb(db_file=str(self.path))
        self._sessions = [as_session(f"task {number}") for number in range(TASKS)]
        self._counts = [0] * TASKS
        for session in self._sessions:
            await self._db.upsert_session(session)

    async def close(self) -> None:
        await self._db.close()

    def prepare(self, texts: Sequence[str]) -> Sequence[Any]:
        from .peers.agno import as_run

        return [as_run([message]) for message in _parts(texts)]

    async def append(self, number: int, given: Any) -> None:
        session = self._sessions[number]
        await self._db.upsert_session(session)
        await self._db.upsert_run(given, session.session_id, user_id=session.user_id, run_index=self._counts[number])
        self._counts[number] += 1


class GoogleADK(Way):
    """SqliteSessionService of google-adk, which opens a connection per call."""

    name = "Google ADK SqliteSessionService"
    needs = "google.adk"
    slow = True

    async def open(self) -> None:
        from google.adk.sessions.sqlite_session_service import SqliteSessionService

        from .peers import adk

        self._service = SqliteSessionService(str(self.path))
        names = [f"task {number}" for number in range(TASKS)]
        self._sessions = [
            await self._service.create_session(app_name=adk.APP, user_id=adk.USER, session_id=name) for name in names
        ]

    async def close(self) -> None:
        await self._service.close()

    def prepare(self, texts: Sequence[str]) -> Sequence[Any]:
        from .peers.adk import as_event

        return [as_event(message) for message in _parts(texts)]

    async def append(self, number: int, given: Any) -> None:
        await self._service.append_event(self._sessions[number], given)


def _parts(texts: Sequence[str]) -> list[messages.Message]:
    return [{"role": "user", "content": [{"type": "text", "text": text}]} for text in texts]


WAYS: tuple[type[Way], ...] = (Limit, Takeback, TakebackShared, Aiosqlite, OpenAIAgents, Agno, GoogleADK)
_JUDGED = (Takeback.name, TakebackShared.name)


def run(settings: Settings) -> Section:
    """Open all stores in one event loop and let them take turns."""
    return _section(asyncio.run(_rounds(settings)))


async def _rounds(settings: Settings) -> dict[str, list[Round]]:
    ways = [kind(settings.directory("p3", kind.__name__)) for kind in settings.able(WAYS)]
    for way in ways:
        await way.open()
        await _round(way, settings.seed, way.each)  # logs are at full length, threads started
    found: dict[str, list[Round]] = {way.name: [] for way in ways}
    with steady():
        for number in range(settings.pick(9, 3)):
            for way in settings.rng.sample(ways, len(ways)):
                if way.slow and number % _SLOW_EVERY:
                    continue
                found[way.name].append(await _round(way, settings.seed + number + 1, way.each))
    for way in ways:
        await way.close()
        _tell(way.name, found[way.name])
    return found


async def _round(way: Way, seed: int, each: int) -> Round:
    texts = messages.texts(TASKS * each, seed)
    prepared = [way.prepare(texts[start : start + each]) for start in range(0, len(texts), each)]
    found, started, cpu = Round(), perf_counter(), process_time()
    await way.write(prepared, found)
    found.cpu, found.seconds = process_time() - cpu, perf_counter() - started
    return found


def _cpu(rounds: list[Round]) -> float:
    """Return the processor seconds of an append; what failed cost time as well and did nothing."""
    return median([found.cpu / max(1, found.done) for found in rounds])


def _rate(rounds: list[Round]) -> float:
    return median([found.done / found.seconds for found in rounds])


def _tell(name: str, rounds: list[Round]) -> None:
    errors = sum(len(found.errors) for found in rounds)
    say(f"p3: {name}: {show_time(_cpu(rounds))} of CPU per append, {_rate(rounds):,.0f} appends/s, {errors} errors")


def _section(found: dict[str, list[Round]]) -> Section:
    text = (
        f"**What does an append cost when {TASKS} tasks of one event loop write at once?** Each task appends durable"
        " messages of 500 B one after the other, to a session of its own unless the row says otherwise. Counted is the"
        " processor time of the whole process, all threads, user and system; cells are medians over rounds. The limit"
        " is a plain loop without tasks; it may come out dearer than a store that syncs once for many tasks."
        f" agno and ADK append {_SLOW_EACH} messages per task and round, the others {_EACH}."
    )
    head = ("store", "CPU per append", "times the limit", "appends/s", "errors")
    table, checks, must = Table(text, head), [], f"at most {MOST} of the limit's CPU"
    base = _cpu(found[Limit.name])
    for name, rounds in found.items():
        ratio = _cpu(rounds) / base
        errors = [error for round_ in rounds for error in round_.errors]
        cells = (name, show_time(_cpu(rounds)), show_ratio(ratio), f"{_rate(rounds):,.0f}", _show_errors(errors))
        if name not in _JUDGED:
            table.add(*cells)
            continue
        reached = ratio <= MOST and not errors
        table.add(*cells, must=must, reached=reached, why="errors" if errors else "")
        checks.append(Check(f"CPU of an append, {TASKS} tasks: {name}", show_ratio(ratio), must, reached))
    return Section("Many tasks, one event loop", [table], checks)


def _show_errors(errors: list[str]) -> str:
    if not errors:
        return "0"
    text, _ = Counter(error.split("\n")[0][:60] for error in errors).most_common(1)[0]
    return f"{len(errors)} ({text})"
