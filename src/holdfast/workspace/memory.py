"""What is remembered of a directory between two looks, and how that is written down.

It only saves work: whoever has none of it reads every file again and finds the same.
"""

from __future__ import annotations

import os

import msgspec

from ..model.tree import GAP, Node

Stat = tuple[int, int, int, int, int]  # size, mtime_ns, ctime_ns, inode, mode
Known = tuple[Stat | None, Node]  # None: too fresh to trust, or not looked at


class Folder:
    """A directory as it was last seen."""

    __slots__ = ("digest", "gaps", "listed", "names", "rules", "size")

    def __init__(self) -> None:
        self.names: dict[str, Known] = {}
        self.gaps: tuple[str, ...] = ()  # those of the names that were not captured
        self.digest = b""
        self.rules = b""
        self.listed: Stat | None = None  # its own times when its names were listed; not written down
        self.size = 0  # of the files in it, without those further down


class _Doc(msgspec.Struct, array_like=True):
    digest: bytes
    rules: bytes
    size: int
    names: list[tuple[bytes, Stat | None, str, int, int, bytes]]


_read = msgspec.msgpack.Decoder(_Doc).decode


def dump(folder: Folder) -> bytes:
    """Write down a directory as it was seen."""
    names = [(os.fsencode(name), key, *node) for name, (key, node) in folder.names.items()]
    return msgspec.msgpack.encode((folder.digest, folder.rules, folder.size, names))


def load(doc: bytes) -> Folder:
    """Read a directory as it was seen by somebody earlier."""
    said, folder = _read(doc), Folder()
    folder.digest, folder.rules, folder.size = said.digest, said.rules, said.size
    folder.names = {
        os.fsdecode(name): (key, Node(kind, mode, size, content)) for name, key, kind, mode, size, content in said.names
    }
    folder.gaps = tuple(name for name, (_, node) in folder.names.items() if node.kind == GAP)
    return folder
