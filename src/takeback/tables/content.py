"""Blobs and their chunks: large content, stored once per scope."""

from typing import NamedTuple

from .table import Index, Table

SPILL_BYTES = 64 << 10  # anything longer is stored as a blob, not in the row that needs it


class BlobRow(NamedTuple):
    """A row of ``blob``."""

    scope: str
    blob_id: int
    hash: str | None
    size: int
    chunks: int
    created_ms: int
    place: str


class ChunkRow(NamedTuple):
    """A row of ``chunk``."""

    scope: str
    blob_id: int
    n: int
    codec: str
    data: bytes


BLOB = Table(
    "blob",
    BlobRow,
    key="scope, blob_id",
    number="blob_id",
    called=lambda row: f"content {row.hash}",
    indexes=[Index("blob_hash", "scope, hash", unique=True, where="hash IS NOT NULL")],
    notes={
        "hash": "SHA-256 of the content; NULL while it is being uploaded",
        "place": "'': in chunks; else where else it lies",
    },
)
CHUNK = Table(
    "chunk",
    ChunkRow,
    key="scope, blob_id, n",
    called=lambda row: f"chunk {row.n} of content number {row.blob_id}",
    refs={"blob_id": "blob"},
    notes={"codec": "'raw' or 'zstd'"},
)
