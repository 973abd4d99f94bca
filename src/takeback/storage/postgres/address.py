"""The address of a store on a server: its URL, our own options in it, and connections with reliable timeouts."""

from __future__ import annotations

import re
import select
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlencode, urlsplit

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.types.numeric import Int8BinaryDumper

from ...errors import Invalid, Unsupported

_OURS = {"schema": "takeback", "pool_size": "10", "call_timeout": "30"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_HEAR_MS = 1000  # usually a signal ends a wait at once; this bounds it where it does not
_KEEP = {"keepalives_idle": 15, "keepalives_interval": 5, "keepalives_count": 3}

ADAPTERS = AdaptersMap(psycopg.adapters)
ADAPTERS.register_dumper(int, Int8BinaryDumper)  # one type for all ints, so one prepared statement per text


class ServerConnection(psycopg.Connection[Any]):
    """A connection that remembers what it can be used for."""

    knows_append = False  # whether it has prepared the hottest statements
    epoch: int | None = None  # its epoch, if it stays with one server session and is not pooled

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._looks = select.poll()
        self._looked_for = 0

    def wait_for(self, events: int) -> None:
        """Wait until the socket is ready, but no longer than an interrupt should have to wait."""
        if self._looked_for != events:
            self._looks.register(self.pgconn.socket, events)
            self._looked_for = events
        self._looks.poll(_HEAR_MS)

    def is_direct(self) -> bool:
        """Whether we talk to the server directly: a pooler reports another backend pid than the server's.

        Behind a pooler the next transaction may run in another server session, where a prepared statement is unknown
        or, worse, a different one of the same name.
        """
        return self.execute("SELECT pg_backend_pid()").fetchone() == (self.info.backend_pid,)


class Address(NamedTuple):
    """A server, a database, a schema, and the timeouts."""

    conninfo: str
    schema: str
    pool_size: int
    call_timeout: float
    connect_timeout: float
    hosts: int

    @staticmethod
    def of(url: str) -> Address:
        """Parse a URL; ``schema``, ``pool_size`` and ``call_timeout`` in it are ours, the rest is libpq's."""
        plain, options = _split(url)
        ours = {name: options.pop(name, default) for name, default in _OURS.items()}
        plain += f"?{urlencode(options, quote_via=quote)}" if options else ""
        if not _NAME.fullmatch(ours["schema"]):
            raise Invalid(f"a schema's name has only letters, digits and underscores, not {ours['schema']!r}")
        size, timeout = _number("pool_size", ours["pool_size"]), _number("call_timeout", ours["call_timeout"])
        try:
            conninfo = psycopg.conninfo.make_conninfo(plain, **_defaults(plain, timeout))
        except psycopg.ProgrammingError as error:
            raise _unreadable(str(error)) from None  # its text may contain part of the password
        given = psycopg.conninfo.conninfo_to_dict(conninfo)
        patience = str(given["connect_timeout"] or 0)
        connect = _number("connect_timeout", "10" if patience == "0" else patience)  # 0 would mean forever
        hosts = 1 + max(str(given.get(name) or "").count(",") for name in ("host", "hostaddr"))
        return Address(conninfo, ours["schema"], max(1, int(size)), timeout, connect, hosts)

    def connect(self, seconds: float) -> ServerConnection:
        """Open a connection set up for this library's statements and values."""
        connection = ServerConnection.connect(
            self.conninfo,
            autocommit=True,
            prepare_threshold=None,
            context=ADAPTERS,
            cursor_factory=psycopg.RawCursor,
            connect_timeout=max(2, int(min(seconds / self.hosts, self.connect_timeout))),
        )
        connection.prepared_max = 400
        if connection.info.parameter_status("server_encoding") != "UTF8":
            connection.close()
            raise Unsupported("the database's encoding must be UTF8", capability="encoding")
        if connection.info.server_version < 140000:
            connection.close()
            raise Unsupported("PostgreSQL 14 or newer is needed", capability="server")
        return connection


def _split(url: str) -> tuple[str, dict[str, str]]:
    """Split a URL into address and options; as in libpq, a plus stays a plus."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise _unreadable(str(error)) from None
    if parts.fragment:
        raise _unreadable("'#' is not allowed here")
    user, at, hosts = parts.netloc.rpartition("@")
    pairs = [pair.partition("=") for pair in parts.query.split("&") if pair]
    if not all(equals for _, equals, _ in pairs):
        raise _unreadable("options are written name=value, separated by &")
    options = {unquote(name): unquote(value) for name, _, value in pairs}
    return f"postgresql://{user.replace('@', '%40')}{at}{hosts}{parts.path}", options


def _unreadable(why: str) -> Invalid:
    """Return the error for a bad URL, without repeating what may be part of a password."""
    hint = "write special characters in user and password as %XX"
    shown = hint if "@" in why or "%" in why or "#" in why else " ".join(why.split())
    return Invalid(f"the store's URL cannot be parsed: {shown}")


def _defaults(plain: str, timeout: float) -> dict[str, Any]:
    """Return defaults for what a URL leaves out: no wait is endless, and of several hosts the writable one is used."""
    given = psycopg.conninfo.conninfo_to_dict(plain)
    wanted: dict[str, Any] = {"connect_timeout": 5, "application_name": "takeback", **_KEEP}
    wanted["tcp_user_timeout"] = int(timeout * 1000)
    if "," in str(given.get("host", "")) or "," in str(given.get("hostaddr", "")):
        wanted["target_session_attrs"] = "read-write"
    return {"client_encoding": "UTF8"} | {name: value for name, value in wanted.items() if name not in given}


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1_000_000:
        raise Invalid(f"{name} in the store's URL must be a number above 0, not {text!r}")
    return value
