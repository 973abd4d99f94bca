"""Copying a store row by row into a new file: whatever can be read is copied, whatever cannot is named.

Tables are read in the order of their keys, so no index is trusted, and the copy's own indexes are made anew. Where the
file is damaged the other end is read backwards and the rows between are looked for one range at a time. Text that is
no UTF-8 any more is copied with marks in it: its row's check then fails, and whoever repairs sees it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

import apsw

from ..errors import Conflict, Corrupt
from ..tables import schema
from ..tables.table import Table
from . import files
from .base import Row, Tx
from .connection import close_quietly, connect, translated

COLUMNS = "SELECT name FROM pragma_table_info(?) ORDER BY cid"
_PAGE = 16
_PROBES = 20_000  # ranges that are tried where the file is damaged
_LOW, _HIGH = -(1 << 63), (1 << 63) - 1


class _Table(NamedTuple):
    name: str
    insert: str
    forward: str
    backward: str
    between: str
    keys: int
    is_text: tuple[bool, ...]
    numbered: bool

    def row(self, row: Row) -> Row:
        values = zip(self.is_text, row[self.keys :], strict=True)
        return tuple(_text(value) if text and isinstance(value, bytes) else value for text, value in values)


def copy_rows(tx: Tx, path: str, *, application_id: int) -> list[str]:
    """Copy everything that a transaction can read into a new file; return words for what it cannot."""
    descriptor = files.create_private(path)
    if descriptor is None:
        raise Conflict(f"{path!r} exists already; name a new file for the copy", found=path)
    os.close(descriptor)
    unread: list[str] = []
    with translated():
        target = connect(path)
        try:
            target.pragma("foreign_keys", False)
            with target:
                target.execute(schema.sqlite()).fetchall()
                target.pragma("application_id", application_id)
                for described in schema.TABLES:
                    table = _described(tx, described)
                    missing = [f"table {described.name}"]
                    unread += missing if table is None else _copy_table(tx, target.cursor(), table)
        finally:
            close_quietly(target)
    return unread


def _described(tx: Tx, table: Table[tuple[object, ...]]) -> _Table | None:
    """Return how a table is read; None if the file's damaged table of contents does not show it."""
    # The names of columns may be damaged as well; their number and order tell enough.
    found = [str(name) for (name,) in tx.all(COLUMNS, (table.name,))]
    if len(found) != table.width:
        return None
    is_text = tuple(kind == "TEXT" for kind, _ in table.types().values())
    by_row = bool(table.number) or not schema.without_rowid(table)
    places = [] if by_row else [table.stored.index(name) for name in table.key]
    keys = [(_quoted(found[at]), is_text[at]) for at in places] or [("rowid", False)]
    shown = [_as_bytes(_quoted(column), text) for column, text in zip(found, is_text, strict=True)]
    seen = [f"CAST({key} AS BLOB)" if text else key for key, text in keys]
    slots = ", ".join("CAST(? AS TEXT)" if text else "?" for _, text in keys)
    order, down = ", ".join(key for key, _ in keys), ", ".join(f"{key} DESC" for key, _ in keys)
    select = f"SELECT {', '.join([*seen, *shown])} FROM {table.name} NOT INDEXED"
    return _Table(
        table.name,
        table.insert,
        f"{select} WHERE ({order}) > ({slots}) ORDER BY {order} LIMIT ?",
        f"{select} WHERE ({order}) < ({slots}) ORDER BY {down} LIMIT ?",
        f"{select} WHERE {order} BETWEEN ? AND ? LIMIT ?",
        len(keys),
        is_text,
        numbered=by_row,
    )


def _quoted(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _as_bytes(column: str, text: bool) -> str:
    """Read text as bytes, also where damage put it into a column of numbers or bytes."""
    cast = f"CAST({column} AS BLOB)"
    return cast if text else f"CASE typeof({column}) WHEN 'text' THEN {cast} ELSE {column} END"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _copy_table(tx: Tx, target: apsw.Cursor, table: _Table) -> list[str]:
    """Copy what can be read of a table; return what cannot."""
    first: Row = (_LOW,) if table.numbered else ()
    low, whole = _run(tx, target, table, table.forward, first)
    if whole:
        return []
    last: Row = (_HIGH,) if table.numbered else ()
    high, _ = _run(tx, target, table, table.backward, last)
    if table.numbered:
        _probe(tx, target, table, low[0] + 1, high[0] - 1)
        return [f"rows of table {table.name} between {low[0]} and {high[0]}"]
    return [f"rows of table {table.name}"]


def _run(tx: Tx, target: apsw.Cursor, table: _Table, sql: str, key: Row) -> tuple[Row, bool]:
    """Copy rows in one direction; return the last key reached, and whether that was the end."""
    limit = _PAGE
    while True:
        start, asked = (sql, (*key, limit)) if key else (_from_the_end(sql), (limit,))
        try:
            rows = tx.all(start, asked)
        except Corrupt:
            if limit == 1:
                return key, False
            limit = 1
            continue
        if not rows:
            return key, True
        _put(target, table, rows)
        reached = rows[-1][: table.keys]
        if key and not _goes_on(key, reached, sql is table.forward):
            return key, False
        key = reached


def _goes_on(key: Row, reached: Row, up: bool) -> bool:
    """Whether keys that were read lie in their direction; those of a damaged file may not."""
    try:
        return key < reached if up else reached < key
    except TypeError:
        return False


def _from_the_end(sql: str) -> str:
    before, _, rest = sql.partition(" WHERE ")
    return f"{before} ORDER BY{rest.partition(' ORDER BY')[2]}"


def _put(target: apsw.Cursor, table: _Table, rows: Sequence[Row]) -> None:
    for row in rows:
        try:
            target.execute(table.insert, table.row(row))
        except apsw.ConstraintError:
            continue  # a value of the wrong type, or a row that is there twice: it counts as missing


def _probe(tx: Tx, target: apsw.Cursor, table: _Table, low: int, high: int) -> None:
    """Copy rows between two damaged places, halving the range where it cannot be read."""
    waiting, probes = [(low, high)], 0
    while waiting and probes < _PROBES:
        low, high = waiting.pop(0)
        probes += 1
        try:
            rows = tx.all(table.between, (low, high, _PAGE))
            _put(target, table, rows)
            if len(rows) == _PAGE and rows[-1][0] > low:
                waiting.append((rows[-1][0], high))
        except Corrupt:
            if low < high:
                middle = (low + high) // 2
                waiting += [(low, middle), (middle + 1, high)]
