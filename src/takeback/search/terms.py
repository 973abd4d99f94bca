"""Text to terms: the one tokenizer, for every engine, for what is stored and for what is asked.

Words of alphabets that put spaces between them (Latin, Greek, Cyrillic, Armenian) are terms as they stand, without case
and accents; every other sign ends a word, so ``pool_close`` and ``src/pool.py`` are the terms of their parts, one after
the other. Everything else (Chinese, Japanese, Korean, Thai, Arabic, Hebrew, the scripts of India, emoji) becomes pairs
of neighbouring characters, and behind the last pair of a run its last character. So any part of such a text, down to
one character, is a run of terms: a pair, several pairs in a row, or the beginning of a pair.

Terms hold letters and digits only. ``field`` makes terms that no text has, for what filters ask.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple
from unicodedata import category, combining, decimal, is_normalized, normalize
from zlib import crc32

VERSION = 4  # of the terms: an index that was made with others is made anew

_PAIRED = 0x590  # characters from here on become pairs
LONGEST = 64  # characters of a word; the rest is cut off, in what is asked too
_ascii_words = re.compile(r"[a-z0-9]+").findall
# Said by what is below 0x590: a class that goes up to the last character takes ten milliseconds to compile.
_RUN = re.compile(r"[\x00-\x1f!-\u058f]+|[^\x00-\u058f]+")
_SPECIAL = {"ł": "l", "ø": "o", "đ": "d", "ı": "i", "æ": "ae", "œ": "oe", "þ": "th", "ð": "d", "ß": "ss", "ʼ": " "}
_KEPT = ("L", "N", "M", "So")  # letters, numbers, marks that are part of a letter, emoji
_FIELDS = {
    name: chr(0xE000 + number)
    for number, name in enumerate(("role", "kind", "tool", "agent", "workspace", "session", "scope"))
}
_SIGNS = "\uff9e\uff9f\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"  # voice marks of Kana, skin tones
SCOPE_END = chr(0xE000 + len(_FIELDS))


class _Folding(dict[int, str]):
    """Maps a character to what is left of it: lower case, without accents; a space if it separates words."""

    def __init__(self) -> None:
        self.odd = set[str]()  # characters that become none, or several

    def __missing__(self, code: int) -> str:
        found = self[code] = _folded(chr(code))
        if len(found) != 1:
            self.odd.add(chr(code))
        return found


def _folded(char: str) -> str:
    if "\ud800" <= char <= "\udfff":
        return " "
    kind = category(char)
    if kind == "Nd":
        return str(decimal(char))
    if kind == "Cf" or _is_accent(char):
        return ""
    plain = "".join(each for each in normalize("NFKD", char) if not _is_accent(each))
    if not plain or (ord(max(plain)) >= _PAIRED and not 0x590 <= ord(plain[0]) < 0x700):
        plain = normalize("NFKC", char)  # put together again, as Hangul and Kana are written
    return "".join(map(_kept, "".join(_SPECIAL.get(each, each) for each in plain.casefold())))


def _is_accent(char: str) -> bool:
    """Whether a sign belongs to what is before it and may be left out: accents, vowel points, which form is shown."""
    code = ord(char)
    accent = combining(char) > 0 and (code < 0x370 or 0x590 <= code < 0x700)
    form = 0xFE00 <= code < 0xFE10 or 0xE0100 <= code < 0xE01F0  # an emoji in colour, one of the forms of a character
    return accent or form or char == "\u0640"


def _kept(char: str) -> str:
    code = ord(char)
    if code < _PAIRED:
        return char if char.isalnum() else " "
    return char if category(char).startswith(_KEPT) else " "


_FOLDING = _Folding()


def fold(text: str) -> str:
    """Return a text in lower case, without accents, with spaces for what separates words."""
    return _composed(_composed(text).translate(_FOLDING))


def _composed(text: str) -> str:
    """Put letters and their signs together; folded text needs it too, since half-width Kana have signs of their own."""
    return text if is_normalized("NFC", text) else normalize("NFC", text)


def terms(text: str) -> list[str]:
    """Return the terms of a text, in order."""
    if text.isascii():
        found = _ascii_words(text.lower())
        if len(text) <= LONGEST:
            return found
        return [word if len(word) <= LONGEST else word[:LONGEST] for word in found]
    return [term for run in _RUN.findall(fold(text)) for term in _of_run(run)]


def _of_run(run: str) -> Iterable[str]:
    if ord(run[0]) < _PAIRED:
        return (run[:LONGEST],)
    return [run[at : at + 2] for at in range(len(run))]  # the last one is a single character


class AskedTerms(NamedTuple):
    """What a piece of a query stands for: terms in a row; with ``open`` the last one is the beginning of a term."""

    terms: tuple[str, ...]
    open: bool = False


def asked(text: str) -> AskedTerms | None:
    """Return what a word of a query, or a phrase, stands for; None if it holds nothing to search for."""
    runs = _RUN.findall(fold(text))
    if not runs:
        return None
    found, last = [term for run in runs[:-1] for term in _of_run(run)], runs[-1]
    if ord(last[0]) < _PAIRED:
        return AskedTerms((*found, last[:LONGEST]))
    if len(last) == 1:
        return AskedTerms((*found, last), open=True)
    # Where the text goes on, there is no single last character: the pairs alone are looked for.
    return AskedTerms((*found, *(last[at : at + 2] for at in range(len(last) - 1))))


def is_word(term: str) -> bool:
    """Whether a term is a word of its own, not a pair of characters and not made by ``field``."""
    return ord(term[0]) < _PAIRED


@cache
def field(name: str, value: str) -> str:
    """Return the term that stands for a field with a value."""
    plain = value.isascii() and value.isalnum() and value.islower() and len(value) <= LONGEST
    return _FIELDS[name] + (value if plain else "0" + _digest(value))


def _digest(value: str) -> str:
    """Return 64 bits that stand for a value; a hash that is proof against attacks would load OpenSSL for nothing."""
    data = value.encode("utf-8", "surrogatepass")
    return f"{crc32(data):08x}{crc32(data[::-1], len(data)):08x}"


def of_scope(scope: str) -> str:
    """Return what every term of a scope begins with where one table has those of all; it ends as nothing else does."""
    return field("scope", scope) + SCOPE_END if scope else ""


def session(number: int) -> str:
    """Return the term that stands for a session, by its local number."""
    return f"{_FIELDS['session']}{number:x}"


# ---------------------------------------------------------------------- places in a text


def runs(text: str) -> list[str]:
    """Return the words of a text, folded, and the runs of characters that become pairs."""
    return [run[:LONGEST] if is_word(run) else run for run in _RUN.findall(fold(text))]


def aligned(text: str) -> tuple[str, Sequence[int]]:
    """Return a text folded, and where in the text each character of that comes from."""
    folded = text.translate(_FOLDING)
    if not is_normalized("NFC", folded):
        return _aligned_and_composed(text)
    if _FOLDING.odd.isdisjoint(text):
        return folded, range(len(text))
    return folded, [at for at, char in enumerate(text) for _ in _FOLDING[ord(char)]]


def _aligned_and_composed(text: str) -> tuple[str, Sequence[int]]:
    folded, starts = [""], list[int]()
    for at, char in enumerate(text):
        for each in _FOLDING[ord(char)]:
            folded += normalize("NFC", folded.pop() + each)
            starts += [at] * (len(folded) - len(starts))
    return "".join(folded), starts


def end_of(text: str, at: int) -> int:
    """Return where a character ends that begins before a place: behind the accents, joiners and skin tones of it."""
    while at < len(text) and (not _FOLDING[ord(text[at])] or combining(text[at]) or text[at] in _SIGNS):
        at += 1
    return at
