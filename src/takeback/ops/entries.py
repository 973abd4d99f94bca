"""Appending and reading entries: the hot path.

An append is one read, one insert per entry, one feed row and one update, whatever the session holds. Entries are in
the order in which transactions commit, and seq has no gaps. Reads check every row's checksum and that no seq is
missing: a damaged or missing record is an error, never a shorter answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import add
from types import MappingProxyType
from typing import Any, NamedTuple

from .. import codec
from ..errors import Conflict, Invalid, NotFound
from ..ids import new_salt
from ..model.entry import STATE_KINDS, Draft, More, Numbers
from ..model.message import MESSAGE
from ..model.status import require_open
from ..storage.base import Tx
from ..tables.entries import ENTRY, LINK, LinkRow, packed_chain
from ..tables.entries import EntryRow as EntryRow
from . import blobs, branches, chain, feed, idempotency, open_calls, sessions, titles
from .branches import Segment

# Whoever appends also reads, so reading is part of this module; it lives in ``log`` for those who only read.
from .log import MAX_SEQ as MAX_SEQ
from .log import PAGE as PAGE
from .log import Point as Point
from .log import as_entry as as_entry
from .log import find_by_id as find_by_id
from .log import find_message as find_message
from .log import is_on_path as is_on_path
from .log import key_of as key_of
from .log import numbers_at as numbers_at
from .log import path_segments as path_segments
from .log import place_of as place_of
from .log import point as point
from .log import point_on as point_on
from .log import read as read
from .log import read_all as read_all
from .sessions import SessionRow

NO_CHANGE: Mapping[str, Any] = MappingProxyType({})
_LIMIT = 1 << 63
_SUMS = Numbers._fields.index("work_seq")  # the totals before it are added up, the rest are places in the log


class Appended(NamedTuple):
    """What an append did: the session after it, and where the entries are."""

    session: SessionRow
    uid: str
    first: int
    last: int
    repeated: Sequence[EntryRow] = ()
    late: bool = False  # somebody else had changed the session since the caller last saw it


def append(
    tx: Tx,
    session: SessionRow,
    drafts: Sequence[Draft],
    *,
    now_ms: int,
    expected_revision: int | None = None,
    idempotency_key: str | None = None,
) -> Appended:
    """Add entries at the head of a session that is ``writable``, all or none, and return where they are.

    An idempotency key already on the head's path with the same content returns the first entries again. The same key
    with other content raises ``Conflict``, as do an unexpected revision and a message for a finished session. The
    first user message gives a session its title, unless it has one.
    """
    if idempotency_key is not None and (earlier := repeat(tx, session, drafts, idempotency_key)):
        return earlier
    if expected_revision is not None:
        require_revision(session, expected_revision)
    if not drafts:
        return Appended(session, session.uid, session.seq + 1, session.seq)
    if MESSAGE in [draft.kind for draft in drafts]:
        require_open(session.status)
    if session.title is None and (made := titles.of_drafts(drafts)) is not None:
        session = sessions.write(tx, session, title=made)
    return put(tx, session, drafts, now_ms=now_ms, idempotency_key=idempotency_key)


def writable(tx: Tx, scope: str, session_id: str) -> SessionRow:
    """Return a session that can be appended to; one in the trash raises ``Conflict``."""
    session = sessions.get(tx, scope, session_id)
    if session.hidden:
        raise Conflict("this session is in the trash; restore it first", found="trash")
    return session


def require_revision(session: SessionRow, expected: int) -> None:
    """Raise ``Conflict`` if the session has moved on since it was read."""
    if expected != session.revision:
        raise Conflict(
            f"the session is at revision {session.revision}, not {expected}; read what was added and try again",
            expected=expected,
            found=session.revision,
        )


def put(
    tx: Tx, session: SessionRow, drafts: Sequence[Draft], *, now_ms: int, idempotency_key: str | None = None
) -> Appended:
    """Store entries after the head of a session that was just read."""
    _require_sound(tx, session, drafts)
    there = session if session.attached else _open_branch(tx, session, now_ms)
    first, last = there.seq + 1, there.seq + len(drafts)
    # The change comes before the entries: what is known of the feed without reading holds until something is written.
    position, rank = feed.record(tx, session, "entries", branch=there.branch, first=first, last=last, now_ms=now_ms)
    if idempotency_key is not None:
        idempotency.keep_entries(tx, session, idempotency_key, there.branch, first, last, now_ms)
    place = sessions.placed(session, position, rank, now_ms, happened_ms=_happened(drafts))
    change: dict[str, Any] = {"revision": session.revision + 1, **place}
    session = sessions.store(tx, session, _insert(tx, there, drafts, now_ms, change))
    tx.keep(session.scope, session.id, session, rank)
    return Appended(session, session.uid, first, session.seq)


def put_late(
    tx: Tx, session: SessionRow, branch: branches.BranchRow, drafts: Sequence[Draft], *, now_ms: int
) -> Appended:
    """Store entries at the end of a branch that the head is not on; the head stays where it is."""
    end = point_on(tx, session.scope, branch, branch.tip_seq)
    there = sessions.standing_at(session, branch, end.seq, end.numbers)._replace(hash=end.hash)
    _require_sound(tx, there, drafts)
    after = _insert(tx, there, drafts, now_ms)
    branches.set_tip(tx, branch, after.seq, after.hash)
    position, rank = feed.record(
        tx, session, "entries", branch=branch.bid, first=end.seq + 1, last=after.seq, now_ms=now_ms
    )
    place = sessions.placed(session, position, rank, now_ms, happened_ms=_happened(drafts))
    session = sessions.write(tx, session, revision=session.revision + 1, **place)
    return Appended(session, branch.uid, end.seq + 1, after.seq)


def _happened(drafts: Sequence[Draft]) -> int | None:
    """Return when the last of some entries happened, unless one of them happens now.

    State that is written with messages of the past goes with them.
    """
    times = [draft.at_ms for draft in drafts if draft.at_ms is not None or draft.kind not in STATE_KINDS]
    known = [time for time in times if time is not None]
    return max(known) if known and len(known) == len(times) else None


def attach(tx: Tx, session: SessionRow, now_ms: int) -> SessionRow:
    """Open the branch that the next append at a detached head would open: a stream needs one before it appends."""
    if session.attached:
        return session
    opened = _open_branch(tx, session, now_ms)
    position, rank = feed.record(
        tx, session, "branch", branch=opened.branch, first=opened.seq, last=opened.seq, now_ms=now_ms
    )
    opened = opened._replace(revision=session.revision + 1, **sessions.placed(session, position, rank, now_ms))
    return sessions.store(tx, session, opened)


def _require_sound(tx: Tx, session: SessionRow, drafts: Sequence[Draft]) -> None:
    """Refuse ids that are already on the path, and parents that are not."""
    new = set[str]()
    for draft in drafts:
        more, mid = draft.more, draft.mid
        parent = None if more is None else more.parent
        if parent is not None and parent not in new and find_message(tx, session, parent) is None:
            raise NotFound(f"the parent {parent!r} is not a message of this session's path")
        if mid is None:
            continue
        if mid in new or find_by_id(tx, session, mid) is not None:
            raise Conflict(f"message {mid!r} already exists; to make retries safe, pass an idempotency_key", found=mid)
        new.add(mid)


def _insert(
    tx: Tx, session: SessionRow, drafts: Sequence[Draft], now_ms: int, change: Mapping[str, Any] = NO_CHANGE
) -> SessionRow:
    """Store entries after the head; return the session as it then stands, with what else changes, not written yet."""
    if session.seq + len(drafts) > MAX_SEQ:
        raise Invalid(f"a path holds at most {MAX_SEQ} entries")
    for draft in drafts:
        if draft.more is not None and draft.more.calls:
            session = open_calls.filled(tx, session)
        row, session = chained(session, draft, now_ms, change)
        ENTRY.put(tx, row)
        if draft.more is not None or draft.spill is not None:
            _link(tx, row, draft.more)
    return session


def chained(
    session: SessionRow, draft: Draft, now_ms: int, change: Mapping[str, Any] = NO_CHANGE
) -> tuple[EntryRow, SessionRow]:
    """Return the row of the entry after the head, and the session as it stands there, with what else changes.

    For an entry that touches tool calls, the session must hold its open calls (``open_calls.filled``).
    """
    seq, numbers, adds = session.seq + 1, session.numbers, draft.adds
    calls = () if draft.more is None else tuple(dict.fromkeys(draft.more.calls))
    waiting, open_seq = session.calls, numbers.open_seq
    if calls:
        waiting, open_seq = open_calls.after(open_calls.known(session) or (), open_seq, seq, calls)
    places = seq if adds.work_seq else numbers.work_seq, seq if calls else numbers.call_seq, open_seq
    totals = tuple.__new__(Numbers, (*map(add, numbers[:_SUMS], adds), *places))
    if max(totals) >= _LIMIT:
        raise Invalid("the totals of this session would pass 2^63")
    salt, at_ms = new_salt(), now_ms if draft.at_ms is None else draft.at_ms
    head = chain.header(session.uid, seq, draft.kind, at_ms, now_ms, totals)
    entry_hash = chain.entry_hash(session.hash, head, chain.body_hash(salt, draft.body, draft.raw))
    body, raw = (draft.body, draft.raw) if draft.spill is None else _kept(draft.body, draft.raw, draft.spill)
    rest = packed_chain(now_ms - at_ms, totals, calls, salt, entry_hash)
    place = session.scope, key_of(session.branch, seq)
    row = EntryRow(*place, draft.kind, at_ms, totals.turns, draft.mid, body, raw, draft.spill, rest)
    message_ms = at_ms if totals.messages > numbers.messages else session.message_ms
    return row, session.advanced(totals, seq=seq, hash=entry_hash, calls=waiting, message_ms=message_ms, **change)


def _link(tx: Tx, row: EntryRow, more: More | None) -> None:
    """Record which blobs an entry needs."""
    needed = {*row.spilled, *(more.blobs if more else ())} - {""}
    for content_hash in sorted(needed):
        if not blobs.exists(tx, row.scope, content_hash):
            raise Conflict(
                f"content {content_hash[:12]} of this entry was never stored here, or purged meanwhile;"
                " store it and try again",
                found=content_hash,
            )
        LINK.put(tx, LinkRow(row.scope, content_hash, row.key))


def _kept(body: bytes, raw: bytes | None, spill: str) -> tuple[bytes | None, bytes | None]:
    """Return body and raw as the row stores them: None for what a blob holds."""
    body_blob, _, raw_blob = spill.partition(",")
    return (None if body_blob else body), (None if raw_blob else raw)


def _open_branch(tx: Tx, session: SessionRow, now_ms: int) -> SessionRow:
    """Open a branch where a detached head points, and return the session attached to it."""
    origin = branches.get(tx, session.scope, session.branch)
    name = branches.free_name(tx, session.scope, session.sid, base=origin.name, count=session.branches)
    opened = branches.create(
        tx,
        session.scope,
        session.sid,
        name=name,
        origin=origin,
        seq=session.seq,
        tip_hash=session.hash,
        now_ms=now_ms,
    )
    return session._replace(
        branch=opened.bid, uid=opened.uid, fork=opened.fork_seq, attached=1, branches=session.branches + 1
    )


def repeat(tx: Tx, session: SessionRow, drafts: Sequence[Draft], key: str) -> Appended | None:
    """Find an earlier call with this key on the head's path; other content under it raises ``Conflict``."""
    head: branches.BranchRow | None = None
    for kept in [row for sid in _owners(tx, session) for row in idempotency.entries_of(tx, session.scope, sid, key)]:
        if kept.last_seq > session.seq:
            continue
        head = head or branches.get(tx, session.scope, session.branch)
        owner = branches.owner(tx, head, kept.last_seq)
        if owner.bid != kept.branch:
            continue  # not on this path, or cut in two by a rewind
        rows = read_all(tx, session.scope, [Segment(owner.bid, owner.uid, kept.seq - 1, kept.last_seq)])
        if not _same(rows, drafts):
            raise Conflict(f"idempotency key {key!r} was already used for different content; use a new key", found=key)
        return Appended(session, owner.uid, kept.seq, kept.last_seq, rows)
    return None


def _owners(tx: Tx, session: SessionRow) -> list[int]:
    """Return the sessions whose entries are on this path: its own, and those it was forked from."""
    if session.fork == 0:
        return [session.sid]
    above = branches.path(tx, branches.get(tx, session.scope, session.branch))
    return list(dict.fromkeys([session.sid, *(row.session for row in above)]))


def _same(stored: Sequence[EntryRow], drafts: Sequence[Draft]) -> bool:
    if len(stored) != len(drafts):
        return False
    return all(is_same(row, new) for row, new in zip(stored, drafts, strict=True))


def is_same(row: EntryRow, new: Draft) -> bool:
    """Whether a stored entry has the content of a draft."""
    if row.body is None:
        return True  # redacted: nothing is left to compare
    if row.kind in STATE_KINDS and row.kind == new.kind:
        # A state entry depends on what it found, so a retry is the same request (``ask``), not the same body.
        return bool(codec.decode(row.body).get("ask") == codec.decode(new.body).get("ask"))
    if row.kind != new.kind or row.raw != new.raw:
        return False
    return row.body == new.body or _said(row.body) == _said(new.body)


def _said(body: bytes) -> bytes:
    """Return what the caller put in a body, without what was derived from the path when it was stored."""
    value = codec.decode(body)
    if isinstance(value, dict):
        value = {name: each for name, each in value.items() if name not in ("tool_name", "answers", "calls")}
    return codec.canonical(value)
