"""The arms of P12: one INSERT, the statements that Takeback sends made by bare psycopg, and Takeback itself."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct
from time import perf_counter, time
from typing import Any, ClassVar, TypeAlias
from zlib import crc32

import orjson
import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.types.numeric import Int8BinaryDumper

import takeback
from takeback.model.message import draft
from takeback.ops import append_statement
from takeback.storage.appends import KnownAppend
from takeback.storage.postgres.append import statement, written
from takeback.tables.table import packed

from . import messages, stores
from .messages import Message
from .stores import Arm

Run: TypeAlias = Callable[[Sequence[Any]], Any]

POOL = 600
_NUMBER = Struct(">q")
_ANY_RANK = (1 << 62) - 1  # none is higher or full, whatever others write meanwhile
_ADAPTERS = AdaptersMap(psycopg.adapters)
_ADAPTERS.register_dumper(int, Int8BinaryDumper)
TABLE = """CREATE TABLE IF NOT EXISTS message (
  session BIGINT, seq BIGINT, body BYTEA NOT NULL, PRIMARY KEY (session, seq))"""
INSERT = "INSERT INTO message VALUES ($1, $2, $3)"
_SELECT = "SELECT body FROM message WHERE session = $1 ORDER BY seq"


def connect(url: str) -> psycopg.Connection[Any]:
    """Connect for bare statements: each commits by itself and is prepared, numbers are sent as Takeback does."""
    factory = psycopg.RawCursor
    return psycopg.connect(url, autocommit=True, prepare_threshold=0, context=_ADAPTERS, cursor_factory=factory)


def plain(seed: int) -> list[Message]:
    """Return messages of a user, of 500 bytes as JSON."""
    return [{"role": "user", "content": text} for text in messages.texts(POOL, seed)]


def through_cursor(connection: psycopg.Connection[Any], sql: str) -> Run:
    """Send a statement as programs do; give what runs it."""
    return lambda args: connection.execute(sql, args).fetchone()


def through_lowest(connection: psycopg.Connection[Any], sql: str) -> Run:
    """Send a statement that gives at most one number without cursors and conversions: Python has nothing faster."""
    name, run = f"lowest_{crc32(sql.encode())}".encode(), connection.pgconn.exec_prepared
    connection.pgconn.prepare(name, sql.encode())
    formats = [1] * len(set(re.findall(r"\$\d+", sql)))

    def execute(args: Sequence[Any]) -> tuple[int] | None:
        result = run(name, list(map(_binary, args)), formats, result_format=1)
        if result.status == psycopg.pq.ExecStatus.FATAL_ERROR:
            raise RuntimeError(result.error_message)
        value = result.get_value(0, 0) if result.ntuples else None
        return None if value is None else _NUMBER.unpack(value)

    return execute


def _binary(value: Any) -> bytes | None:
    if type(value) is int:
        return _NUMBER.pack(value)
    return value.encode() if isinstance(value, str) else value


class Limit(Arm):
    """The least that is durable and comes back in order: one table, one prepared statement."""

    name = "limit: one INSERT"

    def __init__(self, url: str) -> None:
        self.url = url

    def open(self) -> None:
        self._connection = connect(self.url)
        self._connection.execute(TABLE)
        self._cursor = self._connection.cursor(binary=True)

    def close(self) -> None:
        self._connection.close()

    def use(self, session: str) -> None:
        self._number = crc32(session.encode())
        newest = self._cursor.execute("SELECT max(seq) FROM message WHERE session = $1", (self._number,)).fetchone()
        self._next = ((newest and newest[0]) or 0) + 1

    def prepare(self, messages: Sequence[Message]) -> list[Any]:
        return [orjson.dumps(message) for message in messages]

    def append(self, prepared: Sequence[Any]) -> list[float]:
        execute, number, times = self._cursor.execute, self._number, []
        for body in prepared:
            started = perf_counter()
            execute(INSERT, (number, self._next, body))
            times.append(perf_counter() - started)
            self._next += 1
        return times

    def fill(self, prepared: Sequence[Any]) -> None:
        rows = [(self._number, seq, body) for seq, body in enumerate(prepared, self._next)]
        with self._connection.pipeline(), self._connection.transaction():
            self._cursor.executemany(INSERT, rows)
        self._next += len(rows)

    def read(self, last: int | None) -> tuple[float, int]:
        execute, loads = self._cursor.execute, orjson.loads
        started = perf_counter()
        if last is None:
            found = [loads(body) for (body,) in execute(_SELECT, (self._number,)).fetchall()]
        else:
            rows = execute(f"{_SELECT} DESC LIMIT $2", (self._number, last)).fetchall()
            found = [loads(body) for (body,) in reversed(rows)]
        return perf_counter() - started, len(found)


class Takeback(stores.Takeback):
    """This library, through its public names."""

    def __init__(self, url: str) -> None:
        self.url = url

    def open(self) -> None:
        self._store = takeback.open(self.url)

    def fill(self, prepared: Sequence[Any]) -> None:
        self._session.append(*prepared)


class TakebackDecoded(Takeback, stores.TakebackDecoded):
    """The same, with every message looked at."""


class Bare(Takeback):
    """A statement that Takeback sends for a plain message, sent by bare psycopg; Takeback makes the sessions."""

    calls: type[Calls]

    def open(self) -> None:
        super().open()
        self._connection = connect(self.url)

    def close(self) -> None:
        self._connection.close()
        super().close()

    def use(self, session: str) -> None:
        super().use(session)
        if not self._session.message_count:
            self._session.user("the first message of a session gives it a title, in several statements")

    def append(self, prepared: Sequence[Any]) -> list[float]:
        run, calls, times = self.runs(self._connection), self.calls(self._store, self._session, prepared), []
        for _ in prepared:
            args = calls.next()
            started = perf_counter()
            row = run(args)
            times.append(perf_counter() - started)
            calls.answered(row)
        return times

    def runs(self, connection: psycopg.Connection[Any]) -> Run:
        """Return what sends a call and waits for its answer."""
        return through_cursor(connection, self.calls.sql)


class Calls(ABC):
    """The calls that Takeback sends for plain messages, with arguments made beforehand as far as they can be."""

    sql: str

    def __init__(self, store: takeback.Store, session: takeback.Session, messages: Sequence[Message]) -> None:
        self.now = int(time() * 1000)
        self.made = self.prepared(store, session, map(draft, messages))

    @abstractmethod
    def prepared(self, store: takeback.Store, session: takeback.Session, drafts: Iterable[Any]) -> Iterator[Any]:
        """Prepare what is to be appended."""

    @abstractmethod
    def next(self) -> Sequence[Any]:
        """Return the arguments of the next call."""

    def answered(self, row: Any) -> None:
        """Take the server's answer."""
        if row is None or row[0] is None:
            raise RuntimeError("the server left this append to the operation")


class Known(Calls):
    """The entry is computed from the session's row as it was seen; what the last answer tells is put in late."""

    sql = statement("takeback", keyed=False).replace("$1::int,", "$1::bigint::int,")
    types: ClassVar = dict(re.findall(r"\$(\d+)::(\w+)", sql))

    def prepared(self, store: takeback.Store, session: takeback.Session, drafts: Iterable[Any]) -> Iterator[Any]:
        made, row = [], session._seen
        for each in drafts:
            wanted, row = append_statement.computed(row, each, self.now)
            made.append(wanted._replace(rank=_ANY_RANK, rank_end=_ANY_RANK))
        self._next: KnownAppend | None = made[0]
        return iter(made[1:])

    def next(self) -> Sequence[Any]:
        if (wanted := self._next) is None:
            raise RuntimeError("no more was prepared")
        self._last = wanted
        return [1, *map(self._value, range(2, len(self.types) + 1), written(wanted, None)[1:])]

    def _value(self, number: int, written: bytes | None) -> Any:
        kind = self.types[str(number)]
        if kind == "bytea" or written is None:
            return written
        return written.decode() if kind == "text" else _NUMBER.unpack(written)[0]

    def answered(self, row: Any) -> None:
        super().answered(row)
        (before, behind), (position,) = self._last.around_session, row
        following = next(self.made, None)
        check = crc32(before + packed((position,))[1:] + behind)
        self._next = following and following._replace(updated=position, check=check)


class BareKnown(Bare):
    """What Takeback sends while nobody else writes to the session."""

    name = "psycopg: Takeback's statement"
    calls = Known


class LowestKnown(BareKnown):
    """The same call through the driver's lowest layer, as Takeback sends it."""

    name = "lowest layer: Takeback's statement"

    def runs(self, connection: psycopg.Connection[Any]) -> Run:
        return through_lowest(connection, self.calls.sql)


class Lowest(Limit):
    """The limit through the driver's lowest layer."""

    name = "lowest layer: one INSERT"

    def open(self) -> None:
        super().open()
        self._run = through_lowest(self._connection, INSERT)

    def append(self, prepared: Sequence[Any]) -> list[float]:
        run, number, times = self._run, self._number, []
        for body in prepared:
            started = perf_counter()
            run((number, self._next, body))
            times.append(perf_counter() - started)
            self._next += 1
        return times


class SocketLimit(Limit):
    """The limit, without TCP."""

    name = "limit: one INSERT, Unix socket"


class SocketTakeback(Takeback):
    """Takeback, without TCP."""

    name = "Takeback, Unix socket"


class Steps(Takeback):
    """Takeback with what an agent does: a message that calls a tool, then what the tool gave back."""

    name = "Takeback, a message that calls a tool"
    result = "Takeback, what the tool gave back"
