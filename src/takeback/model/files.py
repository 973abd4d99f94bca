"""Files as people see them: what a rewind does to a path, how a path changed, what was at a path."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple, Self

from ..clock import to_datetime
from . import html, values, words

_LARGEST_TEXT = 1 << 20


class FileChange(NamedTuple):
    """What a rewind does to a path, and who changed the path last.

    If it goes back to what somebody else made of it after the target, ``left_by`` says who.
    """

    path: str
    action: str
    by: str = ""
    calls: tuple[str, ...] = ()
    left_by: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON data."""
        return values.to_dict(self)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """Make an equal value from what ``to_dict`` returned."""
        return values.from_dict(cls, given)

    @property
    def about(self) -> str:
        """Describe who changed the path, and whose version of it comes back."""
        back = f"back to how {self.left_by} left it" if self.left_by else ""
        return "; ".join(each for each in (f"changed by {self.by}" if self.by else "", back) if each)

    def __repr__(self) -> str:
        return f"<FileChange {self.action} {words.plain(self.path)}>"


class FileState(NamedTuple):
    """What is at a path: ``kind`` is file, link, directory, missing or unreadable (``reason`` says why)."""

    kind: str
    data: bytes | None = None
    mode: int | None = None
    target: str | None = None
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON data."""
        return values.to_dict(self)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """Make an equal value from what ``to_dict`` returned."""
        return values.from_dict(cls, given)

    @property
    def text(self) -> str | None:
        """The content as text; None if it is not text."""
        return _text(self.data) if self.data is not None else self.target

    def __repr__(self) -> str:
        size = "" if self.data is None else f" {len(self.data)} B"
        return f"<FileState {self.kind}{size}>"


class FileDiff(NamedTuple):
    """A path with what was there before and after."""

    path: str
    before: FileState
    after: FileState
    at_ms: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON data."""
        return values.to_dict(self)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """Make an equal value from what ``to_dict`` returned."""
        return values.from_dict(cls, given)

    @property
    def created_at(self) -> datetime:
        """When the state before was captured."""
        return to_datetime(self.at_ms)

    @property
    def lines(self) -> tuple[int, int]:
        """The number of added and removed lines; (0, 0) if it is not text."""
        begins = [line[:1] for line in self.text.split("\n")[2:]]
        return begins.count("+"), begins.count("-")

    @property
    def text(self) -> str:
        """The difference as a unified diff, or in words if it is not text."""
        import difflib

        old, new = _shown(self.before), _shown(self.after)
        if old is None or new is None:
            return f"{self.path}: {_words(self.before)} -> {_words(self.after)}\n"
        lines = difflib.unified_diff(_lines(old), _lines(new), f"a/{self.path}", f"b/{self.path}")
        found = "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
        if self.before.mode != self.after.mode and None not in (self.before.mode, self.after.mode):
            found += f"mode {self.before.mode:o} -> {self.after.mode:o} {self.path}\n"
        if not found and self.before != self.after:  # an empty file was added or removed
            found = f"{self.path}: {_words(self.before)} -> {_words(self.after)}\n"
        return found

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<FileDiff {words.plain(self.path)}: {self.before.kind} -> {self.after.kind}>"


def _lines(text: str) -> list[str]:
    """Split a text where lines end for git; ``splitlines`` also does so at form feeds and separators of Unicode."""
    *whole, last = text.split("\n")
    return [*(f"{line}\n" for line in whole), *([last] if last else [])]


def _text(data: bytes) -> str | None:
    if b"\0" in data[:8000] or len(data) > _LARGEST_TEXT:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _shown(state: FileState) -> str | None:
    """Return a state as text to compare; None if it has no text."""
    if state.kind == "missing":
        return ""
    return state.text if state.kind in ("file", "link") else None


def _words(state: FileState) -> str:
    if state.data is None:
        return state.reason or state.kind
    return f"{words.count(len(state.data), 'byte')}"


class Diff(NamedTuple):
    """What differs between two points: files, and messages that only one of the two paths has."""

    files: tuple[FileDiff, ...]
    left: tuple[str, ...]  # messages that only the first path has, one line each
    right: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON data."""
        return values.to_dict(self)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """Make an equal value from what ``to_dict`` returned."""
        return values.from_dict(cls, given)

    def __bool__(self) -> bool:
        return bool(self.files or self.left or self.right)

    def __str__(self) -> str:
        said = [*(f"- {line}\n" for line in self.left), *(f"+ {line}\n" for line in self.right)]
        return "".join([*said, *(each.text for each in self.files)])

    def _repr_html_(self) -> str:
        rows = {each.path: f"+{each.lines[0]} -{each.lines[1]}" for each in self.files}
        return html.fields(repr(self), rows)

    def __repr__(self) -> str:
        messages = words.count(len(self.left) + len(self.right), "message")
        return f"<Diff {words.count(len(self.files), 'file')}, {messages}>"
