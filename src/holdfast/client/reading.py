"""Reading a session: windows from either end, streams in pages, totals at any point.

Each page is a read of its own, so a slow reader holds up no writer and memory holds one page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..errors import NotFound
from ..ids import parse_entry_id
from ..model import message as messages_
from ..model.entry import Entry
from ..model.message import MESSAGE, MESSAGE_KINDS, Message
from ..model.session import Stats
from ..ops import branches, sessions
from ..ops import entries as log
from ..storage.base import Op, Tx
from . import check
from .handle import Handle

_Rows = list[tuple[str, log.Content]]


class Reading(Handle):
    """The part of a session that reads."""

    def messages(
        self, *, limit: int | None = None, after: int | None = None, before: int | None = None, tools: bool = True
    ) -> list[Message]:
        """Give messages, oldest first: the latest ``limit`` of them, or the first ones ``after`` a seq.

        The limit counts after the filter. ``tools=False`` leaves tool messages out.
        """
        kinds = MESSAGE_KINDS if tools else frozenset({MESSAGE})
        low, high = _bounds(after, before)
        if limit is None or after is not None:
            found = self._iterate(low, high, kinds)
            wanted = [] if limit == 0 else _take(found, limit)
            return [_message(uid, row) for uid, row in wanted]
        check.whole(limit, what="limit")
        rows = self._store._read(lambda tx: self._latest(tx, limit, high, kinds))
        return [_message(uid, row) for uid, row in rows]

    def iter_messages(self, *, after: int | None = None, tools: bool = True) -> Iterator[Message]:
        """Stream messages, oldest first, up to the head of this moment; memory holds one page."""
        kinds = MESSAGE_KINDS if tools else frozenset({MESSAGE})
        low, high = _bounds(after, None)
        return (_message(uid, row) for uid, row in self._iterate(low, high, kinds))

    def entries(self, *, after: int | None = None, before: int | None = None) -> Iterator[Entry]:
        """Stream entries of every kind, oldest first."""
        low, high = _bounds(after, before)
        return (log.as_entry(uid, row) for uid, row in self._iterate(low, high, None))

    def message(self, id: str) -> Message:
        """Give a message of the path by its id, the caller's or the store's."""
        wanted = check.name(id, what="message id")

        def look(tx: Tx) -> tuple[str, log.Content]:
            row = self._row(tx)
            segment = log.find_by_id(tx, row, wanted) or _own_id(tx, row, wanted)
            if segment is None:
                raise NotFound(f"there is no message {wanted!r} on the path of this session")
            content = log.read_segment(tx, row.scope, segment)[0]
            if content.kind not in MESSAGE_KINDS:
                raise NotFound(f"entry {wanted!r} is a {content.kind}, not a message")
            return segment.uid, content

        return _message(*self._store._read(look))

    def stats(self, at: int | None = None) -> Stats:
        """Give the totals of the path, up to entry ``at`` if given; one read at any depth."""
        if at is not None:
            check.whole(at, what="at")
        return Stats.from_numbers(self._store._read(lambda tx: log.numbers_at(tx, self._row(tx), at)))

    def _latest(self, tx: Tx, limit: int, high: int, kinds: frozenset[str]) -> _Rows:
        row = self._row(tx)
        high = min(high, row.place.seq)
        found: _Rows = []
        while high > 0 and len(found) < limit:
            low = max(0, high - max(limit - len(found), 32 if found else 1))
            page = [
                (segment.uid, content)
                for segment in log.path_segments(tx, row, low, high)
                for content in _whole_segment(tx, row.scope, segment)
                if content.kind in kinds
            ]
            found = page + found
            high = low
        return found[-limit:] if limit else []

    def _iterate(self, low: int, high: int, kinds: frozenset[str] | None) -> Iterator[tuple[str, log.Content]]:
        """Page through the path as it is now; each page is a read of its own."""
        session = self._store._read(self._row)
        high = min(high, session.place.seq)
        while low < high:
            page_end = min(low + log.PAGE, high)
            page = self._store._read(_read_page(session, low, page_end))
            for uid, content in page:
                if kinds is None or content.kind in kinds:
                    yield uid, content
            low = page[-1][1].seq


def _message(uid: str, row: log.Content) -> Message:
    body = messages_.REDACTED if row.body is None else messages_.decode_body(row.body)
    return Message(uid, row.seq, row.turns, row.at_ms, row.raw, body)


def _bounds(after: int | None, before: int | None) -> tuple[int, int]:
    low = 0 if after is None else check.whole(after, what="after")
    high = (1 << 53) if before is None else check.whole(before, what="before") - 1
    return low, high


def _take(rows: Iterable[tuple[str, log.Content]], limit: int | None) -> _Rows:
    found: _Rows = []
    for row in rows:
        found.append(row)
        if limit is not None and len(found) >= limit:
            break
    return found


def _read_page(session: sessions.SessionRow, low: int, high: int) -> Op[_Rows]:
    """Read a page of a fixed path; a page ends early behind a very large entry."""

    def op(tx: Tx) -> _Rows:
        found: _Rows = []
        for segment in log.path_segments(tx, session, low, high):
            rows = log.read_segment(tx, session.scope, segment)
            found += [(segment.uid, row) for row in rows]
            if len(rows) < segment.high - segment.low:
                break
        return found

    return op


def _whole_segment(tx: Tx, scope: str, segment: branches.Segment) -> list[log.Content]:
    rows = log.read_segment(tx, scope, segment)
    while rows[-1].seq < segment.high:
        rows += log.read_segment(tx, scope, segment._replace(low=rows[-1].seq))
    return rows


def _own_id(tx: Tx, session: sessions.SessionRow, text: str) -> branches.Segment | None:
    parsed = parse_entry_id(text)
    if parsed is None or not 0 < parsed[1] <= session.place.seq:
        return None
    uid, seq = parsed
    segment = log.path_segments(tx, session, seq - 1, seq)[0]
    return segment if segment.uid == uid else None
