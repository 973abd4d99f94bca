"""Documents: one value per namespace and key, with a version; only the current one is kept."""

from typing import NamedTuple

from .table import Index, Table


class DocumentRow(NamedTuple):
    """A row of ``document``."""

    scope: str
    did: int
    namespace: str
    key: str
    version: int
    hidden: int
    expires_ms: int | None
    value: bytes | None
    hash: str | None
    form: str
    created_ms: int
    updated_ms: int


DOCUMENT = Table(
    "document",
    DocumentRow,
    key="scope, did",
    number="did",
    packed=("form", "created_ms", "updated_ms"),
    called=lambda row: f"document {row.key!r} in {row.namespace!r}",
    indexes=[
        Index("document_key", "scope, namespace, key", unique=True),
        Index("document_live", "scope, namespace, key", where="hidden = 0"),
        Index("document_expires", "scope, expires_ms", where="expires_ms IS NOT NULL"),
        Index("document_hash", "scope, hash", where="hash IS NOT NULL"),
    ],
    notes={
        "did": "local to this store; never leaves it",
        "namespace": "its parts, joined by U+001F",
        "version": "from 1; grows with every put, even after a delete",
        "hidden": "1: deleted, or expired and cleared; the row keeps the version",
        "expires_ms": "from then on it reads as absent; NULL: never",
        "value": "NULL: in a blob, or gone",
        "hash": "of the blob that holds the value",
        "rest": "MessagePack array: form ('json' or 'bytes'), created_ms, updated_ms",
    },
)
