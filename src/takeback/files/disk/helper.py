"""A second thread for a first scan: it helps to read, hash and compress.

Later scans do without: two threads that only call stat fight over the interpreter's lock, 1.8 times the time of one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class Helper:
    """Shares work as soon as there is more than one thing to do."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._is_free = True

    def share(self, waiting: deque[T], do: Callable[[T], None]) -> None:
        """Do everything that waits, in both threads if the second one is free."""

        def work() -> None:
            while waiting:
                try:
                    each = waiting.popleft()
                except IndexError:
                    return  # the other thread took it
                do(each)

        if not self._is_free or len(waiting) < 2:
            return work()
        self._is_free = False  # before it starts: the helper itself must not wait for a helper
        other = self._pool.submit(work)
        try:
            work()
        finally:
            # After a failure here the helper must find nothing more to do.
            waiting.clear()
            other.result()
            self._is_free = True

    def close(self) -> None:
        """End the thread."""
        self._pool.shutdown()
