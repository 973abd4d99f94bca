"""Documents: values under a namespace and a key, each with a version.

Only the current value is kept. A version counts the puts of a key, and goes on after a delete: the row stays, without
its value, so that one number never names two contents. A document whose time is up reads as absent from that moment;
its value is cleared later, by a write (``clear_expired``).

Values are encoded, and large ones stored as blobs, before the transaction that puts them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import codec
from ..errors import Conflict, Invalid
from ..model.document import BETWEEN
from ..storage.base import LOCK, Tx
from ..tables.documents import DOCUMENT, DocumentRow
from . import blobs, feed

JSON, BYTES = "json", "bytes"
FORMS = (JSON, BYTES)
_CLEARED = 100  # documents in one step
MAX_NAMESPACE, MAX_KEY = 500, 1000  # bytes: an index of PostgreSQL takes no longer rows

EXPIRED = "WHERE scope = ? AND expires_ms IS NOT NULL AND expires_ms <= ? ORDER BY expires_ms LIMIT ?"
BY_KEY = f"WHERE scope = ? AND namespace = ? AND key = ?{LOCK}"


class Prepared(NamedTuple):
    """A value, encoded; ``hash`` names the blob that holds it, once it was stored as one."""

    form: str
    data: bytes
    hash: str | None = None

    @property
    def is_large(self) -> bool:
        """Whether it must be stored as a blob before it is put."""
        return len(self.data) > blobs.SPILL_BYTES


def named(namespace: object, key: object) -> tuple[str, str]:
    """Check the namespace and the key of a document, and return them as they are stored."""
    return namespace_text(namespace), key_text(key)


def namespace_text(namespace: object) -> str:
    """Check a namespace, a string or a list of strings, and return it as it is stored.

    A list of one string is that string.
    """
    parts = list(namespace) if isinstance(namespace, list | tuple) else [namespace]
    if not parts:
        raise Invalid("a namespace must have at least one part")
    texts = [codec.storable_text(part, what="namespace") for part in parts]
    if "" in texts:
        raise Invalid("no part of a namespace may be empty")
    if any(BETWEEN in text for text in texts):
        raise Invalid("a namespace must not contain the control character U+001F")
    return _fitting(BETWEEN.join(texts), MAX_NAMESPACE, what="namespace")


def key_text(key: object) -> str:
    """Check the key of a document."""
    text = codec.storable_text(key, what="document key")
    if not text:
        raise Invalid("a document key must not be empty")
    return _fitting(text, MAX_KEY, what="document key")


def _fitting(text: str, most: int, *, what: str) -> str:
    size = len(text.encode())
    if size > most:
        raise Invalid(f"{what} must have at most {most} bytes in UTF-8, not {size}")
    return text


def prepare(value: Any) -> Prepared:
    """Encode a value: bytes as they are, anything else as data; what cannot be stored raises ``Invalid``."""
    if isinstance(value, bytes | bytearray | memoryview):
        return Prepared(BYTES, bytes(value))
    return Prepared(JSON, codec.encode(value))


def decoded(form: str, data: bytes) -> Any:
    """Return the value that was encoded."""
    return data if form == BYTES else codec.decode(data)


# ---------------------------------------------------------------------- writing


def put(
    tx: Tx,
    scope: str,
    namespace: str,
    key: str,
    value: Prepared,
    *,
    expected_version: int | None,
    expires_ms: int | None,
    now_ms: int,
) -> DocumentRow:
    """Put the next version of a document; one that is not at ``expected_version`` (0: absent) raises ``Conflict``."""
    old = _locked(tx, scope, namespace, key)
    found = _live(old, now_ms)
    _require(key, expected_version, found)
    assert not value.is_large or value.hash, "a large value is stored as a blob first"
    if value.hash and not blobs.exists(tx, scope, value.hash):
        said = f"the content of document {key!r} was pruned while it was being stored"
        raise Conflict(f"{said}; try again", found=value.hash)
    new = DocumentRow(
        scope,
        tx.next("document") if old is None else old.did,
        namespace,
        key,
        1 if old is None else old.version + 1,
        0,
        expires_ms,
        None if value.hash else value.data,
        value.hash,
        value.form,
        now_ms if found is None else found.created_ms,
        now_ms,
    )
    if old is None:
        DOCUMENT.put(tx, new)
    else:
        DOCUMENT.update(tx, old, new)
    feed.record_document(tx, scope, new.did, new.version)
    return new


def delete(
    tx: Tx, scope: str, namespace: str, key: str, *, expected_version: int | None, now_ms: int
) -> DocumentRow | None:
    """Delete a document and return it as it was, None if it is absent; ``expected_version`` works as in ``put``."""
    found = _live(_locked(tx, scope, namespace, key), now_ms)
    _require(key, expected_version, found)
    if found is not None:
        _clear(tx, found)
        feed.record_document(tx, scope, found.did, 0)
    return found


def _locked(tx: Tx, scope: str, namespace: str, key: str) -> DocumentRow | None:
    """Return the row of a key, live or not, and keep others from changing it."""
    found = DOCUMENT.one(tx, BY_KEY, (scope, namespace, key))
    if found is None:
        tx.lock(f"document {scope} {namespace} {key}")  # and search again: another writer may just have made it
        found = DOCUMENT.one(tx, BY_KEY, (scope, namespace, key))
    return found


def _live(row: DocumentRow | None, now_ms: int) -> DocumentRow | None:
    """Return a row if there is a document now: neither deleted nor expired."""
    expired = row is not None and row.expires_ms is not None and row.expires_ms <= now_ms
    return None if row is None or row.hidden or expired else row


def _require(key: str, expected: int | None, found: DocumentRow | None) -> None:
    version = 0 if found is None else found.version
    if expected is not None and expected != version:
        wanted = f"at version {expected}" if expected else "absent"
        there = f"at version {version}" if version else "absent"
        raise Conflict(
            f"document {key!r} is {there}, not {wanted}; read it again and decide what still applies",
            expected=expected,
            found=version,
        )


def has_expired(tx: Tx, scope: str, *, now_ms: int) -> bool:
    """Whether values wait to be cleared."""
    return tx.one(f"SELECT 1 FROM document {EXPIRED}", (scope, now_ms, 1)) is not None


def clear_expired(tx: Tx, scope: str, *, now_ms: int) -> int:
    """Drop the values of some documents whose time is up, the oldest first; return how many.

    It changes many documents, so it runs alone. A document that expires is no change in the feed.
    """
    stored = tx.all(f"{DOCUMENT.select} {EXPIRED}{LOCK}", (scope, now_ms, _CLEARED))
    rows = [DOCUMENT.checked(each) for each in stored if DOCUMENT.is_sound(each)]  # a damaged one keeps nobody waiting
    for row in rows:
        _clear(tx, row)
    return len(rows)


def _clear(tx: Tx, row: DocumentRow) -> None:
    """Drop the value and keep the row."""
    DOCUMENT.update(tx, row, row._replace(hidden=1, expires_ms=None, value=None, hash=None))
