"""Where a session is, and its totals."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple, Self

import msgspec

from ..clock import to_datetime
from . import Portable, values, words
from .entry import Numbers
from .usage import Usage


class Head(NamedTuple):
    """Where a session is: at the tip of a branch (attached) or at a point (detached)."""

    branch: str
    seq: int
    attached: bool

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON data."""
        return values.to_dict(self)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """Make an equal value from what ``to_dict`` returned."""
        return values.from_dict(cls, given)


class Stats(Portable, msgspec.Struct, frozen=True):
    """Totals of a path up to one point, or of everything ever spent."""

    messages: int
    turns: int
    tool_calls: int
    usage: Usage
    duration: float
    tool_failures: int = 0
    started_ms: int = 0

    @classmethod
    def from_numbers(cls, numbers: Numbers, *, started_ms: int = 0) -> Stats:
        """Convert running totals to statistics."""
        return cls(
            messages=numbers.messages,
            turns=numbers.turns,
            tool_calls=numbers.tool_calls,
            usage=Usage.from_counts(numbers[4:10]),
            duration=numbers.active_ms / 1000,
            tool_failures=numbers.tool_failures,
            started_ms=started_ms,
        )

    @property
    def started_at(self) -> datetime:
        """When the session started."""
        return to_datetime(self.started_ms)

    @property
    def estimated_tokens(self) -> int:
        """Input plus output tokens, as given with the messages."""
        return self.usage.input_tokens + self.usage.output_tokens

    def _repr_html_(self) -> str:
        from . import html

        names = ("messages", "turns", "tool_calls", "tool_failures", "estimated_tokens", "duration")
        return html.fields("Stats", {name: getattr(self, name) for name in names} | {"cost": self.usage.cost})

    def __str__(self) -> str:
        parts = [words.count(self.messages, "message"), words.count(self.turns, "turn")]
        parts.append(words.count(self.tool_calls, "tool call"))
        if self.tool_failures:
            parts.append(f"{self.tool_failures} failed")
        parts.append(f"{self.estimated_tokens:,} tokens")
        if self.usage.cost:
            parts.append(words.money(self.usage.cost))
        return ", ".join([*parts, show_duration(self.duration)])

    def __repr__(self) -> str:
        return f"<Stats {self}>"


def show_duration(seconds: float) -> str:
    """Format a duration for people: ``42s``, ``3m 5s``, ``2h 1m``; never negative."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60}s"
    return f"{whole // 3600}h {whole % 3600 // 60}m"


class StoreStats(Portable, msgspec.Struct, frozen=True):
    """What a store contains, and how many bytes it takes on disk."""

    agents: int
    sessions: int
    checkpoints: int
    messages: int
    branches: int
    entries: int
    blobs: int
    total_bytes: int

    def __str__(self) -> str:
        names = ("agent", "session", "message", "checkpoint", "blob")
        counts = [words.count(getattr(self, f"{name}s"), name) for name in names]
        return f"{', '.join(counts)}, {self.total_bytes / 1e6:,.1f} MB"

    def __repr__(self) -> str:
        return f"<StoreStats {self}>"


def short_title(text: str, limit: int, *, ellipsis: bool) -> str | None:
    """Cut text to a title, never inside a displayed character; None if nothing is left.

    With ``ellipsis`` a cut title ends in three dots, and still has at most ``limit`` characters.
    """
    storable = text.replace("\0", " ").encode("utf-8", "replace").decode()
    line = " ".join(storable.split())
    if len(line) <= limit:
        return line or None
    cut = _whole_characters(line, limit - 3 if ellipsis else limit)
    return cut + "..." if ellipsis else cut


def _whole_characters(text: str, limit: int) -> str:
    """Cut text without separating a mark, a joiner or half of a flag from its character."""
    import unicodedata

    def joins(at: int) -> bool:
        here, before = text[at], text[at - 1]
        if unicodedata.combining(here) or here in "\u200d\ufe0e\ufe0f" or before == "\u200d":
            return True
        return (
            unicodedata.category(here) in ("Mn", "Me", "Mc")
            or "\U0001f3fb" <= here <= "\U0001f3ff"
            or (_is_flag(here) and _is_flag(before) and _flags_before(text, at) % 2 == 1)
        )

    end = limit
    while 0 < end < len(text) and joins(end):
        end -= 1
    return text[: end or limit].rstrip()


def _is_flag(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _flags_before(text: str, at: int) -> int:
    count = 0
    while at - count > 0 and _is_flag(text[at - count - 1]):
        count += 1
    return count
