"""What both SQLite backends share: a writer connection, group commit, batches, migrations.

An operation that fails in a batch fails alone; a failed transaction leaves nothing open.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Self, TypeVar

import apsw

from ..clock import Clock
from ..errors import Closed, Error
from ..tables import store
from . import copy, guard, migrate, notices
from .base import Capabilities, Op, Polling, Tx, Waiting, scalar, scalars
from .commit import GroupCommit, Ticket
from .connection import KeptRows, SqliteTx, schema_version, translate

T = TypeVar("T")

APPLICATION_ID = 0x54414B45  # "TAKE"


class Spoiled(Error):
    """An operation in a batch failed after it had written; the batch was rolled back."""


class Engine(ABC):
    """What both SQLite backends share: a writer connection, group commit, batches."""

    capabilities: Capabilities
    suspect: bool

    def __init__(self, connection: apsw.Connection, sync: Callable[[], None] | None = None) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._kept = KeptRows(connection)
        self._group = GroupCommit(self._transact, sync)
        self._process = guard.process_generation()
        self._closed = False

    def scoped(self, scope: str | None) -> Self:
        """Return the same backend: scopes share everything here, and statements name theirs."""
        return self

    def listen(self) -> Waiting:
        """Poll: nothing notifies us of changes to a file."""
        return Polling()

    def write(self, op: Op[T], *, frees_space: bool = False, alone: bool = False) -> T:
        """Run an operation and return when it is durable; there is one write at a time, so each runs alone."""
        self._check_open()
        return self._group.write(op, frees_space=frees_space)

    def check(self) -> list[str]:
        """Run SQLite's own integrity check, and count what partial indexes hold, which it leaves out."""
        said = self.read(lambda tx: [*scalars(tx, "PRAGMA integrity_check(20)"), *_miscounted(tx)])
        return [str(each) for each in said if each != "ok"]

    def copy_to(self, path: str) -> list[str]:
        """Copy every readable row to a new file; return descriptions of what cannot be read."""
        return self.read(lambda tx: copy.copy_rows(tx, path, application_id=APPLICATION_ID))

    @abstractmethod
    def read(self, op: Op[T]) -> T:
        """Run an operation that only reads."""

    @abstractmethod
    def _transact(self, batch: list[Ticket[Any]]) -> None:
        """Commit a batch or raise."""

    def _check_open(self) -> None:
        if self._closed or guard.process_generation() != self._process:
            raise Closed()

    def _run_batch(self, batch: list[Ticket[Any]], before_commit: Callable[[], None] | None = None) -> int:
        """Run a batch in one transaction and return the feed position that it reached.

        An operation that fails before writing anything is left out of the batch; one that fails later fails the
        batch, whose operations then run one by one. Savepoints would cost every operation two statements.
        """
        if self._connection.in_transaction:
            self._roll_back()  # an interrupt struck between a failure and its rollback
        tx = SqliteTx(self._cursor, self._kept)
        try:
            self._cursor.execute("BEGIN IMMEDIATE")
            self._kept.begin()
            if len(batch) == 1:
                batch[0].value = batch[0].op(tx)
            else:
                for ticket in batch:
                    self._run_one_of_many(tx, ticket)
            if before_commit is not None:
                before_commit()
            self._cursor.execute("COMMIT")
            self._kept.committed()
            return tx.position
        except apsw.Error as error:
            self._roll_back()
            raise translate(error) from error
        except BaseException:
            self._roll_back()
            raise

    def _run_one_of_many(self, tx: SqliteTx, ticket: Ticket[Any]) -> None:
        changes = self._connection.total_changes()
        try:
            ticket.value = ticket.op(tx)
        except Exception as error:
            if not self._connection.in_transaction or self._connection.total_changes() != changes:
                raise Spoiled from error  # nothing was committed, so the operations can run again one by one
            ticket.error = error

    def _roll_back(self) -> None:
        """Roll back a failed transaction; if the disk fails here too, there is nothing left to undo."""
        self._kept.clear()
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except apsw.Error as error:
            notices.warn("rolling back failed: %s", error)

    def _migrate(self, clock: Clock) -> None:
        """Create a store at the newest version, or bring an older one up to date, one transaction per step."""
        migrations = migrate.load()
        if schema_version(SqliteTx(self._cursor)) == 0:
            self._in_transaction(lambda tx: self._create(tx, migrations, clock.now_ms()))
        for step in migrate.pending(schema_version(SqliteTx(self._cursor)), migrations):
            self._in_transaction(partial(self._step, step, clock.now_ms()))

    def _in_transaction(self, step: Callable[[SqliteTx], None]) -> None:
        tx = SqliteTx(self._cursor)
        tx.run("BEGIN IMMEDIATE")
        try:
            step(tx)
            tx.run("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    def _create(self, tx: SqliteTx, migrations: list[migrate.Migration], now_ms: int) -> None:
        if schema_version(tx) > 0:
            return  # another process created it first
        from ..tables import schema

        tx.all(schema.sqlite())
        for row in migrate.rows(migrations, now_ms):
            store.MIGRATION.put(tx, row)
        store.META.put(tx, store.MetaRow("store", uuid.uuid4().bytes))
        tx.all(f"PRAGMA application_id = {APPLICATION_ID}")

    def _step(self, step: migrate.Migration, now_ms: int, tx: SqliteTx) -> None:
        if schema_version(tx) < step.version:  # unless another process did it first
            tx.all(step.sql)
            store.MIGRATION.put(tx, store.MigrationRow(step.version, step.name, now_ms))


def _miscounted(tx: Tx) -> Iterator[str]:
    """Describe the partial indexes that hold more or fewer entries than their tables have rows for them.

    One that holds more may have got a page of another tree, whose rows are then missing there.
    """
    for name, table, sql in tx.all("SELECT name, tbl_name, sql FROM sqlite_schema WHERE type = 'index'"):
        _, partial, condition = (sql or "").partition(" WHERE ")
        if partial:
            cells = scalar(tx, "SELECT sum(ncell) FROM dbstat WHERE name = ? AND aggregate = TRUE", (name,))
            if cells != scalar(tx, f"SELECT count(*) FROM {table} NOT INDEXED WHERE {condition}"):
                yield f"wrong number of entries in index {name}"
