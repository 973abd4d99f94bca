"""Which part of a conversation is sent when not all of it fits.

The conversation is replayed as it grew. Whenever it filled the budget, the older half was dropped at once. So the first
message sent stays the same for many turns, and the provider's cache keeps working, until the budget is full again. Only
the log decides; no state is kept between calls. Calls and results are dropped together. Pinned messages stay, and so
does the request that the remaining work answers. Tool results that are too large on their own are shortened.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import ceil
from typing import NamedTuple

from ..errors import Invalid
from ..model.message import Body
from ..providers.glance import MESSAGE, Count, GlancedMessage
from ..providers.normal import Item, Notes, Text, listed
from .read import item_of
from .runs import Run, glances_of, runs_in, stand_ins
from .shorten import longest_text, shorten
from .tokens import item_tokens

EARLIER = "(Earlier messages of this conversation are left out here.)"
_KEPT = 0.5  # of the room: what remains after older messages are dropped
_EASED = 0.75  # of the room: if shortening results gets below this, nothing is dropped
_NEAR = 0.25  # of the room: how much more may be dropped in order to begin with a request
_LEAST = 400  # characters: a shortened result keeps at least this many
_RESULT = 0.25  # of the room: the most for one tool result, once the room was full
_NAMED = 5  # messages listed in a sentence
_TRUSTED = (0.5, 2.0)  # a provider's count outside this ratio was of something else


class Budget(NamedTuple):
    """The token limit, the tokens of the system prompt, how to count, and a margin to leave free."""

    limit: int | None
    system: int
    count: Count
    margin: int = 0

    @property
    def room(self) -> int:
        """The tokens that may be used."""
        return (self.limit or 0) - self.margin


class LogFacts(NamedTuple):
    """What the log says besides the conversation: pinned messages, and tokens counted by the provider, by seq."""

    pinned: set[int]
    counted: dict[int, int]

    def watch(self, seq: int, body: Body, provider: str) -> None:
        """Record whether a message is pinned, and how many tokens the provider counted when it answered."""
        if is_pinned(body) and body.role != "system":
            self.pinned.add(seq)
        if body.usage is not None and body.form in (None, provider) and body.usage.input_tokens:
            self.counted[seq] = body.usage.input_tokens + body.usage.output_tokens


def is_pinned(body: Body) -> bool:
    """Whether a message must stay in every context, whatever is dropped."""
    return bool(body.metadata) and (body.metadata or {}).get("pinned") is True


class Unread(NamedTuple):
    """Messages ``first`` to ``last`` of the log, which are left out without being read, but for those that stay."""

    first: int
    last: int


class TooLittle(Exception):
    """What was read does not fill the budget: more of the log must be read."""


class Fitted(NamedTuple):
    """What is sent, what was left out or shortened, and the provider's count relative to ours."""

    items: list[Item]
    omitted: tuple[str, ...]
    factor: float


def fit(items: Sequence[Item], budget: Budget, known: LogFacts, unread: Unread | None) -> Fitted:
    """Choose what to send of a valid conversation; the result may need messages joined to be valid again."""
    walk = _Walk(glances_of(items, budget.count), budget, known, unread)
    start, factor = walk.begin(budget.room)
    front, omitted, head = walk.front(start), list[str](), list[Item]()
    if len(front) < start or unread is not None:
        head = [Item("user", (Text(EARLIER),)), *map(walk.item, front)]
        omitted = [_left_out(start, front, walk, factor)]
    chosen = [*head, *walk.items_from(items, start if head else 0)]
    sent = {*front, *range(start if head else 0, len(walk.glances))}
    cut = [walk.glances[index].seq for index in sorted(walk.short) if index in sent and walk.is_cut(index)]
    return _short_enough(Fitted(chosen, (), factor), omitted, cut, budget)


def count_all(items: Sequence[Item], budget: Budget, known: LogFacts) -> int:
    """Count a conversation that is sent as it is."""
    if not known.counted:
        return tokens_of(items, budget, 1.0)
    total, factor = budget.system, 1.0
    for glance in glances_of(items, budget.count):
        total += glance.tokens - MESSAGE * glance.joined
        if counted := known.counted.get(glance.seq):
            factor = _corrected((counted / total,), factor)
    return ceil(total * factor)


def _corrected(ratios: Sequence[float], factor: float) -> float:
    """Return the ratio of the provider's count to ours that is nearest to 1, unless it is too far off to be trusted."""
    found = min(ratios, key=lambda ratio: max(ratio, 1 / ratio))
    return found if _TRUSTED[0] < found < _TRUSTED[1] else factor


class _Walk:
    """A conversation, replayed as it grew."""

    def __init__(
        self, glances: Sequence[GlancedMessage], budget: Budget, known: LogFacts, unread: Unread | None
    ) -> None:
        self.glances, self.unread = glances, unread
        behind = (index for index, glance in enumerate(glances) if unread is None or glance.seq > unread.last)
        self.first = next(behind, len(glances))
        at = _holding(glances, [*known.pinned, *known.counted])
        self.pins = {at[seq] for seq in known.pinned}
        self.counted = {at[seq]: tokens for seq, tokens in known.counted.items()}
        self.fixed = budget.system + item_tokens(Item("user", (Text(EARLIER),)), budget.count)
        self.short = _capped(glances, budget)
        self.full = 0  # results before this message are shortened: it is where the room was last full
        self.sizes = [glance.tokens for glance in glances]
        self.whole = list(accumulate(self.sizes, initial=0))
        sizes = list(self.sizes)
        for index, item in self.short.items():
            sizes[index] = item_tokens(item, budget.count)
        self.capped = list(accumulate(sizes, initial=0)) if self.short else self.whole
        self.places, self.asked = list[bool](), list[int | None]()
        self._place()
        self.stays = self._staying()
        pinned = (size if stays else 0 for stays, size in zip(self.stays, self.sizes, strict=True))
        self.pinned = list(accumulate(pinned, initial=0)) if self.pins else [0] * len(self.whole)

    def _place(self) -> None:
        """Find where a conversation may begin, and the earlier request that each message works on, if any.

        It may begin where every earlier call is answered.
        """
        waiting, last = 0, None
        for index, glance in enumerate(self.glances):
            self.places.append(not waiting and not glance.answers)
            self.asked.append(None if glance.is_request else last)
            waiting += len(glance.calls) - len(glance.answers)
            last = index if glance.is_request else last

    def begin(self, limit: int) -> tuple[int, float]:
        """Return where the kept part begins, and the ratio of the provider's token count to ours."""
        start, factor, counts, ratios = self.first, 1.0, self.counted, list[float]()
        base = self._base(start)
        for index, total in enumerate(self.whole[self.first + 1 :], self.first):
            size = base + total
            if counts and (counted := counts.get(index)):
                # It may have counted the kept part, or everything. Where not everything is known, the kept part may
                # have been another one at first, so of all counts since the last cut the most likely one is taken.
                ratios = [*ratios, counted / size] if self.unread else [counted / self._size(0, index), counted / size]
                factor = _corrected(ratios, factor)
            if size * factor > limit:
                self.full = index + 1
                if self._size(start, index) * factor > limit * _EASED:
                    start, ratios = self._next(start, index, limit / factor), []
                base = self._base(start)
        if self.unread is not None and start == self.first:
            raise TooLittle
        return start, factor

    def item(self, index: int) -> Item:
        """Return the item of a message as it is sent, with large results shortened."""
        glance = self.glances[index]
        found = self.short[index] if self.is_cut(index) else glance.item
        return _read_again(glance) if found is None else found

    def items_from(self, items: Sequence[Item], start: int) -> Iterator[Item]:
        """Yield a conversation from a message on; what touches the beginning of it is no part of a run any more."""
        at = 0
        for each in runs_in(items):
            size = len(each.glances) if isinstance(each, Run) else 1
            if isinstance(each, Run) and at > start:
                yield from stand_ins(each)
            elif isinstance(each, Run):
                rest = each.behind(start - at) if at + size > start else None
                yield from map(self.item, range(start, at + size - (len(rest.glances) if rest else 0)))
                yield from stand_ins(rest) if rest else ()
            elif at >= start:
                yield self.item(at)
            at += size

    def is_cut(self, index: int) -> bool:
        """Whether results of a message are sent shortened."""
        return index in self.short and index < self.full

    def _base(self, start: int) -> int:
        """Return the part of ``_size`` that does not depend on ``end``, so that ``begin`` computes it once."""
        asked = self.asked[start] if start < len(self.asked) else None
        front = self.pinned[start] + (0 if asked is None or self.stays[asked] else self.sizes[asked])
        return self.fixed + front + self.capped[self.full] - self.whole[self.full] - self._sum(start)

    def _size(self, start: int, end: int) -> int:
        """Return the tokens sent if the kept part runs from ``start`` to ``end`` inclusive."""
        return self._base(start) + self.whole[end + 1]

    def _sum(self, end: int) -> int:
        """Return the tokens of all messages before ``end``."""
        full = min(self.full, end)
        return self.capped[full] + self.whole[end] - self.whole[full]

    def _left(self, start: int, end: int, limit: float) -> float:
        """Return the fraction of the room taken by what can be dropped later."""
        stays = self.fixed + self.pinned[start]
        return (self._size(start, end) - stays) / max(1.0, limit - stays)

    def _next(self, start: int, end: int, limit: float) -> int:
        """Return the next place to begin: where half of the room is free, preferably at a request."""
        first = None
        for at in range(max(start + 1, self._lowest(end, limit)), end + 1):
            if first is not None and self._sum(at) - self._sum(first) > limit * _NEAR:
                break
            if self.places[at] and self._left(at, end, limit) <= _KEPT:
                first = at if first is None else first
                if self.glances[at].is_request:
                    return at
        if first is None:
            return next((at for at in range(end, start, -1) if self.places[at]), start)
        return first

    def _lowest(self, end: int, limit: float) -> int:
        """Return a lower bound for ``_next``: beginning anywhere before it fills more than half of the room."""
        return bisect_left(self.capped, self.capped[end + 1] - max(1.0, limit) * _KEPT - 1)

    def front(self, start: int) -> list[int]:
        """Return the messages before ``start`` that are kept: pinned ones, and the request that the work answers."""
        kept = {index for index in range(start) if self.stays[index]} if self.pins else set[int]()
        asked = self.asked[start] if start else None
        return sorted(kept | ({asked} if asked is not None else set()))

    def _staying(self) -> list[bool]:
        """Return for each message whether it is pinned, itself or through calls and results it belongs with."""
        if not self.pins:
            return [False] * len(self.glances)
        found, first = [index in self.pins for index in range(len(self.glances))], 0
        for index in range(1, len(found) + 1):
            if index == len(found) or self.places[index]:
                found[first:index] = [any(found[first:index])] * (index - first)
                first = index
        return found


def _read_again(glance: GlancedMessage) -> Item:
    """Return the item of a message that was taken over as it was stored."""
    found = glance.item if glance.item is not None or glance.source is None else item_of(glance.source, Notes())
    assert found is not None, "a message that was judged can be read"
    return found


def _holding(glances: Sequence[GlancedMessage], seqs: Sequence[int]) -> dict[int, int | None]:
    """Return where some messages of the log are; joined messages have the seq of the first."""
    places = sorted((glance.seq, index) for index, glance in enumerate(glances) if glance.seq) if seqs else []
    before = {seq: bisect_right(places, (seq, len(glances))) for seq in seqs}
    return {seq: places[place - 1][1] if place else None for seq, place in before.items()}


def _left_out(start: int, front: Sequence[int], walk: _Walk, factor: float) -> str:
    kept, glances, unread = set(front), walk.glances, walk.unread
    tokens = ceil((walk.whole[start] - sum(walk.sizes[index] for index in front)) * factor)
    gone = [glances[index].seq for index in range(start) if index not in kept and glances[index].seq]
    gone = gone if unread is None else [unread.first, unread.last, *gone]
    low, high = (gone[0], gone[-1]) if gone else (0, 0)
    which = f"messages {low} to {high}" if len(gone) > 1 else f"message {low}" if low else "messages"
    inside = [seq for index in front if low < (seq := glances[index].seq) < high]
    but = f", but for {listed(inside, _NAMED)}" if inside else ""
    return f"left out {which}{but}: {'about' if unread is None else 'more than'} {tokens:,} tokens"


# ---------------------------------------------------------------------- when that is still too much


def _short_enough(chosen: Fitted, omitted: list[str], cut: list[int], budget: Budget) -> Fitted:
    """Shorten tool results until the rest fits; raise ``Invalid`` if it cannot fit."""
    items, factor = chosen.items, chosen.factor
    tokens = tokens_of(items, budget, factor, joined=0)
    if tokens <= budget.room:
        return chosen._replace(omitted=(*omitted, *_shortened_in(cut)))
    items = [item for each in runs_in(items) for item in (_read(each) if isinstance(each, Run) else (each,))]
    most = float(max([len(longest_text(item)) for item in items], default=0))
    short, shortened = items, list[int]()
    while tokens > budget.room and most > _LEAST:
        most = max(_LEAST, most * 0.7)
        short, shortened = shorten(items, int(most))
        tokens = tokens_of(short, budget, factor, joined=0)
    if tokens > budget.room:
        raise Invalid(
            f"max_tokens is {budget.limit:,}, but the system prompt, pinned messages and the last step take about"
            f" {tokens:,}; allow more, or compact the session"
        )
    return chosen._replace(items=short, omitted=(*omitted, *_shortened_in(sorted({*cut, *shortened}))))


def _shortened_in(seqs: Sequence[int]) -> Iterator[str]:
    if seqs:
        yield f"shortened tool results in {'message' if len(seqs) == 1 else 'messages'} {listed(seqs, _NAMED)}"


def _capped(glances: Sequence[GlancedMessage], budget: Budget) -> dict[int, Item]:
    """Return shortened items for the messages whose results exceed their share of the room."""
    cap, least, found = int((budget.limit or 0) * _RESULT), least_cut(budget.limit or 0), dict[int, Item]()
    for index, glance in [(index, glance) for index, glance in enumerate(glances) if glance.longest > least]:
        item = _read_again(glance)
        text = longest_text(item)
        if (tokens := budget.count(text)) > cap:
            found[index] = shorten([item], max(_LEAST, len(text) * cap // tokens))[0][0]
    return found


def least_cut(limit: int) -> int:
    """Return the length up to which no result is shortened: a token is at least one character."""
    return max(_LEAST, int(limit * _RESULT))


def tokens_of(items: Sequence[Item], budget: Budget, factor: float, joined: int = MESSAGE) -> int:
    """Estimate the tokens of messages and the system prompt; ``joined`` is what joining two messages saves."""
    total = budget.system
    for each in runs_in(items):
        if isinstance(each, Run):
            total += sum([glance.tokens - joined * glance.joined for glance in each.glances])
        else:
            total += item_tokens(each, budget.count)
    return ceil(total * factor)


def _read(run: Run) -> Iterator[Item]:
    return map(_read_again, run.glances)
