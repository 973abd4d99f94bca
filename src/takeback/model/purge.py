"""What a purge removed and what it had to keep."""

from __future__ import annotations

import msgspec

from . import Portable, words


class Pruned(Portable, msgspec.Struct, frozen=True):
    """Content that nothing needs any more: erased, or in a dry run to be erased."""

    blobs: int = 0
    bytes: int = 0
    dry_run: bool = True

    def __str__(self) -> str:
        would = "would be erased" if self.dry_run else "erased"
        return f"{words.count(self.blobs, 'content')}, {words.count(self.bytes, 'byte')} {would}"


class Purged(Portable, msgspec.Struct, frozen=True):
    """What was erased permanently, and what stays because sessions forked from it need it."""

    sessions: tuple[str, ...] = ()
    entries: int = 0
    blobs: int = 0
    kept_entries: int = 0
    needed_by: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [words.count(len(self.sessions), "session"), words.count(self.entries, "entry")]
        text = f"{', '.join(parts)} and {words.count(self.blobs, 'blob')} erased"
        if self.kept_entries:
            text += f"; {words.count(self.kept_entries, 'entry')} kept for {', '.join(self.needed_by)}"
        return text
