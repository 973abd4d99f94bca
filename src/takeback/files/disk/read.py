"""Reading files of a workspace: regular ones only, never through a link, and without blocking on open."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Protocol

SMALL = 1 << 20
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class Keep(Protocol):
    """Takes the contents that were read."""

    def has(self, digest: bytes) -> bool:
        """Whether this large content is kept already."""

    def put(self, digest: bytes, data: bytes) -> None:
        """Keep small content."""

    def stream(self, pieces: Iterable[bytes]) -> bytes:
        """Keep large content that arrives in pieces, and return its digest."""


def content(descriptor: int, size: int, keep: Keep) -> tuple[bytes, int]:
    """Read a file and keep it; return its digest and how much was read."""
    if size < SMALL:
        data = os.read(descriptor, size + 1)
        # One byte more than the size was asked for: a file that has grown is read again as a large one.
        if len(data) <= size:
            digest = sha256(data).digest()
            keep.put(digest, data)
            return digest, len(data)
        os.lseek(descriptor, 0, os.SEEK_SET)
    digest, length = _large(descriptor)
    if keep.has(digest):
        return digest, length
    os.lseek(descriptor, 0, os.SEEK_SET)
    return keep.stream(_pieces(descriptor)), os.lseek(descriptor, 0, os.SEEK_CUR)


def _large(descriptor: int) -> tuple[bytes, int]:
    digest = sha256()
    for piece in _pieces(descriptor):
        digest.update(piece)
    return digest.digest(), os.lseek(descriptor, 0, os.SEEK_CUR)


def _pieces(descriptor: int) -> Iterator[bytes]:
    while piece := os.read(descriptor, SMALL):
        yield piece


def lines(directory: int, path: str) -> list[bytes]:
    """Read a rule file; a missing or unreadable one has no lines."""
    data = small(path, directory)
    return data.removeprefix(b"\xef\xbb\xbf").split(b"\n") if data else []


def small(path: str, directory: int | None = None, most: int = SMALL) -> bytes:
    """Read a small file, up to a size; nothing if it is missing, unreadable or no file."""
    try:
        descriptor = os.open(path, OPEN, dir_fd=directory)
    except OSError:
        return b""
    try:
        status = os.fstat(descriptor)
        return os.read(descriptor, min(most, status.st_size)) if stat.S_ISREG(status.st_mode) else b""
    except OSError:
        return b""
    finally:
        os.close(descriptor)
