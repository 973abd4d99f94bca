"""An append as one plain statement (``append.sql``), with hand-encoded values.

An append to a session read before is the hottest call of all. The caller has computed everything except the position in
the feed, so one statement takes that position, updates the session if nobody changed it since, and adds the entry and
the change. It is its own transaction. It goes to the server prepared, through the driver's lowest layer, which takes a
third of the time of a cursor.

Where others append to the same session, that would mostly fail. So whoever lost takes turns: a first round trip locks
the session's row and returns it, a second one sends the statement as computed from it, and the COMMIT.

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
from psycopg.pq.abc import PGresult

from ...tables.sessions import SESSION
from ..appends import KnownAppend
from ..base import LOCK, Row, Value
from .address import ServerConnection
from .dialect import Words

Values: TypeAlias = "list[bytes | None]"
Sent: TypeAlias = tuple[bytes, Values]  # the name of a prepared statement and its values

SINCE = 180000  # the first server version with crc32()
_FIND = """SELECT s.updated FROM {schema}.entry e LEFT JOIN {schema}.session s
ON s.scope = e.scope AND s.sid = $4 AND s.rest = $5 WHERE e.scope = $1 AND e.key = $2 AND e.rest = $3"""
_number, _epoch = Struct(">q"), Struct(">i")
_pack = _number.pack
_BINARY = [1] * 26
_PLAIN, _KEYED, _SAY = b"takeback_append", b"takeback_append_keyed", b"takeback_scope"
_BEGIN, _SAY_LOCK, _LOCK, _COMMIT = b"takeback_begin", b"takeback_turn", b"takeback_lock", b"takeback_commit"
_BYTES, _TEXT = 17, 25  # oids of types
_UNKNOWN = "26000"
_FATAL, _SYNC = psycopg.pq.ExecStatus.FATAL_ERROR, psycopg.pq.ExecStatus.PIPELINE_SYNC
_GOOD = psycopg.pq.ConnStatus.OK
_IDLE, _IN_TRANSACTION = psycopg.pq.TransactionStatus.IDLE, psycopg.pq.TransactionStatus.INTRANS


class Appends:
    """The statements for one schema.

    ``lasting``, ``passing`` and ``end`` are calls of set_config for one transaction; those that last can stay on a
    connection that is ours alone. ``secured``: row security applies to this role, so each append must say whose data it
    is about.
    """

    def __init__(self, words: Words, lasting: str, *, passing: str, end: str, secured: bool) -> None:
        schema = words.schema
        said = ", ".join(filter(None, ("set_config('takeback.scope', 's' || $1::text, true)", passing)))
        self._everything = f"SELECT {said}, {lasting}".encode()
        self._lasting = f"SELECT {lasting.replace('true', 'false')}"
        self._says = secured or bool(passing)
        self._find = _FIND.format(schema=schema)
        self._statements = {
            _PLAIN: statement(schema, keyed=False),
            _KEYED: statement(schema, keyed=True),
            _SAY: f"SELECT {said}",
            _BEGIN: "BEGIN ISOLATION LEVEL READ COMMITTED",
            _SAY_LOCK: f"SELECT {said}, {end}",
            _LOCK: words.writing(f"{SESSION.select} WHERE scope = ? AND id = ?{LOCK}"),
            _COMMIT: "COMMIT",
        }

    def append_known(self, connection: ServerConnection, wanted: KnownAppend) -> int | None:
        """Append an entry computed from a row read before; return its feed position, None if the row has changed."""
        name = _PLAIN if wanted.once is None else _KEYED
        pgconn, values, scope = connection.pgconn, written(wanted, connection.epoch), wanted.scope.encode()
        if connection.epoch is None:
            # Behind a pooler nothing can be prepared, and nothing may stay set.
            pgconn.enter_pipeline_mode()
            pgconn.send_query_params(self._everything, [scope], None, _BINARY[:1])
            pgconn.send_query_params(self._statements[name].encode(), values, None, _BINARY[: len(values)], 1)
            return _position(_end_of_pipeline(connection)[-1])
        locked = pgconn.transaction_status == _IN_TRANSACTION
        sent: list[Sent] = [(name, values)]
        if locked:
            sent.append((_COMMIT, []))
        elif self._says:
            sent.insert(0, (_SAY, [scope]))
        results = self._run(connection, sent)
        return _position(results[0] if locked else results[-1])

    def take_turn(self, connection: ServerConnection, scope: str, session_id: str) -> Row | None:
        """Begin a transaction with the lock of a session's row and return it, None if there is none."""
        if connection.epoch is None:
            return None
        said = scope.encode()
        result = self._run(connection, [(_BEGIN, []), (_SAY_LOCK, [said]), (_LOCK, [said, session_id.encode()])])[-1]
        if not result.ntuples:
            connection.execute("ROLLBACK")
            return None
        return tuple(_read(result, number) for number in range(result.nfields))

    def _run(self, connection: ServerConnection, sent: list[Sent]) -> list[PGresult]:
        """Run prepared statements in one round trip; prepare them first if this connection has not."""
        if not connection.knows_append:
            self._prepare(connection)
        try:
            return _executed(connection, sent)
        except psycopg.Error as error:
            if error.sqlstate != _UNKNOWN or connection.pgconn.transaction_status != _IDLE:
                raise
            connection.knows_append = False  # after a rollback the driver deallocates all statements
        return self._run(connection, sent)

    def _prepare(self, connection: ServerConnection) -> None:
        connection.execute(self._lasting)  # through the driver, which first deallocates what it has forgotten
        connection.pgconn.enter_pipeline_mode()
        for name, sql in self._statements.items():
            connection.pgconn.send_prepare(name, sql.encode())
        _end_of_pipeline(connection)
        connection.knows_append = True

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


def _executed(connection: ServerConnection, sent: list[Sent]) -> list[PGresult]:
    pgconn = connection.pgconn
    if len(sent) == 1:
        ((name, values),) = sent
        pgconn.send_query_prepared(name, values, _BINARY[: len(values)], 1)
        return [_answer(connection)]
    pgconn.enter_pipeline_mode()  # until its end this is one transaction
    for name, values in sent:
        pgconn.send_query_prepared(name, values, _BINARY[: len(values)], 1)
    return _end_of_pipeline(connection)


def _answer(connection: ServerConnection) -> PGresult:
    """Wait for the result of a statement that was sent; an interrupt can end the wait."""
    result = None
    while (found := _next_result(connection)) is not None:
        result = found
    if result is None:
        raise psycopg.OperationalError("the connection was lost")
    if result.status == _FATAL:
        raise error_from_result(result)
    return result


def _end_of_pipeline(connection: ServerConnection) -> list[PGresult]:
    """Wait for the results of all statements that were sent; raise the first error."""
    pgconn, results = connection.pgconn, list[PGresult]()
    pgconn.pipeline_sync()
    while (found := _next_result(connection)) is None or found.status != _SYNC:
        if found is not None:
            results.append(found)
        elif pgconn.status != _GOOD:  # else it is the end of one statement's results
            raise psycopg.OperationalError("the connection was lost")
    pgconn.exit_pipeline_mode()
    for each in results:
        if each.status == _FATAL:
            raise error_from_result(each)
    return results


def _position(result: PGresult) -> int | None:
    value = result.get_value(0, 0) if result.ntuples else None
    return None if value is None else int(_number.unpack(value)[0])


def _read(result: PGresult, number: int) -> Value:
    """Decode a column of a row: the tables have text, numbers and bytes."""
    value, kind = result.get_value(0, number), result.ftype(number)
    if value is None or kind == _BYTES:
        return value
    return value.decode() if kind == _TEXT else int.from_bytes(value, "big", signed=True)


def _next_result(connection: ServerConnection) -> PGresult | None:
    """Wait for the next result, None at the end; ``get_result`` would block all threads if called too early."""
    pgconn = connection.pgconn
    while pgconn.flush():  # the statement does not fit into the socket's buffer at once
        connection.wait_for(select.POLLIN | select.POLLOUT)
        pgconn.consume_input()
    while pgconn.is_busy():
        connection.wait_for(select.POLLIN)
        pgconn.consume_input()
    return pgconn.get_result()
