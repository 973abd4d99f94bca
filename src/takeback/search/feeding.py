"""Bringing the index up to date from the feed, a batch at a time.

A batch reads the next changes and adds what their entries say, in the order of the feed, so that higher numbers are
newer. It also brings up to date what may be seen of the sessions that changed, their titles, and forgets what a purge
or a redaction erased. The position in the feed is kept in the same transaction, so a batch is added whole or not at
all, and whoever is killed, or loses a race, leaves nothing half done.

Nothing here raises for a damaged record: what cannot be read is left out, and ``verify`` reports it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from .. import codec
from ..errors import Corrupt
from ..ids import parse_entry_id
from ..ops import branches, feed, log
from ..ops.feed import Position
from ..storage.base import Tx, scalars
from ..tables import search as tables
from ..tables.entries import ENTRY, EntryRow
from ..tables.history import OPERATION, FeedRow
from ..tables.sessions import PURGED, SESSION, SessionRow
from ..tables.table import several, slots
from . import places, seen, state, terms, texts
from .index import IndexedText, SearchIndex, TermRun, Within

ERASING = frozenset({"purge", "redact"})  # the changes behind which something is gone
# Of one batch. On a server that many documents are a segment that is never joined again, so a large backlog is written
# once; a batch of 2,000 left twice as many dead rows as it kept. Long texts end a batch earlier: until it is committed
# nothing of it is kept, and on a server it holds up who follows the feed.
CHANGES, ENTRIES, BYTES = 8192, 8192, 4 << 20
_MANY = 5000  # documents of one read
_BACK = 64  # entries before a result among which the call is that it answers

_RANGE = f"{ENTRY.select} WHERE scope = ? AND key > ? AND key <= ? ORDER BY key LIMIT ?"
_MARKED = " ON CONFLICT (scope, bid) DO UPDATE SET upto = excluded.upto"
_WIDENED = """ ON CONFLICT (scope, block) DO UPDATE SET
low_s = CASE WHEN search_span.low_s < excluded.low_s THEN search_span.low_s ELSE excluded.low_s END,
high_s = CASE WHEN search_span.high_s > excluded.high_s THEN search_span.high_s ELSE excluded.high_s END"""
_ALIVE = "SELECT key FROM entry WHERE scope = ? AND (body IS NOT NULL OR spill IS NOT NULL) AND key IN "
_REDACTED = "WHERE scope = ? AND session = ? AND agent = 0 AND kind = 'redact'"


class BatchDone(NamedTuple):
    """What a batch did: whether there is more, how far the feed was read, and how many documents were erased."""

    more: bool
    position: Position
    erased: int = 0


def batch(main: Tx, side: Tx, index: SearchIndex, scope: str) -> BatchDone:
    """Add what the next changes say."""
    place = state.place_of(main, scope)
    if not main.dialect.gapless:
        side.lock(f"search:{place}")
    after = state.position(side, place)
    changes = state.changes(main, place, after, CHANGES)
    if not changes:
        return BatchDone(False, after) if main.dialect.gapless else _ahead(main, side, index, place, after)
    work = _Batch(main, side, index, int(state.read(side, place, "next") or 1))
    done = work.run([row for _, row in changes])
    work.write_marks()
    reached = changes[done - 1][0] if done else after
    state.note(side, place, "feed", ".".join(map(str, reached)))
    if main.dialect.gapless and reached:
        state.sign(main, side, after, reached[0])
    state.note(side, place, "next", str(work.number))
    more = done < len(changes) or len(changes) == CHANGES or not main.dialect.gapless
    return BatchDone(more, reached, work.erased)


def _ahead(main: Tx, side: Tx, index: SearchIndex, place: str, after: Position) -> BatchDone:
    """Add what is committed while an older transaction is still under way, without moving on in the feed.

    These changes are read again once their order is known; what is indexed already is passed over then.
    """
    count = feed.count_ahead(main, place, after)
    if not count or state.read(side, place, state.AHEAD) == state.ahead(after, count):
        return BatchDone(False, after)
    first = int(state.read(side, place, "next") or 1)
    work, at, whole = _Batch(main, side, index, first), after, True
    while whole and (changes := feed.rows_ahead(main, place, at, CHANGES)):
        at = changes[-1][0]
        whole = work.run([row for _, row in changes]) == len(changes) and work.number - first < ENTRIES
    work.write_marks()
    state.note(side, place, "next", str(work.number))
    if whole:
        state.note(side, place, state.AHEAD, state.ahead(after, count))
    return BatchDone(not whole, after, work.erased)


def forget(main: Tx, side: Tx, index: SearchIndex, scope: str, ids: Sequence[str]) -> int:
    """Erase what was erased of some sessions, without reading anything else; return how many documents that were.

    The changes that tell of it are still read in their turn, if they were not yet.
    """
    place = state.place_of(main, scope)
    if not main.dialect.gapless:
        side.lock(f"search:{place}")
    work = _Batch(main, side, index, int(state.read(side, place, "next") or 1))
    for some in several(ids, 500):
        where = f"INDEXED BY session_id WHERE scope = ? AND id IN ({slots(len(some))})"
        work.forget(scope, SESSION.all(main, where, (scope, *some)))
    work.write_marks()
    state.note(side, place, "next", str(work.number))
    return work.erased


def erase_more(main: Tx, side: Tx, index: SearchIndex, scope: str) -> bool:
    """Go on erasing; return whether there is still more."""
    if not main.dialect.gapless:
        side.lock(f"search:{state.place_of(main, scope)}")
    return index.erase(side, scope, ())


# ---------------------------------------------------------------------- one batch


class _Range(NamedTuple):
    """The entries low+1..high of a branch, and the number of the first change that has some of them."""

    first: int
    scope: str
    session: int
    branch: int
    low: int
    high: int


class _Batch:
    """Adds what some changes say."""

    def __init__(self, main: Tx, side: Tx, index: SearchIndex, number: int) -> None:
        self._main, self._side, self._index = main, side, index
        self.number = number  # of the next document
        self.erased = 0
        self._documents, self._size, self._left = list[IndexedText](), 0, BYTES
        self._marks = dict[tuple[str, int], int]()  # how far branches are indexed
        self._tools = dict[tuple[int, str], str]()  # the tool of each call, by the branch that announces it
        self._looked = set[int]()
        self._spans = dict[tuple[str, int], tuple[int, int]]()  # the times of the documents of each block

    def run(self, rows: Sequence[FeedRow]) -> int:
        """Add the entries of these changes, as long as they are not too much; return how many changes are done."""
        self._read_marks(rows)
        done, ranges = self._ranges(rows)
        sessions = self._sessions(rows[: done + 1])
        for each in ranges:
            reached = self._add_range(each, _fields(sessions.get((each.scope, each.session))))
            self._marks[each.scope, each.branch] = reached
            if self._left <= 0:
                done = min(done, self._first_left(rows, each.first))
                break
        told = rows[: done + 1]  # of one that is not done yet, what may be seen of its session is known all the same
        for scope in dict.fromkeys(row.scope for row in told if row.session > 0):
            own = [row for row in told if row.scope == scope]
            numbers = {row.session for row in own}
            changed = {sid: row for (where, sid), row in sessions.items() if where == scope and sid in numbers}
            self._bring_up_to_date(scope, changed, own)
        self._flush()
        return done

    def write_marks(self) -> None:
        """Note how far branches are indexed, and between which times the documents of each block lie."""
        for (scope, bid), upto in self._marks.items():
            self._side.run(tables.insert("search_branch") + _MARKED, (scope, bid, upto))
        for (scope, block), (low, high) in self._spans.items():
            self._side.run(tables.insert("search_span") + _WIDENED, (scope, block, low, high))

    def _sessions(self, rows: Sequence[FeedRow]) -> dict[tuple[str, int], SessionRow]:
        found = dict[tuple[str, int], SessionRow]()
        for scope in {row.scope for row in rows}:
            numbers = {row.session for row in rows if row.scope == scope and row.session > 0}
            known = SESSION.numbered(self._main, scope, numbers, damaged=False)
            found |= {(scope, sid): row for sid, row in known.items()}
        return found

    def _read_marks(self, rows: Sequence[FeedRow]) -> None:
        for scope in {row.scope for row in rows}:
            numbers = {row.branch for row in rows if row.scope == scope and row.kind == "entries"}
            for some in several(sorted(numbers), 500):
                sql = f"SELECT bid, upto FROM search_branch WHERE scope = ? AND bid IN ({slots(len(some))})"
                stored = {(scope, bid): upto for bid, upto in self._side.all(sql, (scope, *some))}
                self._marks = stored | self._marks

    def _ranges(self, rows: Sequence[FeedRow]) -> tuple[int, list[_Range]]:
        """Return how many changes to take, and what to read for them, in order; each entry is read once."""
        found, left, marks = list[_Range](), ENTRIES, self._marks.copy()
        for at, row in enumerate(rows):
            if row.kind != "entries":
                continue
            where = row.scope, row.branch
            low = max(row.first_seq - 1, marks.get(where, 0))
            high = min(row.last_seq, low + left)
            if high > low:
                marks[where], left = high, left - (high - low)
                if found and (found[-1].scope, found[-1].branch, found[-1].high) == (*where, low):
                    found[-1] = found[-1]._replace(high=high)
                else:
                    found.append(_Range(at, row.scope, row.session, row.branch, low, high))
            if high < row.last_seq:
                return at, found
            if left == 0:
                return at + 1, found
        return len(rows), found

    def _first_left(self, rows: Sequence[FeedRow], first: int) -> int:
        """Return the number of the first change, from one on, of which entries are left to read."""
        for at, row in enumerate(rows[first:], first):
            if row.kind == "entries" and row.last_seq > self._marks.get((row.scope, row.branch), 0):
                return at
        return len(rows)

    # ------------------------------------------------------------------ entries

    def _add_range(self, wanted: _Range, own: Sequence[str]) -> int:
        """Add entries, until the batch has enough; return the number of the last one."""
        low, last = log.key_of(wanted.branch, wanted.low), log.key_of(wanted.branch, wanted.high)
        while low < last:
            stored = self._main.all(_RANGE, (wanted.scope, low, last, log.PAGE))
            for each in stored:
                row = ENTRY.unchecked(each)
                if ENTRY.is_sound(each) and (whole := self._loaded(row)) is not None:
                    self._add_entry(whole, own)
                if self._left <= 0:
                    return row.seq
            if len(stored) < log.PAGE:
                break
            low = ENTRY.unchecked(stored[-1]).key
        return wanted.high

    def _loaded(self, row: EntryRow) -> EntryRow | None:
        if row.spill is None:
            return row
        try:
            (whole,) = log.loaded(self._main, [row])
            return whole
        except Corrupt:
            return None

    def _add_entry(self, row: EntryRow, own: Sequence[str]) -> None:
        if row.chain.calls:
            self._tools |= {(row.branch, call): tool for call, tool in texts.calls_in(row).items()}
        found = texts.readable(row, lambda call: self._tool_of(row, call))
        if found is not None and found.texts:
            fields = [*own, *(terms.field("kind", kind) for kind in found.kinds)]
            fields += [terms.field("role", found.role)] if found.role else []
            fields += [terms.field("tool", tool.casefold()) for tool in found.tools]
            self._put(row.scope, row.key, row.at_ms, texts.NUMBERS[found.kind], fields, found.texts)

    def _put(self, scope: str, key: int, at_ms: int, kind: int, fields: list[str], said: Sequence[str]) -> int:
        for text in said:
            fields += terms.terms(text)
            self._size += len(text)
            self._left -= len(text)
        number = self.number
        self._documents.append(IndexedText(number, scope, key, at_ms // 1000, kind, fields))
        self.number = number + 1
        if self._size > BYTES:
            self._flush()
        return number

    def _flush(self) -> None:
        """Hand what was read to the index, and widen the times of its blocks."""
        if not self._documents:
            return
        self._index.add(self._side, self._documents)
        for document in self._documents:
            where = document.scope, document.number // places.BLOCK
            low, high = self._spans.get(where, (document.at_s, document.at_s))
            self._spans[where] = min(low, document.at_s), max(high, document.at_s)
        self._documents, self._size = [], 0

    def _tool_of(self, row: EntryRow, call: str) -> str | None:
        """Return the tool of a call that an entry answers."""
        if (row.branch, call) not in self._tools and row.branch not in self._looked:
            self._looked.add(row.branch)
            self._tools = {(row.branch, name): tool for name, tool in _tools_before(self._main, row)} | self._tools
        return self._tools.get((row.branch, call))

    # ------------------------------------------------------------------ sessions

    def _bring_up_to_date(self, scope: str, changed: Mapping[int, SessionRow], rows: Sequence[FeedRow]) -> None:
        """Bring up to date what may be seen of the sessions that changed, and erase what was erased of them."""
        doomed = {row.session for row in rows if row.kind in ERASING} & changed.keys()
        otherwise = {row.session for row in rows if row.kind != "entries"}
        doomed |= {session.sid for session in changed.values() if session.hidden == PURGED and not session.staged}
        for session in changed.values():
            if session.sid not in doomed:
                appended = session.sid not in otherwise
                seen.bring_up_to_date(self._main, self._side, session, appended=appended)
        gone = self._entitle(scope, [session for session in changed.values() if session.sid not in doomed])
        self._flush()
        if doomed:
            self.forget(scope, [changed[sid] for sid in doomed], gone)
        else:
            self._index.remove(self._side, scope, sorted(gone))

    def forget(self, scope: str, doomed: Sequence[SessionRow], gone: Iterable[int] = ()) -> None:
        """Erase what was erased of some sessions, and these documents."""
        found, owners = {*gone}, {session.sid for session in doomed}
        for session in doomed:
            # Of a session purged earlier, what was kept for this one goes with it.
            sql = "SELECT DISTINCT owner FROM search_place INDEXED BY search_place_sid WHERE scope = ? AND sid = ?"
            owners |= {*scalars(self._side, sql, (scope, session.sid))}
            known = branches.by_uids(self._main, scope, {uid for uid, _ in self._redacted(session)})
            owners |= {row.session for row in known.values()}
            seen.bring_up_to_date(self._main, self._side, session)
        for sid in owners:
            found |= self._dead(scope, sid)
        redacted = any(session.hidden != PURGED for session in doomed)
        found |= self._entitle_all(scope) if redacted else self._entitle(scope, doomed)
        self._flush()
        self.erased += len(found)
        self._index.erase(self._side, scope, sorted(found))
        if found:
            state.note(self._side, state.place_of(self._main, scope), state.ERASING_STILL, scope)

    def _entitle_all(self, scope: str) -> set[int]:
        """Look at every title: one may come from a message that was erased in the session it was forked from."""
        sql = "SELECT sid FROM search_session WHERE scope = ? AND sid > ? ORDER BY sid LIMIT 500"
        gone, after = set[int](), -1
        while numbers := scalars(self._side, sql, (scope, after)):
            gone |= self._entitle(scope, SESSION.numbered(self._main, scope, numbers, damaged=False).values())
            after = numbers[-1]
        return gone

    def _entitle(self, scope: str, sessions: Iterable[SessionRow]) -> set[int]:
        """Index the titles that changed, and return the documents of the old ones."""
        sessions, gone = list(sessions), set[int]()
        known = dict[int, tuple[int, str]]()
        for some in several([session.sid for session in sessions], 500):
            sql = f"SELECT sid, title, said FROM search_session WHERE scope = ? AND sid IN ({slots(len(some))})"
            known |= {sid: (title, said) for sid, title, said in self._side.all(sql, (scope, *some))}
        for session in sessions:
            title, said = known.get(session.sid, (0, ""))
            text, shown = seen.title_of(session), seen.digest(session)
            if shown == said:
                continue
            gone |= {title} if title else set()
            number = self._put_title(session, text) if text else 0
            sql = "UPDATE search_session SET title = ?, said = ? WHERE scope = ? AND sid = ?"
            self._side.run(sql, (number, shown, scope, session.sid))
        return gone

    def _put_title(self, session: SessionRow, text: Sequence[str]) -> int:
        fields = [*_fields(session), terms.field("kind", "title")]
        return self._put(session.scope, -session.sid << 32, session.created_ms, texts.TITLE, fields, text)

    # ------------------------------------------------------------------ what was erased

    def _redacted(self, session: SessionRow) -> list[tuple[str, int]]:
        """Return branch and seq of every entry that was redacted in a session; some may lie in its forks."""
        rows = OPERATION.all(self._main, _REDACTED, (session.scope, session.sid))
        ids = [each for row in rows for each in codec.decode(row.after).get("redacted", ())]
        return [parsed for each in ids if (parsed := parse_entry_id(each)) is not None]

    def _dead(self, scope: str, sid: int) -> set[int]:
        """Return the documents of a session whose entries are gone or redacted."""
        wanted, found = TermRun((terms.session(sid),)), set[int]()
        within = Within(scope, unseen=True)
        while matches := self._index.find(self._side, wanted, within, _MANY):
            numbers = {match.key: match.number for match in matches if match.key > 0}
            for some in several(sorted(numbers), 500):
                alive = {*scalars(self._main, f"{_ALIVE}({slots(len(some))})", (scope, *some))}
                found |= {numbers[key] for key in some if key not in alive}
            within = within._replace(high=matches[-1].number - 1)
        return found


def tool_before(main: Tx, row: EntryRow, call: str) -> str | None:
    """Return the tool of a call that an entry answers, if that is not far before it."""
    return dict(_tools_before(main, row)).get(call)


def _tools_before(main: Tx, row: EntryRow) -> Iterator[tuple[str, str]]:
    """Yield the calls that lie right before an entry on its branch, with their tools."""
    args = (row.scope, max(row.key - _BACK, log.key_of(row.branch, 0)), row.key - 1, _BACK)
    for stored in main.all(_RANGE, args):
        before = ENTRY.unchecked(stored)
        if ENTRY.is_sound(stored) and before.spill is None and before.chain.calls:
            yield from texts.calls_in(before).items()


def _fields(session: SessionRow | None) -> list[str]:
    """Return the terms that every document of a session has."""
    if session is None:
        return []
    place = [terms.field("workspace", session.workspace)] if session.workspace else []
    return [terms.session(session.sid), terms.field("agent", session.agent), *place]
