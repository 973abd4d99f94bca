"""Which paths of a workspace changed since the last scan, as Linux reports it through inotify.

The system queues a report as the change happens, so reading the queue when a scan is due is enough: no thread, and
nothing to do in between. Who has nothing else to do can ``wait`` for a report. Each directory is watched before it is
listed, by its open descriptor, so whatever comes later is reported. A watch belongs to a directory, not to its path:
one that was moved is watched at its new place as soon as it is scanned there. Any doubt - reports were lost, a limit of
the system was reached - means that nothing is known.

Two kinds of changes are not reported: writes through a memory map that is still open, and writes through a hard link
outside the workspace.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import struct
import termios
import weakref
from collections.abc import Collection, Iterator
from contextlib import suppress

_MODIFY, _ATTRIB, _CLOSE_WRITE, _MOVED, _CREATE, _DELETE = 0x2, 0x4, 0x8, 0xC0, 0x100, 0x200
_ONLY_DIRECTORIES, _EXCEPT_UNLINKED = 0x01000000, 0x04000000
# A memory map holds its file open, so what was written through it is reported by its end: CLOSE_WRITE.
_WANTED = _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED | _CREATE | _DELETE | _ONLY_DIRECTORIES | _EXCEPT_UNLINKED
_UNMOUNTED, _OVERFLOW, _ENDED = 0x2000, 0x4000, 0x8000
_EVENT = struct.Struct("iIII")
_MOST = 5_000  # paths; beyond that a full scan is as fast
_MOST_WATCHERS = 16  # in a process: a user has 128, for all programs
_LIMIT = "/proc/sys/fs/inotify/max_user_watches"

_all: weakref.WeakSet[Watcher] = weakref.WeakSet()


class Watcher:
    """Reports on directories by their paths; raises ``OSError`` if the system gives none."""

    def __init__(self) -> None:
        self._descriptor = -1
        if len(_all) >= _MOST_WATCHERS:
            raise OSError("this process watches enough")
        self._system = ctypes.CDLL(None, use_errno=True)
        self._most = _allowed()
        self._paths: dict[int, str] = {}
        self._watches: dict[str, int] = {}
        self._descriptor = self._system.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify is not available")
        _all.add(self)

    def add(self, path: str, directory: int) -> None:
        """Watch an open directory under this path; if the system refuses, this watcher is closed."""
        if self._descriptor < 0:
            return
        watch = self._system.inotify_add_watch(self._descriptor, b"/proc/self/fd/%d" % directory, _WANTED)
        if watch < 0 or len(self._paths) > self._most:
            self.close()
            return
        before = self._watches.get(path)
        if before is not None and before != watch:
            self.forget(path)  # another directory has this path by now
        moved = self._paths.get(watch)
        if moved is not None and moved != path:
            self._watches.pop(moved, None)
        self._paths[watch], self._watches[path] = path, watch

    def forget(self, path: str) -> None:
        """Stop watching what had this path, unless it is watched under another one by now."""
        watch = self._watches.pop(path, None)
        if watch is not None and self._paths.get(watch) == path:
            del self._paths[watch]
            self._system.inotify_rm_watch(self._descriptor, watch)

    @property
    def is_open(self) -> bool:
        """Whether it still reports anything."""
        return self._descriptor >= 0

    def knows(self, path: str) -> bool:
        """Whether a directory is watched under this path."""
        return path in self._watches

    def wait(self, seconds: float) -> bool:
        """Wait until something is reported, at most so long; whether something is."""
        waiting = select.poll()
        waiting.register(self._descriptor, select.POLLIN)
        return bool(waiting.poll(seconds * 1000))

    def watches(self, paths: Collection[str]) -> bool:
        """Whether exactly these directories are watched."""
        return self._descriptor >= 0 and self._watches.keys() == set(paths)

    def changed(self) -> set[str] | None:
        """Return the paths that changed since the last call; None if that is not known."""
        if self._descriptor < 0:
            return None
        found, lost = set[str](), False
        for watch, what, name in self._queued():
            if what & (_OVERFLOW | _UNMOUNTED):
                lost = True
            elif what & _ENDED:
                self._end(watch)
            elif name and watch in self._paths:
                found.add(self._paths[watch] + os.fsdecode(name))
        return None if lost or len(found) > _MOST else found

    def _end(self, watch: int) -> None:
        path = self._paths.pop(watch, None)
        if path is not None and self._watches.get(path) == watch:
            del self._watches[path]

    def _queued(self) -> Iterator[tuple[int, int, bytes]]:
        # Only what is queued by now: somebody who writes all the time must not keep us here.
        (waiting,) = struct.unpack("i", fcntl.ioctl(self._descriptor, termios.FIONREAD, b"\0" * 4))
        data, at = os.read(self._descriptor, waiting) if waiting else b"", 0
        while at < len(data):
            watch, what, _, size = _EVENT.unpack_from(data, at)
            at += _EVENT.size + size
            yield watch, what, data[at - size : at].rstrip(b"\0")

    def close(self) -> None:
        """Return everything to the system."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            _all.discard(self)
            with suppress(OSError):
                os.close(descriptor)

    def __del__(self) -> None:
        self.close()


def _allowed() -> int:
    """Return how many directories to watch: half of what the user may, as editors want some too."""
    with open(_LIMIT, encoding="ascii") as file:
        return int(file.read()) // 2


def _close_all() -> None:
    """Close the descriptors that a child got by fork: reading them there would take the parent's reports."""
    for each in [*_all]:
        each.close()


os.register_at_fork(after_in_child=_close_all)
