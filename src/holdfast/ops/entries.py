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
from ..errors import Conflict, Corrupt, Error, Invalid, NotFound
from ..ids import entry_id, new_salt, parse_entry_id
from ..model.entry import STATE_KINDS, Draft, Entry, More, Numbers
from ..model.message import MESSAGE
from ..model.status import require_open
from ..storage.base import Row, Tx, row_check
from . import blobs, branches, chain, feed, leases, sessions
from .branches import Segment
from .sessions import SessionRow

_CHAINED = (
    "scope, messages, tool_calls, tool_failures, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens,"
    " reasoning_tokens, cost_nano, active_ms, work_seq, salt, body_hash, hash"
)
INSERT = f"""INSERT INTO entry (key, kind, at_ms, turns, mid, body, raw, spill, chk,
{_CHAINED}, chain_chk)
VALUES ({", ".join("?" * 25)})"""
READ = """SELECT key, kind, at_ms, turns, mid, body, raw, spill, chk FROM entry
WHERE key > ? AND key <= ? AND scope = ? ORDER BY key"""
READ_PATH = """WITH RECURSIVE path (at, high) AS (SELECT CAST(? AS BIGINT), CAST(? AS BIGINT) UNION ALL
SELECT b.parent, b.fork_seq FROM path JOIN branch b ON b.bid = path.at WHERE b.fork_seq > ? AND b.parent < b.bid)
SELECT key, e.kind, at_ms, turns, mid, body, raw, spill, e.chk FROM path JOIN branch b ON b.bid = path.at
JOIN entry e ON key > (path.at << 32 | CASE WHEN b.fork_seq > ? THEN b.fork_seq ELSE ? END)
AND key <= (path.at << 32 | path.high) WHERE e.scope = ?"""
POINT = f"SELECT turns, {_CHAINED}, chain_chk FROM entry WHERE key = ? AND scope = ?"
BY_MID = "SELECT key FROM entry WHERE scope = ? AND mid = ? ORDER BY key DESC LIMIT ?"
MID_BETWEEN = "SELECT key FROM entry WHERE scope = ? AND mid = ? AND key > ? AND key <= ? ORDER BY key DESC LIMIT 1"
FIND_KEY = """SELECT scope, session, ikey, branch, seq, last_seq, digest, chk FROM idempotency
WHERE scope = ? AND session = ? AND ikey = ?"""
KEEP_KEY = """INSERT INTO idempotency (scope, session, ikey, branch, seq, last_seq, digest, chk)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
ADD_LINK = "INSERT INTO link (scope, hash, key, chk) VALUES (?, ?, ?, ?)"
ADD_CALL = "INSERT INTO call (scope, key, what, call_id, chk) VALUES (?, ?, ?, ?, ?)"

PAGE = 200
PAGE_BYTES = 16 << 20
MAX_SEQ = (1 << 32) - 1
_FEW = 32
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


def is_on_path(tx: Tx, session: SessionRow, uid: str, seq: int) -> bool:
    """Say whether an entry of a branch is on the path of the head."""
    return seq <= session.seq and branches.owner(tx, branches.get(tx, session.branch), seq).uid == uid


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


def key_of(branch: int, seq: int) -> int:
    """Give the key of an entry's row."""
    return branch << 32 | seq


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


def read_all(tx: Tx, scope: str, segments: Sequence[Segment]) -> list[Row]:
    """Read segments whole, also where large entries end pages early."""
    rows = read(tx, scope, segments)
    while (reached := rows[-1][0] & MAX_SEQ) < segments[-1].high:
        left = [segment for segment in segments if segment.high > reached]
        rows += read(tx, scope, [left[0]._replace(low=max(left[0].low, reached)), *left[1:]])
    return rows


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


# ---------------------------------------------------------------------- reading


def read(tx: Tx, scope: str, segments: Sequence[Segment]) -> list[Row]:
    """Read the entries of a path's segments as rows of ``READ``, oldest first, each checked.

    A missing seq is ``Corrupt``. Spilled parts are loaded; when those pass ``PAGE_BYTES`` the rest is left out.
    """
    low, top = segments[0].low, segments[-1]
    if len(segments) == 1:
        base = key_of(top.bid, 0)
        rows = tx.all(READ, (base + low, base + top.high, scope))
    else:
        rows = tx.all(READ_PATH, (top.bid, top.high, low, low, low, scope))
        rows.sort(key=_seq_of)
    keys = [key for s in segments for key in range(key_of(s.bid, s.low) + 1, key_of(s.bid, s.high) + 1)]
    if [row[0] for row in rows] != keys or [row_check(row[:8]) for row in rows] != [row[8] for row in rows]:
        raise _damaged(segments, rows, keys)
    spilled = [index for index, row in enumerate(rows) if row[7] is not None]
    return _with_spilled(tx, scope, rows, spilled) if spilled else rows


def _seq_of(row: Row) -> int:
    return int(row[0]) & MAX_SEQ


def _damaged(segments: Sequence[Segment], rows: Sequence[Row], keys: Sequence[int]) -> Error:
    """Name the first entry that is missing or does not match its check."""
    intact = {row[0]: row_check(row[:8]) == row[8] for row in rows}
    key = next((key for key in keys if not intact.get(key)), keys[0])
    uid = next(segment.uid for segment in segments if segment.bid == key >> 32)
    return _damage(entry_id(uid, key & MAX_SEQ), missing=key not in intact)


def _damage(entry: str, *, missing: bool) -> Error:
    state = "missing" if missing else "damaged"
    return Corrupt(f"entry {entry} is {state}; run verify to see what else is affected", what=f"entry {entry}")


def _with_spilled(tx: Tx, scope: str, rows: list[Row], spilled: Sequence[int]) -> list[Row]:
    """Load the parts that lie in blobs; when they pass ``PAGE_BYTES``, end the page there."""
    loaded = 0
    for index in spilled:
        row = rows[index]
        body_blob, _, raw_blob = row[7].partition(",")
        body = blobs.read_whole(tx, scope, body_blob) if body_blob else row[5]
        raw = blobs.read_whole(tx, scope, raw_blob) if raw_blob else row[6]
        rows[index] = (*row[:5], body, raw, *row[7:])
        loaded += len(body or b"") + len(raw or b"")
        if loaded > PAGE_BYTES:
            return rows[: index + 1]
    return rows


def path_segments(tx: Tx, session: SessionRow, low: int, high: int) -> list[Segment]:
    """Find what holds the entries low+1..high of the head's path; most often one segment, without a read."""
    high = min(high, session.seq)
    if low >= session.fork and high > low:
        return [Segment(session.branch, session.uid, low, high)]
    return branches.segments(tx, branches.get(tx, session.branch), low, high)


def as_entry(uid: str, row: Row) -> Entry:
    """Show a row of ``READ`` to callers."""
    key, kind, at_ms, turns, mid, body, raw, _, _ = row
    return Entry(uid, key & MAX_SEQ, kind, at_ms, turns, body, raw, mid)


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
    if not 0 <= seq <= session.seq:
        raise NotFound(f"the session has entries 1 to {session.seq}; there is no entry {seq} on its path")
    if seq == session.seq:
        return Point(session.branch, session.uid, session.fork, seq, session.hash, session.numbers)
    return point_on(tx, session.scope, branches.get(tx, session.branch), seq)


def place_of(tx: Tx, session: SessionRow, seq: int, uid: str | None) -> Point:
    """Find a point of the head's path that, if ``uid`` is given, must be the entry of that branch."""
    found = point(tx, session, seq)
    if uid is not None and seq > 0 and branches.owner(tx, branches.get(tx, session.branch), seq).uid != uid:
        raise NotFound(f"that message is not on the path of this session; entry {seq} is another one")
    return found


def point_on(tx: Tx, scope: str, branch: branches.BranchRow, seq: int) -> Point:
    """Find entry ``seq`` on the path of a branch; its chain columns are checked."""
    if seq == 0:
        return Point(branch.bid, branch.uid, branch.fork_seq, 0, chain.GENESIS, sessions.NO_NUMBERS)
    holder = branches.owner(tx, branch, seq)
    key = key_of(holder.bid, seq)
    row = tx.one(POINT, (key, scope))
    if row is None or row_check((key, *row[:-1])) != row[-1]:
        raise _damage(entry_id(holder.uid, seq), missing=row is None)
    numbers = (row[2], row[0], *row[3:13])
    return Point(holder.bid, holder.uid, holder.fork_seq, seq, row[-2], numbers)


def find_by_id(tx: Tx, session: SessionRow, message_id: str) -> Segment | None:
    """Find an entry of the head's path by the id that its caller gave."""
    if "\0" in message_id:
        return None  # no id has one, and not every engine can look for it
    rows = tx.all(BY_MID, (session.scope, message_id, _FEW + 1))
    if len(rows) > _FEW:  # many sessions use this id: look on the path only
        return _find_on_path(tx, session, message_id)
    for (key,) in rows:
        bid, seq = key >> 32, key & MAX_SEQ
        if seq <= session.seq:
            holder = branches.owner(tx, branches.get(tx, session.branch), seq)
            if holder.bid == bid:
                return Segment(bid, holder.uid, seq - 1, seq)
    return None


def _find_on_path(tx: Tx, session: SessionRow, message_id: str) -> Segment | None:
    for segment in reversed(path_segments(tx, session, 0, session.seq)):
        base = key_of(segment.bid, 0)
        row = tx.one(MID_BETWEEN, (session.scope, message_id, base + segment.low, base + segment.high))
        if row is not None:
            seq = row[0] & MAX_SEQ
            return Segment(segment.bid, segment.uid, seq - 1, seq)
    return None


def find_message(tx: Tx, session: SessionRow, message_id: str) -> Segment | None:
    """Find an entry of the head's path by the caller's id or by the store's own."""
    found = find_by_id(tx, session, message_id)
    parsed = parse_entry_id(message_id)
    if found is not None or parsed is None or not 0 < parsed[1] <= session.seq:
        return found
    uid, seq = parsed
    segment = path_segments(tx, session, seq - 1, seq)[0]
    return segment if segment.uid == uid else None


def numbers_at(tx: Tx, session: SessionRow, seq: int | None) -> Numbers:
    """Give the running totals at a point of the path; at the head without one."""
    return Numbers(*(session.numbers if seq is None else point(tx, session, seq).numbers))
