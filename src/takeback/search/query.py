"""What people type into a search: words, "phrases", beginnings*, -without, this OR that.

Nothing that can be typed is a mistake: a sign that means nothing here separates words, as it does in the texts. A word
of several parts (``pool_close``, ``src/pool.py``, ``v1.2.3``) is those parts in a row. What cannot be searched for is
left out and said in ``notes``.

A dash before a word leaves it out, and a command that somebody pasted has such dashes too. So a query with a dash also
knows itself ``verbatim``, as one phrase, which is looked for if nothing else is found.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from . import terms
from .index import TermRun

MOST = 32  # words and phrases of one query
LONGEST = 10_000  # characters
ROW = 64  # terms in a row
_SAID = 8  # words that a note repeats
_EMPTY = "the query is empty"
# A word after two dashes is a flag that somebody pasted, not a word to leave out.
_PIECE = re.compile(r'(?P<minus>(?<!\S)-(?!-))?(?:["“”„](?P<phrase>[^"“”„]*)(?:["“”„]|$)|(?P<word>[^\s"“”„]+))')


class QueryPiece(NamedTuple):
    """A word or a phrase of a query; ``exact`` if it does not stand for parts of words too."""

    text: str
    words: TermRun
    exact: bool


class Query(NamedTuple):
    """A query: each of ``wanted`` must be there, in one of its forms, and none of ``unwanted``."""

    wanted: tuple[tuple[QueryPiece, ...], ...]
    unwanted: tuple[QueryPiece, ...]
    notes: tuple[str, ...] = ()
    dashed: tuple[str, ...] = ()  # the words that a dash leaves out
    verbatim: QueryPiece | None = None  # all of it as one phrase, if a dash leaves out any of it
    nothing: str = ""  # why there is nothing to look for
    by_age: bool = False  # whether the newest come first, whatever else tells matches apart

    @property
    def pieces(self) -> tuple[QueryPiece, ...]:
        """Everything that is looked for."""
        return tuple(piece for group in self.wanted for piece in group)

    @property
    def left_out(self) -> str:
        """What a dash left out, and how to look for it: a note, where there is such a dash."""
        if not self.dashed:
            return ""
        return (
            f"entries with {quoted(self.dashed)} were left out because of the dash;"
            " to search for the text as it stands, put it in double quotes"
        )

    @property
    def only_filters(self) -> bool:
        """Whether no word was typed but what to leave out: filters alone say what to find then."""
        return not self.wanted and (bool(self.unwanted) or self.nothing == _EMPTY)


def parse(text: str) -> Query:
    """Read a query; anything can be read."""
    wanted, unwanted, notes, dashed = list[list[QueryPiece]](), list[QueryPiece](), list[str](), list[str]()
    if len(text) > LONGEST:
        text = text[:LONGEST]
        notes.append(f"only the first {LONGEST:,} characters of the query were used")
    seen, alternative, negative, left_out = set[tuple[bool, TermRun]](), False, False, 0
    for found in _PIECE.finditer(text):
        word = found["word"]
        if word == "OR" and wanted and not found["minus"]:
            alternative = True
            continue
        if word in ("AND", "NOT") and not found["minus"]:
            negative = word == "NOT"
            continue
        without, negative = bool(found["minus"]) or negative, False
        piece = _piece(found)
        if piece is not None and len(piece.words.terms) == ROW:
            notes.append(f"of {piece.text[:20] + '...'!r} only the beginning was looked for")
        if piece is None or (without, piece.words) in seen:
            alternative = False
            continue
        if len(seen) == MOST:
            left_out += 1
            continue
        seen.add((without, piece.words))
        if without:
            unwanted.append(piece)
            dashed += [piece.text] if found["minus"] else []
        elif alternative:
            wanted[-1].append(piece)
        else:
            wanted.append([piece])
        alternative = False
    if "(" in text and "OR" in text.split():
        notes.append("parentheses have no meaning here: OR joins the words right before and after it")
    if left_out:
        notes.append(f"only the first {MOST} words of the query were used")
    verbatim = phrase(text) if wanted and dashed else None
    nothing = "" if wanted else _why_nothing(text, unwanted)
    return Query(tuple(map(tuple, wanted)), tuple(unwanted), tuple(notes), tuple(dashed), verbatim, nothing)


def _why_nothing(text: str, unwanted: Sequence[QueryPiece]) -> str:
    if not text.strip():
        return _EMPTY
    if unwanted:
        return "the query only says what to leave out"
    if terms.asked(text) is None:
        return "the query has no letters or digits"
    return "AND and NOT are not words to look for; put them in double quotes"


def phrase(text: str) -> QueryPiece | None:
    """Return a whole text as one phrase; None if it holds nothing to search for."""
    asked = terms.asked(text)
    return None if asked is None else QueryPiece(text.strip(), _cut(asked.terms, asked.open), exact=True)


def _piece(found: re.Match[str]) -> QueryPiece | None:
    text = found["phrase"] if found["word"] is None else found["word"]
    begins = found["word"] is not None and text.endswith("*") and len(text) > 1
    asked = terms.asked(text)
    if asked is None:
        return None
    last = asked.terms[-1]
    if begins and terms.is_word(last) and len(last) < 2 and len(asked.terms) == 1:
        begins = False  # the beginning of every tenth word there is
    words = _cut(asked.terms, asked.open or (begins and terms.is_word(last)))
    return QueryPiece(text.strip("*") if begins else text, words, exact=found["word"] is None or begins)


def _cut(found: tuple[str, ...], open_: bool) -> TermRun:
    """Return terms in a row; of a very long row its beginning, which finds whatever the whole of it does."""
    return TermRun(found, open_) if len(found) <= ROW else TermRun(found[:ROW])


def quoted(words: Sequence[str]) -> str:
    """Return words for a note, each in quotes; of many the first ones."""
    said = [f'"{word:.40}"' for word in words]
    return ", ".join(said if len(said) <= _SAID else [*said[:_SAID], "..."])


def path(text: str) -> TermRun | None:
    """Return what stands for a path: its parts in a row."""
    asked = terms.asked(text)
    return None if asked is None else TermRun(asked.terms[-ROW:], asked.open)
