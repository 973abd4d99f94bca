"""Who runs a session: which process on which machine, and whether it is still there.

On the same machine the process itself is asked for, so that no clock matters: it is gone if nothing has its number,
or something that began at another time. Elsewhere only signs of life tell, and how long there was none: by the
clock that shows who is silent, and for taking a lease away also by watching (``client/running.py``).
"""

from __future__ import annotations

import os
from datetime import datetime
from functools import cache

import msgspec

from .clock import to_datetime
from .ids import new_id

BEAT_SECONDS = 5.0  # between two signs of life
SILENT_SECONDS = 30.0  # without one a holder on another machine is shown as gone
LONG_SECONDS = 600.0  # without a word one who need not give any is


class Holder(msgspec.Struct, frozen=True, omit_defaults=True):
    """A process that holds something: where it runs, and since when it does."""

    id: str
    host: str
    pid: int
    machine: str = ""  # this start of this machine, and its space of process numbers
    began: str = ""  # when the process began, as the system counts

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def here(now_ms: int) -> Holder:
    """Describe this process as a new holder."""
    import socket

    pid = os.getpid()
    return Holder(new_id(now_ms), socket.gethostname(), pid, _machine(), _began(pid) or "")


def encode(holder: Holder) -> bytes:
    """Write a holder for storing."""
    return msgspec.json.encode(holder)


def decode(data: bytes) -> Holder:
    """Read a stored holder; fields that a newer version added are left alone."""
    return msgspec.json.decode(data, type=Holder)


def is_near(holder: Holder) -> bool:
    """Say whether a holder runs on this machine, where it can be looked for."""
    return bool(holder.machine) and holder.machine == _machine()


def is_here(holder: Holder) -> bool:
    """Say whether a holder is this very process."""
    return is_near(holder) and holder.pid == os.getpid() and not is_gone(holder)


def is_gone(holder: Holder) -> bool:
    """Say whether a holder on this machine is gone; one elsewhere is not known to be."""
    if not is_near(holder):
        return False
    began = _began(holder.pid)
    return began is None or (bool(began and holder.began) and began != holder.began)


def seems_gone(holder: Holder, beat_ms: int, now_ms: int) -> bool:
    """Say whether a holder is gone, or elsewhere and silent for long."""
    return is_gone(holder) if is_near(holder) else now_ms - beat_ms > SILENT_SECONDS * 1000


def has_left(holder: Holder, beat_ms: int, now_ms: int) -> bool:
    """Say whether somebody who gives no regular signs of life is gone: elsewhere only after a very long silence."""
    return is_gone(holder) if is_near(holder) else now_ms - beat_ms > LONG_SECONDS * 1000


def since(taken_ms: int) -> str:
    """Write since when somebody holds something."""
    taken: datetime = to_datetime(taken_ms)
    return f"{taken:%Y-%m-%d %H:%M:%S} UTC"


@cache
def _machine() -> str:
    """Name this start of this machine and its space of process numbers; a container has one of its own."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        import socket
        import uuid

        return f"{socket.gethostname()}/{uuid.getnode():x}" if hasattr(os, "uname") else ""


def _began(pid: int) -> str | None:
    """Give when a process began; '' where the system does not say, None if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except FileNotFoundError:
        return _exists(pid)  # where processes of others are hidden, only a signal tells
    except OSError:
        return ""
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()  # a zombie has ended


def _exists(pid: int) -> str | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return ""
    return ""
