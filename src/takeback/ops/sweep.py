"""Garbage collection: erasing content that nothing needs any longer.

Content is needed if an entry or a document links it, or if the tree of a linked snapshot or of a scan leads to it.
Uploads in progress are spared, and so is content stored recently: somebody may be about to link it. Finding and erasing
are one transaction, and each sweep is counted, so that whoever scanned a workspace before it scans again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ..errors import Corrupt
from ..files import roots, snapshots
from ..model import tree
from ..model.purge import Pruned
from ..storage.base import Tx, scalars
from . import blobs, documents

LINKED = "SELECT DISTINCT hash FROM link WHERE scope = ?"
IN_DOCUMENTS = """SELECT hash FROM document WHERE scope = ? AND hash IS NOT NULL
AND (expires_ms IS NULL OR expires_ms > ?)"""
ROOTS = """SELECT DISTINCT l.hash FROM link l CROSS JOIN entry e
WHERE l.scope = ? AND e.scope = l.scope AND e.key = l.key AND e.kind = 'snapshot'"""
SCANNED = "SELECT DISTINCT root FROM scan WHERE scope = ? AND root IS NOT NULL"
STORED = "SELECT hash, size, created_ms FROM blob WHERE scope = ? AND hash IS NOT NULL"


def sweep(tx: Tx, scope: str, *, before_ms: int, now_ms: int, dry_run: bool) -> Pruned:
    """Erase content that nothing needs and that was stored before a time, or with ``dry_run`` only count it."""
    while not dry_run and documents.clear_expired(tx, scope, now_ms=now_ms):
        pass
    needed = needed_in(tx, scope, now_ms)
    doomed = [
        (name, size) for name, size, at_ms in tx.all(STORED, (scope,)) if name not in needed and at_ms < before_ms
    ]
    if doomed and not dry_run:
        snapshots.count_sweep(tx, scope)
        for name, _ in doomed:
            blobs.drop(tx, scope, name)
    return Pruned(len(doomed), sum(size for _, size in doomed), dry_run)


def needed_in(tx: Tx, scope: str, now_ms: int) -> set[str]:
    """Return the hashes of all content of a scope that something needs."""
    needed = {
        *scalars(tx, LINKED, (scope,)),
        *scalars(tx, SCANNED, (scope,)),
        *scalars(tx, IN_DOCUMENTS, (scope, now_ms)),
    }
    needed.update(each.hex() for each in reached(tx, scope, _all_roots(tx, scope)))
    return needed


def _all_roots(tx: Tx, scope: str) -> set[str]:
    """Return the roots that snapshots of sessions and scans of workspaces name."""
    return {*scalars(tx, ROOTS, (scope,)), *scalars(tx, SCANNED, (scope,))}


def drop(tx: Tx, scope: str, hashes: Iterable[str], roots: Iterable[str]) -> int:
    """Erase what deleted entries linked and what their snapshots led to; return how many contents were erased.

    Content that something else needs stays: another link, or a file in another snapshot with the same content.
    """
    candidates = {*hashes, *(each.hex() for each in reached(tx, scope, roots))}
    gone = {each for each in candidates if not blobs.is_linked(tx, scope, each)}
    if gone:
        kept = _all_roots(tx, scope)
        gone -= {*kept, *(each.hex() for each in reached(tx, scope, kept))}
    if gone:
        snapshots.count_sweep(tx, scope)
    return sum(blobs.drop(tx, scope, name) for name in sorted(gone))


def reached(tx: Tx, scope: str, roots: Iterable[str]) -> Iterator[bytes]:
    """Yield the digests of all trees and files that roots lead to, each once; damaged ones lead nowhere."""
    known = set[bytes]()
    waiting = [each for each in (_tree_of(tx, scope, root) for root in roots) if each is not None]
    while waiting:
        digest = waiting.pop()
        if digest in known:
            continue
        known.add(digest)
        yield digest
        for node in _directory(tx, scope, digest).values():
            if node.kind == tree.DIR:
                waiting.append(node.content)
            elif node.kind == tree.FILE and node.content not in known:
                known.add(node.content)
                yield node.content


def _tree_of(tx: Tx, scope: str, root: str) -> bytes | None:
    try:
        return roots.read(tx, scope, root).tree
    except Corrupt:
        return None


def _directory(tx: Tx, scope: str, digest: bytes) -> tree.Directory:
    try:
        return tree.decode(blobs.read_whole(tx, scope, digest.hex()))
    except (Corrupt, msgspec.MsgspecError):
        return {}
