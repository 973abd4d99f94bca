"""An append as one plain statement (``append.sql``), with hand-encoded values.

An append to a session read before is the hottest call of all. The caller has computed everything except the position in
the feed, so one statement takes that position, updates the session if nobody changed it since, and adds the entry and
the change. It is its own transaction. It goes to the server prepared, through the driver's lowest layer, which takes a
third of the time of a cursor.

Where row security applies, the transaction must first say whose data it is about: that goes ahead in the same round
trip, as a pipeline is one transaction. Behind a pooler, where the next transaction may be anybody's, nothing is
prepared, and every setting goes ahead in this way.

The two checks that depend on the position come as the packed columns before and behind it. The server computes them
with ``crc32()``, which PostgreSQL 18 is the first to have.
"""

from __future__ import annotations

import select
from importlib import resources
from struct import Struct
from typing import TypeAlias

import psycopg
from psycopg.errors import error_from_result

from ..appends import KnownAppend
from .address import ServerConnection

Values: TypeAlias = "list[bytes | None]"

SINCE = 180000  # the first server version with crc32()
_FIND = """SELECT s.updated FROM {schema}.entry e LEFT JOIN {schema}.session s
ON s.scope = e.scope AND s.sid = $4 AND s.rest = $5 WHERE e.scope = $1 AND e.key = $2 AND e.rest = $3"""
_number, _epoch = Struct(">q"), Struct(">i")
_pack = _number.pack
_BINARY = [1] * 26
_UNKNOWN = "26000"
_FATAL, _SYNC = psycopg.pq.ExecStatus.FATAL_ERROR, psycopg.pq.ExecStatus.PIPELINE_SYNC
_GOOD = psycopg.pq.ConnStatus.OK


class Appends:
    """The statements for one schema.

    ``lasting`` and ``passing`` are calls of set_config for one transaction; those that last can stay on a connection
    that is ours alone. ``secured``: row security applies to this role, so each append must say whose data it is about.
    """

    def __init__(self, schema: str, *, lasting: str, passing: str, secured: bool) -> None:
        self._plain = b"takeback_append", statement(schema, keyed=False).encode()
        self._keyed = b"takeback_append_keyed", statement(schema, keyed=True).encode()
        said = ", ".join(filter(None, ("set_config('takeback.scope', 's' || $1::text, true)", passing)))
        self._said = b"takeback_scope", f"SELECT {said}".encode()
        self._everything = f"SELECT {said}, {lasting}".encode()
        self._lasting = f"SELECT {lasting.replace('true', 'false')}"
        self._says = secured or bool(passing)
        self._find = _FIND.format(schema=schema)

    def append_known(self, connection: ServerConnection, wanted: KnownAppend) -> int | None:
        """Append an entry computed from a row read before; return its feed position, None if the row has changed."""
        name, sql = self._plain if wanted.once is None else self._keyed
        values = written(wanted, connection.epoch)
        if connection.epoch is None:
            return self._pooled(connection, sql, wanted.scope, values)
        try:
            if not connection.knows_append:
                self._prepare(connection)
            return self._prepared(connection, name, wanted.scope, values)
        except psycopg.Error as error:
            if error.sqlstate != _UNKNOWN:
                raise
            connection.knows_append = False  # after a rollback the driver deallocates all statements
        return self.append_known(connection, wanted)

    def _prepare(self, connection: ServerConnection) -> None:
        connection.execute(self._lasting)
        for name, sql in (self._said, self._plain, self._keyed):
            connection.pgconn.send_prepare(name, sql)
            _answer(connection)
        connection.knows_append = True

    def _prepared(self, connection: ServerConnection, name: bytes, scope: str, values: Values) -> int | None:
        pgconn = connection.pgconn
        if not self._says:
            pgconn.send_query_prepared(name, values, _BINARY[: len(values)], 1)
            return _position(_answer(connection))
        pgconn.enter_pipeline_mode()  # what is sent until the next sync is one transaction
        pgconn.send_query_prepared(self._said[0], [scope.encode()], _BINARY[:1])
        pgconn.send_query_prepared(name, values, _BINARY[: len(values)], 1)
        return _position(_end_of_pipeline(connection))

    def _pooled(self, connection: ServerConnection, sql: bytes, scope: str, values: Values) -> int | None:
        """Run the statement behind a pooler, where nothing can be prepared and nothing may stay set."""
        pgconn = connection.pgconn
        pgconn.enter_pipeline_mode()
        pgconn.send_query_params(self._everything, [scope.encode()], None, _BINARY[:1])
        pgconn.send_query_params(sql, values, None, _BINARY[: len(values)], 1)
        return _position(_end_of_pipeline(connection))

    def find(self, connection: ServerConnection, wanted: KnownAppend) -> int | None:
        """Return the position of an append whose reply was lost, if it was stored; the session may have moved on."""
        with connection.transaction():
            connection.execute("SELECT set_config('takeback.scope', $1, true)", (f"s{wanted.scope}",))
            asked = (wanted.scope, wanted.entry.key, wanted.entry.rest, wanted.sid, wanted.rest)
            found = connection.execute(self._find, asked).fetchone()
        if found is None:
            return None
        return wanted.updated if found[0] is None else int(found[0])


def statement(schema: str, *, keyed: bool) -> str:
    """Return the statement for a schema, with or without an idempotency key."""
    lines = (resources.files(__package__) / "append.sql").read_text("utf-8").replace(":schema", schema).split("\n")
    return "\n".join(line for line in lines if keyed or not line.endswith("-- keyed"))


def written(wanted: KnownAppend, epoch: int | None) -> Values:
    """Encode the values of the statement in PostgreSQL's binary format; without an epoch the server looks it up."""
    entry = wanted.entry
    values = [
        None if epoch is None else _epoch.pack(epoch),
        _pack(wanted.updated_ms),
        _pack(wanted.seq),
        _pack(wanted.messages),
        wanted.rest,
        *wanted.around_session,
        wanted.scope.encode(),
        _pack(wanted.sid),
        _pack(wanted.check),
        _pack(wanted.rank_end),
        _pack(wanted.updated),
        _pack(wanted.rank),
        _pack(entry.key),
        entry.kind.encode(),
        _pack(entry.at_ms),
        _pack(entry.turns),
        entry.body,
        entry.raw,
        entry.rest,
        _pack(wanted.entry_check),
        _pack(wanted.branch),
        *wanted.around_change,
    ]
    if wanted.once is not None:
        key, check = wanted.once
        values += (key.encode(), _pack(check))
    return values


def _answer(connection: ServerConnection) -> psycopg.pq.abc.PGresult:
    """Wait for the result of a statement that was sent; an interrupt can end the wait."""
    result = None
    while (found := _next_result(connection)) is not None:
        result = found
    return _sound(result)


def _end_of_pipeline(connection: ServerConnection) -> psycopg.pq.abc.PGresult:
    """Commit what was sent and leave the pipeline; return the last statement's result, or raise the first error."""
    pgconn = connection.pgconn
    pgconn.pipeline_sync()
    result = failed = None
    while (found := _next_result(connection)) is None or found.status != _SYNC:  # None ends each statement
        if found is None and pgconn.status != _GOOD:
            break
        result = found or result
        if failed is None and found is not None and found.status == _FATAL:
            failed = found
    else:
        pgconn.exit_pipeline_mode()
    return _sound(failed or result)


def _sound(result: psycopg.pq.abc.PGresult | None) -> psycopg.pq.abc.PGresult:
    if result is None:
        raise psycopg.OperationalError("the connection was lost")
    if result.status == _FATAL:
        raise error_from_result(result)
    return result


def _position(result: psycopg.pq.abc.PGresult) -> int | None:
    value = result.get_value(0, 0) if result.ntuples else None
    return None if value is None else int(_number.unpack(value)[0])


def _next_result(connection: ServerConnection) -> psycopg.pq.abc.PGresult | None:
    """Wait for the next result, None at the end; ``get_result`` would block all threads if called too early."""
    pgconn = connection.pgconn
    while pgconn.flush():  # the statement does not fit into the socket's buffer at once
        connection.wait_for(select.POLLIN | select.POLLOUT)
        pgconn.consume_input()
    while pgconn.is_busy():
        connection.wait_for(select.POLLIN)
        pgconn.consume_input()
    return pgconn.get_result()
