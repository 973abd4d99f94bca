"""What is remembered of a directory between two looks, and how that is written down.

It only saves work: whoever has none of it reads every file again and finds the same. Most directories are as they were,
and to find that takes only the status of the files in them: what they held is decoded when it is first asked for.
"""

from __future__ import annotations

import os

import msgspec

from ...model.tree import FILE, LINK, Node

Stat = tuple[int, int, int, int, int]  # size, mtime_ns, ctime_ns, inode, mode
Known = tuple[Stat | None, Node]  # None: too fresh to trust, or not looked at
A_DIRECTORY: Stat = (0, 0, 0, 0, 0)  # its own status says nothing of what is in it


class Folder:
    """A directory as it was last seen."""

    __slots__ = ("_names", "_nodes", "digest", "leaves", "listed", "others", "rules", "size")

    def __init__(self) -> None:
        self.leaves: dict[str, Stat | None] = {}  # the status of files and links
        self.others: dict[str, Known] = {}  # directories, and what was not captured
        self.digest = b""
        self.rules = b""
        self.listed: Stat | None = None  # its own status when its names were listed
        self.size = 0  # of the files in it, without those further down
        self._names: dict[str, Known] | None = {}
        self._nodes = b""  # what the leaves held, in their order, until that is asked for

    @property
    def names(self) -> dict[str, Known]:
        """What is at every name."""
        if self._names is None:
            leaves = zip(self.leaves.items(), _read_nodes(self._nodes), strict=True)
            self._names = {name: (key, Node(*node)) for (name, key), node in leaves} | self.others
        return self._names

    def take(self, names: dict[str, Known]) -> None:
        """Take in what is there now."""
        self._names, self._nodes = names, b""
        self.leaves = {name: key for name, (key, node) in names.items() if node.kind in (FILE, LINK)}
        self.others = {name: known for name, known in names.items() if name not in self.leaves}
        self.size = sum(node.size for _, node in names.values() if node.kind == FILE)


class _Doc(msgspec.Struct, array_like=True):
    digest: bytes
    rules: bytes
    size: int
    listed: Stat | None
    plain: dict[str, Stat | None]  # leaves whose names are ASCII: read as they are
    odd: dict[bytes, Stat | None]
    others: list[tuple[bytes, Stat | None, str, int, int, bytes]]
    nodes: bytes


_read = msgspec.msgpack.Decoder(_Doc).decode
_read_nodes = msgspec.msgpack.Decoder(list[tuple[str, int, int, bytes]]).decode


def dump(folder: Folder) -> bytes:
    """Write down a directory as it was seen."""
    plain = {name: key for name, key in folder.leaves.items() if name.isascii()}
    odd = [name for name in folder.leaves if name not in plain]
    others = [(os.fsencode(name), key, *node) for name, (key, node) in folder.others.items()]
    nodes = msgspec.msgpack.encode([folder.names[name][1] for name in (*plain, *odd)])
    named = {os.fsencode(name): folder.leaves[name] for name in odd}
    doc = _Doc(folder.digest, folder.rules, folder.size, folder.listed, plain, named, others, nodes)
    return msgspec.msgpack.encode(doc)


def load(doc: bytes) -> Folder:
    """Read a directory as it was seen by somebody earlier."""
    said, folder = _read(doc), Folder()
    folder.digest, folder.rules, folder.size, folder.listed = said.digest, said.rules, said.size, said.listed
    folder.leaves = said.plain | {os.fsdecode(name): key for name, key in said.odd.items()}
    folder.others = {
        os.fsdecode(name): (key, Node(kind, mode, size, content))
        for name, key, kind, mode, size, content in said.others
    }
    folder._names, folder._nodes = None, said.nodes
    return folder
