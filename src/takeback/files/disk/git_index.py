"""What a git repository tracks: the names in its index, read from the file and never by running git.

Reads versions 2, 3 and 4, of repositories with SHA-1 and SHA-256. Of a split index the names of the shared part count
too, those that were removed since included. Directories of a sparse index are passed over. The index is somebody else's
file: one that is damaged, too large or forged names nothing, and no name in it leads out of the repository.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import NamedTuple

from ...model import names, tree
from . import read, unchanged
from .cache import Stat

_LARGEST = 128 << 20
_LONGEST = 4096
_HASHES = 20, 32  # bytes
_HEADER, _EXTENSION = struct.Struct(">4sII"), struct.Struct(">4sI")
_MODE, _FLAGS = struct.Struct(">I"), struct.Struct(">H")
_MODES = frozenset({0o100644, 0o100755, 0o100664, 0o120000, 0o160000})
_SPARSE = 0o040000
_EXTENDED = 0x4000


class Index:
    """The names that an index holds, read on first use; ``digest`` identifies them across changes of the file."""

    def __init__(self, load: Callable[[], frozenset[bytes]], digest: bytes | None = None) -> None:
        self._load = load
        self._names: frozenset[bytes] | None = None
        self._folders: frozenset[bytes] = frozenset()
        self.digest = digest if digest is not None else sha256(b"\0".join(sorted(self._read()))).digest()

    def names(self, path: bytes, *, is_dir: bool) -> bool:
        """Whether a path is tracked; of a directory, whether something in it is."""
        tracked = self._read()
        return path in tracked or (is_dir and path in self._folders)

    def _read(self) -> frozenset[bytes]:
        if self._names is None:
            self._names = self._load()
            self._folders = frozenset(_above(self._names))
        return self._names


def _above(tracked: frozenset[bytes]) -> Iterator[bytes]:
    known = set[bytes]()
    for path in tracked:
        while (path := path.rpartition(b"/")[0]) and path not in known:
            known.add(path)
            yield path


def find(directory: int, path: str) -> tuple[Stat, Callable[[], frozenset[bytes]]] | None:
    """Find the index of the repository in an open directory; return its status and how to read its names."""
    try:
        if stat.S_ISREG(os.stat(".git", dir_fd=directory, follow_symlinks=False).st_mode):
            folder = _elsewhere(directory, path)
            status = os.stat(os.path.join(folder, "index"), follow_symlinks=False)
        else:
            folder, inside = os.path.join(path, ".git"), os.open(".git", read.DIRECTORY, dir_fd=directory)
            try:
                status = os.stat("index", dir_fd=inside, follow_symlinks=False)
            finally:
                os.close(inside)
    except (OSError, ValueError):
        return None
    return unchanged.key_of(status), lambda: _names_in(folder)


def _elsewhere(directory: int, path: str) -> str:
    """Return the directory that a ``.git`` file names, as in a worktree or a submodule."""
    said, _, folder = os.fsdecode(read.small(".git", directory, _LONGEST)).partition(": ")
    if said != "gitdir":
        raise ValueError("not a .git file")
    return os.path.join(path, folder.rstrip("\n"))


def _names_in(folder: str) -> frozenset[bytes]:
    data = read.small(os.path.join(folder, "index"), most=_LARGEST)
    for hash_size in _HASHES:
        found = parse(data, hash_size)
        if found is not None:
            shared = os.path.join(folder, f"sharedindex.{found.shared}")
            more = parse(read.small(shared, most=_LARGEST), hash_size) if found.shared else None
            return frozenset((*found.names, *(more.names if more else ())))
    return frozenset()


class Parsed(NamedTuple):
    """The names of an index, and the hash that names its shared part, if it is split."""

    names: list[bytes]
    shared: str


def parse(data: bytes, hash_size: int = _HASHES[0]) -> Parsed | None:
    """Read an index; None if it is not one, or is damaged."""
    try:
        sign, version, count = _HEADER.unpack_from(data)
        if sign != b"DIRC" or version not in (2, 3, 4) or count > tree.MOST_PATHS:
            return None
        entries = _Entries(data, version, hash_size)
        found = [entries.next() for _ in range(count)]
        return Parsed([each for each in found if each and not names.path_fault(each)], entries.shared())
    except (struct.error, ValueError, IndexError):
        return None


class _Entries:
    """Reads one entry after the other; raises ``ValueError`` where none can be."""

    def __init__(self, data: bytes, version: int, hash_size: int) -> None:
        self._data, self._version, self._hash_size = data, version, hash_size
        self._at, self._name = _HEADER.size, b""
        self._end = len(data) - hash_size  # of the file's own hash

    def next(self) -> bytes:
        """Return the next name; empty for what is not a path of its own."""
        data, start = self._data, self._at
        (mode,) = _MODE.unpack_from(data, start + 24)
        (flags,) = _FLAGS.unpack_from(data, start + 40 + self._hash_size)
        if mode not in _MODES and mode != _SPARSE:
            raise ValueError("no such mode")
        at = start + 42 + self._hash_size + (2 if flags & _EXTENDED and self._version > 2 else 0)
        if self._version == 4:
            strip, at = _varint(data, at)
            if strip > len(self._name):
                raise ValueError("more is taken off a name than it has")
            begin = self._name[: len(self._name) - strip]
        else:
            begin = b""
        # A name shorter than the field is followed by a NUL; looking for that is right for any length.
        end = data.index(0, at, self._end)
        self._name = begin + data[at:end]
        self._at = end + 1 if self._version == 4 else start + (end - start + 8) // 8 * 8
        if self._at > self._end or end - at > _LONGEST:
            raise ValueError("cut short")
        return b"" if mode == _SPARSE else self._name

    def shared(self) -> str:
        """Return the hash of the shared part from the extensions behind the entries; empty without one."""
        found = ""
        while self._at < self._end:
            sign, size = _EXTENSION.unpack_from(self._data, self._at)
            self._at += _EXTENSION.size
            if size > self._end - self._at:
                raise ValueError("cut short")
            if sign == b"link":
                found = self._data[self._at : self._at + self._hash_size].hex()
            self._at += size
        return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte, at = data[at], at + 1
    value = byte & 127
    while byte & 128:
        byte, at = data[at], at + 1
        value = ((value + 1) << 7) | (byte & 127)
        if value > _LONGEST:
            raise ValueError("no such length")
    return value, at
