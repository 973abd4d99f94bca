"""Which store this is: a name that it got when it was made, and that copies of its files keep."""

from __future__ import annotations

from hashlib import sha256

from ..errors import Corrupt
from ..storage.base import Tx
from ..tables.store import META


def fingerprint(tx: Tx, scope: str) -> str:
    """Name a store and a scope of it, in letters that tell nothing of either."""
    try:
        row = META.get(tx, "store")
    except Corrupt:
        row = None
    if row is None:
        raise Corrupt("the store has lost its identity record; restore a backup", what="meta")
    return sha256(row.value + scope.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def require_readable(tx: Tx) -> None:
    """Read nothing: a store that cannot be read at all raises when the transaction begins."""
