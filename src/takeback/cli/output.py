"""The only way to stdout: text for people, one JSON document, JSON lines, chosen fields, or only ids.

A verb passes plain values and a function that formats them for people; this module decides which of the two to use.
Everything that comes from a store is escaped before it reaches a terminal: ``line`` for names and titles, ``block``
for multi-line text. JSON is ASCII, so it can neither control a terminal nor fail on a name that is not UTF-8.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import msgspec

from ..model import words
from ..shell.failures import USAGE, Stop
from .settings import Settings

Document = Mapping[str, Any]
_LEAST = 20  # columns left of a cell that is cut to fit
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36", "match": "1;33"}
line = words.plain


class Cell(msgspec.Struct, frozen=True):
    """A table cell with its style."""

    text: str
    style: str = ""


def block(text: str) -> list[str]:
    """Split text into lines and escape each for a terminal; tabs stay."""
    return ["\t".join(map(words.plain, each.split("\t"))) for each in text.split("\n")]


class Output:
    """Where results go."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.is_terminal = sys.stdout.isatty()
        self.colored = _colored(settings.color, self.is_terminal)

    @property
    def for_people(self) -> bool:
        """Whether the result is text for people rather than programs."""
        chosen = self._settings
        return not (chosen.json or chosen.jsonl or chosen.quiet or chosen.fields)

    @property
    def utc(self) -> bool:
        """Whether times are shown in UTC."""
        return self._settings.utc

    def paint(self, text: str, style: str) -> str:
        """Colour already escaped text, if colours are on."""
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if style and self.colored else text

    def mark(self, symbol: str, plain: str) -> str:
        """Return a symbol, or its plain stand-in if stdout cannot encode it."""
        try:
            symbol.encode(sys.stdout.encoding or "ascii")
        except UnicodeEncodeError:
            return plain
        return symbol

    # ------------------------------------------------------------------ results

    def items(
        self,
        name: str,
        items: Iterable[Document],
        text: Callable[[], Iterable[str]],
        *,
        about: Document | None = None,
        long: bool = False,
    ) -> None:
        """Write many results; ``name`` names the list and its schema, ``about`` adds fields to the document."""
        chosen = self._settings
        if chosen.json:
            self._write_json({"schema": f"takeback.{name}/1", **(about or {}), name: [*map(self._picked, items)]})
        elif chosen.jsonl:
            self._stream(items, lambda each: _compact(self._picked(each)))
        elif chosen.quiet or chosen.fields:
            self._stream(items, self._values)
        else:
            self.text(text(), long=long)

    def one(self, name: str, item: Document, text: Callable[[], Iterable[str]], *, long: bool = False) -> None:
        """Write one result."""
        chosen = self._settings
        if chosen.json:
            self._write_json({"schema": f"takeback.{name}/1", **self._picked(item)})
        elif chosen.jsonl:
            sys.stdout.write(_compact(self._picked(item)) + "\n")
        elif chosen.quiet or chosen.fields:
            sys.stdout.write(self._values(item) + "\n")
        else:
            self.text(text(), long=long)

    def _write_json(self, document: Document) -> None:
        import json

        json.dump(document, sys.stdout, indent=2)
        sys.stdout.write("\n")

    def _stream(self, items: Iterable[Document], write: Callable[[Document], str]) -> None:
        for each in items:
            sys.stdout.write(write(each) + "\n")

    def _picked(self, item: Document) -> Document:
        wanted = self._settings.fields
        unknown = [name for name in wanted if name not in item]
        if unknown:
            raise Stop(f"no such field: {unknown[0]!r}; choose from: {', '.join(item)}", USAGE)
        return {name: item[name] for name in wanted} if wanted else item

    def _values(self, item: Document) -> str:
        """Format the chosen fields, separated by tabs; with ``-q`` alone, the id."""
        if self._settings.fields:
            return "\t".join(_plain_value(value) for value in self._picked(item).values())
        return _plain_value(item.get("id", next(iter(item.values()), "")))

    # ------------------------------------------------------------------ text

    def text(self, lines: Iterable[str], *, long: bool = False) -> None:
        """Write lines; long text goes through a pager on a terminal."""
        found = iter(lines)
        if long and self.is_terminal and not self._settings.no_pager:
            height = _terminal_size()[1] - 1
            first = [*islice(found, height)]
            if len(first) == height and _page(chain(first, found)):
                return
            found = chain(first, found)
        for each in found:
            sys.stdout.write(each + "\n")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str | Cell]]) -> Iterator[str]:
        """Format a table; ``<NAME`` aligns a column left, ``>NAME`` right.

        A column whose name ends in ``?`` is left out if all its cells are empty. On a terminal the last named column is
        cut, so that a row still fits on one line together with the hint behind it.
        """
        cells = [[_cell(each) for each in row] for row in rows]
        used = [at for at, name in enumerate(columns) if not name.endswith("?") or any(row[at].text for row in cells)]
        names = [Cell(columns[at].strip("<>?"), "dim") for at in used]
        shown = [names, *([row[at] for at in used] for row in cells)]
        widths = [max(width(row[at].text) for row in shown) for at in range(len(used))]
        right = [columns[at].startswith(">") for at in used]
        gives, edge = max(at for at, name in enumerate(names) if name.text), _terminal_size()[0]
        if self.is_terminal and not right[gives] and sum(widths) + 2 * (len(widths) - 1) > edge:
            shown = [_fitted(row, gives, edge - sum(widths[:gives]) - 2 * gives) for row in shown]
            widths[gives] = 0  # each row was cut on its own: padding to a common width would wrap it again
        return (self._row(row, widths, right) for row in shown)

    def _row(self, row: Sequence[Cell], widths: Sequence[int], right: Sequence[bool]) -> str:
        parts = list[str]()
        for at, cell in enumerate(row):
            space = " " * (widths[at] - width(cell.text))
            padded = self.paint(cell.text, cell.style) if cell.text else ""
            parts.append(f"{space}{padded}" if right[at] else padded if at == len(row) - 1 else f"{padded}{space}")
        return "  ".join(parts).rstrip()


def _fitted(row: Sequence[Cell], gives: int, room: int) -> list[Cell]:
    """Cut one cell so that the row fits, but never below a readable minimum, even if the row then wraps."""
    cell, behind = row[gives], row[gives + 1 :]
    left = room - sum(2 + width(each.text) for each in behind if each.text)
    return [*row[:gives], Cell(cut(cell.text, max(left, _LEAST)), cell.style), *behind]


def _cell(given: str | Cell) -> Cell:
    cell = given if isinstance(given, Cell) else Cell(given)
    return Cell(line(cell.text), cell.style)


def width(text: str) -> int:
    """Count the terminal columns that a text takes."""
    if text.isascii():
        return len(text)
    import unicodedata

    wide = sum(unicodedata.east_asian_width(each) in "WF" for each in text)
    return len(text) + wide - sum(unicodedata.combining(each) > 0 for each in text)


def cut(text: str, most: int) -> str:
    """Cut a text to ``most`` columns, ending in three dots if anything was cut."""
    if width(text) <= most:
        return text
    while text and width(text) > max(most - 3, 1):
        text = text[:-1]
    return text.rstrip() + "..."


def _plain_value(value: Any) -> str:
    if value is None:
        return ""
    return line(value) if isinstance(value, str) else _compact(value)


def _compact(value: Any) -> str:
    import json

    return json.dumps(value, separators=(",", ":"))


def _terminal_size() -> tuple[int, int]:
    """Return columns and lines, from the environment or the terminal; ``shutil`` would do, but is slow to import."""
    try:
        columns, lines = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        columns, lines = 0, 0
    return _said("COLUMNS") or columns or 80, _said("LINES") or lines or 24


def edge() -> int:
    """Return how many columns the terminal has."""
    return _terminal_size()[0]


def _said(name: str) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0


def _colored(choice: str, is_terminal: bool) -> bool:
    if choice != "auto":
        return choice == "always"
    return is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _page(lines: Iterable[str]) -> bool:
    """Pipe lines to the user's pager, or to less; False if neither is installed."""
    import shlex
    import shutil
    import subprocess

    command = shlex.split(os.environ.get("TAKEBACK_PAGER") or os.environ.get("PAGER") or "less")
    if not command or command[0] == "cat" or shutil.which(command[0]) is None:
        return False
    pager = subprocess.Popen(
        command, stdin=subprocess.PIPE, text=True, errors="backslashreplace", env={"LESS": "FRX", **os.environ}
    )
    assert pager.stdin is not None
    try:
        with pager.stdin as pipe:
            for each in lines:
                pipe.write(each + "\n")
    except BrokenPipeError:  # the user quit the pager early
        pass
    except KeyboardInterrupt:
        pass  # the pager owns the terminal and decides itself what Ctrl-C means
    pager.wait()
    return True
