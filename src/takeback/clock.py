"""The only place that reads the time.

Time is a label, never an order: order comes from seqs and feed positions. A clock may
therefore stand still, jump back or be before 1970 without harm. Stores accept any object
with ``now_ms``; tests pass one that they move by hand.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """Milliseconds since 1970 in UTC; negative before."""

    def now_ms(self) -> int: ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Read the clock once."""
        return time.time_ns() // 1_000_000


def to_datetime(ms: int) -> datetime:
    """Convert stored milliseconds to an aware UTC datetime, even before 1970."""
    return _EPOCH + timedelta(milliseconds=ms)
