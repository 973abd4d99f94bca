"""What the PostgreSQL crash tests share: a server that may be crashed, writers under way, and a script of writes."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import _postgres
import takeback
from takeback.testing import postgres
from takeback.testing.contract.base import eventually

from . import _harness


@contextmanager
def own_server() -> Iterator[Any]:
    """Start a server that nobody else uses, with the database and the owner of ``_postgres``."""
    try:
        server = postgres.start()
    except postgres.ServerUnavailable as error:
        if os.environ.get("TAKEBACK_REQUIRE_POSTGRES"):
            pytest.fail(str(error), pytrace=False)
        pytest.skip(f"{_postgres.NOT_PROVEN}: {error}")
    with server:
        execute(server, f"CREATE ROLE {_postgres.OWNER} LOGIN", database="postgres")
        execute(server, f"CREATE DATABASE {_postgres.DATABASE} OWNER {_postgres.OWNER}", database="postgres")
        yield server


def url(server: Any, place: object, **options: Any) -> str:
    """Return the URL of the store of a directory on a server, or through a proxy before it (``port``)."""
    found: str = server.dsn(_postgres.DATABASE, _postgres.OWNER, schema=_postgres.schema_of(str(place)), **options)
    return found


def execute(server: Any, sql: str, *args: Any, database: str = _postgres.DATABASE) -> list[Any]:
    """Run a statement on the side, as a superuser."""
    import psycopg

    with psycopg.connect(server.dsn(database), autocommit=True, connect_timeout=10) as connection:
        cursor = connection.execute(sql, args or None)  # type: ignore[arg-type]
        return cursor.fetchall() if cursor.description else []


class Writers:
    """Threads that append until they are stopped; each says what was acknowledged and what failed.

    Every second one uses idempotency keys and calls again until it is told; the others do not, and what failed in
    doubt may be there or not.
    """

    def __init__(self, stores: list[takeback.Store], session_ids: list[str], *, pause: float = 0.0) -> None:
        self.acknowledged = list[str]()
        self.doubtful = list[str]()
        self.unexpected = list[BaseException]()
        self._pause = pause
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(store, session_id, f"w{n}", n % 2 == 0), daemon=True)
            for n, (store, session_id) in enumerate(zip(stores, session_ids, strict=True))
        ]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a writer hangs"
        assert not self.unexpected, self.unexpected

    def _run(self, store: takeback.Store, session_id: str, name: str, keyed: bool) -> None:
        try:
            session = store.get_session(session_id)
            number = 0
            while not self._stop.is_set():
                number += 1
                while not self._say(session, f"{name}:{number}", keyed) and keyed:
                    pass
                time.sleep(self._pause)
        except BaseException as error:
            self.unexpected.append(error)

    def _say(self, session: takeback.Session, text: str, keyed: bool) -> bool:
        try:
            if int(text.split(":")[1]) % 3:
                session.user(text, idempotency_key=text if keyed else None)
            else:  # not one statement but a transaction of several
                session.note(text, idempotency_key=text if keyed else None)
        except (takeback.BackendError, takeback.Busy):
            if not keyed:
                self.doubtful.append(text)
            return False
        else:
            self.acknowledged.append(text)
            return True

    def await_all(self, more: int = 1) -> None:
        """Wait until each writer has had something acknowledged from now on, and all of them so much."""
        start = len(self.acknowledged)

        def told() -> set[str]:
            return {text.split(":")[0] for text in self.acknowledged[start:]}

        done = eventually(lambda: len(told()) == len(self._threads) and len(self.acknowledged) - start >= more)
        assert done, f"only {told()} can write"


def check(store: takeback.Store, writers: Writers) -> int:
    """Compare a store with what its writers were told; give the number of things stored."""
    report = store.verify()
    assert not report, str(report)
    stored = Counter[str]()
    for session in store.iter_sessions():
        stored.update(message.text for message in session.iter_messages())
        stored.update(note.text for note in session.notes())
    acknowledged = set(writers.acknowledged)
    assert max(stored.values()) == 1, [text for text, count in stored.items() if count > 1]
    assert acknowledged <= stored.keys(), sorted(acknowledged - stored.keys())[:10]
    assert stored.keys() - acknowledged <= set(writers.doubtful), "something is stored that nobody was told of"
    return len(stored)


def script(store: takeback.Store, name: str, rounds: int, *, keyed: bool, before: Callable[[], object]) -> None:
    """Make writes of every kind, each a transaction of its own; ``before`` is called ahead of each."""
    count = 0

    def key() -> str | None:
        nonlocal count
        count += 1
        before()
        return f"{name} {count}" if keyed else None

    session = store.create_session(name, idempotency_key=key())
    agent = store.create_agent(f"agent-{name}", idempotency_key=key())
    for n in range(rounds):
        session.append({"role": "user", "content": f"{n}", "id": f"{name}-{n}"}, idempotency_key=key())
        call = {"id": f"call-{n}", "name": "read", "arguments": {"n": n}}
        asked = {"role": "assistant", "content": "", "tool_calls": [call]}
        session.append(asked, {"role": "user", "content": "also", "id": f"{name}-also-{n}"}, idempotency_key=key())
        session.append({"role": "tool", "content": f"got {n}", "tool_call_id": f"call-{n}"}, idempotency_key=key())
        session.state.set("n", n, idempotency_key=key())
        session.add_task(f"task {n}", idempotency_key=key())
        session.note(f"note {n}", idempotency_key=key())
        session.checkpoint(f"point {n}", idempotency_key=key())
        session.rename(f"title {n}", idempotency_key=key())
        session.add_build_attempt(idempotency_key=key())
        agent.state.set("n", n, idempotency_key=key())
        session.fork(name=f"fork {n}", idempotency_key=key())
        session.pop(idempotency_key=key())
        session.undo(idempotency_key=key())


def picture(store: takeback.Store) -> Any:
    """Describe all that ``script`` makes, sorted by the sessions' names."""
    found = _harness.picture(store)
    agents = [[agent.id, agent.version, agent.state.read()] for agent in store.list_agents()]
    return sorted(found, key=lambda each: str(each["name"])), sorted(agents)
