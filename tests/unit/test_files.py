"""The files of a store: modes, places, locks, what may and may not touch them."""

import errno
import gc
import logging
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

import takeback
from takeback import mounts
from takeback.client.store import Store
from takeback.clock import SystemClock
from takeback.model.entry import Draft
from takeback.model.message import draft
from takeback.ops import entries, sessions
from takeback.storage import files
from takeback.storage.base import Tx
from takeback.storage.commit import Ticket
from takeback.storage.sqlite import SqliteBackend


@pytest.mark.feature("C5")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_files_are_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    old = os.umask(umask)
    try:
        with takeback.open(tmp_path / "deep" / "er" / "s.db") as store:
            store.create_session().user("a")
            folder = tmp_path / "deep" / "er"
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    finally:
        os.umask(old)
    assert set(modes) == {"s.db", "s.db-wal", "s.db-shm", "s.db-open", "s.db-lock", "s.db-ballast"}
    assert set(modes.values()) == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder, folder.parent)} == {0o700}


@pytest.mark.feature("E6")
def test_the_settings_are_the_safe_ones(tmp_path: Path) -> None:
    backend = SqliteBackend(str(tmp_path / "s.db"))
    pragma = backend._connection.pragma
    assert pragma("journal_mode") == "wal"
    assert pragma("synchronous") == 1, "the log is synced by us, before anybody is told"
    assert pragma("secure_delete") == 1
    assert apsw.sqlite_lib_version() >= "3.51.3", "older ones carry the WAL-reset bug"
    backend.close()


@pytest.mark.feature("E6")
def test_relaxed_durability_comes_only_by_name(tmp_path: Path) -> None:
    with takeback.open(tmp_path / "s.db", durability="relaxed") as store:
        assert store.capabilities.durability == "relaxed"
        assert store._backend._connection.pragma("synchronous") == 1  # type: ignore[attr-defined]
    with pytest.raises(takeback.Invalid):
        takeback.open(tmp_path / "s.db", durability="off")


@pytest.mark.feature("E6")
def test_a_network_file_system_gets_a_rollback_journal_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(files, "network_filesystem", lambda path: "nfs4")
    with caplog.at_level(logging.WARNING, "takeback"), takeback.open(tmp_path / "s.db") as store:
        assert store.capabilities.journal == "delete"
        assert store._backend._connection.pragma("synchronous") == 3  # type: ignore[attr-defined]
        session = store.create_session()
        for n in range(20):
            session.user(str(n))
        assert [m.text for m in session.messages(limit=2)] == ["18", "19"]
        assert not store.verify()
    assert "nfs4 is a network file system" in caplog.text
    assert not (tmp_path / "s.db-wal").exists()


@pytest.mark.feature("E6")
def test_mounts_are_told_apart() -> None:
    table = (
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        "30 22 0:40 / /home/u rw - nfs4 server:/home rw\n"
        "31 30 0:41 / /home/u/local\\040disk rw - ext4 /dev/sdb1 rw\n"
        "32 22 0:42 / /mnt/s rw - fuse.sshfs host: rw\n"
    )
    kinds = {path: mounts.kind_in(table, path) for path in ("/home/u/a", "/home/user2/a", "/mnt/s/x", "/mnt/st")}
    assert kinds == {"/home/u/a": "nfs4", "/home/user2/a": "ext4", "/mnt/s/x": "fuse.sshfs", "/mnt/st": "ext4"}
    assert mounts.kind_in(table, "/home/u/local disk/a") == "ext4"
    assert mounts.kind_in("", "/home") is None


@pytest.mark.feature("C5")
def test_paths_that_cannot_be_a_store_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a store, but text that somebody wrote")
    with pytest.raises(takeback.Corrupt):
        takeback.open(tmp_path / "file")
    assert (tmp_path / "file").read_text().startswith("not a store")
    for path in ("", tmp_path, tmp_path / "file" / "below", "a\0b", "sqlite://host/x.db", "sqlite:///x.db?mode=ro"):
        with pytest.raises(takeback.Invalid):
            takeback.open(path)
    with pytest.raises(takeback.Unsupported):
        takeback.open("mysql://x")
    with pytest.raises(takeback.NotFound):
        takeback.open(tmp_path / "absent.db", read_only=True)


@pytest.mark.feature("E6")
def test_urls_name_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url, path in [("a.db", "a.db"), ("sqlite:///b%20c.db", "b c.db"), (f"sqlite:///{tmp_path}/d.db", "d.db")]:
        takeback.open(url).close()
        assert (tmp_path / path).exists()
    monkeypatch.setenv("TAKEBACK_STORE", "mine.db")
    takeback.open().close()
    monkeypatch.delenv("TAKEBACK_STORE")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    takeback.open().close()
    assert (tmp_path / "mine.db").exists()
    assert (tmp_path / "data" / "takeback" / "takeback.db").exists()


@pytest.mark.feature("D9")
def test_nothing_else_in_the_process_may_open_a_live_store(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with takeback.open(path) as store:
        store.create_session().user("a")
        os.link(path, tmp_path / "alias")
        for name in (str(path), f"file:{path}?mode=ro", str(tmp_path / "alias")):
            with pytest.raises(takeback.Unsupported):
                sqlite3.connect(name, uri=True)
        for name in ("s.db", "alias", "s.db-shm"):
            with pytest.raises(takeback.Unsupported):
                (tmp_path / name).read_bytes()
        (tmp_path / "s.db-wal").read_bytes()
        (tmp_path / "other").write_text("free")
    path.read_bytes()
    sqlite3.connect(path).close()


def _append(tx: Tx, session_id: str, one: Draft) -> object:
    return entries.append(tx, sessions.get(tx, "", session_id), [one], now_ms=1)


def in_child(work: Callable[[], object]) -> str:
    """Run something in a forked child; give the name of the error it met, if any."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        outcome = ""
        try:
            work()
        except BaseException as error:
            outcome = type(error).__name__
        gc.collect()
        os.write(writer, outcome.encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        return pipe.read()


@pytest.mark.feature("D9")
def test_a_forked_child_neither_uses_nor_harms_what_its_parent_has_open(tmp_path: Path) -> None:
    """SQLite's list of open files comes along in a fork and speaks of locks that the child does not have."""
    held = {"store": takeback.open(tmp_path / "s.db")}
    session = held["store"].create_session("s")
    session.user("a")

    def drop() -> None:
        backend = held.pop("store")._backend
        backend.__dict__.clear()

    assert in_child(lambda: session.user("b")) == "Closed"
    assert in_child(held["store"].close) == ""
    assert in_child(lambda: takeback.open(tmp_path / "s.db")) == "Unsupported"
    assert in_child(drop) == ""
    assert in_child(lambda: takeback.open(tmp_path / "other.db").create_session()) == ""
    session.user("c")
    assert [m.text for m in session.messages()] == ["a", "c"]
    assert (tmp_path / "s.db-wal").exists()
    held["store"].close()
    assert in_child(lambda: takeback.open(tmp_path / "s.db").create_session()) == "", "closed before the fork: free"


@pytest.mark.feature("D9")
def test_one_store_may_be_opened_twice_in_a_process(tmp_path: Path) -> None:
    with takeback.open(tmp_path / "s.db") as one, takeback.open(tmp_path / "s.db") as two:
        session = one.create_session("s")
        found = two.find_session("s")
        assert found is not None
        for n in range(5):
            session.user(f"one {n}")
            found.user(f"two {n}")
        assert len(session.messages()) == 10


@pytest.mark.feature("F5")
def test_a_link_to_a_store_is_the_store(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "real" / "s.db")
    with takeback.open(tmp_path / "link.db") as store:
        store.create_session("s").user("a")
    assert {path.name for path in tmp_path.iterdir()} == {"real", "link.db"}
    with takeback.open(tmp_path / "real" / "s.db") as store:
        assert store.find_session("s") is not None
    os.link(tmp_path / "real" / "s.db", tmp_path / "second.db")
    with pytest.raises(takeback.Invalid, match="hard links"):
        takeback.open(tmp_path / "second.db")


@pytest.mark.feature("D9")
def test_a_store_that_was_dropped_lets_go_of_everything(tmp_path: Path) -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        takeback.open(tmp_path / "s.db").create_session().user("x")
        gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before
    (tmp_path / "s.db").read_bytes()


@pytest.mark.feature("C5")
def test_a_signal_handler_that_writes_is_refused_and_hangs_nothing(tmp_path: Path) -> None:
    with takeback.open(tmp_path / "s.db") as store:
        session, outcomes = store.create_session(), list[str]()

        def handler(number: int, frame: object) -> None:
            for call in (lambda: session.user("from the handler"), store.close):
                try:
                    call()
                except takeback.Error as error:
                    outcomes.append(error.code)

        old = signal.signal(signal.SIGUSR1, handler)
        try:
            store._backend.write(lambda tx: os.kill(os.getpid(), signal.SIGUSR1))
        finally:
            signal.signal(signal.SIGUSR1, old)
        assert outcomes == ["busy", "busy"]


@pytest.mark.promise("R3")
@pytest.mark.feature("D9")
def test_an_exception_that_strikes_after_the_commit_doubles_nothing(tmp_path: Path) -> None:
    """A timeout raised by a signal handler may arrive right behind COMMIT: the batch must not run again."""
    with takeback.open(tmp_path / "s.db") as store:
        session, backend = store.create_session(), store._backend
        assert isinstance(backend, SqliteBackend)
        attempt, struck = backend._attempt, [False]

        def strike(batch: list[Ticket[object]]) -> None:
            attempt(batch)
            if not struck[0]:
                struck[0] = True
                raise TimeoutError("raised by a handler")

        backend._attempt = strike  # type: ignore[method-assign]
        drafts = [draft({"role": "user", "content": text}) for text in "ab"]
        batch = [Ticket(lambda tx, one=one: _append(tx, session.id, one)) for one in drafts]
        with pytest.raises(TimeoutError):
            backend._group._commit(batch)
        assert [m.text for m in session.messages()] == ["a", "b"]


@pytest.mark.feature("F5")
def test_a_store_that_ends_before_its_mark_is_refused(tmp_path: Path) -> None:
    """Whatever takes acknowledged commits away - here the log is simply gone - is noticed at the next open."""
    path = tmp_path / "s.db"
    takeback.open(path).close()
    script = (
        "import os, sys, takeback; store = takeback.open(sys.argv[1]); session = store.create_session();"
        "[session.user(str(n)) for n in range(30)]; os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)
    (tmp_path / "s.db-wal").unlink()
    for _ in range(2):
        with pytest.raises(takeback.Corrupt, match="acknowledged"):
            takeback.open(path)
    (tmp_path / "s.db-lock").unlink()
    takeback.open(path).close()


@pytest.mark.feature("E6")
def test_the_log_is_given_its_length_once_and_goes_with_the_store(tmp_path: Path) -> None:
    with takeback.open(tmp_path / "s.db") as store:
        session = store.create_session()
        session.user("a")
        assert (tmp_path / "s.db-wal").stat().st_size < 1 << 20
        for _ in range(8):
            session.user("a")
        assert (tmp_path / "s.db-wal").stat().st_size > 4 << 20
    assert not (tmp_path / "s.db-wal").exists()


@pytest.mark.feature("D9")
def test_closing_waits_for_writers_and_refuses_later_ones(tmp_path: Path) -> None:
    store = takeback.open(tmp_path / "s.db")
    session = store.create_session()
    stored: list[int] = []

    def write() -> None:
        try:
            while True:
                stored.append(session.user("x").seq)
        except takeback.Closed:
            pass

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    while len(stored) < 40:
        threads[0].join(0.001)
    store.close()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    with takeback.open(tmp_path / "s.db") as again:
        assert [m.seq for m in again.get_session(session.id).messages()] == sorted(stored)
        assert not again.verify()


@pytest.mark.feature("E6")
def test_a_relaxed_log_is_not_mistaken_for_a_damaged_one(tmp_path: Path) -> None:
    """Without a sync per commit a power cut may leave holes in the log: what follows them was never promised."""
    path = tmp_path / "s.db"
    script = (
        "import os, sys, takeback; store = takeback.open(sys.argv[1], durability='relaxed');"
        "session = store.create_session('a'); [session.user(str(n)) for n in range(30)]; os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)
    log = tmp_path / "s.db-wal"
    data = bytearray(log.read_bytes())
    frames = (len(data) - 32) // 4120
    data[32 + (frames - 40) * 4120 + 2000] ^= 1  # among the messages
    log.write_bytes(data)
    with takeback.open(path) as store:
        session = store.find_session("a")
        assert session is not None
        assert 0 < session.message_count < 30
        assert not store.verify()
    assert (tmp_path / "s.db-lock").read_bytes()[28] == 0


@pytest.mark.feature("F5")
def test_the_mark_never_runs_ahead_of_what_was_committed(tmp_path: Path) -> None:
    """An operation that fails behind another in one batch must not leave its position in the mark."""
    path = tmp_path / "s.db"
    store = takeback.open(path)
    session = store.create_session()
    backend = store._backend
    assert isinstance(backend, SqliteBackend)

    def append(text: str) -> Callable[[Tx], object]:
        return lambda tx: _append(tx, session.id, draft({"role": "user", "content": text}))

    def append_and_fail(tx: Tx) -> None:
        append("lost")(tx)
        raise takeback.Conflict("planted")

    batch: list[Ticket[object]] = [Ticket(append("kept"), False), Ticket(append_and_fail, False)]
    backend._group._commit(batch)
    backend._sync_log()
    assert isinstance(batch[1].error, takeback.Conflict)
    assert [m.text for m in session.messages()] == ["kept"]
    assert backend._mark.read() == 3
    store.close()
    takeback.open(path).close()


@pytest.mark.feature("E6")
@pytest.mark.promise("R1")
def test_nothing_is_acknowledged_before_the_log_was_synced(tmp_path: Path) -> None:
    """The sync of a commit begins after the commit and ends before the call returns."""
    events: list[str] = []

    def sync(descriptor: int) -> None:
        assert os.readlink(f"/proc/self/fd/{descriptor}") == str(tmp_path / "s.db-wal")
        events.append("sync begins")
        os.fdatasync(descriptor)
        events.append("sync ends")

    backend = SqliteBackend(str(tmp_path / "s.db"), sync=sync)
    with Store(backend, clock=SystemClock()) as store:
        session = store.create_session()
        events.clear()
        for _ in range(3):
            session.user("a")
            events.append("told")
    assert events[:9] == ["sync begins", "sync ends", "told"] * 3


@pytest.mark.feature("C5")
@pytest.mark.promise("R4")
def test_after_a_failed_sync_nothing_more_is_acknowledged(tmp_path: Path) -> None:
    failing = [False]

    def sync(descriptor: int) -> None:
        if failing[0]:
            raise OSError(errno.EIO, "Input/output error")
        os.fdatasync(descriptor)

    backend = SqliteBackend(str(tmp_path / "s.db"), sync=sync)
    with Store(backend, clock=SystemClock()) as store:
        session = store.create_session("s")
        session.user("told")
        failing[0] = True
        with pytest.raises(takeback.BackendError):
            session.user("not told")
        failing[0] = False
        with pytest.raises(takeback.BackendError, match="earlier"):
            session.user("refused")
    with takeback.open(tmp_path / "s.db") as store:
        found = store.find_session("s")
        assert found is not None
        assert [m.text for m in found.messages()] in (["told"], ["told", "not told"])
        found.user("works again")
        assert not store.verify()
