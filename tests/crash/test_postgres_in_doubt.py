"""R8 on PostgreSQL: the server commits and its answer is lost; what was asked for is stored exactly once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import psycopg
import pytest

import _postgres
import takeback
from takeback.storage.postgres import backend
from takeback.storage.postgres.backend import PostgresBackend
from takeback.testing.contract.base import PATIENCE, eventually
from takeback.testing.proxy import Proxy

from . import _writers
from ._harness import told

pytestmark = [pytest.mark.slow, pytest.mark.promise("R8"), pytest.mark.feature("C6"), pytest.mark.timeout(3600)]

MAY_BE_STORED = "may or may not be stored"
COMMIT = b"COMMIT\0"  # until it is prepared, so soon after a connection was made
COMMIT_OF_TURN = b"takeback_commit\0\0\0"  # when it runs: where it is prepared, its text follows its name


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    server = _postgres.server()
    with Proxy(server.host, server.port) as proxy:
        yield proxy


@pytest.fixture
def direct(tmp_path: Path) -> Iterator[takeback.Store]:
    with takeback.open(_postgres.url(tmp_path)) as store:
        yield store


@pytest.fixture
def store(tmp_path: Path, proxy: Proxy, direct: takeback.Store) -> Iterator[takeback.Store]:
    """A store whose answers can be lost on the way; the tables are there already."""
    with takeback.open(_postgres.url(tmp_path, port=proxy.port)) as store:
        yield store


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What the backend found out about transactions whose fate it did not know; True is committed."""
    found, settle = list[bool](), PostgresBackend._settle

    def watched(*args: Any) -> bool:
        found.append(settle(*args))
        return found[-1]

    monkeypatch.setattr(PostgresBackend, "_settle", watched)
    return found


def said(session: takeback.Session) -> list[str]:
    return [message.text for message in session.iter_messages()]


def sound(store: takeback.Store) -> None:
    report = store.verify()
    assert not report, str(report)


# ---------------------------------------------------------------------- an append as one statement


def test_an_append_whose_answer_is_lost_is_stored_once_by_its_key(
    store: takeback.Store,
    direct: takeback.Store,
    proxy: Proxy,
    counts: Callable[[int, int], int],
    tally: Callable[..., int],
) -> None:
    """Every call here loses its answer after the commit; the library calls again by itself."""
    session, expected, number = store.create_session("work"), list[str](), 0
    session.user("a title")
    ends = counts(300, 30_000)
    while proxy.faults < ends:
        number += 1
        texts = [f"<{number}.{part}>" for part in range(1 if number % 3 else 3)]
        one = f"key {number}.".encode()
        if number % 50 == 0:  # behind somebody else's it takes its turn, in a second call
            expected.append(direct.get_session(session.id).user(f"other {number}").text)
            one = COMMIT_OF_TURN
        proxy.drop_next_reply(one if len(texts) == 1 else COMMIT)
        sent = session.append(*({"role": "user", "content": text} for text in texts), idempotency_key=f"key {number}.")
        assert [message.text for message in sent] == texts
        expected += texts
    assert proxy.faults == number
    found = direct.get_session(session.id)
    assert said(found) == ["a title", *expected]
    assert [message.seq for message in found.iter_messages()] == list(range(1, len(expected) + 2))
    assert found.user(expected[-1], idempotency_key="another").seq == len(expected) + 2
    sound(direct)
    tally("R8 commits in doubt", number)


def test_an_append_to_a_session_that_was_seen_needs_no_key(
    store: takeback.Store,
    direct: takeback.Store,
    proxy: Proxy,
    counts: Callable[[int, int], int],
    tally: Callable[..., int],
) -> None:
    """It counts only while nobody has changed the session: made again, it is stored once."""
    session, expected = store.create_session("work"), ["a title"]
    session.user("a title")
    for number in range(counts(330, 5_000)):
        expected.append(f"<{number}>")
        proxy.drop_next_reply(expected[-1].encode())
        assert session.user(expected[-1]).seq == len(expected)
    assert proxy.faults == len(expected) - 1
    assert said(direct.get_session(session.id)) == expected
    sound(direct)
    tally("R8 commits in doubt", proxy.faults)


def test_an_append_is_found_although_others_went_on_before_its_answer_was_missed(
    store: takeback.Store, direct: takeback.Store, proxy: Proxy
) -> None:
    session, expected = store.create_session("work"), ["a title"]
    session.user("a title")
    other = direct.get_session(session.id)
    for number in range(5):
        expected.append(session.refresh().user(f"heard {number}").text)  # its statement is prepared by now
        proxy.drop_replies(delay=0.2)
        caller = threading.Thread(target=session.user, args=(f"<{number}>",))
        caller.start()
        assert eventually(lambda text=f"<{number}>": said(other)[-1:] == [text])
        other.user(f"other {number}")
        proxy.heal()
        caller.join(PATIENCE)
        assert not caller.is_alive()
        expected += [f"<{number}>", f"other {number}"]
    assert said(other) == expected
    assert proxy.faults >= 5
    sound(direct)


@pytest.mark.parametrize("told", [True, False])
def test_an_append_without_a_key_that_cannot_be_told_says_so_and_is_stored_at_most_once(
    store: takeback.Store, direct: takeback.Store, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    """Several messages are a transaction, whose fate is told by its number; not in another life of the server."""
    if not told:
        monkeypatch.setattr(backend, "_STATUS", "SELECT 'another life', $1::text")
    session = store.create_session("work")
    session.user("a title")
    for number in range(10):
        texts = [f"<{number}.{part}>" for part in range(2)]
        proxy.drop_next_reply(COMMIT)
        with nullcontext() if told else pytest.raises(takeback.BackendError, match=MAY_BE_STORED):
            session.append(*({"role": "user", "content": text} for text in texts))
        assert proxy.faults == number + 1
    assert said(direct.get_session(session.id)) == ["a title", *(f"<{n}.{part}>" for n in range(10) for part in (0, 1))]
    sound(direct)


@pytest.mark.parametrize("keyed", [True, False])
def test_a_call_that_was_cut_off_while_it_waited_for_a_lock_is_stored_once(
    store: takeback.Store, direct: takeback.Store, proxy: Proxy, tmp_path: Path, keyed: bool
) -> None:
    """The server does not notice, and goes on with the first try when it gets the lock; beside the second one."""
    session = store.create_session("work")
    session.user("a title")
    schema, server = _postgres.schema_of(tmp_path), _postgres.server()
    for number in range(3):
        with psycopg.connect(server.dsn(_postgres.DATABASE)) as holder:
            holder.execute(f"SELECT 1 FROM {schema}.session FOR UPDATE")
            kept = {"idempotency_key": f"key {number}"} if keyed else {}
            session.refresh()
            caller = threading.Thread(target=session.user, args=(f"<{number}>",), kwargs=kept)
            caller.start()
            await_blocked(1)
            proxy.cut()
            await_blocked(2)
        caller.join(PATIENCE)
        assert not caller.is_alive()
    assert said(direct.get_session(session.id)) == ["a title", "<0>", "<1>", "<2>"]
    sound(direct)


def await_blocked(number: int) -> None:
    """Wait until so many backends wait for a lock."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    assert eventually(lambda: _postgres.execute(waiting) == [(number,)])


def test_threads_that_share_a_handle_store_each_message_once(
    store: takeback.Store, direct: takeback.Store, proxy: Proxy, seed: int
) -> None:
    """What one thread sees of the session is not what another one's unheard call was computed from."""
    proxy.fault_rate = 0.1
    session, doubtful, failures = store.create_session("work"), dict[str, str](), list[BaseException]()

    def work(name: str) -> None:
        try:
            for number in range(60):
                text = f"{name}:{number}"
                try:
                    message = session.user(text)
                    assert message.text == text
                    placed[text] = message.seq
                except takeback.BackendError as error:
                    doubtful[text] = str(error)
        except BaseException as error:
            failures.append(error)

    placed = dict[str, int]()
    threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    proxy.heal()
    assert not failures, failures
    found = {message.text: message.seq for message in direct.get_session(session.id).iter_messages()}
    assert len(found) == len(said(direct.get_session(session.id))), "something was stored twice"
    assert placed.items() <= found.items()
    assert found.keys() - placed.keys() <= doubtful.keys()
    assert all(MAY_BE_STORED in words for words in doubtful.values()), doubtful
    sound(direct)


# ---------------------------------------------------------------------- transactions of several statements


@pytest.mark.parametrize("keyed", [True, False])
def test_a_transaction_whose_commit_is_not_answered_is_settled_by_its_number(
    store: takeback.Store,
    direct: takeback.Store,
    proxy: Proxy,
    settled: list[bool],
    counts: Callable[[int, int], int],
    tally: Callable[..., int],
    keyed: bool,
) -> None:
    """Writes of every kind, with and without keys: no error, and the store is as if no answer had been lost."""
    rounds = counts(14, 700)
    _writers.script(store, "work", rounds, keyed=keyed, before=lambda: proxy.drop_next_reply(COMMIT))
    with takeback.open(":memory:") as expected:
        _writers.script(expected, "work", rounds, keyed=keyed, before=lambda: None)
        assert _writers.picture(direct) == _writers.picture(expected)
    sound(direct)
    assert settled.count(True) >= rounds * 12
    tally("R8 commits in doubt", settled.count(True))


def test_the_answer_about_a_commit_may_be_lost_too(
    store: takeback.Store, direct: takeback.Store, proxy: Proxy, settled: list[bool]
) -> None:
    session = store.create_session("work")
    for number in range(5):
        proxy.drop_next_reply(COMMIT, b"pg_xact_status")
        session.note(f"{number}")
        assert proxy.faults == 2 * number + 2
    assert settled == [True] * 5
    assert [note.text for note in direct.get_session(session.id).notes()] == [f"{number}" for number in range(5)]


def test_any_answer_may_be_lost(
    tmp_path: Path,
    direct: takeback.Store,
    proxy: Proxy,
    settled: list[bool],
    seed: int,
    counts: Callable[[int, int], int],
    tally: Callable[..., int],
) -> None:
    """Three writers on connections of which none lives long, also while they are being made."""
    rounds, failures = counts(3, 100), list[BaseException]()

    def work(store: takeback.Store, name: str) -> None:
        try:
            _writers.script(store, name, rounds, keyed=True, before=lambda: None)
        except BaseException as error:
            failures.append(error)

    with (
        told(seed=seed),
        takeback.open(_postgres.url(tmp_path, port=proxy.port)) as store,
        takeback.open(":memory:") as expected,
    ):
        proxy.fault_rate = 0.05
        threads = [threading.Thread(target=work, args=(store, name)) for name in ("a", "b", "c")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(1800)
            assert not thread.is_alive()
        proxy.heal()
        assert not failures, failures
        for name in ("a", "b", "c"):
            _writers.script(expected, name, rounds, keyed=True, before=lambda: None)
        assert _writers.picture(direct) == _writers.picture(expected)
        sound(direct)
    assert proxy.faults > 20 * rounds
    tally("R8 answers lost", proxy.faults)
    tally("R8 commits in doubt", settled.count(True))


def test_a_backend_that_is_ended_around_its_commit_commits_once(
    direct: takeback.Store, counts: Callable[[int, int], int], tally: Callable[..., int]
) -> None:
    """The end of a connection may be told behind the word that the transaction was committed, or instead of it."""
    ends, ended, done = counts(40, 2_000), 0, threading.Event()
    session, failures, texts = direct.create_session("work"), list[BaseException](), list[str]()

    def work() -> None:
        try:
            while not done.is_set():
                texts.append(f"note {len(texts)}")
                session.note(texts[-1])
        except BaseException as error:
            failures.append(error)

    writer = threading.Thread(target=work)
    writer.start()
    deadline = time.monotonic() + 1800
    while ended < ends and writer.is_alive() and time.monotonic() < deadline:
        ended += len(_postgres.execute(_END_ACTIVE))
    done.set()
    writer.join(60)
    assert not failures, failures
    assert [note.text for note in session.notes()] == texts
    sound(direct)
    tally("R8 backends ended", ended)


_END_ACTIVE = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = 'takeback' AND state <> 'idle'"""


# ---------------------------------------------------------------------- a process that is killed

_CHILD = """
import sys, takeback
url, session, key = sys.argv[1:]
store = takeback.open(url)
session = store.get_session(session)
session.user("heard")
print("ready", flush=True)
sys.stdin.readline()
print(session.user("told once", idempotency_key=key).seq, session.add_build_attempt(idempotency_key=key + "b"))
store.close()
"""


def _wait_for_a_new_minute() -> None:
    """Wait if a minute is about to end: the first change in one takes several round trips, and none is answered."""
    if time.time() % 60 > 45:
        time.sleep(60 - time.time() % 60)


def _start(url: str, session: takeback.Session, key: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _CHILD, url, session.id, key]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    child = subprocess.Popen(command, env={**os.environ, "PYTHONWARNINGS": "ignore"}, **pipes)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def test_a_process_killed_between_commit_and_answer_is_taken_up_by_another(
    tmp_path: Path, direct: takeback.Store, proxy: Proxy, counts: Callable[[int, int], int], tally: Callable[..., int]
) -> None:
    session, kills = direct.create_session("work"), counts(2, 50)
    session.user("a title")
    url = _postgres.url(tmp_path, port=proxy.port)
    for number in range(kills):
        _wait_for_a_new_minute()
        session.note("the first change in this minute")
        child = _start(url, session, f"key {number}")
        proxy.drop_replies(delay=60)
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
        assert eventually(lambda count=3 * number + 3: len(said(session)) >= count)
        child.send_signal(signal.SIGKILL)
        child.communicate()
        proxy.heal()
        second = _start(url, session, f"key {number}")
        output, _ = second.communicate("go\n", timeout=30)
        assert output.split() == [str(session.messages()[-2].seq), str(number + 1)], output
    assert said(session) == ["a title", *["heard", "told once", "heard"] * kills]
    assert session.refresh().build_attempts == kills
    sound(direct)
    tally("R8 processes killed", kills)
