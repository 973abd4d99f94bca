"""Preparing a process that is ours alone: what it need not load, and what its parent left closed."""

from __future__ import annotations

import atexit
import gc
import os
import sys

from .. import lazy

_FEW = 100_000  # objects; a short command never makes so many, and a long one still collects its garbage
# Imported by click and msgspec, and by our own modules, for what few commands do.
_SELDOM_USED = ("inspect", "textwrap", "msgspec.inspect", "msgspec.toml", "msgspec.yaml", "difflib", "shlex", "shutil")


def prepare() -> None:
    """Make this process ready to run one command."""
    _open_what_is_closed()
    gc.set_threshold(_FEW)  # modules that are loaded are no garbage, and searching them takes a tenth of the time
    atexit.register(gc.freeze)  # and so does the search at exit, for what ends with the process anyway
    lazy.add(*_SELDOM_USED)
    if sys.platform == "linux":
        lazy.replace("uuid", "platform", _Platform)


class _Platform:
    """The one word that ``uuid`` needs from ``platform``, which compiles nine patterns."""

    @staticmethod
    def system() -> str:
        return "Linux"


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
