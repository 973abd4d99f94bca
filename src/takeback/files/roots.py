"""Roots: a whole workspace at one moment, as one content that names its tree."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ..errors import Corrupt
from ..model import tree
from ..model.tree import Directory, Load
from ..ops import blobs
from ..storage.base import Tx


class Root(msgspec.Struct, frozen=True, array_like=True):
    """A whole workspace at one moment."""

    tree: bytes
    size: int
    missed: list[tuple[bytes, str]]  # the first few paths that were not captured, with the reasons
    missed_count: int


_decode = msgspec.msgpack.Decoder(Root).decode


def encode(root: Root) -> bytes:
    """Encode a root."""
    return msgspec.msgpack.encode(root)


def read(tx: Tx, scope: str, content_hash: str) -> Root:
    """Read a root; raises ``Corrupt`` if it is missing, and never returns an empty one instead."""
    try:
        return _decode(blobs.read_whole(tx, scope, content_hash))
    except msgspec.MsgspecError as error:
        raise Corrupt("a snapshot of files cannot be read", what=f"blob {content_hash}") from error


def fault(root: Root) -> str:
    """Return why no scan can have made a root; empty if one can."""
    if len(root.tree) != len(tree.EMPTY):
        return f"it names its tree by {len(root.tree)} bytes instead of {len(tree.EMPTY)}"
    if root.size < 0 or root.missed_count < len(root.missed):
        return "its size or its count of what was not captured is too small"
    return ""


def missed(root: Root) -> Iterator[str]:
    """Yield what was not captured, for people: the first few paths with the reasons, and how many more."""
    for path, reason in root.missed:
        yield f"{path.decode('utf-8', 'surrogateescape')} ({reason})"
    if root.missed_count > len(root.missed):
        yield f"... and {root.missed_count - len(root.missed):,} more"


def loading(tx: Tx, scope: str) -> Load:
    """Return what reads directories by their digests in a transaction."""

    def load(digest: bytes) -> Directory:
        return {} if digest == tree.EMPTY else directory(blobs.read_whole(tx, scope, digest.hex()), digest)

    return load


def directory(data: bytes, digest: bytes) -> Directory:
    """Decode a directory; raises ``Corrupt`` if no scan can have made it."""
    try:
        return tree.checked(data)
    except ValueError as error:
        raise Corrupt(f"the record of a directory is damaged: {error}", what=f"blob {digest.hex()}") from error
