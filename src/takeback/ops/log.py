"""Reading entries: ranges of a path, points on it, and messages by their ids.

Every row's checksum is checked, and that no seq is missing: a damaged or vanished record is an error, never a shorter
answer. ``entries`` adds to the log; here nothing is written, and nothing is loaded that only writing needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..errors import Corrupt, Error, NotFound
from ..ids import entry_id, parse_entry_id
from ..model.entry import GENESIS, Entry, Numbers
from ..storage.base import Row, Tx, row_check
from . import branches, sessions
from .branches import Segment
from .sessions import SessionRow

CHAINED = (
    "scope, messages, tool_calls, tool_failures, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens,"
    " reasoning_tokens, cost_nano, active_ms, work_seq, salt, body_hash, hash"
)
READ = """SELECT key, kind, at_ms, turns, mid, body, raw, spill, chk FROM entry
WHERE key > ? AND key <= ? AND scope = ? ORDER BY key"""
READ_PATH = """WITH RECURSIVE path (at, high) AS (SELECT CAST(? AS BIGINT), CAST(? AS BIGINT) UNION ALL
SELECT b.parent, b.fork_seq FROM path JOIN branch b ON b.bid = path.at WHERE b.fork_seq > ? AND b.parent < b.bid)
SELECT key, e.kind, at_ms, turns, mid, body, raw, spill, e.chk FROM path JOIN branch b ON b.bid = path.at
JOIN entry e ON key > (path.at << 32 | CASE WHEN b.fork_seq > ? THEN b.fork_seq ELSE ? END)
AND key <= (path.at << 32 | path.high) WHERE e.scope = ?"""
POINT = f"SELECT turns, {CHAINED}, chain_chk FROM entry WHERE key = ? AND scope = ?"
BY_MID = "SELECT key FROM entry WHERE scope = ? AND mid = ? ORDER BY key DESC LIMIT ?"
MID_BETWEEN = "SELECT key FROM entry WHERE scope = ? AND mid = ? AND key > ? AND key <= ? ORDER BY key DESC LIMIT 1"

PAGE = 200
PAGE_BYTES = 16 << 20
MAX_SEQ = (1 << 32) - 1
_FEW = 32


def key_of(branch: int, seq: int) -> int:
    """Give the key of an entry's row."""
    return branch << 32 | seq


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
    from . import blobs  # few entries have such parts, and unpacking is not loaded for the others

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


def read_all(tx: Tx, scope: str, segments: Sequence[Segment]) -> list[Row]:
    """Read segments whole, also where large entries end pages early."""
    rows = read(tx, scope, segments)
    while (reached := rows[-1][0] & MAX_SEQ) < segments[-1].high:
        left = [segment for segment in segments if segment.high > reached]
        rows += read(tx, scope, [left[0]._replace(low=max(left[0].low, reached)), *left[1:]])
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
        return Point(branch.bid, branch.uid, branch.fork_seq, 0, GENESIS, sessions.NO_NUMBERS)
    holder = branches.owner(tx, branch, seq)
    key = key_of(holder.bid, seq)
    row = tx.one(POINT, (key, scope))
    if row is None or row_check((key, *row[:-1])) != row[-1]:
        raise _damage(entry_id(holder.uid, seq), missing=row is None)
    numbers = (row[2], row[0], *row[3:13])
    return Point(holder.bid, holder.uid, holder.fork_seq, seq, row[-2], numbers)


def is_on_path(tx: Tx, session: SessionRow, uid: str, seq: int) -> bool:
    """Say whether an entry of a branch is on the path of the head."""
    return seq <= session.seq and branches.owner(tx, branches.get(tx, session.branch), seq).uid == uid


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
