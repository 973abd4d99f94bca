"""How much of a log a context is made of. With a budget, time and memory follow the budget, not the history.

The log is read backwards, until there is several times more than the budget holds. What is read begins behind an
anchor, and the budget is applied as if the conversation began there. So that the anchor stays where it is while the log
grows, it is the roundest seq of those that are far enough from the end: the first message that is sent must not change
from call to call, or the provider's cache is lost. What stays in every context is found by an index (``ops.staying``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple, TypeAlias

from ..context.budget import Unread
from ..context.build import outlasting
from ..errors import Corrupt
from ..model.entry import Entry
from ..model.message import Message
from ..ops import log, staying
from ..ops.sessions import SessionRow
from .reading import Make, Reading

Source: TypeAlias = Message | Entry
_NEAR, _FAR = 24, 48  # bytes per token of the budget: six and twelve times what an ordinary token takes
_TOKEN = 4
_FEW = 16  # entries of the first page: they may be large


class Window(NamedTuple):
    """A path from behind ``low`` on, as contexts read it."""

    reading: Reading
    session: SessionRow
    low: int
    make: Make[Source]

    def everything(self) -> Iterable[Source]:
        """Return what stays of the part before, and all that comes behind it, in pages."""
        pages = self.reading._pages_of(self.session, self.low, self.session.seq, self.make)
        return chain(self._staying(self.low), chain.from_iterable(pages))

    def end(self, tokens: int) -> tuple[list[Source], Unread | None]:
        """Return what has to be read for a budget, and what is left unread between what stays and the rest."""
        read, sizes = self._latest(tokens)
        anchor = self.low if sizes[-1] <= tokens * _FAR else _anchor(read, sizes, tokens)
        if anchor == self.low:
            return [*self._staying(self.low), *read], None
        behind = [source for source in read if source.seq > anchor]
        while behind and _is_result(behind[0]):
            del behind[0]  # its call is before the anchor
        kept = self._staying(anchor)
        asked = self._request(behind[0].seq, anchor) if behind else []
        kept = sorted({source.seq: source for source in (*asked, *kept)}.values(), key=_seq)
        return [*kept, *behind], Unread(self._first(anchor, set(map(_seq, kept))), anchor)

    def _latest(self, tokens: int) -> tuple[list[Source], list[int]]:
        """Read backwards until there are far more bytes than a budget takes; return also the sums of their sizes.

        Those begin with that of nothing, and go on from the end. A message that is larger than the budget is shortened.
        """
        pages, sizes, high, count = list[list[Source]](), [0], self.session.seq, _FEW
        while high > self.low and sizes[-1] <= tokens * _FAR:
            low = max(self.low, high - count)
            pages.append([*chain.from_iterable(self.reading._pages_of(self.session, low, high, self.make))])
            for source in reversed(pages[-1]):
                sizes.append(sizes[-1] + min(_size(source), tokens * _TOKEN))
            high, count = low, min(2 * count, log.PAGE)
        return [*chain.from_iterable(reversed(pages))], sizes

    def _staying(self, high: int) -> list[Source]:
        """Return the system messages and the pinned ones up to ``high``, with the calls and results they belong to.

        Those are looked for in the page of entries next to a message.
        """
        if not high:
            return []
        store, found = self.reading._store, dict[int, Source]()
        seqs = store._read(staying.seqs, self.session, high)
        near = store._read(staying.read, self.session, [(seq - 1, seq) for seq in seqs], self.make)
        ranges = list[tuple[int, int]]()
        for source in outlasting(near):
            assert isinstance(source, Message)
            before, behind = source.tool_results, source.tool_calls
            low = max(0, source.seq - log.PAGE) if before else source.seq - 1
            ranges += [(low, min(high, source.seq + log.PAGE) if before or behind else source.seq)]
        for source in store._read(staying.read, self.session, ranges, self.make):
            found[source.seq] = source
        return outlasting(found[seq] for seq in sorted(found))

    def _request(self, seq: int, anchor: int) -> list[Source]:
        """Return the request that an entry works on, if it is before the anchor."""
        asked = self.reading._store._read(staying.request, self.session, seq)
        if not self.low < asked <= anchor:
            return []
        return self.reading._store._read(staying.read, self.session, [(asked - 1, asked)], self.make)

    def _first(self, anchor: int, kept: set[int]) -> int:
        """Return the first message that is left unread."""
        for low in range(self.low, anchor, _FEW):
            ranges = [(low, min(low + _FEW, anchor))]
            for source in self.reading._store._read(staying.read, self.session, ranges, self.make):
                if source.seq not in kept and isinstance(source, Message):
                    return source.seq
        return anchor


def _anchor(read: list[Source], sizes: list[int], tokens: int) -> int:
    """Choose where to begin: the roundest seq between a near place and a far one."""
    near = read[-max(bisect_right(sizes, tokens * _NEAR) - 1, 1)].seq
    far = read[-bisect_right(sizes, tokens * _FAR)].seq
    low, high = min(far, near - 1), near - 1
    bits = ((low - 1) ^ high).bit_length() - 1
    return high >> bits << bits


def _seq(source: Source) -> int:
    return source.seq


def _size(source: Source) -> int:
    content = source.data if isinstance(source, Message) else source.body
    return len(content or b"") + len(source.raw or b"")


def _is_result(source: Source) -> bool:
    try:
        return isinstance(source, Message) and source.role == "tool"
    except Corrupt:
        return False
