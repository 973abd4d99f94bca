"""Opening a store from a URL: the one place that imports drivers and looks at the environment."""

from __future__ import annotations

import os
import re
import shutil
from urllib.parse import unquote, urlsplit

from .. import codec
from ..clock import Clock, SystemClock
from ..errors import Conflict, Invalid, NotFound, Unsupported
from ..storage.base import Backend
from . import check
from .store import Store

_SERVER = re.compile(r"postgres(ql)?(\+\w+)?:", re.IGNORECASE)


def open_store(
    url: str | os.PathLike[str] | None = None,
    *,
    scope: str | None = None,
    durability: str = "full",
    read_only: bool = False,
    clock: Clock | None = None,
) -> Store:
    """Open a store, making it if it is new: a path, ``sqlite:///path``, ``:memory:``, or nothing for the user's own.

    ``durability="relaxed"`` may lose the last commits at a power cut, never at a crash of the process.
    """
    if url is not None and not isinstance(url, str | os.PathLike):
        raise Invalid(f"a store is named by a path or URL, not by {type(url).__name__}")
    place = default_url() if url is None else os.fspath(url)
    if not isinstance(place, str) or not place:
        raise Invalid("name a store: a path, 'sqlite:///path' or ':memory:'")
    codec.storable_text(place, what="the name of a store")
    who, clock = check.scope(scope), clock or SystemClock()
    backend = _backend(place, durability=durability, read_only=read_only, clock=clock)
    return Store(backend, clock=clock, scope=who, url=_shown(place))


def _backend(place: str, *, durability: str, read_only: bool, clock: Clock) -> Backend:
    from ..storage.memory import MemoryBackend
    from ..storage.sqlite import SqliteBackend
    from ..storage.wrap import ReadOnly

    if durability not in ("full", "relaxed"):
        raise Invalid(f"durability is 'full' or 'relaxed', not {durability!r}")
    if _is_server(place):
        _server_package()
        from ..storage.postgres.backend import PostgresBackend

        return PostgresBackend(place, durability=durability, read_only=read_only)
    if place in (":memory:", "sqlite://", "sqlite://:memory:", "sqlite:///:memory:"):
        memory = MemoryBackend(clock=clock)
        return ReadOnly(memory) if read_only else memory
    return SqliteBackend(_path(place), durability=durability, read_only=read_only, clock=clock)


def _server_package() -> None:
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise Unsupported(
            f"PostgreSQL needs the driver psycopg ({error}); install it with: pip install 'holdfast[postgres]'",
            capability="postgresql",
        ) from error


def migrate(url: str | os.PathLike[str], *, grant_to: str | None = None) -> int:
    """Make or update a store's tables and give the version of its schema; ``open`` does so itself where it may.

    On PostgreSQL this needs a role that may create tables; ``grant_to`` names another role that may use them from then
    on and needs no such right. Safe to run at any time, from any number of processes.
    """
    place = os.fspath(url)
    if not _is_server(place):
        if grant_to is not None:
            raise Unsupported("only PostgreSQL has roles to grant to", capability="grant_to")
        with open_store(place) as store:
            return store._read(lambda tx: int((tx.one("SELECT max(version) FROM migration") or (0,))[0]))
    _server_package()
    from ..storage.postgres.backend import bring_up_to_date

    return bring_up_to_date(place, grant_to=check.optional_name(grant_to, what="role"))


def _is_server(place: str) -> bool:
    return _SERVER.match(place) is not None


def _shown(place: str) -> str:
    """Give a URL as it may be shown: without a password."""
    return re.sub(r"(://[^:/@]*):[^@]*@", r"\1:***@", re.sub(r"([?&]\w*password=)[^&]*", r"\1***", place))


def _path(place: str) -> str:
    if "://" not in place:
        path = place
    else:
        parts = urlsplit(place)
        if parts.scheme != "sqlite":
            raise Unsupported(
                f"there is no engine for {parts.scheme!r} here; use a path, 'sqlite:///path' or ':memory:'",
                capability=parts.scheme,
            )
        if parts.netloc or parts.query or parts.fragment:
            raise Invalid("write sqlite:///relative.db or sqlite:////absolute.db, without host or options")
        path = unquote(parts.path[1:])
    if not path or "\0" in path:
        raise Invalid(f"{place!r} names no file")
    return path


def default_url() -> str:
    """Give the user's own store: ``HOLDFAST_STORE``, else a file in the XDG data directory."""
    if chosen := os.environ.get("HOLDFAST_STORE"):
        return chosen
    base = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    return os.path.join(base, "holdfast", "holdfast.db")


def salvage(path: str | os.PathLike[str], to: str | os.PathLike[str]) -> int:
    """Copy a store whose log is damaged, with every frame of the log made readable; give their count.

    The original stays untouched. Open the copy and run ``verify``: it names the records that are damaged.
    """
    from ..storage import files, wal

    source, target = os.path.realpath(path), os.path.realpath(to)
    if not os.path.exists(source):
        raise NotFound(f"there is no store at {source!r}")
    if any(os.path.lexists(target + suffix) for suffix in ("", "-wal", "-shm", "-lock")):
        raise Conflict(f"{target!r} exists already; name a new file for the copy", found=target)
    try:
        lock = files.FileLock(source + "-open")
    except OSError as error:
        raise files.translate(error, source) from error
    try:
        if not lock.try_exclusive():
            raise Conflict(f"{source!r} is open; close it everywhere first", found=source)
        os.close(files.open_private(target))
        shutil.copyfile(source, target)
        return wal.salvage(source + "-wal", target + "-wal")
    except OSError as error:
        raise files.translate(error, target) from error
    finally:
        lock.close()
