"""Which store this is: a name that it got when it was made, and that copies of its files keep."""

from __future__ import annotations

from hashlib import sha256

from ..errors import Corrupt
from ..storage.base import Tx, row_check

GET = "SELECT value, chk FROM meta WHERE name = 'store'"


def fingerprint(tx: Tx, scope: str) -> str:
    """Name a store and a scope of it, in letters that tell nothing of either."""
    row = tx.one(GET, ())
    if row is None or row[1] != row_check(("store", row[0])):
        raise Corrupt("the store has lost its identity record; restore a backup", what="meta")
    return sha256(bytes(row[0]) + scope.encode("utf-8", "surrogatepass")).hexdigest()[:32]
