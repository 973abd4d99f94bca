"""Keeps the rest of this process away from the files of open stores.

POSIX drops every lock that a process holds on a file as soon as the process closes any descriptor
of it. A stray ``open("work.db")`` or a second SQLite library would thus unlock the store under its
writer; both were seen to corrupt data. An audit hook - the only process-wide state in Takeback -
blocks both while a store is open. The ``-wal`` has no such locks and may be opened.
"""

from __future__ import annotations

import os
import sys
import weakref
from _thread import allocate_lock
from typing import Protocol

from ..errors import Unsupported

_Key = tuple[int, int]
_guarded: dict[_Key, int] = {}
_lock = allocate_lock()  # the same as ``threading.Lock``, without importing ``threading``
_installed = False


_generation = 0
_inherited: set[_Key] = set()
_live: weakref.WeakSet[Inheritable] = weakref.WeakSet()


class Inheritable(Protocol):
    """Something open that a forked child must neither use nor close."""

    def abandon(self) -> None:
        """Close our descriptors in the child, and keep SQLite from ever closing what it inherited."""


def _forked() -> None:
    """Abandon all open stores in a forked child: SQLite's inherited table claims locks that the child does not hold."""
    global _generation
    _generation += 1
    _inherited.update(_guarded)
    _guarded.clear()
    for each in list(_live):
        each.abandon()
    _live.clear()


def watch(thing: Inheritable) -> None:
    """Call ``abandon`` on it in forked children."""
    _live.add(thing)


def leak(thing: object) -> None:
    """Keep an object from ever being freed in this process."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def refuse_inherited(path: str) -> None:
    """Refuse a file that was open when this process was forked: SQLite would believe that it holds the locks."""
    if _identity(path) in _inherited:
        raise Unsupported(
            f"{path!r} was open when this process was forked, and SQLite cannot open it safely here. Close it before"
            " forking, open it only in the child, or start the child with multiprocessing's 'spawn'",
            capability="fork",
        )


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def process_generation() -> int:
    """Return a number that differs between a process and its forked children; cheaper than asking for the pid."""
    return _generation


def protect(*paths: str) -> list[_Key]:
    """Guard these files until ``release`` is called with the returned keys."""
    global _installed
    keys = [key for path in paths if (key := _identity(path)) is not None]
    with _lock:
        for key in keys:
            _guarded[key] = _guarded.get(key, 0) + 1
        if not _installed:
            sys.addaudithook(_hook)
            _installed = True
    return keys


def release(keys: list[_Key]) -> None:
    """Stop guarding files."""
    with _lock:
        for key in keys:
            left = _guarded.pop(key, 1) - 1
            if left:
                _guarded[key] = left


def _identity(path: str | bytes | os.PathLike[str]) -> _Key | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def _hook(event: str, args: tuple[object, ...]) -> None:
    if not _guarded or (event != "open" and event != "sqlite3.connect"):
        return
    path = args[0]
    if not isinstance(path, str | bytes | os.PathLike):
        return
    if event == "sqlite3.connect":
        path = _without_uri(os.fsdecode(path))
    if _identity(path) in _guarded:
        raise Unsupported(
            f"{os.fsdecode(path)!r} belongs to a Takeback store that this process has open; opening it a second"
            " time would drop the store's locks. Use the store, its backup, or another process",
            capability="second open of a live store file",
        )


def _without_uri(name: str) -> str:
    if not name.startswith("file:"):
        return name
    from urllib.parse import unquote

    path = unquote(name[5:].split("?", 1)[0].split("#", 1)[0])
    return "/" + path.lstrip("/") if path.startswith("//") else path
