"""Appending and reading entries: the hot path.

An append is one read, one insert per entry, one feed row and one update, whatever the session holds.
Order is the order in which transactions commit; seq has no gaps. Reads check every row's checksum and
that no seq is missing: a damaged or vanished record is an error, never a shorter answer.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from operator import add
from typing import NamedTuple

from .. import codec
from ..errors import Conflict, Corrupt, Error, Invalid, NotFound
from ..model.entry import Draft, Entry, Numbers
from ..storage.base import Tx, row_check
from . import blobs, branches, chain, feed, sessions
from .branches import Segment
from .sessions import Place, SessionRow

_CHAINED = (
    "messages, tool_calls, tool_failures, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens,"
    " reasoning_tokens, cost_nano, active_ms, work_seq, salt, body_hash, hash"
)
INSERT = f"""INSERT INTO entry (scope, branch, seq, kind, at_ms, turns, mid, body, raw, spill, chk,
{_CHAINED}, chain_chk)
VALUES ({", ".join("?" * 26)})"""
READ = """SELECT seq, kind, at_ms, turns, mid, body, raw, spill, chk FROM entry
WHERE scope = ? AND branch = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?"""
POINT = f"SELECT turns, {_CHAINED}, chain_chk FROM entry WHERE scope = ? AND branch = ? AND seq = ?"
BY_MID = "SELECT branch, seq FROM entry WHERE scope = ? AND mid = ? ORDER BY branch DESC, seq DESC"
FIND_KEY = """SELECT scope, session, ikey, branch, seq, last_seq, chk FROM idempotency
WHERE scope = ? AND session = ? AND ikey = ?"""
KEEP_KEY = "INSERT INTO idempotency (scope, session, ikey, branch, seq, last_seq, chk) VALUES (?, ?, ?, ?, ?, ?, ?)"

PAGE = 500
PAGE_BYTES = 16 << 20
_LIMIT = 1 << 63


class Content(NamedTuple):
    """A checked row of ``entry`` without its chain columns; spilled parts are loaded."""

    seq: int
    kind: str
    at_ms: int
    turns: int
    mid: str | None
    body: bytes | None
    raw: bytes | None


class Appended(NamedTuple):
    """What an append did: the session after it, and where the entries are."""

    session: SessionRow
    uid: str
    first: int
    last: int
    repeated: bool


def append(
    tx: Tx,
    scope: str,
    session_id: str,
    drafts: Sequence[Draft],
    *,
    now_ms: int,
    expected_revision: int | None = None,
    idempotency_key: str | None = None,
) -> Appended:
    """Add entries at the head, all or none, and give their place.

    A key that is on the head's path already with the same content gives the first place again; with
    other content it is ``Conflict``. A revision that is not the expected one is ``Conflict``.
    """
    session = sessions.get(tx, scope, session_id)
    if session.hidden:
        raise Conflict("this session is in the trash; restore it first", found="trash")
    if idempotency_key is not None and (earlier := _repeat(tx, session, drafts, idempotency_key)):
        return earlier
    place = session.place
    if expected_revision is not None and expected_revision != place.revision:
        raise Conflict(
            f"the session is at revision {place.revision}, not {expected_revision}; read what was added",
            expected=expected_revision,
            found=place.revision,
        )
    if not drafts:
        return Appended(session, place.uid, place.seq + 1, place.seq, False)
    if not place.attached:
        place = _open_branch(tx, session, now_ms)
    first = place.seq + 1
    place = _insert(tx, scope, place, drafts, now_ms)
    position = feed.record(tx, scope, "entries", session.sid, place.branch, first, place.seq)
    place = place._replace(revision=place.revision + 1, updated=position, updated_ms=now_ms)
    if idempotency_key is not None:
        key = (scope, session.sid, idempotency_key, place.branch, first, place.seq)
        tx.run(KEEP_KEY, (*key, row_check(key)))
    return Appended(sessions.move(tx, session, place), place.uid, first, place.seq, False)


def _insert(tx: Tx, scope: str, place: Place, drafts: Sequence[Draft], now_ms: int) -> Place:
    branch, uid, seq, numbers, previous = place.branch, place.uid, place.seq, place.numbers, place.hash
    for kind, body, raw, mid, adds, spill in drafts:
        seq += 1
        numbers = (*map(add, numbers[:-1], adds), seq if adds[-1] else numbers[-1])
        if max(numbers) >= _LIMIT:
            raise Invalid("the totals of this session would pass 2^63")
        salt = os.urandom(chain.SALT_BYTES)
        head = chain.header(uid, seq, kind, now_ms, numbers)
        previous = chain.entry_hash(previous, head, chain.body_hash(salt, body, raw))
        kept = _kept(body, raw, spill)
        content = (scope, branch, seq, kind, now_ms, numbers[1], mid, *kept, spill)
        chained = (numbers[0], *numbers[2:], salt, None, previous)
        tx.run(
            INSERT,
            (*content, row_check(content), *chained, row_check((scope, branch, seq, *chained))),
        )
    return place._replace(seq=seq, hash=previous, numbers=numbers)


def _kept(body: bytes, raw: bytes | None, spill: str | None) -> tuple[bytes | None, bytes | None]:
    """Leave out of the row what lies in a blob."""
    if spill is None:
        return body, raw
    body_blob, _, raw_blob = spill.partition(",")
    return (None if body_blob else body), (None if raw_blob else raw)


def _open_branch(tx: Tx, session: SessionRow, now_ms: int) -> Place:
    """Open a branch where a detached head points; the head will be attached to it."""
    place = session.place
    origin = branches.get(tx, place.branch)
    name = branches.free_name(tx, session.scope, session.sid, base=origin.name, count=place.branches)
    opened = branches.create(
        tx, session.scope, session.sid, name=name, origin=origin, seq=place.seq, tip_hash=place.hash, now_ms=now_ms
    )
    return place._replace(
        branch=opened.bid, uid=opened.uid, fork=opened.fork_seq, attached=1, branches=place.branches + 1
    )


def _repeat(tx: Tx, session: SessionRow, drafts: Sequence[Draft], key: str) -> Appended | None:
    """Find an earlier call with this key on the head's path; other content under it is ``Conflict``."""
    place = session.place
    head: branches.BranchRow | None = None
    for *row, chk in tx.all(FIND_KEY, (session.scope, session.sid, key)):
        if row_check(row) != chk:
            raise Corrupt(f"the record of idempotency key {key!r} is damaged", what="idempotency")
        branch, first, last = row[3:]
        if last > place.seq:
            continue
        head = head or branches.get(tx, place.branch)
        if branches.owner(tx, head, first).bid != branch:
            continue
        segment = Segment(branch, branches.get(tx, branch).uid, first - 1, last)
        if not _same(read_segment(tx, session.scope, segment), drafts):
            raise Conflict(f"idempotency key {key!r} was used for other content; use a new key", found=key)
        return Appended(session, segment.uid, first, last, True)
    return None


def _same(stored: Sequence[Content], drafts: Sequence[Draft]) -> bool:
    if len(stored) != len(drafts):
        return False
    for old, new in zip(stored, drafts, strict=True):
        if old.body is None:
            continue  # redacted: nothing is left to compare
        if old.kind != new.kind or old.raw != new.raw:
            return False
        if old.body != new.body and codec.canonical(codec.decode(old.body)) != codec.canonical(codec.decode(new.body)):
            return False
    return True


# ---------------------------------------------------------------------- reading


def read_segment(tx: Tx, scope: str, segment: Segment) -> list[Content]:
    """Read the entries of a segment, each checked; a missing seq is ``Corrupt``.

    Stops early, after at least one entry, when spilled parts pass ``PAGE_BYTES``.
    """
    bid, uid, low, high = segment
    rows = tx.all(READ, (scope, bid, low, high, high - low))
    found, expected, loaded = [], low, 0
    for row in rows:
        expected += 1
        if row[0] != expected or row_check((scope, bid, *row[:-1])) != row[-1]:
            raise _damaged(uid, row[0], expected)
        if row[7] is None:
            found.append(Content._make(row[:7]))
            continue
        body, raw = _load_spilled(tx, scope, row[5], row[6], row[7])
        found.append(Content._make((*row[:5], body, raw)))
        loaded += len(body or b"") + len(raw or b"")
        if loaded > PAGE_BYTES:
            return found
    if expected != high:
        raise _damaged(uid, expected + 1, expected + 1)
    return found


def _damaged(uid: str, seq: int, expected: int) -> Error:
    what = f"entry {uid}-{expected}"
    if seq != expected:
        return Corrupt(f"entry {expected} of branch {uid} is missing; run verify", what=what)
    return Corrupt(f"entry {seq} of branch {uid} is damaged; run verify", what=what)


def _load_spilled(
    tx: Tx, scope: str, body: bytes | None, raw: bytes | None, spill: str
) -> tuple[bytes | None, bytes | None]:
    body_blob, _, raw_blob = spill.partition(",")
    if body_blob:
        body = blobs.read_whole(tx, scope, body_blob)
    if raw_blob:
        raw = blobs.read_whole(tx, scope, raw_blob)
    return body, raw


def path_segments(tx: Tx, session: SessionRow, low: int, high: int) -> list[Segment]:
    """Find what holds the entries low+1..high of the head's path; most often one segment, without a read."""
    place = session.place
    high = min(high, place.seq)
    if low >= place.fork and high > low:
        return [Segment(place.branch, place.uid, low, high)]
    return branches.segments(tx, branches.get(tx, place.branch), low, high)


def as_entry(uid: str, row: Content) -> Entry:
    """Show an entry to callers."""
    return Entry(uid, row.seq, row.kind, row.at_ms, row.turns, row.body, row.raw, row.mid)


# ---------------------------------------------------------------------- points


class Point(NamedTuple):
    """A place on a path with what the head needs to stand there."""

    branch: int
    uid: str
    fork: int
    seq: int
    hash: bytes
    numbers: tuple[int, ...]


def point(tx: Tx, session: SessionRow, seq: int) -> Point:
    """Find entry ``seq`` of the head's path; 0 is the beginning. Beyond the head is ``NotFound``."""
    place = session.place
    if not 0 <= seq <= place.seq:
        raise NotFound(f"the session has entries 1 to {place.seq}; there is no entry {seq} on its path")
    if seq == place.seq:
        return Point(place.branch, place.uid, place.fork, seq, place.hash, place.numbers)
    return point_on(tx, session.scope, branches.get(tx, place.branch), seq)


def point_on(tx: Tx, scope: str, branch: branches.BranchRow, seq: int) -> Point:
    """Find entry ``seq`` on the path of a branch; its chain columns are checked."""
    if seq == 0:
        return Point(branch.bid, branch.uid, branch.fork_seq, 0, chain.GENESIS, sessions.NO_NUMBERS)
    holder = branches.owner(tx, branch, seq)
    row = tx.one(POINT, (scope, holder.bid, seq))
    if row is None or row_check((scope, holder.bid, seq, *row[1:-1])) != row[-1]:
        raise _damaged(holder.uid, seq if row else 0, seq)
    turns, messages, *others = row[:12]
    return Point(holder.bid, holder.uid, holder.fork_seq, seq, row[-2], (messages, turns, *others))


def find_by_id(tx: Tx, session: SessionRow, message_id: str) -> Segment | None:
    """Find an entry of the head's path by the id that its caller gave."""
    place = session.place
    for bid, seq in tx.all(BY_MID, (session.scope, message_id)):
        if seq <= place.seq:
            holder = branches.owner(tx, branches.get(tx, place.branch), seq)
            if holder.bid == bid:
                return Segment(bid, holder.uid, seq - 1, seq)
    return None


def numbers_at(tx: Tx, session: SessionRow, seq: int | None) -> Numbers:
    """Give the running totals at a point of the path; at the head without one."""
    return Numbers(*(session.place.numbers if seq is None else point(tx, session, seq).numbers))
