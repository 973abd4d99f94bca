"""The start of the program as a process of its own: what can be spared before the first verb runs is spared here.

A look around must feel like nothing: at most six times the time of a bare Python. Collecting garbage while modules
are loaded finds none and takes a tenth of that; what was loaded stays until the end and need not be looked at again.
"""

from __future__ import annotations

import gc
import sys
from typing import Any


def start(arguments: list[str]) -> int:
    """Run one command and give its exit code."""
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


def _load_msgspec() -> None:
    """Load msgspec without ``typing_extensions``, where that is installed: it loads ``inspect``, the longest of all.

    msgspec wants nothing of it that ``typing`` does not have in every Python that we run on, and asks ``typing`` then.
    """
    if "typing_extensions" in sys.modules:
        return
    modules: dict[str, Any] = sys.modules
    modules["typing_extensions"] = None
    try:
        import msgspec  # noqa: F401
    finally:
        del modules["typing_extensions"]
