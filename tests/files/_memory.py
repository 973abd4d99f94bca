"""A place to keep what a scan reads: a dict."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from takeback.model import tree
from takeback.model.tree import DIR, Node


class Memory:
    """Keeps contents in a dict."""

    def __init__(self) -> None:
        self.kept: dict[bytes, bytes] = {tree.EMPTY: tree.encode({})}

    def has(self, digest: bytes) -> bool:
        return digest in self.kept

    def put(self, digest: bytes, data: bytes) -> None:
        assert sha256(data).digest() == digest or tree.digest(data) == digest
        self.kept[digest] = data

    def stream(self, pieces: Iterable[bytes]) -> bytes:
        data = b"".join(pieces)
        self.kept[sha256(data).digest()] = data
        return sha256(data).digest()

    def load(self, digest: bytes) -> dict[bytes, Node]:
        return tree.decode(self.kept[digest])

    def flat(self, root: bytes, below: bytes = b"") -> dict[bytes, Node]:
        """All nodes of a tree by path."""
        found: dict[bytes, Node] = {}
        for name, node in self.load(root).items():
            found[below + name] = node
            if node.kind == DIR:
                found |= self.flat(node.content, below + name + b"/")
        return found
