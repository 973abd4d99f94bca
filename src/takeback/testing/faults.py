"""A file system that fails on demand, for SQLite through apsw.

    vfs = FaultyVFS()
    store = Store(SqliteBackend(path, vfs=vfs.name, sync=vfs.sync), clock=SystemClock())
    vfs.arm(7, "torn")          # the 7th write, sync, truncate or delete from now on
    session.user("...")         # raises a takeback.Error, or succeeds if it makes fewer calls

Every call that changes any file of the store is counted, and so are the syncs of the log that the backend makes itself.
Reads work until the disk is dead. Only SQLite's own files pass through here, so locks and marker files stay intact, as
they do when a disk fails under a live process. One object serves one process; a forked child has its own copy.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Collection
from types import TracebackType
from typing import Literal, NamedTuple

import apsw

Kind = Literal["write", "sync", "truncate", "delete"]
Mode = Literal["error", "full", "torn", "kill", "stop"]

KINDS: tuple[Kind, ...] = ("write", "sync", "truncate", "delete")
MODES: tuple[Mode, ...] = ("error", "full", "torn")

_EXTENDED = {
    "write": apsw.SQLITE_IOERR_WRITE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
    "delete": apsw.SQLITE_IOERR_DELETE,
    "read": apsw.SQLITE_IOERR_READ,
}


class Fault(NamedTuple):
    """A call that was made to fail: its number, its kind, and its file."""

    number: int
    kind: Kind
    file: str


class FaultyVFS(apsw.VFS):
    """SQLite's own file access, with chosen calls made to fail.

    ``error``: the call fails and changes nothing; later calls work. ``full``: the same, reported as a full disk.
    ``torn``: half of a write reaches the file (of any other call, nothing), and the disk is dead from then on.
    ``kill``: the process gets SIGKILL instead of making the call. ``stop``: the process gets SIGSTOP before the call,
    which succeeds once the process is continued.
    """

    def __init__(self, name: str = "takeback-faults", base: str = "") -> None:
        super().__init__(name, base)
        self.name = name
        self.base = base
        self.calls = 0
        self.dead = False
        self.fired: list[Fault] = []
        self._mode: Mode = "error"
        self._kinds: frozenset[Kind] = frozenset(KINDS)
        self._first, self._last = 0, -1

    def arm(self, number: int, mode: Mode, *, kinds: Collection[Kind] = KINDS, times: int = 1) -> None:
        """Make call ``number``, counted from now, and the ``times - 1`` calls after it fail."""
        if number < 1 or times < 1 or mode not in (*MODES, "kill", "stop"):
            raise ValueError(f"cannot fail call {number}, {times} times, in mode {mode!r}")
        self.disarm()
        self._mode, self._kinds = mode, frozenset(kinds)
        self._first, self._last = number, number + times - 1

    def disarm(self) -> None:
        """Stop failing, even after a dead disk, and count from 0 again."""
        self._mode, self._kinds = "error", frozenset(KINDS)
        self._first, self._last = 0, -1
        self.calls, self.dead, self.fired = 0, False, []

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        """Open a file whose calls are counted."""
        return _File(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        """Delete a file, unless this call must fail."""
        if self.fails("delete", filename):
            raise self.failure("delete")
        super().xDelete(filename, syncdir)

    def sync(self, descriptor: int) -> None:
        """Sync a file by its descriptor, unless this call must fail; pass it to ``SqliteBackend``."""
        if self.fails("sync", f"descriptor {descriptor}"):
            code = errno.ENOSPC if self._mode == "full" else errno.EIO
            raise OSError(code, f"{os.strerror(code)} (injected)")
        os.fsync(descriptor)

    def fails(self, kind: Kind, file: str) -> bool:
        """Count a call and return whether it must fail; on a dead disk every call must."""
        if self.dead:
            return True
        if kind not in self._kinds:
            return False
        self.calls += 1
        if not self._first <= self.calls <= self._last:
            return False
        self.fired.append(Fault(self.calls, kind, file))
        if self._mode in ("kill", "stop"):
            os.kill(os.getpid(), signal.SIGKILL if self._mode == "kill" else signal.SIGSTOP)
            return False
        self.dead = self._mode == "torn"
        return True

    def failure(self, kind: str) -> apsw.Error:
        """Return the exception for the armed mode."""
        if self._mode == "full":
            return apsw.FullError("no space is left (injected)")
        error = apsw.IOError(f"{kind} failed (injected)")
        error.extendedresult = _EXTENDED[kind]  # type: ignore[attr-defined]
        return error

    def excepthook(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Suppress our own failures where SQLite has no caller to report them to."""
        return True


class _File(apsw.VFSFile):
    """A file whose changing calls ask the VFS first whether to fail."""

    def __init__(self, vfs: FaultyVFS, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__(vfs.base, name, flags)
        self._vfs = vfs
        self._name = name.filename() if isinstance(name, apsw.URIFilename) else name or ""

    def excepthook(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return True

    def xRead(self, amount: int, offset: int) -> bytes:
        if self._vfs.dead:
            raise self._vfs.failure("read")
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:
        was_dead = self._vfs.dead
        if self._vfs.fails("write", self._name):
            if self._vfs.dead and not was_dead:
                super().xWrite(bytes(data)[: len(data) // 2], offset)
            raise self._vfs.failure("write")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        if self._vfs.fails("sync", self._name):
            raise self._vfs.failure("sync")
        super().xSync(flags)

    def xTruncate(self, newsize: int) -> None:
        if self._vfs.fails("truncate", self._name):
            raise self._vfs.failure("truncate")
        super().xTruncate(newsize)
