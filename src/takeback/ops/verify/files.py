"""Checks of snapshots: everything that their trees lead to is there. Each tree is looked at once."""

from __future__ import annotations

from ... import codec
from ...model import tree
from ...storage.base import Tx
from ...tables.entries import EntryRow
from .. import blobs, snapshots
from .base import BACKUP, UNREADABLE, Fault


class Trees:
    """The trees of snapshots, with those that were found whole in this run over a store."""

    def __init__(self) -> None:
        self._whole = set[tuple[str, bytes]]()

    def fault(self, tx: Tx, row: EntryRow, lost: str | None = None) -> Fault | None:
        """Say what is missing of the files that an intact snapshot names; ``lost`` is what is known to be lost."""
        if row.kind != snapshots.KIND or row.body is None or lost is not None:
            return None
        root = codec.decode(row.body)["root"]
        what = self._missing(tx, row.scope, root)
        return Fault("snapshot", f"of snapshot {root[:12]} {what}", BACKUP) if what else None

    def _missing(self, tx: Tx, scope: str, root: str) -> str:
        try:
            waiting = [(b"", snapshots.read_root(tx, scope, root).tree)]
        except UNREADABLE as error:
            return f"the root cannot be read: {error}"
        while waiting:
            path, digest = waiting.pop()
            if (scope, digest) in self._whole:
                continue
            try:
                directory = tree.decode(blobs.read_whole(tx, scope, digest.hex()))
            except UNREADABLE:
                return f"the record of directory {path.decode('utf-8', 'replace') or '.'} is missing or damaged"
            for name, node in directory.items():
                if node.kind == tree.FILE and not blobs.exists(tx, scope, node.content.hex()):
                    return f"the content of {(path + name).decode('utf-8', 'replace')} is missing"
                if node.kind == tree.DIR:
                    waiting.append((path + name + b"/", node.content))
            self._whole.add((scope, digest))
        return ""
