"""Blobs: chunk by chunk, as they are packed, each in a transaction of its own; what was begun is gone on with.

While it is being copied a blob is an upload without a hash, told from others by the size that it will have. It gets its
hash once the chunks that are stored give that hash, so a blob of the destination is never other bytes.
"""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple

from ...errors import Corrupt
from ...storage.base import Tx
from ...tables.content import BLOB, CHUNK, BlobRow, ChunkRow
from .. import blobs

STORED = "SELECT count(*), coalesce(max(n), -1) FROM chunk WHERE scope = ? AND blob_id = ?"


class Mark(NamedTuple):
    """What an upload is found again by."""

    scope: str
    size: int
    chunks: int
    created_ms: int


def mark(blob: BlobRow) -> Mark:
    """Return what the upload of a blob is found again by."""
    return Mark(blob.scope, blob.size, blob.chunks, blob.created_ms)


def get(tx: Tx, scope: str, content_hash: str) -> BlobRow:
    """Return a blob that an entry needs."""
    found = blobs.find(tx, scope, content_hash)
    if found is None:
        raise Corrupt(f"content {content_hash[:12]} is linked but missing", what=f"blob {content_hash}")
    return found


def known(tx: Tx, found: list[BlobRow]) -> set[BlobRow]:
    """Return those of some blobs that a store has as well."""
    return {each for each in found if each.hash is not None and blobs.exists(tx, each.scope, each.hash)}


def begun(tx: Tx) -> dict[Mark, int]:
    """Return the numbers of blobs that an earlier copy did not finish."""
    return {mark(row): row.blob_id for row in BLOB.all(tx, "WHERE hash IS NULL AND chunks > 0")}


def stored(tx: Tx, scope: str, blob_id: int) -> int | None:
    """Return how many chunks an upload has; None if it is gone or has holes."""
    if blobs.upload(tx, scope, blob_id) is None:
        return None
    count, last = tx.one(STORED, (scope, blob_id)) or (0, -1)
    return int(count) if count == last + 1 else None


def read_chunk(tx: Tx, blob: BlobRow, number: int) -> ChunkRow:
    """Read a chunk as it is packed; a blob that was erased and its number given to another raises ``Corrupt``."""
    found = CHUNK.get(tx, blob.scope, blob.blob_id, number)
    if found is None:
        raise Corrupt(f"chunk {number} of blob {blob.hash} is missing", what=f"blob {blob.hash}")
    return found


def put_whole(tx: Tx, blob: BlobRow, chunks: list[ChunkRow]) -> None:
    """Write a small blob with its content at once, unless it is there."""
    if blob.hash is not None and not blobs.exists(tx, blob.scope, blob.hash):
        made = BLOB.put(tx, blob._replace(blob_id=tx.next("blob")))
        CHUNK.put_many(tx, [chunk._replace(blob_id=made.blob_id) for chunk in chunks])


def begin(tx: Tx, blob: BlobRow) -> int:
    """Begin a blob that takes several transactions; return its number."""
    return BLOB.put(tx, blob._replace(blob_id=tx.next("blob"), hash=None)).blob_id


def put_chunk(tx: Tx, blob_id: int, chunk: ChunkRow) -> bool:
    """Add the next chunk; False if the upload is gone, or another copy is adding to it as well."""
    if stored(tx, chunk.scope, blob_id) != chunk.n:
        return False
    CHUNK.put(tx, chunk._replace(blob_id=blob_id))
    return True


def finish(tx: Tx, blob: BlobRow, blob_id: int) -> bool:
    """Make an upload whose chunks were compared the blob; False if it is gone."""
    if blob.hash is None or stored(tx, blob.scope, blob_id) != blob.chunks:
        return False
    chunks, size, now_ms = blob.chunks, blob.size, blob.created_ms
    blobs.finish(tx, blob.scope, blob_id, content_hash=blob.hash, size=size, chunks=chunks, now_ms=now_ms)
    return True


def digest(tx: Tx, scope: str, content_hash: str) -> str:
    """Compute the hash of a small blob from what is stored."""
    found = blobs.describe(tx, scope, content_hash)
    parts = (blobs.read_chunk(tx, scope, found.blob_id, number) for number in range(found.chunks))
    return sha256(b"".join(parts)).hexdigest()
