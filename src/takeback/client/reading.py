"""Reading a session: windows from either end, streams in pages, totals at any point.

Each page is a read of its own, so a slow reader holds up no writer and memory holds one page. What few readers need is
loaded when it is called: a shell that shows a session starts at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from msgspec.structs import replace

from .. import codec, presence
from ..errors import Corrupt, Invalid, NotFound
from ..model.entry import Entry, Numbers
from ..model.message import MESSAGE, MESSAGE_KINDS, Message
from ..model.session import Stats
from ..ops import branches as trees
from ..ops import log, sessions
from ..storage.base import Op, Tx
from . import arguments
from .fields import Fields

if TYPE_CHECKING:
    from ..model.branch import Branch
    from ..model.checkpoint import Checkpoint
    from ..model.tools import ToolCall
    from ..ops import open_streams
    from ..tables.entries import EntryRow
    from .points import Point

T = TypeVar("T")
Make: TypeAlias = "Callable[[dict[int, str], list[EntryRow]], list[T]]"


class Turn(NamedTuple):
    """A turn of the conversation; 0 is what came before the first user message."""

    number: int
    messages: tuple[Message, ...]

    @property
    def prompt(self) -> str:
        """What the user said; nothing in turn 0."""
        return self.messages[0].text if self.number else ""

    def __repr__(self) -> str:
        return f"<Turn {self.number} {self.prompt[:40]!r}, {len(self.messages)} messages>"


class Reading(Fields):
    """The part of a session that reads."""

    def messages(
        self,
        *,
        limit: int | None = None,
        after: int | None = None,
        before: int | None = None,
        tools: bool = True,
        at: Point | None = None,
    ) -> list[Message]:
        """Give messages, oldest first: the latest ``limit`` of them, or the first ones ``after`` a seq.

        The limit counts after the filter. ``tools=False`` leaves tool messages out. ``at`` reads the path to a point,
        such as another branch. An answer that is being written comes last, with the status ``streaming`` and seq 0: it
        has no place yet.
        """
        make, (low, high) = make_messages(tools, self._store._attachment), _bounds(after, before)
        if limit is not None:
            arguments.whole(limit, what="limit")
        session, open_ = self._path_to(at)
        if before is not None:
            open_ = []
        if limit is not None and after is None:
            return [*self._latest(session, max(0, limit - len(open_)), high, make), *open_][
                max(0, len(open_) - limit) :
            ]
        found: list[Message] = []
        for page in self._pages_of(session, low, min(high, session.seq), make):
            found += page
            if limit is not None and len(found) >= limit:
                break
        return [*found, *open_][:limit]

    def iter_messages(
        self, *, after: int | None = None, tools: bool = True, at: Point | None = None
    ) -> Iterator[Message]:
        """Stream messages, oldest first, up to the head of this moment or to a point, then what is being written."""
        low, make = _bounds(after, None)[0], make_messages(tools, self._store._attachment)
        session, open_ = self._path_to(at)
        return chain(chain.from_iterable(self._pages_of(session, low, session.seq, make)), open_)

    def entries(self, *, after: int | None = None, before: int | None = None) -> Iterator[Entry]:
        """Stream entries of every kind, oldest first."""
        low, high = _bounds(after, before)
        return chain.from_iterable(self._pages(low, high, _make_entries))

    def message(self, id: str) -> Message:
        """Give a message of the path by its id, the caller's or the store's."""
        wanted = arguments.name(id, what="message id")

        def look(tx: Tx) -> list[Message]:
            session = self._row(tx)
            segment = log.find_message(tx, session, wanted)
            if segment is None:
                raise NotFound(f"there is no message {wanted!r} on the path of this session")
            rows = log.read(tx, session.scope, [segment])
            return make_messages(True, self._store._attachment)({segment.bid: segment.uid}, rows)

        for message in self._store._read(look):
            return message
        raise NotFound(f"entry {wanted!r} is not a message")

    def turns(self) -> Iterator[Turn]:
        """Stream the turns of the path: each a user message and all that follows up to the next."""
        for number, group in groupby(self.iter_messages(), lambda message: message.turn):
            yield Turn(number, tuple(group))

    def stats(self, at: Point | None = None, *, spent: bool = False) -> Stats:
        """Give the totals of the path, up to a point if one is given; one read at any depth.

        ``spent`` counts every entry of every branch once instead: what was spent does not go back with a rewind.
        """
        if spent and at is not None:
            raise Invalid("what was spent has no point; give at, or spent=True")
        seen = _seen_at(at)

        def look(tx: Tx) -> tuple[Numbers, int]:
            session = self._row(tx)
            if spent:
                from ..ops import stats as totals

                return totals.spent(tx, session), session.created_ms
            there = session if seen is None else seen(tx, session)
            return there.numbers, session.created_ms

        numbers, started = self._store._read(look)
        return Stats.from_numbers(numbers, started_ms=started)

    def tool_calls(self) -> list[ToolCall]:
        """Give the tool calls of the path in order, each with its status, times and result."""
        from ..ops import calls

        return self._store._read(lambda tx: self._known_calls(tx, list(calls.all_calls(tx, self._row(tx)))))

    def pending_calls(self) -> list[ToolCall]:
        """Give the tool calls of the path that have no result, in the order they were announced.

        One is ``pending`` until its tool is started, then ``running``; ``unknown`` if the process that ran it is gone:
        it may or may not have had its effect. ``retry`` it, or say with ``resolve_call`` how it ended.
        """
        from ..ops import calls

        return self._store._read(lambda tx: self._known_calls(tx, calls.pending(tx, self._row(tx))))

    # ------------------------------------------------------------------ branches and checkpoints

    def branches(self) -> list[Branch]:
        """Give all branches, oldest first; one whose fork was undone is left out."""

        def look(tx: Tx) -> list[Branch]:
            row = self._row(tx)
            found = trees.of_session(tx, row.scope, row.sid, row.branches)
            names = {branch.bid: branch.name for branch in found}
            return [
                branch_value(row, branch, names) for branch in found if not branch.hidden or branch.bid == row.branch
            ]

        return self._store._read(look)

    def checkpoints(self) -> list[Checkpoint]:
        """Give the session's checkpoints in the order they were made."""
        from ..ops import checkpoints

        def look(tx: Tx) -> list[Checkpoint]:
            session = self._row(tx)
            return [checkpoints.as_value(tx, session, row) for row in checkpoints.of_session(tx, session)]

        return self._store._read(look)

    def get_checkpoint(self, id_or_name: str) -> Checkpoint:
        """Give a checkpoint by its id, or the newest of that name."""
        from ..ops import checkpoints

        wanted = arguments.name(id_or_name, what="checkpoint")

        def look(tx: Tx) -> Checkpoint:
            session = self._row(tx)
            return checkpoints.as_value(tx, session, checkpoints.get(tx, session, wanted))

        return self._store._read(look)

    # ------------------------------------------------------------------ how it is read

    def _known_calls(self, tx: Tx, found: list[ToolCall]) -> list[ToolCall]:
        """Show calls as unknown that a process ran which is gone, also before anybody has written that down."""
        if not any(call.status == "running" for call in found) or self._holds():
            return found
        lease = sessions.find_lease(tx, self._row(tx))
        if lease is None or not self._store._is_gone(lease):
            return found
        return [replace(call, status="unknown") if call.status == "running" else call for call in found]

    def _path_to(self, at: Point | None) -> tuple[sessions.SessionRow, list[Message]]:
        """Give the session as it stands, or stood at a point, with the answers that are being written there."""
        seen, now_ms = _seen_at(at), self._store._clock.now_ms()

        def look(tx: Tx) -> tuple[sessions.SessionRow, list[Message]]:
            session = self._row(tx)
            return _moment(tx, session, now_ms) if seen is None else (seen(tx, session), [])

        return self._store._read(look)

    def _latest(self, session: sessions.SessionRow, limit: int, high: int, make: Make[T]) -> list[T]:
        """Read backwards in growing windows, each a read of its own, until enough has passed the filter."""
        high, window = min(high, session.seq), min(max(limit, 1), log.PAGE)
        windows, count = list[list[T]](), 0
        while high > 0 and count < limit:
            low = max(0, high - window)
            windows.append([item for page in self._pages_of(session, low, high, make) for item in page])
            count, high, window = count + len(windows[-1]), low, min(2 * window, log.PAGE)
        found = [item for items in reversed(windows) for item in items]
        return found[-limit:] if limit else []

    def _pages(self, low: int, high: int, make: Make[T]) -> Iterator[list[T]]:
        """Page through the path as it is now."""
        session = self._store._read(self._row)
        return self._pages_of(session, low, min(high, session.seq), make)

    def _pages_of(self, session: sessions.SessionRow, low: int, high: int, make: Make[T]) -> Iterator[list[T]]:
        """Page through a fixed path; each page is a read of its own."""
        while low < high:
            try:
                page, low = self._store._read(_page_op(session, low, min(low + log.PAGE, high), make))
            except Corrupt:
                self._store._read(self._row)  # a session that was purged meanwhile is not found, not damaged
                raise
            yield page


def _seen_at(at: Point | None) -> Callable[[Tx, sessions.SessionRow], sessions.SessionRow] | None:
    """Give a function that shows a session as it stood at a point, if one is given."""
    if at is None:
        return None
    from .points import seen_at

    return seen_at(at)


def _moment(tx: Tx, session: sessions.SessionRow, now_ms: int) -> tuple[sessions.SessionRow, list[Message]]:
    """Give a session's row with the answers that are being written where its head is."""
    from ..ops import open_streams

    open_ = (
        open_streams.of_session(tx, session) if session.attached else ()
    )  # they are sealed behind the end of a branch
    found = [stream for stream in open_ if stream.branch == session.branch]
    return session, [_written(tx, session, stream, now_ms) for stream in found]


def _written(tx: Tx, session: sessions.SessionRow, stream: open_streams.StreamRow, now_ms: int) -> Message:
    """Show what has arrived of an answer."""
    from ..ops import open_streams

    said, sign = open_streams.pieces(tx, stream), open_streams.last_sign(tx, stream)
    gone = presence.has_left(presence.decode(stream.holder), sign, now_ms)
    about = {"id": stream.id, **codec.decode(stream.about)}
    body = open_streams.body(about, said, "interrupted" if gone else "streaming")
    return Message(session.uid, 0, session.turns, stream.at_ms, codec.encode(body))


def make_messages(tools: bool, reader: Callable[[dict[str, Any]], Any]) -> Make[Message]:
    """Give a function that turns checked rows into messages."""
    kinds, mask = MESSAGE_KINDS if tools else frozenset({MESSAGE}), log.MAX_SEQ

    def make(uids: dict[int, str], rows: list[EntryRow]) -> list[Message]:
        return [  # not through ``as_message`` and the row's properties: this is half of what reading costs
            Message(uids[(key := row.key) >> 32], key & mask, row.turns, row.at_ms, row.body, row.raw, None, reader)
            for row in rows
            if row.kind in kinds
        ]

    return make


def as_message(uid: str, row: EntryRow, reader: Callable[[dict[str, Any]], Any]) -> Message:
    """Show an entry to callers as a message; ``reader`` opens its attachments."""
    return Message(uid, row.seq, row.turns, row.at_ms, row.body, row.raw, None, reader)


def _make_entries(uids: dict[int, str], rows: list[EntryRow]) -> list[Entry]:
    return [log.as_entry(uids[row.branch], row) for row in rows]


def _bounds(after: int | None, before: int | None) -> tuple[int, int]:
    low = 0 if after is None else arguments.whole(after, what="after")
    high = (1 << 53) if before is None else arguments.whole(before, what="before") - 1
    return low, high


def _page_op(session: sessions.SessionRow, low: int, high: int, make: Make[T]) -> Op[tuple[list[T], int]]:
    return lambda tx: _read_path(tx, session, low, high, make)


def _read_path(tx: Tx, session: sessions.SessionRow, low: int, high: int, make: Make[T]) -> tuple[list[T], int]:
    """Read a page of a fixed path and say where it ended: early behind very large entries."""
    segments = log.path_segments(tx, session, low, high)
    rows = log.read(tx, session.scope, segments)
    uids = {segment.bid: segment.uid for segment in segments}
    return make(uids, rows), rows[-1].seq


def branch_value(session: sessions.SessionRow, branch: trees.BranchRow, names: dict[int, str]) -> Branch:
    """Show a branch of a session; ``names`` are those of the branches that it may have left."""
    here = session.branch == branch.bid
    tip = session.seq if here and session.attached else branch.tip_seq
    parent = None if branch.parent is None else names.get(branch.parent)
    return trees.as_value(branch, parent=parent, head_seq=tip, is_head=here)
