"""The PostgreSQL server of a test run: started once, when a test first asks for it.

Every store gets a schema of its own, named after the test's directory. Three roles are made: an owner that may make
tables, a run-time role that may not, and neither is a superuser, since those see through row security. Where no
server can start, tests that need one fail under ``TAKEBACK_REQUIRE_POSTGRES`` (as CI sets it) and are skipped
elsewhere, with a line at the end of the run that says so.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import _unproven
import takeback

OWNER, APP = "takeback_owner", "takeback_app"
DATABASE = "takeback_tests"


@cache
def _started() -> Any:
    """Return the server with its database and roles, or the reason why there is none."""
    from takeback.testing import postgres

    try:
        server = postgres.find_server(max_connections=200)
    except (postgres.ServerUnavailable, ImportError) as error:
        return str(error)
    import psycopg

    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        for role in (OWNER, APP):
            connection.execute(f"DROP ROLE IF EXISTS {role}") if server.controllable else None
            if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,)).fetchone():
                connection.execute(f"CREATE ROLE {role} LOGIN")
        if server.controllable or not _has_database(connection):
            connection.execute(f"CREATE DATABASE {DATABASE} OWNER {OWNER}")
    return server


def _has_database(connection: Any) -> bool:
    return bool(connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone())


def server() -> Any:
    """Return the server; without one the test that asks is skipped, or fails where one is required."""
    found = _started()
    if isinstance(found, str):
        message = f"no PostgreSQL server could be started: {found}"
        if os.environ.get("TAKEBACK_REQUIRE_POSTGRES"):
            pytest.fail(message, pytrace=False)
        pytest.skip(f"{NOT_PROVEN}: {message}")
    return found


NOT_PROVEN = f"PostgreSQL {_unproven.NOT_PROVEN}"


def schema_of(place: Path | str) -> str:
    """Return the schema that belongs to a directory of a test."""
    return "h" + hashlib.sha256(str(place).encode()).hexdigest()[:20]


def url(place: Path | str, *, user: str = OWNER, **options: Any) -> str:
    """Return the URL of the store of a directory."""
    found: str = server().dsn(DATABASE, user, schema=schema_of(place), **options)
    return found


@cache
def app_url(place: Path | str) -> str:
    """Return the URL of the store of a directory for the run-time role; the owner makes the tables first."""
    takeback.migrate(url(place), grant_to=APP)
    return url(place, user=APP)


def new_database(name: str) -> str:
    """Make an empty database that the owner role may fill, and give its URL."""
    execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    execute(f"CREATE DATABASE {name} OWNER {OWNER}")
    found: str = server().dsn(name, OWNER)
    return found


def execute(sql: str, *args: Any, user: str = "postgres") -> list[Any]:
    """Run a statement on the side, as a superuser if nothing else is said."""
    import psycopg

    with psycopg.connect(server().dsn(DATABASE, user), autocommit=True) as connection:
        cursor = connection.execute(sql, args or None)  # type: ignore[arg-type]
        return cursor.fetchall() if cursor.description else []


_NUMBERS = itertools.count()  # of the schemas of this process, whoever lends them


class Lent:
    """Schemas for one test after another, emptied in between: making one takes longer than most tests do."""

    def __init__(self) -> None:
        self._free = list[str]()
        self._lent = dict[str, str]()
        self._made = list[str]()
        self._line: Any = None

    def url(self, place: Path | str, *, user: str = APP) -> str:
        """Return the URL of the store that belongs to a directory until ``take_back``."""
        if str(place) not in self._lent:
            self._lent[str(place)] = self._free.pop() if self._free else self._new()
        found: str = server().dsn(DATABASE, user, schema=self._lent[str(place)])
        return found

    def take_back(self) -> None:
        """Make every schema that was lent as it was when it was new."""
        if self._lent and self._line is None:
            import psycopg

            self._line = psycopg.connect(server().dsn(DATABASE), autocommit=True)
        for schema in self._lent.values():
            self._line.execute(_emptying(schema))
        self._free += self._lent.values()
        self._lent.clear()

    def _new(self) -> str:
        schema = f"lent_{os.getpid()}_{next(_NUMBERS)}"
        self._made.append(schema)
        takeback.migrate(server().dsn(DATABASE, OWNER, schema=schema), grant_to=APP)
        for table in _tables(schema):
            if execute(f"SELECT 1 FROM {schema}.{table} LIMIT 1"):
                execute(f"CREATE SCHEMA IF NOT EXISTS new_{schema}")
                execute(f"CREATE TABLE new_{schema}.{table} AS TABLE {schema}.{table}")
        return schema


@cache
def _emptying(schema: str) -> str:
    first = _tables(f"new_{schema}")
    parts = ["SET session_replication_role = replica"]  # rows go in any order
    parts += [f"DELETE FROM {schema}.{table}" for table in _tables(schema)]
    parts += [f"INSERT INTO {schema}.{table} SELECT * FROM new_{schema}.{table}" for table in first]
    parts += [f"SELECT setval('{schema}.{name}', 1, false)" for name in _tables(schema, "S")]
    return "; ".join(parts)


def _tables(schema: str, kind: str = "r") -> list[str]:
    found = execute(
        "SELECT relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = %s AND relkind = %s",
        *(schema, kind),
    )
    return [name for (name,) in found]
