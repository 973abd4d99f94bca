"""Appending in one statement, where the engine can: one round trip and one short lock instead of several.

A caller that has seen the session's row computes the whole entry from it, as ``entries.append`` would. The statement
takes effect only if nobody changed the session since. Everything else is left to ``entries.append``: ids, blobs, a
first title, a detached head, a key that may have been used, open calls that must be read, the first change in a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ..errors import LeaseLost
from ..model.entry import Draft
from ..model.message import TOOL_MESSAGE
from ..model.status import FINISHED
from ..storage import appends
from ..storage.base import Tx
from ..tables.entries import ENTRY
from ..tables.history import FEED, ONCE, FeedRow
from ..tables.sessions import SESSION
from . import calls, entries, idempotency, leases, open_calls, sessions, titles
from .entries import Appended
from .sessions import SessionRow

if TYPE_CHECKING:
    from ..storage.appends import KnownAppend
    from .leases import Fence


class AppendRequest(NamedTuple):
    """Where to append entries, and on what condition."""

    scope: str
    session_id: str
    now_ms: int
    expected_revision: int | None = None
    idempotency_key: str | None = None


class Append:
    """Messages on their way to the head of a session.

    ``seen`` is the session's row as the caller last saw it; ``known`` is the same row, or None if others have appended
    lately. ``waiting`` holds the calls announced through the caller's handle. ``lost`` is called if somebody else has
    taken the session over.
    """

    def __init__(
        self,
        asked: AppendRequest,
        drafts: list[Draft],
        seen: SessionRow,
        *,
        known: SessionRow | None,
        waiting: Mapping[str, Draft],
        fence: Fence | None,
        lost: Callable[[], None],
    ) -> None:
        self.asked, self.drafts, self.seen, self.known = asked, drafts, seen, known
        self.waiting, self.fence, self._lost = waiting, fence, lost

    def run(self, tx: Tx) -> tuple[Appended, Sequence[Draft]]:
        """Store the messages; return what was done, and the drafts with tool results tied to their calls."""
        try:
            return self._run(tx)
        except LeaseLost:
            self._lost()
            raise

    def _run(self, tx: Tx) -> tuple[Appended, Sequence[Draft]]:
        asked, drafts, fence = self.asked, self.drafts, self.fence
        settled: Sequence[Draft] = drafts
        if TOOL_MESSAGE in [draft.kind for draft in drafts]:
            one = len(drafts) == 1 and self.waiting
            result = calls.settled_at_once(drafts[0], self.waiting) if one else None
            if result is not None and (done := append_result(tx, asked, result, known=self.known, fence=fence)):
                return done, [result]
            session = sessions.get(tx, asked.scope, asked.session_id)
            if fence is not None:
                leases.require(tx, session, fence)
            same = result is not None and session.hash == self.seen.hash  # then the handle's open calls still hold
            settled = [result] if same and result is not None else calls.settled(tx, session, drafts)
        title = partial(titles.of_drafts, drafts)
        return append(tx, asked, settled, known=self.known, title=title, fence=fence), settled


def append(
    tx: Tx,
    asked: AppendRequest,
    drafts: Sequence[Draft],
    *,
    known: SessionRow | None,
    title: Callable[[], str | None],
    fence: Fence | None = None,
) -> Appended:
    """Add entries at the head, all or none; ``known`` is the session's row as the caller last saw it, if it has.

    With the ``fence`` of a lease, only a row that is exactly as the holder left it proves that the lease still stands.
    """
    late = False
    if known is not None and len(drafts) == 1 and tx.quick is not None:
        titled = known.title is not None or not drafts[0].adds.turns
        if titled and _fits(known, asked, drafts[0], fence):
            if done := _append_known(tx, known, drafts[0], asked):
                return done
            late = True
    done = entries.append(
        tx,
        asked.scope,
        asked.session_id,
        drafts,
        now_ms=asked.now_ms,
        expected_revision=asked.expected_revision,
        idempotency_key=asked.idempotency_key,
        title=title,
        fence=fence,
    )
    if late and not done.repeated:
        assert known is not None
        # One revision further means that nobody else wrote: the statement failed only because a new rank was due.
        done = done._replace(late=done.session.revision != known.revision + 1)
    return done


def append_result(
    tx: Tx, asked: AppendRequest, draft: Draft, *, known: SessionRow | None, fence: Fence | None = None
) -> Appended | None:
    """Add a tool's result in one statement if the engine can and the session is unchanged; else return None."""
    if tx.quick is None or known is None or not _fits(known, asked, draft, fence):
        return None
    return _append_known(tx, known, draft, asked)


def _fits(known: SessionRow, asked: AppendRequest, draft: Draft, fence: Fence | None) -> bool:
    """Whether an entry can be computed from the row that the caller saw."""
    if fence is not None and fence.updated != known.updated:
        return False
    more = draft.more
    plain = draft.mid is None and draft.spill is None and (more is None or (more.parent is None and not more.blobs))
    touches = more is not None and bool(more.calls)
    open_ = known.attached == 1 and known.hidden == 0 and known.status not in FINISHED
    fresh = asked.expected_revision in (None, known.revision) and known.seq < entries.MAX_SEQ
    # The request decides whose session this is, never a row that somebody kept.
    same = (known.scope, known.id) == (asked.scope, asked.session_id)
    return (
        same
        and plain
        and open_
        and fresh
        and known.rank >= sessions.minute_rank(asked.now_ms)
        and (asked.idempotency_key is None or known.fork == 0)
        and (not touches or open_calls.known(known) is not None)
    )


def _append_known(tx: Tx, known: SessionRow, draft: Draft, asked: AppendRequest) -> Appended | None:
    """Compute an entry after the head that was seen, and store it if nothing has changed since."""
    engine = tx.quick
    assert engine is not None
    wanted, after = computed(known, draft, asked)
    position = engine.append_known(wanted)
    if position is None:
        return None
    session = after._replace(updated=position)
    return Appended(session, session.uid, session.seq, session.seq)


def computed(known: SessionRow, draft: Draft, asked: AppendRequest) -> tuple[KnownAppend, SessionRow]:
    """Compute an entry after the head that was seen, and the session's next row except for its feed position."""
    row, after = entries.chained(known, draft, asked.now_ms)
    after = after._replace(revision=known.revision + 1, updated_ms=asked.now_ms)
    change = FeedRow(known.scope, 0, "entries", known.sid, known.branch, after.seq, after.seq)
    key = asked.idempotency_key
    wanted = appends.KnownAppend(
        scope=known.scope,
        sid=known.sid,
        check=SESSION.check(known),
        updated=known.updated,
        rank=known.rank,
        entry=ENTRY.seal(row),
        updated_ms=after.updated_ms,
        rest=SESSION.rest_of(after),
        around_session=SESSION.around(after, "updated"),
        around_change=FEED.around(change, "pos"),
        branch=known.branch,
        seq=after.seq,
        messages=after.messages,
        once=None if key is None else (key, ONCE.check(idempotency.entries_row(known, key, after.seq, asked.now_ms))),
    )
    return wanted, after
