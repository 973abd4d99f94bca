"""Numbered schema files, applied in order, each in one transaction with its record.

A file is never changed once released; the next change is the next number. A store that a newer
Takeback wrote is refused, never recreated; a file that is some other program's is left alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from ..errors import SchemaTooNew


class Migration(msgspec.Struct, frozen=True, order=True):
    """One schema file: its number, its name, its SQL."""

    version: int
    name: str
    sql: str


def load() -> list[Migration]:
    """Read the schema files that ship with this version, in order."""
    # Every opening comes here, and importlib.resources would load more than all the rest of it.
    folder, found = os.path.join(os.path.dirname(__file__), "schema"), list[Migration]()
    for item in os.listdir(folder):
        number, _, rest = item.partition("_")
        if item.endswith(".sql") and number.isdigit():
            with open(os.path.join(folder, item), encoding="utf-8") as file:
                found.append(Migration(int(number), rest.removesuffix(".sql"), file.read()))
    found.sort()
    assert [m.version for m in found] == list(range(1, len(found) + 1)), "schema files leave a gap"
    return found


def pending(version: int, migrations: list[Migration]) -> list[Migration]:
    """Give what a store at ``version`` still needs; a newer store is ``SchemaTooNew``."""
    latest = migrations[-1].version
    if version > latest:
        raise SchemaTooNew(
            f"this store has schema {version}, this Takeback knows up to {latest};"
            " upgrade with: pip install --upgrade takeback"
        )
    return migrations[version:]


def apply(version: Callable[[], int], migrations: list[Migration], step: Callable[[Migration], None]) -> None:
    """Bring a store up to date; ``step`` runs one migration and its record in one transaction."""
    for migration in pending(version(), migrations):
        step(migration)
