"""What is remembered of a directory between two scans, and how that is stored.

It only saves work: without it every file is read again, with the same result. Most directories are unchanged, and to
know that takes only the status of their files: what they held is decoded on first use.
"""

from __future__ import annotations

import os

import msgspec

from ...model.tree import FILE, LINK, Node

Stat = tuple[int, int, int, int, int]  # size, mtime_ns, ctime_ns, inode, mode
Known = tuple[Stat | None, Node]  # None: too fresh to trust, or not read
A_DIRECTORY: Stat = (0, 0, 0, 0, 0)  # its own status says nothing about its contents


class Folder:
    """A directory as it was last scanned."""

    __slots__ = ("_names", "_nodes", "digest", "index", "leaves", "listed", "others", "rules", "size")

    def __init__(self) -> None:
        self.leaves: dict[str, Stat | None] = {}  # the status of files and links
        self.others: dict[str, Known] = {}  # directories and gaps
        self.digest = b""
        self.rules = b""
        self.listed: Stat | None = None  # its own status when its names were listed
        self.index: tuple[Stat, bytes] | None = None  # of the repository in it: the file's status, what it names
        self.size = 0  # of the files directly in it
        self._names: dict[str, Known] | None = {}
        self._nodes = b""  # the leaves' nodes in order, encoded until first used

    @property
    def names(self) -> dict[str, Known]:
        """What is at every name."""
        if self._names is None:
            leaves = zip(self.leaves.items(), _read_nodes(self._nodes), strict=True)
            self._names = {name: (key, Node(*node)) for (name, key), node in leaves} | self.others
        return self._names

    def take(self, names: dict[str, Known]) -> None:
        """Take over what is there now."""
        self._names, self._nodes = names, b""
        self.leaves = {name: key for name, (key, node) in names.items() if node.kind in (FILE, LINK)}
        self.others = {name: known for name, known in names.items() if name not in self.leaves}
        self.size = sum(node.size for _, node in names.values() if node.kind == FILE)


class _Doc(msgspec.Struct, array_like=True):
    digest: bytes
    rules: bytes
    size: int
    listed: Stat | None
    plain: dict[str, Stat | None]  # leaves with ASCII names, decoded as they are
    odd: dict[bytes, Stat | None]
    others: list[tuple[bytes, Stat | None, str, int, int, bytes]]
    nodes: bytes
    index: tuple[Stat, bytes] | None = None


_read = msgspec.msgpack.Decoder(_Doc).decode
_read_nodes = msgspec.msgpack.Decoder(list[tuple[str, int, int, bytes]]).decode


def dump(folder: Folder) -> bytes:
    """Encode a directory as it was scanned."""
    plain = {name: key for name, key in folder.leaves.items() if name.isascii()}
    odd = [name for name in folder.leaves if name not in plain]
    others = [(os.fsencode(name), key, *node) for name, (key, node) in folder.others.items()]
    nodes = msgspec.msgpack.encode([folder.names[name][1] for name in (*plain, *odd)])
    named = {os.fsencode(name): folder.leaves[name] for name in odd}
    doc = _Doc(folder.digest, folder.rules, folder.size, folder.listed, plain, named, others, nodes, folder.index)
    return msgspec.msgpack.encode(doc)


def load(doc: bytes) -> Folder:
    """Decode a directory as somebody scanned it earlier."""
    said, folder = _read(doc), Folder()
    folder.digest, folder.rules, folder.size, folder.listed = said.digest, said.rules, said.size, said.listed
    folder.leaves = said.plain | {os.fsdecode(name): key for name, key in said.odd.items()}
    folder.others = {
        os.fsdecode(name): (key, Node(kind, mode, size, content))
        for name, key, kind, mode, size, content in said.others
    }
    folder._names, folder._nodes, folder.index = None, said.nodes, said.index
    return folder
