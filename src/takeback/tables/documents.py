"""Documents: one value per namespace and key, with a version; only the current one is kept."""

from typing import NamedTuple

from .table import Index, Table

LIVE, DELETED, CLEARED = 0, 1, 2  # what ``hidden`` says


_PACKED = ("form", "created_ms", "updated_ms", "base_version", "base_ms", "base_hidden")


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
    base_version: int = 0
    base_ms: int = 0
    base_hidden: int = 0

    @property
    def last_put(self) -> tuple[int, int]:
        """What names its last put in any store: version and time."""
        return self.version, self.updated_ms

    @property
    def last_change(self) -> tuple[int, int, int]:
        """What names its last change in any store: its last put, and whether it was deleted since."""
        return self.version, self.updated_ms, DELETED if self.hidden == DELETED else LIVE

    @property
    def base(self) -> tuple[int, int, int]:
        """The last change when it was last copied here; zeros if it never was."""
        return self.base_version, self.base_ms, self.base_hidden


DOCUMENT = Table(
    "document",
    DocumentRow,
    key="scope, did",
    number="did",
    packed=_PACKED,
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
        "hidden": "1: deleted, 2: expired and cleared; the row keeps the version",
        "expires_ms": "from then on it reads as absent; NULL: never",
        "value": "NULL: in a blob, or gone",
        "hash": "of the blob that holds the value",
        "rest": f"MessagePack array: {', '.join(_PACKED)}; form is 'json' or 'bytes'",
    },
)
