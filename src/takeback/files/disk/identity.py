"""Which directory this is, whatever path leads to it: real path, and device, inode and birth time.

A path names a session's directory; the other three distinguish a directory that was moved from a new one that reuses
the inode of a deleted one. Where the system reports no birth time, a moved directory counts as new.
"""

from __future__ import annotations

import os
import struct
import sys
from typing import NamedTuple

from ...errors import Invalid, NotFound

_AT_FDCWD, _STATX_BTIME = -100, 0x800


class Located(NamedTuple):
    """A directory: where it is now, and what stays when it moves; ``identity`` is None if the system cannot tell."""

    path: str
    identity: str | None


def locate(path: str) -> Located:
    """Find a directory by its real path; raises ``NotFound`` if nothing is there."""
    if not os.path.isdir(path):
        raise (
            NotFound(f"there is no directory {path!r}")
            if not os.path.exists(path)
            else Invalid(f"{path!r} is not a directory")
        )
    return Located(path, identity(path))


def identity(path: str) -> str | None:
    """Return what identifies a directory, even after a move; None if it is gone or the system cannot tell."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    born = getattr(found, "st_birthtime", None) or _birth(path)
    return None if born is None else f"{found.st_dev}.{found.st_ino}.{born}"


def which(path: str) -> tuple[int, int, str | None] | None:
    """Return what distinguishes the directory at a path from any other one there; None if it is gone."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, identity(path)


def _birth(path: str) -> str | None:
    """Ask Linux for the birth time, which ``os.stat`` leaves out."""
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    try:
        statx = ctypes.CDLL(None, use_errno=True).statx
    except (OSError, AttributeError):
        return None
    answer = ctypes.create_string_buffer(256)
    if statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, answer) != 0:
        return None
    (mask,) = struct.unpack_from("I", answer, 0)
    # ``stx_btime`` lies at offset 80 of ``struct statx``.
    seconds, nanoseconds = struct.unpack_from("qI", answer, 80)
    return f"{seconds}.{nanoseconds}" if mask & _STATX_BTIME and seconds else None
