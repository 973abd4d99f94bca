"""What is demanded of documents: each has a value that can be read, in its row or in a blob, or is marked as gone."""

from __future__ import annotations

from ...clock import to_datetime
from ...errors import Corrupt, Error
from ...storage.base import Tx
from ...tables.content import SPILL_BYTES
from ...tables.documents import CLEARED, DELETED, DOCUMENT, LIVE, DocumentRow
from .. import blobs, documents
from .base import Check, Fault, Rule


def document_fault(tx: Tx, row: DocumentRow) -> str | Fault:
    """Return what is wrong with a document whose row is sound."""
    if what := row_fault(row):
        return what
    if row.hash is None or not (lost := _blob_fault(tx, row)):
        return ""
    return Fault("missing", lost)


def row_fault(row: DocumentRow) -> str:
    """Return what is wrong with a row by itself."""
    if not _is_named(row):
        return "its namespace or its key is not one that a document can have"
    marks = row.hidden in (LIVE, DELETED, CLEARED) and row.base_hidden in (LIVE, DELETED)
    if row.version < 1 or not marks or not isinstance(row.base_version, int):
        return "its version or one of its marks has no meaning"
    if not all(map(_is_time, (row.created_ms, row.updated_ms, row.expires_ms or 0, row.base_ms))):
        return "it has a time that no date can be"
    if row.hidden:
        empty = row.value is None and row.hash is None and row.expires_ms is None
        return "" if empty else "it is marked as gone, but has a value"
    if (row.value is None) == (row.hash is None) or row.form not in documents.FORMS:
        return "it has no value, or one in a form that is not known"
    if row.value is None:
        return ""
    if len(row.value) > SPILL_BYTES:
        return f"its value has {len(row.value)} bytes, more than a row holds"
    return _value_fault(row.form, row.value)


def _is_time(ms: object) -> bool:
    try:
        return isinstance(ms, int) and to_datetime(ms) is not None
    except (ValueError, OverflowError):
        return False


def _is_named(row: DocumentRow) -> bool:
    try:
        return documents.stored_name(row.namespace, row.key) == (row.namespace, row.key)
    except Error:
        return False


def _blob_fault(tx: Tx, row: DocumentRow) -> str:
    """Return what is wrong with the blob of a value; of bytes it is checked with the blobs whether they are whole."""
    if not blobs.exists(tx, row.scope, row.hash or ""):
        return f"content {row.hash}, which is its value, is missing"
    if row.form == documents.BYTES:
        return ""
    try:
        return _value_fault(row.form, blobs.read_whole(tx, row.scope, row.hash or ""))
    except Corrupt:
        return ""  # reported with the blob


def _value_fault(form: str, data: bytes) -> str:
    try:
        documents.decoded(form, data)
    except Corrupt as error:
        return f"its value cannot be read: {error}"
    return ""


RULES: tuple[Check, ...] = (Rule(DOCUMENT, document_fault, "document", gaps=Fault("missing", "the record is missing")),)
