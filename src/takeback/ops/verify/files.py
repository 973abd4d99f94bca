"""Checks of snapshots: everything that their trees lead to is there. Each tree is looked at once."""

from __future__ import annotations

import msgspec

from ... import codec
from ...model import tree
from ...storage.base import Tx
from .. import blobs, entries, snapshots
from .base import BACKUP, LOWEST, Check, Found, Key
from .derived import UNREADABLE

NEXT = "SELECT key, scope, body FROM entry WHERE key > ? AND kind = 'snapshot' ORDER BY key LIMIT 100"


def pages() -> tuple[tuple[Check, Key], ...]:
    """Give the check of snapshots for one run over a store."""
    sound = set[tuple[str, bytes]]()

    def page(tx: Tx, found: Found, after: Key) -> Key | None:
        rows = tx.all(NEXT, after)
        for key, scope, body in rows:
            found.checked += 1
            root = _root_of(body)
            if root is not None and (what := _fault(tx, scope, root, sound)):
                found.add("snapshot", f"snapshot {root[:12]} of entry {key & entries.MAX_SEQ}", what, BACKUP)
        return (rows[-1][0],) if rows else None

    return ((page, (LOWEST,)),)


def _root_of(body: bytes | None) -> str | None:
    try:
        return None if body is None else str(codec.decode(body)["root"])
    except UNREADABLE:
        return None  # reported with the entry


def _fault(tx: Tx, scope: str, root: str, sound: set[tuple[str, bytes]]) -> str:
    """Say what of a snapshot is missing or cannot be read."""
    try:
        waiting = [(b"", snapshots.read_root(tx, scope, root).tree)]
    except UNREADABLE as error:
        return f"its root cannot be read: {error}"
    while waiting:
        path, digest = waiting.pop()
        if (scope, digest) in sound:
            continue
        try:
            directory = tree.decode(blobs.read_whole(tx, scope, digest.hex()))
        except (*UNREADABLE, msgspec.MsgspecError):
            return f"the record of directory {path.decode('utf-8', 'replace') or '.'} is missing or damaged"
        for name, node in directory.items():
            if node.kind == tree.FILE and not blobs.exists(tx, scope, node.content.hex()):
                return f"the content of {(path + name).decode('utf-8', 'replace')} is missing"
            if node.kind == tree.DIR:
                waiting.append((path + name + b"/", node.content))
        sound.add((scope, digest))
    return ""
