"""Waiting for something that others do: look, then again whenever something may have changed."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from .base import StoreBase

T = TypeVar("T")
_LOOK_SECONDS = 0.5  # a process that dies tells nobody
stopped: ContextVar[Callable[[], bool]] = ContextVar("stopped", default=lambda: False)
"""Says whether whoever waits has given up: a task that was cancelled."""


def until(store: StoreBase, check: Callable[[], T | None], seconds: float | None) -> T | None:
    """Look until something is there, for so many seconds; None if it never was. Without a limit for ever."""
    found = None if stopped.get()() else check()
    if found is not None or seconds == 0:
        return found
    deadline = None if seconds is None else time.monotonic() + seconds
    waiting = store._backend.listen()
    try:
        while found is None:
            left = _LOOK_SECONDS if deadline is None else deadline - time.monotonic()
            if left <= 0 or stopped.get()():
                return None
            waiting.wait(min(left, _LOOK_SECONDS))
            found = None if stopped.get()() else check()
        return found
    finally:
        waiting.close()
