"""Blobs: large content, stored once per scope, in compressed chunks of at most 1 MB.

Each chunk is a transaction of its own, before the entry that links the blob. While a blob has no
hash it is an upload in progress: nothing can link it yet, and garbage collection spares it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

from ..errors import Corrupt, NotFound
from ..storage.base import Tx, row_check

if sys.version_info >= (3, 14):  # pragma: no cover
    from compression import zstd
else:
    from backports import zstd

CHUNK = 1 << 20
_kept = threading.local()
FIND = "SELECT blob_id, scope, hash, size, chunks, created_ms, chk FROM blob WHERE scope = ? AND hash = ?"
BEGIN = "INSERT INTO blob (blob_id, scope, hash, size, chunks, created_ms, chk) VALUES (?, ?, ?, ?, ?, ?, ?)"
ADD_CHUNK = "INSERT INTO chunk (scope, blob_id, n, codec, data, chk) VALUES (?, ?, ?, ?, ?, ?)"
GET_CHUNK = "SELECT scope, blob_id, n, codec, data, chk FROM chunk WHERE scope = ? AND blob_id = ? AND n = ?"
FINISH = "UPDATE blob SET hash = ?, size = ?, chunks = ?, created_ms = ?, chk = ? WHERE blob_id = ?"
UPLOAD = "SELECT 1 FROM blob WHERE blob_id = ? AND scope = ? AND hash IS NULL"
DROP_CHUNKS = "DELETE FROM chunk WHERE scope = ? AND blob_id = ?"
DROP = "DELETE FROM blob WHERE blob_id = ?"


class Packed(NamedTuple):
    """A small content, ready to be kept."""

    hash: str
    size: int
    chunk: tuple[str, bytes]


def hash_of(data: bytes) -> str:
    """Name content by its SHA-256."""
    return sha256(data).hexdigest()


def pack(data: bytes) -> tuple[str, bytes]:
    """Compress a chunk where that makes it smaller; done outside the transaction."""
    packed = zstd.compress(data, level=3)
    return ("zstd", packed) if len(packed) < len(data) else ("raw", data)


def pack_small(data: bytes) -> tuple[str, bytes]:
    """Compress a small chunk by a compressor that this thread keeps: making one costs more than using it."""
    compressor = getattr(_kept, "compressor", None)
    if compressor is None:
        compressor = _kept.compressor = zstd.ZstdCompressor(level=3)
    packed = compressor.compress(data, zstd.ZstdCompressor.FLUSH_FRAME)
    return ("zstd", packed) if len(packed) < len(data) else ("raw", data)


def exists(tx: Tx, scope: str, content_hash: str) -> bool:
    """Say whether the scope has this content, whole."""
    return tx.one(FIND, (scope, content_hash)) is not None


def put_many(tx: Tx, scope: str, contents: Iterable[Packed], *, now_ms: int) -> None:
    """Keep small contents, each of one packed chunk, that the scope has not yet."""
    for content_hash, size, packed in contents:
        if exists(tx, scope, content_hash):
            continue
        row = (tx.next("blob"), scope, content_hash, size, 1 if size else 0, now_ms)
        tx.run(BEGIN, (*row, row_check(row)))
        if size:
            add_chunk(tx, scope, int(row[0]), 0, packed)


def begin(tx: Tx, scope: str, *, now_ms: int) -> int:
    """Start an upload and give its number."""
    row = (tx.next("blob"), scope, None, 0, 0, now_ms)
    tx.run(BEGIN, (*row, row_check(row)))
    return int(row[0])


def add_chunk(tx: Tx, scope: str, blob_id: int, number: int, packed: tuple[str, bytes]) -> None:
    """Add one packed chunk to an upload."""
    row = (scope, blob_id, number, *packed)
    tx.run(ADD_CHUNK, (*row, row_check(row)))


def finish(tx: Tx, scope: str, blob_id: int, *, content_hash: str, size: int, chunks: int, now_ms: int) -> None:
    """Make an upload a blob; if the scope has the same content already, drop the upload instead."""
    if exists(tx, scope, content_hash):
        tx.run(DROP_CHUNKS, (scope, blob_id))
        tx.run(DROP, (blob_id,))
        return
    row = (blob_id, scope, content_hash, size, chunks, now_ms)
    tx.run(FINISH, (content_hash, size, chunks, now_ms, row_check(row), blob_id))


def abandon(tx: Tx, scope: str, blob_id: int) -> None:
    """Take back an upload that failed half-way; one that became a blob stays."""
    row = tx.one(UPLOAD, (blob_id, scope))
    if row is not None:
        tx.run(DROP_CHUNKS, (scope, blob_id))
        tx.run(DROP, (blob_id,))


def drop(tx: Tx, scope: str, content_hash: str) -> int:
    """Erase content that nothing links; give 1 if it was there."""
    row = tx.one(FIND, (scope, content_hash))
    if row is None:
        return 0
    tx.run(DROP_CHUNKS, (scope, row[0]))
    tx.run(DROP, (row[0],))
    return 1


def describe(tx: Tx, scope: str, content_hash: str) -> tuple[int, int, int]:
    """Give number, size and count of chunks of a blob."""
    row = tx.one(FIND, (scope, content_hash))
    if row is None:
        raise NotFound(f"there is no content {content_hash[:12]} in this scope")
    if row_check(row[:-1]) != row[-1]:
        raise Corrupt(f"the record of content {content_hash[:12]} is damaged", what=f"blob {content_hash}")
    return row[0], row[3], row[4]


def read_chunk(tx: Tx, scope: str, blob_id: int, number: int) -> bytes:
    """Read one chunk, checked and unpacked."""
    row = tx.one(GET_CHUNK, (scope, blob_id, number))
    if row is None or row_check(row[:-1]) != row[-1]:
        raise Corrupt(f"chunk {number} of blob {blob_id} is damaged or missing", what=f"blob {blob_id}")
    try:
        return row[4] if row[3] == "raw" else zstd.decompress(row[4])
    except zstd.ZstdError as error:
        raise Corrupt(f"chunk {number} of blob {blob_id} cannot be unpacked", what=f"blob {blob_id}") from error


def read_whole(tx: Tx, scope: str, content_hash: str) -> bytes:
    """Read content that fits in memory and check it against its hash."""
    try:
        blob_id, _, chunks = describe(tx, scope, content_hash)
    except NotFound as error:
        raise Corrupt(f"content {content_hash[:12]} is linked but missing", what=f"blob {content_hash}") from error
    data = b"".join(read_chunk(tx, scope, blob_id, number) for number in range(chunks))
    if hash_of(data) != content_hash:
        raise Corrupt(f"content {content_hash[:12]} does not match its hash", what=f"blob {content_hash}")
    return data
