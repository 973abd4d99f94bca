"""Appending in one statement, where an engine can: one round trip and one short lock instead of several.

Two ways, both the same as ``entries.append`` in what they store. A caller that has seen the session's row computes the
whole entry from it; it counts only if nobody changed the session since. Else the engine computes hash,
totals and checks itself, behind whoever was faster. Whatever is not plain - ids, blobs, a first title, a detached
head, a key that was used - is left to the operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ids import new_salt
from ..model.entry import Draft, More
from ..model.status import FINISHED
from ..storage.appends import Append, KnownAppend, KnownAppended, NewEntry
from ..storage.base import Quick, Tx, packed, row_check
from . import chain, entries
from .entries import Appended
from .leases import Fence
from .sessions import SessionRow

_HEAD_ARRAY = b"\xdc\x00\x19"  # MessagePack's beginning of an array of 25


def append(
    tx: Tx,
    asked: Append,
    drafts: Sequence[Draft],
    *,
    known: SessionRow | None,
    title: Callable[[], str | None],
    fence: Fence | None = None,
) -> Appended:
    """Add entries at the head, all or none; ``known`` is the session's row as the caller last saw it, if it did.

    With the ``fence`` of a lease only a row that is as its holder left it proves that the lease still stands.
    """
    if (engine := tx.quick) is not None and drafts and all(map(_is_plain, drafts)):
        titled = any(draft.adds.turns for draft in drafts)
        if done := _append(engine, asked._replace(titled=titled), drafts, known, fence):
            return done
    return entries.append(
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


def append_result(
    tx: Tx, asked: Append, draft: Draft, *, known: SessionRow | None, fence: Fence | None = None
) -> Appended | None:
    """Add what a tool gave if the session still is as the caller saw it and the engine can do that at once."""
    engine = tx.quick
    if engine is None or known is None or not _is_plain(draft) or not _fits(known, asked, (draft,), fence):
        return None
    done = engine.append_known(_known(known, draft, asked.now_ms, asked.idempotency_key))
    return None if done is None else _after(known, done)


def _append(
    engine: Quick, asked: Append, drafts: Sequence[Draft], known: SessionRow | None, fence: Fence | None
) -> Appended | None:
    """Try the two ways; None if neither fits."""
    fits = known is not None and _fits(known, asked, drafts, fence)
    if known is not None and fits:
        done = engine.append_known(_known(known, drafts[0], asked.now_ms, asked.idempotency_key))
        if done is not None:
            return _after(known, done)
    if fence is not None:
        return None
    found = engine.append(asked._replace(entries=[_new_entry(draft) for draft in drafts]))
    if found is None:
        return None
    session = SessionRow._make(found)
    return Appended(session, session.uid, session.seq - len(drafts) + 1, session.seq, late=fits)


def _is_plain(draft: Draft) -> bool:
    more = draft.more
    return draft.mid is None and draft.spill is None and (more is None or (more.parent is None and not more.blobs))


def _fits(known: SessionRow, asked: Append, drafts: Sequence[Draft], fence: Fence | None) -> bool:
    """Say whether one entry can be computed from a row that was seen."""
    plain = len(drafts) == 1 and known.attached == 1 and known.hidden == 0 and known.status not in FINISHED
    if fence is not None and fence.updated != known.updated:
        return False
    fresh = asked.expected_revision in (None, known.revision) and known.seq < entries.MAX_SEQ
    needs_title = asked.titled and known.title is None
    same = (known.scope, known.id) == (asked.scope, asked.session_id)  # whose it is says who asks, never what was seen
    return same and plain and fresh and not needs_title and (asked.idempotency_key is None or known.fork == 0)


def _known(known: SessionRow, draft: Draft, now_ms: int, ikey: str | None) -> KnownAppend:
    """Compute an entry behind the head that was seen."""
    seq = known.seq + 1
    key = entries.key_of(known.branch, seq)
    row, numbers = entries.chained_row(known, draft, key, known.hash, known.numbers, now_ms)
    message_ms, revision = now_ms if numbers[0] > known.messages else known.message_ms, known.revision + 1
    place = (known.sid, known.branch, known.uid, known.fork, seq, 1, row[-2], *numbers)
    return KnownAppend(
        scope=known.scope,
        sid=known.sid,
        updated=known.updated,
        head_check=known.head_chk,
        idempotency_key=ikey,
        key_check=0 if ikey is None else row_check((known.scope, known.sid, ikey, known.branch, seq, seq, 0)),
        row=row,
        numbers=numbers,
        revision=revision,
        message_ms=message_ms,
        rank=known.rank,
        before=_HEAD_ARRAY + packed((*place, known.branches, revision))[3:],
        between=packed((now_ms, message_ms))[1:],
        packed_rank=packed((known.rank,))[1:],
        change=packed((known.scope, "entries", known.sid, known.branch, seq, seq))[1:],
        marks=() if draft.more is None else _marks(known.scope, key, draft.more),
    )


def _marks(scope: str, key: int, more: More) -> tuple[tuple[str, str, int], ...]:
    """Give what an entry does to tool calls, with the checks of those rows."""
    return tuple((what, call, row_check((scope, key, what, call))) for what, call in dict.fromkeys(more.calls))


def _after(known: SessionRow, done: KnownAppended) -> Appended:
    """Give the session's row as it is after an append."""
    asked = done.stored
    seq, row = known.seq + 1, asked.row
    place = (known.branch, known.uid, known.fork, seq, 1, row[-2])
    counts = (known.branches, asked.revision, done.position, row[2], asked.message_ms, done.rank)
    head = (*place, *asked.numbers, *counts)
    session = SessionRow._make((*known[:22], *head, row_check((known.sid, *head))))
    return Appended(session, known.uid, seq, seq)


def _new_entry(draft: Draft) -> NewEntry:
    salt, calls = new_salt(), () if draft.more is None else tuple(dict.fromkeys(draft.more.calls))
    content = chain.body_hash(salt, draft.body, draft.raw)
    return NewEntry(draft.kind, draft.body, draft.raw, salt, content, draft.adds, calls)
