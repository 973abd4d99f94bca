"""Reading a session: windows from either end, iteration in pages, totals at any point.

Each page is a read of its own, so a slow reader blocks no writer and memory holds one page. What few readers need is
imported on first use, so that a command that shows a session starts at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias, TypeVar

from ..errors import Corrupt, Invalid, NotFound
from ..model import page as pages
from ..model import values
from ..model.entry import Entry
from ..model.message import MESSAGE, MESSAGE_KINDS, Message
from ..model.session import Stats
from ..ops import branches as trees
from ..ops import log, sessions
from ..ops.log import as_message as as_message
from . import arguments
from .fields import Fields

if TYPE_CHECKING:
    from ..model.approval import Approval
    from ..model.branch import Branch
    from ..model.checkpoint import Checkpoint
    from ..model.items import Custom
    from ..model.page import Page
    from ..model.tools import ToolCall
    from ..ops.points import Target
    from ..tables.entries import EntryRow
    from .points import Point

T = TypeVar("T")
Make: TypeAlias = "Callable[[dict[int, str], list[EntryRow]], list[T]]"


class Turn(NamedTuple):
    """A turn of the conversation; turn 0 is what came before the first user message."""

    number: int
    messages: tuple[Message, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON data."""
        return values.to_dict(self)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """Make an equal value from what ``to_dict`` returned."""
        return values.from_dict(cls, given)

    @property
    def prompt(self) -> str:
        """What the user said; empty in turn 0, and in a turn that a custom entry opened."""
        return self.messages[0].text if self.number and self.messages[0].role == "user" else ""

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
        """Return messages, oldest first: the latest ``limit`` of them, or the first ones ``after`` a seq.

        The limit applies after the filter; ``tools=False`` leaves tool messages out. ``at`` reads the path to a point,
        such as another branch. An answer that is still being written comes last, with the status ``streaming`` and seq
        0, since it has no place yet.
        """
        kinds, (low, high) = _kinds(tools), _bounds(after, before)
        if limit is not None:
            arguments.whole(limit, what="limit")
        store, latest = self._store, limit if after is None else None
        begun = store._read(
            log.begin,
            *(store.scope, self.id, _target(at), low, high, kinds, store._attachment),
            latest=latest,
            now_ms=store._clock.now_ms(),
        )
        open_ = begun.open if before is None else []
        if latest is not None:
            return [*self._latest(begun, latest, high, kinds), *open_][-latest:] if latest else []
        found, last = begun.found, min(high, begun.session.seq)
        for page in self._message_pages(begun.session, begun.high, last, kinds) if begun.high < last else ():
            if limit is not None and len(found) >= limit:
                break
            found += page
        return [*found, *open_][:limit]

    def iter_messages(
        self, *, after: int | None = None, tools: bool = True, at: Point | None = None
    ) -> Iterator[Message]:
        """Yield messages, oldest first, up to the current head or to a point, then what is being written."""
        low, _ = _bounds(after, None)
        session, open_ = self._path_to(at)
        return chain(chain.from_iterable(self._message_pages(session, low, session.seq, _kinds(tools))), open_)

    def entries(self, *, after: int | None = None, before: int | None = None) -> Iterator[Entry]:
        """Yield entries of every kind, oldest first."""
        low, high = _bounds(after, before)
        return chain.from_iterable(self._pages(low, high, _make_entries))

    def message(self, id: str) -> Message:
        """Return a message on the path by its id, whether the caller's or the store's."""
        wanted = arguments.name(id, what="message id")
        for message in make_messages(True, self._store._attachment)(*self._ask(log.message_rows, wanted)):
            return message
        raise NotFound(f"entry {wanted!r} is not a message")

    def custom(self, id: str) -> Custom:
        """Return a custom entry on the path by its id."""
        from ..ops import customs

        return self._ask(customs.get, arguments.name(id, what="id"))

    def customs(
        self,
        kind: str | None = None,
        *,
        id_prefix: str | None = None,
        newest: bool = False,
        limit: int = 100,
        cursor: str | None = None,
        all_branches: bool = False,
    ) -> Page[Custom]:
        """List custom entries of the path, oldest first, or newest first; only those of a kind if one is given.

        ``id_prefix`` lists those whose ids begin with it. ``all_branches`` goes through the branches one after the
        other, in the order they were opened. Pass the page's cursor to get the next page.
        """
        from ..ops import customs

        arguments.flag(newest, what="newest")
        arguments.flag(all_branches, what="all_branches")
        wanted = customs.WantedCustoms(
            arguments.optional_name(kind, what="kind"),
            arguments.optional_name(id_prefix, what="id_prefix"),
            newest,
            arguments.whole(limit, what="limit", low=1, high=10_000),
            arguments.optional_name(cursor, what="cursor"),
            all_branches,
        )
        return pages.Page(*self._ask(customs.page, wanted))

    def turns(self) -> Iterator[Turn]:
        """Yield the turns of the path: each a user message and everything up to the next one."""
        for number, group in groupby(self.iter_messages(), lambda message: message.turn):
            yield Turn(number, tuple(group))

    def stats(self, at: Point | None = None, *, spent: bool = False) -> Stats:
        """Return the totals of the path, up to a point if one is given; a single read at any depth.

        With ``spent`` every entry of every branch counts once instead: what was spent does not go back with a rewind.
        """
        arguments.flag(spent, what="spent")
        if spent and at is not None:
            raise Invalid("spent=True counts every branch and takes no point; pass either at= or spent=True")
        if spent:
            from ..ops import stats as totals

            numbers, started = self._ask(totals.spent_since)
        else:
            numbers, started = self._ask(log.totals_at, _target(at))
        return Stats.from_numbers(numbers, started_ms=started)

    def tool_call(self, id: str) -> ToolCall:
        """Return the newest tool call on the path with this id, or raise ``NotFound``."""
        from ..ops import calls

        return self._ask(calls.judged_newest, arguments.name(id, what="call"), self._calls_are_lost)

    def tool_calls(self) -> list[ToolCall]:
        """Return the tool calls on the path in order, each with its status, times and result."""
        from ..ops import calls

        return self._ask(calls.all_judged, self._calls_are_lost)

    def pending_calls(self) -> list[ToolCall]:
        """Return the tool calls on the path that have no result, in the order they were announced.

        A call is ``pending`` until its tool is started, then ``running``; it is ``unknown`` if the process that ran it
        is gone, since it may or may not have taken effect. ``retry`` it, or record with ``resolve_call`` how it ended.
        """
        from ..ops import calls

        return self._ask(calls.pending_judged, self._calls_are_lost)

    def needs_reply(self) -> bool:
        """Return whether the model is to speak next: what a loop asks before it makes a context.

        True after a user message, after the results of all calls of the last answer, and after an answer that was cut
        off. False while calls wait for their tools or an answer is being written, after a complete answer, and in a
        session that is empty or finished.
        """
        from ..ops import replies

        store = self._store
        return store._read(replies.needed, store.scope, self.id, store._clock.now_ms())

    def approvals(self) -> list[Approval]:
        """List the questions about open calls on the path, answered or not."""
        from ..ops import approvals

        return self._ask(approvals.of_path)

    # ------------------------------------------------------------------ branches and checkpoints

    def branches(self) -> list[Branch]:
        """List all branches, oldest first, except those whose fork was undone."""
        return self._ask(trees.shown)

    def checkpoints(
        self, *, limit: int | None = None, cursor: str | None = None, newest: bool = False
    ) -> Page[Checkpoint]:
        """List the session's checkpoints in the order they were taken, or with ``newest`` from the last one on.

        Without a ``limit`` all of them; else pass the page's cursor to get the next page.
        """
        from ..ops import checkpoints

        portion = checkpoints.Portion(*arguments.portion(limit, cursor), newest)
        found, more = self._ask(checkpoints.page, portion)
        return arguments.page_of(found, more)

    def get_checkpoint(self, id_or_name: str) -> Checkpoint:
        """Return a checkpoint by its id, or the newest with that name."""
        from ..ops import checkpoints

        return self._ask(checkpoints.value_of, arguments.name(id_or_name, what="checkpoint"))

    # ------------------------------------------------------------------ how it is read

    def _calls_are_lost(self, lease: sessions.LeaseRow | None) -> bool:
        """Whether the process that ran the running calls is gone, even if nobody has recorded that yet."""
        return not self._holds() and lease is not None and self._store._is_gone(lease)

    def _path_to(self, at: Point | None) -> tuple[sessions.SessionRow, list[Message]]:
        """Return the session now, or as it was at a point, with the answers being written there."""
        if at is not None:
            from ..ops import points

            return self._ask(points.seen_from, _target(at)), []
        from ..ops import open_streams

        return self._store._read(open_streams.moment, self._store.scope, self.id, self._store._clock.now_ms())

    def _latest(self, begun: log.Begun, limit: int, high: int, kinds: frozenset[str]) -> list[Message]:
        """Read on backwards in growing windows, each a read of its own, until enough entries pass the filter."""
        (session, _, found, low, reached), last = begun, min(high, begun.session.seq)
        window = last - low
        if reached < last:  # large entries ended the page early
            found += chain.from_iterable(self._message_pages(session, reached, last, kinds))
        while low > 0 and len(found) < limit:
            high, window = low, min(2 * window, log.PAGE)
            low = max(0, high - window)
            found = [*chain.from_iterable(self._message_pages(session, low, high, kinds)), *found]
        return found

    def _pages(self, low: int, high: int, make: Make[T]) -> Iterator[list[T]]:
        """Page through the path as it is now."""
        session = self._store._read(sessions.get, self._store.scope, self.id)
        return self._pages_of(session, low, min(high, session.seq), make)

    def _message_pages(
        self, session: sessions.SessionRow, low: int, high: int, kinds: frozenset[str]
    ) -> Iterator[list[Message]]:
        """Page through the messages of a fixed path."""
        return self._paged(log.read_messages, session, low, high, kinds, self._store._attachment)

    def _pages_of(self, session: sessions.SessionRow, low: int, high: int, make: Make[T]) -> Iterator[list[T]]:
        """Page through a fixed path."""
        return self._paged(log.read_path, session, low, high, make)

    def _paged(
        self, page_at: Callable[..., tuple[list[T], int]], session: sessions.SessionRow, low: int, high: int, *how: Any
    ) -> Iterator[list[T]]:
        """Page through a fixed path; each page is a read of its own."""
        while low < high:
            try:
                page, low = self._store._read(page_at, session, low, min(low + log.PAGE, high), *how)
            except Corrupt:
                # raises NotFound, not Corrupt, if the session was purged meanwhile
                self._store._read(sessions.get, self._store.scope, self.id)
                raise
            yield page


def _target(at: Point | None) -> Target | None:
    """Check a point, if one is given."""
    if at is None:
        return None
    from .points import target_of

    return target_of(at)


def make_messages(tools: bool, reader: Callable[[dict[str, Any]], Any]) -> Make[Message]:
    """Return a function that turns checked rows into messages."""
    kinds = _kinds(tools)

    def make(uids: dict[int, str], rows: list[EntryRow]) -> list[Message]:
        return [as_message(uids[row.branch], row, reader) for row in rows if row.kind in kinds]

    return make


def _kinds(tools: bool) -> frozenset[str]:
    """Return the kinds of entries that are messages, with or without those of tools."""
    arguments.flag(tools, what="tools")
    return MESSAGE_KINDS if tools else _SPOKEN


_SPOKEN = frozenset({MESSAGE})


def _make_entries(uids: dict[int, str], rows: list[EntryRow]) -> list[Entry]:
    return [log.as_entry(uids[row.branch], row) for row in rows]


def _bounds(after: int | None, before: int | None) -> tuple[int, int]:
    low = 0 if after is None else arguments.whole(after, what="after")
    high = (1 << 53) if before is None else arguments.whole(before, what="before") - 1
    return low, high
