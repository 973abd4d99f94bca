"""SQLite for reading: opening a store's file with all checks, and reading from it.

This is all that reading needs, so a command that only reads imports nothing more; ``sqlite`` adds writing. The
invariant is the same for both: whoever opens a store that nobody has open checks it first, and a store that lacks
acknowledged changes is refused.
"""

from __future__ import annotations

import os
import weakref
from typing import Any, Self, TypeVar

import apsw

from ..errors import Busy, Closed, Corrupt, Invalid, NotFound, StorageFull, Unsupported
from ..tables import store
from ..tables.table import Table
from . import beside, files, guard, migrate
from .base import LOCK_TIMEOUT, Capabilities, Op, Shape, Value, scalar, scalars
from .connection import SqliteTx, close_quietly, connect, schema_version, translated

T = TypeVar("T")

_LARGE = ("entry", "link")  # tables that opening leaves to ``verify``
_SMALL = 64 << 20  # bytes: in a store up to this size, opening checks these too


class SqliteReader:
    """A store in a file, opened for reading."""

    capabilities: Capabilities
    _read_only = True
    _must_not_write = False  # even what is derived from the store
    _durability = "full"
    _connection: apsw.Connection
    _cursor: apsw.Cursor
    _closed: bool
    _process: int
    _turnstile: files.FileLock
    suspect = False
    _beside: beside.SideFile | None = None

    def __init__(self, path: str, *, vfs: str | None = None, lock_timeout: float = LOCK_TIMEOUT) -> None:
        self.path = _real_path(path)
        self._vfs = vfs
        self._lock_timeout = lock_timeout
        self._connections: list[apsw.Connection] = []  # the one that opened the store
        self._readers: list[apsw.Cursor] = []
        self._descriptors: list[int] = []  # that of the log, once it is open
        self._guarded: list[tuple[int, int]] = []
        self._held_beside: list[beside.OpenTables] = []
        self._check_place()
        try:
            self._presence = files.Presence(self.path + "-open")
            self._turnstile = self._lock_file(self.path + "-lock")
        except OSError as error:
            raise files.translate(error, self.path) from error
        connections = self._readers, self._connections, self._held_beside
        self._locks = [self._turnstile, self._presence]
        self._cleanup = weakref.finalize(
            self, _release, self.path, connections, self._presence, self._locks, self._descriptors, self._guarded
        )
        self._mark = files.Mark(self._turnstile.descriptor)
        self._ballast = files.Ballast(self.path + "-ballast")
        try:
            self._open()
        except Busy as error:
            self._cleanup()
            raise self._explained(error) from error.__cause__
        except OSError as error:
            self._cleanup()
            raise files.translate(error, self.path) from error
        except BaseException:
            self._cleanup()
            raise
        guard.watch(self)

    # ------------------------------------------------------------------ opening

    def _check_place(self) -> None:
        if files.has_other_names(self.path):
            raise Invalid(f"{self.path!r} has several names (hard links), and each would get its own log; keep one")
        if os.path.isdir(self.path):
            raise Invalid(f"{self.path!r} is a directory; name a file in it, such as 'takeback.db'")
        if self._read_only and not os.path.exists(self.path):
            raise NotFound(f"there is no store at {self.path!r}; open it for writing to create one")
        try:
            files.prepare_directory(self.path)
        except OSError as error:
            raise files.translate(error, self.path) from error

    def _lock_file(self, path: str) -> files.FileLock:
        """Open the file of the lock for writing; whoever only reads needs what else is in it."""
        return files.FileLock(path)

    def _open(self) -> None:
        guard.refuse_inherited(self.path)
        alone = self._presence.join(self._lock_timeout)
        if alone:
            self.suspect = not self._presence.recorded(self.path)
            self._check_file()
            self._check_log()
        try:
            if (created := files.create_private(self.path)) is not None:
                os.close(created)
            self._connections.append(self._connect_or_make_room())
        except OSError as error:
            raise files.translate(error, self.path) from error
        self._hold(self._connections[0])
        self._set_up(alone)
        if alone:
            self._presence.record(self.path)
            self._presence.admit(self._lock_timeout)

    def _hold(self, connection: apsw.Connection) -> None:
        """Keep the connection that opened the store."""
        self._connection, self._cursor = connection, connection.cursor()
        self._process, self._closed = guard.process_generation(), False

    def _check_file(self) -> None:
        """Refuse to create a store where one was: SQLite would delete its log."""
        if os.path.exists(self.path) and os.path.getsize(self.path) > 0:
            return
        log = self.path + "-wal"
        if self._mark.noted()[1] or (os.path.exists(log) and os.path.getsize(log) > 0):
            raise self._gone()

    def _gone(self) -> Corrupt:
        return Corrupt(
            f"{self.path} is empty or missing, but its side files show that a store was here. Restore a backup;"
            f" to start over, delete {self.path}-lock and {self.path}-wal",
            what="file",
        )

    def _check_log(self) -> None:
        """Refuse a log from which SQLite would silently drop acknowledged commits.

        A high-water mark, if there is one, is more precise and is compared later: commits are synced after the
        lock is released, so a power cut may leave several unacknowledged ones, in any state.
        """
        if self._mark.noted()[1] or self._mark.relaxed:
            return
        from . import wal

        state = wal.inspect(self.path + "-wal")
        if state.lost_commits:
            raise Corrupt(
                f"{self.path}-wal is damaged ({state.what}), with {state.lost_commits} commits behind the damage."
                " Nothing was changed; takeback.salvage(path, to) recovers them into a copy",
                what="log",
            )

    def _connect_or_make_room(self) -> apsw.Connection:
        try:
            return self._connect()
        except StorageFull:
            if not self._ballast.release():
                raise
            return self._connect()

    def _connect(self) -> apsw.Connection:
        with translated():
            connection = connect(self.path, vfs=self._vfs, lock_timeout=self._lock_timeout)
            try:
                # Until the mark has been compared, closing must not merge the log into the file.
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                connection.pragma("query_only", self._read_only)
                connection.pragma("schema_version")  # reads the file and its log, so that errors surface here
            except BaseException:
                close_quietly(connection)
                raise
            return connection

    def _set_up(self, alone: bool) -> None:
        tx = SqliteTx(self._cursor)
        version = schema_version(tx)
        migrate.pending(version, migrate.load())  # raises for a newer store, before anything is changed
        if version == 0 and self._mark.noted()[1]:
            raise self._gone()
        journal = self._set_journal()
        with translated():
            # With WAL we sync the log ourselves before a write returns, so SQLite syncs only around checkpoints.
            self._connection.pragma("synchronous", "extra" if journal == "delete" else "normal")
        self._bring_up_to_date()
        self._compare_mark()
        if self.suspect:
            self._check_indexes()
            self._check_found_by()
        self._found_sound(alone)
        self._guarded.extend(guard.protect(self.path, self.path + "-shm"))
        self.capabilities = Capabilities(
            name="sqlite",
            persistent=True,
            many_processes=True,
            durability=self._durability,
            journal=journal,
            read_only=self._read_only,
            file=os.path.realpath(self.path),
        )

    def _set_journal(self) -> str:
        """Return the journal mode in use; only a writer chooses one."""
        with translated():
            return str(self._connection.pragma("journal_mode"))

    def _bring_up_to_date(self) -> None:
        """Refuse an older schema: reading must not change anything."""
        version = schema_version(SqliteTx(self._cursor))
        if version == 0 and os.path.getsize(self.path) == 0:
            raise Unsupported(
                f"{self.path!r} is an empty file and holds no store yet; open it for writing to start one",
                capability="migrate",
            )
        if migrate.pending(version, migrate.load()):
            raise Unsupported(
                f"this store has the older schema {version}; open it once for writing to update it",
                capability="migrate",
            )

    def _compare_mark(self) -> None:
        """Refuse a store that lacks acknowledged changes."""
        tx = SqliteTx(self._cursor)
        stored = tx.one(f"{store.META.select} WHERE name = 'store'")
        if stored is None or not store.META.is_sound(stored):
            raise Corrupt("the store has lost its identity record; restore a backup", what="meta")
        self._mark.bind(store.META.checked(stored).value)
        acknowledged, found = self._mark.read(), _position(tx)
        if found < acknowledged:
            raise Corrupt(
                f"{self.path} ends at change {found}, but {acknowledged} changes were acknowledged. Nothing was"
                f" changed. If you put an older copy here on purpose, delete {self.path}-lock; else restore a backup",
                what="log",
            )

    def _check_indexes(self) -> None:
        """Rebuild the indexes of a table if one is damaged: they only repeat what the rows hold.

        A row that an index has lost would silently be missing from lists and lookups. If the row itself is damaged, the
        index is left alone: it still leads to the row, whose check then fails. Rows that an index has and the table has
        not are lost: rebuilding the index from what is left would hide that.

        This reads whole tables, so it is skipped if nobody but the store's own processes has changed the file
        (``verify`` never skips it). In a large store the tables of entries are left to ``verify``.
        """
        from ..tables import schema

        large = os.path.getsize(self.path) > _SMALL
        for table in schema.TABLES:
            if not table.indexes or (large and table.name in _LARGE):
                continue
            try:
                self._check_index_of(table)
            except Corrupt as error:
                # Unreadable pages of entries raise later, when they are read, and repair copies all others.
                if table.name not in _LARGE or error.what == table.name:
                    raise

    def _check_index_of(self, table: Table[tuple[object, ...]]) -> None:
        name = table.name
        if not self._complaints(name):
            return
        if not self._rows_are_there(name, table.number or ", ".join(table.key)):
            raise Corrupt(f"records of {name} are missing or displaced; restore a backup", what=name)
        if not all(map(table.is_sound, SqliteTx(self._cursor).all(f"{table.select} NOT INDEXED"))):
            return
        if self._read_only:
            raise Corrupt(f"an index of {name} is damaged; open the store once for writing to rebuild it", what=name)
        from . import notices

        notices.warn("%s: an index of %s was damaged and is rebuilt from its rows", self.path, name)
        with translated():
            self._connection.execute(f"REINDEX {name}")

    def _check_found_by(self) -> None:
        """Rebuild the rows that find sessions by tag or metadata if damaged: like an index, they repeat other rows."""
        from ..tables import metadata
        from ..tables.sessions import DETAIL, METADATA, SESSION, TAG

        tx, tags, pairs = SqliteTx(self._cursor), set[tuple[Value, ...]](), set[tuple[Value, ...]]()
        for stored in SESSION.walk(tx):
            if not SESSION.is_sound(stored):
                return
            session = SESSION.checked(stored)
            tags.update(TAG.seal(row) for row in session.tag_rows)
            try:
                details = DETAIL.get(tx, session.scope, session.sid)
                found = metadata.rows_of(session, details.doc if details else b"")
            except Corrupt:
                return  # nobody knows what the rows should be; verify reports it
            pairs.update(map(METADATA.seal, found))
        self._rebuild(TAG, tags, "tags")
        self._rebuild(METADATA, pairs, "metadata pairs")

    def _rebuild(self, table: Table[Any], wanted: set[tuple[Value, ...]], what: str) -> None:
        try:
            if set(table.walk(SqliteTx(self._cursor))) == wanted:
                return
        except Corrupt:
            pass
        if self._read_only:
            raise Corrupt(
                f"the {what} of sessions are damaged; open the store once for writing to rebuild them, or use a backup",
                what=table.name,
            )
        from . import notices

        notices.warn("%s: the %s of sessions were damaged and are rebuilt from their rows", self.path, what)
        with translated(), self._connection:
            self._connection.execute(f"DELETE FROM {table.name}")
            self._connection.executemany(table.insert, sorted(wanted))

    def _rows_are_there(self, table: str, key: str) -> bool:
        """Whether the table has every row that its indexes have."""
        tx = SqliteTx(self._cursor)
        # Selecting the check, which no index holds, makes SQLite read the table even where it prefers an index.
        there = {tuple(found) for *found, _ in tx.all(f"SELECT {key}, chk FROM {table} NOT INDEXED")}
        for name, sql in tx.all("SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND tbl_name = ?", (table,)):
            condition = (sql or "").partition(" WHERE ")[2]
            known = f"SELECT {key} FROM {table} INDEXED BY {name}" + (f" WHERE {condition}" if condition else "")
            if sql and not there.issuperset(tx.all(known)):
                return False
        return True

    def _complaints(self, table: str) -> list[str]:
        said = scalars(SqliteTx(self._cursor), f"PRAGMA integrity_check({table})")
        return [str(each) for each in said if each != "ok"]

    def _found_sound(self, alone: bool) -> None:
        """Finish opening after all checks: nobody writes through this connection, so it becomes the first reader."""
        self._readers.append(self._cursor)

    # ------------------------------------------------------------------ reading

    def scoped(self, scope: str | None) -> Self:
        """Return the same backend: scopes share everything here, and statements name theirs."""
        return self

    def read(self, op: Op[T]) -> T:
        """Run an operation that only reads, on a connection of its own."""
        self._check_open()
        reader = self._take_reader()
        tx = SqliteTx(reader)
        try:
            tx.run("BEGIN")
            return op(tx)
        except Busy as error:
            raise self._explained(error) from error.__cause__
        finally:
            self._give_back(reader)

    def _explained(self, error: Busy) -> Busy:
        """Return an error with the process that keeps SQLite's own locks, if that is what it is about."""
        if not isinstance(error.__cause__, apsw.BusyError | apsw.LockedError):
            return error
        from . import holders

        return holders.busy(f"using {self.path!r}", self._lock_timeout, self.path + "-shm", self.path, shared=False)

    def _take_reader(self) -> apsw.Cursor:
        try:
            return self._readers.pop()
        except IndexError:
            with translated():
                connection = connect(self.path, vfs=self._vfs, lock_timeout=self._lock_timeout)
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                connection.pragma("query_only", True)
                return connection.cursor()

    def _give_back(self, reader: apsw.Cursor) -> None:
        if reader.connection.in_transaction:
            reader.execute("ROLLBACK")
        if self._closed:
            close_quietly(reader.connection)
        else:
            self._readers.append(reader)

    def _check_open(self) -> None:
        if self._closed or guard.process_generation() != self._process:
            raise Closed()

    def beside(self, shape: Shape) -> beside.SideFile:
        """Return the file of derived tables; a store that must not be written has temporary ones."""
        if self._beside is None:
            path, temporary = self.path + beside.SUFFIX, self._must_not_write
            self._held_beside.append(held := beside.OpenTables())
            how: dict[str, Any] = {"temporary": temporary, "lock_timeout": self._lock_timeout, "held": held}
            self._beside = beside.SideFile(self, path, shape, **how)
        return self._beside

    # ------------------------------------------------------------------ size and end

    def size_bytes(self) -> int:
        """Return the bytes of all files of the store: database, log, its index, locks, ballast and search index."""
        total = 0
        for suffix in (
            "",
            "-wal",
            "-shm",
            "-lock",
            "-open",
            "-ballast",
            *(beside.SUFFIX + side for side in beside.SIDES),
        ):
            try:
                total += os.stat(self.path + suffix).st_size
            except FileNotFoundError:
                continue
        return total

    def close(self) -> None:
        """Release every lock and connection; calling it again does nothing."""
        if self._cleanup.alive and guard.process_generation() == self._process:
            self._closed = True
            self._cleanup()
        self._closed = True

    def abandon(self) -> None:
        """Leak the connections in a forked child, because closing them could delete the parent's log."""
        for connection in (*self._connections, *(reader.connection for reader in self._readers)):
            guard.leak(connection)
        for held in self._held_beside:
            held.abandon()
        for each in (self._connections, self._readers, self._guarded, self._held_beside):
            each.clear()
        self._presence.merges = False
        self._cleanup()


def _real_path(path: str) -> str:
    """Resolve links as SQLite does, so that the side files are the same under every name."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError) as error:
        raise Invalid(f"{path!r} is not a valid path: {error}") from error


def _release(
    path: str,
    connections: tuple[list[apsw.Cursor], list[apsw.Connection], list[beside.OpenTables]],
    presence: files.Presence,
    locks: list[files.FileLock],
    descriptors: list[int],
    guarded: list[tuple[int, int]],
) -> None:
    """Close what a backend holds, even if it was dropped without being closed."""
    readers, opened, held = connections
    while held:
        held.pop().release()
    while readers:  # a reader in use is closed when it is given back
        close_quietly(readers.pop().connection)
    while opened:  # last, because closing the last connection merges the log into the file
        close_quietly(opened.pop())
    if presence.merges:
        presence.record(path)
    guard.release(guarded)
    guarded.clear()
    while descriptors:
        os.close(descriptors.pop())
    while locks:
        locks.pop().close()


def _position(tx: SqliteTx) -> int:
    return int(scalar(tx, "SELECT max(pos) FROM feed") or 0)
