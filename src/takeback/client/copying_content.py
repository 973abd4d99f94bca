"""Copying content: every blob that the destination has not, and those that turn out to be needed earlier."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import NoReturn

from ..errors import Conflict, Corrupt
from ..ops import blobs
from ..ops.transfer import base, contents
from ..ops.verify import content
from ..storage.base import Tx
from ..tables.content import BLOB, BlobRow, ChunkRow
from .copying_base import Stores

TOTAL = "SELECT CAST(coalesce(sum(size), 0) AS BIGINT) FROM blob WHERE hash IS NOT NULL"

_PAGE = 200


class Contents:
    """The content of one store on its way into another."""

    def __init__(self, stores: Stores) -> None:
        self._read, self._look, self._write = stores.read, stores.look, stores.write
        self._count = stores.count
        stores.fetch = self.fetch
        self._begun: dict[contents.Mark, int] | None = None

    def total(self) -> int:
        """Return how many bytes of content there are."""
        (total,) = self._read(lambda tx: tx.one(TOTAL)) or (0,)
        return int(total)

    def copy_all(self) -> None:
        """Copy every blob, also those that nothing links."""
        upto = self._read(lambda tx: base.newest(tx, BLOB))
        for rows in base.pages_of(self._read, BLOB, upto, _PAGE):
            self._copy_page([row for row in rows if row.hash is not None])  # others are being uploaded

    def copy_these(self, scope: str, hashes: Sequence[str]) -> None:
        """Copy some blobs; those that are not there are missed by whatever needs them."""
        for start in range(0, len(hashes), _PAGE):
            asked = hashes[start : start + _PAGE]
            rows = self._read(lambda tx: [blobs.find(tx, scope, each) for each in asked])  # noqa: B023
            self._copy_page([blob for blob in rows if blob is not None])

    def _copy_page(self, found: list[BlobRow]) -> None:
        there = self._look(lambda tx: contents.known(tx, found))
        for blob in found:
            if blob in there:
                self._count(already=True, blobs=1, bytes=blob.size)
            else:
                self._copy_unless_erased(blob)

    def _copy_unless_erased(self, blob: BlobRow) -> None:
        try:
            self._copy(blob)
        except Corrupt:
            if self._read(lambda tx: blobs.find(tx, blob.scope, blob.hash or "")) == blob:
                raise  # it is still there, and damaged

    def fetch(self, scope: str, content_hash: str) -> None:
        """Copy a blob that an entry needs."""
        self._copy(self._read(lambda tx: contents.get(tx, scope, content_hash)))

    def _copy(self, blob: BlobRow) -> None:
        if blob.chunks <= 1:
            self._copy_small(blob)
        else:
            self._copy_large(blob)
        self._count(blobs=1, bytes=blob.size)

    def _copy_small(self, blob: BlobRow) -> None:
        chunks = self._read(lambda tx: _small(tx, blob))
        self._write(blob.scope, lambda tx: contents.put_whole(tx, blob, chunks))
        if self._look(lambda tx: contents.digest(tx, blob.scope, blob.hash or "")) != blob.hash:
            raise _differs(blob)

    def _copy_large(self, blob: BlobRow) -> None:
        if self._begun is None:
            self._begun = self._look(contents.begun)
        blob_id = self._begun.pop(contents.mark(blob), None)
        if blob_id is not None and self._go_on(blob, blob_id):
            return
        blob_id = self._write(blob.scope, lambda tx: contents.begin(tx, blob))
        if not self._go_on(blob, blob_id):
            self._require_sound(blob)
            raise _differs(blob)

    def _require_sound(self, blob: BlobRow) -> None:
        digest, _ = content.digest_of(self._read, blob.scope, blob.blob_id, blob.chunks)
        if digest != blob.hash:
            self._read(lambda tx: _mismatch(blob))

    def _go_on(self, blob: BlobRow, blob_id: int) -> bool:
        """Bring the chunks that are missing; False if what is stored then is not the content."""
        scope, chunks = blob.scope, blob.chunks
        stored = self._look(lambda tx: contents.stored(tx, scope, blob_id))
        for number in range(chunks if stored is None else stored, chunks):
            chunk = self._read(lambda tx: contents.read_chunk(tx, blob, number))  # noqa: B023
            self._put(blob, blob_id, chunk)
        try:
            same = content.digest_of(self._look, scope, blob_id, chunks) == (blob.hash, blob.size)
        except Corrupt:
            same = False
        if same:
            return self._write(scope, lambda tx: contents.finish(tx, blob, blob_id))
        self._write(scope, lambda tx: blobs.abandon(tx, scope, blob_id))
        return False

    def _put(self, blob: BlobRow, blob_id: int, chunk: ChunkRow) -> None:
        if not self._write(blob.scope, lambda tx: contents.put_chunk(tx, blob_id, chunk)):
            raise Conflict("another copy into this destination is running; call again when it is done", found=blob.hash)


def _small(tx: Tx, blob: BlobRow) -> list[ChunkRow]:
    """Read a small blob as it is packed, once its content is what its hash says."""
    data = b"".join(content.read_chunk(tx, blob.scope, blob.blob_id, number) for number in range(blob.chunks))
    if (sha256(data).hexdigest(), len(data)) != (blob.hash, blob.size):
        _mismatch(blob)
    return [contents.read_chunk(tx, blob, number) for number in range(blob.chunks)]


def _mismatch(blob: BlobRow) -> NoReturn:
    raise Corrupt(f"content {(blob.hash or '')[:12]} does not match its hash", what=f"blob {blob.hash}")


def _differs(blob: BlobRow) -> Corrupt:
    return Corrupt(
        f"content {(blob.hash or '')[:12]} is not in the destination what it is in the source", what=f"blob {blob.hash}"
    )
