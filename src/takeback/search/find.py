"""Finding: which documents answer a query, in which order, a page at a time.

Answers come in stages. First what has all the words; then what has them as parts of longer words; and only if there is
neither, what has some of the words: the rare ones count most, and those that are everywhere not at all. Within a stage
the newest matches are ranked first, some thousands at a time: only that keeps a word that is everywhere as fast as a
rare one. Up to that many matches the ranking is exact; beyond, the page says that it is not, and later pages go on to
older matches, so every match is reached. Matching titles are ranked with the newest, however old they are.

The ranking counts how many of the words a match has and how often, and prefers titles, what people and models said to
what tools printed, and what is recent. It is computed here, from what every engine returns alike.

A cursor says where the last page ended, by numbers alone. What is added meanwhile has higher numbers and is not on
later pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property
from math import log
from typing import NamedTuple, TypeAlias

from ..errors import Invalid
from ..storage.base import Tx, scalar, scalars
from . import places, terms, texts
from .index import TIMES, All, But, Match, SearchIndex, Some, TermRun, Wanted, Within
from .query import Query, QueryPiece

WINDOW = 2000  # matches that are ranked together
TITLES = 50  # titles that are ranked with the newest matches
PARTS = 1000  # longer words that one part stands for
_COUNTED = 16  # words that are counted in each match
_OF_SESSION = 50  # matches of a session that are looked at together
_OWNERS = 20  # sessions that a filter names one by one
_HALF = 30 * 86_400.0  # seconds after which a match counts half as recent
_COVERED = 10.0  # what a word of a query counts at least, where not all of them need be there
_SAMPLE = 200  # the newest entries with a word, which tell how rare it is
_FEW = 30  # entries with a word: it is not everywhere, however small the store is
_EVERYWHERE = 0.1  # of all entries: a word that is in more of them is left out where not all need be there
_ENOUGH = 3.0  # a word that is there so often counts half of what it can
SCALE = 1_000_000
EXACT, WITHIN_WORDS, SOME = range(3)  # the stages

_TITLE = TermRun((terms.field("kind", "title"),))
# A title says what a session is about; what was said weighs more than what a tool was told, and that more than output.
_WEIGHTS = {"title": 2.0, "message": 0.6, "plan": 0.6, "note": 0.6, "summary": 0.6, "task": 0.6, "call": 0.3}
_KIND_WEIGHTS = [_WEIGHTS.get(kind, 0.0) for kind in texts.KINDS]
_Scored: TypeAlias = "tuple[int, int, Match]"  # negative score, negative number: in order of the rank


class SearchFilter(NamedTuple):
    """What is asked besides the words."""

    scope: str
    roles: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    path: TermRun | None = None
    session: int | None = None
    agent: str | None = None
    workspace: str | None = None
    since_s: int | None = None
    until_s: int | None = None
    everywhere: bool = False


class PageEnd(NamedTuple):
    """Where a page ended: the stage, the highest number of its window, score and number of the last match, the time."""

    stage: int
    high: int
    score: int
    number: int
    top: int
    now_s: int


class Ranked(NamedTuple):
    """A match with its score, the stage that found it, and the session that it is shown in."""

    match: Match
    score: int
    stage: int
    sid: int = 0


class FoundPage(NamedTuple):
    """A page of matches; ``exact`` if its order is that of all matches."""

    ranked: list[Ranked]
    next: PageEnd | None
    exact: bool
    notes: tuple[str, ...]
    looked_for: tuple[QueryPiece, ...]
    why: dict[int, dict[str, float]]  # what the scores are made of, by the number of the match, if asked for


def page(
    side: Tx,
    index: SearchIndex,
    query: Query,
    wanted: SearchFilter,
    *,
    newest: int,
    limit: int,
    by_session: bool,
    after: PageEnd | None,
    now_s: int,
    explain: bool,
) -> FoundPage:
    """Return the next matches in order of their rank; ``newest`` is the highest number there is."""
    top = after.top if after else newest
    look = _Look(side, index, query, wanted, top, after.now_s if after else now_s)
    if not query.wanted and not look.narrows:
        return FoundPage([], None, True, (*query.notes, _nothing_to_look_for(query)), (), {})
    found = _filled(look, after or PageEnd(EXACT, top, -1, 0, top, look.now_s), limit, by_session)
    if not found.ranked and after is None and len(query.wanted) > 1:
        found = _filled(look, PageEnd(SOME, top, -1, 0, top, now_s), limit, by_session)
    if not found.ranked and query.unwanted:
        found = found._replace(notes=(*found.notes, _left_out(query)))
    return found._replace(why={each.match.number: look.why(each) for each in found.ranked}) if explain else found


def _nothing_to_look_for(query: Query) -> str:
    what = "only says what to leave out" if query.unwanted else "has no letters or digits"
    return f"there is nothing to look for: the query {what}"


def _left_out(query: Query) -> str:
    said = " ".join(f"-{piece.text}" for piece in query.unwanted)
    return f"entries with these words were left out: {said:.80}; to look for a dash and what follows, quote it"


def _filled(look: _Look, start: PageEnd, limit: int, by_session: bool) -> FoundPage:
    """Return a page of matches from a place on."""
    ranked, end, more = list[Ranked](), start, False
    for each, place in look.walk_sessions(start) if by_session else look.walk(start):
        if more := len(ranked) == limit:
            break
        ranked.append(each)
        end = place
    sids = {} if by_session else look.sessions([each.match for each in ranked])
    shown = ranked if by_session else [each._replace(sid=sids.get(each.match.number, 0)) for each in ranked]
    notes = (*look.notes, look.said_of_some()) if start.stage == SOME and ranked else look.notes
    pieces = look.rare if start.stage == SOME else look.query.pieces
    return FoundPage(shown, end if more else None, look.exact, notes, pieces, {})


class _Look:
    """One search, in one transaction."""

    def __init__(self, side: Tx, index: SearchIndex, query: Query, wanted: SearchFilter, top: int, now_s: int) -> None:
        self._side, self._index, self.query, self._filter = side, index, query, wanted
        self._top, self.now_s = top, now_s
        self.exact, self.notes = True, query.notes
        self.narrows = bool(wanted.roles or wanted.kinds or wanted.tools or wanted.path)
        self._fields = [*_fields(wanted), *_who(side, wanted)]
        self._within = _within(side, wanted, top)
        self._early = list[Match]()  # the titles that are ranked with the newest matches
        self._stages = dict[int, Wanted | None]()
        self._counted = dict[int, tuple[TermRun, ...]]()

    # ------------------------------------------------------------------ what to look for

    def _stage(self, stage: int) -> Wanted | None:
        """Return what a stage looks for; None if it could find nothing that an earlier one does not."""
        if stage not in self._stages:
            self._stages[stage] = self._made(stage)
        return self._stages[stage]

    def _made(self, stage: int) -> Wanted | None:
        exact = [_some([piece.words for piece in group]) for group in self.query.wanted]
        counted = [piece.words for piece in self.query.pieces]
        found: Wanted | None
        if stage == EXACT:
            found = _all([*exact, *self._fields])
        elif stage == SOME:
            counted = [piece.words for piece in self.rare]
            found = _all([_some(counted), *self._fields])
        else:
            found, counted = self._parts(exact)
        self._counted[stage] = tuple(counted[:_COUNTED])
        unwanted = [piece.words for piece in self.query.unwanted]
        return But(found, _some(unwanted)) if found is not None and unwanted else found

    @cached_property
    def _shares(self) -> dict[QueryPiece, float]:
        """In which share of all entries each piece of the query is, as far as the newest ones tell."""
        within, found = Within(self._filter.scope, high=self._top, unseen=True), dict[QueryPiece, float]()
        for piece in self.query.pieces:
            some = self._index.find(self._side, piece.words, within, _SAMPLE)
            before = self._nth(some[-1].number) - 1 if len(some) == _SAMPLE else 0
            share = len(some) / max(self._nth(self._top) - before, 1)
            found[piece] = share if len(some) > _FEW else min(share, _EVERYWHERE)
        return found

    def _nth(self, number: int) -> int:
        return places.nth(self._side, self._filter.scope, number)

    @cached_property
    def rare(self) -> tuple[QueryPiece, ...]:
        """The pieces to look for where not all need be there: without those that are everywhere, unless all are."""
        found = tuple(piece for piece, share in self._shares.items() if share <= _EVERYWHERE)
        return found or self.query.pieces

    def said_of_some(self) -> str:
        """Return what was looked for in place of all words."""
        common = [piece.text for piece in self._shares if piece not in self.rare]
        without = f", not counting words that are nearly everywhere: {' '.join(common):.80}" if common else ""
        return f"no entry has all of these words; these have some of them{without}"

    @cached_property
    def _worth(self) -> Callable[[int], float]:
        """What the words count that a match has: the rarer a word, the more."""
        worth = [_COVERED * (1 - log(max(self._shares[piece], 1e-9))) for piece in self.rare[:_COUNTED]]
        return cache(lambda which: sum(each for at, each in enumerate(worth) if which >> at & 1))

    def _parts(self, exact: Sequence[Wanted]) -> tuple[Wanted | None, list[TermRun]]:
        """Return what has every word at least as a part of a longer one, without what has each as it is."""
        groups, longer, counted = list[Wanted](), False, list[TermRun]()
        for group in self.query.wanted:
            forms = [words for piece in group for words in self._forms(piece)]
            longer = longer or len(forms) > len(group)
            groups.append(_some(forms))
            counted += forms
        if not longer:
            return None, []
        # Of many forms none is counted: the age decides then.
        return But(_all([*groups, *self._fields]), _all(exact)), counted if len(counted) <= _COUNTED else []

    def _forms(self, piece: QueryPiece) -> list[TermRun]:
        """Return a piece and the longer words that it is a part of."""
        found, first = [piece.words], piece.words.terms
        if piece.exact or piece.words.open or not terms.is_word(first[-1]):
            return found
        if len(first) > 1:
            return [*found, TermRun(first, open=True)] if len(first[-1]) > 1 else found
        if len(first[0]) < 3:
            return found
        words = self._index.containing(self._side, self._filter.scope, first[0], PARTS)
        if len(words) == PARTS:
            said = f"{piece.text!r} is part of more than {PARTS:,} words; only some of them were looked for"
            self.notes = (*self.notes, said)
        return [*found, *(TermRun((word,)) for word in words)]

    # ------------------------------------------------------------------ walking the matches

    def walk(self, start: PageEnd) -> Iterator[tuple[Ranked, PageEnd]]:
        """Yield matches behind a place, each with the place that it is."""
        behind = (-start.score, -start.number) if start.score >= 0 else None
        for stage, high, window in self._windows(start):
            for score, number, match in window:
                if behind is None or (score, number) > behind:
                    yield Ranked(match, -score, stage), self._place_at(stage, high, -score, -number)
            behind = None

    def walk_sessions(self, start: PageEnd) -> Iterator[tuple[Ranked, PageEnd]]:
        """Yield the best match of each session, behind a place."""
        behind = (-start.score, -start.number) if start.score >= 0 else None
        for stage, high, window in self._windows(start):
            sids = self.sessions([match for _, _, match in window])
            # Titles that were ranked with the newest matches are older than what came before.
            seen = set[int]() if high == self._top else {*self.sessions(self._early).values()}
            for score, number, match in window:
                sid = sids.get(match.number, 0)
                if sid in seen:
                    continue
                seen.add(sid)
                if (behind is None or (score, number) > behind) and not self._came_before(sid, stage, high):
                    yield Ranked(match, -score, stage, sid), self._place_at(stage, high, -score, -number)
            behind = None

    def _place_at(self, stage: int, high: int, score: int, number: int) -> PageEnd:
        return PageEnd(stage, high, score, number, self._top, self.now_s)

    def _windows(self, start: PageEnd) -> Iterator[tuple[int, int, list[_Scored]]]:
        """Yield the windows from that of a place on: the stage, the highest number, and the matches by their rank."""
        for stage in (SOME,) if start.stage == SOME else range(start.stage, SOME):
            wanted, high = self._stage(stage), start.high if stage == start.stage else self._top
            while wanted is not None and high >= 0:
                found, lowest = self._window(stage, wanted, high)
                self.exact = self.exact and not lowest and high == self._top
                yield stage, high, self._by_rank(stage, found)
                high = lowest - 1

    def _window(self, stage: int, wanted: Wanted, high: int) -> tuple[list[Match], int]:
        """Return the newest matches up to a number, and the lowest that was looked at if there are more, else 0."""
        counted, within = self._counted[stage], self._within
        found = self._index.find(self._side, wanted, within._replace(high=min(high, within.high)), WINDOW + 1, counted)
        lowest = found[WINDOW - 1].number if len(found) > WINDOW else 0
        found = found[:WINDOW]
        if lowest or high < self._top:
            self._early = self._index.find(self._side, _all([wanted, _TITLE]), within, TITLES, counted)
            early = {match.number for match in self._early}
            if high == self._top:
                found += [match for match in self._early if match.number < lowest]
            else:
                found = [match for match in found if match.number not in early]
        return found, lowest

    def _by_rank(self, stage: int, matches: Sequence[Match]) -> list[_Scored]:
        """Sort matches by their score, the newest first among equals; a search calls nothing as often."""
        weights, now_s, found = _KIND_WEIGHTS, self.now_s, list[_Scored]()
        worth = self._worth if stage == SOME else None
        for match in matches:
            number, _, at_s, kind, counted = match
            times = counted & TIMES
            recent = _HALF / (_HALF + now_s - at_s) if at_s < now_s else 1.0
            score = 2 * times / (times + _ENOUGH) + weights[kind] + recent
            if worth is not None:
                score += worth(counted >> 32)
            found.append((-round(score * SCALE), -number, match))
        found.sort()
        return found

    def why(self, each: Ranked) -> dict[str, float]:
        """Return what the score of a match is made of."""
        match, times = each.match, each.match.counted & TIMES
        return {
            "words": self._worth(match.counted >> 32) if each.stage == SOME else 0.0,
            "times": 2 * times / (times + _ENOUGH),
            "kind": _KIND_WEIGHTS[match.kind],
            "recent": _HALF / (_HALF + max(0, self.now_s - match.at_s)),
        }

    # ------------------------------------------------------------------ sessions

    def sessions(self, matches: Sequence[Match]) -> dict[int, int]:
        """Return the session that each match is shown in: the first of those that read it and that are asked for."""
        rows = places.readers(self._side, self._within, {match.key >> 32 for match in matches})
        found = dict[int, int]()
        for match in matches:
            seq = match.key & 0xFFFFFFFF
            for sid, upto in rows.get(match.key >> 32, ()):
                if upto >= seq:
                    found[match.number] = sid
                    break
        return found

    def _came_before(self, sid: int, stage: int, high: int) -> bool:
        """Whether a session has a match before a window: it was on an earlier page then."""
        within = self._within._replace(session=sid)
        who = _who(self._side, SearchFilter(self._filter.scope, session=sid))
        for earlier in range(SOME if stage == SOME else EXACT, stage + 1):
            wanted = self._stage(earlier)
            if wanted is None or (earlier == stage and high == self._top):
                continue
            low = max(high + 1 if earlier == stage else 0, within.low)
            if self._is_shown(_all([wanted, *who]), within._replace(low=low), sid):
                return True
        return False

    def _is_shown(self, wanted: Wanted, within: Within, sid: int) -> bool:
        """Whether a session shows one of these matches; what it only reads may be shown in another one."""
        while found := self._index.find(self._side, wanted, within, _OF_SESSION):
            if sid in self.sessions(found).values():
                return True
            within = within._replace(high=found[-1].number - 1)
        return False


# ---------------------------------------------------------------------- filters


def _fields(wanted: SearchFilter) -> list[Wanted]:
    """Return the terms of what filters ask for; roles and kinds add to each other."""
    found = list[Wanted]()
    who = [TermRun((terms.field("role", role),)) for role in wanted.roles]
    who += [TermRun((terms.field("kind", kind),)) for kind in wanted.kinds]
    for fields in (who, [_tool(tool) for tool in wanted.tools]):
        found += [_some(fields)] if fields else []
    return [*found, wanted.path] if wanted.path is not None else found


def _within(side: Tx, wanted: SearchFilter, top: int) -> Within:
    """Return what else a match must satisfy; the numbers are narrowed to the blocks whose times fit."""
    low, high = 0, top
    span = "FROM search_span WHERE scope = ? AND"
    if wanted.since_s is not None:
        block = scalar(side, f"SELECT min(block) {span} high_s >= ?", (wanted.scope, wanted.since_s))
        low = top + 1 if block is None else block * places.BLOCK
    if wanted.until_s is not None:
        block = scalar(side, f"SELECT max(block) {span} low_s <= ?", (wanted.scope, wanted.until_s))
        high = -1 if block is None else min(top, (block + 1) * places.BLOCK - 1)
    times = wanted.since_s, wanted.until_s
    return Within(wanted.scope, low, high, *times, wanted.everywhere, wanted.agent, wanted.workspace, wanted.session)


def _who(side: Tx, wanted: SearchFilter) -> list[Wanted]:
    """Return the terms that documents have of the sessions that are asked for, so that no others are looked at."""
    found = list[Wanted]()
    if wanted.session is not None:
        sql = "SELECT DISTINCT owner FROM search_place INDEXED BY search_place_sid WHERE scope = ? AND sid = ? LIMIT ?"
        found += _named(scalars(side, sql, (wanted.scope, wanted.session, _OWNERS + 1)))
    for column in ("workspace", "agent"):
        if (value := getattr(wanted, column)) is not None:
            sql = f"""SELECT DISTINCT p.owner FROM search_place p INDEXED BY search_place_other
JOIN search_session s ON s.scope = p.scope AND s.sid = p.sid
WHERE p.scope = ? AND p.other = 1 AND s.{column} = ? LIMIT ?"""
            others = scalars(side, sql, (wanted.scope, value, _OWNERS + 1))
            found += _named(others, [TermRun((terms.field(column, value),))])
    return found


def _named(owners: Sequence[int], own: Sequence[Wanted] = ()) -> list[Wanted]:
    """Return what finds the documents of sessions; nothing if they are too many to be named."""
    named = [*own, *(TermRun((terms.session(sid),)) for sid in owners)]
    return [_some(named)] if named and len(owners) <= _OWNERS else []


def _tool(name: str) -> TermRun:
    return TermRun((terms.field("tool", name.casefold()),))


def _all(parts: Sequence[Wanted]) -> Wanted:
    return parts[0] if len(parts) == 1 else All(tuple(parts))


def _some(parts: Sequence[Wanted]) -> Wanted:
    return parts[0] if len(parts) == 1 else Some(tuple(parts))


# ---------------------------------------------------------------------- cursors


def cursor(place: PageEnd, mark: str) -> str:
    """Write where a page ended, with what tells one question from another."""
    return ".".join(["s1", mark, *(f"{number:x}" for number in place)])


def parse_cursor(text: str | None, mark: str) -> PageEnd | None:
    """Read a cursor; anything that a page of this search did not return raises ``Invalid``."""
    if text is None:
        return None
    parts = text.split(".") if isinstance(text, str) else []
    numbers = parts[2:]
    known = parts[:2] == ["s1", mark] and len(numbers) == len(PageEnd._fields)
    if not known or not all(0 < len(each) <= 15 and set(each) <= set("0123456789abcdef") for each in numbers):
        raise Invalid(f"{text!r:.80} is not a cursor of this search; use one that a page returned, or None")
    found = PageEnd._make(int(number, 16) for number in numbers)
    if found.stage > SOME or found.high > found.top:
        raise Invalid(f"{text!r:.80} is not a cursor of this search; use one that a page returned, or None")
    return found
