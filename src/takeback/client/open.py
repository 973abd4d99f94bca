"""Opening a store from a URL: drivers are imported here and in ``opening``, and nowhere else."""

from __future__ import annotations

import os

from ..clock import Clock, SystemClock
from ..errors import Conflict, Invalid, NotFound, Unsupported
from ..storage import memory, sqlite, wrap
from ..storage import migrate as migrations
from ..storage.base import LOCK_TIMEOUT as LOCK_TIMEOUT
from ..storage.base import Backend
from . import address, arguments
from .address import default_url as default_url
from .store import Store


def open_store(
    url: str | os.PathLike[str] | None = None,
    *,
    scope: str | None = None,
    durability: str = "full",
    read_only: bool = False,
    lock_timeout: float = LOCK_TIMEOUT,
    clock: Clock | None = None,
) -> Store:
    """Open a store, creating a new one: a path, ``sqlite:///path``, ``:memory:``, or None for the user's own.

    ``durability="relaxed"`` may lose the last commits in a power cut, but never when only the process crashes.
    ``lock_timeout`` is how many seconds a call waits for other processes at most, before it raises ``Busy``.
    """
    arguments.flag(read_only, what="read_only")
    place, seconds = address.given(url), arguments.seconds(lock_timeout, what="lock_timeout")
    who, clock = arguments.scope(scope), clock or SystemClock()
    backend = _backend(place, durability=durability, read_only=read_only, lock_timeout=seconds, clock=clock)
    return Store(backend, clock=clock, scope=who, url=address.shown(place))


def _backend(place: str, *, durability: str, read_only: bool, lock_timeout: float, clock: Clock) -> Backend:
    if durability not in ("full", "relaxed"):
        raise Invalid(f"durability must be 'full' or 'relaxed', not {durability!r}")
    if address.is_server(place):
        _server_package()
        from ..storage.postgres.backend import PostgresBackend

        return PostgresBackend(place, durability=durability, read_only=read_only, lock_timeout=lock_timeout)
    if address.is_memory(place):
        empty = memory.MemoryBackend(clock=clock)
        return wrap.ReadOnly(empty) if read_only else empty
    path = address.path_of(place)
    return sqlite.SqliteBackend(
        path, durability=durability, read_only=read_only, lock_timeout=lock_timeout, clock=clock
    )


def _server_package() -> None:
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise Unsupported(
            f"PostgreSQL needs the driver psycopg ({error}); install it with: pip install 'takeback[postgres]'",
            capability="postgresql",
        ) from error


def migrate(url: str | os.PathLike[str], *, grant_to: str | None = None) -> int:
    """Create or update a store's tables and return its schema version; ``open`` does this itself if permitted.

    On PostgreSQL this needs a role that may create tables. ``grant_to`` names another role that may use them from then
    on without that right. Safe to run at any time, from any number of processes.
    """
    place = os.fspath(url)
    if not address.is_server(place):
        if grant_to is not None:
            raise Unsupported("grant_to needs a PostgreSQL store; other stores have no roles", capability="grant_to")
        with open_store(place) as store:
            return store._read(migrations.version)
    _server_package()
    from ..storage.postgres.backend import bring_up_to_date

    return bring_up_to_date(place, grant_to=arguments.optional_name(grant_to, what="role"))


def salvage(path: str | os.PathLike[str], to: str | os.PathLike[str]) -> int:
    """Copy a store whose log is damaged, with every frame of the log made readable; return the frame count.

    The original stays untouched. Open the copy and run ``verify``: it names the damaged records.
    """
    import shutil

    from ..storage import files, wal

    source, target = os.path.realpath(path), os.path.realpath(to)
    if not os.path.exists(source):
        raise NotFound(f"there is no store at {source!r}")
    if any(os.path.lexists(target + suffix) for suffix in ("", "-wal", "-shm", "-lock")):
        raise Conflict(f"{target!r} already exists; name a new file for the copy", found=target)
    try:
        lock = files.FileLock(source + "-open")
    except OSError as error:
        raise files.translate(error, source) from error
    try:
        if not lock.try_exclusive():
            raise Conflict(f"{source!r} is in use; close it everywhere first", found=source)
        os.close(files.open_private(target))
        shutil.copyfile(source, target)
        return wal.salvage(source + "-wal", target + "-wal")
    except OSError as error:
        raise files.translate(error, target) from error
    finally:
        lock.close()
