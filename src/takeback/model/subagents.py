"""Sub-agents: how one was spawned, messages between them, and the tree of them with its totals."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from ..clock import to_datetime
from . import Portable, html, values, words
from .session import Stats, show_duration

S = TypeVar("S")


class Spawned(NamedTuple, Generic[S]):
    """A sub-agent that was started."""

    status: str
    run_id: str
    session_key: str
    message: str
    session: S

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON data, with the fields of the session; the session itself does not travel."""
        return values.to_dict(self)


class Sent(Portable, msgspec.Struct, frozen=True):
    """A message in a session's inbox."""

    id: str
    session_id: str
    number: int
    text: str | None
    sender: str | None
    at_ms: int
    received: bool = False

    @property
    def sent_at(self) -> datetime:
        """When it was sent."""
        return to_datetime(self.at_ms)

    def __repr__(self) -> str:
        return f"<Sent {self.number} to {self.session_id[:12]}{', received' if self.received else ''}>"


class Tree(Portable, msgspec.Struct, frozen=True):
    """A session with its sub-agents; ``totals`` sums what all of them spent, counting each entry once."""

    id: str
    key: str
    name: str | None
    title: str | None
    label: str | None
    agent_id: str
    status: str
    seconds: float
    stats: Stats
    totals: Stats
    children: tuple[Tree, ...] = ()

    def lines(self, indent: str = "") -> list[str]:
        """Format the tree for people, one line per session."""
        name = self.label or self.title or self.name or self.id[:12]
        tokens = words.short_number(self.totals.usage.input_tokens + self.totals.usage.output_tokens)
        line = f"{indent}{name} ({self.agent_id}) {self.status}, {tokens} tokens, {show_duration(self.seconds)}"
        return [line, *(each for child in self.children for each in child.lines(indent + "  "))]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        return f"<Tree {self.id[:12]} {self.status}, {words.count(self._count() - 1, 'sub-agent')}>"

    def _count(self) -> int:
        return 1 + sum(child._count() for child in self.children)

    def _repr_html_(self) -> str:
        return html.table(repr(self), ("tree",), [[line] for line in self.lines()])
