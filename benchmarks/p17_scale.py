"""P17: whether a call costs more in a larger store, counted in work that no noise changes.

Stores of 10^4, 10^5 and 10^6 entries have the same shape (``takeback.testing.scale``); every call is made on each of
them, on SQLite and on PostgreSQL under row security. Counted are steps of SQLite's virtual machine and pages that the
server looked at; times are not taken. What an append writes on PostgreSQL is counted as well: whether it updates the
session's row in place (HOT), and the bytes of log.

``TAKEBACK_P17_SCALES=4,5`` chooses the powers of ten, ``TAKEBACK_P17_ENGINES=sqlite`` one engine. Ctrl-C ends the
measurement, and the sizes that are complete by then are reported.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import cycle, islice
from time import perf_counter, sleep
from typing import Any, NamedTuple, TypeAlias

import psycopg

import takeback
from takeback.testing import postgres
from takeback.testing.clock import ManualClock
from takeback.testing.scale import World, build
from takeback.testing.scale_calls import CALLS, OPENING, measure
from takeback.testing.work import Counter, PostgresBuffers, SqliteSteps, Work, explain

from . import messages
from .common import Settings, say, show_ratio, show_time
from .report import Check, Section, Table

MOST = 2.0
HOT, LOG = 0.95, 1400
PER_SESSION = 10
APPENDS, WRITERS, SETTLING = 3000, 10, 1000
SCALES, ENGINES = "TAKEBACK_P17_SCALES", "TAKEBACK_P17_ENGINES"
OWNER, USER = "takeback_owner", "takeback_user"
_BETWEEN_MS = 100  # from one append to the next
_UPDATES = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'session'"
_OTHERS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"

Found: TypeAlias = dict[int, dict[str, Work]]


class Written(NamedTuple):
    """What appends leave on a server: updates of sessions, those of them in place, bytes of log for each append."""

    updates: int
    hot: int
    log: float

    @property
    def share(self) -> float:
        """The share of updates in place."""
        return self.hot / max(1, self.updates)


class Engine(ABC):
    """Where the stores of one engine lie, and how their work is counted."""

    title: str
    counter: Counter

    @abstractmethod
    def make(self, size: int) -> None:
        """Make room for a new store."""

    @abstractmethod
    def open(self, size: int, clock: ManualClock, *, builds: bool = False) -> takeback.Store:
        """Open the store of a size, to fill it or to be counted."""

    @abstractmethod
    def settle(self, size: int) -> None:
        """Bring a store that was filled to where it would be in a while."""

    @abstractmethod
    def written(self, size: int, world: World, seed: int) -> Written | None:
        """Count what appends write; None where that is no question."""

    @abstractmethod
    def drop(self, size: int) -> None:
        """Remove a store."""


class Files(Engine):
    """SQLite in the files of a directory."""

    title = "SQLite"

    def __init__(self, settings: Settings) -> None:
        self._directory = settings.directory("p17")
        self.counter = SqliteSteps()

    def make(self, size: int) -> None:
        """Opening makes the file."""

    def open(self, size: int, clock: ManualClock, *, builds: bool = False) -> takeback.Store:
        path = self._directory / f"{size}.db"
        return takeback.open(path, clock=clock, durability="relaxed" if builds else "full")

    def settle(self, size: int) -> None:
        """Nothing comes by itself."""

    def written(self, size: int, world: World, seed: int) -> Written | None:
        return None

    def drop(self, size: int) -> None:
        for path in self._directory.glob(f"{size}.db*"):
            path.unlink()


class Databases(Engine):
    """Databases of one server: the owner of the tables fills a store, another role uses it and is explained."""

    title = "PostgreSQL"

    def __init__(self, server: postgres.Server) -> None:
        self._server = server
        self.counter = PostgresBuffers(server)
        for role in (OWNER, USER):
            self._run(f"CREATE ROLE {role} LOGIN")
        explain(server, USER)

    def make(self, size: int) -> None:
        self._run(f"CREATE DATABASE size_{size} OWNER {OWNER}")
        takeback.migrate(self._server.dsn(f"size_{size}", OWNER), grant_to=USER)

    def open(self, size: int, clock: ManualClock, *, builds: bool = False) -> takeback.Store:
        url = self._server.dsn(f"size_{size}", OWNER if builds else USER, call_timeout=900)
        return takeback.open(url, clock=clock, durability="relaxed" if builds else "full")

    def settle(self, size: int) -> None:
        """Do what the server does by itself within minutes."""
        self._run("VACUUM ANALYZE", at=f"size_{size}")

    def written(self, size: int, world: World, seed: int) -> Written | None:
        """Append to some sessions in turn.

        The first appends behind a checkpoint write whole pages into the log, and split the pages of an index that a
        store which was filled in one go has packed full: they are not counted.
        """
        self._run("CHECKPOINT")
        before = self._updates(size)
        with self.open(size, world.clock, builds=True) as store:
            spots = world.spots(2 * WRITERS + 1)[1::2]  # not where calls were made
            said = zip(cycle([store.get_session(each) for each in spots]), cycle(messages.texts(APPENDS, seed)))
            for session, text in islice(said, SETTLING):
                self._append(session, text, world.clock)
            [begin] = self._run("SELECT pg_current_wal_insert_lsn()::text")[0]
            for session, text in islice(said, APPENDS):
                self._append(session, text, world.clock)
            [log] = self._run("SELECT pg_current_wal_insert_lsn() - %s::text::pg_lsn", begin)[0]
        after = self._updates(size)
        return Written(after[0] - before[0], after[1] - before[1], float(log) / APPENDS)

    def drop(self, size: int) -> None:
        self._server.drop_database(f"size_{size}")

    def _append(self, session: takeback.Session, text: str, clock: ManualClock) -> None:
        clock.advance(_BETWEEN_MS)
        session.user(text)

    def _updates(self, size: int) -> tuple[int, int]:
        """Read how often sessions were updated; a connection counts what it did when it ends."""
        while self._run(_OTHERS, at=f"size_{size}")[0][0]:
            sleep(0.05)
        updates, hot = self._run(_UPDATES, at=f"size_{size}")[0]
        return updates, hot

    def _run(self, sql: str, *args: Any, at: str | None = None) -> list[Any]:
        with psycopg.connect(self._server.dsn(at), autocommit=True) as connection:
            cursor = connection.execute(sql, args or None)
            return cursor.fetchall() if cursor.description else []


def run(settings: Settings) -> Section:
    """Build stores of all sizes on both engines and make every call on each of them."""
    sizes = [
        round(10 ** float(scale))
        for scale in _chosen(SCALES, "3.5" if settings.smoke else "3.5,4.5" if settings.quick else "4,5,6")
    ]
    tables, checks = list[Table](), list[Check]()
    for engine in map(_engine, _chosen(ENGINES, "sqlite,postgresql")):
        with engine(settings) as place:
            found, written = _measured(place, sizes, settings)
        if found:
            table, check = _table(place, found)
            tables.append(table)
            checks.append(check)
        if written is not None:
            table, more = _written_table(written)
            tables.append(table)
            checks += more
    return Section("Work per call as a store grows", tables, checks)


def _chosen(variable: str, default: str) -> list[str]:
    return os.environ.get(variable, default).split(",")


def _engine(name: str) -> Any:
    return {"sqlite": _files, "postgresql": _databases}[name]


@contextmanager
def _files(settings: Settings) -> Iterator[Engine]:
    yield Files(settings)


@contextmanager
def _databases(settings: Settings) -> Iterator[Engine]:
    settings.scratch.chmod(0o755)  # the server is another user if we are root
    with postgres.start(settings.scratch) as server:
        yield Databases(server)


def _measured(place: Engine, sizes: list[int], settings: Settings) -> tuple[Found, Written | None]:
    """Measure one size after the other, the smallest first."""
    found, written = Found(), None
    try:
        for size in sorted(sizes):
            world = _built(place, size)
            started = perf_counter()
            with place.counter as counter:
                found[size] = measure(world, counter, partial(place.open, size))
            say(f"p17: {place.title}, {size:,} entries: measured in {show_time(perf_counter() - started)}")
            written = place.written(size, world, settings.seed)
            place.drop(size)
    except KeyboardInterrupt:
        say(f"p17: {place.title}: interrupted; {len(found)} of {len(sizes)} sizes are complete")
    return found, written


def _built(place: Engine, size: int) -> World:
    def tell(text: str) -> None:
        say(f"p17: {place.title}, {size:,} entries: {text}")

    started = perf_counter()
    place.make(size)
    world = build(partial(place.open, size, builds=True), size // PER_SESSION, PER_SESSION, tell)
    place.settle(size)
    tell(f"built in {show_time(perf_counter() - started)}")
    return world


def _table(place: Engine, found: Found) -> tuple[Table, Check]:
    sizes, unit = sorted(found), place.counter.unit
    shown = "steps of the virtual machine" if unit == "steps" else "pages looked at, in memory or on disk"
    text = (
        f"**What does a call cost in a larger store on {place.title}?** Counted are {shown}, of the middle one of three"
        f" calls; the last column has the number of statements in the largest store. {PER_SESSION} entries make a"
        " session; nine scopes share a store, and one has most of it. Rare is what five sessions have, however many"
        f" there are. Must reach: at most {MOST:g} times the work in the largest store. The first checkpoint of a large"
        " agent notes each of its sessions once, so it is not judged."
    )
    head = ("call", *(f"{size:,} entries" for size in sizes), "growth", "statements")
    table, trials = Table(text, head), {OPENING: "T84"} | {call.name: call.trial for call in CALLS}
    free = {call.name for call in CALLS if call.grows}
    growths = dict[str, float]()
    for name in found[sizes[-1]]:
        works = [found[size][name] for size in sizes]
        growth = works[-1].total / max(1, works[0].total)
        called = f"{name} ({trials[name]})" if trials[name] else name
        cells = (called, *(f"{work.total:,}" for work in works), show_ratio(growth), f"{len(works[-1]):,}")
        if name in free:
            table.add(*cells)
            continue
        growths[name] = growth
        table.add(*cells, must=f"at most {MOST:g}", reached=growth <= MOST)
    flat, worst = sum(growth <= MOST for growth in growths.values()), max(growths, key=growths.__getitem__)
    measured = f"{flat} of {len(growths)} calls; the worst, {worst!r}, {show_ratio(growths[worst])} times"
    what = f"work per call from {sizes[0]:,} to {sizes[-1]:,} entries, {place.title}"
    return table, Check(what, measured, f"all at most {MOST:g} times", flat == len(growths))


def _written_table(written: Written) -> tuple[Table, list[Check]]:
    text = (
        f"**What does an append of 500 B write on PostgreSQL?** {SETTLING + APPENDS:,} messages go to {WRITERS}"
        " sessions of the largest store in turn, one every tenth of a second. An update of the session's row in place"
        f" (HOT) touches no index. The bytes of log are those of the last {APPENDS:,}: by then each page is in the log"
        " whole."
    )
    table = Table(text, ("what", "measured"))
    share, log = f"{100 * written.share:.1f} % of {written.updates:,}", f"{written.log:,.0f} B"
    rows = (
        ("updates of a session in place", share, f"at least {100 * HOT:g} %", written.share >= HOT),
        ("log per append", log, f"at most {LOG:,} B", written.log <= LOG),
    )
    for what, measured, must, reached in rows:
        table.add(what, measured, must=must, reached=reached)
    return table, [Check(f"PostgreSQL: {what}", measured, must, reached) for what, measured, must, reached in rows]
