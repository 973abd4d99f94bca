"""The results of an export and of an import."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from . import Portable, words
from .copied import Copied


class Exported(Portable, msgspec.Struct, frozen=True):
    """What an export wrote. ``path`` is None for an open file, ``entries`` and ``lines`` are None for a document.

    ``secrets`` counts likely secrets by kind: those in the lines, or those masked or kept in a document.
    """

    path: str | None
    format: str
    sessions: int
    entries: int | None
    lines: int | None
    bytes: int
    secrets: dict[str, int]

    def __str__(self) -> str:
        size = f"{self.bytes:,} bytes" if self.lines is None else f"{self.lines:,} lines"
        where = "" if self.path is None else f"{self.path}: "
        likely = f"; likely secrets: {said(self.secrets)}" if self.secrets else ""
        return f"{where}{words.count(self.sessions, 'session')}, {size}{likely}"

    def __repr__(self) -> str:
        return f"<Exported {self.format} {self}>"


class Loaded(Portable, msgspec.Struct, frozen=True):
    """What a file or a mirror contained, and what of it is new here.

    ``sessions`` holds the ids of all its sessions, ``new`` of those that were not here before. ``copied`` is None for a
    dry run. ``renamed`` maps sessions whose name was taken to their new names. A session from a mirror gets a new id:
    ``mirrored`` maps it to the original one.
    """

    sessions: tuple[str, ...]
    new: tuple[str, ...]
    copied: Copied | None
    renamed: dict[str, str]
    dry_run: bool
    mirrored: dict[str, str] = {}

    def __str__(self) -> str:
        count = f"{words.count(len(self.sessions), 'session')}, {len(self.new)} new"
        if self.dry_run:
            return f"{count}; dry run: nothing was changed"
        names = "".join(f"; {each} is named {name!r} here" for each, name in self.renamed.items())
        return f"{count}: {self.copied}{names}"

    def __repr__(self) -> str:
        return f"<Loaded {self}>"


def said(counts: Mapping[str, int]) -> str:
    """Format the counts of secrets by kind: 2 AWS keys, 1 password."""
    ordered = sorted(counts.items(), key=lambda each: -each[1])
    return ", ".join(f"{number} {name}{'s' if number > 1 else ''}" for name, number in ordered)
