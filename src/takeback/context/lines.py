"""Foreign text inside our documents: on one line, cut to a length, and unable to pass for our own words."""

from __future__ import annotations

import re
import unicodedata

from ..model.session import short_title

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>()#+!|~&:@$-]|(?<=www)\.)")
_JOINERS = "\u200c\u200d"  # between the letters of some scripts, and within emoji
_LOOKED_AT = 8  # times the wanted length: the rest of a long text is not read


def one_line(text: str, limit: int) -> str:
    """Return a text on one line, without invisible characters, cut to ``limit`` characters."""
    seen = "".join(letter for letter in text.lstrip()[: _LOOKED_AT * limit + 64] if _shows(letter))
    more = len(text) > len(seen) and len(seen) >= limit
    return short_title(seen + (" ..." if more else ""), limit, ellipsis=True) or ""


def _shows(letter: str) -> bool:
    """Whether a character is visible or space; direction marks and tags could make text read as something else."""
    return letter.isspace() or letter in _JOINERS or unicodedata.category(letter) not in ("Cc", "Cf")


def escaped(text: str, limit: int) -> str:
    """Return a text on one line, escaped so that it formats nothing in Markdown."""
    return _MARKDOWN.sub(r"\\\1", one_line(text, limit))


def fenced(text: str) -> str:
    """Return a text of many lines as a fenced Markdown block that it cannot close itself."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return "\n".join((fence, *_lines(text), fence))


def visible(text: str) -> str:
    """Return a text of many lines with invisible characters written as escapes."""
    return "\n".join(_lines(text))


def _lines(text: str) -> list[str]:
    lines = text.encode("utf-8", "replace").decode().splitlines()
    return [line if line.isprintable() else "".join(map(_visible, line)) for line in lines]


def _visible(letter: str) -> str:
    """Return a character, or its escape if it is invisible."""
    return letter if letter == "\t" or _shows(letter) else f"\\u{ord(letter):04x}"
