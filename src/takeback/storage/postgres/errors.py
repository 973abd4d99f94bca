"""Errors of the server and the driver, translated into ours."""

from __future__ import annotations

import psycopg

from ...errors import BackendError, Busy, Corrupt, Error, Invalid, StorageFull, Unsupported
from .pool import words

# Nothing of the transaction was stored, and the same call may succeed now.
_AGAIN = frozenset(
    {
        *("40001", "40P01"),  # a serialization failure or a deadlock
        "23505",  # another transaction used the same name or key first: the next attempt finds it
        *("57P01", "57P02", "57P03", "25006"),  # the server is stopping or starting, or no longer the primary
        *("26000", "42P05", "0A000"),  # a pooler gave us a server connection with other prepared statements
    }
)
PREPARED = frozenset({"26000", "42P05"})
# The same call would fail again on this connection: its prepared statements, or its server, are out of date.
STALE = PREPARED | {"0A000", "25006"}


def is_lost(error: psycopg.Error, connection: psycopg.Connection[object]) -> bool:
    """Whether the connection is lost, so that the outcome of what was sent is unknown.

    A fatal error ends the connection, even if the driver has not noticed yet. It may follow a successful commit, and
    the driver may only report that it lost track.
    """
    lost_track = error.sqlstate is None and isinstance(error, psycopg.OperationalError)
    return (
        lost_track
        or connection.closed
        or (error.sqlstate or "")[:2] == "08"
        or connection.pgconn.status != psycopg.pq.ConnStatus.OK
        or error.diag.severity_nonlocalized in ("FATAL", "PANIC")
    )


def may_run_again(error: psycopg.Error) -> bool:
    """Whether the server rejected a transaction that may succeed when it is run again."""
    return error.sqlstate in _AGAIN


def translate(error: Exception) -> Error:
    """Translate a driver's exception into one of ours."""
    state = getattr(error, "sqlstate", None) or ""
    text = words(error)
    match state:
        case "53100" | "53200":
            return StorageFull("the PostgreSQL server is out of disk space or memory; nothing was stored")
        case "55P03" | "57014":
            return Busy("the server did not answer in time, as others hold what this call needs; try again")
        case "42501":
            return Unsupported(f"this role is not allowed to do that: {text}", capability="write")
        case "25006":
            return Unsupported("this server is a read-only standby; connect to the primary", capability="write")
        case "54000":
            return Invalid(f"a name or key is too long for PostgreSQL's indexes (about 2,600 bytes together): {text}")
        case "23505":
            return Busy("another program kept taking the same name or key at the same moment; try again")
        case "22003":
            return Invalid("a number would exceed 2^63 - 1")
    if state in ("XX001", "XX002"):
        return Corrupt(f"the server reports damaged data: {text}. Restore a backup", what="server")
    if state[:2] == "22" or isinstance(error, psycopg.DataError | UnicodeError | OverflowError):
        return Invalid(f"a value cannot be stored: {text}")
    return BackendError(f"PostgreSQL failed: {text}")
