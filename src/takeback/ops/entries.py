"""Appending and reading entries: the hot path.

An append is one read, one insert per entry, one feed row and one update, whatever the session holds.
Order is the order in which transactions commit; seq has no gaps. Reads check every row's checksum and
that no seq is missing: a damaged or vanished record is an error, never a shorter answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import add
from typing import NamedTuple

from .. import codec
from ..errors import Conflict, Corrupt, Invalid, NotFound
from ..ids import new_salt
from ..model.entry import STATE_KINDS, Draft, More
from ..model.message import MESSAGE
from ..model.status import require_open
from ..storage.base import Row, Tx, row_check
from . import blobs, branches, chain, feed, leases, sessions
from .branches import Segment

# Whoever adds to the log reads it too: what reads is part of this module, and lies apart for those who only read.
from .log import CHAINED as CHAINED
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

INSERT = f"""INSERT INTO entry (key, kind, at_ms, turns, mid, body, raw, spill, chk,
{CHAINED}, chain_chk)
VALUES ({", ".join("?" * 25)})"""
FIND_KEY = """SELECT scope, session, ikey, branch, seq, last_seq, digest, chk FROM idempotency
WHERE scope = ? AND session = ? AND ikey = ?"""
KEEP_KEY = """INSERT INTO idempotency (scope, session, ikey, branch, seq, last_seq, digest, chk)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
ADD_LINK = "INSERT INTO link (scope, hash, key, chk) VALUES (?, ?, ?, ?)"
ADD_CALL = "INSERT INTO call (scope, key, what, call_id, chk) VALUES (?, ?, ?, ?, ?)"

_LIMIT = 1 << 63


class Appended(NamedTuple):
    """What an append did: the session after it, and where the entries are."""

    session: SessionRow
    uid: str
    first: int
    last: int
    repeated: Sequence[Row] = ()
    late: bool = False  # somebody else had changed the session since it was last seen


def append(
    tx: Tx,
    scope: str,
    session_id: str,
    drafts: Sequence[Draft],
    *,
    now_ms: int,
    expected_revision: int | None = None,
    idempotency_key: str | None = None,
    title: Callable[[], str | None] | None = None,
    fence: leases.Fence | None = None,
) -> Appended:
    """Add entries at the head, all or none, and give their place.

    A key that is on the head's path already with the same content gives the first place again; with
    other content it is ``Conflict``. A revision that is not the expected one is ``Conflict``, and so is a message for
    a finished session. ``title`` makes one for a session that has none yet; ``fence`` is that of a lease.
    """
    session = writable(tx, scope, session_id)
    if fence is not None:
        leases.require(tx, session, fence)
    if idempotency_key is not None and (earlier := repeat(tx, session, drafts, idempotency_key)):
        return earlier
    if expected_revision is not None:
        require_revision(session, expected_revision)
    if not drafts:
        return Appended(session, session.uid, session.seq + 1, session.seq)
    if any(draft.kind == MESSAGE for draft in drafts):
        require_open(session.status)
    if session.title is None and title is not None and (made := title()) is not None:
        session = sessions.write_cold(tx, session, title=made)
    return put(tx, session, drafts, now_ms=now_ms, idempotency_key=idempotency_key)


def writable(tx: Tx, scope: str, session_id: str) -> SessionRow:
    """Give a session that can be added to; one in the trash is ``Conflict``."""
    session = sessions.get(tx, scope, session_id)
    if session.hidden:
        raise Conflict("this session is in the trash; restore it first", found="trash")
    return session


def require_revision(session: SessionRow, expected: int) -> None:
    """Refuse with ``Conflict`` if the session has moved on since it was read."""
    if expected != session.revision:
        raise Conflict(
            f"the session is at revision {session.revision}, not {expected}; read what was added",
            expected=expected,
            found=session.revision,
        )


def put(
    tx: Tx, session: SessionRow, drafts: Sequence[Draft], *, now_ms: int, idempotency_key: str | None = None
) -> Appended:
    """Store entries behind the head of a session that was just read."""
    _require_sound(tx, session, drafts)
    if not session.attached:
        session = _open_branch(tx, session, now_ms)
    first, branch = session.seq + 1, session.branch
    seq, last_hash, numbers = _insert(tx, session, drafts, now_ms)
    position, rank = feed.record(tx, session, "entries", branch=branch, first=first, last=seq)
    if idempotency_key is not None:
        keep_key(tx, session.scope, session.sid, idempotency_key, (branch, first, seq, 0))
    place = (branch, session.uid, session.fork, seq, 1, last_hash)
    message_ms = now_ms if numbers[0] > session.messages else session.message_ms
    counts = (session.branches, session.revision + 1, position, now_ms, message_ms, rank)
    session = sessions.write_head(tx, session, (*place, *numbers, *counts))
    return Appended(session, session.uid, first, seq)


def put_late(
    tx: Tx, session: SessionRow, branch: branches.BranchRow, drafts: Sequence[Draft], *, now_ms: int
) -> Appended:
    """Store entries behind the end of a branch that the head is not on; the head stays where it is."""
    end = point_on(tx, session.scope, branch, branch.tip_seq)
    there = sessions.standing_at(session, branch, end.seq, end.numbers)._replace(hash=end.hash)
    _require_sound(tx, there, drafts)
    seq, last_hash, _ = _insert(tx, there, drafts, now_ms)
    branches.set_tip(tx, branch, seq, last_hash)
    position, rank = feed.record(tx, session, "entries", branch=branch.bid, first=end.seq + 1, last=seq)
    moved = session._replace(revision=session.revision + 1, updated=position, updated_ms=now_ms, rank=rank)
    return Appended(sessions.write_head(tx, session, moved.head), branch.uid, end.seq + 1, seq)


def attach(tx: Tx, session: SessionRow, now_ms: int) -> SessionRow:
    """Open the branch that the next append of a detached head would open: what is under way needs a place."""
    if session.attached:
        return session
    opened = _open_branch(tx, session, now_ms)
    position, rank = feed.record(tx, session, "branch", branch=opened.branch, first=opened.seq, last=opened.seq)
    moved = opened._replace(revision=session.revision + 1, updated=position, updated_ms=now_ms, rank=rank)
    return sessions.write_head(tx, session, moved.head)


def keep_key(tx: Tx, scope: str, sid: int, key: str, place: tuple[int, int, int, int]) -> None:
    """Remember what a call with this idempotency key stored: branch, first and last number, digest."""
    row = (scope, sid, key, *place)
    tx.keyed()
    tx.run(KEEP_KEY, (*row, row_check(row)))


def find_keys(tx: Tx, scope: str, sid: int, key: str) -> list[Row]:
    """Give branch, first and last number and digest of each call with this idempotency key."""
    found = []
    for *row, chk in tx.all(FIND_KEY, (scope, sid, key)):
        if row_check(row) != chk:
            raise Corrupt(f"the record of idempotency key {key!r} is damaged", what="idempotency")
        found.append(tuple(row[3:]))
    return found


def _require_sound(tx: Tx, session: SessionRow, drafts: Sequence[Draft]) -> None:
    """Refuse ids that are on the path already and parents that are not."""
    new = set[str]()
    for draft in drafts:
        more, mid = draft.more, draft.mid
        parent = None if more is None else more.parent
        if parent is not None and parent not in new and find_message(tx, session, parent) is None:
            raise NotFound(f"the parent {parent!r} is no message of this session's path")
        if mid is None:
            continue
        if mid in new or find_by_id(tx, session, mid) is not None:
            raise Conflict(f"there is a message {mid!r} already; to retry, give an idempotency_key", found=mid)
        new.add(mid)


def _insert(tx: Tx, session: SessionRow, drafts: Sequence[Draft], now_ms: int) -> tuple[int, bytes, tuple[int, ...]]:
    """Store entries behind the head; give the last seq, its hash and the totals there."""
    seq, previous, numbers = session.seq, session.hash, session.numbers
    key = key_of(session.branch, seq)
    if seq + len(drafts) > MAX_SEQ:
        raise Invalid(f"a path holds at most {MAX_SEQ} entries")
    for draft in drafts:
        key, seq = key + 1, seq + 1
        row, numbers = chained_row(session, draft, key, previous, numbers, now_ms)
        previous = row[-2]
        tx.run(INSERT, row)
        if draft.more is not None or draft.spill is not None:
            _index(tx, session.scope, key, draft.spill, draft.more)
    return seq, previous, numbers


def chained_row(
    session: SessionRow, draft: Draft, key: int, previous: bytes, numbers: tuple[int, ...], now_ms: int
) -> tuple[Row, tuple[int, ...]]:
    """Make the row of an entry behind another one; give it with the totals there."""
    kind, body, raw, mid, adds, spill, _ = draft
    seq = key & MAX_SEQ
    numbers = (*map(add, numbers[:-1], adds), seq if adds[-1] else numbers[-1])
    if max(numbers) >= _LIMIT:
        raise Invalid("the totals of this session would pass 2^63")
    salt = new_salt()
    head = chain.header(session.uid, seq, kind, now_ms, numbers)
    entry_hash = chain.entry_hash(previous, head, chain.body_hash(salt, body, raw))
    content = (key, kind, now_ms, numbers[1], mid, *_kept(body, raw, spill), spill)
    chained = (session.scope, numbers[0], *numbers[2:], salt, None, entry_hash)
    return (*content, row_check(content), *chained, row_check((key, numbers[1], *chained))), numbers


def _index(tx: Tx, scope: str, key: int, spill: str | None, more: More | None) -> None:
    """Note which blobs an entry needs and which tool calls it touches."""
    needed = {*(spill.split(",") if spill else ()), *(more.blobs if more else ())} - {""}
    for content_hash in sorted(needed):
        if not blobs.exists(tx, scope, content_hash):
            raise Conflict(
                "content of this message was purged while it was being stored; call again", found=content_hash
            )
        link = (scope, content_hash, key)
        tx.run(ADD_LINK, (*link, row_check(link)))
    for what, call_id in dict.fromkeys(more.calls) if more else ():
        call = (scope, key, what, call_id)
        tx.run(ADD_CALL, (*call, row_check(call)))


def _kept(body: bytes, raw: bytes | None, spill: str | None) -> tuple[bytes | None, bytes | None]:
    """Leave out of the row what lies in a blob."""
    if spill is None:
        return body, raw
    body_blob, _, raw_blob = spill.partition(",")
    return (None if body_blob else body), (None if raw_blob else raw)


def _open_branch(tx: Tx, session: SessionRow, now_ms: int) -> SessionRow:
    """Open a branch where a detached head points; the head will be attached to it."""
    origin = branches.get(tx, session.branch)
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
    """Find an earlier call with this key on the head's path; other content under it is ``Conflict``."""
    head: branches.BranchRow | None = None
    found = [row for sid in _owners(tx, session) for row in find_keys(tx, session.scope, sid, key)]
    for branch, first, last, _ in found:
        if branch == 0 or last > session.seq:
            continue
        head = head or branches.get(tx, session.branch)
        if branches.owner(tx, head, last).bid != branch:
            continue  # not on this path, or cut in two by a rewind
        segment = Segment(branch, branches.get(tx, branch).uid, first - 1, last)
        rows = read_all(tx, session.scope, [segment])
        if not _same(rows, drafts):
            raise Conflict(f"idempotency key {key!r} was used for other content; use a new key", found=key)
        return Appended(session, segment.uid, first, last, rows)
    return None


def _owners(tx: Tx, session: SessionRow) -> list[int]:
    """Give the sessions whose entries are on this path: its own, and those that it was forked from."""
    if session.fork == 0:
        return [session.sid]
    rows = map(branches.checked, tx.all(branches.PATH, (session.branch, 0)))
    return list(dict.fromkeys([session.sid, *(row.session for row in rows)]))


def _same(stored: Sequence[Row], drafts: Sequence[Draft]) -> bool:
    if len(stored) != len(drafts):
        return False
    for (_, kind, _, _, _, body, raw, _, _), new in zip(stored, drafts, strict=True):
        if body is None:
            continue  # redacted: nothing is left to compare
        if kind in STATE_KINDS and kind == new.kind:
            if codec.decode(body).get("ask") != codec.decode(new.body).get("ask"):
                return False
            continue
        if kind != new.kind or raw != new.raw:
            return False
        if body != new.body and _said(body) != _said(new.body):
            return False
    return True


def _said(body: bytes) -> bytes:
    """Give what a caller said in a body: without what was derived from the path when it was stored."""
    value = codec.decode(body)
    if isinstance(value, dict):
        value = {name: each for name, each in value.items() if name not in ("tool_name", "answers", "calls")}
    return codec.canonical(value)
