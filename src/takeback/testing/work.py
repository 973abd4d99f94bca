"""What one call costs, counted by the engine: steps of SQLite's virtual machine, or pages that PostgreSQL reads.

Times cannot show that a call grows with the store: on a busy machine they are noise, and on a small store a full table
scan takes less time than a sync. Work is the same in every run. A counter yields a ``Work`` for the duration of one
call, which lists every statement that ran, with its text.

On SQLite, a trace on every connection opened while the counter is entered reports the steps of each statement. A bare
``count(*)`` is one step however large its table is, so callers must watch for it by its text. On PostgreSQL,
``auto_explain``, which comes with the server, logs the plan and the buffers of each statement, including those run by
functions and foreign keys. Only a superuser can turn it on, so the store is used through a role for which ``explain``
was called. That role is neither a superuser nor the owner of the tables, so row security applies.
"""

from __future__ import annotations

import re
import time
from abc import abstractmethod
from collections import Counter as Tally
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import apsw
import msgspec

from takeback.testing.postgres import Server, ServerUnavailable

_STEPS = "SQLITE_STMTSTATUS_VM_STEP"
_TRIES, _PAUSE = 100, 0.02
_EXPLAIN = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_buffers": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.log_nested_statements": "on",
    "auto_explain.log_format": "json",
    "auto_explain.log_parameter_max_length": "0",
}
_PLAN = re.compile(rb"^[^\t\n][^\n]* LOG:  duration: [0-9.]+ ms  plan:\n((?:\t[^\n]*\n)+)", re.M)
_CONTEXT = re.compile(rb"[^\t\n][^\n]* CONTEXT:  [^\n]*\n(?:\t[^\n]*\n)*")
_SLOT = r"(?:\?|\$\d+)"
_LIST = re.compile(rf"\({_SLOT}(?:, ?{_SLOT})+\)")


class Statement(NamedTuple):
    """A statement that ran; ``inside`` means that a function ran it, whose own work already includes it."""

    sql: str
    work: int
    inside: bool = False


class Work:
    """What a call cost, statement by statement."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []

    def __repr__(self) -> str:
        return f"<Work {self.total:,} in {len(self)} statements>"

    def __len__(self) -> int:
        return sum(not each.inside for each in self.statements)

    @property
    def total(self) -> int:
        """The work of all statements."""
        return sum(each.work for each in self.statements if not each.inside)

    def by_text(self) -> dict[str, int]:
        """Return the work of each statement over all its runs; lists of values of any length count as one text."""
        found = Tally[str]()
        for each in self.statements:
            found[plain(each.sql)] += each.work
        return dict(found)


def plain(sql: str) -> str:
    """Return a statement on one line, with the same text for lists of values of any length."""
    return _LIST.sub("(...)", " ".join(sql.split()))


class Counter(AbstractContextManager["Counter"]):
    """Counts the work of calls on a store that is opened after entering the counter."""

    unit: str

    @abstractmethod
    def counted(self) -> AbstractContextManager[Work]:
        """Count what a block does; the result is complete when the block ends."""


class SqliteSteps(Counter):
    """Counts steps of SQLite's virtual machine."""

    unit = "steps"

    def __init__(self) -> None:
        self._work: Work | None = None

    def __enter__(self) -> Self:
        apsw.connection_hooks.append(self._watch)
        return self

    def __exit__(self, *_: object) -> None:
        apsw.connection_hooks.remove(self._watch)

    @contextmanager
    def counted(self) -> Iterator[Work]:
        """Count what the block does."""
        self._work = work = Work()
        try:
            yield work
        finally:
            self._work = None

    def _watch(self, connection: apsw.Connection) -> None:
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._ran, id=self)

    def _ran(self, event: dict[str, Any]) -> None:
        # Statements of a full-text table are prepared once and report the steps of all their runs: they are left out.
        if self._work is not None and "'main'." not in event["sql"]:
            self._work.statements.append(Statement(event["sql"], event["stmt_status"][_STEPS]))


class PostgresBuffers(Counter):
    """Counts the pages that our own server reads, from memory or disk, for roles that are explained."""

    unit = "buffers"

    def __init__(self, server: Server) -> None:
        log: Path | None = getattr(server, "log", None)
        if log is None:
            raise ServerUnavailable("counting buffers needs the log of a server that this process started")
        self._log = log

    def __exit__(self, *_: object) -> None:
        """Do nothing: the server keeps explaining."""

    @contextmanager
    def counted(self) -> Iterator[Work]:
        """Count what the block does; the server writes its log before it answers."""
        begin, work = self._log.stat().st_size, Work()
        yield work
        for left in range(_TRIES, -1, -1):
            try:
                with self._log.open("rb") as log:
                    log.seek(begin)
                    found = list(_explained(log.read()))
            except msgspec.DecodeError:  # another connection is still writing its plan
                if not left:
                    raise
                time.sleep(_PAUSE)
            else:
                work.statements += found
                return


def explain(server: Server, role: str, **settings: str) -> None:
    """Make a server explain everything a role does from its next connection on; ``settings`` are set for it too."""
    import psycopg
    from psycopg import sql

    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        for name, value in {**_EXPLAIN, **settings}.items():
            parts = map(sql.Identifier, name.split("."))
            change = sql.SQL("ALTER ROLE {} SET {} = {}")
            connection.execute(change.format(sql.Identifier(role), sql.SQL(".").join(parts), sql.Literal(value)))


def _explained(log: bytes) -> Iterator[Statement]:
    """Yield the statements from a piece of a log."""
    for plan in _PLAN.finditer(log):
        text = b"\n".join(line[1:] for line in plan[1].splitlines())
        found = msgspec.json.decode(text)
        if "pg_notify(" in found["Query Text"]:
            continue  # the notification for an earlier call, sent later by a separate thread
        node = found["Plan"]
        context = _CONTEXT.match(log, plan.end())
        # Foreign key checks also have a context, but are not included in the statement that caused them.
        inside = context is not None and b"PL/pgSQL function" in context[0]
        yield Statement(found["Query Text"], node["Shared Hit Blocks"] + node["Shared Read Blocks"], inside)
