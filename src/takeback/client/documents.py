"""Documents of a store: values by namespace and key, beside sessions and untouched by their rewinds."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ..errors import Error, Invalid, NotFound
from ..files import contents
from ..model import Bound, document, page
from ..ops import blobs, documents
from ..storage.runner import FREEING, FREEING_ALONE
from . import arguments

if TYPE_CHECKING:
    from ..model.document import Document, Namespace
    from ..model.page import Page
    from .base import StoreBase


class Documents(Bound):
    """The documents of one namespace; every method reads or writes the store."""

    def __init__(self, store: StoreBase, namespace: object) -> None:
        self._store = store
        self._namespace = documents.namespace_text(namespace)

    @property
    def namespace(self) -> Namespace:
        """The namespace: a string, or a tuple if it has several parts."""
        return document.parts_of(self._namespace)

    def get(self, key: str) -> Document:
        """Return a document; raises ``NotFound`` if it is absent or has expired."""
        found = self.find(key)
        if found is None:
            raise NotFound(f"there is no document {key!r} in {self.namespace!r}")
        return found

    def find(self, key: str) -> Document | None:
        """Return a document, or None if it is absent or has expired."""
        wanted, now_ms = documents.key_text(key), self._store._clock.now_ms()
        return self._store._read(documents.find, self._store.scope, self._namespace, wanted, now_ms=now_ms)

    def put(
        self,
        key: str,
        value: Any,
        *,
        expected_version: int | None = None,
        ttl: float | timedelta | None = None,
        idempotency_key: str | None = None,
    ) -> Document:
        """Store a value, bytes or plain data, as the next version of a document; durable when this returns.

        Raises ``Conflict`` unless the document is at ``expected_version``; 0 means that it must not exist. With ``ttl``
        it reads as absent after so many seconds; without one it stays, even if the version before it had one.
        """
        store, name = self._store, documents.key_text(key)
        expected, ttl_ms = _expected(expected_version), _ttl_ms(ttl)
        prepared = documents.prepare(value)
        request = [self._namespace, name, prepared.form, ttl_ms, expected]
        if idempotency_key is not None:
            request.append(blobs.hash_of(prepared.data))
        call = store._call(idempotency_key, ["put", *request])
        prepared = contents.spill_value(store._runner, prepared)
        marks = {"expected_version": expected, "ttl_ms": ttl_ms}
        done, waiting = store._write(documents.put_once, store.scope, self._namespace, name, prepared, call, **marks)
        if waiting:
            with suppress(Error):  # the document is stored; a later write clears what has expired
                store._write_as(FREEING_ALONE, documents.clear_expired, store.scope, now_ms=call.now_ms)
        return done

    def delete(self, key: str, *, expected_version: int | None = None, idempotency_key: str | None = None) -> bool:
        """Delete a document and return whether there was one; ``expected_version`` works as in ``put``.

        Its versions go on where they were if it is put again.
        """
        store, name, expected = self._store, documents.key_text(key), _expected(expected_version)
        call = store._call(idempotency_key, ["delete", self._namespace, name, expected])
        asked = store.scope, self._namespace, name, call
        return store._write_as(FREEING, documents.delete_once, *asked, expected_version=expected)

    def list(self, prefix: str = "", *, limit: int = 100, cursor: str | None = None) -> Page[Document]:
        """List the documents whose keys begin with a prefix, ordered by key; pass the page's cursor to go on.

        A page may hold fewer than ``limit`` if their values are large; only a cursor of None is the end. The page's
        ``damaged`` names documents that cannot be read.
        """
        arguments.whole(limit, what="limit", low=1, high=10_000)
        start = "" if prefix == "" else documents.key_text(prefix)
        after = None if cursor is None else documents.key_text(cursor)
        if after is not None and not after.startswith(start):
            raise Invalid("that cursor comes from a listing with another prefix; list again without it")
        asked = self._store.scope, self._namespace
        marks: dict[str, Any] = {"prefix": start, "after": after, "limit": limit}
        found = self._store._read(documents.page, *asked, **marks, now_ms=self._store._clock.now_ms())
        return page.Page(found.documents, found.reached, tuple(found.damaged))

    def __repr__(self) -> str:
        return f"<Documents {self.namespace!r}>"


def _expected(version: int | None) -> int | None:
    return None if version is None else arguments.whole(version, what="expected_version")


def _ttl_ms(ttl: float | timedelta | None) -> int | None:
    """Check how long a document lives, and return it in milliseconds."""
    if ttl is None:
        return None
    seconds = arguments.seconds(ttl.total_seconds() if isinstance(ttl, timedelta) else ttl, what="ttl")
    if seconds < 0.001:
        raise Invalid("ttl must be at least a millisecond; delete the document instead")
    return round(seconds * 1000)
