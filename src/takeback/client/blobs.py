"""Moving large content in and out, a chunk per transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256

from ..clock import Clock
from ..errors import Corrupt, Error, NotFound
from ..model.entry import Draft
from ..ops import blobs
from ..storage.base import Backend, Tx

SPILL_BYTES = 64 << 10


def store(backend: Backend, clock: Clock, scope: str, data: bytes) -> str:
    """Keep content once per scope and give its hash."""
    content_hash = blobs.hash_of(data)
    if not backend.read(lambda tx: blobs.exists(tx, scope, content_hash)):
        view = memoryview(data)
        store_stream(backend, clock, scope, (view[i : i + blobs.CHUNK] for i in range(0, len(data), blobs.CHUNK)))
    return content_hash


def store_stream(backend: Backend, clock: Clock, scope: str, pieces: Iterable[bytes | memoryview]) -> str:
    """Keep content that arrives in pieces; memory holds one chunk at a time. What fails half-way is taken back."""
    now_ms = clock.now_ms()
    blob_id = backend.write(lambda tx: blobs.begin(tx, scope, now_ms=now_ms))
    try:
        return _upload(backend, scope, blob_id, pieces, now_ms)
    except BaseException:
        with suppress(Error):
            backend.write(lambda tx: blobs.abandon(tx, scope, blob_id), frees_space=True)
        raise


def _upload(backend: Backend, scope: str, blob_id: int, pieces: Iterable[bytes | memoryview], now_ms: int) -> str:
    digest, size, number = sha256(), 0, 0
    for number, chunk in enumerate(_rechunk(pieces), 1):
        digest.update(chunk)
        size += len(chunk)
        _add(backend, scope, blob_id, number - 1, chunk)
    content_hash = digest.hexdigest()
    backend.write(
        lambda tx: blobs.finish(tx, scope, blob_id, content_hash=content_hash, size=size, chunks=number, now_ms=now_ms)
    )
    return content_hash


def _add(backend: Backend, scope: str, blob_id: int, number: int, chunk: bytes) -> None:
    packed = blobs.pack(chunk)
    backend.write(lambda tx: blobs.add_chunk(tx, scope, blob_id, number, packed))


def _rechunk(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    waiting = bytearray()
    for piece in pieces:
        waiting += piece
        while len(waiting) >= blobs.CHUNK:
            yield bytes(waiting[: blobs.CHUNK])
            del waiting[: blobs.CHUNK]
    if waiting:
        yield bytes(waiting)


def open_stream(backend: Backend, scope: str, content_hash: str) -> Iterator[bytes]:
    """Give content chunk by chunk; the last one comes only if all of them match the hash."""
    digest, number, chunks = sha256(), 0, size_and_chunks(backend, scope, content_hash)[1]
    while number < chunks:
        data = _chunk(backend, scope, content_hash, number)
        digest.update(data)
        number += 1
        if number == chunks and digest.hexdigest() != content_hash:
            raise Corrupt(f"content {content_hash[:12]} does not match its hash", what=f"blob {content_hash}")
        yield data


def open_linked(backend: Backend, scope: str, content_hash: str) -> Iterator[bytes]:
    """Give content that something in the store names; here it is damage that it is missing, and not its absence."""
    try:
        yield from open_stream(backend, scope, content_hash)
    except NotFound as error:
        raise Corrupt(
            f"content {content_hash[:12]} is linked but missing; verify() names the file", what=f"blob {content_hash}"
        ) from error


def size_and_chunks(backend: Backend, scope: str, content_hash: str) -> tuple[int, int]:
    """Return the size of content that the scope has, and in how many chunks; else raise ``NotFound``."""
    found = backend.read(lambda tx: blobs.describe(tx, scope, content_hash))
    return found.size, found.chunks


def _chunk(backend: Backend, scope: str, content_hash: str, number: int) -> bytes:
    """Read a chunk by the name of the content: its number may be another's after a purge."""

    def look(tx: Tx) -> bytes:
        return blobs.read_chunk(tx, scope, blobs.describe(tx, scope, content_hash).blob_id, number)

    return backend.read(look)


def is_large(draft: Draft) -> bool:
    """Say whether a part of an entry belongs into a blob."""
    return len(draft.body) > SPILL_BYTES or (draft.raw is not None and len(draft.raw) > SPILL_BYTES)


def spill(backend: Backend, clock: Clock, scope: str, draft: Draft) -> Draft:
    """Store the large parts of an entry as blobs ahead of the entry itself."""
    parts = [
        store(backend, clock, scope, part) if part is not None and len(part) > SPILL_BYTES else ""
        for part in (draft.body, draft.raw)
    ]
    return draft._replace(spill=",".join(parts)) if any(parts) else draft
