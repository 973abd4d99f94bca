"""What a redaction erases, or would erase."""

from __future__ import annotations

import msgspec

from . import Portable, words


class RedactedEntry(Portable, msgspec.Struct, frozen=True):
    """An entry whose content is erased; ``role`` is that of a message, else None."""

    id: str
    seq: int
    kind: str
    role: str | None = None


class ForkReader(Portable, msgspec.Struct, frozen=True):
    """A session that reads entries of another one through a fork."""

    id: str
    name: str | None = None


class Redaction(Portable, msgspec.Struct, frozen=True):
    """Which entries lose their content, the tool calls among them, and the forks that read them.

    ``bytes`` is the size of that content; ``applied`` whether it was erased, or only looked for.
    """

    entries: tuple[RedactedEntry, ...] = ()
    calls: tuple[str, ...] = ()
    forks: tuple[ForkReader, ...] = ()
    bytes: int = 0
    applied: bool = False

    def __str__(self) -> str:
        done = "erased from" if self.applied else "would be erased from"
        text = f"{words.count(self.bytes, 'byte')} {done} {words.count(len(self.entries), 'entry')}"
        if self.calls:
            text += f", {words.count(len(self.calls), 'tool call')} among them"
        if self.forks:
            text += f"; also read by {', '.join(each.name or each.id for each in self.forks)}"
        return text

    def __repr__(self) -> str:
        return f"<Redaction: {self}>"
