"""A SQLite file beside a store, for what is derived from it and can be derived again: the search index.

It has its own connection, log and locks, so nothing that happens here can hold up a write of the store, and damage
here harms nothing but itself: it raises ``Derived``, and ``clear`` begins a new file. A file that somebody deleted or
replaced is noticed at the next call. Where the store must not be written, or is in memory, or something else lies in
the file's place, the tables are in memory or in a nameless temporary file, filled from what a file beside the store
already has.

The invariant: an operation sees the tables as one transaction, a reading one changes nothing, and what is not provably
our file (``whose``) is never written or removed.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import apsw

from ..errors import Busy, Closed, Error, StorageFull
from . import files, guard, notices, whose
from .base import Derived, Readable, Row, Shape, Tx, Value
from .connection import SqliteTx, close_quietly, connect, translate
from .whose import Whose

T = TypeVar("T")
SUFFIX = "-search"
SIDES = ("", "-wal", "-shm")
_CACHE_KIB = 16_384
_SHORT_MS = 100  # for readers that keep a log from being emptied
_UNREADABLE = frozenset(
    {apsw.SQLITE_IOERR_READ, apsw.SQLITE_IOERR_SHORT_READ, apsw.SQLITE_IOERR_CORRUPTFS, apsw.SQLITE_IOERR_DATA}
)
_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE


class _Tx(SqliteTx):
    """A transaction in which every failure but one of the disk and of a lock means that the tables cannot be used."""

    __slots__ = ()

    def run(self, sql: str, args: Sequence[Value] = ()) -> None:
        """Execute a statement that returns no rows."""
        with _judged():
            self._execute(sql, args)

    def all(self, sql: str, args: Sequence[Value] = ()) -> list[Row]:
        """Return all rows."""
        with _judged():
            return self._execute(sql, args).fetchall()


@contextlib.contextmanager
def _judged() -> Any:
    try:
        yield
    except (apsw.Error, UnicodeError, OverflowError) as error:
        found = translate(error)
        if isinstance(found, Busy | StorageFull) or _is_refused(error):
            raise found from error
        raise Derived(str(error)) from error


def _is_refused(error: Exception) -> bool:
    """Whether the system refused to do something, as at a limit; what it cannot read any more is damaged."""
    return isinstance(error, apsw.IOError) and getattr(error, "extendedresult", 0) not in _UNREADABLE


class _NotOurs(Exception):
    """What lies in the place of the file is something else."""


class OpenTables:
    """The connection to the tables. The store releases it, even if it was dropped without being closed."""

    def __init__(self) -> None:
        self.connection: apsw.Connection | None = None
        self.guarded: list[tuple[int, int]] = []
        self.released = False  # with the store: no new connection may be opened then

    def release(self) -> None:
        """Close the connection for good; calling it again does nothing."""
        self.released = True
        self.close()

    def close(self) -> None:
        """Close the connection, to open another one."""
        connection, self.connection = self.connection, None
        guard.release(self.guarded)
        self.guarded = []
        if connection is not None:
            close_quietly(connection)

    def abandon(self) -> None:
        """Leak the connection in a forked child."""
        if self.connection is not None:
            guard.leak(self.connection)
        self.connection, self.guarded = None, []


class SideFile:
    """The tables beside one store; any thread may use them, one at a time."""

    def __init__(
        self,
        store: Readable,
        path: str,
        shape: Shape,
        *,
        temporary: bool,
        lock_timeout: float = 0.0,
        held: OpenTables | None = None,
    ) -> None:
        self.path = "" if temporary else path  # SQLite's name for a temporary file
        self.persistent = not temporary
        self.opened = 0
        self._store, self._shape, self._lock_timeout = store, shape, lock_timeout
        self._place = self._known = path  # where the file belongs, and where content may be taken from
        self._lock = threading.RLock()
        self._held = OpenTables() if held is None else held
        self._file: tuple[int, int] | None = None
        self._process = guard.process_generation()

    # ------------------------------------------------------------------ opening

    def _opened(self) -> apsw.Connection:
        """Return the connection; opened anew if the file is not there any more, or is another one."""
        if self._held.released or guard.process_generation() != self._process:
            raise Closed()
        if self._held.connection is not None and self.persistent and self._file != _identity(self.path):
            self._held.close()
        if self._held.connection is None:
            self._held.connection = self._open()
            self.opened += 1
        return self._held.connection

    def _open(self) -> apsw.Connection:
        if self.persistent:
            try:
                return self._open_file()
            except _NotOurs:
                self._leave_alone()
            except (OSError, apsw.CantOpenError, apsw.ReadOnlyError) as error:
                self._keep_here(error)
        connection = connect(self.path, flags=_FLAGS)
        try:
            self._fill(connection)
            self._set_up(connection)
        except BaseException:
            close_quietly(connection)
            raise
        return connection

    def _keep_here(self, error: Exception) -> None:
        notices.note("the search index cannot be kept beside the store; this process makes its own: %s", error)
        self.path, self.persistent = "", False

    def _leave_alone(self) -> None:
        notices.warn("%s. Until then each process that searches makes a temporary index", self.obstacle())
        self.path, self.persistent = "", False

    def _whose(self, path: str) -> Whose:
        return whose.of(path, self._shape.first)

    def _open_file(self) -> apsw.Connection:
        if self._whose(self.path) is Whose.SOMEBODYS:
            raise _NotOurs
        if (created := files.create_private(self.path)) is not None:
            os.close(created)
        with _judged():
            connection = connect(self.path, lock_timeout=self._lock_timeout)
            try:
                _sign(connection)
                connection.pragma("journal_mode", "wal")
                connection.pragma("synchronous", "normal")
                self._set_up(connection)
                self._file = _identity(self.path)
                self._held.guarded = guard.protect(self.path, self.path + "-shm")
            except (apsw.CantOpenError, apsw.ReadOnlyError):
                close_quietly(connection)
                raise
            except BaseException:
                close_quietly(connection)
                raise
        return connection

    def _set_up(self, connection: apsw.Connection) -> None:
        """Make the tables, unless they are there and of this version."""
        for name, function in self._shape.functions.items():
            connection.register_fts5_function(name, function)
        connection.pragma("cache_size", -_CACHE_KIB)
        if connection.pragma("user_version") == self._shape.version:
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            if connection.pragma("user_version") != self._shape.version:  # unless another process made them meanwhile
                _drop(connection)
                connection.execute(self._shape.sql).fetchall()
                connection.pragma("user_version", self._shape.version)
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise

    def _fill(self, connection: apsw.Connection) -> None:
        """Begin temporary tables with those that lie beside the store, if they can be read."""
        if not self._known or self._whose(self._known) is not Whose.OURS:
            return
        try:
            there = connect(self._known, flags=apsw.SQLITE_OPEN_READONLY, lock_timeout=1.0)
            with contextlib.closing(there), connection.backup("main", there, "main") as copying:
                copying.step()
            connection.pragma("journal_mode", "memory")
        except apsw.Error:
            connection.config(apsw.SQLITE_DBCONFIG_RESET_DATABASE, 1)
            connection.execute("VACUUM")
            connection.config(apsw.SQLITE_DBCONFIG_RESET_DATABASE, 0)

    # ------------------------------------------------------------------ transactions

    def read(self, op: Callable[[Tx, Tx], T]) -> T:
        """Run an operation that reads the store and what lies beside it."""
        return self._run("BEGIN", op)

    def write(self, op: Callable[[Tx, Tx], T]) -> T:
        """Run an operation that reads the store and writes beside it."""
        return self._run("BEGIN IMMEDIATE", op)

    def _run(self, begin: str, op: Callable[[Tx, Tx], T]) -> T:
        with self._lock:
            connection = self._opened()
            tx = _Tx(connection.cursor())
            tx.run(begin)
            try:
                value = self._store.read(lambda main: op(main, tx))
                tx.run("COMMIT")
                return value
            finally:
                if connection.in_transaction:
                    with contextlib.suppress(apsw.Error):
                        connection.execute("ROLLBACK")

    def shrink_log(self) -> bool:
        """Merge the log and empty it, so that nothing erased is left in it; return False if somebody is reading it."""
        with self._lock:
            connection = self._opened()
            connection.set_busy_timeout(_SHORT_MS)
            try:
                with _judged():
                    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                return True
            except Busy:
                return False
            finally:
                connection.set_busy_timeout(int(self._lock_timeout * 1000))

    # ------------------------------------------------------------------ the end

    def obstacle(self) -> str | None:
        """Return what lies in the place of the tables and is left alone; None if nothing does."""
        if not self._place or self._whose(self._place) is not Whose.SOMEBODYS:
            return None
        return f"{self._place} is not the search index of this store; rename it, or the store, to keep an index"

    def exists(self) -> bool:
        """Whether there is anything yet that could hold content."""
        if self._held.connection is not None:
            return True
        return self.persistent and os.path.exists(self.path) and self._whose(self.path) is not Whose.SOMEBODYS

    def clear(self) -> None:
        """Begin anew, with empty tables."""
        with self._lock:
            self._held.close()
            try:
                self._make_room()
            except OSError as error:
                self._keep_here(error)
            self._known = ""  # what lay there is no good
            self._opened()

    def _make_room(self) -> None:
        """Remove a file that is ours; one that may be anything keeps what it holds, under another name."""
        found = self._whose(self.path) if self.persistent else Whose.SOMEBODYS
        if found is Whose.UNKNOWN:
            aside = whose.set_aside(self.path, SIDES)
            notices.warn(
                "%s was no search index, or a damaged one: it is called %s now. Delete it if you do not need it; it"
                " may hold words of this store",
                self.path,
                aside,
            )
        elif found is not Whose.SOMEBODYS:
            for side in SIDES:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.path + side)

    def close(self) -> None:
        """Release the file; calling it again does nothing."""
        with self._lock:
            if guard.process_generation() == self._process:
                self._held.release()


def _sign(connection: apsw.Connection) -> None:
    """Make a file ours before anything else is written to it, and before it has a log: its header says so then."""
    if connection.pragma("page_count") == 0:
        connection.pragma("application_id", whose.APPLICATION_ID)
    elif connection.pragma("application_id") != whose.APPLICATION_ID:
        raise _NotOurs


def _drop(connection: apsw.Connection) -> None:
    """Drop the tables of another version; those of a virtual table go with it."""
    rows = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE 'CREATE VIRTUAL%'")
    virtual = [name for (name,) in rows.fetchall()]
    for name in virtual:
        connection.execute(f'DROP TABLE "{name}"')
    rows = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    for (name,) in rows.fetchall():
        connection.execute(f'DROP TABLE "{name}"')


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class SameStore:
    """The same contract where the tables are the store's own."""

    persistent = True
    opened = 1

    def __init__(self, read: Callable[..., Any], write: Callable[..., Any]) -> None:
        self._read, self._write = read, write

    def read(self, op: Callable[[Tx, Tx], T]) -> T:
        """Run an operation that reads."""
        found: T = self._read(lambda tx: op(tx, tx))
        return found

    def write(self, op: Callable[[Tx, Tx], T]) -> T:
        """Run an operation that writes to the derived tables."""
        found: T = self._write(lambda tx: op(tx, tx))
        return found

    def obstacle(self) -> str | None:
        """Return None: nothing else can lie in the place of a server's tables."""
        return None

    def exists(self) -> bool:
        """Whether there is anything yet that could hold content."""
        return True

    def shrink_log(self) -> bool:
        """Do nothing: the server keeps its log as it is set up to."""
        return True

    def clear(self) -> None:
        """Raise: only rows of a scope can be deleted here."""
        raise Error("the tables of a server are emptied by the operation that fills them")

    def close(self) -> None:
        """Do nothing."""
