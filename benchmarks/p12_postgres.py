"""P12: a store on a PostgreSQL server: one append, a batch, reading back, eight writers.

The server is our own on the disk of the repository and syncs every commit; all arms share it, so they write to one log.
The limit is one prepared INSERT that commits by itself. A plain message is one statement for Takeback too; if others
write to the session, it is a transaction of several. That statement is also sent without Takeback. Through the driver's
lowest layer, what it costs above an INSERT is the server's work, and what Takeback costs above it is the client's.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, cycle, dropwhile, islice
from time import perf_counter
from typing import TypeAlias

import psycopg

from takeback.testing import postgres

from . import messages, p12_writers
from .common import Settings, load, median, percentile, say, show_both, show_ratio, show_time, steady
from .messages import Message
from .p12_stores import (
    BareKnown,
    Limit,
    Lowest,
    LowestKnown,
    SocketLimit,
    SocketTakeback,
    Steps,
    Takeback,
    TakebackDecoded,
    plain,
)
from .peers import is_installed
from .report import Check, Section, Table
from .stores import Arm

MOST = 1.4
LAST, BATCH = 50, 100
_SIZES = (0, 1000, 10_000)
_FULL = _SIZES[-1]
_BLOCK = 10
_SLOW_EVERY = 4  # blocks
_SHOWN = ("fsync", "synchronous_commit", "full_page_writes", "wal_sync_method", "shared_buffers")

FIRST = "Takeback, the first message of a session"
AGENT = "Takeback, calls of tools and results among them"
ROWS = (
    *(Limit.name, Lowest.name, BareKnown.name, LowestKnown.name),
    *(Takeback.name, FIRST, Steps.name, Steps.result, SocketLimit.name, SocketTakeback.name),
)
LIMITS = {SocketLimit.name: SocketLimit.name, SocketTakeback.name: SocketLimit.name}  # others: Limit.name

Blocks: TypeAlias = dict[str, dict[int, list[float]]]  # of a row: the times of each block
Found: TypeAlias = dict[int, Blocks]


class Bench:
    """A server with the arms for one size."""

    def __init__(self, settings: Settings, server: postgres.Server, size: int) -> None:
        self.settings, self.size, name = settings, size, f"size_{size}"
        url = server.create_database(name)
        socket = server.socket_dsn(name)
        self.limit, self.takeback, self.decoded = Limit(url), Takeback(url), TakebackDecoded(url)
        self.peers, self.steps = _peers(settings, url), Steps(url)
        bare, other = [BareKnown(url), LowestKnown(url)], [SocketLimit(socket), SocketTakeback(socket)]
        self.singles: list[Arm] = [self.limit, Lowest(url), *bare, self.takeback, self.steps, *other, *self.peers]
        self.readers: list[Arm] = [self.limit, self.takeback, self.decoded, *self.peers]
        self.plain = cycle(plain(settings.seed))
        self.stream = messages.stream(settings.seed + 1)
        for arm in self.all:
            arm.open()
        filling = messages.take(size, settings.seed)
        for arm in (self.limit, self.takeback, *self.peers) if size else ():
            arm.use("session")
            arm.fill(arm.prepare(filling))
        for arm in self.all:
            arm.use("aside")
            arm.append(arm.prepare(self._texts(1 if arm.slow else _BLOCK)))  # connected, statements prepared
        say(f"p12: {size:,} messages are in")

    @property
    def all(self) -> list[Arm]:
        """All arms."""
        return [*self.singles, self.decoded]

    def close(self) -> None:
        """Close all arms."""
        for arm in self.all:
            arm.close()

    def _texts(self, number: int) -> list[Message]:
        return list(islice(self.plain, number))

    def _turns(self, number: int) -> list[Message]:
        """Return messages of an agent, from a user's on."""
        return list(islice(dropwhile(lambda message: message["role"] != "user", self.stream), number))

    def appends(self) -> Blocks:
        """Append in short blocks, the arms in a new order each time; an empty session stays new in every block."""
        found: Blocks = {}
        with steady():
            for number in range(self.settings.pick(40, 8)):
                for arm in self.settings.rng.sample(self.singles, len(self.singles)):
                    if not (arm.slow and number % _SLOW_EVERY):
                        arm.use("session" if self.size else f"block {number} of {arm.name}")
                        for name, times in self._block(arm).items():
                            found.setdefault(name, {})[number] = times
        return found

    def _block(self, arm: Arm) -> dict[str, list[float]]:
        """Append some messages; give the times by what was appended."""
        if arm in self.peers:
            return {arm.name: arm.append(arm.prepare(self._texts(1)))}
        if arm is not self.steps:
            times = arm.append(arm.prepare(self._texts(_BLOCK)))
            return {arm.name: times, FIRST: times[:1]} if arm is self.takeback and not self.size else {arm.name: times}
        steps = [message for message in self._turns(3 * _BLOCK) if message["role"] == "tool" or _is_call(message)]
        times = arm.append(steps[:_BLOCK])  # a call, its result, the next call
        return {Steps.name: times[::2], Steps.result: times[1::2]}

    def batches(self) -> Blocks:
        """Append a hundred messages in one call; times are per message."""
        rows: dict[str, tuple[Arm, Callable[[], list[Message]]]] = {
            Limit.name: (self.limit, lambda: self._texts(BATCH)),
            Takeback.name: (self.takeback, lambda: self._texts(BATCH)),
            AGENT: (self.takeback, lambda: self._turns(BATCH)),
        }
        found: Blocks = {name: {} for name in rows}
        with steady():
            for number in range(self.settings.pick(30, 6)):
                for name in self.settings.rng.sample(list(rows), len(rows)):
                    arm, take = rows[name]
                    arm.use("batches")
                    prepared = arm.prepare(take())
                    started = perf_counter()
                    arm.fill(prepared)
                    found[name][number] = [(perf_counter() - started) / BATCH]
        return found

    def reads(self, last: int | None) -> Blocks:
        """Read in turns, and see that everything came."""
        found: Blocks = {arm.name: {} for arm in self.readers}
        for arm in self.readers:
            arm.use("session")
            self._read(arm, last)
        with steady():
            for number in range(self.settings.pick(20, 5)):
                for arm in self.settings.rng.sample(self.readers, len(self.readers)):
                    if not (arm.slow and number % _SLOW_EVERY):
                        each = 1 if arm.slow or last is None else _BLOCK
                        found[arm.name][number] = [self._read(arm, last) for _ in range(each)]
        return found

    def _read(self, arm: Arm, last: int | None) -> float:
        seconds, number = arm.read(last)
        if number != (last or self.size):
            raise RuntimeError(f"{arm.name} gave {number} messages, not {last or self.size}")
        return seconds


def _peers(settings: Settings, url: str) -> list[Arm]:
    if settings.smoke and not is_installed("langgraph.checkpoint.postgres"):
        return []
    from .peers.langgraph_postgres import LangGraphPostgres

    return [LangGraphPostgres(url)]


def _is_call(message: Message) -> bool:
    return any(part["type"] == "tool_use" for part in message["content"])


def run(settings: Settings) -> Section:
    """Start a server and measure everything on it."""
    before = load()
    settings.scratch.chmod(0o755)  # the server is another user if we are root
    appended: Found = {}
    with postgres.start(settings.scratch) as server:
        described = _describe(server)
        say(f"p12: {described}, load average {before}")
        for size in settings.sizes(_SIZES, _SIZES, (0, _FULL)):
            bench = Bench(settings, server, size)
            if size == _FULL:
                tail, whole = bench.reads(LAST), bench.reads(None)
            appended[size] = bench.appends()
            if size == _FULL:
                batches = bench.batches()
            bench.close()
            _tell(size, appended[size])
        written = p12_writers.measure(settings, server)
    described += f"; load average {before} before this group and {load()} after it, its own work included."
    table, checks = _append_table(appended, described)
    tables = [table, _batch_table(batches), _read_table(tail, whole)]
    for mode, found in written.items():
        table, check = p12_writers.table_of(mode, found)
        tables.append(table)
        checks.append(check)
    return Section("A store on a PostgreSQL server", tables, checks)


def _describe(server: postgres.Server) -> str:
    with psycopg.connect(server.dsn()) as connection:
        values = [connection.execute("SELECT current_setting(%s)", (name,)).fetchone() for name in _SHOWN]
    settings = ", ".join(f"{name} {value[0]}" for name, value in zip(_SHOWN, values, strict=True) if value)
    return f"PostgreSQL {server.version}, psycopg {psycopg.__version__} ({psycopg.pq.__impl__}), {settings}"


def _all(blocks: dict[int, list[float]]) -> list[float]:
    return list(chain.from_iterable(blocks.values()))


def _limit_of(name: str) -> str:
    return LIMITS.get(name, Limit.name)


def _ratio(found: Blocks, name: str) -> float:
    return median(_all(found[name])) / median(_all(found[_limit_of(name)]))


def _spread(found: Blocks, name: str) -> tuple[float, float]:
    """Return the quartiles of the ratio, block by block."""
    base = found[_limit_of(name)]
    ratios = [median(times) / median(base[number]) for number, times in found[name].items()]
    return percentile(ratios, 0.25), percentile(ratios, 0.75)


def _cells(found: Blocks, name: str) -> tuple[str, str]:
    """Write the time with its ratio, and the ratio's quartiles."""
    if name not in found:
        return "-", "-"
    low, high = _spread(found, name)
    both = show_both(median(_all(found[name])), _ratio(found, name))
    return both, "-" if name == _limit_of(name) else f"{show_ratio(low)} to {show_ratio(high)}"


def _tell(size: int, found: Blocks) -> None:
    for name, blocks in found.items():
        times = _all(blocks)
        say(
            f"p12: {size:,}: {name}: {show_time(median(times))}, p99 {show_time(percentile(times, 0.99))},"
            f" {show_ratio(_ratio(found, name))} times the limit, {len(times)} samples"
        )


def _append_table(found: Found, described: str) -> tuple[Table, list[Check]]:
    text = (
        "**What does one durable append of 500 B cost on a server, and does it grow with the session?** Each cell is"
        " the median time and, in brackets, its ratio to the limit over the same kind of connection; beside it the"
        " quartiles of that ratio over blocks of ten. Appended is a user's message, unless the row says otherwise. What"
        " Takeback sends for it was also sent without Takeback, with arguments made beforehand: through the driver's"
        " lowest layer, which Takeback uses too, the step from an INSERT to that statement is the server's work and the"
        " step from there to Takeback is the client's. LangGraph writes the whole history with every append; its cells"
        f" are medians of few samples. {described}"
    )
    head = [part for size in found for part in (f"{size:,} messages", "quartiles")]
    table, checks = Table(text, ("store, over TCP on one machine", *head)), []
    for name in dict.fromkeys((*ROWS, *chain.from_iterable(found.values()))):
        cells = [cell for blocks in found.values() for cell in _cells(blocks, name)]
        if name not in (Takeback.name, SocketTakeback.name):
            table.add(name, *cells)
            continue
        ratios = {size: _ratio(blocks, name) for size, blocks in found.items()}
        missed = ", ".join(f"{size:,}" for size, ratio in ratios.items() if ratio > MOST)
        table.add(name, *cells, must=f"at most {MOST} at every size", reached=not missed, why=missed)
        worst = max(ratios.values())
        what = "append, PostgreSQL" + (", Unix socket" if name == SocketTakeback.name else "")
        measured = f"{show_ratio(worst)} at the worst size"
        checks.append(Check(what, measured, f"at most {MOST} at every size", worst <= MOST))
    return table, checks


def _batch_table(found: Blocks) -> Table:
    text = (
        f"**And {BATCH} messages in one call?** Times are per message. The limit sends {BATCH} INSERTs in one pipeline"
        " and one transaction."
    )
    table = Table(text, ("store", "median, per message", "quartiles of the ratio"))
    for name in found:
        table.add(name if name != Limit.name else f"limit: {BATCH} INSERTs in a pipeline", *_cells(found, name))
    return table


def _read_table(tail: Blocks, whole: Blocks) -> Table:
    text = (
        f"**What does reading back cost?** A session of {_FULL:,} messages. The limit gets bare rows in binary form and"
        " decodes them with orjson; Takeback verifies every row's checksum."
    )
    table = Table(text, ("store", f"last {LAST}", "quartiles", f"all {_FULL:,}", "quartiles"))
    for name in tail:
        shown = name if name != Limit.name else "limit: bare rows"
        table.add(shown, *_cells(tail, name), *_cells(whole, name))
    return table
