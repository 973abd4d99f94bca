"""Waiting for something that others do: check, and check again whenever something may have changed."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from .base import StoreBase

T = TypeVar("T")
_LOOK_SECONDS = 0.5  # polled as well, since a process that dies notifies nobody
stopped: ContextVar[Callable[[], bool]] = ContextVar("stopped", default=lambda: False)
"""Whether the caller has given up waiting: its task was cancelled."""


def until(store: StoreBase, check: Callable[[], T | None], seconds: float | None) -> T | None:
    """Check until something is found, for at most so many seconds; None if nothing was. No limit waits for ever."""
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
