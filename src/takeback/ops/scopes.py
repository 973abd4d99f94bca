"""Scopes: whose data a store holds. No table lists them; a scope is there as long as a row is of it."""

from __future__ import annotations

from ..storage.base import Tx, scalar
from ..tables.agents import AGENT
from ..tables.content import BLOB
from ..tables.sessions import SESSION

# Everything else belongs to one of these.
_ROOTS = (AGENT.name, SESSION.name, BLOB.name)


def every(tx: Tx) -> list[str]:
    """Return the scopes that hold anything, in order; a step of an index for each of them, however much they hold."""
    return sorted({scope for table in _ROOTS for scope in _of(tx, table)})


def _of(tx: Tx, table: str) -> list[str]:
    found = list[str]()
    last = scalar(tx, f"SELECT min(scope) FROM {table}")
    while last is not None:
        found.append(last)
        last = scalar(tx, f"SELECT min(scope) FROM {table} WHERE scope > ?", (last,))
    return found
