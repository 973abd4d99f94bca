"""Options as data: what a flag is called, what it takes and where its value goes, said once and read twice.

``params`` makes click's parameters of them, ``quick`` reads plain command lines by them without loading click. What a
value means is one function, so that both ways give the same call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec


class Kind:
    """What a value may be: ``read`` gives it from text, or raises ``ValueError`` with a sentence for people."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name, self.read = name, read


class Choice(Kind):
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
            raise ValueError(f"{text!r} is no whole number from {self.low} to {self.high}")
        return int(text)


TEXT = Kind("text", str)


class Option(msgspec.Struct, frozen=True):
    """A flag, or with a kind an option that takes a value; ``to`` names the parameter or setting it goes to."""

    names: tuple[str, ...]
    to: str
    kind: Kind | None = None
    help: str = ""
    default: Any = None
    many: bool = False  # it may be given several times, and all count
    metavar: str | None = None
    sets: bool = True  # what a flag sets

    @property
    def absent(self) -> Any:
        """The value of an option that is not given."""
        if self.many:
            return ()
        return False if self.kind is None else self.default


def flag(*names: str, to: str, help: str, sets: bool = True) -> Option:
    """Describe a flag."""
    return Option(names, to, help=help, sets=sets)


class Verb(msgspec.Struct, frozen=True):
    """A verb that only looks: what it does with a frame and its parameters, and what it may be given."""

    run: Callable[..., Any]
    options: tuple[Option, ...] = ()
    ref: bool = False  # whether it takes a ref
