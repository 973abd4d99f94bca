"""Checks of blobs: every chunk is there and whole, and together they are what the hash says.

A blob is read chunk by chunk, each a read of its own. If one is missing, the blob may have been erased
meanwhile: it is damage only if its record is still there.
"""

from __future__ import annotations

from hashlib import sha256

from ...errors import Corrupt
from ...storage.base import Tx
from ...tables.content import BLOB, CHUNK, BlobRow
from ...tables.table import slots
from ..blobs import read_chunk as read_chunk
from .base import DAMAGED, PAGE, Found, Key, Read, has, intact

CHUNKS_OF = "SELECT count(*), max(n) FROM chunk WHERE scope = ? AND blob_id = ?"
_KEY = ", ".join(CHUNK.key)
CHUNKS = f"SELECT {_KEY} FROM chunk ORDER BY {_KEY} LIMIT ?"
CHUNKS_AFTER = f"SELECT {_KEY} FROM chunk WHERE ({_KEY}) > ({slots(len(CHUNK.key))}) ORDER BY {_KEY} LIMIT ?"
_MANY = 10_000  # keys of chunks


def check_blobs(read: Read, found: Found) -> None:
    """Check all blobs."""
    after: Key | None = None
    while True:
        stored, after = read(lambda tx: BLOB.page(tx, after, PAGE))  # noqa: B023
        for each in stored:
            found.checked += 1
            row = BLOB.unchecked(each)
            if not BLOB.is_sound(each):
                found.add("blob", f"blob number {row.blob_id}", DAMAGED)
            elif row.hash is not None and (fault := blob_fault(read, row)) and _is_there(read, row):
                found.add("blob", f"blob {row.hash}", fault)
        if after is None:
            return


def _is_there(read: Read, row: BlobRow) -> bool:
    return bool(read(lambda tx: intact(tx, BLOB, row.scope, row.blob_id)) == row)


def blob_fault(read: Read, row: BlobRow) -> str:
    """Return what is wrong with the content of a blob whose row is sound."""
    if row.place:
        return f"its content lies in {row.place!r}, which is no place that is known"
    there = read(lambda tx: tx.one(CHUNKS_OF, (row.scope, row.blob_id)))
    if there != (row.chunks, row.chunks - 1 if row.chunks else None):
        return "a chunk of it is missing, or there is one too many"
    try:
        digest, size = digest_of(read, row.scope, row.blob_id, row.chunks)
    except Corrupt as error:
        return str(error)
    return "" if (digest, size) == (row.hash, row.size) else "the content does not match its hash or size"


def digest_of(read: Read, scope: str, blob_id: int, chunks: int) -> tuple[str, int]:
    """Hash and measure the chunks of a blob; a damaged or missing one raises ``Corrupt``."""
    digest, total = sha256(), 0
    for number in range(chunks):
        data = read(lambda tx: read_chunk(tx, scope, blob_id, number))  # noqa: B023
        digest.update(data)
        total += len(data)
    return digest.hexdigest(), total


def chunks_page(tx: Tx, found: Found, after: Key | None) -> Key | None:
    """Find chunks that belong to no blob; the content of the others is checked with their blobs."""
    keys = tx.all(CHUNKS, (_MANY,)) if after is None else tx.all(CHUNKS_AFTER, (*after, _MANY))
    for scope, blob_id in dict.fromkeys((scope, blob_id) for scope, blob_id, _ in keys):
        if not has(tx, BLOB, scope, blob_id):
            found.add("blob", f"blob number {blob_id}", "its chunks are there, but its record is missing")
    return keys[-1] if keys else None
