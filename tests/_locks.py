"""Watches writes on PostgreSQL: a session, agent or document is changed only from a row that was read under a lock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from takeback.storage.base import LOCK
from takeback.tables.agents import AGENT
from takeback.tables.documents import DOCUMENT
from takeback.tables.sessions import SESSION
from takeback.tables.table import Table


def watch(patch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which every change is added whose row was not read with the marker, or changed since.

    A transaction may go on from a row that it made or wrote itself: nobody else has that one either.
    """
    from takeback.storage.postgres.backend import PostgresTx

    wrong, read, put, update = list[str](), PostgresTx.all, Table.put, Table.update

    def watched_read(tx: PostgresTx, sql: str, args: Sequence[Any] = ()) -> list[Any]:
        rows = read(tx, sql, args)
        for table in (SESSION, AGENT, DOCUMENT):
            if sql.startswith(f"{table.select} ") and sql.endswith(LOCK):
                _held(tx).update({(table.name, *stored[:2]): stored[-1] for stored in rows})
        return rows

    def watched_put(table: Table[Any], tx: Any, row: Any) -> Any:
        if _is_watched(table, tx):
            _held(tx)[(table.name, *row[:2])] = table.check(row)
        return put(table, tx, row)

    def watched_update(table: Table[Any], tx: Any, old: Any, new: Any) -> Any:
        if _is_watched(table, tx):
            key = (table.name, *old[:2])
            if _held(tx).get(key) != table.check(old):
                wrong.append(f"{table.called(old)} is written from a row that was not locked: {old} -> {new}")
            _held(tx)[key] = table.check(new)
        return update(table, tx, old, new)

    def _is_watched(table: Table[Any], tx: Any) -> bool:
        return table in (SESSION, AGENT, DOCUMENT) and isinstance(tx, PostgresTx)

    patch.setattr(PostgresTx, "all", watched_read)
    patch.setattr(Table, "put", watched_put)
    patch.setattr(Table, "update", watched_update)
    return wrong


def _held(tx: Any) -> dict[tuple[Any, ...], int]:
    """Return the checks of the rows that a transaction has locked or written, by table and key."""
    found: dict[tuple[Any, ...], int] = tx.__dict__.setdefault("held", {})
    return found
