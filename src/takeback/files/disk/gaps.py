"""Gaps: names that were not captured, each with the reason."""

from __future__ import annotations

import stat

from ...model.tree import GAP, Node
from .cache import Known

OTHER_DEVICE, STORE, OPEN_STORE = "another file system", "the store itself", "a store that is open"
FIXED = frozenset({OTHER_DEVICE, STORE, OPEN_STORE})  # what must not be moved, or cannot


def gap(reason: str, *, is_dir: bool = False, again: bool = False) -> Known:
    """Return a gap; with ``again`` it is checked in every scan, since its reason may go away."""
    return (-1, 0, 0, 0, 0) if again else None, Node(GAP, int(is_dir), 0, reason.encode())


def unless_gone(error: OSError, *, is_dir: bool = False) -> Known | None:
    """Return a gap for what the system refused; None if the name is gone."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return None
    return gap(f"unreadable: {error.strerror}", is_dir=is_dir, again=True)


def what(mode: int) -> str:
    """Describe something that is not a file."""
    kinds = ((stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a device"))
    return next((word for is_kind, word in kinds if is_kind(mode)), "a device" if stat.S_ISBLK(mode) else "no file")


def size(count: int) -> str:
    """Format a number of bytes for people."""
    for shift, unit in ((30, "GB"), (20, "MB"), (10, "kB")):
        if count >> shift:
            return f"{count >> shift} {unit}"
    return f"{count} bytes"
