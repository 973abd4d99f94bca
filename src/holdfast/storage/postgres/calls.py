"""Calls of the functions that append in one statement (``schema/append.sql``), their values written by hand.

An append to a session that was seen is the hottest call of all: it goes to the server as one prepared statement
through the driver's lowest layer, which takes a third of the time of a cursor. Lists for the other one are
written as text: the driver would write them element by element, and the server reads them faster than that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any

import psycopg
from psycopg import generators
from psycopg.errors import error_from_result

from ..base import Append, KnownAppend, KnownAppended
from .address import Line

_NUMBER = Struct(">q")
_NAME = b"holdfast_append_known"
_UNKNOWN = "26000"
_GIVEN = 34
_BINARY = [1] * _GIVEN


class Calls:
    """The calls for one schema, with the settings of one store in their text."""

    def __init__(self, schema: str, sync: str | None, milliseconds: str) -> None:
        settings = ["NULL" if sync is None else f"'{sync}'", f"'{milliseconds}'"]
        known, plain = ([f"${number}" for number in range(1, count + 1)] for count in (_GIVEN, 13))
        known[6:6] = plain[6:6] = settings
        self._known = f"SELECT {schema}.append_known({', '.join(known)})"
        self._stored = f"""SELECT s.updated, s.rank FROM {schema}.entry e LEFT JOIN {schema}.session s
            ON s.sid = $3 AND s.head_hash = e.hash WHERE e.key = $1 AND e.hash = $2"""
        self._append = f"SELECT * FROM {schema}.append({', '.join(plain)})"

    def append_known(self, connection: Line, wanted: KnownAppend) -> KnownAppended | None:
        """Append an entry that was computed from a row that was seen; give its position and the session's rank."""
        row, prepare = wanted.row, connection.prepare_threshold is not None
        entry = (row[0], row[1], row[2], row[5], row[6], row[8], *wanted.numbers, row[21], row[23], row[24])
        given = (*wanted[:6], *entry, *wanted[8:])
        found = _prepared(connection, self._known, given) if prepare else _one(connection, self._known, given)
        if found is None:
            return None
        return KnownAppended(wanted, -found, wanted.rank) if found < 0 else KnownAppended(wanted, found, found)

    def find(self, connection: Line, wanted: KnownAppend) -> KnownAppended | None:
        """Look whether an append whose answer was not heard was stored; behind it the session may have gone on."""
        with connection.transaction():
            connection.execute("SELECT set_config('holdfast.scope', $1, true)", (f"s{wanted.scope}",))
            found = connection.execute(self._stored, (wanted.row[0], wanted.row[23], wanted.sid)).fetchone()
        if found is None:
            return None
        position, rank = found
        return KnownAppended(wanted, *((wanted.updated, wanted.rank) if position is None else (position, rank)))

    def append(self, wanted: Append) -> tuple[str, Sequence[Any]]:
        """Write the call for entries that the server is to compute."""
        entries = wanted.entries
        adds = [number for entry in entries for number in entry.adds]
        calls = [part for index, entry in enumerate(entries) for call in entry.calls for part in (str(index), *call)]
        kinds = _texts(entry.kind for entry in entries)
        columns = zip(*((entry.body, entry.raw, entry.salt, entry.content_hash) for entry in entries), strict=True)
        return self._append, (*wanted[:6], kinds, *map(_bytes, columns), _listed(map(str, adds)), _texts(calls))


def _one(connection: Line, sql: str, given: Sequence[Any]) -> int | None:
    row = connection.execute(sql, given).fetchone()
    return None if row is None else row[0]


def _prepared(connection: Line, sql: str, given: Sequence[Any]) -> int | None:
    """Run the call as a statement that this connection prepared before, or prepares now."""
    values = list(map(_binary, given))
    if connection.knows_append:
        try:
            return _executed(connection, values)
        except psycopg.Error as error:
            if error.sqlstate != _UNKNOWN:
                raise
            connection.knows_append = False  # after a rollback the driver makes the server forget all statements
    connection.pgconn.send_prepare(_NAME, sql.encode())
    _answer(connection)
    connection.knows_append = True
    return _executed(connection, values)


def _executed(connection: Line, values: Sequence[bytes | None]) -> int | None:
    connection.pgconn.send_query_prepared(_NAME, values, _BINARY, result_format=1)
    value = _answer(connection).get_value(0, 0)
    return None if value is None else int(_NUMBER.unpack(value)[0])


def _answer(connection: Line) -> psycopg.pq.abc.PGresult:
    """Wait for what the server says to a statement that was sent."""
    result: psycopg.pq.abc.PGresult = connection.wait(generators.execute(connection.pgconn))[-1]
    if result.status == psycopg.pq.ExecStatus.FATAL_ERROR:
        raise error_from_result(result)
    return result


def _binary(value: int | str | bytes | None) -> bytes | None:
    if type(value) is int:
        return _NUMBER.pack(value)
    return value.encode() if isinstance(value, str) else value  # type: ignore[return-value]


def _listed(values: Iterable[str]) -> str:
    return f"{{{','.join(values)}}}"


def _bytes(values: Iterable[bytes | None]) -> str:
    """Write a list of bytes as PostgreSQL reads it."""
    return _listed("NULL" if value is None else f'"\\\\x{value.hex()}"' for value in values)


def _texts(values: Iterable[str]) -> str:
    """Write a list of texts as PostgreSQL reads it."""
    escaped = (value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return _listed(f'"{value}"' for value in escaped)
