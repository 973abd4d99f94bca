"""Searching a store: the index is brought up to date, asked, and made anew where it is damaged.

One search is one transaction of the index and one of the store. Whatever is wrong with the index costs the time to make
it anew, never an answer: a search that meets damage begins a new index and runs again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from ..errors import Busy, Corrupt
from ..model import words
from ..model.search import Hit, Hits
from ..ops import branches, feed, log, refs
from ..ops.feed import Position
from ..storage.base import Derived, Shape, SideTables, Tx, scalar
from ..tables.branches import BRANCH
from ..tables.entries import ENTRY, EntryRow
from ..tables.sessions import SESSION, SessionRow
from . import feeding, find, fts, snippets, state, terms, texts
from .find import FoundPage, PageEnd, Ranked, SearchFilter
from .index import SearchIndex, TermRun, Within
from .query import Query

T = TypeVar("T")
_PAUSES_MS = (0, 1, 5, 20, 100, 300)  # between tries
Progress = Callable[[int, "int | None"], object]
SHAPE = Shape(fts.SQL, fts.VERSION & 0x7FFFFFFF, fts.FUNCTIONS)
_TERMS = "terms"  # the note on the version of the terms
SHORT = 7  # characters of an id, at least: as many as lists show, which tell one second


class SearchQuestion(NamedTuple):
    """What is searched for, and how the answer is given."""

    query: Query
    filter: SearchFilter
    limit: int
    by_session: bool
    after: PageEnd | None
    mark: str
    explain: bool
    hide: Callable[[str], str] | None = None  # what is done to a text before a part of it is shown


class Searcher:
    """The index of one store, in one scope."""

    def __init__(self, beside: SideTables, scope: str) -> None:
        self._beside, self._scope = beside, scope
        self._proved = 0  # which opening of the index was found to be that of this store

    def search(self, question: SearchQuestion, now_s: int, progress: Progress | None = None) -> Hits:
        """Return a page of hits; everything stored before the call is searched."""

        return self._mended(lambda: self._ask(question, now_s, progress))

    def _ask(self, question: SearchQuestion, now_s: int, progress: Progress | None) -> Hits | None:
        """Answer from an index that has everything that was stored when this began; None if it is another one by then.

        Others may go on storing, and somebody may delete the index behind the catching up.
        """
        reached: Position = ()
        erasing = False

        def ask(main: Tx, side: Tx) -> Hits | None:
            nonlocal erasing
            self._prove(main, side)
            place = state.place_of(main, self._scope)
            erasing = state.read(side, place, state.ERASING_STILL) is not None
            enough = reached and state.position(side, place) >= reached
            return _answer(main, side, question, now_s) if enough or state.is_current(main, side, self._scope) else None

        found = self._beside.read(ask)
        if found is None:
            reached = self._catch_up(progress)
            found = self._beside.read(ask)
        if erasing:
            self._finish_erasing()
        return found

    def catch_up(self, progress: Progress | None = None) -> None:
        """Add what is new; ``progress`` is called with how many changes were read, and of how many."""
        self._mended(lambda: self._catch_up(progress))

    def forget_erased(self, ids: Sequence[str]) -> None:
        """Erase what was erased of sessions in the store, if there is an index that might have it."""
        if self._beside.exists():
            self._mended(lambda: self._forget(ids))

    def rebuild(self, progress: Progress | None = None) -> None:
        """Make the index anew."""
        self._begin_anew()
        self.catch_up(progress)

    def check(self) -> list[str]:
        """Return what is wrong with the index: damage, what it does not find, how far it is behind; changes nothing."""
        if (other := self._beside.obstacle()) is not None:
            return [other]
        if not self._beside.exists():
            return []
        try:
            return self._beside.read(lambda main, side: _checked(main, side, self._scope))
        except Derived as error:
            return [f"the search index is damaged ({error})"]

    # ------------------------------------------------------------------ inside

    def _mended(self, step: Callable[[], T | None]) -> T:
        """Run a step until it has a result; an index that is damaged is made anew."""
        for wait_ms in _PAUSES_MS:
            try:
                if (found := step()) is not None:
                    return found
            except Derived:
                with suppress(Derived):
                    self._begin_anew()
            time.sleep(wait_ms / 1000)
        raise Busy("something keeps damaging or deleting the search index; find out what, then search again")

    def _begin_anew(self) -> None:
        if hasattr(self._beside, "path"):
            self._beside.clear()
        else:
            self._beside.write(lambda main, side: _engine(side).clear(side, self._scope))

    def _catch_up(self, progress: Progress | None) -> Position:
        """Add what is new; return how far the feed was read."""
        erased, more = 0, True
        reached: Position = ()
        while more:
            done, total = self._beside.write(self._batch)
            erased, more, reached = erased + done.erased, done.more, done.position
            if progress is not None and total is not None:
                progress(*total)
        if erased:
            self._finish_erasing()
        return reached

    def _finish_erasing(self) -> None:
        """Erase what is left, and empty the log; if somebody is reading that now, the next search tries again."""
        while self._beside.write(lambda main, side: feeding.erase_more(main, side, _engine(side), self._scope)):
            pass
        if self._beside.shrink_log():
            self._beside.write(
                lambda main, side: state.unnote(side, state.place_of(main, self._scope), state.ERASING_STILL)
            )

    def _prove(self, main: Tx, side: Tx) -> None:
        """Raise ``Derived`` if the index was made from another store; asked once, unless it is another file now."""
        if self._proved != self._beside.opened:
            if not _is_ours(main, side, self._scope):
                raise Derived("the search index belongs to another store, or to another version of this one")
            self._proved = self._beside.opened

    def _forget(self, ids: Sequence[str]) -> int:
        """Erase what was erased of sessions; return how many texts that were."""

        def erase(main: Tx, side: Tx) -> int:
            self._prove(main, side)
            _note_version(main, side, self._scope)
            return feeding.forget(main, side, _engine(side), self._scope, ids)

        if count := self._beside.write(erase):
            self._finish_erasing()
        return count

    def _batch(self, main: Tx, side: Tx) -> tuple[feeding.BatchDone, tuple[int, int] | None]:
        self._prove(main, side)
        _note_version(main, side, self._scope)
        done = feeding.batch(main, side, _engine(side), self._scope)
        if not main.dialect.gapless:
            return done, None
        at = done.position[0] if done.position else 0
        return done, (at, int(scalar(main, feed.LAST) or 0))


def _is_ours(main: Tx, side: Tx, scope: str) -> bool:
    """Whether the index was made from this store, of the terms that are looked for now."""
    if main.dialect.gapless:
        return state.belongs(main, side, scope)  # a file with other terms has another shape
    place = state.place_of(main, scope)
    return state.read(side, place, "next") is None or state.read(side, place, _TERMS) == str(terms.VERSION)


def _note_version(main: Tx, side: Tx, scope: str) -> None:
    """Note of which terms an index in tables of the store is made."""
    if not main.dialect.gapless and state.read(side, scope, _TERMS) is None:
        state.note(side, scope, _TERMS, str(terms.VERSION))


def _engine(side: Tx) -> SearchIndex:
    if side.dialect.gapless:
        return fts.Fts()
    from .postings import Postings

    return Postings()


# ---------------------------------------------------------------------- answers


def _answer(main: Tx, side: Tx, question: SearchQuestion, now_s: int) -> Hits:
    asked = question
    found = find.page(
        side,
        _engine(side),
        asked.query,
        asked.filter,
        newest=state.newest(main, side, asked.filter.scope),
        limit=asked.limit,
        by_session=asked.by_session,
        after=asked.after,
        now_s=now_s,
        explain=asked.explain,
    )
    hits = _Shown(main, asked, found).hits(found.ranked)
    cursor = None if found.next is None else find.cursor(found.next, asked.mark)
    return Hits(hits, cursor, exact=found.exact, notes=found.notes)


class _Shown:
    """Makes hits of matches: reads the entries, and says what to type to get there."""

    def __init__(self, main: Tx, question: SearchQuestion, found: FoundPage) -> None:
        self._main, self._question, self._found = main, question, found
        self._markers = dict[bool, snippets.Marker]()
        wanted = question.filter
        self._asked_kinds = ("call", "result") if wanted.tools else wanted.kinds

    def hits(self, ranked: Sequence[Ranked]) -> list[Hit]:
        scope = self._question.filter.scope
        sessions = SESSION.numbered(self._main, scope, {each.sid for each in ranked}, damaged=False)
        keys = [each.match.key for each in ranked if each.match.key > 0]
        rows = ENTRY.numbered(self._main, scope, keys, damaged=False)
        names = BRANCH.numbered(self._main, scope, {key >> 32 for key in keys}, damaged=False)
        short = refs.shortest(self._main, scope, [each.id for each in sessions.values()], SHORT) if sessions else {}
        found = list[Hit | None]()
        for each in ranked:
            session, row = sessions.get(each.sid), rows.get(each.match.key)
            if session is not None and each.match.key < 0:
                found.append(self._title(each, session, short[session.id]))
            elif session is not None and row is not None and row.branch in names:
                found.append(self._entry(each, session, row, names[row.branch], short[session.id]))
        return [hit for hit in found if hit is not None]

    def _title(self, each: Ranked, session: SessionRow, ref: str) -> Hit:
        names = [text for text in (session.title, session.name, session.label) if text]
        snippet = self._snippet(each, [*names, " · ".join(names)])
        return self._hit(each, session, ref=ref, branch="", seq=0, turn=0, role=None, kind="title",
                         snippet=snippet, at_ms=session.created_ms)  # fmt: skip

    def _entry(
        self, each: Ranked, session: SessionRow, row: EntryRow, branch: branches.BranchRow, short: str
    ) -> Hit | None:
        try:
            (row,) = log.loaded(self._main, [row])
        except Corrupt:
            return None
        said = texts.readable(row, lambda call: feeding.tool_before(self._main, row, call))
        if said is None:
            return None
        return self._hit(
            each,
            session,
            ref=self._ref(session, row, branch, short),
            branch=branch.uid,
            seq=row.seq,
            turn=row.turns,
            role=said.role or None,
            kind=said.kind,
            snippet=self._snippet(each, said.shown(self._asked_kinds)),
            at_ms=row.at_ms,
            tool=next((tool for tool in said.tools if tool), None) if said.kind in ("call", "result") else None,
        )

    def _hit(self, each: Ranked, session: SessionRow, **found: Any) -> Hit:
        return Hit(
            session_id=session.id,
            title=session.title,
            name=session.name,
            agent_id=session.agent,
            workspace=session.workspace or None,
            score=each.score / find.SCALE,
            whole=each.stage in (find.EXACT, find.VERBATIM),
            why=self._explained(each),
            **found,
        )

    def _ref(self, session: SessionRow, row: EntryRow, branch: branches.BranchRow, short: str) -> str:
        """Return what to type to get to an entry: on a branch that was left, its name too."""
        if row.seq <= session.seq and self._is_on_path(session, row):
            return f"{short}:e{row.seq}"
        if branch.session == session.sid:
            return f"{short}/{branch.name}:e{row.seq}"
        own = branches.of_session(self._main, session.scope, session.sid, session.branches)
        for each in own:
            if row.seq <= each.fork_seq and branches.owner(self._main, each, row.seq).bid == row.branch:
                return f"{short}/{each.name}:e{row.seq}"
        return short

    def _is_on_path(self, session: SessionRow, row: EntryRow) -> bool:
        if row.branch == session.branch:
            return True
        path = branches.get(self._main, session.scope, session.branch)
        return branches.owner(self._main, path, row.seq).bid == row.branch

    def _snippet(self, each: Ranked, said: Sequence[str]) -> str:
        hide = self._question.hide
        return self._marker(each).snippet(said if hide is None else [hide(text) for text in said])

    def _marker(self, each: Ranked) -> snippets.Marker:
        parts = each.stage == find.WITHIN_WORDS
        if parts not in self._markers:
            self._markers[parts] = snippets.Marker(self._found.looked_for, parts=parts)
        return self._markers[parts]

    def _explained(self, each: Ranked) -> dict[str, float] | None:
        why = self._found.why.get(each.match.number)
        return why and {name: round(value, 3) for name, value in why.items()}


# ---------------------------------------------------------------------- health

BEHIND = "the search index is behind"
_PROBES = 50  # entries that are looked for


def _checked(main: Tx, side: Tx, scope: str) -> list[str]:
    """Look for damage, then for some entries by their own words: a real search, through all of the index."""
    if not _is_ours(main, side, scope):
        return ["the search index belongs to another store, or to another version of this one"]
    engine = _engine(side)
    said = engine.check(side, scope)
    place = state.place_of(main, scope)
    rows = side.all("SELECT scope, number, key FROM search_doc WHERE key > 0 ORDER BY number DESC LIMIT ?", (_PROBES,))
    if said:
        return said
    missing = sum(not _finds(main, side, engine, own, number, key) for own, number, key in rows)
    if missing:
        said.append(f"{missing} of the {len(rows)} newest entries are not found by their own words")
    if not state.is_current(main, side, scope):
        at = state.position(side, place)
        last = int(scalar(main, feed.LAST) or 0) if main.dialect.gapless else 0
        behind = words.count(last - (at[0] if at else 0), "change") if last else "some changes"
        said.append(f"{BEHIND}: {behind} are not in it yet")
    return said


def _finds(main: Tx, side: Tx, engine: SearchIndex, scope: str, number: int, key: int) -> bool:
    """Whether the index finds an entry by the last of its own words; True if the entry is gone."""
    row = ENTRY.numbered(main, scope, [key], damaged=False).get(key)
    said = None if row is None or row.spill is not None else texts.readable(row, lambda call: None)
    own = [] if said is None else [term for text in said.texts for term in terms.terms(text)]
    if not own:
        return True
    within = Within(scope, number, number, unseen=True)
    return bool(engine.find(side, TermRun((own[-1],)), within, 1))
