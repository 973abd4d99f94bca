"""What an append knows of its session without reading it: right as long as nobody else has written, else read anew."""

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback import Conflict, Session, Store
from takeback.clock import SystemClock
from takeback.storage.memory import MemoryBackend
from takeback.storage.sqlite import SqliteBackend
from takeback.storage.wrap import Traced

pytestmark = [pytest.mark.feature("B1", "E6"), pytest.mark.promise("P1", "R6")]


@pytest.fixture(params=["file", "memory"])
def traced(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Store, list[str]]]:
    """A store, and the statements that it runs."""
    inner = MemoryBackend() if request.param == "memory" else SqliteBackend(str(tmp_path / "s.db"))
    seen = list[str]()
    with Store(Traced(inner, lambda sql, _: seen.append(sql.split(" ", 1)[0])), clock=SystemClock()) as store:
        yield store, seen


def statements(session: Session, seen: list[str]) -> list[str]:
    """Append, and return the statements that it took."""
    seen.clear()
    session.user("again")
    return list(seen)


def test_an_append_after_another_reads_nothing(traced: tuple[Store, list[str]]) -> None:
    store, seen = traced
    session = store.create_session()
    session.user("first")
    assert statements(session, seen) == ["INSERT", "INSERT", "UPDATE"]


def test_sessions_that_append_in_turns_read_nothing(traced: tuple[Store, list[str]]) -> None:
    store, seen = traced
    sessions = [store.create_session() for _ in range(5)]
    for session in sessions * 2:
        session.user("first")
    for session in sessions:
        assert statements(session, seen) == ["INSERT", "INSERT", "UPDATE"]
    assert [session.id for session in store.list_sessions()] == [session.id for session in reversed(sessions)]


def test_another_operation_of_this_process_is_seen(traced: tuple[Store, list[str]]) -> None:
    """Whatever wrote - here a rename, a tag and a rewind - the next append reads the session again."""
    store, seen = traced
    session = store.create_session()
    session.user("first")
    other = store.get_session(session.id)
    for change in (lambda: other.rename("new"), lambda: other.tag("t"), lambda: other.rewind(1)):
        change()
        assert "SELECT" in statements(session, seen)
    assert session.refresh().title == "new"
    assert not store.verify()


def test_a_statement_that_changes_the_row_behind_our_back_is_seen(traced: tuple[Store, list[str]]) -> None:
    store, _ = traced
    session = store.create_session()
    session.user("first")
    store._backend.write(lambda tx: tx.run("UPDATE session SET hidden = 1"))
    with pytest.raises(takeback.Corrupt):
        session.user("second")


def test_what_was_rolled_back_is_forgotten(traced: tuple[Store, list[str]]) -> None:
    store, _ = traced
    session = store.create_session()
    session.user("first")

    def fails(tx: Any) -> None:
        session._append(({"role": "user", "content": "lost"},), "error", None, None).run(tx)
        raise Conflict("planted")

    with pytest.raises(Conflict, match="planted"):
        store._backend.write(fails)
    assert session.user("second").seq == 2
    assert [message.text for message in session.messages()] == ["first", "second"]
    assert not store.verify()


_APPEND = "import sys, takeback\nwith takeback.open(sys.argv[1]) as s: s.get_session(sys.argv[2]).user('theirs')"


def test_another_process_is_seen(tmp_path: Path) -> None:
    with takeback.open(tmp_path / "s.db") as store:
        session, beside = store.create_session(), store.create_session()
        for number in range(3):
            session.user(f"ours {number}")
            theirs = beside if number == 1 else session
            subprocess.run([sys.executable, "-c", _APPEND, str(tmp_path / "s.db"), theirs.id], check=True)
        session.user("ours 3")
        texts = [message.text for message in session.messages()]
        assert texts == ["ours 0", "theirs", "ours 1", "ours 2", "theirs", "ours 3"]
        assert not store.verify()


def test_a_damaged_row_of_another_program_is_found(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with takeback.open(path) as store:
        session = store.create_session()
        session.user("first")
        script = (
            "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('UPDATE session SET seq = 7'); c.commit()"
        )
        if sqlite3.sqlite_version_info >= (3, 37):  # older ones cannot read the schema
            subprocess.run([sys.executable, "-c", script, str(path)], check=True)
            with pytest.raises(takeback.Corrupt):
                session.user("second")


def test_threads_on_one_session_leave_no_gap(tmp_path: Path) -> None:
    with takeback.open(tmp_path / "s.db") as store:
        session, others = store.create_session(), [store.create_session() for _ in range(3)]

        def write(own: Session) -> None:
            for number in range(40):
                (own if number % 3 else session).user(str(number))

        threads = [threading.Thread(target=write, args=(own,)) for own in others]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [message.seq for message in session.messages()] == list(range(1, 43))
        assert not store.verify()
