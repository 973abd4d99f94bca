"""A clock that tests move by hand."""

from __future__ import annotations


class ManualClock:
    """A clock that stands still until it is moved, in either direction."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.ms = now_ms

    def now_ms(self) -> int:
        """Return the time that was last set."""
        return self.ms

    def advance(self, ms: int) -> None:
        """Move the clock by ``ms``; a negative number moves it back."""
        self.ms += ms
