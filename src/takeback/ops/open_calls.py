"""Which tool calls are open at a point of a path: announced, and no result follows.

Each entry has marks that say what it does to tool calls. The calls that are open at the head lie in the session's row
(``session.calls``), so nothing is read to start a call or to take its result. A conversation whose results never come
must not make that row grow: it keeps the newest 64. The ones left out are older than all that it keeps, and
``open_seq`` stays at or below the oldest of them: ``open_seq`` below the first call that is kept says that there
may be more, and a walk from ``open_seq`` to ``call_seq`` finds them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from ..ids import entry_id
from ..storage.base import Tx
from ..tables.entries import Chain
from ..tables.sessions import SessionRow
from . import log

MOST = 64

Marks = Sequence[tuple[str, str]]


class OpenCall(NamedTuple):
    """A call without a result: the seq of each of its marks, 0 where it has none; of several starts the last."""

    id: str
    call: int
    start: int = 0
    starts: int = 0
    lost: int = 0
    ask: int = 0
    answer: int = 0

    @property
    def is_running(self) -> bool:
        """Whether it was started and nothing is known of its end."""
        return self.start > self.lost

    def noted(self, what: str, seq: int) -> OpenCall:
        """Return the call after its next mark."""
        if what == "start":
            return self._replace(start=seq, starts=self.starts + 1)
        changed: dict[str, Any] = {what: seq} if what in ("lost", "ask", "answer") else {}
        return self._replace(**changed)


def after(calls: Sequence[OpenCall], open_seq: int, seq: int, marks: Marks) -> tuple[tuple[OpenCall, ...], int]:
    """Return the open calls and ``open_seq`` after entry ``seq``, which has these marks.

    The ones before it are those of ``filled``: from an ``open_seq`` too low it would never come up again.
    """
    left = tuple(_applied({call.id: call for call in calls}, seq, marks).values())
    if not is_partial(calls, open_seq):
        open_seq = left[0].call if left else 0
    if len(left) > MOST:  # what one entry announced is kept or left out as one, or open_seq could not tell
        newest_out = left[-MOST - 1].call
        left = tuple(call for call in left[-MOST:] if call.call > newest_out)
    return left, open_seq


def is_partial(calls: Sequence[OpenCall], open_seq: int) -> bool:
    """Whether calls older than these may be open as well."""
    return 0 < open_seq < calls[0].call if calls else open_seq > 0


def known(session: SessionRow) -> tuple[OpenCall, ...] | None:
    """Return the open calls at the head that the session's row keeps; None if they must be looked for.

    They must if most of those that were kept are answered: now there may be room for the ones that were left out.
    """
    if session.open_seq == 0:
        return ()
    found = tuple(map(OpenCall._make, session.calls or ()))
    return None if len(found) < MOST // 2 and is_partial(found, session.open_seq) else found


def filled(tx: Tx, session: SessionRow) -> SessionRow:
    """Return the session with ``calls`` and ``open_seq`` to go on from with ``after``, looked for if need be."""
    if known(session) is not None:
        return session
    found = at(tx, session)
    return session._replace(calls=found, open_seq=found[0].call if found else 0)


def at(tx: Tx, session: SessionRow) -> tuple[OpenCall, ...]:
    """Return every call that is open at the head, in the order they were announced."""
    found = known(session)
    if found is not None and not is_partial(found, session.open_seq):
        return found
    walked = dict[str, OpenCall]()
    for seq, marks in walk(tx, session, session.open_seq - 1, session.call_seq):
        _applied(walked, seq, marks)
    return tuple(walked.values())


def _applied(calls: dict[str, OpenCall], seq: int, marks: Marks) -> dict[str, OpenCall]:
    for what, call_id in marks:
        if what in ("call", "result"):
            calls.pop(call_id, None)  # ids repeat between turns: an older call of this id is forgotten
        if what == "call":
            calls[call_id] = OpenCall(call_id, seq)
        elif call_id in calls:
            calls[call_id] = calls[call_id].noted(what, seq)
    return calls


def walk(tx: Tx, session: SessionRow, low: int, high: int) -> Iterator[tuple[int, Marks]]:
    """Yield the marks of the entries low+1..high of the head's path that have some, in order."""
    return ((seq, chain.calls) for seq, chain in _chains(tx, session, low, high) if chain.calls)


def walk_back(tx: Tx, session: SessionRow) -> Iterator[tuple[int, str, str]]:
    """Yield seq, what and id of each mark of the head's path, the last one first, in pages that grow."""
    high, size = min(session.call_seq, session.seq), 8
    while high > 0:
        page = list(_chains(tx, session, max(0, high - size), high))
        for seq, chain in reversed(page):
            for what, call_id in reversed(chain.calls):
                yield seq, what, call_id
        first, chain = page[0]
        high, size = min(first - 1, chain.call_seq), min(4 * size, log.PAGE)  # nothing lies in between


def _chains(tx: Tx, session: SessionRow, low: int, high: int) -> Iterator[tuple[int, Chain]]:
    """Read entries low+1..high of the head's path in pages."""
    high = min(high, session.seq)
    while low < high:
        segments = log.path_segments(tx, session, low, min(high, low + log.PAGE))
        for row in log.read(tx, session.scope, segments, spilled=False):
            low = row.seq
            try:
                chain = row.chain
            except msgspec.DecodeError as error:
                uid = next(segment.uid for segment in segments if segment.bid == row.branch)
                raise log.damage(entry_id(uid, low), missing=False) from error
            yield low, chain
