"""Writing a file completely or not at all: to a temporary file beside it, synced, then renamed; readable by its owner.

A symbolic link stays a link: its target is replaced. An existing device or pipe is written to directly.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator
from typing import BinaryIO, cast

from ..errors import Conflict

_STREAMS = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}
_OPENED = re.compile(r"/(?:dev|proc/self)/fd/([0-9]{1,9})")


@contextlib.contextmanager
def whole(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file that appears under its name, with mode 0600, only if the block succeeds."""
    given = os.fspath(path)
    if is_stream(given):
        with _through(given) as out:
            yield out
        return
    target = os.path.realpath(given)
    if os.path.isdir(target):
        raise Conflict(f"{given!r} is a directory; name a file in it", found=given)
    folder, name = os.path.split(target)
    descriptor, waiting = tempfile.mkstemp(prefix=f".{name[:100]}.", suffix=".part", dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:  # mkstemp creates it with mode 0600
            yield cast("BinaryIO", file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(waiting, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(waiting)
        raise
    sync_folder(folder)


def is_stream(path: str) -> bool:
    """Whether a path is something that cannot be replaced: a device, a pipe, an open descriptor."""
    if open_number(path) is not None:
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def open_number(path: str) -> int | None:
    """Return the descriptor that a path like /dev/stdout names; None for any other path."""
    found = _OPENED.fullmatch(path)
    return int(found[1]) if found else _STREAMS.get(path)


def _through(path: str) -> BinaryIO:
    """Open a stream; an open descriptor is duplicated, so that writing continues at its position."""
    number = open_number(path)
    descriptor = os.dup(number) if number is not None else os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)
    return cast("BinaryIO", os.fdopen(descriptor, "wb"))


def is_one_of(path: str, taken: Iterable[str]) -> bool:
    """Whether a path leads to one of these files, by whatever name."""
    target = os.path.realpath(path)
    return any(target == os.path.realpath(each) or _is_same_file(target, each) for each in taken)


def _is_same_file(one: str, two: str) -> bool:
    try:
        return os.path.samefile(one, two)
    except OSError:
        return False


def sync_folder(folder: str) -> None:
    """Sync a directory, so that the names in it survive a power cut; does nothing if the system cannot."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
