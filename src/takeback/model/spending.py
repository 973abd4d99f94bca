"""What was spent, counted separately by model, day, agent or tool."""

from __future__ import annotations

import msgspec

from . import Portable, words
from .usage import Usage


class Spent(Portable, msgspec.Struct, frozen=True):
    """What was spent under one key: a model, a day (``2026-01-31``), an agent or a tool.

    ``usage.cost`` is the cost that was stored with the messages and, for ``priced`` of them, the list price of the
    model at the time. ``unpriced`` says how many messages of which models used tokens and have no known cost.
    """

    key: str
    messages: int = 0
    tool_calls: int = 0
    tool_failures: int = 0
    usage: Usage = Usage()
    priced: int = 0
    unpriced: dict[str, int] = {}

    def __repr__(self) -> str:
        parts = [words.count(self.messages, "message"), words.count(self.tool_calls, "tool call")]
        parts.append(f"{self.usage.input_tokens + self.usage.output_tokens:,} tokens")
        parts += [words.money(self.usage.cost)] if self.usage.cost else []
        return f"<Spent {self.key!r} {', '.join(parts)}>"
