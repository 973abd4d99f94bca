"""The PostgreSQL backend: transactions on pooled connections, statements sent ahead, retries until a deadline.

A write runs as READ COMMITTED and is kept apart from others by locks: the rows of the session and the agent that it
reads, and a lock per scope that it shares with other writes; an operation that reaches across sessions (``alone``)
takes that one for itself. Unique indexes decide who was first; the other one runs again and finds it. A read is one
snapshot. Statements whose answer nobody waits for are sent together with the next one that is waited for.

The invariant: a write that returns is committed, and one that raises is not - also when the connection breaks
while it commits, since the fate of its transaction is then asked for by number. Only where that cannot
be found out does it raise an error that says so.
"""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

import psycopg

from ...errors import BackendError, Busy, Closed, Error, NotFound, Unsupported
from .. import guard, migrate
from ..base import Append, Capabilities, Dialect, KnownAppend, Op, Row, Value
from . import schema as schemas
from .address import Address, Line
from .calls import Calls
from .dialect import Words
from .errors import PREPARED, is_lost, may_run_again, translate
from .listen import Hints, Listener
from .pool import Pool, words

T = TypeVar("T")

_SET_READ = "SELECT set_config('holdfast.scope', $1, true), set_config('statement_timeout', $2, true)"
_SET_WRITE = """SELECT pg_current_xact_id()::text::bigint, set_config('holdfast.scope', $1, true),
set_config('statement_timeout', $2, true), set_config('lock_timeout', $3, true), {lock}($4), {sync}"""
_SHARED, _ALONE = "pg_advisory_xact_lock_shared", "pg_advisory_xact_lock"
_STATUS = "SELECT pg_xact_status($1::text::xid8)"
_SIZE = """SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'"""
_MAY_SEE_ALL = """SELECT r.rolsuper OR r.rolbypassrls, pg_has_role(n.nspowner, 'USAGE')
FROM pg_roles r, pg_namespace n WHERE r.rolname = current_user AND n.nspname = $1"""
_ATTEMPTS = 200  # of the same call; the deadline ends it sooner


class _Again(Exception):
    """Nothing was stored; the call may be run again."""

    def __init__(self, error: Error) -> None:
        self.error = error


class _InDoubt(Exception):
    """The connection broke while a transaction committed."""

    def __init__(self, error: psycopg.Error, xid: int | None, value: Any, *, repeatable: bool = False) -> None:
        self.error = error
        self.xid = xid
        self.value = value
        self.repeatable = repeatable


class PostgresTx:
    """A transaction on one connection. It begins with its first statement, so an append may be one of its own."""

    def __init__(self, connection: Line, store: PostgresBackend, begin: Sequence[Any] | None) -> None:
        self._connection = connection
        self._store = store
        self._begin = begin
        self._words = store.words.reading if begin is None else store.words.writing
        self._pipeline = ExitStack()
        self._first: psycopg.Cursor[Any] | None = None
        self._silent: psycopg.Cursor[Any] | None = None
        self.xid: int | None = None
        self.finished = False
        self.committing = False

    @property
    def dialect(self) -> Dialect:
        """What this engine does otherwise than the others."""
        return self._store.words.dialect

    def _start(self) -> None:
        """Send the beginning of the transaction; nobody waits for it."""
        self._pipeline.enter_context(self._connection.pipeline())
        self._first = self._connection.cursor()
        if self._begin is None:
            self._connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            self._first.execute(_SET_READ, self._store.reading_as())
        else:
            self._connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            self._first.execute(self._begin[0], self._begin[1])
        self._silent = self._connection.cursor()

    def run(self, sql: str, args: Sequence[Value] = ()) -> None:
        """Execute a statement that gives no rows; what the server says to it comes with the next answer."""
        assert not self.finished, "the transaction is over"
        if self._silent is None:
            self._start()
        assert self._silent is not None
        self._silent.execute(self._words(sql), args)

    def one(self, sql: str, args: Sequence[Value] = ()) -> Row | None:
        """Give the first row, or None."""
        rows = self.all(sql, args)
        return rows[0] if rows else None

    def all(self, sql: str, args: Sequence[Value] = ()) -> list[Row]:
        """Give all rows."""
        assert not self.finished, "the transaction is over"
        if self._silent is None:
            self._start()
        rows = self._connection.execute(self._words(sql), args).fetchall()
        if self.xid is None:
            self._learn_number()
        return rows

    def _learn_number(self) -> None:
        """Remember the number of this transaction, whose fate can be asked for by it."""
        if self._begin is not None and self._first is not None:
            self.xid = int((self._first.fetchone() or (0,))[0])

    def lock(self, what: str) -> None:
        """Take a lock by name; it is sent ahead like any statement that nobody waits for."""
        self.run("SELECT pg_advisory_xact_lock(?)", (schemas.lock_key(f"{self._store.words.schema}:{what}"),))

    def next(self, table: str) -> int:
        """Give the next local number of a table from its sequence."""
        return int(self.all(f"SELECT nextval('{self._store.words.schema}.{table}_number')")[0][0])

    def reached(self, position: int, session: int) -> None:
        """Positions are the server's."""

    def newest(self) -> tuple[int, int] | None:
        """Another transaction may have written a newer one."""
        return None

    @property
    def began(self) -> bool:
        """Whether anything was sent."""
        return self._silent is not None

    def commit(self) -> None:
        """End the transaction and wait for the server's word."""
        if self._begin is not None and self.xid is None:
            self._learn_number()
        self.committing = True
        self._connection.execute("COMMIT")
        self._pipeline.close()

    def give_up(self) -> None:
        """End a failed transaction; where that fails too the pool closes the connection."""
        try:
            self._pipeline.close()
        except psycopg.Error:
            pass  # what failed was raised already
        try:
            if self._connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                self._connection.execute("ROLLBACK")
        except psycopg.Error:
            self._connection.close()

    # ------------------------------------------------------------------ an append in one statement

    @property
    def quick(self) -> PostgresTx | None:
        """The engine's own append, while nothing else was sent in this transaction."""
        return self if self._begin is not None and not self.began and self._store.quick else None

    def append(self, wanted: Append) -> Row | None:
        """Append behind whatever is the head by then, as one statement that is a transaction of its own."""
        sql, given = self._store.calls.append(wanted)
        return self._at_once(lambda: self._connection.execute(sql, given).fetchone(), wanted.idempotency_key)

    def append_known(self, wanted: KnownAppend) -> tuple[int, int] | None:
        """Append if the session is as it was seen, as one statement that is a transaction of its own."""
        return self._at_once(lambda: self._store.calls.append_known(self._connection, wanted), wanted.idempotency_key)

    def _at_once(self, call: Callable[[], T | None], key: str | None) -> T | None:
        assert not self.finished, "the transaction is over"
        try:
            found = call()
        except psycopg.Error as error:
            if is_lost(error, self._connection):
                raise _InDoubt(error, None, None, repeatable=key is not None) from error
            if error.sqlstate == "22003":
                return None  # the operation itself says which number is too large
            raise
        self.finished = found is not None
        return found


class PostgresBackend:
    """A store on a PostgreSQL server, for any number of processes on any number of machines."""

    def __init__(self, url: str, *, durability: str = "full", read_only: bool = False) -> None:
        self._address = address = Address.of(url)
        self._read_only = read_only
        self._relaxed = durability == "relaxed"
        self._process = guard.process_generation()
        self._closed = [False]  # one for all scopes
        self._scope: str | None = ""
        self._begins = dict[bool, tuple[str, tuple[Any, ...]]]()
        self._prepare = [True]
        self.words = Words(address.schema)
        self._hints = Hints(lambda: self._connect(5.0), address.schema)
        self._pool = Pool(self._connect, size=address.pool_size)
        self._timeout = address.call_timeout
        try:
            with self._pool.taken(time.monotonic() + address.call_timeout) as connection:
                self._look_around(connection)
        except psycopg.Error as error:
            self._pool.close()
            raise translate(error) from error
        except BaseException:
            self._pool.close()
            raise

    # ------------------------------------------------------------------ opening

    def _connect(self, seconds: float) -> Line:
        connection = self._address.connect(min(seconds, self._address.connect_timeout))
        try:
            if not self._prepare[0]:
                connection.prepare_threshold = None
            if not self._read_only and schemas.version(connection, self._address.schema):
                schemas.begin_epoch(connection, self._address.schema)
        except BaseException:
            connection.close()
            raise
        return connection

    def _look_around(self, connection: Line) -> None:
        """Make the tables if they are missing, and find out what this server and this role can do."""
        name = self._address.schema
        known = migrate.load()
        if migrate.pending(schemas.version(connection, name), known):
            if self._read_only:
                raise NotFound(
                    f"there is no store in schema {name!r} of this database, or an older one; open it to write"
                )
            schemas.bring_up_to_date(connection, name)
            schemas.begin_epoch(connection, name)
        self.quick = connection.info.server_version >= schemas.QUICK
        row = connection.execute(_MAY_SEE_ALL, (name,)).fetchone()
        bypasses, self._owns = (bool(row[0]), bool(row[1])) if row else (False, False)
        setting = connection.execute("SELECT current_setting('synchronous_commit')").fetchone()
        asleep = setting is not None and setting[0] in ("off", "local")
        self._sync = "off" if self._relaxed else "on" if asleep else None
        self.calls = Calls(self.words.schema, self._sync, self._milliseconds())
        self.capabilities = Capabilities(
            name="postgresql",
            persistent=True,
            many_processes=True,
            durability="relaxed" if self._relaxed else "full",
            journal=f"PostgreSQL {connection.info.server_version // 10_000}",
            read_only=self._read_only,
            isolation="queries" if bypasses else "row security",
            groups=False,
        )

    def scoped(self, scope: str | None) -> PostgresBackend:
        """Give a view of one scope on the same connections; None is all scopes, for a role that may see them."""
        if scope is None and not (self._owns or self.capabilities.isolation == "queries"):
            return self
        if scope == self._scope:
            return self
        other = copy.copy(self)
        other._scope = scope
        other._begins = {}
        return other

    # ------------------------------------------------------------------ transactions

    def reading_as(self) -> tuple[str, str]:
        """Give the settings of a read."""
        return self._said_scope(), self._milliseconds()

    def _said_scope(self) -> str:
        return "*" if self._scope is None else f"s{self._scope}"

    def _milliseconds(self) -> str:
        return str(int(self._timeout * 1000))

    def _writing_as(self, *, alone: bool) -> tuple[str, tuple[Any, ...]]:
        """Give the first statement of a write."""
        found = self._begins.get(alone)
        if found is None:
            found = self._begins[alone] = self._begin(alone=alone)
        return found

    def _begin(self, *, alone: bool) -> tuple[str, tuple[Any, ...]]:
        sync = "NULL" if self._sync is None else f"set_config('synchronous_commit', '{self._sync}', true)"
        sql = _SET_WRITE.format(lock=_ALONE if alone else _SHARED, sync=sync)
        key = schemas.lock_key(f"scope:{self._address.schema}:{self._scope}")
        return sql, (self._said_scope(), self._milliseconds(), self._milliseconds(), key)

    def read(self, op: Op[T]) -> T:
        """Run an operation that only looks."""
        self._check_open()
        return self._repeat(lambda deadline: self._attempt(op, None, deadline))

    def write(self, op: Op[T], *, frees_space: bool = False, alone: bool = False) -> T:
        """Run an operation and return when it is durable."""
        self._check_open()
        if self._read_only:
            raise Unsupported("this store was opened read-only", capability="write")
        begin = self._writing_as(alone=alone or frees_space)
        value = self._repeat(lambda deadline: self._attempt(op, begin, deadline))
        self._hints.changed()
        return value

    def _repeat(self, attempt: Callable[[float], T]) -> T:
        """Run a transaction until it goes through, fails for good, or the time is up."""
        deadline = time.monotonic() + self._timeout
        for number in range(_ATTEMPTS):
            try:
                return attempt(deadline)
            except _Again as again:
                if time.monotonic() > deadline:
                    raise Busy(f"the server gave no answer within {self._timeout:g} s: {again.error}") from again
                if number == _ATTEMPTS - 1:
                    raise again.error from again.__cause__
            except _InDoubt as doubt:
                known, value = self._settle(doubt, deadline)
                if known:
                    return value  # type: ignore[no-any-return]
            time.sleep(random.uniform(0, min(0.002 * 2 ** min(number, 6), 0.1)))
        raise AssertionError("unreachable")

    def _attempt(self, op: Op[T], begin: tuple[str, tuple[Any, ...]] | None, deadline: float) -> T:
        """Run one transaction, a read without ``begin``."""
        with self._pool.taken(deadline) as connection:
            tx, value = PostgresTx(connection, self, begin), None
            try:
                value = op(tx)
                if tx.began:
                    tx.commit()
                return value
            except psycopg.Error as error:
                lost = is_lost(error, connection)
                if not lost:
                    tx.give_up()
                if lost and tx.committing and begin is not None:
                    raise _InDoubt(error, tx.xid, value) from error
                raise self._judged(error, lost) from error
            except Exception:
                tx.give_up()
                raise

    def _judged(self, error: psycopg.Error, lost: bool) -> Exception:
        """Decide whether a transaction that failed before it could commit may run again."""
        if error.sqlstate in PREPARED:
            self._prepare[0] = False
        return _Again(translate(error)) if lost or may_run_again(error) else translate(error)

    def _settle(self, doubt: _InDoubt, deadline: float) -> tuple[bool, Any]:
        """Find out whether a transaction was committed: (True, its value) if it was, (False, None) to run it again."""
        if doubt.repeatable:
            return False, None  # its idempotency key finds what it stored
        message = (
            f"the connection broke while this was being stored ({words(doubt.error)}); it may have been stored or not."
            " Read, or call again with an idempotency key"
        )
        if doubt.xid is None:
            raise BackendError(message) from doubt.error
        while True:
            with self._pool.taken(deadline) as connection:
                try:
                    row = connection.execute(_STATUS, (str(doubt.xid),)).fetchone()
                except psycopg.Error as error:
                    raise BackendError(message) from error
            status = row[0] if row else None
            if status in ("committed", "aborted"):
                return status == "committed", doubt.value
            if status is None or time.monotonic() > deadline:
                raise BackendError(message) from doubt.error
            time.sleep(0.05)

    # ------------------------------------------------------------------ the rest

    def listen(self) -> Listener:
        """Give something that can be waited on for changes."""
        return Listener(lambda: self._connect(5.0), self._address.schema)

    def size_bytes(self) -> int:
        """Bytes of all tables and indexes of the store's schema."""
        return self.read(lambda tx: int((tx.one(_SIZE, (self._address.schema,)) or (0,))[0] or 0))

    def check(self) -> list[str]:
        """The server checks its own pages; what it finds damaged it says when they are read."""
        return []

    def copy_to(self, path: str) -> list[str]:
        """A server's files are its own: a damaged server is restored from its backup."""
        raise Unsupported(
            "repair makes a copy of a damaged file; restore the server from a backup, or holdfast.copy what is sound",
            capability="repair",
        )

    def close(self) -> None:
        """Release all connections; calling it again does nothing."""
        if not self._closed[0]:
            self._closed[0] = True
            if guard.process_generation() == self._process:
                self._hints.close()
                self._pool.close()

    def _check_open(self) -> None:
        if self._closed[0] or guard.process_generation() != self._process:
            raise Closed()


def bring_up_to_date(url: str, *, grant_to: str | None) -> int:
    """Make or update the tables of a store, and let another role use them."""
    address = Address.of(url)
    try:
        with address.connect(address.connect_timeout) as connection:
            return schemas.bring_up_to_date(connection, address.schema, grant_to=grant_to)
    except psycopg.Error as error:
        raise translate(error) from error
