"""Checks of blobs: every chunk is there and whole, and together they are what the hash says.

A blob is read chunk by chunk, each a read of its own. If one is missing, the blob may have been erased
meanwhile: it is damage only if its record is still there.
"""

from __future__ import annotations

from hashlib import sha256

from ...errors import Corrupt
from ...storage.base import Op, Row, Tx
from .. import blobs
from .base import Found, Key, Read, Table, advance, is_sound
from .derived import UNREADABLE

BLOBS = Table("blob", "blob_id, scope, hash, size, chunks, created_ms, chk", "blob_id")
CHUNKS_OF = "SELECT count(*), max(n) FROM chunk WHERE scope = ? AND blob_id = ?"
SAME = "SELECT 1 FROM blob WHERE blob_id = ? AND chk = ?"
CHUNKS = "SELECT scope, blob_id, n FROM chunk WHERE (scope, blob_id, n) > (?, ?, ?) ORDER BY scope, blob_id, n LIMIT ?"
OWNER = "SELECT scope FROM blob WHERE blob_id = ?"


def check_blobs(read: Read, found: Found) -> None:
    """Check all blobs."""
    after: Key | None = BLOBS.start
    while after is not None:
        here: Key = after
        rows: list[Row] = read(lambda tx: BLOBS.rows(tx, here))  # noqa: B023
        for row in rows:
            found.checked += 1
            if not is_sound(row):
                found.add("blob", f"blob number {row[0]}", "the record does not match its check")
            elif row[2] is not None and (fault := blob_fault(read, row)) and read(_still_there(row)):
                found.add("blob", f"blob {row[2]}", fault)
        after = advance(rows, here)


def _still_there(row: Row) -> Op[Row | None]:
    return lambda tx: tx.one(SAME, (row[0], row[-1]))


def blob_fault(read: Read, row: Row) -> str:
    """Say what does not fit about the content of a blob whose row is sound."""
    blob_id, scope, content_hash, size, chunks = row[:5]
    if read(lambda tx: tx.one(CHUNKS_OF, (scope, blob_id))) != (chunks, chunks - 1 if chunks else None):
        return "a chunk of it is missing, or there is one too many"
    try:
        digest, total = digest_of(read, scope, blob_id, chunks)
    except Corrupt as error:
        return str(error)
    return "" if (digest, total) == (content_hash, size) else "the content does not match its hash or size"


def digest_of(read: Read, scope: str, blob_id: int, chunks: int) -> tuple[str, int]:
    """Hash and measure the chunks of a blob; a damaged or missing one is ``Corrupt``."""
    digest, total = sha256(), 0
    for number in range(chunks):
        data = read(lambda tx: read_chunk(tx, scope, blob_id, number))  # noqa: B023
        digest.update(data)
        total += len(data)
    return digest.hexdigest(), total


def read_chunk(tx: Tx, scope: str, blob_id: int, number: int) -> bytes:
    """Read a chunk; one that cannot be unpacked is ``Corrupt`` as well."""
    try:
        return blobs.read_chunk(tx, scope, blob_id, number)
    except UNREADABLE as error:
        raise Corrupt(f"chunk {number} of blob {blob_id} cannot be unpacked", what=f"blob {blob_id}") from error


def chunks_page(tx: Tx, found: Found, after: Key) -> Key | None:
    """Look for chunks that belong to no blob."""
    rows = tx.all(CHUNKS, (*after, 10_000))
    lonely = {row[1]: row[0] for row in rows if tx.one(OWNER, (row[1],)) != (row[0],)}
    for blob_id in lonely:
        found.add("blob", f"blob number {blob_id}", "its chunks are there, but its record is missing")
    return advance(rows, after, 3)
