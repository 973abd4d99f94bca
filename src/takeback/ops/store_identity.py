"""The identity of a store: given when it was created, and kept by copies of its files."""

from __future__ import annotations

from hashlib import sha256

from ..errors import Corrupt
from ..storage.base import Tx
from ..tables.store import META


def fingerprint(tx: Tx, scope: str) -> str:
    """Return an opaque name of a store and a scope, which reveals neither."""
    try:
        row = META.get(tx, "store")
    except Corrupt:
        row = None
    if row is None:
        raise Corrupt("the store has lost its identity record; restore a backup", what="meta")
    return sha256(row.value + scope.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def require_readable(tx: Tx) -> None:
    """Do nothing: a store that cannot be read at all raises when the transaction begins."""
