"""Schema versions. A new store is created from ``tables`` at the newest version, in one transaction.

An older store is brought up to date by numbered files, applied in order, each in one transaction with its record. A
file never changes once released; the next change gets the next number, starting with ``0002``. A store written by a
newer Takeback is refused, never recreated; another program's file is left alone.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from ..errors import SchemaTooNew
from ..tables import store
from .base import Tx, scalar

if TYPE_CHECKING:
    from ..tables.store import MigrationRow

NAME = "store"  # the name of the version that the descriptors create


class Migration(msgspec.Struct, frozen=True, order=True):
    """One step: the version it leads to, its name, its SQL."""

    version: int
    name: str
    sql: str


def load() -> list[Migration]:
    """Read the migrations that ship with this version, in order; there are none for version 1."""
    # Every open calls this, and importlib.resources would import more than everything else together.
    folder, found = os.path.join(os.path.dirname(__file__), "schema"), list[Migration]()
    for item in os.listdir(folder) if os.path.isdir(folder) else ():
        number, _, rest = item.partition("_")
        if item.endswith(".sql") and number.isdigit():
            with open(os.path.join(folder, item), encoding="utf-8") as file:
                found.append(Migration(int(number), rest.removesuffix(".sql"), file.read()))
    found.sort()
    assert [m.version for m in found] == list(range(2, len(found) + 2)), "schema files leave a gap"
    return found


def latest(migrations: list[Migration]) -> int:
    """Return the newest version that this Takeback knows."""
    return len(migrations) + 1


def pending(version: int, migrations: list[Migration]) -> list[Migration]:
    """Return the migrations that a store at ``version`` still needs; a newer store raises ``SchemaTooNew``."""
    if version > latest(migrations):
        raise SchemaTooNew(
            f"this store has schema {version}, but this Takeback only knows up to {latest(migrations)};"
            " upgrade with: pip install --upgrade takeback"
        )
    return migrations[max(version, 1) - 1 :]


def rows(migrations: list[Migration], now_ms: int) -> list[MigrationRow]:
    """Return the migration records of a store created at the newest version."""
    steps = [(1, NAME), *((step.version, step.name) for step in migrations)]
    return [store.MigrationRow(version, name, now_ms) for version, name in steps]


def version(tx: Tx) -> int:
    """Return the schema version of an open store."""
    return int(scalar(tx, "SELECT max(version) FROM migration") or 0)
