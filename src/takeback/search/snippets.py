"""The part of a text that a hit shows: around the most words that were looked for, each match between « and »."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from unicodedata import normalize

from . import terms
from .query import QueryPiece

LENGTH = 160  # characters, about
_BEFORE = 40
_MOST = 500  # matches of a text that are looked at


class Marker:
    """Finds the words of a query in texts."""

    def __init__(self, pieces: Sequence[QueryPiece], *, parts: bool) -> None:
        self._pattern = re.compile("|".join(f"({_pattern(piece)})" for piece in pieces)) if pieces else None
        # Whether the match of each must begin and end where words do.
        self._whole = [_edges(piece, whole=not parts or piece.exact) for piece in pieces]

    def snippet(self, texts: Sequence[str]) -> str:
        """Return the best part of the texts, with its matches marked; without a match the beginning of the first."""
        best, chosen = (0, 0), None
        texts = [normalize("NFC", text) for text in texts]  # as ``fold`` does: an accent belongs to its letter
        for text in texts:
            spans = self._spans(text)
            if not spans:
                continue
            first, worth = _densest(spans)
            if worth > best:
                best, chosen = worth, (text, spans, first)
        if chosen is None:
            return _shown(next(iter(texts), ""), [], 0)
        return _shown(*chosen)

    def _spans(self, text: str) -> list[tuple[int, int, int]]:
        """Return where the words are in a text, and which one is where."""
        if self._pattern is None:
            return []
        folded, starts = terms.aligned(text)
        found = list[tuple[int, int, int]]()
        for match in self._pattern.finditer(folded):
            low, high = match.span()
            which = match.lastindex or 1
            begins, ends = self._whole[which - 1]
            if not (begins and low and _is_letter(folded[low - 1])) and not (
                ends and _is_letter(folded[high : high + 1])
            ):
                found.append((starts[low], terms.end_of(text, starts[high - 1] + 1), which))
            if len(found) == _MOST:
                break
        return found


def _pattern(piece: QueryPiece) -> str:
    """Write a piece as a pattern for folded text, where a space stands for everything between words."""
    runs = terms.runs(piece.text)
    said = re.escape(runs[0])
    for before, run in pairwise(runs):
        said += (" +" if terms.is_word(before) == terms.is_word(run) else " *") + re.escape(run)
    return said


def _edges(piece: QueryPiece, *, whole: bool) -> tuple[bool, bool]:
    """Return whether a match must begin, and end, where a word does."""
    runs = terms.runs(piece.text)
    return whole and terms.is_word(runs[0]), whole and terms.is_word(runs[-1]) and not piece.words.open


def _is_letter(char: str) -> bool:
    """Whether a character of folded text belongs to a word of its own."""
    return char not in ("", " ") and terms.is_word(char)


def _densest(spans: Sequence[tuple[int, int, int]]) -> tuple[int, tuple[int, int]]:
    """Return at which match to begin, and what that is worth: different words first, then matches."""
    best, chosen = (0, 0), 0
    for first, (start, _, _) in enumerate(spans):
        near = [each for each in spans[first : first + 50] if each[1] <= start + LENGTH - _BEFORE]
        worth = len({which for _, _, which in near}), len(near)
        if worth > best:
            best, chosen = worth, first
    return chosen, best


def _shown(text: str, spans: Sequence[tuple[int, int, int]], first: int) -> str:
    low = max(0, spans[first][0] - _BEFORE) if spans else 0
    high = min(len(text), max(low + LENGTH, spans[first][1] if spans else 0))
    if low and (space := text.find(" ", low, spans[first][0])) > 0:
        low = space + 1
    if high < len(text) and (space := text.rfind(" ", low + LENGTH // 2, high)) > 0 and space >= _end(spans, first):
        high = space
    said, at = "", low
    for start, end, _ in spans:
        if start < at or end > high:
            continue
        said, at = f"{said}{text[at:start]}«{text[start:end]}»", end
    # Lines stay apart, or code and tables could not be read.
    lines = (" ".join(each.split()) for each in (said + text[at:high]).replace("\r", "\n").split("\n"))
    return f"{'…' if low else ''}{' ⏎ '.join(filter(None, lines))}{'…' if high < len(text) else ''}"


def _end(spans: Sequence[tuple[int, int, int]], first: int) -> int:
    return spans[first][1] if spans else 0
