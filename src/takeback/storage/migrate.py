"""Schema versions. A new store is made from the descriptors of ``tables`` at the newest version, in one transaction.

An older store is brought up to date by numbered files, applied in order, each in one transaction with its record. A
file is never changed once released; the next change is the next number, beginning with ``0002``. A store that a newer
Takeback wrote is refused, never recreated; a file that is some other program's is left alone.
"""

from __future__ import annotations

import os

import msgspec

from ..errors import SchemaTooNew
from ..tables.store import MigrationRow
from .base import Tx, scalar

NAME = "store"  # of the version that the descriptors make


class Migration(msgspec.Struct, frozen=True, order=True):
    """One step: the version that it leads to, its name, its SQL."""

    version: int
    name: str
    sql: str


def load() -> list[Migration]:
    """Read the migrations that ship with this version, in order; there are none for version 1."""
    # Every opening comes here, and importlib.resources would load more than all the rest of it.
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
    """Return what a store at ``version`` still needs, from 1 on; a newer store raises ``SchemaTooNew``."""
    if version > latest(migrations):
        raise SchemaTooNew(
            f"this store has schema {version}, this Takeback knows up to {latest(migrations)};"
            " upgrade with: pip install --upgrade takeback"
        )
    return migrations[max(version, 1) - 1 :]


def rows(migrations: list[Migration], now_ms: int) -> list[MigrationRow]:
    """Return the records of a store that is made at the newest version."""
    steps = [(1, NAME), *((step.version, step.name) for step in migrations)]
    return [MigrationRow(version, name, now_ms) for version, name in steps]


def version(tx: Tx) -> int:
    """Return the schema version of an open store."""
    return int(scalar(tx, "SELECT max(version) FROM migration") or 0)
