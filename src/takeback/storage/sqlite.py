"""SQLite: one writer connection behind group commit, a pool of readers, WAL with full sync.

A write to a file waits at the turnstile, runs BEGIN IMMEDIATE, the batch and COMMIT, leaves the turnstile, syncs
the log, and records the high-water mark. Syncing after leaving the turnstile lets the next writer work while this
one waits for the disk. The invariant: ``write`` never returns before the log that holds its changes is synced,
except with ``durability="relaxed"``, which the caller chose explicitly.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import apsw

from ..clock import Clock, SystemClock
from ..errors import BackendError, Busy, Invalid, StorageFull, Unsupported
from . import files, guard, notices
from .base import LOCK_TIMEOUT, Op
from .commit import Ticket
from .connection import merging, translate, translated
from .engine import Engine
from .sqlite_reader import SqliteReader
from .turnstile import Turnstile

T = TypeVar("T")
_WAL_BYTES = 32 + 1024 * (4096 + 24)  # a log of 1,024 pages, about where SQLite starts a checkpoint
_EXTEND_AFTER = 4  # commits: a store that is opened only briefly never pays for it
_DURABILITIES = ("full", "relaxed")
_fdatasync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


class SqliteBackend(SqliteReader, Engine):
    """A store in a file, for any number of threads and processes on one machine."""

    _turnstile: Turnstile

    def __init__(
        self,
        path: str,
        *,
        durability: str = "full",
        read_only: bool = False,
        lock_timeout: float = LOCK_TIMEOUT,
        clock: Clock | None = None,
        vfs: str | None = None,
        sync: Callable[[int], None] = _fdatasync,
    ) -> None:
        if durability not in _DURABILITIES:
            raise Invalid(f"durability must be 'full' or 'relaxed', not {durability!r}")
        self._read_only = self._must_not_write = read_only
        self._durability = durability
        self._commits = 0
        self._position = 0
        self._sync_file = sync
        self._failed = False
        self._clock = clock or SystemClock()
        super().__init__(path, vfs=vfs, lock_timeout=lock_timeout)

    # ------------------------------------------------------------------ opening

    def _lock_file(self, path: str) -> files.FileLock:
        return Turnstile(path)

    def _hold(self, connection: apsw.Connection) -> None:
        Engine.__init__(self, connection, self._sync_log)

    def _set_journal(self) -> str:
        """Use WAL where shared memory works; elsewhere a rollback journal with the strictest syncing."""
        if self._read_only:
            return super()._set_journal()
        network = files.network_filesystem(self.path)
        wanted = "delete" if network else "wal"
        with translated():
            got = str(self._connection.pragma("journal_mode", wanted))
        if got != "wal":
            why = f"{network} is a network file system" if network else "WAL was refused"
            notices.warn("%s: %s; using a rollback journal with synchronous=EXTRA (slower, as safe)", self.path, why)
            return "delete"
        return got

    def _bring_up_to_date(self) -> None:
        if self._read_only:
            super()._bring_up_to_date()
            return
        self._migrate(self._clock)
        self._ballast.restore()

    def _found_sound(self, alone: bool) -> None:
        if not self._read_only:
            self._note_durability(alone)
            self._turnstile.arrange(self._lock_timeout)
            path, presence = self.path, self._presence
            self._connection.set_wal_hook(merging(lambda: presence.record(path)))
            self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
            presence.merges = True

    def _note_durability(self, alone: bool) -> None:
        """Record for later openers whether the log that starts here is synced at every commit."""
        if self._durability == "relaxed":
            self._mark.relaxed = True
        elif alone and self._mark.relaxed:
            with translated():
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            self._mark.relaxed = False

    # ------------------------------------------------------------------ writing

    def write(self, op: Op[T], *, frees_space: bool = False, alone: bool = False) -> T:
        """Run an operation and return when it is synced to disk."""
        if self._read_only:
            raise Unsupported("this store was opened read-only", capability="write")
        if self._failed:
            self._check_not_failed()
        self._check_open()
        return self._group.write(op, frees_space=frees_space)

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
            self._turnstile.exclusive(batch[0].since)
            position = self._run_batch(batch, self._extend_log if self._commits == _EXTEND_AFTER else None)
            self._position = position or self._position
        except apsw.Error as error:
            raise translate(error) from error
        except Busy as error:
            raise self._explained(error) from error.__cause__
        finally:
            self._turnstile.unlock()
        self._commits += 1
        if self._commits % 256 == 0:  # a full disk may have room again by now
            self._ballast.restore()

    def _sync_log(self) -> None:
        """Sync the log, then record how far it reaches.

        After a failed sync the kernel may have dropped the pages it could not write, and a later sync would
        succeed without them: so this handle acknowledges no further write.
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
                    f"the disk failed to sync ({error.strerror}); the write in progress may be lost. Check the"
                    " disk, then open the store again"
                ) from error
        if position:
            self._mark.write(position)

    def _extend_log(self) -> None:
        """Extend the log to its full length once, while only we may write it: later syncs then write no metadata."""
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
                os.ftruncate(descriptor, size)  # the disk is full: leave the space to commits
        finally:
            os.close(descriptor)

    # ------------------------------------------------------------------ size and end

    def close(self) -> None:
        """Finish writes in progress, merge the log into the file, release every lock."""
        if not self._cleanup.alive or guard.process_generation() != self._process:
            self._closed = True
            return
        self._closed = True
        try:
            self._group.close()
        except BackendError as error:
            notices.warn("%s: %s", self.path, error)
        except BaseException:
            self._closed = False  # interrupted, or called from inside a write: the store stays open
            raise
        self._cleanup()
