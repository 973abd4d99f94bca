"""Writing a file whole or not at all: beside its place first, synced, then renamed into it; for its owner alone."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import BinaryIO, cast


@contextlib.contextmanager
def whole(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file that takes its place, with mode 0600, when the block ends well; else nothing is there of it."""
    target = os.path.abspath(path)
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


def sync_folder(folder: str) -> None:
    """Let the names in a directory be durable, where the system can do that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
