"""One SQLite connection through apsw: settings, transactions, and the translation of its errors.

apsw bundles a current SQLite; the one linked into Python is often old enough to have the
WAL-reset corruption bug. Every apsw exception that could reach a caller is translated here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

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

BUSY_MS = 20_000
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
            return Busy(f"another program has kept the store locked for {BUSY_MS // 1000} s; try again")
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


class SqliteTx:
    """A transaction on one connection. All rows are always fetched: a half-read statement keeps its
    snapshot, and apsw runs a text of several statements only as far as rows are fetched."""

    __slots__ = ("_execute", "position")
    dialect = SQLITE
    quick = None

    def __init__(self, cursor: apsw.Cursor) -> None:
        self._execute = cursor.execute
        self.position = 0

    def run(self, sql: str, args: Sequence[Value] = ()) -> None:
        """Execute a statement that returns no rows."""
        try:
            self._execute(sql, args)
        except (apsw.Error, UnicodeError, OverflowError) as error:
            raise translate(error) from error

    def lock(self, what: str) -> None:
        """Do nothing: there is only one writer at a time."""

    def keyed(self) -> None:
        """Do nothing: the outcome of a commit is never unknown here."""

    def next(self, table: str) -> int:
        """Return the next local number of a table: there is one writer at a time, so the highest number decides."""
        return int(self.all(NEXT[table])[0][0])

    def reached(self, position: int) -> None:
        """Remember the newest change of this transaction."""
        self.position = position

    def newest(self) -> int | None:
        """Return the newest change of this transaction."""
        return self.position or None

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
        connection.close(True)


def connect(path: str, *, vfs: str | None = None, flags: int | None = None) -> apsw.Connection:
    """Open a connection that trusts nothing in the file, and waits for locks."""
    flags = apsw.SQLITE_OPEN_READWRITE if flags is None else flags
    connection = apsw.Connection(path, flags=flags, vfs=vfs)
    connection.set_busy_timeout(BUSY_MS)
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
