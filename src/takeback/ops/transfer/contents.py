"""Blobs: chunk by chunk, as they are packed, each in a transaction of its own; what was begun is gone on with.

While it is being copied a blob is an upload without a hash, told from others by the size that it will have. It gets its
hash once the chunks that are stored give that hash, so a blob of the destination is never other bytes.
"""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple

from ...errors import Corrupt
from ...storage.base import Row, Tx
from .. import blobs
from ..verify.base import is_sound
from .base import sealed

PAGE = """SELECT blob_id, scope, hash, size, chunks, created_ms, chk FROM blob
WHERE blob_id > ? AND blob_id <= ? AND hash IS NOT NULL ORDER BY blob_id LIMIT ?"""
BEGUN = "SELECT blob_id, scope, hash, size, chunks, created_ms, chk FROM blob WHERE hash IS NULL AND chunks > 0"
STORED = "SELECT count(*), coalesce(max(n), -1) FROM chunk WHERE scope = ? AND blob_id = ?"


class Blob(NamedTuple):
    """A row of ``blob``, checked."""

    blob_id: int
    scope: str
    hash: str | None
    size: int
    chunks: int
    created_ms: int


Chunk = tuple[str, bytes]


def page(tx: Tx, after: int, upto: int, limit: int) -> list[Blob]:
    """Give the next blobs, by their numbers; uploads under way are left out."""
    return [_checked(row) for row in tx.all(PAGE, (after, upto, limit))]


def find(tx: Tx, scope: str, content_hash: str) -> Blob | None:
    """Give a blob by its hash."""
    row = tx.one(blobs.FIND, (scope, content_hash))
    return None if row is None else _checked(row)


def get(tx: Tx, scope: str, content_hash: str) -> Blob:
    """Give a blob that an entry needs."""
    found = find(tx, scope, content_hash)
    if found is None:
        raise Corrupt(f"content {content_hash[:12]} is linked but missing", what=f"blob {content_hash}")
    return found


def known(tx: Tx, found: list[Blob]) -> set[Blob]:
    """Give those of some blobs that a store has as well."""
    return {each for each in found if each.hash is not None and blobs.exists(tx, each.scope, each.hash)}


def _checked(row: Row) -> Blob:
    if not is_sound(row):
        raise Corrupt(f"the record of content {str(row[2])[:12]} is damaged", what=f"blob {row[2]}")
    return Blob(*row[:-1])


def begun(tx: Tx) -> dict[tuple[str, int, int, int], int]:
    """Give the numbers of blobs that an earlier copy did not finish, by scope, size, chunks and time."""
    return {(row[1], *row[3:6]): row[0] for row in tx.all(BEGUN)}


def stored(tx: Tx, scope: str, blob_id: int) -> int | None:
    """Give how many chunks an upload has; None if it is gone or has holes."""
    if tx.one(blobs.UPLOAD, (blob_id, scope)) is None:
        return None
    count, last = tx.one(STORED, (scope, blob_id)) or (0, -1)
    return int(count) if count == last + 1 else None


def read_chunk(tx: Tx, blob: Blob, number: int) -> Chunk:
    """Read a chunk as it is packed; a blob that was erased and its number given to another is ``Corrupt``."""
    row = tx.one(blobs.GET_CHUNK, (blob.scope, blob.blob_id, number))
    if row is None or not is_sound(row):
        raise Corrupt(f"chunk {number} of blob {blob.hash} is damaged or missing", what=f"blob {blob.hash}")
    return row[3], row[4]


def put_whole(tx: Tx, blob: Blob, chunks: list[Chunk]) -> bool:
    """Write a small blob with its content at once; False if it was there."""
    if blob.hash is None or blobs.exists(tx, blob.scope, blob.hash):
        return False
    made = blob._replace(blob_id=tx.next("blob"))
    tx.run(blobs.BEGIN, sealed(made))
    for number, chunk in enumerate(chunks):
        blobs.add_chunk(tx, blob.scope, made.blob_id, number, chunk)
    return True


def begin(tx: Tx, blob: Blob) -> int:
    """Begin a blob that takes several transactions; give its number."""
    made = blob._replace(blob_id=tx.next("blob"), hash=None)
    tx.run(blobs.BEGIN, sealed(made))
    return made.blob_id


def put_chunk(tx: Tx, blob: Blob, blob_id: int, number: int, chunk: Chunk) -> bool:
    """Add the next chunk; False if the upload is gone, or another copy is adding to it as well."""
    if stored(tx, blob.scope, blob_id) != number:
        return False
    blobs.add_chunk(tx, blob.scope, blob_id, number, chunk)
    return True


def finish(tx: Tx, blob: Blob, blob_id: int) -> bool:
    """Make an upload whose chunks were compared the blob; False if it is gone."""
    if blob.hash is None or stored(tx, blob.scope, blob_id) != blob.chunks:
        return False
    same = {"content_hash": blob.hash, "size": blob.size, "chunks": blob.chunks}
    blobs.finish(tx, blob.scope, blob_id, **same, now_ms=blob.created_ms)  # type: ignore[arg-type]
    return True


def digest(tx: Tx, scope: str, content_hash: str) -> str:
    """Compute the hash of a small blob from what is stored."""
    found = blobs.describe(tx, scope, content_hash)
    parts = (blobs.read_chunk(tx, scope, found[0], number) for number in range(found[2]))
    return sha256(b"".join(parts)).hexdigest()
