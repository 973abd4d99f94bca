"""Creating and updating the tables: in one transaction, one process at a time, by a role with the rights.

A new store is created from the descriptors in ``tables``, with the tables of the search index, which SQLite has in
another file; ``schema/store.sql`` adds what only PostgreSQL needs. An older one is brought up to date by this engine's
own files, with the same numbers and names as the shared ones. A migration sees the rows of all scopes; row security is
restored after it. Whoever starts first takes an advisory lock; the others find the work done. Run-time roles need only
the right to use the tables.
"""

from __future__ import annotations

import contextlib
import re
import time
import uuid
from importlib import resources
from typing import Any

import psycopg

from ...errors import Busy, Corrupt, Invalid, Unsupported
from ...tables import schema as tables
from ...tables import search
from ...tables.store import META, MIGRATION, MetaRow, MigrationRow
from .. import migrate
from ..base import LOCK_TIMEOUT
from . import blockers, dialect

_FORCED = "SELECT relname FROM pg_class WHERE relnamespace = $1::regnamespace AND relforcerowsecurity"
_VERSION = "SELECT max(version) FROM {}.migration"
_USABLE = (
    "GRANT USAGE ON SCHEMA {schema} TO {role}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}",
    "REVOKE INSERT, UPDATE, DELETE ON {schema}.migration, {schema}.meta FROM {role}",
    "REVOKE UPDATE, DELETE ON {schema}.epoch FROM {role}",
    "GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}",
)
_CONTROL = "SELECT system_identifier || '/' || timeline_id FROM pg_control_system(), pg_control_checkpoint()"
_NEXT_EPOCH = """INSERT INTO {schema}.epoch SELECT max(epoch) + 1, $1 FROM {schema}.epoch
HAVING (SELECT cluster FROM {schema}.epoch ORDER BY epoch DESC LIMIT 1) <> $1 ON CONFLICT DO NOTHING"""
_EPOCHS_OVER = """SELECT coalesce((SELECT CASE WHEN cluster <> $1 THEN epoch END FROM {schema}.epoch
ORDER BY epoch DESC LIMIT 1), 0), pg_is_in_recovery()"""
_ATTEMPTS = 10  # of a migration, which can deadlock with writers over tables

Connection = psycopg.Connection[Any]


def begin_epoch(connection: Connection, schema: str) -> None:
    """Start an epoch if this is not the cluster that was last seen, but a restored one or a promoted standby."""
    (cluster,) = _one(connection, _CONTROL)
    connection.execute(_NEXT_EPOCH.format(schema=dialect.quoted(schema)), (cluster,))


def epoch(connection: Connection, schema: str) -> int:
    """Return the current epoch of the cluster."""
    return int(_one(connection, f"SELECT {dialect.quoted(schema)}.current_epoch()")[0])


def epochs_over(connection: Connection, schema: str) -> int:
    """Return the last epoch if this is another life of the cluster in which nobody has written yet, else 0.

    A standby follows the life of its primary, whatever its own control data says.
    """
    (cluster,) = _one(connection, _CONTROL)
    epoch, follows = _one(connection, _EPOCHS_OVER.format(schema=dialect.quoted(schema)), (cluster,))
    return 0 if follows else int(epoch)


def lock_key(text: str) -> int:
    """Return the number of an advisory lock, unlikely to clash with other programs."""
    return int.from_bytes(uuid.uuid5(uuid.NAMESPACE_OID, f"takeback:{text}").bytes[:8], "big", signed=True)


def version(connection: Connection, schema: str) -> int:
    """Return the schema version, 0 if there is no store yet."""
    where = dialect.quoted(schema)
    names = [f"{where}.{table}" for table in ("migration", "meta", "epoch")]
    try:
        if None in _one(connection, "SELECT to_regclass($1), to_regclass($2), to_regclass($3)", tuple(names)):
            return 0  # no tables, or another program's
        (found,) = _one(connection, _VERSION.format(where))
    except psycopg.errors.InsufficientPrivilege as error:
        raise Unsupported(
            f"this role is not allowed to use the store in schema {schema!r} ({error}); ask its owner to run"
            f" takeback.migrate(url, grant_to={connection.info.user!r})",
            capability="grant",
        ) from error
    if found is None:
        raise Corrupt("the store has lost its schema record; restore a backup", what="migration")
    return int(found)


def _one(connection: Connection, sql: str, args: tuple[Any, ...] = ()) -> Any:
    row = connection.execute(sql, args).fetchone()
    assert row is not None
    return row


def milliseconds(lock_timeout: float) -> str:
    """Return a lock timeout as the server takes it, where 0 would mean for ever."""
    return str(max(1, int(lock_timeout * 1000)))


def bring_up_to_date(
    connection: Connection, schema: str, *, grant_to: str | None = None, lock_timeout: float = LOCK_TIMEOUT
) -> int:
    """Apply missing migrations and return the version; a role without the rights gets an error that says what to do."""
    try:
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(psycopg.errors.DeadlockDetected), connection.transaction():
                connection.execute("SELECT set_config('lock_timeout', $1, true)", (milliseconds(lock_timeout),))
                connection.execute("SELECT pg_advisory_xact_lock($1)", (lock_key(f"migrate:{schema}"),))
                return _migrate(connection, schema, grant_to)
        raise Busy("the tables cannot be changed while so many others write; try again, or stop some writers")
    except psycopg.errors.LockNotAvailable as error:
        raise blockers.busy(connection, schema, lock_timeout) from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise Unsupported(
            f"the tables of this store are missing or too old, and this role may not create them ({error});"
            " run takeback.migrate(url) with a role that may",
            capability="migrate",
        ) from error
    except psycopg.errors.UndefinedObject as error:
        raise Invalid(f"access cannot be granted to {grant_to!r}: {error}; create the role first") from error
    except (psycopg.errors.DuplicateTable, psycopg.errors.DuplicateObject, psycopg.errors.DuplicateFunction) as error:
        raise Invalid(
            f"schema {schema!r} contains tables of another program ({error}); choose another schema"
        ) from error


def _migrate(connection: Connection, schema: str, grant_to: str | None) -> int:
    where = dialect.quoted(schema)
    (exists,) = _one(connection, "SELECT to_regnamespace($1) IS NOT NULL", (where,))
    if not exists:
        connection.execute(f"CREATE SCHEMA {where}")
    connection.execute(f"SET LOCAL search_path = {where}")
    steps = migrate.load()
    found, now_ms = version(connection, schema), int(time.time() * 1000)
    made = found == 0
    if made:
        _run(connection, tables.postgres(), where)
        _run(connection, search.postgres(), where)
        _run(connection, _own_file("store.sql"), where)
        for row in migrate.rows(steps, now_ms):
            connection.execute(_placed(MIGRATION.insert), MIGRATION.seal(row))
        connection.execute(_placed(META.insert), META.seal(MetaRow("store", uuid.uuid4().bytes)))
    pending = [] if made else migrate.pending(found, steps)
    for (name,) in connection.execute(_FORCED, (where,)).fetchall() if pending else ():
        connection.execute(f"ALTER TABLE {where}.{dialect.quoted(name)} NO FORCE ROW LEVEL SECURITY")
    for step in pending:
        _run(connection, _own_file(f"{step.version:04}_{step.name}.sql"), where)
        row = MigrationRow(step.version, step.name, now_ms)
        connection.execute(_placed(MIGRATION.insert), MIGRATION.seal(row))
    if made or pending:
        names = [*(table.name for table in tables.TABLES if not table.local), *search.NAMES]
        scoped = ", ".join(f"'{name}'" for name in names)
        _run(connection, _own_file("scopes.sql").replace(":tables", scoped), where)
    if grant_to is not None:
        for sql in _USABLE:
            connection.execute(sql.format(schema=where, role=dialect.quoted(grant_to)))
    return migrate.latest(steps)


def _placed(sql: str) -> str:
    head, *parts = sql.split("?")
    return head + "".join(f"${number}{part}" for number, part in enumerate(parts, 1))


def _own_file(name: str) -> str:
    return (resources.files(__package__) / "schema" / name).read_text("utf-8")


def _run(connection: Connection, sql: str, schema: str) -> None:
    """Run the statements of a file, which take no values."""
    connection.execute(re.sub(r":schema\b", lambda _: schema, sql))
