"""Documents: values under a namespace and a key, each with a version.

Only the current value is kept. A version counts the puts of a key, and goes on after a delete: the row stays, without
its value, so that one number never names two contents. A document whose time is up reads as absent from that moment;
its value is cleared later, by a write (``clear_expired``).

Values are encoded, and large ones stored as blobs, before the transaction that puts them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .. import codec
from ..errors import Conflict, Corrupt, Invalid
from ..model.document import BETWEEN, Document, parts_of
from ..storage.base import LOCK, Tx
from ..tables.content import SPILL_BYTES
from ..tables.documents import CLEARED, DELETED, DOCUMENT, LIVE, DocumentRow
from . import blobs, feed, idempotency

if TYPE_CHECKING:
    from .idempotency import ApiCall

JSON, BYTES = "json", "bytes"
FORMS = (JSON, BYTES)
ONCE = "document"  # the kind of an idempotency key
_CLEARED = 100  # documents in one step
_SOME, _PAGE_BYTES = 100, 8 << 20  # rows of one read, and about how much a page of values may hold
MAX_NAMESPACE, MAX_KEY = 500, 1000  # bytes: an index of PostgreSQL takes no longer rows

EXPIRED = "WHERE scope = ? AND expires_ms IS NOT NULL AND expires_ms <= ? ORDER BY expires_ms LIMIT ?"
LISTED = f"""{DOCUMENT.select} INDEXED BY document_live WHERE scope = ? AND namespace = ? AND hidden = 0
AND key {{since}} ? {{until}} AND (expires_ms IS NULL OR expires_ms > ?) ORDER BY key LIMIT ?"""
BY_KEY = f"WHERE scope = ? AND namespace = ? AND key = ?{LOCK}"


# What is left of a row without its value: name and version.
GONE: dict[str, Any] = {"hidden": DELETED, "expires_ms": None, "value": None, "hash": None}


class Prepared(NamedTuple):
    """A value, encoded; ``hash`` names the blob that holds it, once it was stored as one."""

    form: str
    data: bytes
    hash: str | None = None

    @property
    def is_large(self) -> bool:
        """Whether it must be stored as a blob before it is put."""
        return len(self.data) > SPILL_BYTES


def named(namespace: object, key: object) -> tuple[str, str]:
    """Check the namespace and the key of a document, and return them as they are stored."""
    return namespace_text(namespace), key_text(key)


def stored_name(namespace: str, key: str) -> tuple[str, str]:
    """Check a name as it is stored; one that cannot be raises ``Invalid``."""
    return named(namespace.split(BETWEEN), key)


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


# ---------------------------------------------------------------------- reading


def find(tx: Tx, scope: str, namespace: str, key: str, *, now_ms: int) -> Document | None:
    """Return a document, None if it is absent, deleted or expired."""
    found = _live(DOCUMENT.one(tx, BY_KEY, (scope, namespace, key)), now_ms)
    return None if found is None else shown(found, _data_of(tx, found))


def shown(row: DocumentRow, data: bytes) -> Document:
    """Return a document as callers see it; data that cannot be decoded raises ``Corrupt``."""
    try:
        value = decoded(row.form, data)
    except Corrupt as error:
        raise _damaged(row, error) from error
    return Document(
        namespace=parts_of(row.namespace),
        key=row.key,
        value=value,
        version=row.version,
        created_ms=row.created_ms,
        updated_ms=row.updated_ms,
        expires_ms=row.expires_ms,
    )


def _data_of(tx: Tx, row: DocumentRow) -> bytes:
    if row.hash is None:
        return row.value or b""
    try:
        return blobs.read_whole(tx, row.scope, row.hash)
    except Corrupt as error:
        raise _damaged(row, error) from error


def _damaged(row: DocumentRow, error: Corrupt) -> Corrupt:
    what = DOCUMENT.called(row)
    return Corrupt(f"the value of {what} is damaged: {error}; run verify to see what else is", what=what)


class DocumentsFound(NamedTuple):
    """A page of documents, the key to go on from (None at the end), and what is damaged among them."""

    documents: list[Document]
    reached: str | None
    damaged: list[str]


def page(
    tx: Tx, scope: str, namespace: str, *, prefix: str, after: str | None, limit: int, now_ms: int
) -> DocumentsFound:
    """Return the next documents whose keys begin with a prefix, in the order of their keys.

    A page ends early once it holds some megabytes. Damaged documents are named and left out.
    """
    found, size, damaged = list[Document](), 0, list[str]()
    while True:
        wanted = min(limit - len(found), _SOME) + 1  # one more shows whether the page is the last
        rows = tx.all(*_listed(scope, namespace, prefix, after, now_ms, wanted))
        for stored in rows[: wanted - 1]:
            row = DOCUMENT.unchecked(stored)
            if after is not None and not row.key > after:
                raise Corrupt("the keys of documents are out of order", what=DOCUMENT.called(row))
            after = row.key
            try:
                data = _data_of(tx, DOCUMENT.checked(stored))
                found.append(shown(row, data))
                size += len(data)
            except Corrupt as error:
                damaged.append(error.what)
            if size > _PAGE_BYTES:
                return DocumentsFound(found, after, damaged)
        if len(rows) < wanted:
            return DocumentsFound(found, None, damaged)
        if len(found) == limit:
            return DocumentsFound(found, after, damaged)


def _listed(
    scope: str, namespace: str, prefix: str, after: str | None, now_ms: int, limit: int
) -> tuple[str, tuple[Any, ...]]:
    """Return the statement for a range of keys, and its values."""
    end = _behind(prefix)
    sql = LISTED.format(since=">=" if after is None else ">", until="" if end is None else "AND key < ?")
    ends = () if end is None else (end,)
    return sql, (scope, namespace, prefix if after is None else after, *ends, now_ms, limit)


def _behind(prefix: str) -> str | None:
    """Return the first text behind all that begin with a prefix, None if nothing is.

    Both engines compare text by its bytes in UTF-8, which is the order of code points.
    """
    kept = prefix.rstrip("\U0010ffff")
    if not kept:
        return None
    following = ord(kept[-1]) + 1
    return kept[:-1] + chr(0xE000 if following == 0xD800 else following)  # surrogates are not text


# ---------------------------------------------------------------------- writing


def put_once(
    tx: Tx,
    scope: str,
    namespace: str,
    key: str,
    value: Prepared,
    call: ApiCall,
    *,
    expected_version: int | None,
    ttl_ms: int | None,
) -> tuple[Document, bool]:
    """Put a document, once per idempotency key; return it, and whether values of others wait to be cleared."""
    now_ms = call.now_ms
    expires_ms = None if ttl_ms is None else now_ms + ttl_ms
    marks: dict[str, Any] = {"expected_version": expected_version, "expires_ms": expires_ms, "now_ms": now_ms}

    def do() -> tuple[DocumentRow, str]:
        row = put(tx, scope, namespace, key, value, **marks)
        return row, f"{row.version} {row.created_ms} {row.updated_ms}"

    def again(made: str) -> DocumentRow:
        version, created_ms, updated_ms = map(int, made.split())
        until = None if ttl_ms is None else updated_ms + ttl_ms
        times = created_ms, updated_ms
        return DocumentRow(scope, 0, namespace, key, version, LIVE, until, None, value.hash, value.form, *times)

    row = idempotency.once(tx, scope, 0, call, kind=ONCE, do=do, again=again)
    return shown(row, value.data), has_expired(tx, scope, now_ms=now_ms)


def delete_once(tx: Tx, scope: str, namespace: str, key: str, call: ApiCall, *, expected_version: int | None) -> bool:
    """Delete a document, once per idempotency key; return whether there was one."""

    def do() -> tuple[bool, str]:
        found = delete(tx, scope, namespace, key, expected_version=expected_version, now_ms=call.now_ms)
        return found is not None, "1" if found else "0"

    return idempotency.once(tx, scope, 0, call, kind=ONCE, do=do, again=lambda made: made == "1")


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
    old = locked(tx, scope, namespace, key)
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
        LIVE,
        expires_ms,
        None if value.hash else value.data,
        value.hash,
        value.form,
        now_ms if found is None else found.created_ms,
        now_ms,
        *(() if old is None else old.base),
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
    found = _live(locked(tx, scope, namespace, key), now_ms)
    _require(key, expected_version, found)
    if found is not None:
        DOCUMENT.update(tx, found, found._replace(**GONE))
        feed.record_document(tx, scope, found.did, 0)
    return found


def locked(tx: Tx, scope: str, namespace: str, key: str) -> DocumentRow | None:
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
        DOCUMENT.update(tx, row, row._replace(**{**GONE, "hidden": CLEARED}))
    return len(rows)
