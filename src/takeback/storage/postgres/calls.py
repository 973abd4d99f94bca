"""Calls of the functions that append in one statement (``schema/append.sql``), their values written by hand.

An append to a session that was seen is the hottest call of all: it goes to the server as one prepared statement
through the driver's lowest layer, which takes a third of the time of a cursor. Lists for the other one are
written as text: the driver would write them element by element, and the server reads them faster than that.
"""

from __future__ import annotations

import select
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any

import psycopg
from psycopg.errors import error_from_result

from ..appends import Append, KnownAppend, KnownAppended
from .address import Line

# As this version calls them: another version's of the same names may be there beside them.
FUNCTIONS = (
    "append(text,text,bigint,bigint,text,boolean,text,text,text[],bytea[],bytea[],bytea[],bytea[],bigint[],text[])",
    "append_known(text,text,text,text,text,bytea,bytea,bytea,bytea,bytea,bytea,bytea,bytea,bigint[],text[])",
)
_NUMBER = Struct(">q")
_NAME = b"takeback_append_known"
_UNKNOWN = "26000"
_GIVEN = 13
_BINARY = [1] * (_GIVEN - 1) + [0]
_COUNT = 26
_BIGINT = 20  # the type's number
_HEADER = Struct(">iiIii")  # of an array: dimensions, whether nulls are in it, type, length, number of the first one
_NUMBERS = Struct(_HEADER.format + "iq" * _COUNT)  # each behind its own length
_FIELDS = [1, 0, _BIGINT, _COUNT, 1, *[8] * (2 * _COUNT)]
_LENGTH, _NULL = b"\0\0\0\x08", b"\xff" * 4


class Calls:
    """The calls for one schema, with the settings of one store in their text."""

    def __init__(self, schema: str, sync: str | None, milliseconds: str) -> None:
        settings = ["NULL" if sync is None else f"'{sync}'", f"'{milliseconds}'"]
        known, plain = ([f"${number}" for number in range(1, count + 1)] for count in (_GIVEN, 13))
        plain[6:6] = settings
        self._known = f"SELECT {schema}.append_known({settings[0]}, {{}}, {', '.join(known)})"
        self._lock_ms = settings[1]
        self._stored = f"""SELECT s.updated, s.rank FROM {schema}.entry e LEFT JOIN {schema}.session s
            ON s.sid = $3 AND s.head_hash = e.hash WHERE e.key = $1 AND e.hash = $2"""
        self._append = f"SELECT * FROM {schema}.append({', '.join(plain)})"

    def append_known(self, connection: Line, wanted: KnownAppend) -> KnownAppended | None:
        """Append an entry that was computed from a row that was seen; give its position and the session's rank."""
        if connection.epoch is None:
            found = _one(connection, self._known.format(self._lock_ms), written(known_values(wanted, None)))
        else:  # a connection of our own, which waits for no lock longer than it was told in the beginning
            found = _prepared(connection, self._known.format("NULL"), written(known_values(wanted, connection.epoch)))
        if found is None:
            return None
        return KnownAppended(wanted, -found, wanted.rank) if found < 0 else KnownAppended(wanted, found, found)

    def find(self, connection: Line, wanted: KnownAppend) -> KnownAppended | None:
        """Look whether an append whose answer was not heard was stored; behind it the session may have gone on."""
        with connection.transaction():
            connection.execute("SELECT set_config('takeback.scope', $1, true)", (f"s{wanted.scope}",))
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


def known_values(wanted: KnownAppend, epoch: int | None) -> list[Any]:
    """Give what append_known wants behind the settings."""
    row = wanted.row
    key, begun = row[0], (wanted.sid, wanted.updated, wanted.head_check, epoch, wanted.key_check, wanted.rank)
    place = (wanted.revision, wanted.message_ms, key >> 32, key & 0xFFFFFFFF, key, row[2], row[8])
    numbers = [*begun, *place, *wanted.numbers, row[24]]
    marks = _texts(str(part) for mark in wanted.marks for part in mark) if wanted.marks else None
    return [
        wanted.scope,
        wanted.idempotency_key,
        row[1],
        row[5],
        row[6],
        row[21],
        row[23],
        *wanted[11:15],
        numbers,
        marks,
    ]


def written(values: list[Any]) -> list[bytes | None]:
    """Write what append_known wants in PostgreSQL's binary form."""
    scope, ikey, kind, *_, numbers, marks = values
    values[:3] = scope.encode(), None if ikey is None else ikey.encode(), kind.encode()
    values[-2:] = array(numbers), None if marks is None else marks.encode()
    return values


def array(numbers: Sequence[int | None]) -> bytes:
    """Write numbers as PostgreSQL does an array of them in its binary form."""
    if None in numbers:
        parts = (_NULL if number is None else _LENGTH + _NUMBER.pack(number) for number in numbers)
        return _HEADER.pack(1, 1, _BIGINT, _COUNT, 1) + b"".join(parts)
    fields = _FIELDS[:]
    fields[6::2] = numbers  # type: ignore[assignment]
    return _NUMBERS.pack(*fields)


def _one(connection: Line, sql: str, values: Sequence[bytes | None]) -> int | None:
    """Run the call behind a pooler, where nothing can be prepared."""
    types = [0] * _GIVEN
    connection.pgconn.send_query_params(sql.encode(), values, types, _BINARY, result_format=1)
    return _number(_answer(connection))


def _prepared(connection: Line, sql: str, values: Sequence[bytes | None]) -> int | None:
    """Run the call as a statement that this connection prepared before, or prepares now."""
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
    return _number(_answer(connection))


def _number(result: psycopg.pq.abc.PGresult) -> int | None:
    value = result.get_value(0, 0)
    return None if value is None else int(_NUMBER.unpack(value)[0])


def _answer(connection: Line) -> psycopg.pq.abc.PGresult:
    """Wait for what the server says to a statement that was sent; an interrupt is heard meanwhile."""
    pgconn = connection.pgconn
    while pgconn.flush():  # more than the socket takes at once
        connection.wait_for(select.POLLIN | select.POLLOUT)
        pgconn.consume_input()
    result = None
    while (found := _next_result(connection)) is not None:
        result = found
    if result is None:
        raise psycopg.OperationalError("the connection was lost")
    if result.status == psycopg.pq.ExecStatus.FATAL_ERROR:
        raise error_from_result(result)
    return result


def _next_result(connection: Line) -> psycopg.pq.abc.PGresult | None:
    """Wait for the next part of an answer, None at its end: asking for it too soon would stop all threads."""
    pgconn = connection.pgconn
    while pgconn.is_busy():
        connection.wait_for(select.POLLIN)
        pgconn.consume_input()
    return pgconn.get_result()


def _listed(values: Iterable[str]) -> str:
    return f"{{{','.join(values)}}}"


def _bytes(values: Iterable[bytes | None]) -> str:
    """Write a list of bytes as PostgreSQL reads it."""
    return _listed("NULL" if value is None else f'"\\\\x{value.hex()}"' for value in values)


def _texts(values: Iterable[str]) -> str:
    """Write a list of texts as PostgreSQL reads it."""
    escaped = (value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return _listed(f'"{value}"' for value in escaped)
