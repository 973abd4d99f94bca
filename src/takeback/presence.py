"""Who runs a session: which process on which machine, and whether it is still alive.

On the same machine we check the process itself, so no clock matters: it is gone if no process has its pid, or if that
process started at another time. On other machines only heartbeats tell. The clock decides who is shown as silent; to
take a lease away, the taker must also have watched the silence itself (``client/running.py``).
"""

from __future__ import annotations

import hashlib
import os
from datetime import datetime
from functools import cache

import msgspec

from .clock import to_datetime
from .ids import new_id
from .model import Portable

BEAT_SECONDS = 5.0  # between two heartbeats
SILENT_SECONDS = 30.0  # without a heartbeat, a holder on another machine is shown as gone
LONG_SECONDS = 600.0  # the same, for one that sends no regular heartbeats


class Holder(Portable, msgspec.Struct, frozen=True, omit_defaults=True):
    """A process that holds something: where it runs, and when it started."""

    id: str
    host: str
    pid: int  # 0 if it is not known which process it is
    machine: str = ""  # the boot id of the machine and its pid namespace
    began: str = ""  # when the process started, in the system's ticks

    def __str__(self) -> str:
        return f"process {self.pid or '(unknown)'} on {self.host}"


def host() -> str:
    """Return this machine's name; what ``socket.gethostname`` returns, without loading ``socket``."""
    return os.uname().nodename


def here(now_ms: int) -> Holder:
    """Return this process as a new holder."""
    pid = os.getpid()
    return Holder(new_id(now_ms), host(), pid, _machine(), _began(pid) or "")


def process(pid: int, now_ms: int) -> Holder:
    """Return another process of this machine as a new holder; an unknown one if there is no such process."""
    began = _began(pid)
    return unknown(now_ms) if began is None else Holder(new_id(now_ms), host(), pid, _machine(), began)


def unknown(now_ms: int) -> Holder:
    """Return a holder on this machine of which nobody knows which process it is."""
    return Holder(new_id(now_ms), host(), 0, _machine())


def is_known(holder: Holder) -> bool:
    """Whether it is known which process a holder is."""
    return holder.pid > 0


def encode(holder: Holder) -> bytes:
    """Encode a holder for storage."""
    return msgspec.json.encode(holder)


def decode(data: bytes) -> Holder:
    """Decode a stored holder; fields added by a newer version are ignored."""
    return msgspec.json.decode(data, type=Holder)


def is_near(holder: Holder) -> bool:
    """Whether a holder runs on this machine, where its process can be checked."""
    return bool(holder.machine) and holder.machine == _machine()


def is_here(holder: Holder) -> bool:
    """Whether a holder is this process."""
    return is_near(holder) and holder.pid == os.getpid() and not is_gone(holder)


def is_gone(holder: Holder) -> bool:
    """Whether a holder on this machine is gone; for one elsewhere, which cannot be checked, False."""
    if not is_near(holder) or not is_known(holder):
        return False
    began = _began(holder.pid)
    return began is None or (bool(began and holder.began) and began != holder.began)


def is_past(holder: Holder) -> bool:
    """Whether a holder is gone, or belongs to an earlier boot of this machine, or to another one."""
    boot = holder.machine.partition("/")[0]
    return is_gone(holder) or (bool(boot) and boot != _machine().partition("/")[0])


def brief(holder: Holder) -> list[object]:
    """Describe a process in short, without the name of its machine, for what is exported."""
    return [holder.machine, holder.pid, holder.began]


def is_same(one: Holder, other: Holder) -> bool:
    """Whether two records describe one process."""
    return brief(one) == brief(other)


def seems_gone(holder: Holder, beat_ms: int, now_ms: int) -> bool:
    """Whether a holder is gone, or elsewhere and silent for too long."""
    return is_gone(holder) if is_near(holder) else now_ms - beat_ms > SILENT_SECONDS * 1000


def has_left(holder: Holder, beat_ms: int, now_ms: int) -> bool:
    """Whether a holder without regular heartbeats is gone: elsewhere only after a very long silence."""
    return is_gone(holder) if is_near(holder) else now_ms - beat_ms > LONG_SECONDS * 1000


def since(taken_ms: int) -> str:
    """Format since when something has been held."""
    taken: datetime = to_datetime(taken_ms)
    return f"{taken:%Y-%m-%d %H:%M:%S} UTC"


@cache
def _machine() -> str:
    """Identify this boot of this machine and its pid namespace; each container has its own."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        import uuid

        return f"{host()}/{uuid.getnode():x}" if hasattr(os, "uname") else ""


@cache
def stable_machine() -> str:
    """Identify this machine across boots, as far as it can be told apart from others."""
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            with open(path, encoding="ascii") as file:
                if found := file.read().strip():
                    # The id itself is confidential: programs are asked to show it to nobody.
                    return hashlib.sha256(f"takeback {found}".encode()).hexdigest()[:32]
        except (OSError, UnicodeError):
            continue
    return host()


def _began(pid: int) -> str | None:
    """Return when a process started; '' if the system does not say, None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()  # the name before it may contain anything
    except FileNotFoundError:
        return _exists(pid)  # /proc may hide other users' processes: then only a signal tells
    except OSError:
        return ""
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()  # a zombie has exited; 19 is its start


def _exists(pid: int) -> str | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return ""
    return ""
