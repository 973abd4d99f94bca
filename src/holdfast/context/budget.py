"""What of a conversation is sent when not all of it fits.

The conversation is walked through as it grew. Whenever it had filled its room, the older half left at once: so the
beginning stays the same for many turns, and the provider's cache with it, until the room is full again. Nothing
but the log decides; nothing is remembered between two looks. Calls and results leave together, pinned messages
stay, and so does the request that the remaining work answers. Results of tools that alone fill the room are shortened.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from math import ceil
from typing import NamedTuple

from msgspec.structs import replace

from ..errors import Invalid
from .normal import Call, Item, Part, Result, Text, with_parts
from .tokens import Count, item_tokens

EARLIER = "(Earlier messages of this conversation are left out here.)"
SHORTENED = "\n[... {:,} characters are left out here ...]\n"
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


class Known(NamedTuple):
    """What the log says beside the conversation: pinned messages, and what providers counted, by seq."""

    pinned: set[int]
    counted: dict[int, int]


class Fitted(NamedTuple):
    """What is sent, about how many tokens that is, what was left out in words, and how the provider counts."""

    items: list[Item]
    tokens: int
    omitted: tuple[str, ...]
    factor: float


def fit(items: Sequence[Item], budget: Budget, known: Known) -> Fitted:
    """Choose what is sent of a valid conversation; what is chosen may have to be joined to be valid again."""
    if budget.limit is None:
        return _whole(items, budget, known)
    walk = _Walk(items, budget, known)
    start, factor = walk.begin(budget.room)
    front, sent = walk.front(start), walk.sent()
    chosen, omitted = sent, list[str]()
    if len(front) < start:
        chosen = [Item("user", (Text(EARLIER),)), *(sent[index] for index in front), *sent[start:]]
        omitted = [_left_out(items, start, front, walk, factor)]
    cut = [items[index].seq for index in (*front, *range(start, len(items))) if sent[index] is not items[index]]
    return _short_enough(chosen, omitted, cut, budget, factor)


def _whole(items: Sequence[Item], budget: Budget, known: Known) -> Fitted:
    """Count a conversation that is sent as it is."""
    total, factor = budget.system, 1.0
    for item in items:
        total += item_tokens(item, budget.count)
        if counted := known.counted.get(item.seq):
            factor = _corrected((counted / total,), factor)
    return Fitted(list(items), ceil(total * factor), (), factor)


def _corrected(ratios: Sequence[float], factor: float) -> float:
    """Believe the ratio of a provider's count to ours that is nearest to 1, if it can be of the same words."""
    found = min(ratios, key=lambda ratio: max(ratio, 1 / ratio))
    return found if _TRUSTED[0] < found < _TRUSTED[1] else factor


class _Walk:
    """A conversation as it grew."""

    def __init__(self, items: Sequence[Item], budget: Budget, known: Known) -> None:
        self.items = items
        where = _finder(items)
        self.pins = {where(seq) for seq in known.pinned}
        self.counted = {where(seq): tokens for seq, tokens in known.counted.items()}
        self.fixed = budget.system + item_tokens(Item("user", (Text(EARLIER),)), budget.count)
        self.short = [_capped(item, budget) for item in items]
        self.full = 0  # how far results are sent shortened: up to where the room was last full
        self.whole = list(accumulate((item_tokens(item, budget.count) for item in items), initial=0))
        self.capped = list(accumulate((item_tokens(item, budget.count) for item in self.short), initial=0))
        self.sizes = [after - before for before, after in pairwise(self.whole)]
        self.places = _places(items)
        self.stays = self._staying()
        pinned = (size if stays else 0 for stays, size in zip(self.stays, self.sizes, strict=True))
        self.pinned = list(accumulate(pinned, initial=0))
        self.asked = self._requests()

    def begin(self, limit: int) -> tuple[int, float]:
        """Give where what is kept begins, and by how much the provider counts otherwise than we do."""
        start, factor = 0, 1.0
        for index in range(len(self.items)):
            size = self._size(start, index)
            if counted := self.counted.get(index):  # of what was kept, or of everything
                factor = _corrected((counted / self._size(0, index), counted / size), factor)
            if size * factor > limit:
                self.full = index + 1
                if self._size(start, index) * factor > limit * _EASED:
                    start = self._next(start, index, limit / factor)
        return start, factor

    def sent(self) -> list[Item]:
        """Give the items as they are sent, large results shortened as far as the room was full."""
        return [*self.short[: self.full], *self.items[self.full :]]

    def _size(self, start: int, end: int) -> int:
        """Give the tokens of what is sent if it begins at ``start``, up to and with ``end``."""
        asked = self.asked[start]
        front = self.pinned[start] + (0 if asked is None or self.stays[asked] else self.sizes[asked])
        return self.fixed + front + self._sum(end + 1) - self._sum(start)

    def _sum(self, end: int) -> int:
        """Give the tokens of all items before one."""
        full = min(self.full, end)
        return self.capped[full] + self.whole[end] - self.whole[full]

    def _left(self, start: int, end: int, limit: float) -> float:
        """Give what part of the room is filled by that which may leave later."""
        stays = self.fixed + self.pinned[start]
        return (self._size(start, end) - stays) / max(1.0, limit - stays)

    def _next(self, start: int, end: int, limit: float) -> int:
        """Give the next place to begin: where half of the room is free, rather at a request than amid the work."""
        places = [at for at in range(start + 1, end + 1) if self.places[at]]
        roomy = [at for at in places if self._left(at, end, limit) <= _KEPT]
        if not roomy:
            return places[-1] if places else start
        requests = (at for at in roomy if _is_request(self.items[at]))
        request = next(requests, None)
        near = request is not None and self._sum(request) - self._sum(roomy[0]) <= limit * _NEAR
        return request if near and request is not None else roomy[0]

    def front(self, start: int) -> list[int]:
        """Give what is kept of that which came before: what is pinned, and the request of the work that goes on."""
        kept = {index for index in range(start) if self.stays[index]}
        asked = self.asked[start] if start else None
        return sorted(kept | ({asked} if asked is not None else set()))

    def _requests(self) -> list[int | None]:
        """Give for each place the request that is worked on there, if it lies before it."""
        found, last = list[int | None](), None
        for index, item in enumerate(self.items):
            found.append(None if _is_request(item) else last)
            last = index if _is_request(item) else last
        return found

    def _staying(self) -> list[bool]:
        """Say of each item whether it is pinned, by itself or with the calls and results that it belongs to."""
        found, first = [index in self.pins for index in range(len(self.items))], 0
        for index in range(1, len(found) + 1):
            if index == len(found) or self.places[index]:
                found[first:index] = [any(found[first:index])] * (index - first)
                first = index
        return found


def _finder(items: Sequence[Item]) -> Callable[[int], int | None]:
    """Give a function that finds the item which holds a message; joined neighbours go by the first one."""
    places = sorted((item.seq, index) for index, item in enumerate(items) if item.seq)
    seqs = [seq for seq, _ in places]

    def find(seq: int) -> int | None:
        place = bisect_right(seqs, seq)
        return places[place - 1][1] if place else None

    return find


def _places(items: Sequence[Item]) -> list[bool]:
    """Say where a conversation may begin: where no call waits for its result. Each has one in a valid conversation."""
    found, waiting = list[bool](), 0
    for item in items:
        results = sum(isinstance(part, Result) for part in item.parts)
        found.append(not waiting and not results)
        waiting += sum(isinstance(part, Call) for part in item.parts) - results
    return found


def _has_results(item: Item) -> bool:
    return any(isinstance(part, Result) for part in item.parts)


def _is_request(item: Item) -> bool:
    """Say whether somebody asks for something; what was made up to be valid has no place in the log."""
    return item.role == "user" and item.seq > 0 and not _has_results(item)


def _left_out(items: Sequence[Item], start: int, front: Sequence[int], walk: _Walk, factor: float) -> str:
    kept = set(front)
    left = [index for index in range(start) if index not in kept]
    seqs = [items[index].seq for index in left if items[index].seq]
    tokens = ceil(sum(walk.sizes[index] for index in left) * factor)
    which = f"messages {seqs[0]} to {seqs[-1]}" if len(seqs) > 1 else f"message {seqs[0]}" if seqs else "messages"
    inside = [seq for index in front if seqs and seqs[0] < (seq := items[index].seq) < seqs[-1]]
    more = f" and {len(inside) - _NAMED} more" if len(inside) > _NAMED else ""
    but = f", but for {', '.join(map(str, inside[:_NAMED]))}{more}" if inside else ""
    return f"left out {which}{but}: about {tokens:,} tokens"


# ---------------------------------------------------------------------- when that is still too much


def _short_enough(items: list[Item], omitted: list[str], cut: list[int], budget: Budget, factor: float) -> Fitted:
    """Shorten results of tools until the rest fits; what cannot be made to fit is ``Invalid``."""
    tokens = tokens_of(items, budget, factor)
    if tokens <= budget.room:
        return Fitted(items, tokens, (*omitted, *_shortened_in(cut)), factor)
    most = float(max(map(_longest, items), default=0))
    short, shortened = items, list[int]()
    while tokens > budget.room and most > _LEAST:
        most = max(_LEAST, most * 0.7)
        short, shortened = _shorten(items, int(most))
        tokens = tokens_of(short, budget, factor)
    if tokens > budget.room:
        raise Invalid(
            f"max_tokens is {budget.limit:,}, but the system prompt, what is pinned and the last step take about"
            f" {tokens:,}; allow more, or compact the session"
        )
    return Fitted(short, tokens, (*omitted, *_shortened_in(sorted({*cut, *shortened}))), factor)


def _shortened_in(seqs: Sequence[int]) -> Iterator[str]:
    if seqs:
        more = f" and {len(seqs) - _NAMED} more" if len(seqs) > _NAMED else ""
        which = "message" if len(seqs) == 1 else "messages"
        yield f"shortened what tools gave in {which} {', '.join(map(str, seqs[:_NAMED]))}{more}"


def _capped(item: Item, budget: Budget) -> Item:
    """Shorten results that would take more than their share of the room."""
    cap, count = int((budget.limit or 0) * _RESULT), budget.count
    if _longest(item) <= max(_LEAST, cap):
        return item  # a token is at least a letter
    longest = max((_longest_text(part) for part in item.parts), key=len)
    tokens = count(longest)
    return item if tokens <= cap else _shorten([item], max(_LEAST, len(longest) * cap // tokens))[0][0]


def tokens_of(items: Sequence[Item], budget: Budget, factor: float) -> int:
    """Give about as many tokens as messages and the system's words take."""
    return ceil((budget.system + sum(item_tokens(item, budget.count) for item in items)) * factor)


def _longest(item: Item) -> int:
    return max((len(_longest_text(part)) for part in item.parts), default=0)


def _longest_text(part: Part) -> str:
    """Give the longest text in what a tool gave; nothing if it is something else."""
    inner = part.parts if isinstance(part, Result) else ()
    return max((each.text for each in inner if isinstance(each, Text)), key=len, default="")


def _shorten(items: Sequence[Item], most: int) -> tuple[list[Item], list[int]]:
    """Cut texts of results to so many characters; give the items, and the seqs of those that were cut."""
    found, cut = list[Item](), list[int]()
    for item in items:
        if _longest(item) > most:
            item = with_parts(item, tuple(_shortened(part, most) for part in item.parts))
            cut.append(item.seq)
        found.append(item)
    return found, cut


def _shortened(part: Part, most: int) -> Part:
    if not isinstance(part, Result):
        return part
    inner = tuple(_cut(each, most) for each in part.parts)
    return part if inner == part.parts else replace(part, parts=inner, value=None, raw=None)


def _cut(part: Part, most: int) -> Part:
    """Keep the beginning and the end of a text: what was asked for is often first, how it ended last."""
    if not isinstance(part, Text) or len(part.text) <= most:
        return part
    head = most * 2 // 3
    tail = most - head
    said = SHORTENED.format(len(part.text) - most)
    return Text(part.text[:head] + said + part.text[len(part.text) - tail :])
