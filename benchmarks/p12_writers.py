"""P12, eight writers at once on one server: Takeback beside bare psycopg that sends what Takeback sends.

Threads share one open store, processes open it themselves; each has a session of its own, or all have the same one.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count, cycle, islice
from time import perf_counter, time
from typing import Any, ClassVar

import orjson
import psycopg

import takeback
from takeback.testing import postgres

from .common import Settings, median, percentile, say, show_ratio, show_time
from .p2_concurrent import WRITERS, Tally
from .p12_stores import (
    INSERT,
    POOL,
    TABLE,
    BareKnown,
    Calls,
    Known,
    LowestKnown,
    Takeback,
    connect,
    plain,
    through_cursor,
    through_lowest,
)
from .report import Check, Table

LEAST = 0.7
_LEAD_IN = 10
_FASTEST = 3000  # appends of one writer in a second, and no server is near that
_JOIN_SECONDS = 120
_HEADS = "CREATE TABLE IF NOT EXISTS head (session BIGINT PRIMARY KEY, seq BIGINT NOT NULL)"
_LOCK = "SELECT seq FROM head WHERE session = $1 FOR UPDATE"
_MOVE = "UPDATE head SET seq = $2 WHERE session = $1"


class Writers:
    """A way of writing: opens once per process, then gives every writer its append."""

    name: ClassVar[str]

    def __init__(self, url: str, seed: int, seconds: float) -> None:
        self.url = url
        self.seed = seed
        self.seconds = seconds

    def writer(self, number: int, session: str) -> Callable[[], object]:
        """Return the append of one writer; the session exists and has a title."""
        raise NotImplementedError

    def close(self) -> None:
        """Release what was opened."""


class Inserts(Writers):
    """A connection per writer, the limit's statement."""

    name = "psycopg: one INSERT"

    def __init__(self, url: str, seed: int, seconds: float) -> None:
        super().__init__(url, seed, seconds)
        self._connections = list[psycopg.Connection[Any]]()

    def connect(self) -> psycopg.Connection[Any]:
        """Make the connection of a writer."""
        self._connections.append(connect(self.url))
        return self._connections[-1]

    def writer(self, number: int, session: str) -> Callable[[], object]:
        execute, numbers = self.connect().cursor().execute, count(int(time() * 1e6) << 8 | number, 1 << 8)
        bodies = cycle([orjson.dumps(message) for message in plain(self.seed + number)])
        place = int(session.split()[-1])
        return lambda: execute(INSERT, (place, next(numbers), next(bodies)))

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


class Statements(Inserts):
    """A connection per writer, a statement of Takeback's with arguments made beforehand as far as they can be."""

    calls: type[Calls]
    through = staticmethod(through_cursor)

    def writer(self, number: int, session: str) -> Callable[[], object]:
        run = self.through(self.connect(), self.calls.sql)
        with takeback.open(self.url) as store:
            source = islice(cycle(plain(self.seed + number)), self.prepared)
            calls = self.calls(store, store.session(session, hold=False), list(source))
        return lambda: calls.answered(run(calls.next()))

    @property
    def prepared(self) -> int:
        """How many calls to prepare; they are sent again and again."""
        return POOL


class KnownStatements(Statements):
    """For a session that nobody else writes to."""

    name = BareKnown.name
    calls = Known

    @property
    def prepared(self) -> int:
        """How many calls to prepare: entries of a chain, none can be sent twice."""
        return int(_FASTEST * self.seconds)


class LowestStatements(KnownStatements):
    """The same through the driver's lowest layer, as Takeback sends it."""

    name = LowestKnown.name
    through = staticmethod(through_lowest)


class Turns(Inserts):
    """What any program must do that numbers the messages of a session without gaps: lock, INSERT, UPDATE."""

    name = "psycopg: lock, INSERT, UPDATE"

    def writer(self, number: int, session: str) -> Callable[[], object]:
        connection = self.connect()
        bodies = cycle([orjson.dumps(message) for message in plain(self.seed + number)])
        place = int(session.split()[-1])

        def append() -> None:
            with connection.pipeline():
                connection.execute("BEGIN")
                found = connection.execute(_LOCK, (place,)).fetchone()
                last = found[0] if found else 0
                connection.execute(INSERT, (place, last + 1, next(bodies)))
                connection.execute(_MOVE, (place, last + 1))
                connection.execute("COMMIT")

        return append


class Stores(Writers):
    """One open store for all threads of a process."""

    name = Takeback.name

    def __init__(self, url: str, seed: int, seconds: float) -> None:
        super().__init__(url, seed, seconds)
        self._store = takeback.open(url)

    def writer(self, number: int, session: str) -> Callable[[], object]:
        append, source = self._store.session(session, hold=False).append, cycle(plain(self.seed + number))
        return lambda: append(next(source))

    def close(self) -> None:
        self._store.close()


_KINDS: tuple[type[Writers], ...] = (Inserts, KnownStatements, LowestStatements, Turns, Stores)
WAYS = {way.name: way for way in _KINDS}


def _make_sessions(url: str) -> None:
    with connect(url) as connection, takeback.open(url) as store:
        connection.execute(TABLE)
        connection.execute(_HEADS)
        for number in range(WRITERS):
            connection.execute("INSERT INTO head VALUES ($1, 0)", (number,))
            store.create_session(_session(number)).user("the first message gives a session its title")


def _session(number: int) -> str:
    return f"writer {number}"


def _write(append: Callable[[], object], seconds: float) -> Tally:
    """Append as fast as the store lets one writer."""
    tally = Tally()
    for _ in range(_LEAD_IN):
        _once(append, Tally())  # the connection is made, the statement prepared
    started = perf_counter()
    while perf_counter() < started + seconds:
        _once(append, tally)
    tally.seconds = perf_counter() - started
    return tally


def _once(append: Callable[[], object], tally: Tally) -> None:
    before = perf_counter()
    try:
        append()
    except Exception as error:
        tally.done(perf_counter() - before, error)
    else:
        tally.done(perf_counter() - before)


def _threads(name: str, url: str, seed: int, sessions: Sequence[str], seconds: float) -> Tally:
    way, total, barrier, guard = WAYS[name](url, seed, seconds), Tally(), threading.Barrier(WRITERS), threading.Lock()

    def work(append: Callable[[], object]) -> None:
        barrier.wait(_JOIN_SECONDS)
        tally = _write(append, seconds)
        with guard:
            total.add(tally)

    appends = [way.writer(number, session) for number, session in enumerate(sessions)]
    threads = [threading.Thread(target=work, args=(append,)) for append in appends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    way.close()
    return total


def _processes(name: str, url: str, seed: int, sessions: Sequence[str], seconds: float) -> Tally:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.p12_writers"])
    barrier, results = context.Barrier(WRITERS), context.Queue()
    given = (name, url, seed)
    workers = [
        context.Process(target=_process, args=(*given, number, session, seconds, barrier, results), daemon=True)
        for number, session in enumerate(sessions)
    ]
    for worker in workers:
        worker.start()
    total = Tally()
    for _ in workers:
        total.add(results.get(timeout=_JOIN_SECONDS))
    for worker in workers:
        worker.join(_JOIN_SECONDS)
    return total


def _process(
    name: str, url: str, seed: int, number: int, session: str, seconds: float, barrier: Any, results: Any
) -> None:
    """Be one writing process; whatever happens, a tally goes back."""
    try:
        way = WAYS[name](url, seed, seconds)
        append = way.writer(number, session)
        barrier.wait(_JOIN_SECONDS)
        tally = _write(append, seconds)
        way.close()
    except Exception as error:
        barrier.abort()
        tally = Tally(errors=[f"writer lost: {type(error).__name__}: {error}"], seconds=seconds)
    results.put(tally)


_OWN = tuple(_session(number) for number in range(WRITERS))
_ONE = (_session(0),) * WRITERS
GROUPS: dict[str, tuple[Callable[..., Tally], tuple[str, ...]]] = {
    "threads, own sessions": (_threads, _OWN),
    "threads, one session": (_threads, _ONE),
    "processes, own sessions": (_processes, _OWN),
    "processes, one session": (_processes, _ONE),
}


def _ways(mode: str) -> list[str]:
    """Name the ways of writing; an entry computed beforehand counts only where nobody else writes."""
    unfit = KnownStatements if "one session" in mode else Turns
    return [name for name, way in WAYS.items() if not issubclass(way, unfit)]


def measure(settings: Settings, server: postgres.Server) -> dict[str, dict[str, list[Tally]]]:
    """Let eight write in every way, several rounds; a round has a new store."""
    found: dict[str, dict[str, list[Tally]]] = {mode: {name: [] for name in _ways(mode)} for mode in GROUPS}
    seconds = 0.1 if settings.smoke else 0.7 if settings.quick else 1.5
    for number in range(settings.pick(3, 1)):
        for mode, (run_one, sessions) in GROUPS.items():
            for name in settings.rng.sample(_ways(mode), len(_ways(mode))):
                database = f"round {number} {mode} {list(WAYS).index(name)}"
                url = server.create_database(database)
                _make_sessions(url)
                tally = run_one(name, url, settings.seed, sessions, seconds)
                server.drop_database(database)
                found[mode][name].append(tally)
                wrong = f"{len(tally.errors)} errors {tally.errors[:1] or ''}"
                say(f"p12: 8 {mode}: {name}: {tally.rate:,.0f} appends/s, {wrong}")
    return found


def table_of(mode: str, found: dict[str, list[Tally]]) -> tuple[Table, Check]:
    """Write a table; Takeback is judged by its rate next to the statement that it sends."""
    kind, where = mode.split(", ")
    sessions = "each to a session of its own" if where == "own sessions" else "all to one session"
    note = {
        "threads, own sessions": " Takeback is compared with psycopg that has a connection per writer and sends the"
        " statement that Takeback sends, its arguments made beforehand; the other rows are for information. Rates and"
        " times are medians over rounds, lowest and highest rate in brackets; the longest wait is the worst of all.",
        "threads, one session": " They take turns: an append holds the session's row until it is synced. Takeback is"
        " compared with psycopg that locks a row, inserts and updates it, in two round trips. A mere INSERT needs no"
        " turns.",
    }
    text = f"**Eight {kind} at once, {sessions}?**{note.get(mode, '')}"
    statement = KnownStatements.name if where == "own sessions" else Turns.name
    ratio_of = f"times {statement.removeprefix('psycopg: ')}"
    table = Table(text, ("store", "appends/s", ratio_of, "p50", "p99", "longest wait", "errors"))
    raw, must = median([tally.rate for tally in found[statement]]), f"at least {LEAST}; no error"
    for name, tallies in found.items():
        rates = [tally.rate for tally in tallies]
        ratio = median(rates) / raw if raw else 0.0
        p50 = median([median(tally.times) for tally in tallies])
        p99 = median([percentile(tally.times, 0.99) for tally in tallies])
        errors = Counter(error.split("\n")[0][:60] for tally in tallies for error in tally.errors)
        cells = [name, f"{median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})", show_ratio(ratio)]
        cells += [show_time(p50), show_time(p99), show_time(max(tally.longest for tally in tallies))]
        cells.append(f"{errors.total()}" + "".join(f" ({text})" for text, _ in errors.most_common(1)))
        if name != Stores.name:
            table.add(*cells)
            continue
        missed = {"rate": ratio < LEAST, "errors": bool(errors)}
        why = ", ".join(what for what, is_missed in missed.items() if is_missed)
        table.add(*cells, must=must, reached=not why, why=why)
        measured = f"{show_ratio(ratio)} of the bare statement, p99 {show_time(p99)}, {errors.total()} errors"
        check = Check(f"8 writers, PostgreSQL, {mode}", measured, must, not why)
    return table, check
