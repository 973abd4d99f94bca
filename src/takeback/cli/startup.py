"""Starting the program as a process: everything that can be skipped before the first verb runs is skipped here.

Looking around must feel instant: at most six times the start of a bare Python. Garbage collection during imports
finds nothing and takes a tenth of that time; what was imported lives until exit, so it is frozen and never scanned.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import Any


def start(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    _open_what_is_closed()
    gc.disable()  # imports create no garbage worth looking for
    _load_msgspec()
    from . import plain_arguments

    line = plain_arguments.parse(arguments)
    gc.freeze()  # what was imported lives until exit
    gc.enable()
    if line is not None:
        return plain_arguments.run_line(line)
    from .app import run

    return run(arguments)


def _open_what_is_closed() -> None:
    """Open standard streams that the parent closed, so that no store file gets descriptor 0, 1 or 2.

    A write to a stdout that was closed then fails like a write to a full disk; messages to a closed stderr are dropped.
    """
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_WRONLY if number == 2 else os.O_RDONLY)  # gets the lowest free number
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


def _load_msgspec() -> None:
    """Import msgspec without the modules it barely uses, each of which is slow to import.

    It needs nothing from ``typing_extensions`` that ``typing`` lacks in the Pythons we support. ``uuid`` needs one word
    from ``platform``, which compiles nine patterns. ``textwrap`` compiles five, only to describe types: it is loaded on
    first use.
    """
    modules: dict[str, Any] = sys.modules
    absent: dict[str, Any] = {"typing_extensions": None}
    if sys.platform == "linux":
        absent["platform"] = _Platform
    absent = {name: stands_in for name, stands_in in absent.items() if name not in modules}
    modules.update(absent)
    if "textwrap" not in modules:
        _load_later("textwrap")
    try:
        import msgspec  # noqa: F401
    finally:
        for name in absent:
            del modules[name]


class _Platform:
    """The part of ``platform`` that ``uuid`` uses."""

    @staticmethod
    def system() -> str:
        return "Linux"


def _load_later(name: str) -> None:
    """Import a module lazily, on first attribute access."""
    from importlib.util import LazyLoader, find_spec, module_from_spec

    spec = find_spec(name)
    if spec is None or spec.loader is None:
        return
    spec.loader = LazyLoader(spec.loader)
    sys.modules[name] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
