"""Options as data: what a flag is called, what it takes and where its value goes, declared once and read twice.

``params`` turns them into click parameters; ``plain_arguments`` parses plain command lines from them without loading
click. One function parses each kind of value, so both ways lead to the same call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec


class Kind:
    """A kind of value: ``read`` parses it, or raises ``ValueError`` with a message for people."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name, self.read = name, read


class OneOf(Kind):
    """One of a few words."""

    def __init__(self, *words: str) -> None:
        super().__init__("choice", self._read)
        self.words = words

    def _read(self, text: str) -> str:
        if text not in self.words:
            raise ValueError(f"{text!r} is not one of {', '.join(self.words)}")
        return text


class Whole(Kind):
    """A whole number within bounds."""

    def __init__(self, low: int, high: int) -> None:
        super().__init__("number", self._read)
        self.low, self.high = low, high

    def _read(self, text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 19 and self.low <= int(text) <= self.high):
            raise ValueError(f"{text!r} is not a whole number from {self.low} to {self.high}")
        return int(text)


TEXT = Kind("text", str)


class Option(msgspec.Struct, frozen=True):
    """A flag, or with a ``kind`` an option with a value; ``to`` names the parameter or setting that receives it."""

    names: tuple[str, ...]
    to: str
    kind: Kind | None = None
    help: str = ""
    default: Any = None
    many: bool = False  # may be repeated; all values count
    metavar: str | None = None
    sets: bool = True  # what a flag sets

    @property
    def absent(self) -> Any:
        """The value of an option that was not given."""
        if self.many:
            return ()
        return False if self.kind is None else self.default


def flag(*names: str, to: str, help: str, sets: bool = True) -> Option:
    """Describe a flag."""
    return Option(names, to, help=help, sets=sets)


class Verb(msgspec.Struct, frozen=True):
    """A read-only verb: the function that runs it, and the options it takes."""

    run: Callable[..., Any]
    options: tuple[Option, ...] = ()
    ref: bool = False  # whether it takes a ref
