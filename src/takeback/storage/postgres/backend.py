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
from ..appends import KnownAppend
from ..base import Capabilities, Dialect, Op, Row, Value
from . import schema as schemas
from .address import Address, Line
from .calls import FUNCTION, Calls
from .dialect import Words
from .doubt import Again, InDoubt, in_doubt
from .errors import PREPARED, STALE, is_lost, may_run_again, translate
from .listen import Ear, Hints, Listener
from .pool import Pool

T = TypeVar("T")

# A life of the server begins with a recovery from a crash, after which it gives out numbers of transactions again that
# it had given to some that were lost. Only its statistics show that: they are reset then.
_LIFE = "pg_stat_get_bgwriter_stat_reset_time()::text"
# Every statement has an index that leads to its rows. Without statistics - of a table that grew a moment ago, say - the
# server would rather read all of a table, or of a scope, so it is told not to; what has no index is read whole all the
# same.
_WAYS = ("seqscan", "bitmapscan", "hashjoin", "mergejoin", "material")
_BY_INDEX = ", ".join(f"set_config('enable_{way}', 'off', true)" for way in _WAYS)
_SET_READ = f"""SELECT set_config('takeback.scope', $1, true), set_config('statement_timeout', $2, true), {_BY_INDEX},
{{end}}"""
_SET_WRITE = f"""SELECT pg_current_xact_id()::text, {_LIFE}, set_config('takeback.scope', $1, true),
set_config('statement_timeout', $2, true), set_config('lock_timeout', $3, true), {{lock}}($4), {{sync}}, {_BY_INDEX},
{{end}}"""
# A transaction that its client has left, unnoticed by the server, holds its locks and keeps back the feed no longer.
_END = "set_config('transaction_timeout', '{}', true)"
_END_SINCE = 170000
_SHARED, _ALONE = "pg_advisory_xact_lock_shared", "pg_advisory_xact_lock"
_STATUS = f"SELECT {_LIFE}, pg_xact_status($1::text::xid8)"
_FUTURE = "22023"  # no such number was given out yet
_SIZE = """SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'"""
_MAY_SEE_ALL = """SELECT r.rolsuper OR r.rolbypassrls, pg_has_role(n.nspowner, 'USAGE')
FROM pg_roles r, pg_namespace n WHERE r.rolname = current_user AND n.nspname = $1"""
_END_AFTER = 2.0
_ATTEMPTS = 200  # of the same call; the deadline ends it sooner
_PREPARE_AFTER = 5  # uses of a statement on one connection


class PostgresTx:
    """A transaction on one connection. It begins with its first statement, so an append may be one of its own."""

    def __init__(
        self, connection: Line, store: PostgresBackend, begin: Sequence[Any] | None, unheard: KnownAppend | None
    ) -> None:
        self._connection = connection
        self._unheard = unheard
        self._store = store
        self._begin = begin
        self._words = store.words.reading if begin is None else store.words.writing
        self._pipeline = ExitStack()
        self._first: psycopg.Cursor[Any] | None = None
        self._silent: psycopg.Cursor[Any] | None = None
        self.number: tuple[str, str] | None = None
        self.finished = False
        self.committing = False
        self.repeatable = False

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
            self._first.execute(*self._store.reading_as())
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
        rows = self._connection.execute(self._words(sql), args, binary=True).fetchall()
        if self.number is None:
            self._learn_number()
        return rows

    def _learn_number(self) -> None:
        """Remember number and life of this transaction, whose fate can be asked for by them."""
        if self._begin is not None and self._first is not None:
            said = self._first.fetchone()
            assert said is not None
            number, life, *_ = said
            self.number = number, life

    def lock(self, what: str) -> None:
        """Take a lock by name; it is sent ahead like any statement that nobody waits for."""
        self.run("SELECT pg_advisory_xact_lock(?)", (schemas.lock_key(f"{self._store.words.schema}:{what}"),))

    def keyed(self) -> None:
        """Remember that it may be run again if nobody can say whether it was committed."""
        self.repeatable = True

    def next(self, table: str) -> int:
        """Give the next local number of a table from its sequence."""
        return int(self.all(f"SELECT nextval('{self._store.words.schema}.{table}_number')")[0][0])

    def reached(self, position: int) -> None:
        """Positions are the server's."""

    def newest(self) -> int | None:
        """Another transaction may have written a newer one."""
        return None

    @property
    def began(self) -> bool:
        """Whether anything was sent."""
        return self._silent is not None

    def commit(self) -> None:
        """End the transaction and wait for the server's word."""
        if self._begin is not None and self.number is None:
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
            status = self._connection.info.transaction_status
            if status == psycopg.pq.TransactionStatus.INERROR:
                self._connection.rollback()  # the driver, too, forgets what was not prepared behind the error
            elif status != psycopg.pq.TransactionStatus.IDLE:
                self._connection.execute("ROLLBACK")
        except psycopg.Error:
            self._connection.close()

    # ------------------------------------------------------------------ an append in one statement

    @property
    def quick(self) -> PostgresTx | None:
        """The engine's own append, while nothing else was sent in this transaction."""
        return self if self._begin is not None and not self.began and self._store.quick else None

    def append_known(self, wanted: KnownAppend) -> int | None:
        """Append if the session is as it was seen, as one statement that is a transaction of its own.

        If the answer to an earlier try was never heard, that very append is made again: it is stored at most once,
        since it counts only while nobody - itself included - has changed the session.
        """
        unheard, self._unheard = self._unheard, None
        asked, calls = unheard or wanted, self._store.calls
        found = self._at_once(lambda: calls.append_known(self._connection, asked), asked)
        if found is None and unheard is not None:
            found = self._at_once(lambda: calls.find(self._connection, unheard), unheard)
        return found

    def _at_once(self, call: Callable[[], T | None], again: KnownAppend | bool) -> T | None:
        assert not self.finished, "the transaction is over"
        try:
            found = call()
        except psycopg.Error as error:
            if is_lost(error, self._connection):
                raise InDoubt(error, again=again) from error
            if error.sqlstate == "22003":
                return None  # the operation itself says which number is too large
            raise
        self.finished = found is not None
        return found


class PostgresBackend:
    """A store on a PostgreSQL server, for any number of processes on any number of machines."""

    suspect = False  # the server looks after its files

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
        self._pool = Pool(address.connect, self._greet, size=address.pool_size)
        self._hints = Hints(self._pool, address.schema)
        self._ear = Ear(self._pool, address.schema)
        self._timeout = address.call_timeout
        try:
            with self._pool.taken(time.monotonic() + address.call_timeout, reach=address.connect_timeout) as connection:
                self._look_around(connection)
        except psycopg.Error as error:
            self._pool.close()
            raise translate(error) from error
        except BaseException:
            self._pool.close()
            raise

    # ------------------------------------------------------------------ opening

    def _greet(self, connection: Line) -> None:
        """Find out on a new connection what it can be used for, and whether this is still the server that it was."""
        if connection.is_direct():
            connection.prepare_threshold = _PREPARE_AFTER
        if not self._read_only and schemas.version(connection, self._address.schema):
            self._begin_epoch(connection)

    def _begin_epoch(self, connection: Line) -> None:
        """Note the epoch; a connection that is ours all the time is told once what others are told every time."""
        schemas.begin_epoch(connection, self._address.schema)
        if connection.prepare_threshold is not None:
            connection.execute("SELECT set_config('lock_timeout', $1, false)", (self._milliseconds(),))
            connection.epoch = schemas.epoch(connection, self._address.schema)

    def _look_around(self, connection: Line) -> None:
        """Make the tables if they are missing, and find out what this server and this role can do."""
        name = self._address.schema
        found, known = schemas.version(connection, name), migrate.load()
        if found == 0 or migrate.pending(found, known):
            if self._read_only:
                raise NotFound(
                    f"there is no store in schema {name!r} of this database, or an older one; open it to write"
                )
            schemas.bring_up_to_date(connection, name)
            self._begin_epoch(connection)
        if self._read_only:
            self.words.epochs_over = schemas.epochs_over(connection, name)
        there = connection.execute(schemas.APPENDS, (f"{self.words.schema}.{FUNCTION}",)).fetchone()
        self.quick = bool(there and there[0])
        milliseconds = int((self._timeout + _END_AFTER) * 1000)
        self._end = _END.format(milliseconds) if connection.info.server_version >= _END_SINCE else "NULL"
        rights = connection.execute(_MAY_SEE_ALL, (name,)).fetchone() or (False, False)
        bypasses, self._owns = map(bool, rights)
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
            all_scopes=bypasses or self._owns,
        )

    def scoped(self, scope: str | None) -> PostgresBackend:
        """Give a view of one scope on the same connections; None is all scopes, for a role that may see them."""
        if scope is None and not self.capabilities.all_scopes:
            return self
        if scope == self._scope:
            return self
        other = copy.copy(self)
        other._scope = scope
        other._begins = {}
        return other

    # ------------------------------------------------------------------ transactions

    def reading_as(self) -> tuple[str, tuple[str, str]]:
        """Give the first statement of a read."""
        return _SET_READ.format(end=self._end), (self._said_scope(), self._milliseconds())

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
        sql = _SET_WRITE.format(lock=_ALONE if alone else _SHARED, sync=sync, end=self._end)
        key = schemas.lock_key(f"scope:{self._address.schema}:{self._scope}")
        return sql, (self._said_scope(), self._milliseconds(), self._milliseconds(), key)

    def read(self, op: Op[T]) -> T:
        """Run an operation that only looks."""
        self._check_open()
        return self._repeat(lambda deadline, unheard: self._attempt(op, None, deadline, unheard))

    def write(self, op: Op[T], *, frees_space: bool = False, alone: bool = False) -> T:
        """Run an operation and return when it is durable."""
        self._check_open()
        if self._read_only:
            raise Unsupported("this store was opened read-only", capability="write")
        begin = self._writing_as(alone=alone or frees_space)
        value = self._repeat(lambda deadline, unheard: self._attempt(op, begin, deadline, unheard))
        self._hints.changed()
        return value

    def _repeat(self, attempt: Callable[[float, KnownAppend | None], T]) -> T:
        """Run a transaction until it goes through, fails for good, or the time is up."""
        deadline, doubt = time.monotonic() + self._timeout, None
        for number in range(_ATTEMPTS):
            try:
                return attempt(deadline, doubt.again if doubt and isinstance(doubt.again, KnownAppend) else None)
            except Again as again:
                late, last = time.monotonic() > deadline, number == _ATTEMPTS - 1
                if (late or last) and doubt is not None:
                    raise in_doubt(doubt) from again
                if late:
                    raise Busy(f"the server gave no answer within {self._timeout:g} s: {again.error}") from again
                if last:
                    raise again.error from again.__cause__
            except InDoubt as found:
                doubt = found
                if self._settle(doubt, deadline):
                    return doubt.value  # type: ignore[no-any-return]
                doubt = doubt if doubt.again else None
            except (Busy, BackendError) as error:
                if doubt is None:
                    raise
                raise in_doubt(doubt) from error
            except psycopg.Error as error:  # of a new connection
                raise (translate(error) if doubt is None else in_doubt(doubt)) from error
            time.sleep(random.uniform(0, min(0.002 * 2 ** min(number, 6), 0.1)))
        raise AssertionError("unreachable")

    def _attempt(
        self,
        op: Op[T],
        begin: tuple[str, tuple[Any, ...]] | None,
        deadline: float,
        unheard: KnownAppend | None,
    ) -> T:
        """Run one transaction, a read without ``begin``."""
        with self._pool.taken(deadline) as connection:
            if not self._prepare[0]:
                connection.prepare_threshold = connection.epoch = None
            tx, value = PostgresTx(connection, self, begin, unheard), None
            try:
                value = op(tx)
                if tx.began:
                    tx.commit()
                return value
            except psycopg.Error as error:
                lost = is_lost(error, connection)
                tx.give_up()
                if lost or error.sqlstate in STALE:
                    connection.close()
                if lost and tx.committing and begin is not None:
                    raise InDoubt(error, number=tx.number, value=value, again=tx.repeatable) from error
                raise self._judged(error, lost) from error
            except (UnicodeError, OverflowError) as error:  # a value that the driver cannot write
                tx.give_up()
                raise translate(error) from error
            except BaseException as error:
                if not isinstance(error, Exception):  # an interrupt may have struck between a statement and its answer
                    connection.close()
                tx.give_up()
                raise

    def _judged(self, error: psycopg.Error, lost: bool) -> Exception:
        """Decide whether a transaction that failed before it could commit may run again."""
        if error.sqlstate in PREPARED:
            self._prepare[0] = False
        return Again(translate(error)) if lost or may_run_again(error) else translate(error)

    def _settle(self, doubt: InDoubt, deadline: float) -> bool:
        """Find out whether a transaction was committed; False: it was not, or it is safe to run it again."""
        while doubt.number is not None:
            try:
                with self._pool.taken(deadline) as connection:
                    row = connection.execute(_STATUS, doubt.number[:1]).fetchone()
            except psycopg.Error as error:
                if error.sqlstate == _FUTURE:
                    return False
                row = (doubt.number[1], "not heard")
            except Error as error:
                raise in_doubt(doubt) from error
            life, status = row or (None, None)
            if life == doubt.number[1] and status in ("committed", "aborted"):
                return bool(status == "committed")
            if life != doubt.number[1] or status is None or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        if doubt.again and time.monotonic() < deadline:
            return False
        raise in_doubt(doubt) from doubt.error

    # ------------------------------------------------------------------ the rest

    def listen(self) -> Listener:
        """Give something that can be waited on for changes."""
        return Listener(self._ear)

    def size_bytes(self) -> int:
        """Bytes of all tables and indexes of the store's schema."""
        return self.read(lambda tx: int((tx.one(_SIZE, (self._address.schema,)) or (0,))[0] or 0))

    def check(self) -> list[str]:
        """The server checks its own pages; what it finds damaged it says when they are read."""
        return []

    def copy_to(self, path: str) -> list[str]:
        """A server's files are its own: a damaged server is restored from its backup."""
        raise Unsupported(
            "repair makes a copy of a damaged file; restore the server from a backup, or takeback.copy what is sound",
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
