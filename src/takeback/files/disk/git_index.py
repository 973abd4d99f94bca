"""What a git repository tracks: the names in its index, read from the file and never by running git.

Reads versions 2, 3 and 4, of repositories with SHA-1 and SHA-256. Of a split index the names of the shared part count
too, those that were removed since included. Directories of a sparse index are passed over. The index is somebody else's
file: one that is damaged, too large or forged names nothing, and no name in it leads out of the repository.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import NamedTuple

from ...model import tree
from . import read, unchanged
from .cache import Stat

_LARGEST = 128 << 20
_LONGEST = 4096
_HASHES = 20, 32  # bytes
_HEADER, _EXTENSION = struct.Struct(">4sII"), struct.Struct(">4sI")
_MODES = frozenset(struct.pack(">I", mode) for mode in (0o100644, 0o100755, 0o100664, 0o120000, 0o160000))
_SPARSE = struct.pack(">I", 0o040000)
_EXTENDED = 0x40  # in the first byte of an entry's flags
_is_odd = re.compile(rb"(?:\A|/)\.{0,2}(?:/|\Z)").search  # an empty name, or one that leads elsewhere


class GitIndex:
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
        end = len(data) - hash_size  # where the file's own hash begins
        found, at = (_packed if version == 4 else _entries)(data, count, hash_size, end)
        shared = _shared(data, at, end, hash_size)
    except (struct.error, ValueError, IndexError):
        return None
    return Parsed([each for each in found if not _is_odd(each)], shared)


def _entries(data: bytes, count: int, hash_size: int, end: int) -> tuple[list[bytes], int]:
    """Read entries of versions 2 and 3; each ends with one to eight NULs."""
    found, at, fixed = list[bytes](), _HEADER.size, 42 + hash_size
    for _ in range(count):
        begin = at + fixed + (2 if data[at + fixed - 2] & _EXTENDED else 0)
        stop = data.index(0, begin, end)
        if (mode := data[at + 24 : at + 28]) in _MODES:
            found.append(data[begin:stop])
        elif mode != _SPARSE:
            raise ValueError("no such mode")
        at += (stop - at + 8) // 8 * 8
    return found, at


def _packed(data: bytes, count: int, hash_size: int, end: int) -> tuple[list[bytes], int]:
    """Read entries of version 4, whose names continue those before."""
    found, at, fixed, name = list[bytes](), _HEADER.size, 42 + hash_size, b""
    for _ in range(count):
        begin = at + fixed + (2 if data[at + fixed - 2] & _EXTENDED else 0)
        less, begin = _varint(data, begin)
        stop = data.index(0, begin, end)
        if less > len(name) or len(name) - less + stop - begin > _LONGEST:
            raise ValueError("no such name")  # or names that grow would fill the memory
        name = name[: len(name) - less] + data[begin:stop]
        if (mode := data[at + 24 : at + 28]) in _MODES:
            found.append(name)
        elif mode != _SPARSE:
            raise ValueError("no such mode")
        at = stop + 1
    return found, at


def _shared(data: bytes, at: int, end: int, hash_size: int) -> str:
    """Return the hash of the shared part from the extensions behind the entries; empty without one."""
    found = ""
    while at < end:
        sign, size = _EXTENSION.unpack_from(data, at)
        at += _EXTENSION.size
        if sign == b"link":
            found = data[at : at + hash_size].hex()
        at += size
    if at != end:
        raise ValueError("cut short")
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
