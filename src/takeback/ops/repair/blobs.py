"""Repair of blobs: a record is made again if its chunks give the hash, the rest is erased and named.

Content is what its hash says or it is nothing: chunks without a record are kept if an entry needs what they hold.
"""

from __future__ import annotations

from ...errors import Corrupt
from ...tables.content import BLOB, BlobRow
from ..verify import content
from ..verify.content import CHUNKS_OF
from .base import PARTLY, Repair

OWNERS = "SELECT DISTINCT scope, blob_id FROM chunk"
SCOPES = "SELECT DISTINCT scope FROM chunk WHERE blob_id = ?"
DROP = "DELETE FROM chunk WHERE blob_id = ?"
DROP_OF = "DELETE FROM chunk WHERE scope = ? AND blob_id = ? AND n >= ?"
FOUND = "SELECT blob_id FROM blob WHERE scope = ? AND hash = ?"
NEEDED = "SELECT 1 FROM link WHERE scope = ? AND hash = ? LIMIT 1"
SPILLED = "SELECT 1 FROM entry WHERE scope = ? AND instr(spill, ?) LIMIT 1"


def fix_blobs(fix: Repair) -> None:
    """Check all blobs against their content."""
    for row, sound, _ in fix.rows(BLOB):
        fault = "" if sound else "its record was damaged"
        if sound and row.hash is not None:
            _trim(fix, row)
            fault = content.blob_fault(fix.read, row)
        if fault:
            _mend(fix, row, fault)
    for scope, blob_id in fix.tx.all(OWNERS):
        found = fix.find(BLOB, blob_id)
        if found is None or found.row.scope != scope:
            _adopt(fix, scope, blob_id, free=found is None)


def _trim(fix: Repair, row: BlobRow) -> None:
    """Erase chunks behind the last one that a sound record counts, if it is whole without them."""
    (count, _) = fix.tx.one(CHUNKS_OF, (row.scope, row.blob_id)) or (0, None)
    if count > row.chunks and _content(fix, row.scope, row.blob_id, row.chunks) == (row.hash, row.size, row.chunks):
        fix.tx.run(DROP_OF, (row.scope, row.blob_id, row.chunks))
        fix.rebuilt += 1


def _content(fix: Repair, scope: str, blob_id: int, count: int) -> tuple[str, int, int] | None:
    """Return hash, size and number of the first chunks of a blob, if they are whole."""
    try:
        return (*content.digest_of(fix.read, scope, blob_id, count), count)
    except Corrupt:
        return None


def _all_content(fix: Repair, scope: str, blob_id: int) -> tuple[str, int, int] | None:
    count, last = fix.tx.one(CHUNKS_OF, (scope, blob_id)) or (0, None)
    return None if count and last != count - 1 else _content(fix, scope, blob_id, count)


def _mend(fix: Repair, row: BlobRow, fault: str) -> None:
    (scope,) = fix.tx.one(SCOPES, (row.blob_id,)) or (row.scope,)
    known = _all_content(fix, scope, row.blob_id)
    needed = known is not None and (known[0] == row.hash or _is_needed(fix, scope, known[0]))
    if known is None or not needed or fix.tx.one(FOUND, (scope, known[0])) not in (None, (row.blob_id,)):
        fix.tx.run(DROP, (row.blob_id,))
        fix.delete(BLOB, row)
        fix.lose("blob", f"blob {row.hash}", fault)
    else:
        fix.rebuild(BLOB, row, BlobRow(scope, row.blob_id, *known, row.created_ms, ""))


def _is_needed(fix: Repair, scope: str, content_hash: str) -> bool:
    asked = scope, content_hash
    return bool(fix.tx.one(NEEDED, asked) or fix.tx.one(SPILLED, asked))


def _adopt(fix: Repair, scope: str, blob_id: int, *, free: bool) -> None:
    """Give chunks a record again if somebody needs what they hold, else erase them."""
    known = _all_content(fix, scope, blob_id)
    if known is None or not free or not _is_needed(fix, scope, known[0]) or fix.tx.one(FOUND, (scope, known[0])):
        fix.tx.run(DROP_OF, (scope, blob_id, -(1 << 63)))
        fix.lose("blob", f"blob number {blob_id}", "its record was missing and nothing needs it, or a chunk was lost")
        return
    BLOB.put(fix.tx, BlobRow(scope, blob_id, *known, fix.now_ms, ""))
    fix.rebuilt += 1
    fix.lose("blob", f"blob {known[0]}", "when it was stored is lost", PARTLY)
