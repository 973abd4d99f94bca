"""One append, from the messages of a caller to the entries of the log.

``entries.append`` says what it means, on every engine. Where an engine can append in one statement, which saves round
trips and shortens a lock, a caller that has seen the session's row computes the whole entry from it in the same way
(``entries.chained``), and the statement takes effect only if nobody changed the session since. Otherwise the same is
computed from the row as it is now, which is locked meanwhile. Whatever takes more reading is left to
``entries.append``: ids, blobs, a first title, a detached head, a key that may have been used, open calls that the row
does not hold, the first change in a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..model.entry import Draft
from ..model.message import TOOL_MESSAGE
from ..model.status import FINISHED
from ..storage import appends
from ..storage.base import Quick, Tx
from ..tables.entries import ENTRY
from ..tables.history import FEED, ONCE, FeedRow
from ..tables.sessions import SESSION
from . import calls, entries, idempotency, leases, open_calls, sessions
from .entries import Appended
from .sessions import SessionRow

if TYPE_CHECKING:
    from ..storage.appends import KnownAppend
    from .leases import Fence

NO_CALLS: Mapping[str, str] = MappingProxyType({})


class Append:
    """Messages on their way to the head of a session, all or none, and on what condition.

    ``seen`` is the session's row as the caller last saw it; ``known`` is the same row, or None if others have appended
    lately. ``waiting`` holds the calls announced through the caller's handle, with the names of their tools. ``lost``
    is called if somebody else has taken the session over. Nothing of that changes from one attempt to the next: a
    retried append must be identical. ``_sent`` is what an attempt sent without learning its outcome.
    """

    __slots__ = (
        *("_lost", "_sent", "drafts", "expected_revision", "fence", "idempotency_key", "known", "now_ms"),
        *("scope", "seen", "session_id", "waiting"),
    )

    def __init__(
        self,
        scope: str,
        seen: SessionRow,
        drafts: Sequence[Draft],
        now_ms: int,
        expected_revision: int | None = None,
        idempotency_key: str | None = None,
        fence: Fence | None = None,
        waiting: Mapping[str, str] = NO_CALLS,
        lost: Callable[[], None] | None = None,
    ) -> None:
        self.scope, self.session_id = scope, seen.id
        self.seen, self.drafts, self.now_ms = seen, drafts, now_ms
        self.expected_revision, self.idempotency_key = expected_revision, idempotency_key
        self.known: SessionRow | None = seen
        self.fence, self.waiting, self._lost = fence, waiting, lost
        self._sent: tuple[KnownAppend, SessionRow, Draft] | None = None

    def run(self, tx: Tx) -> tuple[Appended, Sequence[Draft]]:
        """Store the messages; return what was done, and the drafts with tool results tied to their calls."""
        late, known, drafts, engine = False, self.known, self.drafts, tx.quick
        if engine is not None and len(drafts) == 1:
            if self._sent is not None and (again := self._append_again(engine, self._sent)):
                return again
            if known is not None:
                draft = self._settled_at_once()
                if draft is not None and self._fits(known, draft):
                    if done := self._append_known(engine, known, draft):
                        return done, (draft,)
                    late = True
            if (late or known is None) and (in_turn := self._append_in_turn(engine)):
                return in_turn
        session = entries.writable(tx, self.scope, self.session_id)
        if self.fence is not None:
            leases.require_or(tx, session, self.fence, self._lost)
        if TOOL_MESSAGE in [draft.kind for draft in drafts]:
            drafts = self._settled(tx, session)
        done = entries.append(
            tx,
            session,
            drafts,
            now_ms=self.now_ms,
            expected_revision=self.expected_revision,
            idempotency_key=self.idempotency_key,
        )
        if late and not done.repeated:
            done = self._told(done)
        return done, drafts

    def _told(self, done: Appended) -> Appended:
        """Mark an append before which others wrote; else the statement failed only because a new rank was due."""
        return done._replace(late=self.known is not None and done.session.revision != self.known.revision + 1)

    def _settled(self, tx: Tx, session: SessionRow) -> Sequence[Draft]:
        """Tie tool results to their calls; while the session is as it was seen, the caller knows its open calls."""
        if len(self.drafts) == 1 and session.hash == self.seen.hash and (draft := self._settled_at_once()):
            return (draft,)
        return calls.settled(tx, session, self.drafts)

    def _settled_at_once(self) -> Draft | None:
        """Return the only message, tied to its call if it is a tool's; None if that takes reading."""
        draft = self.drafts[0]
        return draft if draft.kind != TOOL_MESSAGE else calls.settled_at_once(draft, self.waiting)

    def _fits(self, known: SessionRow, draft: Draft) -> bool:
        """Whether an entry can be computed from the row that the caller saw.

        With the fence of a lease, only a row that is exactly as the holder left it proves that the lease still stands.
        """
        if self.fence is not None and self.fence.updated != known.updated:
            return False
        more = draft.more
        plain = draft.mid is None and draft.spill is None and (more is None or (more.parent is None and not more.blobs))
        touches = more is not None and bool(more.calls)
        open_ = known.attached == 1 and known.hidden == 0 and known.status not in FINISHED
        fresh = self.expected_revision in (None, known.revision) and known.seq < entries.MAX_SEQ
        return (
            known.scope == self.scope  # the request decides whose session this is, never a row that somebody kept
            and plain
            and open_
            and fresh
            and (known.title is not None or not draft.adds.turns)
            and known.rank >= sessions.minute_rank(self.now_ms)
            and not known.past
            and (self.idempotency_key is None or known.fork == 0)
            and (not touches or open_calls.known(known) is not None)
        )

    def _append_known(self, engine: Quick, known: SessionRow, draft: Draft) -> Appended | None:
        """Compute an entry after the head that was seen, and store it if nothing has changed since."""
        wanted, after = computed(known, draft, self.now_ms, self.idempotency_key)
        self._sent = wanted, after, draft
        position = engine.append_known(wanted)
        if position is None:
            self._sent = None
            return None
        return _appended(after, position)

    def _append_again(
        self, engine: Quick, sent: tuple[KnownAppend, SessionRow, Draft]
    ) -> tuple[Appended, Sequence[Draft]] | None:
        """Store once what an earlier attempt sent, whose outcome is unknown: send the same, or find it stored."""
        wanted, after, draft = sent
        position = engine.append_known(wanted)
        if position is None:
            position = engine.find_known(wanted)
        self._sent = None
        return None if position is None else (_appended(after, position), (draft,))

    def _append_in_turn(self, engine: Quick) -> tuple[Appended, Sequence[Draft]] | None:
        """Append after whatever others wrote: lock the session's row, and compute the entry from that.

        This is left to ``entries.append`` if more than that row must be read.
        """
        draft = self.drafts[0]
        if self.fence is not None or draft.kind == TOOL_MESSAGE:
            return None
        stored = engine.take_turn(self.scope, self.session_id)
        if stored is None:
            return None
        session = SESSION.checked(stored)
        if not self._fits(session, draft):
            engine.end_turn()
            return None
        done = self._append_known(engine, session, draft)
        return None if done is None else (self._told(done), (draft,))


def _appended(after: SessionRow, position: int) -> Appended:
    session = after.updated_at(position)
    return Appended(session, session.uid, session.seq, session.seq)


def computed(known: SessionRow, draft: Draft, now_ms: int, key: str | None = None) -> tuple[KnownAppend, SessionRow]:
    """Compute an entry after the head that was seen, and the session's next row except for its feed position."""
    row, after = entries.chained(known, draft, now_ms, {"revision": known.revision + 1, "updated_ms": now_ms})
    change = FeedRow(known.scope, 0, "entries", known.sid, known.branch, after.seq, after.seq)
    rest = SESSION.rest_of(after)
    wanted = appends.KnownAppend(
        scope=known.scope,
        sid=known.sid,
        check=SESSION.check(known),
        updated=known.updated,
        rank=known.rank,
        rank_end=sessions.rank_end(known.rank),
        entry=row,
        entry_check=ENTRY.check(row),
        updated_ms=after.updated_ms,
        rest=rest,
        around_session=SESSION.around(after, "updated", rest),
        around_change=FEED.around(change, "pos"),
        branch=known.branch,
        seq=after.seq,
        messages=after.messages,
        once=None if key is None else (key, ONCE.check(idempotency.entries_row(known, key, after.seq, now_ms))),
    )
    return wanted, after
