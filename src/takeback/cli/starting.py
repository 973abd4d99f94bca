"""The start of the program as a process of its own: what can be spared before the first verb runs is spared here.

A look around must feel like nothing: at most six times the time of a bare Python. Collecting garbage while modules
are loaded finds none and takes a tenth of that; what was loaded stays until the end and need not be looked at again.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import Any


def start(arguments: list[str]) -> int:
    """Run one command and give its exit code."""
    _open_what_is_closed()
    gc.disable()
    _load_msgspec()
    from . import quick

    line = quick.parse(arguments)
    gc.freeze()
    gc.enable()
    if line is not None:
        return quick.run_line(line)
    from .app import run

    return run(arguments)


def _open_what_is_closed() -> None:
    """Give the process its three streams where it was started without: a file of the store must not get their numbers.

    Results that have nowhere to go fail as a full disk does; what is only told is told nobody.
    """
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_WRONLY if number == 2 else os.O_RDONLY)  # the lowest number that is free
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


def _load_msgspec() -> None:
    """Load msgspec without what it only asks for in passing, each of which takes longer to load than to do without.

    ``typing_extensions`` has nothing for it that ``typing`` has not in every Python that we run on. ``uuid`` wants one
    word of ``platform``, which compiles nine patterns. ``textwrap`` compiles five, for descriptions of types: it is
    loaded when it is first used.
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
    """What ``uuid`` wants of ``platform``."""

    @staticmethod
    def system() -> str:
        return "Linux"


def _load_later(name: str) -> None:
    """Let a module be loaded when something of it is first asked for."""
    from importlib.util import LazyLoader, find_spec, module_from_spec

    spec = find_spec(name)
    if spec is None or spec.loader is None:
        return
    spec.loader = LazyLoader(spec.loader)
    sys.modules[name] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
