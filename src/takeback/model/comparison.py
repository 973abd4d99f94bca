"""Two paths of a session side by side, from where they diverge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from . import html, values, words
from .files import FileDiff
from .message import Message
from .session import Stats


class Side(NamedTuple):
    """What one path has that the other lacks: its messages and their totals."""

    messages: tuple[Message, ...]
    stats: Stats

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON data."""
        return values.to_dict(self)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """Make an equal value from what ``to_dict`` returned."""
        return values.from_dict(cls, given)


class Comparison(NamedTuple):
    """Two paths: their last common entry, each side since then, and the files that differ at their ends."""

    parted: int
    left: Side
    right: Side
    files: tuple[FileDiff, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON data."""
        return values.to_dict(self)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """Make an equal value from what ``to_dict`` returned."""
        return values.from_dict(cls, given)

    def __bool__(self) -> bool:
        return bool(self.left.messages or self.right.messages or self.files)

    def __str__(self) -> str:
        files = [f"  {each.path} +{each.lines[0]} -{each.lines[1]}" for each in self.files]
        return "\n".join([f"left:  {self.left.stats}", f"right: {self.right.stats}", *files])

    def _repr_html_(self) -> str:
        names = ("messages", "turns", "tool_calls", "tool_failures", "estimated_tokens", "duration")
        sides = (self.left.stats, self.right.stats)
        rows = [(name, *(getattr(each, name) for each in sides)) for name in names]
        return html.table(repr(self), ("", "left", "right"), rows)

    def __repr__(self) -> str:
        count = words.count(len(self.files), "file")
        return f"<Comparison {len(self.left.messages)} and {len(self.right.messages)} messages, {count}>"
