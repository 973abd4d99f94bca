"""The PostgreSQL backend: transactions on pooled connections, statements sent ahead, retries until a deadline.

A write runs as READ COMMITTED and is isolated from others by locks: on the rows of the session and the agent that it
reads, and on the scope, which it shares with other writes; an operation that reaches across sessions (``alone``)
locks the scope exclusively. Unique indexes decide who was first; the loser runs again and finds the winner's row. A
read is one snapshot. Statements whose result nobody needs are sent together with the next one that is waited for.

The invariant: a write that returns is committed, and one that raises is not - even if the connection breaks during
the commit, because the server is then asked for the outcome by transaction number. Only if that cannot be found out
does the write raise an error that says so.
"""

from __future__ import annotations

import copy
import random
import time
from functools import partial
from typing import Any, TypeVar

import psycopg

from ...errors import BackendError, Busy, Closed, Error, NotFound, Unsupported
from .. import beside, guard, migrate
from ..base import LOCK_TIMEOUT, Capabilities, Op, Shape, SideTables
from . import append, blockers
from . import schema as schemas
from .address import Address, ServerConnection
from .dialect import Words
from .doubt import Again, InDoubt, in_doubt
from .errors import PREPARED, STALE, is_lost, may_run_again, translate
from .listen import Ear, Hints, Listener
from .pool import Pool, Pooled
from .transaction import PostgresTx

T = TypeVar("T")

# After recovering from a crash the server reuses the numbers of transactions that were lost, so a number only counts
# within one life of the server. Only the statistics reveal a recovery, because it resets them.
_LIFE = "pg_stat_get_bgwriter_stat_reset_time()::text"
# Every statement has an index that leads to its rows. But without statistics, as for a table that has just grown, the
# planner would rather read a whole table or scope, so these plans are turned off. A statement that has no index still
# reads everything.
_WAYS = ("seqscan", "bitmapscan", "hashjoin", "mergejoin", "material")
_BY_INDEX = ", ".join(f"set_config('enable_{way}', 'off', true)" for way in _WAYS)
_SET_READ = f"""SELECT set_config('takeback.scope', $1, true), set_config('statement_timeout', $2, true), {_BY_INDEX},
{{end}}"""
_SET_WRITE = f"""SELECT pg_current_xact_id()::text, {_LIFE}, set_config('takeback.scope', $1, true),
set_config('statement_timeout', $2, true), set_config('lock_timeout', $3, true), {{lock}}($4), {{sync}}, {_BY_INDEX},
{{end}}"""
# The server ends a transaction whose client vanished unnoticed, which would otherwise hold its locks and the feed.
_END = "set_config('transaction_timeout', '{}', true)"
_END_SINCE = 170000
_SHARED, _ALONE = "pg_advisory_xact_lock_shared", "pg_advisory_xact_lock"
_STATUS = f"SELECT {_LIFE}, pg_xact_status($1::text::xid8)"
_FUTURE = "22023"  # no transaction has this number yet
_SIZE = """SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'"""
_MAY_SEE_ALL = """SELECT r.rolsuper OR r.rolbypassrls, pg_has_role(n.nspowner, 'USAGE')
FROM pg_roles r, pg_namespace n WHERE r.rolname = current_user AND n.nspname = $1"""
_END_AFTER = 2.0
_ATTEMPTS = 200  # per call; usually the deadline comes first
_PREPARE_AFTER = 5  # uses of a statement on one connection


class PostgresBackend:
    """A store on a PostgreSQL server, for any number of processes on any number of machines."""

    suspect = False  # the server takes care of its files

    def __init__(
        self, url: str, *, durability: str = "full", read_only: bool = False, lock_timeout: float = LOCK_TIMEOUT
    ) -> None:
        self._address = address = Address.of(url)
        self._lock_timeout = min(lock_timeout, address.call_timeout)
        self._read_only = read_only
        self._relaxed = durability == "relaxed"
        self._process = guard.process_generation()
        self._closed = [False]  # a list, so that the views of all scopes share it
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

    def _greet(self, connection: ServerConnection) -> None:
        """Find out what a new connection can be used for, and whether this is still the same cluster."""
        if connection.is_direct():
            connection.prepare_threshold = _PREPARE_AFTER
        if not self._read_only and schemas.version(connection, self._address.schema):
            self._begin_epoch(connection)

    def _begin_epoch(self, connection: ServerConnection) -> None:
        """Record the epoch; a connection that is not pooled remembers it."""
        schemas.begin_epoch(connection, self._address.schema)
        if connection.prepare_threshold is not None:
            connection.epoch = schemas.epoch(connection, self._address.schema)

    def _look_around(self, connection: ServerConnection) -> None:
        """Create the tables if they are missing, and find out what this server and this role can do."""
        name = self._address.schema
        found, known = schemas.version(connection, name), migrate.load()
        if found == 0 or migrate.pending(found, known):
            if self._read_only:
                raise NotFound(
                    f"schema {name!r} of this database holds no store, or an older one; open it for writing first"
                )
            schemas.bring_up_to_date(connection, name, lock_timeout=self._lock_timeout)
            self._begin_epoch(connection)
        if self._read_only:
            self.words.epochs_over = schemas.epochs_over(connection, name)
        self.quick = connection.info.server_version >= append.SINCE
        milliseconds = int((self._timeout + _END_AFTER) * 1000)
        self._end = _END.format(milliseconds) if connection.info.server_version >= _END_SINCE else "NULL"
        rights = connection.execute(_MAY_SEE_ALL, (name,)).fetchone() or (False, False)
        bypasses, self._owns = map(bool, rights)
        setting = connection.execute("SELECT current_setting('synchronous_commit')").fetchone()
        asleep = setting is not None and setting[0] in ("off", "local")
        sync = "off" if self._relaxed else "on" if asleep else None
        self._sync = "" if sync is None else f"set_config('synchronous_commit', '{sync}', true)"
        lasting = f"set_config('lock_timeout', '{self._lock_milliseconds()}', true), {_BY_INDEX}"
        self.appends = append.Appends(self.words, lasting, passing=self._sync, end=self._end, secured=not bypasses)
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
        """Return a view of one scope on the same connections; None means all scopes, for a role that may see them."""
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
        """Return the first statement of a read."""
        return _SET_READ.format(end=self._end), (self._said_scope(), self._milliseconds())

    def taking_time(self, seconds: float) -> tuple[str, tuple[str]]:
        """Return the statement that lets a transaction go on for so long from now; after 0 the server counts anew."""
        ended = self._end != "NULL"
        end = ", set_config('transaction_timeout', '0', true), set_config('transaction_timeout', $1, true)" * ended
        return f"SELECT set_config('statement_timeout', $1, true){end}", (schemas.milliseconds(seconds),)

    def _said_scope(self) -> str:
        return "*" if self._scope is None else f"s{self._scope}"

    def _milliseconds(self) -> str:
        return str(int(self._timeout * 1000))

    def _lock_milliseconds(self) -> str:
        return schemas.milliseconds(self._lock_timeout)

    def _begin(self, alone: bool) -> tuple[str, tuple[Any, ...]]:
        """Return the first statement of a write, and remember it."""
        sql = _SET_WRITE.format(lock=_ALONE if alone else _SHARED, sync=self._sync or "NULL", end=self._end)
        key = schemas.lock_key(f"scope:{self._address.schema}:{self._scope}")
        args = (self._said_scope(), self._milliseconds(), self._lock_milliseconds(), key)
        return self._begins.setdefault(alone, (sql, args))

    def read(self, op: Op[T]) -> T:
        """Run an operation that only reads."""
        self._check_open()
        return self._repeat(op, None)

    def write(self, op: Op[T], *, frees_space: bool = False, alone: bool = False) -> T:
        """Run an operation and return when it is durable."""
        self._check_open()
        if self._read_only:
            raise Unsupported("this store was opened read-only", capability="write")
        value = self._repeat(op, self._begins.get(alone or frees_space) or self._begin(alone or frees_space))
        self._hints.changed()
        return value

    def _repeat(self, op: Op[T], begin: tuple[str, tuple[Any, ...]] | None) -> T:
        """Run a transaction until it succeeds, fails for good, or runs out of time; without ``begin`` it is a read."""
        deadline = time.monotonic() + self._timeout
        doubt: InDoubt | None = None
        for number in range(_ATTEMPTS):
            try:
                return self._attempt(op, begin, deadline)
            except Again as again:
                late, last = time.monotonic() > deadline, number == _ATTEMPTS - 1
                if (late or last) and doubt is not None:
                    raise in_doubt(doubt) from again
                if late:
                    raise Busy(f"this did not succeed within {self._timeout:g} s: {again.error}") from again
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
            except psycopg.Error as error:  # while opening a connection
                raise (translate(error) if doubt is None else in_doubt(doubt)) from error
            time.sleep(random.uniform(0, min(0.002 * 2 ** min(number, 6), 0.1)))  # so that losers do not collide again
        raise AssertionError("unreachable")

    def _attempt(self, op: Op[T], begin: tuple[str, tuple[Any, ...]] | None, deadline: float) -> T:
        """Run one transaction."""
        pooled, broken = self._pool.take(deadline), True
        try:
            value = self._transact(op, pooled, begin)
            broken = False
            return value
        except Exception:
            broken = False
            raise
        finally:  # an interrupt may have struck between a statement and its reply
            self._pool.give(pooled, broken=broken)

    def _transact(self, op: Op[T], pooled: Pooled, begin: tuple[str, tuple[Any, ...]] | None) -> T:
        connection = pooled.connection
        if not self._prepare[0]:
            connection.prepare_threshold = connection.epoch = None
        tx = PostgresTx(connection, self, begin, partial(self._pool.prolong, pooled))
        value: T | None = None
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
            elif error.sqlstate == blockers.LOCKED_OUT:
                raise blockers.busy(connection, self._address.schema, self._lock_timeout) from error
            if lost and tx.committing and begin is not None:
                raise InDoubt(error, number=tx.number, value=value, again=tx.repeatable) from error
            raise self._judged(error, lost) from error
        except (UnicodeError, OverflowError) as error:  # a value that the driver cannot encode
            tx.give_up()
            raise translate(error) from error
        except BaseException as error:
            if not isinstance(error, Exception):
                connection.close()
            tx.give_up()
            raise

    def _judged(self, error: psycopg.Error, lost: bool) -> Exception:
        """Return the error for a transaction that failed before its commit: one that allows another attempt, or not."""
        if error.sqlstate in PREPARED:
            self._prepare[0] = False
        return Again(translate(error)) if lost or may_run_again(error) else translate(error)

    def _settle(self, doubt: InDoubt, deadline: float) -> bool:
        """Whether a transaction was committed; False if it was not, or if it is safe to run it again."""
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

    def beside(self, shape: Shape) -> SideTables:
        """Return the derived tables of the server; whoever must not write there has temporary ones."""
        if self._read_only:
            return beside.SideFile(self, "", shape, temporary=True)
        return beside.SameStore(self.read, self.write)

    def listen(self) -> Listener:
        """Return something to wait on for changes."""
        return Listener(self._ear)

    def size_bytes(self) -> int:
        """Return the bytes of all tables and indexes in the store's schema."""
        return self.read(lambda tx: int((tx.one(_SIZE, (self._address.schema,)) or (0,))[0] or 0))

    def check(self) -> list[str]:
        """Return nothing: the server checks its own pages, and reports damage when they are read."""
        return []

    def copy_to(self, path: str) -> list[str]:
        """Raise ``Unsupported``: a damaged server is restored from its own backup."""
        raise Unsupported(
            "repair is only for files; restore the server from a backup, or takeback.copy what is intact",
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
    """Create or update the tables of a store, and grant their use to another role."""
    address = Address.of(url)
    try:
        with address.connect(address.connect_timeout) as connection:
            return schemas.bring_up_to_date(connection, address.schema, grant_to=grant_to)
    except psycopg.Error as error:
        raise translate(error) from error
