"""PostgreSQL behind PgBouncer in transaction mode: few server connections, each shared by many clients."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import _postgres
import takeback
from takeback.testing import pgbouncer
from takeback.testing.contract.messages import Messages
from takeback.testing.contract.races import Races
from takeback.testing.postgres import Server

pytestmark = [pytest.mark.slow, pytest.mark.feature("C6"), pytest.mark.timeout(300)]

_running: list[pgbouncer.Bouncer] = []


@pytest.fixture(scope="module", autouse=True)
def bouncer() -> Iterator[pgbouncer.Bouncer]:
    server = _postgres.server()
    place = {"host": server.host, "port": str(server.port), "dbname": _postgres.DATABASE}
    try:  # as the run-time role, since row security is what keeps scopes apart
        started = pgbouncer.start(Server({**place, "user": _postgres.APP}), _postgres.DATABASE, pool_size=2)
    except pgbouncer.ServerUnavailable as error:
        pytest.skip(f"{_postgres.NOT_PROVEN}: {error}")
    with started:
        _running.append(started)
        yield started
        _running.clear()


def pooled(place: Path, **options: Any) -> str:
    """Return the URL of the store of a directory through the bouncer; the owner makes its tables."""
    _postgres.app_url(place)
    return _running[0].dsn(schema=_postgres.schema_of(place), **options)


@pytest.mark.feature("E6")
class TestPooled(Messages, Races):
    """The parts of the contract that use every kind of statement; the whole of it takes two minutes and holds too."""

    def open(self, tmp_path: Path, **options: Any) -> takeback.Store:
        return takeback.open(pooled(tmp_path), **options)


def said(session: takeback.Session) -> list[str]:
    return [message.text for message in session.iter_messages()]


def sound(store: takeback.Store) -> None:
    report = store.verify()
    assert not report, str(report)


def together(*work: Any) -> None:
    """Run functions in threads and raise what one of them raised."""
    failures = list[BaseException]()

    def run(each: Any) -> None:
        try:
            each()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(each,)) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    if failures:
        raise failures[0]


def test_eight_threads_share_two_connections_of_the_server(tmp_path: Path) -> None:
    with takeback.open(pooled(tmp_path)) as one, takeback.open(pooled(tmp_path)) as two:
        session = one.create_session("work")

        def write(store: takeback.Store, name: str) -> None:
            mine = store.get_session(session.id)
            for number in range(15):
                mine.user(f"{name}:{number}", idempotency_key=f"{name}:{number}")
                mine.note(f"{name}:{number}")
                with pytest.raises(takeback.Conflict):
                    mine.append({"role": "user", "content": "refused"}, expected_revision=0)

        together(*(lambda n=n: write((one, two)[n % 2], f"t{n}") for n in range(8)))
        expected = sorted(f"t{n}:{number}" for n in range(8) for number in range(15))
        assert sorted(said(session)) == sorted(note.text for note in session.notes()) == expected
        sound(one)
    used = "SELECT count(*) FROM pg_stat_activity WHERE usename = %s AND application_name = 'takeback'"
    assert _postgres.execute(used, _postgres.APP)[0][0] <= 2


def test_a_scope_ends_with_its_transaction(tmp_path: Path, bouncer: pgbouncer.Bouncer) -> None:
    """The next transaction of the same server connection may be anybody's."""
    schema = _postgres.schema_of(tmp_path)
    with takeback.open(pooled(tmp_path)) as store:
        names = ("ann", "bob", "eve", "")
        handles = {name: store.scoped(name or None) for name in names}
        for name, handle in handles.items():
            handle.create_session(f"of {name}")

        def work(name: str) -> None:
            for number in range(20):
                (session,) = handles[name].list_sessions()
                assert session.name == f"of {name}"
                session.user(f"{name} {number}")
                session.state.set("n", number)

        def look() -> None:
            with psycopg.connect(bouncer.dsn(), autocommit=True, prepare_threshold=None) as connection:
                for _ in range(100):
                    row = connection.execute(
                        f"SELECT current_setting('takeback.scope', true), current_setting('lock_timeout'),"  # type: ignore[arg-type]
                        f" current_setting('synchronous_commit'), (SELECT count(*) FROM {schema}.session)"
                    ).fetchone()
                    assert row in [("", "0", "on", 0), (None, "0", "on", 0)]

        together(*(lambda name=name: work(name) for name in names), look)
        for name, handle in handles.items():
            (session,) = handle.list_sessions()
            assert said(session) == [f"{name} {number}" for number in range(20)]
        sound(store)


def test_nothing_stays_set_on_a_connection_that_others_will_use(tmp_path: Path, bouncer: pgbouncer.Bouncer) -> None:
    """A hint need not be on disk; if that stayed so, the next commit on its connection would not be either."""
    with takeback.open(pooled(tmp_path)) as store:
        session = store.create_session("work")
        reader = threading.Thread(target=lambda: list(store.follow()))
        reader.start()
        for number in range(10):
            session.user(f"{number}")
            time.sleep(0.03)  # long enough for a hint of its own
    reader.join(60)
    assert not reader.is_alive()
    together(*(lambda: _untouched(bouncer) for _ in range(2)))


def _untouched(bouncer: pgbouncer.Bouncer) -> None:
    with psycopg.connect(bouncer.dsn(), autocommit=False, prepare_threshold=None) as connection:
        setting = connection.execute("SHOW synchronous_commit").fetchone()
        channels = connection.execute("SELECT pg_listening_channels()").fetchall()
        prepared = connection.execute("SELECT name FROM pg_prepared_statements").fetchall()
        time.sleep(0.3)  # so that the other one looks at the other connection
    assert setting == ("on",)
    assert not channels
    assert not prepared


def test_statements_are_prepared_only_where_a_connection_is_ours(tmp_path: Path) -> None:
    """Behind an old bouncer a prepared name is unknown at the next server connection, or another statement."""
    with takeback.open(pooled(tmp_path)) as behind, takeback.open(_postgres.url(tmp_path)) as direct:
        for store, prepares in ((behind, False), (direct, True)):
            session = store.create_session()
            for number in range(8):
                session.user(f"{number}")
                session.note(f"{number}")
            backend: Any = store._backend
            (line,) = backend._pool._idle
            assert line.connection.knows_append == prepares
            assert (line.connection.prepare_threshold is not None) == prepares
            assert bool(line.connection._prepared._names) == prepares
            assert backend._prepare == [True]


def test_a_bouncer_that_cannot_be_recognised_turns_prepared_statements_off(tmp_path: Path) -> None:
    """One that passes the server's own numbers on: the first complaint ends it, for connections in the pool too."""
    place = pooled(tmp_path, pool_size=4)
    with takeback.open(place) as one, takeback.open(place) as two:
        for store in (one, two):
            backend: Any = store._backend
            backend._pool._greet = lambda connection: setattr(connection, "prepare_threshold", 5)
            for pooled_line in backend._pool._idle:
                pooled_line.connection.prepare_threshold = 5
        session = one.create_session("work")

        def write(store: takeback.Store, name: str) -> None:
            mine = store.get_session(session.id)
            for number in range(20):
                mine.user(f"{name}:{number}", idempotency_key=f"{name}:{number}")

        together(*(lambda n=n: write((one, two)[n % 2], f"t{n}") for n in range(4)))
        assert sorted(said(session)) == sorted(f"t{n}:{number}" for n in range(4) for number in range(20))
        assert not all(store._backend._prepare[0] for store in (one, two))  # type: ignore[attr-defined]
        sound(one)


def test_following_looks_by_itself(tmp_path: Path) -> None:
    """Nobody listens behind a bouncer, so a change is seen at the next look."""
    with takeback.open(pooled(tmp_path)) as store, takeback.open(_postgres.url(tmp_path)) as direct:
        session = direct.create_session("work")
        arrived = threading.Semaphore(0)

        def follow() -> None:
            for _ in store.follow():
                arrived.release()

        reader = threading.Thread(target=follow)
        reader.start()
        assert arrived.acquire(timeout=60)
        for _ in range(3):
            session.user("hello")
            assert arrived.acquire(timeout=60)
        assert store._backend._ear.count == 0, "it was told"  # type: ignore[attr-defined]
    reader.join(60)
    assert not reader.is_alive()
