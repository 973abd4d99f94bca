"""The progress line of long work: on stderr, only on a terminal, only after a second.

A thread draws it, so that work that reports no progress still shows a running clock. The line is erased at the end;
work that took long enough to show it leaves one line with its counts.
"""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType

from ..model import words
from ..model.session import show_duration

_FIRST, _EACH = 1.0, 0.2  # seconds until the line is first drawn, and between redraws
_WIPE = "\r\x1b[K"


class Progress:
    """Work in progress; call it with how much is done, and of how much."""

    def __init__(self, what: str, unit: str, *, shown: bool) -> None:
        self._what, self._unit = what, unit
        self._done: int | None = None
        self._total: int | None = None
        self._began, self._over, self._drawn = time.monotonic(), threading.Event(), False
        self._thread = threading.Thread(target=self._draw, daemon=True) if shown else None

    def __enter__(self) -> Progress:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        if self._drawn:
            last = "" if kind is not None else f"{self._what}: {self._counted()} in {show_duration(self._seconds())}\n"
            self._write(f"{_WIPE}{last}")

    def __call__(self, done: int, total: int | None = None) -> None:
        self._done, self._total = done, total

    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _draw(self) -> None:
        wait = _FIRST
        while not self._over.wait(wait):
            wait, self._drawn = _EACH, True
            self._write(f"{_WIPE}{self.line()}")

    def line(self) -> str:
        """Format the progress: what is done, how fast, and the time left if the total is known."""
        seconds, done, total = self._seconds(), self._done, self._total
        parts = [f"{self._what}: {self._counted()}"]
        if done and seconds:
            parts.append(f"{words.short_number(int(done / seconds))}/s")
        if done and total and total > done:
            parts.append(f"{show_duration(seconds * (total - done) / done)} left")
        else:
            parts.append(show_duration(seconds))
        return ", ".join(parts)

    def _counted(self) -> str:
        if self._done is None:
            return self._unit
        of = f" of {self._total:,}" if self._total and self._total > self._done else ""
        return f"{self._done:,}{of} {self._unit}"

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
