"""P2: eight writers at once, each with a session of its own, in one store.

Threads share one open store, processes open it themselves. The baseline is what one writes first: a connection per
writer, a transaction per append, and SQLite's busy timeout to sort out who goes next. That is fast on average and
unfair: a writer that sleeps is overtaken, so the longest wait matters as much as the rate.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar

import orjson

import takeback

from . import messages
from .common import Settings, median, percentile, say, show_ratio, show_time
from .report import Check, Section, Table
from .stores import connect

WRITERS = 8
THREADS, PROCESSES = 1.2, 0.85
P99, LONGEST = 0.005, 0.05
_JOIN_SECONDS = 120
Append = Callable[[], None]


@dataclass
class Tally:
    """What writers saw: the seconds of each append, the errors, how long it all took, the longest wait for either."""

    times: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0
    longest: float = 0.0

    def done(self, seconds: float, error: Exception | None = None) -> None:
        """Count one append, or one that failed."""
        self.longest = max(self.longest, seconds)
        if error is None:
            self.times.append(seconds)
        else:
            self.errors.append(f"{type(error).__name__}: {error}")

    def add(self, other: Tally) -> None:
        """Count another writer in."""
        self.times += other.times
        self.errors += other.errors
        self.seconds = max(self.seconds, other.seconds)
        self.longest = max(self.longest, other.longest)

    @property
    def rate(self) -> float:
        """Appends per second of all writers together."""
        return len(self.times) / self.seconds


class Writers:
    """A way of writing: opens once per process, then gives every writer its append."""

    name: ClassVar[str]

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.seed = seed

    def writer(self, number: int) -> Append:
        """Return the append of one writer, whose session exists and holds a message."""
        raise NotImplementedError

    def close(self) -> None:
        """Release what was opened."""


class Baseline(Writers):
    """A connection per writer, a transaction per append."""

    name = "baseline: a connection per writer"

    def __init__(self, path: Path, seed: int) -> None:
        super().__init__(path, seed)
        self._connections = [connect(path)]

    def writer(self, number: int) -> Append:
        connection = connect(self.path)
        self._connections.append(connection)
        execute = connection.cursor().execute
        bodies = cycle([orjson.dumps(message) for message in messages.take(600, self.seed + number)])
        key = number + 1 << 32

        def append() -> None:
            nonlocal key
            key += 1
            execute("BEGIN IMMEDIATE")
            try:
                execute("INSERT INTO message (key, body) VALUES (?, ?)", (key, next(bodies)))
                execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    execute("ROLLBACK")
                raise

        append()
        return append

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


class Takeback(Writers):
    """One open store, shared by the threads of a process."""

    name = "Takeback"

    def __init__(self, path: Path, seed: int) -> None:
        super().__init__(path, seed)
        self._store = takeback.open(path)

    def writer(self, number: int) -> Append:
        session = self._store.create_session(f"writer {number}")
        source = messages.stream(self.seed + number)

        def append() -> None:
            session.append(next(source))

        append()
        return append

    def close(self) -> None:
        self._store.close()


class OpenAIAgents(Writers):
    """Tasks of one event loop; the library itself hands each call to a worker thread."""

    name = "OpenAI Agents SQLiteSession"
    needs = "agents"

    def session(self, number: int) -> Any:
        """Open the session of one writer."""
        from agents import SQLiteSession

        return SQLiteSession(f"writer {number}", self.path)


KINDS: dict[str, type[Writers]] = {kind.name: kind for kind in (Baseline, Takeback, OpenAIAgents)}


# ---------------------------------------------------------------------- writing for some seconds


def _write(append: Append, seconds: float) -> Tally:
    """Append as fast as the store lets one writer."""
    tally, started = Tally(), perf_counter()
    end = started + seconds
    while (before := perf_counter()) < end:
        try:
            append()
        except Exception as error:
            tally.done(perf_counter() - before, error)
        else:
            tally.done(perf_counter() - before)
    tally.seconds = perf_counter() - started
    return tally


async def _write_async(sessions: list[Any], seed: int, seconds: float) -> Tally:
    """Append with a task per session."""

    async def one(session: Any, number: int) -> Tally:
        source, tally, started = messages.stream(seed + number), Tally(), perf_counter()
        end = started + seconds
        while (before := perf_counter()) < end:
            try:
                await session.add_items([next(source)])
            except Exception as error:
                tally.done(perf_counter() - before, error)
            else:
                tally.done(perf_counter() - before)
        tally.seconds = perf_counter() - started
        return tally

    total = Tally()
    for tally in await asyncio.gather(*(one(session, number) for number, session in enumerate(sessions))):
        total.add(tally)
    return total


def _threads(kind: type[Writers], path: Path, seed: int, seconds: float) -> Tally:
    writers = kind(path, seed)
    if isinstance(writers, OpenAIAgents):
        sessions = [writers.session(number) for number in range(WRITERS)]
        total = asyncio.run(_write_async(sessions, seed, seconds))
        for session in sessions:
            session.close()
        return total
    total, barrier, guard = Tally(), threading.Barrier(WRITERS), threading.Lock()

    def work(append: Append) -> None:
        barrier.wait()
        tally = _write(append, seconds)
        with guard:
            total.add(tally)

    appends = [writers.writer(number) for number in range(WRITERS)]
    threads = [threading.Thread(target=work, args=(append,)) for append in appends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writers.close()
    return total


def _processes(kind: type[Writers], path: Path, seed: int, seconds: float) -> Tally:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.p2_concurrent", "agents"])
    if not issubclass(kind, OpenAIAgents):
        kind(path, seed).close()  # the store is there before anyone writes: opening is not measured here
    barrier, results = context.Barrier(WRITERS), context.Queue()
    workers = [
        context.Process(target=_process, args=(kind.name, path, seed, number, seconds, barrier, results), daemon=True)
        for number in range(WRITERS)
    ]
    for worker in workers:
        worker.start()
    total = Tally()
    for _ in workers:
        total.add(results.get(timeout=_JOIN_SECONDS))
    for worker in workers:
        worker.join(_JOIN_SECONDS)
    return total


def _process(name: str, path: Path, seed: int, number: int, seconds: float, barrier: Any, results: Any) -> None:
    """Be one writing process; whatever happens, a tally goes back."""
    try:
        tally = _work(KINDS[name](path, seed), number, seconds, barrier)
    except Exception as error:
        barrier.abort()
        tally = Tally(errors=[f"writer lost: {type(error).__name__}: {error}"], seconds=seconds)
    results.put(tally)


def _work(writers: Writers, number: int, seconds: float, barrier: Any) -> Tally:
    if isinstance(writers, OpenAIAgents):
        session = writers.session(number)
        barrier.wait(_JOIN_SECONDS)
        tally = asyncio.run(_write_async([session], writers.seed + number, seconds))
        session.close()
        return tally
    append = writers.writer(number)
    barrier.wait(_JOIN_SECONDS)
    tally = _write(append, seconds)
    writers.close()
    return tally


# ---------------------------------------------------------------------- the group


def run(settings: Settings) -> Section:
    """Run every way of writing in turn, several rounds, for threads and for processes."""
    threads = _rounds(settings, "threads", _threads)
    processes = _rounds(settings, "processes", _processes)
    text = (
        "**Can eight threads write at once, and does any of them have to wait?** Each appends to a session of its own"
        " as fast as it can; rates and times are medians over rounds, the longest wait is the worst of all. OpenAI"
        " Agents runs as eight tasks, which it hands to worker threads itself."
    )
    first, threads_check = _table(text, "threads", threads, THREADS)
    text = (
        "**And eight processes?** Each opens the same store and appends to a session of its own. The baseline's rate"
        " is that of whoever holds the lock while the others sleep; its longest wait is what they pay for it, cut off"
        " by the length of a round."
    )
    second, processes_check = _table(text, "processes", processes, PROCESSES)
    plot = {
        "rate": {"threads": _rates(threads), "processes": _rates(processes)},
        "longest": {"threads": _longest(threads), "processes": _longest(processes)},
    }
    return Section("Eight writers, one store", [first, second], [threads_check, processes_check], plot)


Run = Callable[[type[Writers], Path, int, float], Tally]


def _rounds(settings: Settings, mode: str, run_one: Run) -> dict[str, list[Tally]]:
    kinds = settings.able(KINDS.values())
    found: dict[str, list[Tally]] = {kind.name: [] for kind in kinds}
    seconds = 0.1 if settings.smoke else 1.0 if settings.quick else 3.0
    for number in range(settings.pick(3, 1)):
        for kind in settings.rng.sample(kinds, len(kinds)):
            directory = settings.directory("p2", mode, number, kind.__name__)
            tally = run_one(kind, directory / "store.db", settings.seed, seconds)
            found[kind.name].append(tally)
            say(
                f"p2: {mode}: {kind.name}: {tally.rate:,.0f} appends/s, p99 {show_time(percentile(tally.times, 0.99))},"
                f" longest {show_time(tally.longest)}, {len(tally.errors)} errors {_kinds(tally.errors)}"
            )
    return found


def _table(text: str, mode: str, found: dict[str, list[Tally]], least: float) -> tuple[Table, Check]:
    table = Table(text, ("store", "appends/s", "times the baseline", "p50", "p99", "longest wait", "errors"))
    must = f"at least {least} times; p99 under 5 ms; no wait of 50 ms; no error"
    rates = _rates(found)
    for name, tallies in found.items():
        ratio = rates[name] / rates[Baseline.name]
        p50 = median([median(tally.times) for tally in tallies])
        p99 = median([percentile(tally.times, 0.99) for tally in tallies])
        longest = _longest(found)[name]
        errors = [error for tally in tallies for error in tally.errors]
        cells = (name, f"{rates[name]:,.0f}", show_ratio(ratio), show_time(p50), show_time(p99), show_time(longest))
        shown = f"{len(errors)} {_kinds(errors)}".strip()
        if name != Takeback.name:
            table.add(*cells, shown)
            continue
        missed = {"rate": ratio < least, "p99": p99 >= P99, "longest wait": longest >= LONGEST, "errors": bool(errors)}
        why = ", ".join(what for what, is_missed in missed.items() if is_missed)
        table.add(*cells, shown, must=must, reached=not why, why=why)
        measured = (
            f"{show_ratio(ratio)} times, p99 {show_time(p99)}, longest {show_time(longest)}, {len(errors)} errors"
        )
        check = Check(f"8 writers, {mode}", measured, must, not why)
    return table, check


def _rates(found: dict[str, list[Tally]]) -> dict[str, float]:
    return {name: median([tally.rate for tally in tallies]) for name, tallies in found.items()}


def _longest(found: dict[str, list[Tally]]) -> dict[str, float]:
    return {name: max(tally.longest for tally in tallies) for name, tallies in found.items()}


def _kinds(errors: list[str]) -> str:
    """Name the most frequent error, without the values in it."""
    if not errors:
        return ""
    text, _ = Counter(error.split("\n")[0][:60] for error in errors).most_common(1)[0]
    return f"({text})"
