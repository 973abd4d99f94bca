"""Which tool calls are open at a point of a path: announced, with no result after them.

Each entry has marks that say what it does to tool calls. The calls open at the head are kept in the session's row
(``session.calls``), so starting a call or storing its result reads nothing else. A conversation whose results never
come must not make that row grow, so it keeps only the newest 64. Those left out are older than all it keeps, and
``open_seq`` stays at or below the oldest of them. An ``open_seq`` below the first call kept means that there may be
more, and a walk from ``open_seq`` to ``call_seq`` finds them.
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
    """A call without a result: the seq of each of its marks, 0 for none; of several starts, the last."""

    id: str
    call: int
    start: int = 0
    starts: int = 0
    lost: int = 0
    ask: int = 0
    answer: int = 0

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not been recorded as lost."""
        return self.start > self.lost

    def noted(self, what: str, seq: int) -> OpenCall:
        """Return the call after its next mark."""
        if what == "start":
            return self._replace(start=seq, starts=self.starts + 1)
        changed: dict[str, Any] = {what: seq} if what in ("lost", "ask", "answer") else {}
        return self._replace(**changed)


def after(calls: Sequence[OpenCall], open_seq: int, seq: int, marks: Marks) -> tuple[tuple[OpenCall, ...], int]:
    """Return the open calls and ``open_seq`` after entry ``seq``, which has these marks.

    ``calls`` and ``open_seq`` must come from ``filled``: an ``open_seq`` that is too low would never rise again.
    """
    left = tuple(_applied({call.id: call for call in calls}, seq, marks).values())
    if not is_partial(calls, open_seq):
        open_seq = left[0].call if left else 0
    if len(left) > MOST:  # keep or drop all calls of one entry together: open_seq cannot divide an entry
        newest_out = left[-MOST - 1].call
        left = tuple(call for call in left[-MOST:] if call.call > newest_out)
    return left, open_seq


def is_partial(calls: Sequence[OpenCall], open_seq: int) -> bool:
    """Whether calls older than these may also be open."""
    return 0 < open_seq < calls[0].call if calls else open_seq > 0


def known(session: SessionRow) -> tuple[OpenCall, ...] | None:
    """Return the open calls that the session's row keeps; None if they must be read from the log.

    They must be once most of those kept are answered: there is room again for the ones left out.
    """
    if session.open_seq == 0:
        return ()
    found = tuple(map(OpenCall._make, session.calls or ()))
    return None if len(found) < MOST // 2 and is_partial(found, session.open_seq) else found


def filled(tx: Tx, session: SessionRow) -> SessionRow:
    """Return the session with ``calls`` and ``open_seq`` ready for ``after``, read from the log if need be."""
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
            calls.pop(call_id, None)  # ids repeat between turns: the newest call replaces an older one
        if what == "call":
            calls[call_id] = OpenCall(call_id, seq)
        elif call_id in calls:
            calls[call_id] = calls[call_id].noted(what, seq)
    return calls


def walk(tx: Tx, session: SessionRow, low: int, high: int) -> Iterator[tuple[int, Marks]]:
    """Yield the marks of the entries low+1..high of the head's path that have some, in order."""
    return ((seq, chain.calls) for seq, chain in _chains(tx, session, low, high) if chain.calls)


def walk_back(tx: Tx, session: SessionRow) -> Iterator[tuple[int, str, str]]:
    """Yield seq, kind and call id of each mark on the head's path, newest first, in growing pages."""
    high, size = min(session.call_seq, session.seq), 8
    while high > 0:
        page = list(_chains(tx, session, max(0, high - size), high))
        for seq, chain in reversed(page):
            for what, call_id in reversed(chain.calls):
                yield seq, what, call_id
        first, chain = page[0]
        high, size = min(first - 1, chain.call_seq), min(4 * size, log.PAGE)  # call_seq skips what has no marks


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
