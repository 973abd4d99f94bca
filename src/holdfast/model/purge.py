"""What a purge removed and what it had to keep."""

from __future__ import annotations

import msgspec


class Purged(msgspec.Struct, frozen=True):
    """What is gone for good, and what stays because sessions forked from it need it."""

    sessions: tuple[str, ...] = ()
    entries: int = 0
    blobs: int = 0
    kept_entries: int = 0
    needed_by: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"{len(self.sessions)} sessions, {self.entries} entries and {self.blobs} blobs erased"
        if self.kept_entries:
            text += f"; {self.kept_entries} entries kept for {', '.join(self.needed_by)}"
        return text
