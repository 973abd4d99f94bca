"""Repair of blobs: a record is made again if its chunks give the hash, the rest is erased and named.

Content is what its hash says or it is nothing: chunks without a record are kept if an entry needs what they hold.
"""

from __future__ import annotations

from ...errors import Corrupt
from ...storage.base import Row
from .. import blobs
from ..verify import content
from ..verify.base import is_sound
from ..verify.content import BLOBS, CHUNKS_OF
from .base import PARTLY, Repair, checked, proved

CHUNKS = "SELECT DISTINCT scope, blob_id FROM chunk"
NUMBERS = "SELECT scope, n FROM chunk WHERE blob_id = ?"
SET_CODEC = "UPDATE chunk SET codec = ? WHERE scope = ? AND blob_id = ? AND n = ?"
DROP_CHUNKS = "DELETE FROM chunk WHERE blob_id = ?"
DROP_CHUNKS_OF = "DELETE FROM chunk WHERE scope = ? AND blob_id = ?"
DROP_BEHIND = "DELETE FROM chunk WHERE scope = ? AND blob_id = ? AND n >= ?"
FOUND = "SELECT blob_id FROM blob WHERE scope = ? AND hash = ?"
NEEDED = "SELECT 1 FROM link WHERE scope = ? AND hash = ? LIMIT 1"
SPILLED = "SELECT 1 FROM entry WHERE scope = ? AND instr(spill, ?) LIMIT 1"
OWNER = "SELECT scope FROM blob WHERE blob_id = ?"


def fix_blobs(fix: Repair) -> None:
    """Check all blobs against their content."""
    for row in fix.rows(BLOBS):
        fault = "" if is_sound(row) else "its record was damaged"
        _mend_chunks(fix, row[0])
        if not fault and row[2] is not None:
            _trim(fix, row)
            fault = content.blob_fault(fix.read, row)
        if fault:
            _mend(fix, row, fault)
    for scope, blob_id in fix.tx.all(CHUNKS):
        if fix.tx.one(OWNER, (blob_id,)) != (scope,):
            _adopt(fix, scope, blob_id)


def _mend_chunks(fix: Repair, blob_id: int) -> None:
    """Put the codec of a chunk right if its check proves that nothing else is wrong."""
    for scope, number in fix.tx.all(NUMBERS, (blob_id,)):
        row = fix.tx.one(blobs.GET_CHUNK, (scope, blob_id, number))
        whole = proved(row, ({3: "zstd"}, {3: "raw"})) if row and not is_sound(row) else None
        if whole is not None:
            fix.tx.run(SET_CODEC, (whole[3], scope, blob_id, number))
            fix.rebuilt += 1


def _trim(fix: Repair, row: Row) -> None:
    """Erase chunks behind the last one that a sound record counts, if it is whole without them."""
    blob_id, scope, content_hash, size, chunks = row[:5]
    (count, _) = fix.tx.one(CHUNKS_OF, (scope, blob_id)) or (0, None)
    try:
        whole = count > chunks and content.digest_of(fix.read, scope, blob_id, chunks) == (content_hash, size)
    except Corrupt:
        whole = False
    if whole:
        fix.tx.run(DROP_BEHIND, (scope, blob_id, chunks))
        fix.rebuilt += 1


def _content(fix: Repair, scope: str, blob_id: int) -> tuple[str, int, int] | None:
    """Give hash, size and number of chunks of what lies there, if it is whole."""
    count, last = fix.tx.one(CHUNKS_OF, (scope, blob_id)) or (0, None)
    if count and last != count - 1:
        return None
    try:
        return (*content.digest_of(fix.read, scope, blob_id, count), count)
    except Corrupt:
        return None


def _scope(fix: Repair, row: Row) -> str:
    found = [scope for scope, blob_id in fix.tx.all(CHUNKS) if blob_id == row[0]]
    return found[0] if found else str(row[1] or "")


def _mend(fix: Repair, row: Row, fault: str) -> None:
    scope = _scope(fix, row)
    known = _content(fix, scope, row[0])
    needed = known is not None and (known[0] == row[2] or _is_needed(fix, scope, known[0]))
    if known is None or not needed or fix.tx.one(FOUND, (scope, known[0])) not in (None, (row[0],)):
        fix.tx.run(DROP_CHUNKS, (row[0],))
        fix.delete(BLOBS, row[:1])
        fix.lose("blob", f"blob {row[2]}", fault)
        return
    _put(fix, scope, row[0], known, row[5])


def _is_needed(fix: Repair, scope: str, content_hash: str) -> bool:
    asked = scope, content_hash
    return bool(fix.tx.one(NEEDED, asked) or fix.tx.one(SPILLED, asked))


def _put(fix: Repair, scope: str, blob_id: int, known: tuple[str, int, int], created: object) -> None:
    content_hash, size, chunks = known
    made = created if isinstance(created, int) else fix.now_ms
    fix.replace(BLOBS, (blob_id,), checked((blob_id, scope, content_hash, size, chunks, made)))
    fix.rebuilt += 1


def _adopt(fix: Repair, scope: str, blob_id: int) -> None:
    """Give chunks a record again if somebody needs what they hold, else erase them."""
    known = _content(fix, scope, blob_id)
    taken = fix.tx.one(OWNER, (blob_id,)) is not None
    if known is None or taken or not _is_needed(fix, scope, known[0]) or fix.tx.one(FOUND, (scope, known[0])):
        fix.tx.run(DROP_CHUNKS_OF, (scope, blob_id))
        fix.lose("blob", f"blob number {blob_id}", "its record was missing and nothing needs it, or a chunk was lost")
        return
    _put(fix, scope, blob_id, known, None)
    fix.lose("blob", f"blob {known[0]}", "when it was stored is lost", PARTLY)
