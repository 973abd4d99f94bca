"""R9 on PostgreSQL: connections are cut, fall silent or are refused; calls end in time, and nothing is lost or left."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import psycopg
import pytest

import _postgres
import takeback
from takeback.testing.contract.base import PATIENCE, eventually
from takeback.testing.proxy import Proxy

from . import _writers
from ._harness import told
from ._writers import Writers

pytestmark = [pytest.mark.slow, pytest.mark.promise("R9"), pytest.mark.feature("C6"), pytest.mark.timeout(3600)]

CALL_TIMEOUT = 1


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    server = _postgres.server()
    with Proxy(server.host, server.port) as proxy:
        yield proxy


@pytest.fixture
def direct(tmp_path: Path) -> Iterator[takeback.Store]:
    with takeback.open(_postgres.url(tmp_path, call_timeout=CALL_TIMEOUT)) as store:
        yield store


@pytest.fixture
def store(tmp_path: Path, proxy: Proxy, direct: takeback.Store) -> Iterator[takeback.Store]:
    with takeback.open(_postgres.url(tmp_path, port=proxy.port, call_timeout=CALL_TIMEOUT)) as store:
        yield store


@contextlib.contextmanager
def fails_by_itself(*kinds: type[Exception]) -> Iterator[None]:
    """Expect a call to end by its timeout: nothing else ends it, since what holds it up goes on."""
    with pytest.raises(kinds or (takeback.Busy, takeback.BackendError)):  # type: ignore[arg-type]
        yield


def all_fail_by_themselves(*calls: Callable[[], object], kind: type[Exception] | None = None) -> None:
    """Make calls at once; each fails at its timeout."""
    failures = list[BaseException]()

    def run(call: Callable[[], object]) -> None:
        try:
            with fails_by_itself(*([kind] if kind else [])):
                call()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    if failures:
        raise failures[0]


def said(session: takeback.Session) -> list[str]:
    return [message.text for message in session.iter_messages()]


def sound(store: takeback.Store) -> None:
    report = store.verify()
    assert not report, str(report)


# ---------------------------------------------------------------------- under writers


def _faults(proxy: Proxy) -> list[tuple[str, Callable[[], object], int]]:
    """Return what may happen, and how often it does in a round."""
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'takeback'"
    return [
        ("ended by the server", lambda: _postgres.execute(f"{end} AND random() < 0.5"), 5),
        ("cut", proxy.cut, 5),
        ("answers lost", lambda: proxy.drop_replies(delay=0.05), 2),
        ("refused", lambda: (proxy.refuse(), proxy.cut()), 1),
        ("stalled", proxy.stall, 1),
        ("half closed", proxy.half_close, 1),
    ]


def test_connections_that_fail_under_writers_lose_nothing(
    tmp_path: Path,
    proxy: Proxy,
    direct: takeback.Store,
    seed: int,
    counts: Callable[[int, int], int],
    tally: Callable[..., int],
) -> None:
    """Faults of every kind, some longer than a call may take."""
    rng, faults = random.Random(seed), _faults(proxy)
    place = _postgres.url(tmp_path, port=proxy.port, call_timeout=CALL_TIMEOUT)
    with told(seed=seed), takeback.open(place) as one, takeback.open(place) as two:
        ids = [direct.create_session(f"s{n}").id for n in range(2)]
        with Writers([one, one, two, two], [*ids, *ids], pause=0.002) as writers:
            writers.await_all()
            for _ in range(counts(1, 20)):
                for name, fault, repeats in faults:
                    for _ in range(repeats):
                        fault()
                        time.sleep(rng.choice((0.05, 0.2, CALL_TIMEOUT + 0.5 if repeats == 1 else 0.1)))
                        proxy.heal()
                        writers.await_all()
                        tally(f"R9 {name}", 1)
        _writers.check(direct, writers)
    tally("R9 acknowledged", len(writers.acknowledged))


# ---------------------------------------------------------------------- calls end in time


class _Halving(Proxy):
    """Keeps back the last words of one answer, by which the server says that it is ready again."""

    half: Any = None
    is_silent = False

    def _take_request(self, link: Any, data: bytes) -> None:
        if b"half answered" in data:  # others, such as notices, are answered meanwhile
            self.half = link
        super()._take_request(link, data)

    def _take_reply(self, link: Any, data: bytes) -> None:
        if link is self.half and data.endswith(READY):
            self.half, self.is_silent, data = None, True, data.removesuffix(READY)
        super()._take_reply(link, data)


READY = b"Z\0\0\0\x05I"


def test_half_an_answer_stops_nobody_else(tmp_path: Path, direct: takeback.Store) -> None:
    """The driver waits for the end of an answer without letting other threads run, if one lets it."""
    server, ticks, done = _postgres.server(), list[bool](), threading.Event()

    def tick() -> None:
        while not done.wait(0.05):
            ticks.append(proxy.is_silent)

    with _Halving(server.host, server.port) as proxy:
        place = _postgres.url(tmp_path, port=proxy.port, call_timeout=CALL_TIMEOUT)
        with takeback.open(place) as store:
            session = store.create_session("work")
            session.user("a title")
            session.user("prepared")
            thread = threading.Thread(target=tick)
            thread.start()
            try:
                with pytest.raises(takeback.BackendError, match="may or may not be stored"):
                    session.user("half answered")
            finally:
                done.set()
                thread.join()
            assert sum(ticks) > 5, "nobody else could run meanwhile"
            assert direct.get_session(session.id).message_count == 3


@pytest.mark.parametrize("fault", ["stall", "half_close"])
def test_a_server_that_falls_silent_ends_a_call_at_its_timeout(
    store: takeback.Store, direct: takeback.Store, proxy: Proxy, fault: str
) -> None:
    session = store.create_session("work")
    session.user("a title")
    getattr(proxy, fault)()
    all_fail_by_themselves(
        lambda: session.user("not heard"), lambda: session.note("not heard"), session.messages, store.list_sessions
    )
    proxy.heal()
    session.user("heard")
    session.note("heard")
    assert said(session)[-1] == "heard"
    assert said(session).count("not heard") <= 1
    assert [note.text for note in session.notes()].count("not heard") <= 1
    sound(direct)


def test_a_new_connection_that_gets_no_answer_ends_in_time_too(tmp_path: Path, direct: takeback.Store) -> None:
    """Before it is used a connection asks for the version of the tables, which a migration may have locked."""
    schema = _postgres.schema_of(tmp_path)
    with psycopg.connect(_postgres.server().dsn(_postgres.DATABASE)) as holder:
        holder.execute(f"LOCK TABLE {schema}.migration IN ACCESS EXCLUSIVE MODE")
        with fails_by_itself():
            takeback.open(_postgres.url(tmp_path, call_timeout=CALL_TIMEOUT))
        _postgres.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'takeback'")
        with fails_by_itself():
            direct.list_sessions()
    assert direct.list_sessions() is not None


@pytest.mark.parametrize("several", [False, True])
def test_a_lock_that_is_held_ends_a_call_and_nothing_is_stored(
    direct: takeback.Store, tmp_path: Path, several: bool
) -> None:
    session = direct.create_session("work")
    session.user("a title")
    schema = _postgres.schema_of(tmp_path)
    with psycopg.connect(_postgres.server().dsn(_postgres.DATABASE)) as holder:
        holder.execute(f"SELECT 1 FROM {schema}.session FOR UPDATE")
        said_once = [{"role": "user", "content": "refused"}] * (2 if several else 1)
        all_fail_by_themselves(lambda: session.append(*said_once), lambda: session.note("refused"), kind=takeback.Busy)
    assert said(session) == ["a title"]
    assert session.user("stored").seq == 2
    assert not session.notes()


def test_a_pool_that_is_used_up_says_so_in_time(tmp_path: Path) -> None:
    with takeback.open(_postgres.url(tmp_path, pool_size=2, call_timeout=CALL_TIMEOUT)) as store:
        session, inside, leave = store.create_session("work"), threading.Semaphore(0), threading.Event()

        def hold() -> None:
            store._read(lambda tx: (tx.one("SELECT 1"), inside.release(), leave.wait(60)))

        threads = [threading.Thread(target=hold) for _ in range(2)]
        for thread in threads:
            thread.start()
        assert inside.acquire(timeout=60)
        assert inside.acquire(timeout=60)
        with fails_by_itself(takeback.Busy):
            session.user("refused")
        waiting = threading.Timer(0.5, leave.set)
        waiting.start()
        session.user("stored")  # as soon as one is given back
        for thread in (*threads, waiting):
            thread.join(60)
        assert said(session) == ["stored"]


def test_a_client_that_vanished_in_a_transaction_keeps_nobody_waiting(
    store: takeback.Store, direct: takeback.Store, proxy: Proxy
) -> None:
    """The network swallowed its end, so the server still holds the session for it; not for long."""
    session, other = store.create_session("work"), direct.create_session("other")

    def op(tx: Any) -> None:
        tx.run("UPDATE session SET pinned = 1 WHERE id = ?", (session.id,))
        tx.one("SELECT 1 FROM session WHERE id = ?", (session.id,))
        proxy.stall()
        tx.one("SELECT 1")

    with fails_by_itself():
        store._write(op)
    found, seen = direct.get_session(session.id), list[Any]()
    following = direct.follow()
    other.user("told")
    reader = threading.Thread(target=lambda: seen.extend(next(following) for _ in range(3)))
    reader.start()

    def stored() -> bool:
        with contextlib.suppress(takeback.Busy):
            return bool(found.user("stored"))
        return False

    assert eventually(stored)
    reader.join(PATIENCE)
    assert not reader.is_alive(), "the feed is kept back"
    following.close()
    proxy.heal()
    assert said(found) == ["stored"]
    assert not found.refresh().pinned


def test_a_call_that_is_under_way_when_the_store_is_closed_still_ends(
    store: takeback.Store, direct: takeback.Store, proxy: Proxy
) -> None:
    session, ended = store.create_session("work"), threading.Event()

    def work() -> None:
        with contextlib.suppress(takeback.Error):
            session.messages()
        ended.set()

    proxy.stall()
    caller = threading.Thread(target=work)
    caller.start()
    time.sleep(0.2)
    store.close()
    assert ended.wait(PATIENCE)
    caller.join()
    with pytest.raises(takeback.Closed):
        session.messages()


# ---------------------------------------------------------------------- nothing is left


def _lines() -> int:
    """Count our connections to the server."""
    found = _postgres.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'takeback'")
    return int(found[0][0])


def _threads() -> set[str]:
    return {each.name for each in threading.enumerate() if each.name.startswith("takeback-")} - {
        each.name for each in threading.enumerate() if each.name.startswith("takeback-proxy")
    }


def test_a_closed_store_leaves_no_connection_and_no_thread(tmp_path: Path, proxy: Proxy) -> None:
    assert eventually(lambda: not _lines())
    with takeback.open(_postgres.url(tmp_path, port=proxy.port, call_timeout=CALL_TIMEOUT)) as store:
        session = store.create_session("work")
        for number in range(3):
            session.user(f"{number}")
            proxy.cut()
            with contextlib.suppress(takeback.Conflict):
                session.append({"role": "user", "content": "refused"}, expected_revision=77)
        follower = store.follow()
        next(follower)
        assert _lines() <= 12
    assert list(follower)[-1:] != [None]
    assert eventually(lambda: not _lines()), _postgres.execute("SELECT query FROM pg_stat_activity")
    assert eventually(lambda: not _threads()), _threads()


_COUNT = "SELECT count(*) FROM session"


def test_refused_writes_leave_a_connection_as_it_was(direct: takeback.Store) -> None:
    """After an error in the middle of statements that were sent ahead, and after one in the operation itself."""
    session = direct.create_session("work")
    backend: Any = direct._backend
    for number in range(30):
        session.user(f"{number}")
        for _ in range(number % 9):  # enough for statements to be prepared, now and then
            session.note(f"{number}")
        with pytest.raises(takeback.Conflict):
            session.append({"role": "user", "content": "refused"}, expected_revision=0)
        with pytest.raises(takeback.Conflict):
            session.append(*[{"role": "user", "content": "refused", "id": "the same"}] * 2)
        with pytest.raises(takeback.BackendError, match="nowhere"):  # the server never sees what comes behind it
            direct._write(lambda tx: (tx.run("INSERT INTO nowhere VALUES (1)"), tx.run(_COUNT), tx.one("SELECT 1")))
        with pytest.raises(takeback.Error):
            direct._write(lambda tx: tx.run("INSERT INTO meta VALUES (1)"))
        assert direct._write(lambda tx: tx.one(_COUNT)) == (1,)
        with pytest.raises(ZeroDivisionError):
            direct._write(lambda tx: (tx.run("UPDATE session SET pinned = 1"), 1 // 0))
    assert said(session) == [f"{number}" for number in range(30)]
    assert backend._prepare == [True], "a refused write made the store forget how to prepare statements"
    assert len(backend._pool._places) == 1, "connections were thrown away"
    assert not session.refresh().pinned
    sound(direct)


# An interrupt may also strike inside a hook of another library, or lose a connection that is then freed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_interrupts_at_random_moments_use_up_no_connection(tmp_path: Path, seed: int) -> None:
    rng, told, interrupts, armed = random.Random(seed), list[str](), 0, False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal armed
        if armed:
            armed = False
            raise KeyboardInterrupt

    with takeback.open(_postgres.url(tmp_path, pool_size=2, call_timeout=CALL_TIMEOUT)) as store:
        session = store.create_session("work")
        old = signal.signal(signal.SIGALRM, interrupt)
        number = 0
        try:
            while interrupts < 150:
                try:
                    armed = True
                    signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.00005, 0.006))
                    while armed:
                        number += 1
                        if number % 2:
                            session.user(f"{number}")
                            told.append(f"{number}")
                        else:
                            session.note(f"{number}")
                except KeyboardInterrupt:
                    interrupts += 1
        finally:
            armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, old)
        threads = [threading.Thread(target=session.note, args=(f"after {n}",), daemon=True) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        texts = said(session)
        assert len(set(texts)) == len(texts)
        assert set(told) <= set(texts)
        assert {f"after {n}" for n in range(4)} <= {note.text for note in session.notes()}
        sound(store)
    assert eventually(lambda: not _lines())


def test_no_thread_to_be_had_is_no_reason_to_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that was committed must not raise because nobody can be told of it."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        store = takeback.open(_postgres.url(tmp_path, call_timeout=CALL_TIMEOUT))
        session = store.create_session("work")
        assert session.user("stored").seq == 1
    assert session.user("also stored").seq == 2
    assert _threads() == {"takeback-watch", "takeback-hints"}
    store.close()
