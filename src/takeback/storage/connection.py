"""One SQLite connection through apsw: settings, transactions, and the translation of its errors.

apsw bundles a current SQLite; the one linked into Python is often old enough to have the
WAL-reset corruption bug. Every apsw exception that could reach a caller is translated here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import apsw

from ..errors import (
    BackendError,
    Busy,
    Closed,
    Corrupt,
    Error,
    Invalid,
    StorageFull,
    Unsupported,
)
from .base import NEXT, Dialect, Row, Value, scalar

_KEPT = 256  # rows of sessions
_MERGE_AT = 1000  # pages in the log, SQLite's own default
_DAMAGE = frozenset(
    {
        apsw.SQLITE_IOERR_SHORT_READ,
        apsw.SQLITE_IOERR_CORRUPTFS,
        apsw.SQLITE_IOERR_DATA,
    }
)


def translate(error: Exception) -> Error:
    """Translate a driver's exception into one of ours."""
    match error:
        case apsw.FullError():
            return StorageFull()
        case apsw.BusyError() | apsw.LockedError():
            return Busy("another program keeps the store locked; try again")
        case apsw.NotADBError():
            what = "this file is not a store, or its header is damaged"
            return Corrupt(f"{what}: {error}. Choose another file, or restore a backup", what="file")
        case apsw.CorruptError():
            return Corrupt(f"the store file is damaged: {error}. Restore a backup or salvage a copy", what="file")
        case apsw.ReadOnlyError():
            return Unsupported("the store's files are read-only; check their permissions", capability="write")
        case apsw.TooBigError():
            return Invalid("one value is larger than 1 GB; store it as an attachment")
        case apsw.ConnectionClosedError():
            return Closed()
        case apsw.IOError():
            return _translate_io(error)
        case UnicodeDecodeError():
            return Corrupt(f"the store file is damaged: some text is not UTF-8 ({error.reason})", what="file")
        case UnicodeEncodeError() | OverflowError():
            return Invalid(f"a value cannot be stored: {error}")
    return BackendError(f"SQLite failed: {error}")


def _translate_io(error: apsw.IOError) -> Error:
    code = getattr(error, "extendedresult", 0)
    if code in _DAMAGE:
        return Corrupt(f"the store file is damaged: {error}. Restore a backup or salvage a copy", what="file")
    if code in (apsw.SQLITE_IOERR_SHMSIZE, apsw.SQLITE_IOERR_SHMMAP):
        return StorageFull()
    return BackendError(f"the disk failed: {error}. Check it, then open the store again")


@contextmanager
def translated() -> Iterator[None]:
    """Translate the errors of driver calls made outside a transaction."""
    try:
        yield
    except (apsw.Error, UnicodeError, OverflowError) as error:
        raise translate(error) from error


SQLITE = Dialect("sqlite", gapless=True)


class KeptRows:
    """The rows that appends wrote last, which need no reading as long as nobody else has written.

    ``data_version`` changes with every commit, so it is compared with its value after our last one; ``total_changes``
    counts the rows that this connection changed. Only appends keep their rows here, so any other operation, whatever
    it wrote, empties this.
    """

    __slots__ = ("_changes", "_connection", "_seen", "_version", "position", "ranks", "sessions")

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._changes = connection.total_changes
        self._seen, self._version = -1, -1
        self.sessions: dict[tuple[str, str], Any] = {}
        self.ranks: dict[str, int] = {}
        self.position: int | None = None

    def begin(self) -> None:
        """Compare with what others have committed; called once this transaction is the only one that writes."""
        if self._connection.data_version("main") != self._version:
            self.clear()

    def committed(self) -> None:
        """Remember our own commit."""
        self._version = self._connection.data_version("main")

    def now(self) -> KeptRows:
        """Return what still holds."""
        if self._seen != self._changes():
            self.clear()
            self._seen = self._changes()
        return self

    def keep(self, scope: str, session_id: str, row: Any, rank: int, position: int) -> None:
        """Keep what an append has just written."""
        if len(self.sessions) >= _KEPT:
            self.clear()
        self.sessions[scope, session_id] = row
        self.ranks[scope], self.position = rank, position
        self._seen = self._changes()

    def clear(self) -> None:
        """Forget everything."""
        self.sessions.clear()
        self.ranks.clear()
        self.position = None


class SqliteTx:
    """A transaction on one connection. All rows are always fetched: a half-read statement keeps its
    snapshot, and apsw runs a text of several statements only as far as rows are fetched."""

    __slots__ = ("_execute", "_known", "position")
    dialect = SQLITE
    quick = None

    def __init__(self, cursor: apsw.Cursor, known: KeptRows | None = None) -> None:
        self._execute = cursor.execute
        self._known = known
        self.position = 0

    def run(self, sql: str, args: Sequence[Value] = ()) -> None:
        """Execute a statement that returns no rows."""
        try:
            self._execute(sql, args)
        except (apsw.Error, UnicodeError, OverflowError) as error:
            raise translate(error) from error

    def lock(self, what: str) -> None:
        """Do nothing: there is only one writer at a time."""

    def take_time(self, seconds: float) -> None:
        """Do nothing: a transaction takes as long as it takes."""

    def keyed(self) -> None:
        """Do nothing: the outcome of a commit is never unknown here."""

    def next(self, table: str) -> int:
        """Return the next local number of a table: there is one writer at a time, so the highest number decides."""
        return int(self.all(NEXT[table])[0][0])

    def next_many(self, table: str, count: int) -> Sequence[int]:
        """Return the next local numbers of a table."""
        first = self.next(table)
        return range(first, first + count)

    def reached(self, position: int) -> None:
        """Remember the newest change of this transaction."""
        self.position = position

    def newest(self) -> int | None:
        """Return the newest change of this transaction, or of the last append if nothing was written since."""
        return self.position or (None if self._known is None else self._known.now().position)

    def keep(self, scope: str, session_id: str, row: Any, rank: int) -> None:
        """Keep what was written, unless this transaction only reads."""
        if self._known is not None:
            self._known.keep(scope, session_id, row, rank, self.position)

    def kept(self, scope: str, session_id: str) -> Any:
        """Return the row of a session if nothing was written since it was kept."""
        return None if self._known is None else self._known.now().sessions.get((scope, session_id))

    def kept_rank(self, scope: str) -> int | None:
        """Return the highest rank of a scope if nothing was written since it was kept."""
        return None if self._known is None else self._known.now().ranks.get(scope)

    def one(self, sql: str, args: Sequence[Value] = ()) -> Row | None:
        """Return the first row, or None."""
        rows = self.all(sql, args)
        return rows[0] if rows else None

    def all(self, sql: str, args: Sequence[Value] = ()) -> list[Row]:
        """Return all rows."""
        try:
            return self._execute(sql, args).fetchall()
        except (apsw.Error, UnicodeError, OverflowError) as error:
            raise translate(error) from error


def close_quietly(connection: apsw.Connection) -> None:
    """Close a connection; a disk that fails now loses nothing that was acknowledged."""
    try:
        connection.close()
    except apsw.Error as error:
        from . import notices

        notices.warn("the disk failed while the store was being closed: %s", error)
        with suppress(apsw.Error):  # at exit, a thread may still be using it
            connection.close(True)


def merging(merged: Callable[[], None]) -> Callable[[apsw.Connection, str, int], int]:
    """Return a hook that merges a long log into the database file, as SQLite does by itself, and then calls back."""

    def hook(connection: apsw.Connection, name: str, pages: int) -> int:
        if pages >= _MERGE_AT:
            with suppress(apsw.Error):  # the commit that led here is done; the next one tries again
                connection.wal_checkpoint(name, mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            merged()
        return apsw.SQLITE_OK

    return hook


def connect(
    path: str, *, vfs: str | None = None, flags: int | None = None, lock_timeout: float = 0.0
) -> apsw.Connection:
    """Open a connection that trusts nothing in the file, and waits for locks as long as it is told."""
    flags = apsw.SQLITE_OPEN_READWRITE if flags is None else flags
    connection = apsw.Connection(path, flags=flags, vfs=vfs)
    connection.set_busy_timeout(min(int(lock_timeout * 1000), 0x7FFFFFFF))
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)  # a crafted schema must not call functions
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0)
    # Plans must not depend on bound values: else SQLite prepares a statement anew at each call if a partial index might
    # fit its values. For most statements that join sessions, that took far longer than running them.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.pragma("cell_size_check", True)
    connection.pragma("secure_delete", True)  # purged content must not survive in free pages
    connection.pragma("foreign_keys", True)
    connection.pragma("temp_store", 2)  # in memory: temporary files would hold content outside the store
    return connection


def schema_version(tx: SqliteTx) -> int:
    """Return the schema version, 0 for an empty file; another program's file raises ``Invalid``."""
    if tx.one("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'migration'"):
        version = scalar(tx, "SELECT max(version) FROM migration")
        if version is None:
            raise Corrupt("the store has lost its schema record; restore a backup", what="migration")
        return int(version)
    if tx.one("SELECT 1 FROM sqlite_schema LIMIT 1"):
        raise Invalid("this is a SQLite database, but not a Takeback store; choose another path")
    if scalar(tx, "PRAGMA page_count") > 1:
        raise Corrupt("the store's table of contents is empty, but its pages are not; restore a backup", what="file")
    return 0
