"""Who holds a lock on a file, asked of the system itself: a note in the file could name somebody who left long ago.

Only Linux lists its locks (``/proc/locks``), and only those of processes that this one can see. Where the holder is
unknown - another system, another container, another machine - nobody is named.
"""

from __future__ import annotations

import contextlib
import os

from ..errors import Busy

_STOPPED = ("T", "t")  # by a signal, by a debugger


def busy(what: str, seconds: float, *paths: str, shared: bool = True) -> Busy:
    """Return the error for a wait that took too long, with whoever holds the first of these files that is locked."""
    waited = f"{what} was not possible within {seconds:g} s (lock_timeout)"
    pid = next((found for path in paths if (found := holder_of(path, shared=shared))), None)
    if pid is None:
        return Busy(f"{waited}: another process holds the lock. Call again, or find that process and end it")
    holder = f"process {pid} on {os.uname().nodename}"
    if _state(pid) in _STOPPED:
        advice = f"holds the lock and is stopped. Continue it with: kill -CONT {pid}; or end it with: kill -KILL {pid}"
    else:
        advice = f"holds the lock. Call again, or end it with: kill {pid}"
    return Busy(f"{waited}: {holder} {advice}", holder=holder)


def holder_of(path: str, *, shared: bool = True) -> int | None:
    """Return another process that has locked a file, exclusively or else shared; None if the system names none."""
    try:
        status = os.stat(path)
        with open("/proc/locks", encoding="ascii", errors="replace") as file:
            held = [line.split() for line in file if "->" not in line]  # an arrow marks those who wait
    except OSError:
        return None
    found = list[tuple[bool, bool, int]]()
    for _, _, _, kind, number, place, *_ in held:
        pid, is_shared = int(number), kind != "WRITE"
        if pid != os.getpid() and (shared or not is_shared) and _is_of(place, pid, status) and (state := _state(pid)):
            found.append((is_shared, state not in _STOPPED, pid))
    return min(found)[2] if found else None


def _is_of(place: str, pid: int, status: os.stat_result) -> bool:
    """Whether a lock in the system's list is on this file; some file systems show another device than in the list."""
    device, _, inode = place.rpartition(":")
    if inode != str(status.st_ino):
        return False
    if device == f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}":
        return True
    with contextlib.suppress(OSError):
        opened = (f"/proc/{pid}/fd/{each}" for each in os.listdir(f"/proc/{pid}/fd"))
        return any(os.path.samestat(os.stat(each), status) for each in opened)
    return False


def _state(pid: int) -> str:
    """Return the letter for what a process is doing; nothing if there is none, or none that can be seen."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()  # the name before it may contain anything
    except (OSError, IndexError):
        return ""
