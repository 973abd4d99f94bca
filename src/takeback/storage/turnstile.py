"""The turnstile: one process at a time writes, and nobody waits for it without limit.

The lock is a ``flock`` on ``NAME-lock``, which the system releases when its holder ends, however it ends. But a holder
that is stopped keeps it, and a process that waits inside ``flock`` cannot give up. So whoever finds the lock taken
leaves a note in the file and sleeps on it, as on a futex, for a few milliseconds at a time; whoever leaves and sees the
note wakes one sleeper. Waking only saves time: every sleep ends by itself.

This costs as much as the queue inside ``flock``. Without waking, four processes together wrote a quarter less; with a
thread that waits inside ``flock`` for its caller, a sixth less.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import sys
import time
from collections.abc import Callable

from .files import FileLock

_NOTE_AT = 32  # behind the high-water mark, aligned as a futex must be
_NO_NOTE = bytes(4)
_NOTED = int.from_bytes(b"\1\0\0\0", sys.byteorder)
_SLEEP = 0.005  # seconds: how long a lost wake-up can matter
_POLL = 0.0005  # seconds: the pause where nobody can be woken
_FUTEX = {"x86_64": 202, "aarch64": 98, "riscv64": 98, "ppc64le": 221, "s390x": 238}  # the number of the system call
_WAIT, _WAKE = 0, 1
_EXCLUSIVE_NOW = fcntl.LOCK_EX | fcntl.LOCK_NB


class Turnstile(FileLock):
    """The lock that a process holds while it writes."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._timeout = 0.0
        self._page: mmap.mmap | bytearray = bytearray(_NOTE_AT + len(_NO_NOTE))
        self._call: Callable[[int, int], int] | None = None  # the futex of the note, once it is needed

    def arrange(self, timeout: float) -> None:
        """Prepare for writing: set how long to wait at most, and notice from now on who waits for us."""
        self._timeout, self._page = timeout, _mapped(self.descriptor) or self._page

    def exclusive(self, since: float = 0.0) -> None:
        """Take the lock; raise ``Busy`` if that fails for too long, counted from ``since`` or else from now."""
        try:
            fcntl.flock(self.descriptor, _EXCLUSIVE_NOW)
        except (BlockingIOError, PermissionError):
            self._wait((since or time.monotonic()) + self._timeout)

    def unlock(self) -> None:
        """Release the lock, and wake one of those who wait for it."""
        fcntl.flock(self.descriptor, fcntl.LOCK_UN)
        if self._page[_NOTE_AT]:
            self._page[_NOTE_AT] = 0
            self._futex(_WAKE, 1)

    def close(self) -> None:
        """Release the lock and close the file."""
        if isinstance(self._page, mmap.mmap):
            self._page.close()  # it holds a descriptor of its own, and with it the lock
        super().close()

    def _wait(self, deadline: float) -> None:
        while True:
            # Also by whoever then gets the lock: it cannot know whether others still sleep, and will have to wake one.
            self._page[_NOTE_AT] = 1
            try:
                fcntl.flock(self.descriptor, _EXCLUSIVE_NOW)
                return
            except (BlockingIOError, PermissionError):
                if time.monotonic() >= deadline:
                    raise self._busy() from None
            if not self._futex(_WAIT, _NOTED):
                time.sleep(_POLL)

    def _busy(self) -> Exception:
        from . import holders

        return holders.busy(f"writing to {self.path.removesuffix('-lock')!r}", self._timeout, self.path)

    def _futex(self, what: int, value: int) -> bool:
        """Sleep on the note until it is gone, or wake sleepers; return False if the system knows no such thing."""
        if not isinstance(self._page, mmap.mmap):
            return False
        if self._call is None:
            self._call = _futex_at(self._page)
        return self._call(what, value) not in (errno.ENOSYS, errno.EPERM, errno.EINVAL)


def _mapped(descriptor: int) -> mmap.mmap | None:
    """Map the page with the note, so that reading and writing it costs no system call; None if that fails."""
    if os.uname().machine not in _FUTEX or not sys.platform.startswith("linux"):
        return None
    size = _NOTE_AT + len(_NO_NOTE)
    with contextlib.suppress(OSError, ValueError):
        if os.fstat(descriptor).st_size < size:
            os.pwrite(descriptor, _NO_NOTE, _NOTE_AT)  # its block must exist: on a full disk, a new one would kill us
        return mmap.mmap(descriptor, size)
    return None


def _futex_at(page: mmap.mmap) -> Callable[[int, int], int]:
    """Return the system call for the note, which returns 0 or the number of an error."""
    import ctypes  # only where processes meet: importing it takes longer than opening a store

    class Duration(ctypes.Structure):
        _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))

    call = ctypes.CDLL(None, use_errno=True).syscall
    call.argtypes = (ctypes.c_long, ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_void_p)
    call.restype = ctypes.c_long
    # The address alone: an object that holds on to the page would keep it from being closed.
    number, address = _FUTEX[os.uname().machine], ctypes.addressof(ctypes.c_char.from_buffer(page)) + _NOTE_AT
    sleep = ctypes.byref(Duration(0, int(_SLEEP * 1e9)))

    def futex(what: int, value: int) -> int:
        return 0 if call(number, address, what, value, sleep) >= 0 else ctypes.get_errno()

    return futex
