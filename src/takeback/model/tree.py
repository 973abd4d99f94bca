"""Trees: what a directory held at one moment, one object per directory.

A directory is a sorted list of nodes, written as MessagePack and named by the SHA-256 of those bytes, so directories
that are equal are stored once and two trees are compared by descending only where they differ. Names and the targets
of links are bytes, as the system gives them. A name that was not captured is a node too: a gap, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from typing import NamedTuple

import msgspec

FILE, LINK, DIR, GAP, ABSENT = "f", "l", "d", "x", "a"


class Node(NamedTuple):
    """What is at a name: ``content`` is a digest (file, directory), the target (link) or the reason (gap).

    ``ABSENT`` says that nothing was there, where only some paths were looked at.
    """

    kind: str
    mode: int
    size: int
    content: bytes


Directory = Mapping[bytes, Node]
Load = Callable[[bytes], Directory]  # by digest


class _Line(msgspec.Struct, frozen=True, array_like=True):
    name: bytes
    kind: str
    mode: int
    size: int
    content: bytes


_decode = msgspec.msgpack.Decoder(list[_Line]).decode
_encode = msgspec.msgpack.Encoder().encode
EMPTY = sha256(_encode([])).digest()


def encode(directory: Directory) -> bytes:
    """Write a directory as bytes; equal directories give equal bytes."""
    return _encode([(name, *directory[name]) for name in sorted(directory)])


def decode(data: bytes) -> dict[bytes, Node]:
    """Read a directory."""
    return {line.name: Node(line.kind, line.mode, line.size, line.content) for line in _decode(data)}


def digest(data: bytes) -> bytes:
    """Name a directory or a content."""
    return sha256(data).digest()


class Difference(NamedTuple):
    """A path that two trees have otherwise: what the first and what the second holds there, None for nothing."""

    path: bytes
    old: Node | None
    new: Node | None


def differences(load: Load, old: bytes, new: bytes, *, at: bytes = b"") -> Iterator[Difference]:
    """Give the paths in which two directories differ, a directory before what is in it; equal parts are not read."""
    if old == new:
        return
    before, after = load(old), load(new)
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name), after.get(name)
        if was == now:
            continue
        path = at + name
        inner_old = was.content if was is not None and was.kind == DIR else EMPTY
        inner_new = now.content if now is not None and now.kind == DIR else EMPTY
        if shown(was) != shown(now):
            yield Difference(path, was, now)
        yield from differences(load, inner_old, inner_new, at=path + b"/")


def shown(node: Node | None) -> Node | None:
    """Give a node as it is compared: a directory is its mode, what is in it is compared by itself."""
    return Node(DIR, node.mode, 0, b"") if node is not None and node.kind == DIR else node


def find(load: Load, root: bytes, path: bytes) -> Node | None:
    """Give what a tree holds at a path, or None."""
    here: Node | None = Node(DIR, 0, 0, root)
    for name in path.split(b"/"):
        if here is None or here.kind != DIR:
            return here if here is not None and here.kind == GAP else None
        here = load(here.content).get(name)
    return here
