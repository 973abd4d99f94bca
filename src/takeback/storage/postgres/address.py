"""Where a store on a server is: the URL, our own options in it, and connections with timeouts that always hold."""

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
_HEAR_MS = 1000  # a signal ends a wait at once; this is for where it does not
_KEEP = {"keepalives_idle": 15, "keepalives_interval": 5, "keepalives_count": 3}

ADAPTERS = AdaptersMap(psycopg.adapters)
ADAPTERS.register_dumper(int, Int8BinaryDumper)  # one type for all numbers, so one prepared statement per text


class Line(psycopg.Connection[Any]):
    """A connection that remembers what it is good for."""

    knows_append = False  # it has prepared the hottest statement
    epoch: int | None = None  # in which it lives, if it is with one session of the server all the time

    _looks: select.poll | None = None

    def wait_for(self, events: int) -> None:
        """Wait until the socket can be read or written, or for so long that an interrupt can be heard."""
        if self._looks is None:
            self._looks = select.poll()
        self._looks.register(self.pgconn.socket, events)
        self._looks.poll(_HEAR_MS)

    def is_direct(self) -> bool:
        """Ask whether the server knows us by the number that we were given; a pooler gives numbers of its own.

        Behind a pooler the next transaction may run in another session of the server: a statement that was prepared
        is unknown there, or worse, another one of the same name.
        """
        return self.execute("SELECT pg_backend_pid()").fetchone() == (self.info.backend_pid,)


class Address(NamedTuple):
    """A server, a database, a schema, and how long to wait."""

    conninfo: str
    schema: str
    pool_size: int
    call_timeout: float
    connect_timeout: float
    hosts: int

    @staticmethod
    def of(url: str) -> Address:
        """Read a URL; ``schema``, ``pool_size`` and ``call_timeout`` in it are ours, the rest is libpq's."""
        plain, options = _split(url)
        ours = {name: options.pop(name, default) for name, default in _OURS.items()}
        plain += f"?{urlencode(options, quote_via=quote)}" if options else ""
        if not _NAME.fullmatch(ours["schema"]):
            raise Invalid(f"a schema is named by letters, digits and underscores, not {ours['schema']!r}")
        size, timeout = _number("pool_size", ours["pool_size"]), _number("call_timeout", ours["call_timeout"])
        try:
            conninfo = psycopg.conninfo.make_conninfo(plain, **_defaults(plain, timeout))
        except psycopg.ProgrammingError as error:
            raise _unreadable(str(error)) from None  # its words may hold a part of the password
        given = psycopg.conninfo.conninfo_to_dict(conninfo)
        patience = str(given["connect_timeout"] or 0)
        connect = _number("connect_timeout", "10" if patience == "0" else patience)  # 0 would be without end
        hosts = 1 + max(str(given.get(name) or "").count(",") for name in ("host", "hostaddr"))
        return Address(conninfo, ours["schema"], max(1, int(size)), timeout, connect, hosts)

    def connect(self, seconds: float) -> Line:
        """Make a connection that gives values as this library writes them."""
        connection = Line.connect(
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
            raise Unsupported("the database must have the encoding UTF8", capability="encoding")
        if connection.info.server_version < 140000:
            connection.close()
            raise Unsupported("PostgreSQL 14 or newer is needed", capability="server")
        return connection


def _split(url: str) -> tuple[str, dict[str, str]]:
    """Give a URL without its options, and the options; a plus is a plus, as libpq has it."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise _unreadable(str(error)) from None
    if parts.fragment:
        raise _unreadable("'#' begins nothing here")
    user, at, hosts = parts.netloc.rpartition("@")
    pairs = [pair.partition("=") for pair in parts.query.split("&") if pair]
    if not all(equals for _, equals, _ in pairs):
        raise _unreadable("an option is written name=value, with & between two of them")
    options = {unquote(name): unquote(value) for name, _, value in pairs}
    return f"postgresql://{user.replace('@', '%40')}{at}{hosts}{parts.path}", options


def _unreadable(why: str) -> Invalid:
    """Say what is wrong with a URL; what may be a part of a password is not repeated."""
    hint = "write special characters of user and password as %XX"
    shown = hint if "@" in why or "%" in why or "#" in why else " ".join(why.split())
    return Invalid(f"the store's URL cannot be read: {shown}")


def _defaults(plain: str, timeout: float) -> dict[str, Any]:
    """Give what a URL left open: no wait is endless, and of several hosts the one that can write is meant."""
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
        raise Invalid(f"{name} in the store's URL is a number above 0, not {text!r}")
    return value
