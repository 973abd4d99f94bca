"""One face for every store under test, so that all of them do the same work.

An arm opens a store in a directory of its own, appends prepared messages one call at a time and gives the
seconds of each, and reads a tail or everything. Whatever is not the store's own work - making message
objects, encoding for the bare limit, starting event loops - happens in ``prepare`` and ``open``, untimed.
"""

from __future__ import annotations

import os
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import apsw
import orjson

import takeback

from .messages import Message

LOG_BYTES = 32 + 1024 * (4096 + 24)  # the length that Takeback gives its log
_BATCH = 1000
_INSERT = "INSERT INTO message (key, body) VALUES (?, ?)"
_SELECT = "SELECT body FROM message WHERE key BETWEEN ? AND ? ORDER BY key"


class Arm(ABC):
    """A store under test."""

    name: str
    needs = ""  # a library, if it is a peer
    slow = False  # a few samples must do
    has_log = True  # a write-ahead log, which is fresh or warm

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / "store.db"

    @abstractmethod
    def open(self) -> None:
        """Open the store, making it if it is new."""

    @abstractmethod
    def close(self) -> None:
        """Close the store; SQLite folds its log into the file and deletes it."""

    @abstractmethod
    def use(self, session: str) -> None:
        """Choose a session for what follows, making it if it is new."""

    def prepare(self, messages: Sequence[Message]) -> list[Any]:
        """Turn messages into what the store takes."""
        return list(messages)

    @abstractmethod
    def append(self, prepared: Sequence[Any]) -> list[float]:
        """Append one message per call, durably; give the seconds that each took."""

    @abstractmethod
    def fill(self, prepared: Sequence[Any]) -> None:
        """Append many messages at a time."""

    @abstractmethod
    def read(self, last: int | None) -> tuple[float, int]:
        """Read the last messages, or all; give the seconds and how many came."""

    def log_restarts(self) -> int:
        """Return how often the write-ahead log was begun again since the file was made; its header counts it."""
        try:
            with open(f"{self.path}-wal", "rb") as file:
                header = file.read(16)
        except FileNotFoundError:
            return 0
        return int(struct.unpack_from(">I", header, 12)[0]) if len(header) == 16 else 0


class Limit(Arm):
    """The least that is durable and comes back in order: one table, one statement, full sync."""

    name = "limit: bare SQLite"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._numbers: dict[str, int] = {}

    def open(self) -> None:
        self._connection = connect(self.path)
        self._cursor = self._connection.cursor()

    def close(self) -> None:
        self._connection.close()

    def use(self, session: str) -> None:
        number = self._numbers.setdefault(session, len(self._numbers) + 1)
        self._bounds = (number << 32, (number + 1 << 32) - 1)
        newest = self._cursor.execute("SELECT max(key) FROM message WHERE key BETWEEN ? AND ?", self._bounds).get
        self._next = (newest or self._bounds[0]) + 1

    def prepare(self, messages: Sequence[Message]) -> list[Any]:
        return [orjson.dumps(message) for message in messages]

    def append(self, prepared: Sequence[Any]) -> list[float]:
        execute, times = self._cursor.execute, []
        for body in prepared:
            started = perf_counter()
            execute(_INSERT, (self._next, body))
            times.append(perf_counter() - started)
            self._next += 1
        return times

    def fill(self, prepared: Sequence[Any]) -> None:
        with self._connection:
            self._cursor.executemany(_INSERT, enumerate(prepared, self._next))
        self._next += len(prepared)

    def read(self, last: int | None) -> tuple[float, int]:
        execute, loads = self._cursor.execute, orjson.loads
        started = perf_counter()
        if last is None:
            found = [loads(body) for (body,) in execute(_SELECT, self._bounds)]
        else:
            found = [loads(body) for (body,) in execute(f"{_SELECT} DESC LIMIT ?", (*self._bounds, last))]
            found.reverse()
        return perf_counter() - started, len(found)


class ExtendedLimit(Limit):
    """The same with its log brought to full length by zeros, as Takeback does with its own."""

    name = "limit, log extended"

    def extend_log(self) -> None:
        """Make the log as long as Takeback's."""
        descriptor = os.open(f"{self.path}-wal", os.O_WRONLY)
        try:
            while (end := os.fstat(descriptor).st_size) < LOG_BYTES:
                os.pwrite(descriptor, bytes(min(1 << 20, LOG_BYTES - end)), end)
        finally:
            os.close(descriptor)


class Takeback(Arm):
    """This library, through its public names."""

    name = "Takeback"

    def open(self) -> None:
        self._store = takeback.open(self.path)

    def close(self) -> None:
        self._store.close()

    def use(self, session: str) -> None:
        self._session = self._store.find_session(session) or self._store.create_session(session)

    def append(self, prepared: Sequence[Any]) -> list[float]:
        append, times = self._session.append, []
        for message in prepared:
            started = perf_counter()
            append(message)
            times.append(perf_counter() - started)
        return times

    def fill(self, prepared: Sequence[Any]) -> None:
        for start in range(0, len(prepared), _BATCH):
            self._session.append(*prepared[start : start + _BATCH])

    def read(self, last: int | None) -> tuple[float, int]:
        started = perf_counter()
        found = self._session.messages(limit=last)
        return perf_counter() - started, len(found)


class TakebackDecoded(Takeback):
    """The same, with every message looked at: Takeback decodes a message when it is first touched."""

    name = "Takeback, role and content of each"

    def read(self, last: int | None) -> tuple[float, int]:
        started = perf_counter()
        found = [(message.role, message.content) for message in self._session.messages(limit=last)]
        return perf_counter() - started, len(found)


def connect(path: Path) -> apsw.Connection:
    """Open the limit's database as durable as Takeback's: write-ahead log, full sync."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(30_000)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    connection.execute("CREATE TABLE IF NOT EXISTS message (key INTEGER PRIMARY KEY, body BLOB NOT NULL)")
    return connection
