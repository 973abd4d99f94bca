"""Where a session is and what it adds up to."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from .entry import Numbers
from .usage import Usage


class Head(NamedTuple):
    """Where a session is: at the tip of a branch (attached) or at a point (detached)."""

    branch: str
    seq: int
    attached: bool


class Stats(msgspec.Struct, frozen=True):
    """Totals of a path up to one point."""

    messages: int
    turns: int
    tool_calls: int
    usage: Usage
    duration: float

    @classmethod
    def from_numbers(cls, numbers: Numbers) -> Stats:
        """Read the running totals of an entry as statistics."""
        return cls(
            messages=numbers.messages,
            turns=numbers.turns,
            tool_calls=numbers.tool_calls,
            usage=Usage.from_counts(numbers[4:10]),
            duration=numbers.active_ms / 1000,
        )

    def __str__(self) -> str:
        tokens = self.usage.input_tokens + self.usage.output_tokens
        return f"{self.messages} messages, {self.turns} turns, {tokens} tokens"


class StoreStats(msgspec.Struct, frozen=True):
    """What a store holds, and the bytes it takes on disk."""

    sessions: int
    branches: int
    entries: int
    blobs: int
    total_bytes: int
