"""Trees: the contents of a directory at one moment, one object per directory.

A directory is a sorted list of nodes, encoded as MessagePack and named by the SHA-256 of those bytes, so equal
directories are stored once, and comparing two trees descends only where they differ. Names and link targets are
bytes, as the system gives them. A name that was not captured is a node too: a gap, with the reason.

A tree may come from somebody else, so ``fault`` checks it before it is trusted, and every walk over trees is bounded:
equal directories are one object, so a few hundred bytes can stand for more paths than any disk holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from typing import NamedTuple

import msgspec

from ..errors import Corrupt
from . import names

FILE, LINK, DIR, GAP, ABSENT = "f", "l", "d", "x", "a"
THERE = frozenset({FILE, LINK, DIR})  # the kinds that can be written
_KINDS = THERE | {GAP}  # the kinds that a tree may hold

MOST_NAMES, LARGEST = 500_000, 256 << 20  # names in one directory, and bytes of its record
MOST_PATHS, DEEPEST = 2_000_000, 100  # paths and levels in a whole tree
PERMISSIONS = 0o777
_DIGEST = 32


class Node(NamedTuple):
    """What is at a name: ``content`` is a digest (file, directory), the target (link) or the reason (gap).

    ``ABSENT`` means that nothing was there, in a scan of only some paths.
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
    """Encode a directory; equal directories give equal bytes."""
    return _encode([(name, *directory[name]) for name in sorted(directory)])


def decode(data: bytes) -> dict[bytes, Node]:
    """Decode a trusted directory."""
    return {line.name: Node(line.kind, line.mode, line.size, line.content) for line in _decode(data)}


def checked(data: bytes) -> dict[bytes, Node]:
    """Decode an untrusted directory; one that no scan can have made raises ``ValueError``.

    It may contain a control directory: whoever writes files leaves that out.
    """
    lines = _lines(data)
    before: bytes | None = None
    for line in lines:
        if what := _fault_of(line) or _misplaced(line.name, before):
            raise ValueError(what)
        before = line.name
    if _encode(lines) != data:
        raise ValueError("it is not in canonical form")
    return {line.name: Node(line.kind, line.mode, line.size, line.content) for line in lines}


def fault(data: bytes) -> str:
    """Explain why no scan can have made a directory, control directories included; empty if one can."""
    try:
        directory = checked(data)
    except ValueError as error:
        return str(error)
    for name, node in directory.items():
        if node.kind in THERE and names.is_control(name):
            return f"it contains {names.shown(name)}, which belongs to a repository (git, hg, svn or jj)"
    return ""


def _lines(data: bytes) -> list[_Line]:
    if len(data) > LARGEST:
        raise ValueError(f"it is larger than {LARGEST:,} bytes")
    try:
        lines = _decode(data)
    except msgspec.MsgspecError as error:
        raise ValueError(f"it cannot be decoded: {error}") from error
    if len(lines) > MOST_NAMES:
        raise ValueError(f"it contains more than {MOST_NAMES:,} names")
    return lines


def _misplaced(name: bytes, before: bytes | None) -> str:
    if before is None or name > before:
        return ""
    return f"it contains the name {names.shown(name)} twice" if name == before else "its names are not sorted"


def _fault_of(line: _Line) -> str:
    """Explain what is wrong with one line of a directory; empty if nothing is."""
    if what := names.fault(line.name):
        return f"it contains {what}"
    if line.kind not in _KINDS:
        return f"{names.shown(line.name)} has the unknown kind {line.kind[:20]!a}"
    if not 0 <= line.mode <= PERMISSIONS:
        return f"{names.shown(line.name)} has the mode {line.mode:#o}, which is more than permission bits"
    if not 0 <= line.size < 1 << 63:
        return f"{names.shown(line.name)} has the size {line.size}, which no file can have"
    if line.kind in (FILE, DIR) and len(line.content) != _DIGEST:
        return f"{names.shown(line.name)} names its content by {len(line.content)} bytes instead of {_DIGEST}"
    return _odd(line)


def _odd(line: _Line) -> str:
    """Explain which field of a line does not fit its kind; empty if all fit."""
    if line.kind == LINK and b"\0" in line.content:
        return f"{names.shown(line.name)} is a link whose target contains a NUL"
    if line.kind == LINK and (line.mode or line.size != len(line.content)):
        return f"{names.shown(line.name)} is a link with a mode, or with a size other than its target's"
    if line.kind in (DIR, GAP) and line.size:
        return f"{names.shown(line.name)} has the size {line.size}, but is not a file"
    return ""


def digest(data: bytes) -> bytes:
    """Return the digest that names a directory or a file's content."""
    return sha256(data).digest()


class Difference(NamedTuple):
    """A path that differs in two trees: the node in the old and in the new one, None for nothing."""

    path: bytes
    old: Node | None
    new: Node | None


def differences(load: Load, old: bytes, new: bytes) -> Iterator[Difference]:
    """Yield the paths in which two directories differ, a directory before its contents; equal parts are not read.

    Trees that are deeper, or have more paths, than any scan produces raise ``Corrupt`` before the first path.
    """
    if old != new:
        _compared(load, old, new, 0, {})
    yield from _differences(load, old, new, b"")


class Extent(NamedTuple):
    """The extent of a directory: how many paths, and how many levels of directories, are below it."""

    paths: int
    depth: int

    def fault(self, most: int = MOST_PATHS) -> str:
        """Explain in what it exceeds any scan; empty if it does not."""
        if self.depth > DEEPEST:
            return f"directories more than {DEEPEST} levels deep"
        return f"more than {most:,} paths" if self.paths > most else ""


def _compared(load: Load, old: bytes, new: bytes, depth: int, known: dict[tuple[bytes, bytes], Extent]) -> Extent:
    """Count what there is to compare, visiting each pair of directories once however many paths lead to it."""
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
        raise Corrupt(f"a snapshot contains {what}", what="snapshot")
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
    """Return the digest of the directory at a name; anything else counts as an empty directory."""
    return node.content if node is not None and node.kind == DIR else EMPTY


def shown(node: Node | None) -> Node | None:
    """Return a node as it is compared: of a directory only the mode, as its contents are compared separately."""
    return Node(DIR, node.mode, 0, b"") if node is not None and node.kind == DIR else node


def find(load: Load, root: bytes, path: bytes) -> Node | None:
    """Return the node at a path of a tree, or None."""
    here: Node | None = Node(DIR, 0, 0, root)
    for name in path.split(b"/"):
        if here is None or here.kind != DIR:
            return here if here is not None and here.kind == GAP else None
        here = load(here.content).get(name)
    return here
