"""Finding: which documents answer a query, in which order, a page at a time.

Answers come in stages. First what has all the words; then what has them as parts of longer words. If there is neither,
what has a query with a dash as it stands, and if there is none, what has some of the words: the rare ones count most,
and those that are everywhere not at all. Within a stage the newest matches are ranked first, some thousands at a time:
only that keeps a word that is everywhere as fast as a rare one. Up to that many matches the ranking is exact; beyond,
the page says that it is not, and later pages go on to older matches, so every match is reached. Matching titles are
ranked with the newest, however old they are.

The ranking counts how many of the words a match has and how often, and prefers titles, what people and models said to
what tools printed, and what is recent. It is computed here, from what every engine returns alike. Without words only
the age counts.

A cursor says where the last page ended. What is added meanwhile has higher numbers and is not on later pages. What the
first page decided is part of the cursor: between which numbers matches are ranked together, which titles with them, and
which longer words were looked for. So each match keeps its place among the others, whatever was added, left or hidden.
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
from .query import Query, QueryPiece, quoted

WINDOW = 2000  # matches that are ranked together
TITLES = 50  # titles that are ranked with the newest matches
PARTS = 1000  # longer words that one part stands for
_MORE = 10  # times as many of each are read where a page goes on, with what was restored or added meanwhile
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
EXACT, WITHIN_WORDS, SOME, VERBATIM = range(4)  # the stages, each of the last two instead of all before

_USUAL = frozenset({"user", "assistant", "system", "developer", "tool"})  # roles that a store may well be without
_KINDS = tuple(TermRun((terms.field("kind", kind),)) for kind in texts.KINDS)  # each entry has one of them
_TITLE = TermRun((terms.field("kind", "title"),))
# A title says what a session is about; what was said weighs more than what a tool was told, and that more than output.
_WEIGHTS = {"title": 2.0, "message": 0.6, "plan": 0.6, "note": 0.6, "summary": 0.6, "task": 0.6, "call": 0.3}
_KIND_WEIGHTS = [_WEIGHTS.get(kind, 0.0) for kind in texts.KINDS]
_NO_WEIGHTS = [0.0 for _ in texts.KINDS]
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


class RankedWindow(NamedTuple):
    """Matches of a stage that are ranked together: those between two numbers, in the first window also early titles.

    Titles from the number ``titles`` on are early: they come in the first window, and in no other. What is negative is
    not known before the matches are read.
    """

    stage: int
    high: int
    low: int = -1
    titles: int = -1


class PageEnd(NamedTuple):
    """Where a page ended: its window, score and number of the last match; and what all pages must agree on.

    ``ends`` has, for each piece of the query that is part of too many words, the last of them that was looked for.
    """

    window: RankedWindow
    score: int
    number: int
    top: int
    now_s: int
    ends: tuple[str, ...] = ()


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
    look.go_on_from(after)
    if query.nothing and not (look.narrows and query.only_filters):
        return FoundPage([], None, True, (*query.notes, f"there is nothing to look for: {query.nothing}"), (), {})
    found = _filled(look, after or look.beginning(EXACT), limit, by_session)
    for stage in () if after else look.instead:
        if not found.ranked:
            found = _filled(look, look.beginning(stage), limit, by_session)
    return found._replace(why={each.match.number: look.why(each) for each in found.ranked}) if explain else found


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
    stage = start.window.stage
    notes = (*look.notes, *look.said_of(stage, found=bool(ranked)))
    return FoundPage(shown, end if more else None, look.exact, notes, look.pieces(stage), {})


class _Look:
    """One search, in one transaction."""

    def __init__(self, side: Tx, index: SearchIndex, query: Query, wanted: SearchFilter, top: int, now_s: int) -> None:
        self._side, self._index, self.query, self._filter = side, index, query, wanted
        self._top, self.now_s = top, now_s
        self.exact, self.notes = True, query.notes
        # A workspace is where to search, not what for.
        self.narrows = wanted._replace(workspace=None, everywhere=False) != SearchFilter(wanted.scope)
        self._by_age = query.by_age or not query.wanted
        self._weights = _NO_WEIGHTS if self._by_age else _KIND_WEIGHTS
        self._fields = [*_fields(wanted), *_who(side, wanted)]
        self._within = _within(side, wanted, top)
        self._ends = dict[QueryPiece, str]()  # the last longer word of each piece; empty if all are looked for
        self._stages = dict[int, Wanted | None]()
        self._counted = dict[int, tuple[TermRun, ...]]()

    def beginning(self, stage: int) -> PageEnd:
        """Return the place before the first match of a stage."""
        return PageEnd(RankedWindow(stage, self._top), -1, 0, self._top, self.now_s)

    def go_on_from(self, after: PageEnd | None) -> None:
        """Look for the longer words that earlier pages looked for."""
        if after is not None and after.window.stage == WITHIN_WORDS:
            ends = after.ends or [""] * len(self.query.pieces)
            self._ends = dict(zip(self.query.pieces, ends, strict=False))

    # ------------------------------------------------------------------ what to look for

    @property
    def instead(self) -> tuple[int, ...]:
        """The stages to try where no entry has all the words."""
        verbatim = (VERBATIM,) if self.query.verbatim is not None else ()
        return (*verbatim, SOME) if len(self.query.wanted) > 1 else verbatim

    def pieces(self, stage: int) -> tuple[QueryPiece, ...]:
        """Return what a stage looks for, as pieces of the query."""
        if stage == VERBATIM:
            return (self.query.verbatim,) if self.query.verbatim is not None else ()
        return self.rare if stage == SOME else self.query.pieces

    def _stage(self, stage: int) -> Wanted | None:
        """Return what a stage looks for; None if it could find nothing that an earlier one does not."""
        if stage not in self._stages:
            self._stages[stage] = self._made(stage)
        return self._stages[stage]

    def _made(self, stage: int) -> Wanted | None:
        exact = [_some([piece.words for piece in group]) for group in self.query.wanted]
        # Longer words are not counted: how many there are changes with every text.
        counted = [piece.words for piece in self.pieces(stage)]
        found: Wanted | None
        if stage == EXACT:
            found = _all([*exact, *self._fields] or [Some(_KINDS)])
        elif stage == WITHIN_WORDS:
            found = self._parts(exact)
        else:
            found = _all([_some(counted), *self._fields])
        self._counted[stage] = () if self._by_age else tuple(counted[:_COUNTED])
        unwanted = [] if stage == VERBATIM else [piece.words for piece in self.query.unwanted]
        return But(found, _some(unwanted)) if found is not None and unwanted else found

    @cached_property
    def _shares(self) -> dict[QueryPiece, float]:
        """In which share of all entries each piece of the query is, as far as the newest ones tell."""
        within, found = Within(self._filter.scope, high=self._top, unseen=True), dict[QueryPiece, float]()
        count = places.nth(self._side, within.scope, self._top)
        for piece in self.query.pieces:
            some = self._index.find(self._side, piece.words, within, _SAMPLE)
            before = places.nth(self._side, within.scope, some[-1].number) - 1 if len(some) == _SAMPLE else 0
            share = len(some) / max(count - before, 1)
            found[piece] = share if len(some) > _FEW else min(share, _EVERYWHERE)
        return found

    @cached_property
    def rare(self) -> tuple[QueryPiece, ...]:
        """The pieces to look for where not all need be there: without those that are everywhere, unless all are."""
        found = tuple(piece for piece, share in self._shares.items() if share <= _EVERYWHERE)
        return found or self.query.pieces

    def said_of(self, stage: int, *, found: bool) -> Iterator[str]:
        """Yield how what a stage found differs from what was asked."""
        if stage == VERBATIM and found:
            yield f"no entry has these words without {quoted(self.query.dashed)}; these have the text as it stands"
        elif self.query.left_out:
            yield self.query.left_out
        if stage == SOME and found:
            yield "no entry has all of these words; these have some of them"
            if common := [piece.text for piece in self._shares if piece not in self.rare]:
                yield f"common words were not counted: {quoted(common)}"
        yield from (f'no entry has the role "{role:.40}"' for role in self._filter.roles if self._is_unknown(role))

    def _is_unknown(self, role: str) -> bool:
        """Whether a role is an unusual one that nobody has, such as a misspelt one."""
        within = Within(self._filter.scope, unseen=True)
        return role not in _USUAL and not self._index.find(self._side, TermRun((terms.field("role", role),)), within, 1)

    @cached_property
    def _worth(self) -> Callable[[int], float]:
        """What the words count that a match has: the rarer a word, the more."""
        worth = [_COVERED * (1 - log(max(self._shares[piece], 1e-9))) for piece in self.rare[:_COUNTED]]
        return cache(lambda which: sum(each for at, each in enumerate(worth) if which >> at & 1))

    def _parts(self, exact: Sequence[Wanted]) -> Wanted | None:
        """Return what has every word at least as a part of a longer one, without what has each as it is."""
        groups, longer = list[Wanted](), False
        for group in self.query.wanted:
            forms = [words for piece in group for words in self._forms(piece)]
            longer = longer or len(forms) > len(group)
            groups.append(_some(forms))
        return But(_all([*groups, *self._fields]), _all(exact)) if longer else None

    def _forms(self, piece: QueryPiece) -> list[TermRun]:
        """Return a piece and the longer words that it is a part of."""
        found, first = [piece.words], piece.words.terms
        if piece.exact or piece.words.open or not terms.is_word(first[-1]):
            return found
        if len(first) > 1:
            return [*found, TermRun(first, open=True)] if len(first[-1]) > 1 else found
        return found if len(first[0]) < 3 else [*found, *(TermRun((word,)) for word in self._longer(piece))]

    def _longer(self, piece: QueryPiece) -> list[str]:
        """Return the words that a piece is a part of; of too many the first ones, the same on all pages."""
        known = piece in self._ends
        most = PARTS * _MORE if known else PARTS
        words = self._index.containing(self._side, self._filter.scope, piece.words.terms[0], most)
        if not known:
            self._ends[piece] = words[-1] if len(words) == most else ""
        if not (end := self._ends[piece]):
            return words
        said = f"{piece.text!r} is part of more than {PARTS:,} words; only some of them were looked for"
        self.notes = (*self.notes, said)
        return [word for word in words if word <= end]

    # ------------------------------------------------------------------ walking the matches

    def walk(self, start: PageEnd) -> Iterator[tuple[Ranked, PageEnd]]:
        """Yield matches behind a place, each with the place that it is."""
        behind = (-start.score, -start.number) if start.score >= 0 else None
        for window, found in self._windows(start):
            for score, number, match in found:
                if behind is None or (score, number) > behind:
                    yield Ranked(match, -score, window.stage), self._place_at(window, -score, -number)
            behind = None

    def walk_sessions(self, start: PageEnd) -> Iterator[tuple[Ranked, PageEnd]]:
        """Yield the best match of each session, behind a place."""
        behind = (-start.score, -start.number) if start.score >= 0 else None
        for window, found in self._windows(start):
            stage, high = window.stage, window.high
            sids = self.sessions([match for _, _, match in found])
            # Titles that were ranked with the newest matches are older than what came before.
            seen = set[int]() if high == self._top else {*self.sessions(self._early(window)).values()}
            for score, number, match in found:
                sid = sids.get(match.number, 0)
                if sid in seen:
                    continue
                seen.add(sid)
                if (behind is None or (score, number) > behind) and not self._came_before(sid, stage, high):
                    yield Ranked(match, -score, stage, sid), self._place_at(window, -score, -number)
            behind = None

    def _place_at(self, window: RankedWindow, score: int, number: int) -> PageEnd:
        ends = tuple(self._ends.get(piece, "") for piece in self.query.pieces)
        kept = ends if window.stage == WITHIN_WORDS and any(ends) else ()
        return PageEnd(window, score, number, self._top, self.now_s, kept)

    def _windows(self, start: PageEnd) -> Iterator[tuple[RankedWindow, list[_Scored]]]:
        """Yield the windows from that of a place on, each with its matches by their rank."""
        first = start.window.stage
        for stage in range(first, SOME) if first < SOME else (first,):
            wanted, window = self._stage(stage), start.window if stage == first else self.beginning(stage).window
            while wanted is not None and window.high >= 0:
                window, found = self._read(wanted, window)
                self.exact = self.exact and not window.low and window.high == self._top
                yield window, self._by_rank(stage, found)
                window = window._replace(high=window.low - 1, low=-1)

    def _read(self, wanted: Wanted, window: RankedWindow) -> tuple[RankedWindow, list[Match]]:
        """Return a window with its matches: the newest ones, if it is not known how far down it goes."""
        within, most = self._within, WINDOW if window.low < 0 else WINDOW * _MORE
        within = within._replace(low=max(window.low, within.low), high=min(window.high, within.high))
        found = self._index.find(self._side, wanted, within, most + 1, self._counted[window.stage])
        low = found[most - 1].number if len(found) > most else max(window.low, 0)
        window, found = window._replace(low=low), found[:most]
        if window.high < self._top:
            return window, [match for match in found if match.kind != texts.TITLE or match.number < window.titles]
        early = self._early(window) if low and not self._by_age else []
        if window.titles < 0:
            window = window._replace(titles=early[-1].number if early else self._top + 1)
        return window, [*found, *(match for match in early if match.number < low)]

    def _early(self, window: RankedWindow) -> list[Match]:
        """Return the titles that are ranked in the first window: the newest ones, if it is not known from where on."""
        wanted, within = self._stage(window.stage), self._within
        if wanted is None:
            return []
        most = TITLES if window.titles < 0 else TITLES * _MORE
        within = within._replace(low=max(window.titles, within.low))
        return self._index.find(self._side, _all([wanted, _TITLE]), within, most, self._counted[window.stage])

    def _by_rank(self, stage: int, matches: Sequence[Match]) -> list[_Scored]:
        """Sort matches by their score, the newest first among equals; a search calls nothing as often."""
        weights, now_s, found = self._weights, self.now_s, list[_Scored]()
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
            "kind": self._weights[match.kind],
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
        for earlier in range(stage if stage >= SOME else EXACT, stage + 1):
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
    *numbers, ends = (*place.window, *place[1:])
    return ".".join(["s2", mark, *(f"{number:x}" for number in numbers), *(end.encode().hex() for end in ends)])


def parse_cursor(text: str | None, mark: str) -> PageEnd | None:
    """Read a cursor; anything that a page of this search did not return raises ``Invalid``."""
    if text is None:
        return None
    found = _parsed(text, mark) if isinstance(text, str) else None
    if found is None or found.window.stage > VERBATIM or found.window.high > found.top:
        raise Invalid(f"{text!r:.80} is not a cursor of this search; use one that a page returned, or None")
    return found


def _parsed(text: str, mark: str) -> PageEnd | None:
    parts = text.split(".")
    numbers, ends = parts[2:10], parts[10:]
    known = parts[:2] == ["s2", mark] and len(numbers) == 8
    if not known or not all(0 < len(each) <= 15 and set(each) <= set("0123456789abcdef") for each in numbers):
        return None
    stage, high, low, titles, score, number, top, now_s = (int(each, 16) for each in numbers)
    try:
        words = tuple(bytes.fromhex(each).decode() for each in ends)
    except ValueError:
        return None
    return PageEnd(RankedWindow(stage, high, low, titles), score, number, top, now_s, words)
