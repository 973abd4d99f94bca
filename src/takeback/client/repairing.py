"""Repairing a store: what can be read goes into a scratch copy, and what can be proved of that into a new store.

The original is not changed. The new store is verified, every public read of it is tried, and nothing else remains.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from ..errors import Conflict, Invalid
from ..model.report import Problem, Repaired
from ..records.salvage import mend
from ..records.sink import Sink
from ..records.source import Source
from .address import path_of
from .open import open_store

if TYPE_CHECKING:
    from .store import Store

FILES = ("", "-wal", "-shm", "-lock", "-open", "-ballast", "-journal")
_SCRATCH = ".scratch"


def copy_repaired(store: Store, to: str | os.PathLike[str] | None) -> Repaired:
    """Make a repaired copy; if that fails, nothing of it is left."""
    target = _target(store, to)
    if any(os.path.lexists(target + suffix) for suffix in FILES):
        raise Conflict(f"{target!r} already exists; name a new file for the copy", found=target)
    try:
        return _repaired(store, target)
    except BaseException:
        _remove(target)
        raise
    finally:
        _remove(target + _SCRATCH)


def _remove(path: str) -> None:
    for suffix in FILES:
        with contextlib.suppress(OSError):
            os.unlink(path + suffix)


def _target(store: Store, to: str | os.PathLike[str] | None) -> str:
    if to is not None:
        return os.path.realpath(to)
    if not store.capabilities.persistent:
        raise Invalid("an in-memory store has no file to put the copy next to; pass to=")
    return os.path.realpath(path_of(store.url)) + ".repaired"


def _repaired(store: Store, target: str) -> Repaired:
    unread = store._backend.copy_to(target + _SCRATCH)
    # No sync per commit: the file is synced once at the end, and a failed repair leaves nothing behind anyway.
    with open_store(target, clock=store._clock, durability="relaxed") as copy:
        lost, rebuilt = _salvaged(target + _SCRATCH, copy)
    _sync(target)
    with open_store(target, clock=store._clock) as copy:
        report = copy.verify()
    pages = [
        Problem("file", words, "they could not be read from the file", "What they held is listed separately")
        for words in unread
    ]
    return Repaired(target, (*pages, *lost), rebuilt, report)


def _sync(path: str) -> None:
    """Sync a file that was written without waiting for the disk."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _salvaged(scratch: str, copy: Store) -> tuple[tuple[Problem, ...], int]:
    """Mend a scratch copy, and put its records into a new store; references between its rows need not hold."""
    from ..storage.connection import SqliteTx, close_quietly, connect, translated  # imported late: few ever repair

    with translated():
        connection = connect(scratch)
        try:
            connection.pragma("foreign_keys", False)
            connection.pragma("synchronous", "off")
            tx = SqliteTx(connection.cursor())
            with connection:
                lost, rebuilt = mend(tx, now_ms=copy._clock.now_ms())
            sink = Sink(copy._backend.scoped(None), now_ms=copy._clock.now_ms)
            source = Source(lambda op: op(tx), live=True, sound=False)
            for record in source.records(sink):
                sink.put(record)
            for record in source.endings():
                sink.put(record)
            sink.close()
        finally:
            close_quietly(connection)
    left = [Problem("session", str(each.found), str(each), "It is not in the copy") for each in sink.conflicts]
    return (*lost, *left), rebuilt
