"""R9 on PostgreSQL: the server crashes and comes back; nothing acknowledged is lost, nobody waits for long."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import _postgres
import takeback
from takeback.ops.idempotency import ApiCall, once
from takeback.storage.base import Tx
from takeback.storage.postgres.address import Address

from . import _harness, _writers
from ._harness import told
from ._writers import Writers, execute, url

pytestmark = [pytest.mark.slow, pytest.mark.promise("R9"), pytest.mark.feature("C6"), pytest.mark.timeout(3600)]

CALL_TIMEOUT = 10


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with _writers.own_server() as server:
        yield server


def _crash(server: Any, rng: random.Random) -> None:
    """Stop the server at once; or kill one of its processes, after which it ends all others and recovers."""
    if rng.random() < 0.5:
        server.stop("immediate")
        time.sleep(rng.random() / 2)
        server.start()
        return
    with psycopg.connect(server.dsn()) as connection:
        os.kill(connection.info.backend_pid, signal.SIGKILL)
        deadline = time.monotonic() + 120
        with contextlib.suppress(psycopg.OperationalError):
            while time.monotonic() < deadline:
                connection.execute("SELECT 1")
    while not _accepts(server):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _accepts(server: Any) -> bool:
    try:
        execute(server, "SELECT 1")
    except psycopg.OperationalError:
        return False
    return True


def test_a_server_that_crashes_under_writers_loses_nothing(
    server: Any, tmp_path: Path, seed: int, counts: Callable[[int, int], int], tally: Callable[..., int]
) -> None:
    rng, place = random.Random(seed), url(server, tmp_path, call_timeout=CALL_TIMEOUT)
    crashes = counts(5, 100)
    with told(seed=seed), takeback.open(place) as store, takeback.open(place) as second:
        ids = [store.create_session(f"s{n}").id for n in range(2)]
        with Writers([store, store, second, second], [*ids, *ids]) as writers:
            writers.await_all()
            for _ in range(crashes):
                time.sleep(rng.random() / 2)
                _crash(server, rng)
                writers.await_all(20)
        stored = _writers.check(store, writers)
    tally("R9 crashes of the server", crashes)
    tally("R9 acknowledged", len(writers.acknowledged))
    assert stored > 20 * crashes


def test_a_restart_while_nobody_writes_is_not_noticed(server: Any, tmp_path: Path) -> None:
    """All connections of the pool died; none of them is used."""
    with takeback.open(url(server, tmp_path, pool_size=4)) as store:
        session = store.create_session("work")
        together = threading.Barrier(4)

        def read() -> None:
            store._read(lambda tx: (tx.one("SELECT 1"), together.wait(20)))

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        for mode in ("fast", "immediate"):
            session.user(f"before {mode}")
            server.restart(mode)
            for number in range(6):
                session.append({"role": "user", "content": f"{mode} {number}"}, {"role": "user", "content": "both"})
            session.note(f"after {mode}")
        assert session.refresh().message_count == 26


def test_a_number_that_a_crash_gave_to_another_transaction_proves_nothing(server: Any, tmp_path: Path) -> None:
    """After a crash the server gives out numbers again that transactions had which it forgot."""
    with takeback.open(url(server, tmp_path)) as store:
        session, tries = store.create_session("work"), list[int]()

        def op(tx: Tx) -> str:
            tx.run("UPDATE session SET pinned = 1 WHERE id = ?", (session.id,))
            tx.one("SELECT 1 FROM session WHERE id = ?", (session.id,))
            tries.append(int(tx.number[0]))  # type: ignore[attr-defined]
            if len(tries) == 1:
                server.restart("immediate")
                _use_numbers(server, tries[0])
            return "done"

        with pytest.raises(takeback.BackendError, match="may or may not be stored"):
            store._write(op)
        assert len(tries) == 1
        assert not session.refresh().pinned


def test_a_write_with_a_key_is_stored_once_though_its_number_proves_nothing(server: Any, tmp_path: Path) -> None:
    with takeback.open(url(server, tmp_path)) as store:
        session, tries = store.create_session("work"), list[int]()
        sid = session._seen.sid

        def op(tx: Tx) -> str:
            def do() -> tuple[str, str]:
                tx.run("UPDATE session SET pinned = pinned + 1 WHERE id = ?", (session.id,))
                tx.one("SELECT 1 FROM session WHERE id = ?", (session.id,))
                return "made", "7"

            call = ApiCall("key", ["pinned"], 1)
            found = once(tx, "", sid, call, kind="pin", do=do, again=lambda made: f"again {made}")
            tries.append(int(tx.number[0]))  # type: ignore[attr-defined]
            if len(tries) == 1:
                server.restart("immediate")
                _use_numbers(server, tries[0])
            return found

        assert store._write(op) == "made"
        assert len(tries) == 2
        assert store._write(op) == "again 7"
        assert execute(server, f'SELECT pinned FROM "{_postgres.schema_of(tmp_path)}".session') == [(1,)]


def _use_numbers(server: Any, last: int) -> None:
    """Let other transactions commit until one of them has a number."""
    while int(execute(server, "SELECT pg_current_xact_id()::text")[0][0]) < last:
        pass


def test_a_number_that_was_forgotten_means_that_nothing_was_stored(server: Any, tmp_path: Path) -> None:
    with takeback.open(url(server, tmp_path)) as store:
        session, tries = store.create_session("work"), list[int]()
        execute(server, "CHECKPOINT")

        def op(tx: Tx) -> str:
            tx.run("UPDATE session SET tags = tags || '' WHERE id = ?", (session.id,))
            tx.one("SELECT 1 FROM session WHERE id = ?", (session.id,))
            tries.append(int(tx.number[0]))  # type: ignore[attr-defined]
            if len(tries) == 1:
                server.restart("immediate")
            return "done"

        # Where the log happened to be written out in the meantime, the number is known and proves nothing.
        with contextlib.suppress(takeback.BackendError):
            assert store._write(op) == "done"
            assert len(tries) == 2


def test_a_store_is_opened_as_soon_as_its_server_is_there(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = url(server, tmp_path, call_timeout=60)
    takeback.open(place).close()
    server.stop("fast")
    started, late, connect = threading.Event(), list[float](), Address.connect

    def counted(address: Address, seconds: float) -> Any:
        if started.is_set():
            late.append(seconds)
        return connect(address, seconds)

    monkeypatch.setattr(Address, "connect", counted)
    timer = threading.Timer(1.0, lambda: (server.start(), started.set()))
    timer.start()
    try:
        with takeback.open(place):
            assert len(late) <= 1, "the first try after its start did not do"
    finally:
        timer.join()


def test_a_server_that_stays_away_is_told_in_time(server: Any, tmp_path: Path) -> None:
    with takeback.open(url(server, tmp_path, call_timeout=1)) as store:
        session = store.create_session("work")
        server.stop("immediate")
        try:
            for call in (lambda: session.user("lost"), session.messages, lambda: takeback.open(store.url)):
                with pytest.raises((takeback.BackendError, takeback.Busy)):
                    call()
        finally:
            server.start()
        assert session.user("found").seq == 1
        assert [message.text for message in session.messages()] == ["found"]


def test_a_server_that_only_reads_for_a_while_is_waited_for(server: Any, tmp_path: Path) -> None:
    """As after a failover, until the new primary is ready; connections to the old one are not used again."""
    with takeback.open(url(server, tmp_path, call_timeout=10)) as store, takeback.open(store.url) as other:
        session = store.create_session("work")
        session.user("a title")
        role = f"ALTER ROLE {_postgres.OWNER} SET default_transaction_read_only"
        execute(server, f"{role} = on")
        execute(server, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'takeback'")
        timer = threading.Timer(1.0, lambda: execute(server, f"{role} = off"))
        timer.start()
        try:
            session.user("waited")
            other.get_session(session.id).note("waited too")
        finally:
            timer.join()
        assert [message.text for message in session.messages()] == ["a title", "waited"]


def test_of_several_hosts_the_one_that_answers_is_used(server: Any, tmp_path: Path) -> None:
    from takeback.testing.proxy import Proxy, free_port

    one = url(server, tmp_path, call_timeout=10)
    here = f"127.0.0.1:{server.port}"
    with Proxy(server.host, server.port) as proxy:
        several = one.replace(here, f"127.0.0.1:{free_port()},127.0.0.1:{proxy.port},{here}")
        with takeback.open(several) as store:
            session = store.create_session("work")
            session.user("through the first that answers")
            assert proxy.accepted
            proxy.refuse()
            proxy.cut()
            session.user("through the last")
            assert [message.seq for message in session.messages()] == [1, 2]


@pytest.mark.needs_root
@pytest.mark.promise("R3")
def test_a_full_disk_of_the_server_stores_nothing_in_part(server: Any, tmp_path: Path) -> None:
    with _harness.tmpfs(Path(f"{server.log.parent}/tiny"), "6m") as disk:
        owner = server.log.parent.stat()
        os.chown(disk, owner.st_uid, owner.st_gid)
        execute(server, f"CREATE TABLESPACE tiny LOCATION '{disk}'")
        execute(server, f"GRANT CREATE ON TABLESPACE tiny TO {_postgres.OWNER}")
        try:
            _fill(url(server, tmp_path, options="-c default_tablespace=tiny"), disk)
        finally:
            execute(server, f"DROP SCHEMA {_postgres.schema_of(tmp_path)} CASCADE")
            execute(server, "CHECKPOINT")
            execute(server, "DROP TABLESPACE tiny")


def _fill(place: str, disk: Path) -> None:
    with takeback.open(place) as store:
        session, stored = store.create_session("work"), list[str]()
        session.user("a title")
        rng = random.Random(1)
        with contextlib.suppress(takeback.StorageFull):
            for number in range(1000):
                texts = [f"{number}:{part}:{rng.randbytes(20_000).hex()}" for part in range(3)]
                session.append(*({"role": "user", "content": text} for text in texts))
                stored += texts
        assert len(stored) < 3000
        with pytest.raises(takeback.StorageFull, match="out of disk space"):
            session.append({"role": "user", "content": rng.randbytes(200_000).hex(), "id": "large"})
        assert stored
        assert [message.text for message in session.iter_messages()] == ["a title", *stored]
        report = store.verify()
        assert not report, str(report)
        _harness.resize(disk, "30m")
        session.append({"role": "user", "content": rng.randbytes(200_000).hex(), "id": "large"})
        assert session.refresh().message_count == len(stored) + 2
