"""Calls of the function that appends in one statement (``schema/append.sql``), its values written by hand.

An append to a session that was seen is the hottest call of all: it goes to the server as one prepared statement
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
from .address import Line

# As this version calls it: another version's of the same name may be there beside it.
FUNCTION = "append_known(text,text,text,text,text,bytea,bytea,bytea,bytea,bytea,bytea,bytea,bytea,bigint[])"
_NUMBER = Struct(">q")
_NAME = b"takeback_append_known"
_UNKNOWN = "26000"
_GIVEN = 12
_BINARY = [1] * _GIVEN
_COUNT = 14
_BIGINT = 20  # the type's number
_HEADER = Struct(">iiIii")  # of an array: dimensions, whether nulls are in it, type, length, number of the first one
_NUMBERS = Struct(_HEADER.format + "iq" * _COUNT)  # each behind its own length
_FIELDS = [1, 0, _BIGINT, _COUNT, 1, *[8] * (2 * _COUNT)]


class Calls:
    """The calls for one schema, with the settings of one store in their text."""

    def __init__(self, schema: str, sync: str | None, milliseconds: str) -> None:
        given = ", ".join(f"${number}" for number in range(1, _GIVEN + 1))
        self._known = f"SELECT {schema}.append_known({'NULL' if sync is None else repr(sync)}, {{}}, {given})"
        self._lock_ms = f"'{milliseconds}'"
        self._stored = f"""SELECT s.updated FROM {schema}.entry e LEFT JOIN {schema}.session s
            ON s.scope = e.scope AND s.sid = $4 AND s.rest = $5 WHERE e.scope = $1 AND e.key = $2 AND e.rest = $3"""

    def append_known(self, connection: Line, wanted: KnownAppend) -> int | None:
        """Append an entry that was computed from a row that was seen; return its position."""
        values = written(wanted, connection.epoch or 0)
        if connection.epoch is None:
            return _one(connection, self._known.format(self._lock_ms), values)
        # A connection of our own, which waits for no lock longer than it was told in the beginning.
        return _prepared(connection, self._known.format("NULL"), values)

    def find(self, connection: Line, wanted: KnownAppend) -> int | None:
        """Look whether an append whose answer was not heard was stored; behind it the session may have gone on."""
        entry = ENTRY.unchecked(wanted.entry)
        with connection.transaction():
            connection.execute("SELECT set_config('takeback.scope', $1, true)", (f"s{wanted.scope}",))
            asked = (wanted.scope, entry.key, entry.rest, wanted.sid, wanted.rest)
            found = connection.execute(self._stored, asked).fetchone()
        if found is None:
            return None
        return wanted.updated if found[0] is None else int(found[0])


def written(wanted: KnownAppend, epoch: int) -> list[bytes | None]:
    """Write what append_known wants behind the settings, in PostgreSQL's binary form; ``epoch`` is 0 if not known."""
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
    """Write numbers as PostgreSQL does an array of them in its binary form."""
    fields = _FIELDS[:]
    fields[6::2] = numbers
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
