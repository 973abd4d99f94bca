"""Who keeps others waiting on a server: the transaction that holds locks in a store and waits for nobody itself."""

from __future__ import annotations

import contextlib
from typing import Any

import psycopg

from ...errors import Busy

LOCKED_OUT = "55P03"  # the server's code for a wait that took too long
_PATIENCE = "2000"  # milliseconds for the question itself
# What another role's process is doing is hidden from most roles; its locks are not.
_ASK = """SELECT a.pid, nullif(a.application_name, ''), host(a.client_addr), a.state,
extract(epoch FROM clock_timestamp() - a.xact_start)::integer FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
AND EXISTS (SELECT 1 FROM pg_locks l LEFT JOIN pg_class c ON c.oid = l.relation WHERE l.pid = a.pid AND l.granted
    AND (l.locktype = 'advisory' OR c.relnamespace = to_regnamespace($1) AND l.mode <> 'AccessShareLock'))
AND cardinality(pg_blocking_pids(a.pid)) = 0 ORDER BY a.xact_start LIMIT 1"""


def busy(connection: psycopg.Connection[Any], schema: str, seconds: float) -> Busy:
    """Return the error for a lock that was not free in time, with the oldest transaction that holds locks here."""
    waited = f"the server did not give this call the locks it needs within {seconds:g} s (lock_timeout)"
    row = None
    with contextlib.suppress(psycopg.Error), connection.transaction():
        connection.execute("SELECT set_config('statement_timeout', $1, true)", (_PATIENCE,))
        row = connection.execute(_ASK, (schema,)).fetchone()
    if row is None:
        return Busy(f"{waited}, as others hold them; try again")
    pid, program, client, state, age = row
    known = ", ".join(filter(None, (program, client and f"connected from {client}")))
    holder = f"server process {pid}" + (f" ({known})" if known else "")
    doing = f", {state} for {age} s" if state and age is not None else ""
    advice = f"Try again, or end it with: SELECT pg_terminate_backend({pid})"
    return Busy(f"{waited}: {holder} holds locks in this store{doing}. {advice}", holder=holder)
