"""What of a conversation is sent when not all of it fits.

The conversation is walked through as it grew. Whenever it had filled its room, the older half left at once: so the
beginning stays the same for many turns, and the provider's cache with it, until the room is full again. Nothing
but the log decides; nothing is remembered between two looks. Calls and results leave together, pinned messages
stay, and so does the request that the remaining work answers. Results of tools that alone fill the room are shortened.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from math import ceil
from typing import NamedTuple

from ..errors import Corrupt, Invalid
from ..model.message import Body, Message
from ..providers.glance import MESSAGE, Count, GlancedMessage
from ..providers.normal import Item, Notes, Text
from .read import item_of
from .shorten import longest, shorten
from .steps import Unsure, longest_text, step_of
from .tokens import item_tokens

EARLIER = "(Earlier messages of this conversation are left out here.)"
_KEPT = 0.5  # of the room, after older messages left
_EASED = 0.75  # of the room: if shorter results bring it down to that, nothing leaves
_NEAR = 0.25  # of the room: so much more may leave for the sake of beginning with a request
_LEAST = 400  # characters of a result that is shortened
_RESULT = 0.25  # of the room, for one result of a tool, once the room was full
_NAMED = 5  # messages, in a sentence
_TRUSTED = (0.5, 2.0)  # a provider's count that is further off was of something else


class Budget(NamedTuple):
    """What there is room for: all tokens, those of the system's words, how to count, and what to leave free."""

    limit: int | None
    system: int
    count: Count
    margin: int = 0

    @property
    def room(self) -> int:
        """What may be filled."""
        return (self.limit or 0) - self.margin


class LogFacts(NamedTuple):
    """What the log says beside the conversation: pinned messages, and what providers counted, by seq."""

    pinned: set[int]
    counted: dict[int, int]

    def watch(self, message: Message, provider: str) -> None:
        """Note whether a message is pinned, and how many tokens the provider counted when it answered."""
        try:
            body = message.body
        except Corrupt:
            return  # it is skipped and noted where it is read
        if is_pinned(body) and body.role != "system":
            self.pinned.add(message.seq)
        if body.usage is not None and body.form in (None, provider) and body.usage.input_tokens:
            self.counted[message.seq] = body.usage.input_tokens + body.usage.output_tokens


def is_pinned(body: Body) -> bool:
    """Return whether a message is to stay in contexts whatever leaves."""
    return bool(body.metadata) and (body.metadata or {}).get("pinned") is True


class Fitted(NamedTuple):
    """What is sent: items, behind which come all light steps from ``tail`` on; and how the provider counts.

    ``omitted`` says in words what was left out or shortened.
    """

    items: list[Item]
    tail: int
    omitted: tuple[str, ...]
    factor: float


def fit(light: Sequence[GlancedMessage], items: Sequence[Item], budget: Budget, known: LogFacts) -> Fitted:
    """Choose what is sent of a valid conversation; what is chosen may have to be joined to be valid again.

    It begins with ``light`` steps, which are sent as they are if that can be. What stays in front of them, and all
    up to the next request, is given as items, since it is sent in another place.
    """
    walk = _Walk([*light, *(step_of(item, budget.count) for item in items)], budget, known)
    start, factor = walk.begin(budget.room)
    front, tail, omitted, head = walk.front(start), 0, list[str](), list[Item]()
    if len(front) < start:
        tail = next((at for at in range(start + 1, len(light)) if light[at].is_request), len(light))
        before = [*front, *range(start, tail)]
        head = [Item("user", (Text(EARLIER),)), *map(walk.item, before)]
        omitted = [_left_out(start, front, walk, factor)]
    rest = [index for index in range(len(light), len(walk.steps)) if not omitted or index >= start]
    chosen = [*head, *map(walk.item, rest)]
    cut = [walk.steps[index].seq for index in sorted({*front, *rest}) if walk.is_cut(index)]
    return _short_enough(Fitted(chosen, tail, (), factor), omitted, cut, light, budget)


def count_all(light: Sequence[GlancedMessage], items: Sequence[Item], budget: Budget, known: LogFacts) -> int:
    """Count a conversation that is sent as it is."""
    if not known.counted:
        return tokens_of(items, budget, 1.0, sum([step.tokens - MESSAGE * step.joined for step in light]))
    total, factor = budget.system, 1.0
    for step in (*light, *(step_of(item, budget.count) for item in items)):
        total += step.tokens - MESSAGE * step.joined
        if counted := known.counted.get(step.seq):
            factor = _corrected((counted / total,), factor)
    return ceil(total * factor)


def _corrected(ratios: Sequence[float], factor: float) -> float:
    """Believe the ratio of a provider's count to ours that is nearest to 1, if it can be of the same words."""
    found = min(ratios, key=lambda ratio: max(ratio, 1 / ratio))
    return found if _TRUSTED[0] < found < _TRUSTED[1] else factor


class _Walk:
    """A conversation as it grew."""

    def __init__(self, steps: Sequence[GlancedMessage], budget: Budget, known: LogFacts) -> None:
        self.steps = steps
        where = _finder(steps) if known.pinned or known.counted else None
        self.pins = {where(seq) for seq in known.pinned} if where else set()
        self.counted = {where(seq): tokens for seq, tokens in known.counted.items()} if where else {}
        self.fixed = budget.system + item_tokens(Item("user", (Text(EARLIER),)), budget.count)
        self.short = _capped(steps, budget)
        self.full = 0  # how far results are sent shortened: up to where the room was last full
        self.sizes = [step.tokens for step in steps]
        self.whole = list(accumulate(self.sizes, initial=0))
        sizes = list(self.sizes)
        for index, item in self.short.items():
            sizes[index] = item_tokens(item, budget.count)
        self.capped = list(accumulate(sizes, initial=0)) if self.short else self.whole
        self.places, self.asked = _places(steps), _requests(steps)
        self.stays = self._staying()
        pinned = (size if stays else 0 for stays, size in zip(self.stays, self.sizes, strict=True))
        self.pinned = list(accumulate(pinned, initial=0)) if self.pins else [0] * len(self.whole)

    def begin(self, limit: int) -> tuple[int, float]:
        """Return where what is kept begins, and by how much the provider counts otherwise than we do."""
        start, factor, base, counts = 0, 1.0, self._base(0), self.counted
        for index, total in enumerate(self.whole[1:]):
            size = base + total
            if counts and (counted := counts.get(index)):  # of what was kept, or of everything
                factor = _corrected((counted / self._size(0, index), counted / size), factor)
            if size * factor > limit:
                self.full = index + 1
                if self._size(start, index) * factor > limit * _EASED:
                    start = self._next(start, index, limit / factor)
                base = self._base(start)
        return start, factor

    def item(self, index: int) -> Item:
        """Return the item of a step as it is sent: large results shortened as far as the room was full."""
        step = self.steps[index]
        found = self.short[index] if self.is_cut(index) else step.item
        if found is None and step.source is not None:
            found = item_of(step.source, Notes())
        if found is None:
            raise Unsure
        return found

    def is_cut(self, index: int) -> bool:
        """Return whether results of a step are sent shortened."""
        return index in self.short and index < self.full

    def _base(self, start: int) -> int:
        """Return the size of what begins at ``start``, less that of everything before its end, wherever that is."""
        asked = self.asked[start] if start < len(self.asked) else None
        front = self.pinned[start] + (0 if asked is None or self.stays[asked] else self.sizes[asked])
        return self.fixed + front + self.capped[self.full] - self.whole[self.full] - self._sum(start)

    def _size(self, start: int, end: int) -> int:
        """Return the tokens of what is sent if it begins at ``start``, up to and with ``end``: the newest, or later."""
        return self._base(start) + self.whole[end + 1]

    def _sum(self, end: int) -> int:
        """Return the tokens of all items before one."""
        full = min(self.full, end)
        return self.capped[full] + self.whole[end] - self.whole[full]

    def _left(self, start: int, end: int, limit: float) -> float:
        """Return what part of the room is filled by that which may leave later."""
        stays = self.fixed + self.pinned[start]
        return (self._size(start, end) - stays) / max(1.0, limit - stays)

    def _next(self, start: int, end: int, limit: float) -> int:
        """Return the next place to begin: where half of the room is free, rather at a request than amid the work."""
        first = None
        for at in range(max(start + 1, self._lowest(end, limit)), end + 1):
            if first is not None and self._sum(at) - self._sum(first) > limit * _NEAR:
                break
            if self.places[at] and self._left(at, end, limit) <= _KEPT:
                first = at if first is None else first
                if self.steps[at].is_request:
                    return at
        if first is None:
            return next((at for at in range(end, start, -1) if self.places[at]), start)
        return first

    def _lowest(self, end: int, limit: float) -> int:
        """Return a place before which more is filled than half of the room: the places there need no look."""
        return bisect_left(self.capped, self.capped[end + 1] - max(1.0, limit) * _KEPT - 1)

    def front(self, start: int) -> list[int]:
        """Return what is kept of that which came before: what is pinned, and the request of the work that goes on."""
        kept = {index for index in range(start) if self.stays[index]} if self.pins else set[int]()
        asked = self.asked[start] if start else None
        return sorted(kept | ({asked} if asked is not None else set()))

    def _staying(self) -> list[bool]:
        """Return for each step whether it is pinned, by itself or with the calls and results that it belongs to."""
        if not self.pins:
            return [False] * len(self.steps)
        found, first = [index in self.pins for index in range(len(self.steps))], 0
        for index in range(1, len(found) + 1):
            if index == len(found) or self.places[index]:
                found[first:index] = [any(found[first:index])] * (index - first)
                first = index
        return found


def _requests(steps: Sequence[GlancedMessage]) -> list[int | None]:
    """Return for each place the request that is worked on there, if it lies before it."""
    found, last = list[int | None](), None
    for index, step in enumerate(steps):
        found.append(None if step.is_request else last)
        last = index if step.is_request else last
    return found


def _places(steps: Sequence[GlancedMessage]) -> list[bool]:
    """Return where a conversation may begin: where no call waits for its result, which each has if valid."""
    found, waiting = list[bool](), 0
    for step in steps:
        found.append(not waiting and not step.answers)
        waiting += len(step.calls) - len(step.answers)
    return found


def _finder(steps: Sequence[GlancedMessage]) -> Callable[[int], int | None]:
    """Return a function that finds the step which holds a message; joined neighbours go by the first one."""
    places = sorted((step.seq, index) for index, step in enumerate(steps) if step.seq)
    seqs = [seq for seq, _ in places]

    def find(seq: int) -> int | None:
        place = bisect_right(seqs, seq)
        return places[place - 1][1] if place else None

    return find


def _left_out(start: int, front: Sequence[int], walk: _Walk, factor: float) -> str:
    kept, steps = set(front), walk.steps
    tokens = ceil((walk.whole[start] - sum(walk.sizes[index] for index in front)) * factor)
    first = next((index for index in range(start) if index not in kept and steps[index].seq), None)
    last = next((index for index in range(start - 1, -1, -1) if index not in kept and steps[index].seq), None)
    low, high = (0, 0) if first is None or last is None else (steps[first].seq, steps[last].seq)
    which = f"messages {low} to {high}" if first != last else f"message {low}" if low else "messages"
    inside = [seq for index in front if low < (seq := steps[index].seq) < high]
    more = f" and {len(inside) - _NAMED} more" if len(inside) > _NAMED else ""
    but = f", but for {', '.join(map(str, inside[:_NAMED]))}{more}" if inside else ""
    return f"left out {which}{but}: about {tokens:,} tokens"


# ---------------------------------------------------------------------- when that is still too much


def _short_enough(
    chosen: Fitted, omitted: list[str], cut: list[int], light: Sequence[GlancedMessage], budget: Budget
) -> Fitted:
    """Shorten results of tools until the rest fits; raises ``Invalid`` for what cannot fit."""
    items, factor = chosen.items, chosen.factor
    behind = sum(step.tokens for step in light[chosen.tail :])
    tokens = tokens_of(items, budget, factor, behind)
    if tokens <= budget.room:
        return chosen._replace(omitted=(*omitted, *_shortened_in(cut)))
    if light:
        raise Unsure
    most = float(max(map(longest, items), default=0))
    short, shortened = items, list[int]()
    while tokens > budget.room and most > _LEAST:
        most = max(_LEAST, most * 0.7)
        short, shortened = shorten(items, int(most))
        tokens = tokens_of(short, budget, factor)
    if tokens > budget.room:
        raise Invalid(
            f"max_tokens is {budget.limit:,}, but the system prompt, what is pinned and the last step take about"
            f" {tokens:,}; allow more, or compact the session"
        )
    return chosen._replace(items=short, omitted=(*omitted, *_shortened_in(sorted({*cut, *shortened}))))


def _shortened_in(seqs: Sequence[int]) -> Iterator[str]:
    if seqs:
        more = f" and {len(seqs) - _NAMED} more" if len(seqs) > _NAMED else ""
        which = "message" if len(seqs) == 1 else "messages"
        yield f"shortened what tools gave in {which} {', '.join(map(str, seqs[:_NAMED]))}{more}"


def _capped(steps: Sequence[GlancedMessage], budget: Budget) -> dict[int, Item]:
    """Return the items whose results would take more than their share of the room, with these shortened."""
    cap, found = int((budget.limit or 0) * _RESULT), dict[int, Item]()
    least = max(_LEAST, cap)  # a token is at least a letter
    for index, step in [(index, step) for index, step in enumerate(steps) if step.longest > least]:
        if step.item is None:
            raise Unsure
        text = max(map(longest_text, step.item.parts), key=len)
        if (tokens := budget.count(text)) > cap:
            found[index] = shorten([step.item], max(_LEAST, len(text) * cap // tokens))[0][0]
    return found


def tokens_of(items: Sequence[Item], budget: Budget, factor: float, more: int = 0) -> int:
    """Return about as many tokens as messages and the system's words take, with some more that were counted."""
    return ceil((budget.system + sum(item_tokens(item, budget.count) for item in items) + more) * factor)
