"""Trees: what a directory held at one moment, one object per directory.

A directory is a sorted list of nodes, written as MessagePack and named by the SHA-256 of those bytes, so directories
that are equal are stored once and two trees are compared by descending only where they differ. Names and the targets
of links are bytes, as the system gives them. A name that was not captured is a node too: a gap, with the reason.

A tree may have been written by somebody else, so ``fault`` judges one before it is believed, and whoever walks trees
does so within bounds: directories that are equal are one object, so a few hundred bytes can stand for more paths than
any disk has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from typing import NamedTuple

import msgspec

from ..errors import Corrupt
from . import names

FILE, LINK, DIR, GAP, ABSENT = "f", "l", "d", "x", "a"
THERE = frozenset({FILE, LINK, DIR})  # what can be written
_KINDS = THERE | {GAP}  # of a tree

MOST_NAMES, LARGEST = 500_000, 256 << 20  # of one directory, and bytes of its record
MOST_PATHS, DEEPEST = 2_000_000, 100  # of a whole tree
PERMISSIONS = 0o777
_DIGEST = 32


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


def checked(data: bytes) -> dict[bytes, Node]:
    """Read a directory that somebody else may have written; one that no scan can have made raises ``ValueError``.

    A control directory may be in it: whoever writes files leaves it out.
    """
    lines = _lines(data)
    before: bytes | None = None
    for line in lines:
        if what := _fault_of(line) or _misplaced(line.name, before):
            raise ValueError(what)
        before = line.name
    if _encode(lines) != data:
        raise ValueError("it is not written in the one form that a directory has")
    return {line.name: Node(line.kind, line.mode, line.size, line.content) for line in lines}


def fault(data: bytes) -> str:
    """Say why no scan can have made a directory, a control directory included; empty if one can."""
    try:
        directory = checked(data)
    except ValueError as error:
        return str(error)
    for name, node in directory.items():
        if node.kind in THERE and names.is_control(name):
            return f"it holds {names.shown(name)}, which belongs to a repository (git, hg, svn or jj)"
    return ""


def _lines(data: bytes) -> list[_Line]:
    if len(data) > LARGEST:
        raise ValueError(f"it is larger than {LARGEST:,} bytes")
    try:
        lines = _decode(data)
    except msgspec.MsgspecError as error:
        raise ValueError(f"it cannot be read: {error}") from error
    if len(lines) > MOST_NAMES:
        raise ValueError(f"it holds more than {MOST_NAMES:,} names")
    return lines


def _misplaced(name: bytes, before: bytes | None) -> str:
    if before is None or name > before:
        return ""
    return f"it holds the name {names.shown(name)} twice" if name == before else "its names are not sorted"


def _fault_of(line: _Line) -> str:
    """Say what is wrong with one name of a directory."""
    if what := names.fault(line.name):
        return f"it holds {what}"
    if line.kind not in _KINDS:
        return f"{names.shown(line.name)} is of the unknown kind {line.kind[:20]!a}"
    if not 0 <= line.mode <= PERMISSIONS:
        return f"{names.shown(line.name)} has the mode {line.mode:#o}, which is more than permissions"
    if not 0 <= line.size < 1 << 63:
        return f"{names.shown(line.name)} has the size {line.size}, which no file has"
    if line.kind in (FILE, DIR) and len(line.content) != _DIGEST:
        return f"{names.shown(line.name)} names its content by {len(line.content)} bytes instead of {_DIGEST}"
    return _odd(line)


def _odd(line: _Line) -> str:
    """Say which field of a name is not what its kind has."""
    if line.kind == LINK and b"\0" in line.content:
        return f"{names.shown(line.name)} is a link whose target holds a NUL"
    if line.kind == LINK and (line.mode or line.size != len(line.content)):
        return f"{names.shown(line.name)} is a link with a mode, or with another size than its target"
    if line.kind in (DIR, GAP) and line.size:
        return f"{names.shown(line.name)} has the size {line.size}, and is no file"
    return ""


def digest(data: bytes) -> bytes:
    """Name a directory or a content."""
    return sha256(data).digest()


class Difference(NamedTuple):
    """A path that two trees have otherwise: what the first and what the second holds there, None for nothing."""

    path: bytes
    old: Node | None
    new: Node | None


def differences(load: Load, old: bytes, new: bytes) -> Iterator[Difference]:
    """Give the paths in which two directories differ, a directory before what is in it; equal parts are not read.

    Trees that are deeper, or hold more paths, than any scan gives raise ``Corrupt`` before the first path.
    """
    if old != new:
        _compared(load, old, new, 0, {})
    yield from _differences(load, old, new, b"")


class Extent(NamedTuple):
    """What a directory leads to: how many paths, and how many levels of directories below it."""

    paths: int
    depth: int

    def fault(self, most: int = MOST_PATHS) -> str:
        """Say whether that is more than any scan gives; empty if not."""
        if self.depth > DEEPEST:
            return f"directories more than {DEEPEST} levels deep"
        return f"more than {most:,} paths" if self.paths > most else ""


def _compared(load: Load, old: bytes, new: bytes, depth: int, known: dict[tuple[bytes, bytes], Extent]) -> Extent:
    """Count what there is to compare, each pair of directories once however many paths lead to it."""
    found = known.get((old, new))
    if found is None and depth <= DEEPEST:
        before, after = load(old), load(new)
        paths, deepest = len(before.keys() | after.keys()), 0
        for name in before.keys() | after.keys():
            pair = _inner(before.get(name)), _inner(after.get(name))
            if pair[0] != pair[1]:
                below = _compared(load, *pair, depth + 1, known)
                paths, deepest = paths + below.paths, max(deepest, below.depth + 1)
        found = known[old, new] = Extent(paths, deepest)
    here = Extent(0, depth) if found is None else Extent(found.paths, depth + found.depth)
    if what := here.fault(2 * MOST_PATHS):
        raise Corrupt(f"a snapshot holds {what}", what="snapshot")
    assert found is not None
    return found


def _differences(load: Load, old: bytes, new: bytes, at: bytes) -> Iterator[Difference]:
    if old == new:
        return
    before, after = load(old), load(new)
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name), after.get(name)
        if was == now:
            continue
        path = at + name
        if shown(was) != shown(now):
            yield Difference(path, was, now)
        yield from _differences(load, _inner(was), _inner(now), path + b"/")


def _inner(node: Node | None) -> bytes:
    """Give the directory at a name; anything else holds nothing."""
    return node.content if node is not None and node.kind == DIR else EMPTY


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
