"""R22 on PostgreSQL: a migration is done or not done, whenever the process that makes it dies, and done by one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import _postgres
import takeback

from . import _harness, _newer, _writers
from ._harness import Child, ChildDied, in_child, told

pytestmark = [pytest.mark.slow, pytest.mark.promise("R22"), pytest.mark.feature("C6")]

OLD, COPY, NEW = "takeback_older", "takeback_migrated", "takeback_newest"
SCOPES = ("", "tenant")
COLUMNS = """SELECT table_name::text, column_name::text, data_type::text, is_nullable::text, collation_name::text
FROM information_schema.columns WHERE table_schema = 'takeback' ORDER BY 1, 2"""
INDEXES = "SELECT indexname::text, indexdef FROM pg_indexes WHERE schemaname = 'takeback' ORDER BY 1"
POLICIES = """SELECT tablename::text, policyname::text, roles::text, cmd, qual FROM pg_policies
WHERE schemaname = 'takeback' ORDER BY 1, 2"""
SECURED = """SELECT relname::text, relrowsecurity, relforcerowsecurity FROM pg_class
WHERE relnamespace = 'takeback'::regnamespace AND relkind = 'r' ORDER BY 1"""


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Takeback that knows two schemas more."""
    return _newer.make(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def held() -> Iterator[Any]:
    """What the store in the database ``OLD`` holds, which this version made."""
    url = _postgres.new_database(OLD)
    yield in_child(_make, url)
    for name in (OLD, COPY, NEW):
        _postgres.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def _make(url: str) -> Any:
    with takeback.open(url) as store:
        for scope in SCOPES:
            session = store.scoped(scope).create_session("old", tags=["red"])
            session.append(*({"role": "user", "content": f"message {number}"} for number in range(30)))
            session.rewind(20)
            session.user("another way", attachments=[b"x" * 100_000])
            session.checkpoint("here")
    return _look(url)


def _look(url: str) -> Any:
    """Open a store and give what it holds."""
    import takeback

    with takeback.open(url) as store:
        for scope in SCOPES:
            report = store.scoped(scope).verify()
            assert not report, str(report)
        return [_harness.picture(store.scoped(scope)) for scope in SCOPES]


def _look_as(newer: Path, url: str) -> Any:
    _newer.become(newer)
    return _look(url)


def _copied() -> str:
    """Return the URL of a copy of the old store."""
    _postgres.execute(f"DROP DATABASE IF EXISTS {COPY} WITH (FORCE)")
    _postgres.execute(f"CREATE DATABASE {COPY} TEMPLATE {OLD} OWNER {_postgres.OWNER}")
    found: str = _postgres.server().dsn(COPY, _postgres.OWNER)
    return found


def _made(name: str) -> Any:
    """Return the versions of the store in a database and its schema."""
    import psycopg

    with psycopg.connect(_postgres.server().dsn(name), autocommit=True) as connection:
        asked = ("SELECT version FROM takeback.migration ORDER BY 1", COLUMNS, INDEXES, POLICIES, SECURED)
        return [connection.execute(sql).fetchall() for sql in asked]


def _migrate_and_die(url: str, number: int) -> None:
    """Migrate, but get SIGKILL instead of the n-th statement."""
    import psycopg

    import takeback

    execute, made = psycopg.Connection.execute, 0

    def counted(self: Any, *args: Any, **options: Any) -> Any:
        nonlocal made
        made += 1
        if made == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return execute(self, *args, **options)

    psycopg.Connection.execute = counted  # type: ignore[method-assign]
    takeback.migrate(url)


def _dies(url: str, number: int) -> bool:
    try:
        in_child(_migrate_and_die, url, number)
    except ChildDied:
        return True
    return False


def _at_every_statement(newer: Path, held: Any) -> int:
    """Kill a migration at each of its statements; give how many there were.

    Each time none of it is seen, and it is made again: the store holds what it held, in the tables of a new one.
    """
    _newer.become(newer)
    in_child(_look, _postgres.new_database(NEW))
    latest = _made(NEW)
    assert latest[0] == [(number + 1,) for number in range(_newer.LATEST)]
    for number in range(1, 500):
        url = _copied()
        with told(statement=number):
            died = _dies(url, number)
            assert len(_made(COPY)[0]) == (1 if died else _newer.LATEST), "half a migration"
            assert in_child(_look, url) == held
            assert _made(COPY) == latest
        if not died:
            return number - 1
    raise AssertionError("a migration that never ends")


def test_a_kill_at_any_statement_of_a_migration_loses_nothing(
    newer: Path, held: Any, tally: Callable[..., int]
) -> None:
    points = in_child(_at_every_statement, newer, held, timeout=600)
    assert points > 20
    tally("R22 kills in a migration", points)


def test_many_processes_migrate_a_store_at_once(newer: Path, held: Any) -> None:
    url, barrier = _copied(), _harness.Barrier()

    def work() -> Any:
        _newer.become(newer)
        barrier.wait()
        return _look(url)

    children = [Child(work) for _ in range(8)]
    barrier.open()
    for child in children:
        assert child.result() == held
    assert len(_made(COPY)[0]) == _newer.LATEST


def test_an_older_takeback_refuses_what_a_newer_one_migrated(newer: Path, held: Any) -> None:
    url = _copied()
    assert in_child(_look_as, newer, url) == held
    before = _made(COPY)
    for call in (takeback.open, takeback.migrate):
        with pytest.raises(takeback.SchemaTooNew, match=r"pip install --upgrade takeback"):
            call(url)
    assert _made(COPY) == before


def test_writers_that_are_at_work_go_on_through_a_migration(newer: Path, held: Any) -> None:
    """It waits for their tables and they for its: nobody fails, nothing is lost."""
    url = _copied()
    with takeback.open(url, scope="writers") as store:
        sessions = [store.create_session(f"of {number}").id for number in range(4)]
        with _writers.Writers([store] * 4, sessions) as writers:
            writers.await_all()
            in_child(_migrate, newer, url)
            writers.await_all()
        assert not writers.doubtful
        assert _writers.check(store, writers) > 0
    assert len(_made(COPY)[0]) == _newer.LATEST


def _migrate(newer: Path, url: str) -> None:
    _newer.become(newer)
    import takeback

    takeback.migrate(url)
