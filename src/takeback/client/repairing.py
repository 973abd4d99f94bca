"""Repairing a store: a copy is made, repaired while nobody else has it open, and verified. The store itself stays."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from ..errors import Conflict, Invalid
from ..model.report import Problem, Repaired
from ..ops import repair
from .address import path_of
from .open import open_store

if TYPE_CHECKING:
    from .store import Store

FILES = ("", "-wal", "-shm", "-lock", "-open", "-ballast", "-journal")


def copy_repaired(store: Store, to: str | os.PathLike[str] | None) -> Repaired:
    """Make a repaired copy; if that fails, nothing of it is left."""
    target = _target(store, to)
    if any(os.path.lexists(target + suffix) for suffix in FILES):
        raise Conflict(f"{target!r} exists already; name a new file for the copy", found=target)
    try:
        unread = store._backend.copy_to(target)
        return _repaired(store, target, unread)
    except BaseException:
        for suffix in FILES:
            with contextlib.suppress(OSError):
                os.unlink(target + suffix)
        raise


def _target(store: Store, to: str | os.PathLike[str] | None) -> str:
    if to is not None:
        return os.path.realpath(to)
    if not store.capabilities.persistent:
        raise Invalid("a store in memory has no file to lie beside; say where the copy belongs")
    return os.path.realpath(path_of(store.url)) + ".repaired"


def _repaired(store: Store, target: str, unread: list[str]) -> Repaired:
    done = _mended(target, store._clock.now_ms())
    with open_store(target, clock=store._clock) as copy:
        report = copy.verify()
    pages = [
        Problem("file", words, "they could not be read from the file", "What they held is named beside this")
        for words in unread
    ]
    return Repaired(target, (*pages, *done.lost), done.rebuilt, report)


def _mended(path: str, now_ms: int) -> repair.Repairs:
    """Repair a copy in one transaction; references between rows hold again at its end, not after every step."""
    from ..storage.connection import SqliteTx, close_quietly, connect, translated  # few repair: nothing else loads it

    with translated():
        copy = connect(path)
        try:
            copy.pragma("foreign_keys", False)
            with copy:
                done = repair.repair(SqliteTx(copy.cursor()), now_ms=now_ms)
        finally:
            close_quietly(copy)
    return done
