"""A transaction on a connection of the pool: statements sent ahead, and the append that is a transaction by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import psycopg

from ..appends import KnownAppend
from ..base import Dialect, Row, Value
from . import schema as schemas
from .address import ServerConnection
from .doubt import InDoubt
from .errors import is_lost

if TYPE_CHECKING:
    from .backend import PostgresBackend


class PostgresTx:
    """A transaction on one connection. It begins with its first statement, so an append can be its own transaction."""

    def __init__(
        self,
        connection: ServerConnection,
        store: PostgresBackend,
        begin: Sequence[Any] | None,
        prolong: Callable[[float], None],
    ) -> None:
        self._connection = connection
        self._prolong = prolong  # sets when the connection is cut
        self._store = store
        self._begin = begin
        self._words = store.words.reading if begin is None else store.words.writing
        self._pipeline: AbstractContextManager[Any] | None = None
        self._first: psycopg.Cursor[Any] | None = None
        self._silent: psycopg.Cursor[Any] | None = None
        self.number: tuple[str, str] | None = None
        self.finished = False
        self.committing = False
        self.repeatable = False

    @property
    def dialect(self) -> Dialect:
        """How this engine differs from the others."""
        return self._store.words.dialect

    def _start(self) -> None:
        """Send the statements that begin the transaction, without waiting for their results."""
        self._pipeline = self._connection.pipeline()
        self._pipeline.__enter__()
        self._first = self._connection.cursor()
        if self._begin is None:
            self._connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            self._first.execute(*self._store.reading_as())
        else:
            self._connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            self._first.execute(self._begin[0], self._begin[1])
        self._silent = self._connection.cursor()

    def run(self, sql: str, args: Sequence[Value] = ()) -> None:
        """Execute a statement that returns no rows; its errors arrive with the next result."""
        assert not self.finished, "the transaction is over"
        if self._silent is None:
            self._start()
        assert self._silent is not None
        self._silent.execute(self._words(sql), args)

    def one(self, sql: str, args: Sequence[Value] = ()) -> Row | None:
        """Return the first row, or None."""
        rows = self.all(sql, args)
        return rows[0] if rows else None

    def all(self, sql: str, args: Sequence[Value] = ()) -> list[Row]:
        """Return all rows."""
        assert not self.finished, "the transaction is over"
        if self._silent is None:
            self._start()
        rows = self._connection.execute(self._words(sql), args, binary=True).fetchall()
        if self.number is None:
            self._learn_number()
        return rows

    def _learn_number(self) -> None:
        """Remember this transaction's number and the server's life, by which its outcome can be asked for."""
        if self._begin is not None and self._first is not None:
            said = self._first.fetchone()
            assert said is not None
            number, life, *_ = said
            self.number = number, life

    def lock(self, what: str) -> None:
        """Take a lock by name; like any statement without rows, it is sent without waiting."""
        self.run("SELECT pg_advisory_xact_lock(?)", (schemas.lock_key(f"{self._store.words.schema}:{what}"),))

    def take_time(self, seconds: float) -> None:
        """Let this transaction go on for so long from now, on both ends."""
        if self._silent is None:
            self._start()
        assert self._silent is not None
        self._silent.execute(*self._store.taking_time(seconds))
        self._prolong(seconds)

    def keyed(self) -> None:
        """Remember that this may be run again if the outcome of its commit is unknown."""
        self.repeatable = True

    def next(self, table: str) -> int:
        """Return the next local number of a table from its sequence."""
        return int(self.all(f"SELECT nextval('{self._store.words.schema}.{table}_number')")[0][0])

    def next_many(self, table: str, count: int) -> Sequence[int]:
        """Return the next local numbers of a table from its sequence, in one round trip."""
        sequence = f"'{self._store.words.schema}.{table}_number'"
        rows = self.all(f"SELECT nextval({sequence}) FROM generate_series(1, ?::bigint)", (count,))
        return sorted(int(number) for (number,) in rows)

    def reached(self, position: int) -> None:
        """Do nothing: the server assigns positions."""

    def newest(self) -> int | None:
        """Return None: another transaction may have written a newer change."""
        return None

    def keep(self, scope: str, session_id: str, row: Any, rank: int) -> None:
        """Do nothing: others may write at any time."""

    def kept(self, scope: str, session_id: str) -> Any:
        """Return None: a row that was not read in this transaction may have changed."""
        return None

    def kept_rank(self, scope: str) -> int | None:
        """Return None, as ``kept`` does."""
        return None

    @property
    def began(self) -> bool:
        """Whether anything was sent."""
        return self._silent is not None

    def commit(self) -> None:
        """Commit and wait for the server's confirmation."""
        if self._begin is not None and self.number is None:
            self._learn_number()
        self.committing = True
        self._connection.execute("COMMIT")
        self._end_pipeline()

    def _end_pipeline(self) -> None:
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            pipeline.__exit__(None, None, None)

    def give_up(self) -> None:
        """Roll back a failed transaction; if that fails too, close the connection."""
        try:
            self._end_pipeline()
        except psycopg.Error:
            pass  # the failure was already raised
        try:
            status = self._connection.info.transaction_status
            if status == psycopg.pq.TransactionStatus.INERROR:
                self._connection.rollback()  # makes the driver forget statements not prepared because of the error
            elif status != psycopg.pq.TransactionStatus.IDLE:
                self._connection.execute("ROLLBACK")
        except psycopg.Error:
            self._connection.close()

    # ------------------------------------------------------------------ an append in one statement

    @property
    def quick(self) -> PostgresTx | None:
        """The engine's own append, as long as nothing was sent in this transaction."""
        return self if self._begin is not None and self._silent is None and self._store.quick else None

    def append_known(self, wanted: KnownAppend) -> int | None:
        """Append if the session is unchanged since it was read, as one statement that is also the last.

        Sent again, it is stored at most once: it takes effect only while nobody - itself included - has changed the
        session. So a caller whose reply was lost sends the same again, and then looks for it.
        """
        return self._last(self._store.appends.append_known, wanted)

    def find_known(self, wanted: KnownAppend) -> int | None:
        """Return the position of an append whose reply was lost, if it was stored; the session may have moved on."""
        return self._last(self._store.appends.find, wanted)

    def _last(self, call: Callable[[ServerConnection, KnownAppend], int | None], wanted: KnownAppend) -> int | None:
        assert not self.finished, "the transaction is over"
        try:
            found = call(self._connection, wanted)
        except psycopg.Error as error:
            if is_lost(error, self._connection):
                raise InDoubt(error, again=True) from error
            raise
        self.finished = found is not None
        return found

    def take_turn(self, scope: str, session_id: str) -> Row | None:
        """Return the row of a session and keep others from changing it until ``append_known`` or ``end_turn``.

        It takes one round trip less than a read, since the append's statement takes the position in the feed itself.
        """
        return self._store.appends.take_turn(self._connection, scope, session_id)

    def end_turn(self) -> None:
        """Let others change the session again."""
        self._connection.execute("ROLLBACK")
