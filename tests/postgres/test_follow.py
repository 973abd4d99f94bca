"""Following the feed: changes arrive soon after they are committed, whatever happens to the notices."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import _postgres
import takeback
from crash import _writers
from takeback.client import store as store_module
from takeback.model.feed import Change
from takeback.storage.postgres import listen
from takeback.testing.contract.base import PATIENCE, eventually
from takeback.testing.proxy import Proxy

pytestmark = pytest.mark.feature("C6")


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store is, for each engine that several handles can open at once."""
    return str(tmp_path / "store.db") if request.param == "sqlite" else _postgres.url(tmp_path)


class Follower:
    """A thread that follows a store and remembers what came."""

    def __init__(self, store: takeback.Store, after: str | None = None) -> None:
        self.seen = list[Change]()
        self.failed: BaseException | None = None
        self._arrived = threading.Condition()
        self.thread = threading.Thread(target=self._run, args=(store, after))
        self.thread.start()

    def _run(self, store: takeback.Store, after: str | None) -> None:
        try:
            for change in store.follow(after):
                with self._arrived:
                    self.seen.append(change)
                    self._arrived.notify_all()
        except BaseException as error:
            self.failed = error

    def await_count(self, count: int) -> None:
        """Wait for so many changes."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.seen) >= count or self.failed, PATIENCE), len(self.seen)
        assert self.failed is None, self.failed

    def ended(self) -> bool:
        self.thread.join(PATIENCE)
        assert self.failed is None, self.failed
        return not self.thread.is_alive()


def append_and_await(follower: Follower, session: takeback.Session, number: int) -> None:
    """Append some messages, each when the follower has the one before."""
    for each in range(number):
        session.user(f"{each}")
        follower.await_count(len(follower.seen) + 1)


def only_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody who follows look by itself: whatever comes from here on was told."""
    monkeypatch.setattr(store_module, "_LOOK_SECONDS", 2 * PATIENCE)


def no_thread(name: str) -> bool:
    return bool(eventually(lambda: all(each.name != name for each in threading.enumerate())))


# ---------------------------------------------------------------------- on every engine


def test_a_follower_gets_every_change_once_and_in_order(place: str) -> None:
    with takeback.open(place) as store, takeback.open(place) as other:
        sessions = [store.create_session(f"s{n}") for n in range(3)]
        sessions[0].user("before")
        follower = Follower(other)

        def write(session: takeback.Session) -> None:
            for number in range(20):
                session.user(f"{number}")

        writers = [threading.Thread(target=write, args=(session,)) for session in sessions]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join(PATIENCE)
        follower.await_count(1 + 3 + 1 + 60)  # the agent is one, too
        expected = [change.cursor for change in store.events()]
        assert [change.cursor for change in follower.seen] == expected
        late = Follower(other, expected[9])
        late.await_count(len(expected) - 10)
        assert [change.cursor for change in late.seen] == expected[10:]
    assert follower.ended()
    assert late.ended()


def test_following_ends_when_the_store_is_closed(place: str) -> None:
    store = takeback.open(place)
    store.create_session("work")
    follower = Follower(store)
    follower.await_count(1)
    store.close()
    assert follower.ended()
    assert list(store.follow()) == []


def test_only_changes_of_the_own_scope_are_followed(place: str) -> None:
    with takeback.open(place) as store:
        ann, bob = store.scoped("ann"), store.scoped("bob")
        follower = Follower(ann)
        bob.create_session("his")
        mine = ann.create_session("hers")
        follower.await_count(2)
        assert [change.kind for change in follower.seen] == ["agent", "session"]
        assert follower.seen[1].session_id == mine.id
    assert follower.ended()


def test_awaited_following_stops_its_thread(place: str) -> None:
    async def work() -> None:
        async with takeback.aopen(place) as store:
            session = await store.create_session("work")
            async for change in store.follow():
                if change.session_id == session.id:
                    break
            async with aclosing(store.follow()) as changes:  # type: ignore[type-var]
                assert (await anext(changes)).kind == "agent"
            assert await asyncio.to_thread(no_thread, "takeback-follow")

            async def forever() -> list[Change]:
                return [change async for change in store.follow()]

            task = asyncio.create_task(forever())
            await asyncio.sleep(0.2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            del task
            assert await asyncio.to_thread(no_thread, "takeback-follow")
            ends = asyncio.create_task(forever())
            await asyncio.sleep(0.2)
        assert len(await asyncio.wait_for(ends, PATIENCE)) == 2

    asyncio.run(work())
    assert no_thread("takeback-follow")


def test_awaited_following_keeps_little_ahead_of_a_slow_reader(place: str) -> None:
    async def work() -> None:
        async with takeback.aopen(place) as store:
            session = await store.create_session("work")
            for number in range(300):
                await session.user(f"{number}")
            seen = 0
            async with aclosing(store.follow()) as changes:  # type: ignore[type-var]
                async for _ in changes:
                    seen += 1
                    if seen == 5:
                        await asyncio.sleep(0.5)
                    if seen == 302:
                        break

    asyncio.run(work())
    assert no_thread("takeback-follow")


# ---------------------------------------------------------------------- notices of PostgreSQL

_FOLLOW = """
import sys, takeback
from takeback.client import store
store._LOOK_SECONDS = 3600
with takeback.open(sys.argv[1]) as store:
    for change in store.follow():
        print(change.kind, flush=True)
"""


def test_another_process_is_woken_by_a_notice(tmp_path: Path) -> None:
    place = _postgres.url(tmp_path)
    with takeback.open(place) as store:
        session = store.create_session("work")
        child = subprocess.Popen([sys.executable, "-c", _FOLLOW, place], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        try:
            assert [child.stdout.readline() for _ in range(2)] == ["agent\n", "session\n"]
            for number in range(9):
                session.user(f"{number}")
                assert child.stdout.readline() == "entries\n"
        finally:
            child.kill()
            child.communicate()


def test_changes_that_nobody_tells_of_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that made them may have died before its notice."""
    with takeback.open(_postgres.url(tmp_path)) as store, takeback.open(_postgres.url(tmp_path)) as other:
        session = store.create_session("work")
        follower = Follower(other)
        follower.await_count(2)
        with monkeypatch.context() as patch:
            only_notices(patch)
            append_and_await(follower, session, 5)
        store._backend._hints.close()  # type: ignore[attr-defined]
        assert no_thread("takeback-hints"), "somebody is left to tell"
        other._backend._ear._tell()  # type: ignore[attr-defined] # from here on it looks by itself again
        append_and_await(follower, session, 3)
    assert follower.ended()


def test_a_notice_is_sent_again_when_its_connection_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that was restarted ends the connection, and only its next use shows that."""
    name = "teller"
    with (
        takeback.open(_postgres.url(tmp_path, application_name=name)) as store,
        takeback.open(_postgres.url(tmp_path)) as other,
    ):
        session = store.create_session("work")
        follower = Follower(other)
        follower.await_count(2)
        with monkeypatch.context() as patch:
            only_notices(patch)
            for _ in range(3):
                append_and_await(follower, session, 1)
                _postgres.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    f" WHERE application_name = '{name}' AND query LIKE '%pg_notify%'"
                )
            append_and_await(follower, session, 1)
        append_and_await(follower, session, 1)  # from here on it looks by itself again, and sees the store closed
    assert follower.ended()


def test_a_listener_that_went_deaf_does_not_wait_for_ever(tmp_path: Path) -> None:
    server = _postgres.server()
    with (
        Proxy(server.host, server.port) as proxy,
        takeback.open(_postgres.url(tmp_path)),
        takeback.open(_postgres.url(tmp_path, port=proxy.port)) as store,
    ):
        listener: Any = store._backend.listen()
        listener.wait(0.2)
        proxy.half_close()
        for _ in range(2):
            listener.wait(0.2)
        listener.close()


@pytest.mark.slow
@pytest.mark.promise("R9")
def test_following_goes_on_after_a_crash_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with _writers.own_server() as server:
        place = _writers.url(server, tmp_path)
        with takeback.open(place) as store, takeback.open(place) as other:
            session = store.create_session("work")
            follower = Follower(other)
            follower.await_count(2)
            for mode in ("immediate", "fast"):
                server.stop(mode)
                time.sleep(0.7)
                server.start()
                session.user(f"after {mode}")
                follower.await_count(len(list(store.events())))
            listens = "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'LISTEN %'"
            assert eventually(lambda: _writers.execute(server, listens))
            with monkeypatch.context() as patch:
                only_notices(patch)
                append_and_await(follower, session, 5)
            append_and_await(follower, session, 1)  # from here on it looks by itself again, and sees the store closed
            assert [change.cursor for change in follower.seen] == [change.cursor for change in store.events()]
        assert follower.ended()


def test_a_follower_that_is_left_holds_no_connection(tmp_path: Path) -> None:
    with takeback.open(_postgres.url(tmp_path, application_name="leaver")) as store:
        session = store.create_session("work")

        def lines() -> int:
            found = _postgres.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leaver'")
            return int(found[0][0])

        for _ in range(5):
            changes = store.follow()
            next(changes)
            session.user("wake")
            next(changes)
            changes.close()
        assert eventually(lambda: lines() <= 2)  # one of the pool, one for hints


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    assert no_thread("takeback-follow")


def test_many_writes_need_few_notices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notice is a transaction of its own; one for many writes is enough, so that a pause follows each."""
    written = threading.Event()
    monkeypatch.setattr(listen, "time", SimpleNamespace(sleep=lambda _: written.wait(PATIENCE)))
    with takeback.open(_postgres.url(tmp_path)) as store:
        session = store.create_session("work")
        server = _postgres.server()
        import psycopg

        with psycopg.connect(server.dsn(_postgres.DATABASE), autocommit=True) as listener:
            listener.execute(f'LISTEN "takeback_{_postgres.schema_of(tmp_path)}"')  # type: ignore[arg-type]
            for number in range(100):
                session.user(f"{number}")
            written.set()
            heard: list[Any] = list(listener.notifies(timeout=1))
    assert 1 <= len(heard) <= 2
