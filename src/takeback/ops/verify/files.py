"""Checks of snapshots: everything that their trees lead to is there, and could have come from a scan.

Each directory is judged once, however many paths lead to it: what is below it is summed up in an ``Extent``, so a tree
whose directories repeat each other is known to be too large without walking its paths.
"""

from __future__ import annotations

from typing import Any

from ... import codec
from ...files import roots, snapshots
from ...model import names, tree
from ...model.tree import Extent
from ...storage.base import Tx, scalar
from ...tables.entries import EntryRow
from ...tables.history import OPERATION, OperationRow
from ...tables.sessions import DETAIL
from .. import blobs
from .base import BACKUP, UNREADABLE, Check, Fault, Rule
from .history import operation_fault
from .sessions import detail_fault

SIZE = "SELECT size FROM blob WHERE scope = ? AND hash = ?"
CHUNKS = "SELECT chunks FROM blob WHERE scope = ? AND hash = ?"


class Unsound(Exception):
    """A snapshot leads to what no scan made, or to what is not there."""

    def __init__(self, what: str, *, missing: bool = False) -> None:
        super().__init__(what)
        self.missing = missing


class _Open:
    """A directory on the way: those in it that still wait, and what is known of the others."""

    def __init__(self, path: bytes, digest: bytes, directory: tree.Directory) -> None:
        self.path, self.digest = path, digest
        self.waiting = [(name, node.content) for name, node in directory.items() if node.kind == tree.DIR]
        self.paths, self.depth = len(directory), 0

    def add(self, below: Extent) -> None:
        """Count what a directory in it leads to."""
        self.paths, self.depth = self.paths + below.paths, max(self.depth, below.depth + 1)
        _require_bounded(Extent(self.paths, self.depth))


class TreeChecks:
    """The trees of snapshots, with those that were found sound in this run over a store."""

    def __init__(self) -> None:
        self._sound = dict[tuple[str, bytes, bool], Extent]()

    def fault(self, tx: Tx, row: EntryRow, *, lost: bool = False) -> Fault | None:
        """Return what is wrong with the files that an intact entry names, if it names any.

        Where a repair recorded that some of them are ``lost``, what is missing is not said again.
        """
        if row.kind not in snapshots.NEEDS:
            return None
        try:
            body = _body(tx, row)
            if body is None:
                return None
            if row.kind == snapshots.ANNOUNCED:
                return _announced_fault(body)
            found = (self.root_fault(tx, row.scope, root, lost=lost) for root in snapshots.NEEDS[row.kind](body))
            return next(filter(None, found), None)
        except UNREADABLE as error:
            return Fault("snapshot", f"the files that it names cannot be read: {error}", BACKUP)

    def root_fault(self, tx: Tx, scope: str, root: str, *, lost: bool = False) -> Fault | None:
        """Return what is wrong with a snapshot, by the hash of its root; a copy calls this before it believes one."""
        try:
            self._judge(tx, scope, _root(tx, scope, root).tree, lost)
        except Unsound as error:
            if lost and error.missing:
                return None
            return Fault("snapshot", f"of snapshot {root[:12]} {error}", BACKUP)
        return None

    def _judge(self, tx: Tx, scope: str, top: bytes, lost: bool) -> None:
        """Walk from a directory down, each one once, and sum up what it leads to on the way back."""
        stack = [] if (scope, top, lost) in self._sound else [_opened(tx, scope, b"", top, lost)]
        while stack:
            here = stack[-1]
            if not here.waiting:
                found = self._sound[scope, here.digest, lost] = Extent(here.paths, here.depth)
                stack.pop()
                if stack:
                    stack[-1].add(found)
                continue
            name, digest = here.waiting.pop()
            known = self._sound.get((scope, digest, lost))
            if known is not None:
                here.add(known)
            else:
                _require_bounded(Extent(0, len(stack)))  # before more is read: a chain may be very long
                stack.append(_opened(tx, scope, here.path + name + b"/", digest, lost))


def _require_bounded(extent: Extent) -> None:
    if what := extent.fault():
        raise Unsound(f"the tree holds {what}")


def _root(tx: Tx, scope: str, root: str) -> roots.Root:
    try:
        if _is_too_large(tx, scope, root):
            raise Unsound("the root is too large")
        found = roots.read(tx, scope, root)
    except UNREADABLE as error:
        raise Unsound(f"the root cannot be read: {error}", missing=True) from error
    if what := roots.fault(found):
        raise Unsound(f"the root is not sound: {what}")
    return found


def _is_too_large(tx: Tx, scope: str, content_hash: str) -> bool:
    """Whether a record is more than is read into memory."""
    return (scalar(tx, CHUNKS, (scope, content_hash)) or 0) * blobs.CHUNK > tree.LARGEST


def _opened(tx: Tx, scope: str, path: bytes, digest: bytes, lost: bool) -> _Open:
    """Read a directory, judge it, and see that the contents of its files are there, or are known to be lost."""
    where = names.shown(path[:-1]) if path else "."
    if digest == tree.EMPTY:  # need not be stored
        return _Open(path, digest, {})
    try:
        if _is_too_large(tx, scope, digest.hex()):
            raise Unsound(f"the record of directory {where} is larger than {tree.LARGEST:,} bytes")
        data = blobs.read_whole(tx, scope, digest.hex())
    except UNREADABLE:
        if lost:
            return _Open(path, digest, {})
        raise Unsound(f"the record of directory {where} is missing or damaged") from None
    if what := tree.fault(data):
        raise Unsound(f"the record of directory {where} is not sound: {what}")
    directory = tree.decode(data)
    for name, node in directory.items():
        size = scalar(tx, SIZE, (scope, node.content.hex())) if node.kind == tree.FILE else node.size
        if size != node.size and not (lost and size is None):
            what = "is missing" if size is None else f"has {size:,} bytes instead of {node.size:,}"
            raise Unsound(f"the content of {names.shown(path + name)} {what}")
    return _Open(path, digest, directory)


def _body(tx: Tx, row: EntryRow) -> dict[str, Any] | None:
    """Read what an entry says, even from a blob; None if that was redacted or lost."""
    spilled = row.spilled[0]
    data = blobs.read_whole(tx, row.scope, spilled) if spilled else row.body
    return None if data is None else codec.decode(data)


def _announced_fault(body: dict[str, Any]) -> Fault | None:
    """Return what is wrong with the paths of announced files, None if nothing is."""
    for path in body["set"]:
        if what := names.path_fault(path.encode("utf-8", "surrogateescape")):
            return Fault("snapshot", f"a file is announced under a path that is none: it holds {what}", BACKUP)
    return None


# ---------------------------------------------------------------------- roots that are named beside entries


def named_beside(trees: TreeChecks) -> tuple[Check, ...]:
    """Return the rules of operations, which may name roots that no entry names."""

    def operation(tx: Tx, row: OperationRow) -> str | Fault | None:
        fault: str | Fault | None = operation_fault(tx, row)
        for doc in (row.before, row.after) if not fault else ():
            *_, root = (codec.decode(doc).get("files") or {}).get("scan") or (None,)
            fault = fault or _beside_fault(tx, trees, row.scope, root)
        return fault

    return (
        Rule(DETAIL, detail_fault, "detail"),
        Rule(OPERATION, operation, "operation"),
    )


def _beside_fault(tx: Tx, trees: TreeChecks, scope: str, root: object) -> Fault | None:
    """Return what is wrong with a root; one that is not there is missed by whoever asks for it."""
    if not isinstance(root, str) or not blobs.exists(tx, scope, root):
        return None
    return trees.root_fault(tx, scope, root, lost=True)
