"""What the server and the driver say, in our words."""

from __future__ import annotations

import psycopg

from ...errors import BackendError, Busy, Corrupt, Error, Invalid, StorageFull, Unsupported
from .pool import words

# Nothing of the transaction was stored, and the same call may go through now.
_AGAIN = frozenset(
    {
        *("40001", "40P01"),  # two transactions were in each other's way
        "23505",  # somebody was faster with the same name or key: looking again finds it
        *("57P01", "57P02", "57P03", "25006"),  # the server is being stopped or started, or is no primary any more
        *("26000", "42P05", "0A000"),  # a pooler gave us a server connection that knows other prepared statements
    }
)
PREPARED = frozenset({"26000", "42P05"})
# The same call would fail again on the same connection: it knows statements, or is with a server, of the past.
STALE = PREPARED | {"0A000", "25006"}


def is_lost(error: psycopg.Error, connection: psycopg.Connection[object]) -> bool:
    """Say whether the connection is gone, so that the fate of what was sent is unknown.

    A fatal error is the end of it, which may not have been read yet; it may come after the word that something was
    committed, and the driver may tell no more than that it lost track.
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
    """Say whether the server refused a transaction that may go through when it is run again."""
    return error.sqlstate in _AGAIN


def translate(error: Exception) -> Error:
    """Turn a driver's exception into one of ours."""
    state = getattr(error, "sqlstate", None) or ""
    text = words(error)
    match state:
        case "53100" | "53200":
            return StorageFull("the disk or the memory of the PostgreSQL server is full; nothing was stored")
        case "55P03" | "57014":
            return Busy("the server did not answer in time, since others hold what this call needs; call again")
        case "42501":
            return Unsupported(f"this role may not do that: {text}", capability="write")
        case "25006":
            return Unsupported("this server only reads (a standby); connect to the primary", capability="write")
        case "54000":
            return Invalid(f"a name or key is too long for PostgreSQL's indexes (about 2,600 bytes together): {text}")
        case "23505":
            return Busy("another program kept taking the same name or key at the same moment; call again")
        case "22003":
            return Invalid("a number would pass 2^63")
    if state in ("XX001", "XX002"):
        return Corrupt(f"the server reports damaged data: {text}. Restore a backup", what="server")
    if state[:2] == "22" or isinstance(error, psycopg.DataError | UnicodeError | OverflowError):
        return Invalid(f"a value cannot be stored: {text}")
    return BackendError(f"PostgreSQL refused: {text}")
