"""SQLite: one writer connection behind group commit, a pool of readers, WAL with full sync.

The write path of a file is: wait at the turnstile, BEGIN IMMEDIATE, run the batch, COMMIT, leave the
turnstile, sync the log, note the high-water mark. Syncing behind the turnstile lets the next writer work while
this one waits for the disk. The invariant: nothing returns from ``write`` before the log that holds it was
synced, except with ``durability="relaxed"``, which the caller chose by name.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import apsw

from ..clock import Clock, SystemClock
from ..errors import BackendError, Corrupt, Invalid, NotFound, StorageFull, Unsupported
from . import files, guard, migrate, wal
from .base import Capabilities, Op, row_check
from .commit import Ticket
from .connection import SqliteTx, close_quietly, connect, translate, translated
from .engine import Engine, schema_version

T = TypeVar("T")
log = logging.getLogger("holdfast")

_OPEN_TIMEOUT = 60.0
_WAL_BYTES = 32 + 1024 * (4096 + 24)
_EXTEND_AFTER = 4  # commits: a store that is opened for a glance never pays for it
_INDEXED = ("agent", "session", "branch", "call", "checkpoint", "agent_checkpoint", "operation", "blob")
_CHECK = 21  # where a session's first check stands
_DURABILITIES = ("full", "relaxed")
_fdatasync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


class SqliteBackend(Engine):
    """A store in a file, for any number of threads and processes of one machine."""

    def __init__(
        self,
        path: str,
        *,
        durability: str = "full",
        read_only: bool = False,
        clock: Clock | None = None,
        vfs: str | None = None,
        sync: Callable[[int], None] = _fdatasync,
    ) -> None:
        if durability not in _DURABILITIES:
            raise Invalid(f"durability is 'full' or 'relaxed', not {durability!r}")
        self.path = _real_path(path)
        self._vfs = vfs
        self._read_only = read_only
        self._durability = durability
        self._readers: list[apsw.Cursor] = []
        self._commits = 0
        self._position = 0
        self._sync_file = sync
        self._descriptors: list[int] = []  # the log's, once it is open
        self._guarded: list[tuple[int, int]] = []
        self._failed = False
        self._check_place()
        try:
            self._presence = files.FileLock(self.path + "-open")
            self._turnstile = files.FileLock(self.path + "-lock")
        except OSError as error:
            raise files.translate(error, self.path) from error
        self._locks = [self._turnstile, self._presence]
        self._cleanup = weakref.finalize(self, _release, self._locks, self._descriptors, self._guarded)
        self._mark = files.Mark(self._turnstile.descriptor)
        self._ballast = files.Ballast(self.path + "-ballast")
        try:
            self._open(clock or SystemClock())
        except OSError as error:
            self._cleanup()
            raise files.translate(error, self.path) from error
        except BaseException:
            self._cleanup()
            raise
        guard.watch(self)

    # ------------------------------------------------------------------ opening

    def _check_place(self) -> None:
        if os.path.exists(self.path) and os.stat(self.path).st_nlink > 1 and not os.path.isdir(self.path):
            raise Invalid(f"{self.path!r} has several names (hard links), and each would get its own log; keep one")
        if os.path.isdir(self.path):
            raise Invalid(f"{self.path!r} is a directory; name a file in it, such as 'holdfast.db'")
        if self._read_only and not os.path.exists(self.path):
            raise NotFound(f"there is no store at {self.path!r} to read")
        try:
            files.prepare_directory(self.path)
        except OSError as error:
            raise files.translate(error, self.path) from error

    def _open(self, clock: Clock) -> None:
        guard.refuse_inherited(self.path)
        alone = self._presence.join(_OPEN_TIMEOUT)
        if alone:
            self._check_file()
            self._check_log()
        try:
            if (created := files.create_private(self.path)) is not None:
                os.close(created)
            super().__init__(self._connect_or_make_room(), self._sync_log)
        except OSError as error:
            raise files.translate(error, self.path) from error
        try:
            self._set_up(clock, alone)
        except BaseException:
            close_quietly(self._connection)
            raise
        if alone:
            self._presence.admit(_OPEN_TIMEOUT)

    def _check_file(self) -> None:
        """Refuse to begin anew where a store was: SQLite would delete its log."""
        if os.path.exists(self.path) and os.path.getsize(self.path) > 0:
            return
        log = self.path + "-wal"
        if self._mark.noted()[1] or (os.path.exists(log) and os.path.getsize(log) > 0):
            raise self._gone()

    def _gone(self) -> Corrupt:
        return Corrupt(
            f"{self.path} is empty or gone, but the files beside it say that a store was here. Restore a backup;"
            f" to begin anew, delete {self.path}-lock and {self.path}-wal",
            what="file",
        )

    def _check_log(self) -> None:
        """Refuse a log from which SQLite would drop acknowledged commits in silence.

        Where there is a high-water mark it knows better, and is compared later: commits are synced behind the
        lock, so a power cut may leave several that nobody was told of, in any state.
        """
        if self._mark.noted()[1] or self._mark.relaxed:
            return
        state = wal.inspect(self.path + "-wal")
        if state.lost_commits:
            raise Corrupt(
                f"{self.path}-wal is damaged ({state.what}): {state.lost_commits} commits lie behind the damage."
                " Nothing was changed; holdfast.salvage(path, to) recovers them into a copy",
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
            connection = connect(self.path, vfs=self._vfs)
            try:
                # Until the mark has been compared, closing must not fold the log into the file.
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                connection.pragma("query_only", self._read_only)
                connection.pragma("schema_version")
            except BaseException:
                close_quietly(connection)
                raise
            return connection

    def _set_up(self, clock: Clock, alone: bool) -> None:
        tx = SqliteTx(self._cursor)
        version = schema_version(tx)
        migrate.pending(version, migrate.load())  # refuses newer stores before anything is changed
        if version == 0 and self._mark.noted()[1]:
            raise self._gone()
        journal = self._set_journal()
        with translated():
            # With WAL we sync the log ourselves before anybody is told; SQLite then syncs around checkpoints only.
            self._connection.pragma("synchronous", "extra" if journal == "delete" else "normal")
        if self._read_only:
            self._require_current_schema()
        else:
            self._migrate(clock)
            self._ballast.restore()
        self._compare_mark()
        if alone:
            self._check_indexes()
        self._note_durability(alone)
        self._guarded.extend(guard.protect(self.path, self.path + "-shm"))
        if not self._read_only:
            self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
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
        """Use WAL where shared memory works; elsewhere a rollback journal with every sync there is."""
        network = files.network_filesystem(self.path)
        wanted = "delete" if network else "wal"
        with translated():
            if self._read_only:
                return str(self._connection.pragma("journal_mode"))
            got = str(self._connection.pragma("journal_mode", wanted))
        if got != "wal":
            why = f"{network} is a network file system" if network else "WAL was refused"
            log.warning("%s: %s; using a rollback journal with synchronous=EXTRA (slower, as safe)", self.path, why)
            return "delete"
        return got

    def _require_current_schema(self) -> None:
        version = schema_version(SqliteTx(self._cursor))
        if migrate.pending(version, migrate.load()):
            raise Unsupported(
                f"this store has the older schema {version}; open it once for writing to bring it up to date",
                capability="migrate",
            )

    def _compare_mark(self) -> None:
        """Refuse a store that ends before what was acknowledged."""
        tx = SqliteTx(self._cursor)
        identity = tx.one("SELECT value, chk FROM meta WHERE name = 'store'")
        if identity is None or identity[1] != row_check(("store", identity[0])):
            raise Corrupt("the store has lost its identity record; restore a backup", what="meta")
        self._mark.bind(identity[0])
        acknowledged, found = self._mark.read(), _position(tx)
        if found < acknowledged:
            raise Corrupt(
                f"{self.path} ends at change {found}, but {acknowledged} changes were acknowledged. Nothing was"
                f" changed. If you put an older copy here on purpose, delete {self.path}-lock; else restore a backup",
                what="log",
            )

    def _check_indexes(self) -> None:
        """Rebuild the indexes of the small tables if one is damaged: they only repeat what the rows say.

        A row that an index has lost would be missing from listings and look-ups without a word. If it is a row that
        is damaged, the index is left alone: it still leads to the row, whose check then fails. Rows that an index
        knows and the table does not have are lost: an index rebuilt from what is left would hide that.
        """
        for table in _INDEXED:
            if not self._complaints(table):
                continue
            if not self._rows_are_there(table):
                raise Corrupt(f"records of {table} are missing or displaced; restore a backup", what=table)
            if self._rows_are_intact(table):
                if self._read_only:
                    raise Corrupt(f"an index of {table} is damaged; open the store once for writing to rebuild it")
                log.warning("%s: an index of %s was damaged and is rebuilt from its rows", self.path, table)
                with translated():
                    self._connection.execute(f"REINDEX {table}")

    def _rows_are_there(self, table: str) -> bool:
        """Say whether the table has every row that its indexes know."""
        tx = SqliteTx(self._cursor)
        key = "scope, key, what, call_id" if table == "call" else "rowid"
        # With the check, which no index holds, the table itself is read, even where SQLite prefers an index.
        there = {row[:-1] for row in tx.all(f"SELECT {key}, chk FROM {table} NOT INDEXED")}
        if table == "call" and not all(isinstance(row[1], int) for row in there):
            return False  # it has changed places with its own index
        for name, sql in tx.all("SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND tbl_name = ?", (table,)):
            condition = (sql or "").partition(" WHERE ")[2]
            known = f"SELECT {key} FROM {table} INDEXED BY {name}" + (f" WHERE {condition}" if condition else "")
            if sql and not there.issuperset(tx.all(known)):
                return False
        return True

    def _rows_are_intact(self, table: str) -> bool:
        rows = SqliteTx(self._cursor).all(f"SELECT * FROM {table} NOT INDEXED")
        if table != "session":
            return all(row_check(row[:-1]) == row[-1] for row in rows)
        at = _CHECK
        return all(row_check(r[:at]) == r[at] and row_check((r[0], *r[at + 1 : -1])) == r[-1] for r in rows)

    def _complaints(self, table: str) -> list[str]:
        rows = SqliteTx(self._cursor).all(f"PRAGMA integrity_check({table})")
        return [str(row[0]) for row in rows if row[0] != "ok"]

    def _note_durability(self, alone: bool) -> None:
        """Tell later openers whether the log that begins here is synced at every commit."""
        if self._read_only:
            return
        if self._durability == "relaxed":
            self._mark.relaxed = True
        elif alone and self._mark.relaxed:
            with translated():
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            self._mark.relaxed = False

    # ------------------------------------------------------------------ reading and writing

    def read(self, op: Op[T]) -> T:
        """Run an operation that only looks, on a connection of its own."""
        self._check_open()
        reader = self._take_reader()
        tx = SqliteTx(reader)
        try:
            tx.run("BEGIN")
            return op(tx)
        finally:
            self._give_back(reader)

    def _take_reader(self) -> apsw.Cursor:
        try:
            return self._readers.pop()
        except IndexError:
            with translated():
                connection = connect(self.path, vfs=self._vfs)
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

    def write(self, op: Op[T], *, frees_space: bool = False, alone: bool = False) -> T:
        """Run an operation and return when it is synced to disk."""
        if self._read_only:
            raise Unsupported("this store was opened read-only", capability="write")
        self._check_not_failed()
        return super().write(op, frees_space=frees_space)

    def _check_not_failed(self) -> None:
        if self._failed:
            raise BackendError("the disk failed to sync earlier; check it, then open the store again")

    def _transact(self, batch: list[Ticket[Any]]) -> None:
        try:
            self._attempt(batch)
        except StorageFull:
            if not any(ticket.frees_space for ticket in batch) or not self._ballast.release():
                raise
            try:
                self._attempt(batch)
            finally:
                self._ballast.restore()

    def _attempt(self, batch: list[Ticket[Any]]) -> None:
        try:
            self._turnstile.exclusive()
            position = self._run_batch(batch, self._extend_log if self._commits == _EXTEND_AFTER else None)
            self._position = position or self._position
        except apsw.Error as error:
            raise translate(error) from error
        finally:
            self._turnstile.unlock()
        self._commits += 1
        if self._commits % 256 == 0:
            self._ballast.restore()

    def _sync_log(self) -> None:
        """Sync the log, then note how far it reaches.

        After a failed sync the kernel may have dropped what it could not write, and a later sync would not
        say so: no further write is acknowledged through this handle.
        """
        if self._durability != "full":
            return
        self._check_not_failed()
        position = self._position
        if self.capabilities.journal == "wal":
            try:
                if not self._descriptors:
                    self._descriptors.append(os.open(self.path + "-wal", os.O_RDONLY | os.O_CLOEXEC))
                self._sync_file(self._descriptors[0])
            except OSError as error:
                self._failed = True
                raise BackendError(
                    f"the disk failed to sync ({error.strerror}); what was being written may be lost. Check the"
                    " disk, then open the store again"
                ) from error
        if position:
            self._mark.write(position)

    def _extend_log(self) -> None:
        """Give the log its full length once, while we alone may write it: syncs then move no metadata."""
        if self.capabilities.journal != "wal" or self._durability != "full":
            return
        try:
            descriptor = os.open(self.path + "-wal", os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            size = os.fstat(descriptor).st_size
            try:
                while (end := os.fstat(descriptor).st_size) < _WAL_BYTES:
                    os.pwrite(descriptor, bytes(min(1 << 20, _WAL_BYTES - end)), end)
            except OSError:
                os.ftruncate(descriptor, size)  # a full disk: leave it to the commits
        finally:
            os.close(descriptor)

    # ------------------------------------------------------------------ size and end

    def size_bytes(self) -> int:
        """Bytes of all files of the store: database, log, its index, locks and ballast."""
        total = 0
        for suffix in ("", "-wal", "-shm", "-lock", "-open", "-ballast"):
            try:
                total += os.stat(self.path + suffix).st_size
            except FileNotFoundError:
                continue
        return total

    def close(self) -> None:
        """Finish what is being written, fold the log into the file, release every lock."""
        if not self._cleanup.alive or guard.process_generation() != self._process:
            self._closed = True
            return
        self._closed = True
        try:
            self._group.close()
        except BackendError as error:
            log.warning("%s: %s", self.path, error)
        except BaseException:
            self._closed = False  # interrupted, or called from within a write: still open
            raise
        while self._readers:
            close_quietly(self._readers.pop().connection)
        close_quietly(self._connection)
        self._cleanup()

    def abandon(self) -> None:
        """In a forked child: the connections stay open for ever, because closing them could delete the parent's log."""
        for connection in (self._connection, *(reader.connection for reader in self._readers)):
            guard.leak(connection)
        self._guarded.clear()
        self._cleanup()


def _real_path(path: str) -> str:
    """Resolve links: SQLite does, and the files beside the database must be the same ones under every name."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError) as error:
        raise Invalid(f"{path!r} is no path: {error}") from error


def _release(locks: list[files.FileLock], descriptors: list[int], guarded: list[tuple[int, int]]) -> None:
    """Let go of what a backend holds beside its connections; also when it was dropped without being closed."""
    guard.release(guarded)
    guarded.clear()
    while descriptors:
        os.close(descriptors.pop())
    while locks:
        locks.pop().close()


def _position(tx: SqliteTx) -> int:
    row = tx.one("SELECT max(pos) FROM feed")
    return int(row[0]) if row and row[0] is not None else 0
