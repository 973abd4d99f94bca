"""SQLite in memory: the same engine without files, so that it cannot behave differently."""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import apsw

from ..clock import Clock, SystemClock
from . import beside
from .base import Capabilities, Op, Shape, scalar
from .commit import Ticket
from .connection import SqliteTx, connect, translated
from .engine import Engine

T = TypeVar("T")


class MemoryBackend(Engine):
    """A store in memory, on one connection; closing it erases it."""

    suspect = False
    _beside: beside.SideFile | None = None

    def __init__(self, *, clock: Clock | None = None) -> None:
        with translated():
            connection = connect(":memory:", flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        super().__init__(connection)
        self.capabilities = Capabilities(
            name="memory", persistent=False, many_processes=False, durability="none", journal="memory"
        )
        self._exclusive = threading.Lock()
        self._migrate(clock or SystemClock())

    def read(self, op: Op[T]) -> T:
        """Run an operation that only reads."""
        self._check_open()
        with self._exclusive:
            tx = SqliteTx(self._cursor)
            tx.run("BEGIN")
            try:
                return op(tx)
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def _transact(self, batch: list[Ticket[Any]]) -> None:
        with self._exclusive:
            self._run_batch(batch)

    def beside(self, shape: Shape) -> beside.SideFile:
        """Return derived tables in a temporary place."""
        if self._beside is None:
            self._beside = beside.SideFile(self, "", shape, temporary=True)
        return self._beside

    def size_bytes(self) -> int:
        """Return the bytes of all pages in memory."""
        sql = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
        return int(self.read(lambda tx: scalar(tx, sql)))

    def close(self) -> None:
        """Erase everything; calling it again does nothing."""
        if not self._closed:
            self._closed = True
            if self._beside is not None:
                self._beside.close()
            self._group.close()
            with self._exclusive:
                self._connection.close()
