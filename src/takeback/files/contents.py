"""Contents: bytes of any size, moved in and out of a store in chunks, one transaction each.

Attachments, files and the large parts of entries all go this way, ahead of the entry that links them. Memory holds one
chunk; an upload that fails is taken back, and a prune spares one that is in progress.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from ..errors import Corrupt, Error, NotFound
from ..model.entry import Draft
from ..ops import blobs
from ..storage.runner import FREEING, Reads, Runner
from ..tables.content import SPILL_BYTES

if TYPE_CHECKING:
    from ..ops.documents import Prepared


def store(runner: Runner, data: bytes) -> str:
    """Keep content once per scope and return its hash."""
    content_hash = blobs.hash_of(data)
    if not runner.read(blobs.exists, runner.scope, content_hash):
        view = memoryview(data)
        store_stream(runner, (view[i : i + blobs.CHUNK] for i in range(0, len(data), blobs.CHUNK)))
    return content_hash


def store_unlinked(runner: Runner, data: bytes) -> str:
    """Keep content that nothing links yet and return its hash; from now on a prune spares it for a while."""
    content_hash = blobs.hash_of(data)
    if not runner.write(blobs.renew, runner.scope, content_hash, now_ms=runner.clock.now_ms()):
        store(runner, data)
    return content_hash


def read_whole(runner: Reads[Any], content_hash: str) -> bytes:
    """Read content into memory, a chunk per transaction."""
    return b"".join(open_stream(runner, content_hash))


def store_stream(runner: Runner, pieces: Iterable[bytes | memoryview]) -> str:
    """Keep content that arrives in pieces, and return its hash."""
    now_ms = runner.clock.now_ms()
    blob_id = runner.write(blobs.begin, runner.scope, now_ms=now_ms)
    try:
        return _upload(runner, blob_id, pieces, now_ms)
    except BaseException:
        with suppress(Error):
            runner.write_as(FREEING, blobs.abandon, runner.scope, blob_id)
        raise


def _upload(runner: Runner, blob_id: int, pieces: Iterable[bytes | memoryview], now_ms: int) -> str:
    digest, size, number = sha256(), 0, 0
    for number, chunk in enumerate(_rechunk(pieces), 1):
        digest.update(chunk)
        size += len(chunk)
        runner.write(blobs.add_chunk, runner.scope, blob_id, number - 1, blobs.pack(chunk))
    content_hash = digest.hexdigest()
    runner.write(
        blobs.finish, runner.scope, blob_id, content_hash=content_hash, size=size, chunks=number, now_ms=now_ms
    )
    return content_hash


def _rechunk(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    waiting = bytearray()
    for piece in pieces:
        waiting += piece
        while len(waiting) >= blobs.CHUNK:
            yield bytes(waiting[: blobs.CHUNK])
            del waiting[: blobs.CHUNK]
    if waiting:
        yield bytes(waiting)


def open_stream(runner: Reads[Any], content_hash: str) -> Iterator[bytes]:
    """Yield content chunk by chunk; the last one is yielded only if the whole matches the hash."""
    digest, number, chunks = sha256(), 0, runner.read(blobs.describe, runner.scope, content_hash).chunks
    while number < chunks:
        data = runner.read(blobs.chunk_of, runner.scope, content_hash, number)
        digest.update(data)
        number += 1
        if number == chunks and digest.hexdigest() != content_hash:
            raise Corrupt(f"content {content_hash[:12]} does not match its hash", what=f"blob {content_hash}")
        yield data


def open_linked(runner: Reads[Any], content_hash: str) -> Iterator[bytes]:
    """Yield content that something in the store refers to: if it is missing, that is damage."""
    try:
        yield from open_stream(runner, content_hash)
    except NotFound as error:
        raise Corrupt(
            f"content {content_hash[:12]} is linked but missing; verify() names the file", what=f"blob {content_hash}"
        ) from error


def is_large(draft: Draft) -> bool:
    """Whether a part of an entry belongs in a blob."""
    return len(draft.body) > SPILL_BYTES or (draft.raw is not None and len(draft.raw) > SPILL_BYTES)


def spill(runner: Runner, draft: Draft) -> Draft:
    """Store the large parts of an entry as blobs ahead of the entry itself."""
    parts = [
        store(runner, part) if part is not None and len(part) > SPILL_BYTES else "" for part in (draft.body, draft.raw)
    ]
    return draft._replace(spill=",".join(parts)) if any(parts) else draft


def spill_value(runner: Runner, value: Prepared) -> Prepared:
    """Store a large value of a document as a blob ahead of the document itself."""
    return value._replace(hash=store(runner, value.data)) if value.is_large else value
