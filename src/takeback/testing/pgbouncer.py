"""A real PgBouncer in transaction mode in front of a PostgreSQL server, to test what pooling takes away.

    with pgbouncer.start(server, "chats") as bouncer:
        store = takeback.open(bouncer.dsn())

Each transaction of a client may run in a different server session, so whatever belongs to a session (advisory locks,
``SET``, ``LISTEN``, temporary tables) is lost between transactions. All other settings are PgBouncer's defaults;
prepared statements follow the client in new versions and break in old ones (see ``version``). The program comes from
the system, or is unpacked from its apt package into a cache folder, without installing anything.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from takeback.testing.postgres import (
    Account,
    Guard,
    Server,
    ServerUnavailable,
    end,
    environment,
    make_cache,
    make_home,
    put_in_cache,
    unprivileged,
)
from takeback.testing.proxy import free_port

_ADVICE = "install PgBouncer (Debian: apt-get install pgbouncer, macOS: brew install pgbouncer)"
_PATIENCE = 20.0
_MARK = "pgbouncer-unpacked"
_PROGRAM = "usr/sbin/pgbouncer"
_APT_OPTIONS = ["-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=10", "-o", "Acquire::https::Timeout=10"]


def start(server: Server, database: str, *, pool_size: int = 2) -> Bouncer:
    """Start a pool of at most ``pool_size`` connections to a database of the server."""
    account = unprivileged()
    return Bouncer(_find_program(account), account, server, database, pool_size)


class Bouncer:
    """A PgBouncer that runs until it is closed."""

    def __init__(self, program: Path, account: Account, server: Server, database: str, pool_size: int) -> None:
        self.port = free_port()
        self._address = Server({"host": "127.0.0.1", "port": str(self.port), "user": server.user, "dbname": database})
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        self._home = make_home(account)
        self._guard = Guard(self._home)
        self.log = self._home / "log"
        atexit.register(self.close)
        try:
            self.version = _version(program)
            self._start(account, _configuration(server, self.port, pool_size))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Bouncer {self.version} on 127.0.0.1:{self.port}>"

    def dsn(self, **params: object) -> str:
        """Return the URL of the pooled database."""
        return self._address.dsn(None, None, **params)

    def close(self) -> None:
        """Drop every connection and remove all files."""
        if os.getpid() != self._owner:  # a forked child that runs our exit handlers
            return
        atexit.unregister(self.close)
        if self._process is not None:
            # It has nothing to lose, and what gentler signals wait for depends on the version.
            end(self._process, signal.SIGKILL)
            self._process = None
            self._guard.watch(None)
        shutil.rmtree(self._home, ignore_errors=True)
        self._guard.close()

    def _start(self, account: Account, configuration: str) -> None:
        file = self._home / "pgbouncer.ini"
        file.write_text(configuration)
        file.chmod(0o600)  # it may contain a password
        if account:
            os.chown(file, account["user"], account["group"])
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [self._program, file],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._home,
                env=_environment(self._program),
                start_new_session=True,  # Ctrl-C is for the tests, not for the server
                **account,
            )
        self._guard.watch(self._process.pid)
        self._wait_until_ready(self._process)

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _PATIENCE
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(0.01)
        said = self.log.read_text(errors="replace")[-1000:].strip()
        raise ServerUnavailable(f"PgBouncer did not start: {said}")


def _configuration(server: Server, port: int, pool_size: int) -> str:
    target = {"host": server.host, "port": server.port, "user": server.user}
    if server.password is not None:
        target["password"] = server.password
    place = " ".join(f"{name}={_quoted(value)}" for name, value in target.items())
    lines = [
        "[databases]",
        f"* = {place}",  # any database, since this format cannot express every name
        "[pgbouncer]",
        "listen_addr = 127.0.0.1",
        f"listen_port = {port}",
        "unix_socket_dir =",
        "auth_type = any",
        "pool_mode = transaction",
        f"default_pool_size = {pool_size}",
    ]
    return "\n".join([*lines, ""])


def _quoted(value: object) -> str:
    return "'" + str(value).replace("'", "''") + "'"


def _version(program: Path) -> str:
    done = subprocess.run([program, "--version"], check=True, capture_output=True, text=True, env=_environment(program))
    return done.stdout.split()[1]


def _environment(program: Path) -> dict[str, str]:
    """Return the environment in which an unpacked program finds the libraries unpacked with it."""
    libraries = [str(each) for each in program.parent.parent.glob("lib/*-linux-gnu*")]
    unpacked = _MARK in program.parts
    return {**environment(), "LD_LIBRARY_PATH": ":".join(libraries)} if unpacked else environment()


def _find_program(account: Account) -> Path:
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
    if found := shutil.which("pgbouncer", path=path):
        return Path(found)
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise ServerUnavailable(f"pgbouncer is not on the PATH: {_ADVICE}")
    unpacked = make_cache(account) / _MARK
    if not (unpacked / _PROGRAM).exists():
        try:
            _unpack(unpacked)
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", None) or str(error)
            raise ServerUnavailable(
                f"pgbouncer is not on the PATH, and apt cannot download it: {said}: {_ADVICE}"
            ) from error
    return unpacked / _PROGRAM


def _unpack(target: Path) -> None:
    """Download and unpack the package and the two libraries that few systems have; install nothing."""
    draft = Path(tempfile.mkdtemp(prefix="unpacking-", dir=target.parent))
    try:
        [package] = _fetch(draft, "pgbouncer")
        needs = _run(draft, "dpkg-deb", "--field", package, "Depends").replace("|", ",").split(",")
        libraries = [
            each.split()[0] for each in needs if each.strip().startswith(("libc-ares", "libcares", "libevent"))
        ]
        for each in [package, *_fetch(draft, *libraries)]:
            _run(draft, "dpkg-deb", "--extract", each, "root")
        (draft / "root").chmod(0o755)  # whatever the umask
        put_in_cache(draft / "root", target, _PROGRAM)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _fetch(directory: Path, *packages: str) -> list[str]:
    before = set(directory.glob("*.deb"))
    _run(directory, "apt-get", "download", "--quiet", *_APT_OPTIONS, *packages)
    return [each.name for each in set(directory.glob("*.deb")) - before]


def _run(directory: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True, timeout=60)
    return done.stdout
