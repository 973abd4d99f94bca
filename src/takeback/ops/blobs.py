"""Blobs: large content, stored once per scope, in compressed chunks of at most 1 MB.

Each chunk is stored in its own transaction, before the entry that links the blob. A blob without a hash is an upload in
progress: nothing can link it yet, and garbage collection spares it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from ..errors import Corrupt, NotFound
from ..storage.base import LOCK, Tx
from ..tables import content

if TYPE_CHECKING:
    from ..tables.content import BlobRow, ChunkRow

if sys.version_info >= (3, 14):  # pragma: no cover
    from compression import zstd
else:
    from backports import zstd

CHUNK = 1 << 20  # bytes of content in one chunk
_kept = threading.local()
HAS = "SELECT 1 FROM blob WHERE scope = ? AND hash = ?"
LINKED = """SELECT 1 FROM link WHERE scope = ? AND hash = ?
UNION ALL SELECT 1 FROM document WHERE scope = ? AND hash = ? LIMIT 1"""
NUMBER = "SELECT blob_id FROM blob WHERE scope = ? AND hash = ?"
DROP_CHUNKS = "DELETE FROM chunk WHERE scope = ? AND blob_id = ?"


class Packed(NamedTuple):
    """Small content, compressed and ready to be stored."""

    hash: str
    size: int
    chunk: tuple[str, bytes]


def hash_of(data: bytes) -> str:
    """Name content by its SHA-256."""
    return sha256(data).hexdigest()


def pack(data: bytes) -> tuple[str, bytes]:
    """Compress a chunk if that makes it smaller; call it outside the transaction."""
    packed = zstd.compress(data, level=3)
    return ("zstd", packed) if len(packed) < len(data) else ("raw", data)


def pack_small(data: bytes) -> tuple[str, bytes]:
    """Compress a small chunk with this thread's compressor: creating one costs more than using it."""
    compressor = getattr(_kept, "compressor", None)
    if compressor is None:
        compressor = _kept.compressor = zstd.ZstdCompressor(level=3)
    packed = compressor.compress(data, zstd.ZstdCompressor.FLUSH_FRAME)
    return ("zstd", packed) if len(packed) < len(data) else ("raw", data)


def exists(tx: Tx, scope: str, content_hash: str) -> bool:
    """Whether the scope has this content, fully uploaded."""
    return tx.one(HAS, (scope, content_hash)) is not None


def all_exist(tx: Tx, scope: str, hashes: Iterable[str]) -> bool:
    """Whether the scope has all of these contents."""
    return all(exists(tx, scope, each) for each in hashes)


def is_linked(tx: Tx, scope: str, content_hash: str) -> bool:
    """Whether an entry or a document needs this content."""
    return tx.one(LINKED, (scope, content_hash) * 2) is not None


def put_many(tx: Tx, scope: str, contents: Iterable[Packed], *, now_ms: int) -> None:
    """Store small contents, each one packed chunk, that the scope does not have yet."""
    for content_hash, size, packed in contents:
        if exists(tx, scope, content_hash):
            continue
        made = content.BLOB.put(
            tx, content.BlobRow(scope, tx.next("blob"), content_hash, size, 1 if size else 0, now_ms, "")
        )
        if size:
            add_chunk(tx, scope, made.blob_id, 0, packed)


def begin(tx: Tx, scope: str, *, now_ms: int) -> int:
    """Start an upload and return its number."""
    return content.BLOB.put(tx, content.BlobRow(scope, tx.next("blob"), None, 0, 0, now_ms, "")).blob_id


def add_chunk(tx: Tx, scope: str, blob_id: int, number: int, packed: tuple[str, bytes]) -> None:
    """Add one packed chunk to an upload."""
    content.CHUNK.put(tx, content.ChunkRow(scope, blob_id, number, *packed))


def upload(tx: Tx, scope: str, blob_id: int) -> BlobRow | None:
    """Return an upload in progress; None once it has become a blob or was abandoned."""
    found = content.BLOB.get(tx, scope, blob_id)
    return None if found is None or found.hash is not None else found


def finish(tx: Tx, scope: str, blob_id: int, *, content_hash: str, size: int, chunks: int, now_ms: int) -> None:
    """Turn an upload into a blob; if the scope already has this content, drop the upload instead."""
    if exists(tx, scope, content_hash):
        _delete(tx, scope, blob_id)
    elif (begun := upload(tx, scope, blob_id)) is not None:
        content.BLOB.update(tx, begun, content.BlobRow(scope, blob_id, content_hash, size, chunks, now_ms, ""))


def abandon(tx: Tx, scope: str, blob_id: int) -> None:
    """Drop an upload that failed half-way; one that became a blob stays."""
    if upload(tx, scope, blob_id) is not None:
        _delete(tx, scope, blob_id)


def renew(tx: Tx, scope: str, content_hash: str, *, now_ms: int) -> bool:
    """Let content count as stored now, so that garbage collection spares it; return False if it is absent."""
    found = content.BLOB.one(tx, f"WHERE scope = ? AND hash = ?{LOCK}", (scope, content_hash))
    if found is not None:
        content.BLOB.update(tx, found, found._replace(created_ms=max(now_ms, found.created_ms)))
    return found is not None


def drop(tx: Tx, scope: str, content_hash: str) -> int:
    """Erase content that nothing links; return 1 if it existed, else 0."""
    found = tx.one(NUMBER, (scope, content_hash))
    if found is None:
        return 0
    _delete(tx, scope, *found)
    return 1


def _delete(tx: Tx, scope: str, blob_id: int) -> None:
    tx.run(DROP_CHUNKS, (scope, blob_id))
    content.BLOB.delete(tx, scope, blob_id)


def find(tx: Tx, scope: str, content_hash: str) -> BlobRow | None:
    """Return the record of content, or None."""
    return content.BLOB.one(tx, "WHERE scope = ? AND hash = ?", (scope, content_hash))


def describe(tx: Tx, scope: str, content_hash: str) -> BlobRow:
    """Return the record of content; content lost to damage raises ``Corrupt``, unknown content ``NotFound``."""
    found = find(tx, scope, content_hash)
    if found is None:
        if is_linked(tx, scope, content_hash):
            said = f"content {content_hash[:12]} is linked but missing: it was lost to damage"
            raise Corrupt(f"{said}. Restore a backup, or run verify", what=f"blob {content_hash}")
        raise NotFound(f"there is no content {content_hash[:12]} in this scope")
    return found


def read_chunk(tx: Tx, scope: str, blob_id: int, number: int) -> bytes:
    """Read, check and decompress one chunk."""
    chunk = content.CHUNK.get(tx, scope, blob_id, number)
    if chunk is None:
        raise Corrupt(f"chunk {number} of blob {blob_id} is missing", what=f"blob {blob_id}")
    return unpack(chunk)


def chunk_of(tx: Tx, scope: str, content_hash: str, number: int) -> bytes:
    """Read one chunk by content hash: after a purge, a blob's number may belong to another blob."""
    return read_chunk(tx, scope, describe(tx, scope, content_hash).blob_id, number)


def unpack(chunk: ChunkRow) -> bytes:
    """Decompress a chunk."""
    try:
        return chunk.data if chunk.codec == "raw" else zstd.decompress(chunk.data)
    except zstd.ZstdError as error:
        what = f"blob {chunk.blob_id}"
        raise Corrupt(f"chunk {chunk.n} of {what} cannot be decompressed", what=what) from error


def read_whole(tx: Tx, scope: str, content_hash: str) -> bytes:
    """Read content that fits in memory, and check it against its hash."""
    blob = find(tx, scope, content_hash)
    if blob is None:
        raise Corrupt(f"content {content_hash[:12]} is linked but missing", what=f"blob {content_hash}")
    data = b"".join(read_chunk(tx, scope, blob.blob_id, number) for number in range(blob.chunks))
    if hash_of(data) != content_hash:
        raise Corrupt(f"content {content_hash[:12]} does not match its hash", what=f"blob {content_hash}")
    return data
