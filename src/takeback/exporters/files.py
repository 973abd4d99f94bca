"""Writing a file whole or not at all: beside its place first, synced, then renamed into it; for its owner alone.

A link stays one: the file behind it is replaced. What is there and is no file, a device or a pipe, is written through.
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
    """Open a file that takes its place, with mode 0600, when the block ends well; else nothing is there of it."""
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
        with os.fdopen(descriptor, "wb") as file:  # mkstemp gives it the mode 0600
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
    """Say whether a path is there and is no file that could be replaced: a device, a pipe, what is open already."""
    if open_number(path) is not None:
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def open_number(path: str) -> int | None:
    """Give the number of the open file that a path like /dev/stdout names; None for every other path."""
    found = _OPENED.fullmatch(path)
    return int(found[1]) if found else _STREAMS.get(path)


def _through(path: str) -> BinaryIO:
    """Open what is no file; what is open already goes on where it stands, whatever it is."""
    number = open_number(path)
    descriptor = os.dup(number) if number is not None else os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)
    return cast("BinaryIO", os.fdopen(descriptor, "wb"))


def is_one_of(path: str, taken: Iterable[str]) -> bool:
    """Say whether a path leads to one of some files, by whatever name."""
    target = os.path.realpath(path)
    return any(target == os.path.realpath(each) or _is_same_file(target, each) for each in taken)


def _is_same_file(one: str, two: str) -> bool:
    try:
        return os.path.samefile(one, two)
    except OSError:
        return False


def sync_folder(folder: str) -> None:
    """Let the names in a directory be durable, where the system can do that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
