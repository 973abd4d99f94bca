"""What was spent, by model, day, agent or tool: every entry counts once, on whichever branch it is.

Money does not come back with a rewind, so branches that were left count too; a fork reads entries of another session,
which owns them and counts them. The totals that each entry carries say what it added. Only what they cannot say is
taken from its content: the model, the tools, and the usage to price.

Entries are read in pages, and only sums are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import tzinfo
from operator import sub
from typing import Any

from .. import codec, prices
from ..clock import to_datetime
from ..errors import Invalid, NotFound, Unsupported
from ..model.entry import CALL, Numbers
from ..model.message import MESSAGE_KINDS, Message
from ..model.spending import Spent
from ..model.usage import Usage
from ..ops import log, stats
from ..tables.entries import EntryRow
from .reading import Reading

_REMEMBERED = 10_000  # calls whose tools are known when their results come
_UNNAMED = ""
_COUNTED = Numbers._fields.index("work_seq")  # the totals before it are sums
_USAGE = slice(Numbers._fields.index("input_tokens"), Numbers._fields.index("active_ms"))
WAYS = {"model": "_by_model", "day": "_by_day", "agent": "_by_agent", "tool": "_by_tool"}


class Sum:
    """What was spent under one key so far."""

    def __init__(self) -> None:
        self.counts = Counter[str]()
        self.usage = Usage()
        self.unpriced = Counter[str]()

    def value(self, key: str) -> Spent:
        """Return the sum as the value that callers see."""
        return Spent(key=key, usage=self.usage, unpriced=dict(self.unpriced), **self.counts)


class Spending:
    """Adds up what sessions spent. ``since_ms`` leaves out what happened before."""

    def __init__(self, by: str, zone: tzinfo, since_ms: int) -> None:
        self._zone = zone
        self._since_ms = since_ms
        self._count: Callable[[Reading, _Entry], None] = getattr(self, WAYS[by])
        self._sums = dict[str, Sum]()
        self._has_prices = True
        self._tools = dict[str, str]()  # of calls of the session that is being counted

    def add(self, session: Reading) -> None:
        """Add everything that a session spent, on all its branches."""
        self._tools.clear()
        for part in session._ask(stats.owned):
            before = part.before
            for uid, row in _entries(session, part):
                after = row.chain.numbers
                if row.at_ms >= self._since_ms:
                    self._count(session, _Entry(uid, row, Numbers._make(map(sub, after, before))))
                before = after

    def found(self) -> list[Spent]:
        """Return the sums by key."""
        return [self._sums[key].value(key) for key in sorted(self._sums)]

    # ------------------------------------------------------------------ one entry

    def _by_day(self, session: Reading, entry: _Entry) -> None:
        self._put(f"{to_datetime(entry.row.at_ms).astimezone(self._zone):%Y-%m-%d}", session, entry)

    def _by_agent(self, session: Reading, entry: _Entry) -> None:
        self._put(session.agent_id, session, entry)

    def _by_model(self, session: Reading, entry: _Entry) -> None:
        """Count what a model said, and whatever else has a usage; of what was redacted only that, under no model."""
        if entry.is_redacted and entry.has_usage:
            self._put(_UNNAMED, session, entry)
        if entry.is_message and (entry.message.role == "assistant" or entry.has_usage):
            self._put(_model(session, entry), session, entry)

    def _by_tool(self, session: Reading, entry: _Entry) -> None:
        if entry.added.tool_calls:
            for call_id, name in entry.calls():
                self._tools[call_id] = name
                self._sum(name).counts.update(tool_calls=1)
        if entry.added.tool_failures and entry.is_redacted:
            self._sum(_UNNAMED).counts.update(tool_failures=entry.added.tool_failures)
        elif entry.added.tool_failures:
            message = entry.message
            for result in message.tool_results:
                if not result.success:
                    name = self._tools.get(result.call_id) or result.name or message.tool_name or _UNNAMED
                    self._sum(name).counts.update(tool_failures=1)
        while len(self._tools) > _REMEMBERED:
            del self._tools[next(iter(self._tools))]

    def _put(self, key: str, session: Reading, entry: _Entry) -> None:
        added = entry.added
        if not any(added[:_COUNTED]):
            return
        found = self._sum(key)
        found.counts.update(
            messages=added.messages, tool_calls=added.tool_calls, tool_failures=added.tool_failures, priced=0
        )
        usage = Usage.from_counts(tuple(added)[_USAGE])
        if entry.has_usage and not added.cost_nano:
            cost = self._price(session, entry, usage)
            if cost is None:
                found.unpriced[_model(session, entry)] += 1
            else:
                found.counts.update(priced=1)
                usage = cost
        found.usage += usage

    def _sum(self, key: str) -> Sum:
        return self._sums.setdefault(key, Sum())

    def _price(self, session: Reading, entry: _Entry, usage: Usage) -> Usage | None:
        """Return a usage with its list price at the time; None if there is no price list, or the model is not on it."""
        model = _model(session, entry)
        if not model or not self._has_prices:
            return None
        at = to_datetime(entry.row.at_ms)
        for provider in dict.fromkeys((session.provider, None)):
            try:
                return prices.priced(usage, model, provider=provider, at=at)
            except Unsupported:
                self._has_prices = False
                return None
            except (NotFound, Invalid):
                continue
        return None


class _Entry:
    """An entry with what it added to the totals; its content is decoded when something asks for it."""

    def __init__(self, uid: str, row: EntryRow, added: Numbers) -> None:
        self.row = row
        self.added = added
        self._uid = uid
        self._message: Message | None = None

    @property
    def is_message(self) -> bool:
        return self.row.kind in MESSAGE_KINDS and self.row.body is not None

    @property
    def is_redacted(self) -> bool:
        return self.row.kind in MESSAGE_KINDS and self.row.body is None

    @property
    def has_usage(self) -> bool:
        """Whether it used tokens."""
        return bool(self.added.input_tokens or self.added.output_tokens)

    @property
    def message(self) -> Message:
        if self._message is None:
            self._message = log.as_message(self._uid, self.row, None)
        return self._message

    def calls(self) -> Iterable[tuple[str, str]]:
        """Return the calls that it announces, each with its tool."""
        if self.is_message:
            return [(call.id, call.name) for call in self.message.tool_calls]
        if self.is_redacted:
            return [(call_id, _UNNAMED) for what, call_id in self.row.chain.calls if what == "call"]
        body: Any = codec.decode(self.row.body) if self.row.kind == CALL and self.row.body is not None else {}
        return [(body.get("call_id", ""), body.get("name", _UNNAMED))]


def _model(session: Reading, entry: _Entry) -> str:
    if entry.is_redacted:
        return _UNNAMED  # nobody knows it any more, so its price is unknown, too
    return (entry.message.model if entry.is_message else None) or session.model or _UNNAMED


def _entries(session: Reading, part: stats.Owned) -> Iterator[tuple[str, EntryRow]]:
    """Yield the entries that a branch owns, each with the id of the branch, in pages."""
    make: Callable[[dict[int, str], list[EntryRow]], list[tuple[str, EntryRow]]] = _named
    for page in session._pages_of(part.session, part.low, part.session.seq, make):
        yield from page


def _named(uids: dict[int, str], rows: list[EntryRow]) -> list[tuple[str, EntryRow]]:
    return [(uids[row.branch], row) for row in rows]
