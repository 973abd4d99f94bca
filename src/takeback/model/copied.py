"""The result of copying a store, and its progress while it runs."""

from __future__ import annotations

import msgspec

from . import Portable, words

_COUNTED = ("session", "entry", "agent", "checkpoint", "operation", "document", "blob")


class Amounts(Portable, msgspec.Struct, frozen=True):
    """How many of each kind of record; ``bytes`` counts content, in entries and in blobs."""

    sessions: int = 0
    entries: int = 0
    agents: int = 0
    checkpoints: int = 0
    operations: int = 0
    documents: int = 0
    blobs: int = 0
    bytes: int = 0

    def __str__(self) -> str:
        counts = [(getattr(self, words.plural(name)), name) for name in _COUNTED]
        said = [words.count(number, name) for number, name in counts if number] or ["nothing"]
        return f"{', '.join(said)}, {self.bytes / 1e6:,.1f} MB" if self.bytes else ", ".join(said)


class Copied(Amounts, frozen=True):
    """What this call copied; ``already`` is what the destination already had, where ``bytes`` counts only blobs.

    ``left_out`` describes what could not be copied and is not needed.
    """

    already: Amounts = Amounts()
    seconds: float = 0.0
    left_out: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"{super().__str__()} copied in {self.seconds:.1f} s"
        if any(msgspec.structs.astuple(self.already)):
            text += f"; already there: {self.already}"
        return "".join([text, *(f"; left out: {each}" for each in self.left_out)])

    def __repr__(self) -> str:
        return f"<Copied {self}>"


class Copying(Portable, msgspec.Struct, frozen=True):
    """The progress of a copy: its phase, and what is done of how much, counting what was already there."""

    phase: str
    sessions: int = 0
    sessions_total: int = 0
    entries: int = 0
    entries_total: int = 0
    bytes: int = 0
    bytes_total: int = 0

    def __str__(self) -> str:
        parts = [
            f"{name} {getattr(self, name):,}/{getattr(self, f'{name}_total'):,}" for name in ("sessions", "entries")
        ]
        return f"{self.phase}: {', '.join(parts)}, {self.bytes / 1e6:,.1f}/{self.bytes_total / 1e6:,.1f} MB"
