"""Keeps the rest of this process away from the files of open stores.

POSIX drops every lock a process holds on a file as soon as the process closes any descriptor of it.
A stray ``open("work.db")`` or a second SQLite library would so unlock the store under its writer;
both were seen to corrupt data. An audit hook - the one process-wide thing in Holdfast - refuses
both while a store is open. The ``-wal`` carries no such locks and may be opened.
"""

from __future__ import annotations

import os
import sys
import threading
from urllib.parse import unquote

from ..errors import Unsupported

_Key = tuple[int, int]
_guarded: dict[_Key, int] = {}
_lock = threading.Lock()
_installed = False


_generation = 0


def _forked() -> None:
    global _generation
    _generation += 1
    _guarded.clear()  # the locks stay with the parent: nothing of this process can drop them


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def process_generation() -> int:
    """Give a number that differs between a process and its forked children; asking the kernel costs more."""
    return _generation


def protect(*paths: str) -> list[_Key]:
    """Guard these files until ``release`` gets the returned keys."""
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
    """Stop guarding what ``protect`` guarded."""
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
            f"{os.fsdecode(path)!r} belongs to a Holdfast store that this process has open; opening it a second"
            " time would drop the store's locks. Use the store, its backup, or another process",
            capability="second open of a live store file",
        )


def _without_uri(name: str) -> str:
    if not name.startswith("file:"):
        return name
    path = unquote(name[5:].split("?", 1)[0].split("#", 1)[0])
    return "/" + path.lstrip("/") if path.startswith("//") else path
