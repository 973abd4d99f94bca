"""Calls of the function that appends in one statement (``schema/append.sql``), with hand-encoded values.

An append to a session read before is the hottest call of all: it goes to the server as one prepared statement
through the driver's lowest layer, which takes a third of the time of a cursor.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from struct import Struct
from typing import Any

import psycopg
from psycopg.errors import error_from_result

from ...tables.entries import ENTRY
from ..appends import KnownAppend
from .address import ServerConnection

# The signature that this version calls: another version's function of the same name may exist beside it.
FUNCTION = "append_known(text,text,text,text,text,bytea,bytea,bytea,bytea,bytea,bytea,bytea,bytea,bigint[])"
_NUMBER = Struct(">q")
_NAME = b"takeback_append_known"
_UNKNOWN = "26000"
_GIVEN = 12
_BINARY = [1] * _GIVEN
_COUNT = 14
_BIGINT = 20  # the type's oid
_HEADER = Struct(">iiIii")  # of an array: dimensions, whether it has nulls, element type, length, lower bound
_NUMBERS = Struct(_HEADER.format + "iq" * _COUNT)  # each number after its length
_FIELDS = [1, 0, _BIGINT, _COUNT, 1, *[8] * (2 * _COUNT)]


class Calls:
    """The calls for one schema, with the settings of one store in their text."""

    def __init__(self, schema: str, sync: str | None, milliseconds: str) -> None:
        given = ", ".join(f"${number}" for number in range(1, _GIVEN + 1))
        self._known = f"SELECT {schema}.append_known({'NULL' if sync is None else repr(sync)}, {{}}, {given})"
        self._lock_ms = f"'{milliseconds}'"
        self._stored = f"""SELECT s.updated FROM {schema}.entry e LEFT JOIN {schema}.session s
            ON s.scope = e.scope AND s.sid = $4 AND s.rest = $5 WHERE e.scope = $1 AND e.key = $2 AND e.rest = $3"""

    def append_known(self, connection: ServerConnection, wanted: KnownAppend) -> int | None:
        """Append an entry computed from a row read before; return its feed position, None if the row has changed."""
        values = written(wanted, connection.epoch or 0)
        if connection.epoch is None:
            return _one(connection, self._known.format(self._lock_ms), values)
        # A connection that is not pooled: its lock timeout was set when it was opened.
        return _prepared(connection, self._known.format("NULL"), values)

    def find(self, connection: ServerConnection, wanted: KnownAppend) -> int | None:
        """Return the position of an append whose reply was lost, if it was stored; the session may have moved on."""
        entry = ENTRY.unchecked(wanted.entry)
        with connection.transaction():
            connection.execute("SELECT set_config('takeback.scope', $1, true)", (f"s{wanted.scope}",))
            asked = (wanted.scope, entry.key, entry.rest, wanted.sid, wanted.rest)
            found = connection.execute(self._stored, asked).fetchone()
        if found is None:
            return None
        return wanted.updated if found[0] is None else int(found[0])


def written(wanted: KnownAppend, epoch: int) -> list[bytes | None]:
    """Encode the arguments of append_known after the settings, in PostgreSQL's binary format; 0 is no known epoch."""
    entry, check = ENTRY.unchecked(wanted.entry), wanted.entry[-1]
    key, once = (None, 0) if wanted.once is None else wanted.once
    numbers = (wanted.sid, wanted.check, wanted.updated_ms, entry.key, entry.at_ms, entry.turns)
    return [
        wanted.scope.encode(),
        entry.kind.encode(),
        None if key is None else key.encode(),
        entry.body,
        entry.raw,
        entry.rest,
        wanted.rest,
        *wanted.around_session,
        *wanted.around_change,
        array((*numbers, check, wanted.branch, wanted.seq, once, wanted.rank, wanted.messages, wanted.updated, epoch)),
    ]


def array(numbers: Sequence[Any]) -> bytes:
    """Encode numbers as an array in PostgreSQL's binary format."""
    fields = _FIELDS[:]
    fields[6::2] = numbers
    return _NUMBERS.pack(*fields)


def _one(connection: ServerConnection, sql: str, values: Sequence[bytes | None]) -> int | None:
    """Run the call behind a pooler, where nothing can be prepared."""
    types = [0] * _GIVEN
    connection.pgconn.send_query_params(sql.encode(), values, types, _BINARY, result_format=1)
    return _number(_answer(connection))


def _prepared(connection: ServerConnection, sql: str, values: Sequence[bytes | None]) -> int | None:
    """Run the call as a prepared statement, preparing it first if this connection has not."""
    if connection.knows_append:
        try:
            return _executed(connection, values)
        except psycopg.Error as error:
            if error.sqlstate != _UNKNOWN:
                raise
            connection.knows_append = False  # after a rollback the driver deallocates all statements
    connection.pgconn.send_prepare(_NAME, sql.encode())
    _answer(connection)
    connection.knows_append = True
    return _executed(connection, values)


def _executed(connection: ServerConnection, values: Sequence[bytes | None]) -> int | None:
    connection.pgconn.send_query_prepared(_NAME, values, _BINARY, result_format=1)
    return _number(_answer(connection))


def _number(result: psycopg.pq.abc.PGresult) -> int | None:
    value = result.get_value(0, 0)
    return None if value is None else int(_NUMBER.unpack(value)[0])


def _answer(connection: ServerConnection) -> psycopg.pq.abc.PGresult:
    """Wait for the result of a statement that was sent; an interrupt can end the wait."""
    pgconn = connection.pgconn
    while pgconn.flush():  # the statement does not fit into the socket's buffer at once
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


def _next_result(connection: ServerConnection) -> psycopg.pq.abc.PGresult | None:
    """Wait for the next result, None at the end; ``get_result`` would block all threads if called too early."""
    pgconn = connection.pgconn
    while pgconn.is_busy():
        connection.wait_for(select.POLLIN)
        pgconn.consume_input()
    return pgconn.get_result()
