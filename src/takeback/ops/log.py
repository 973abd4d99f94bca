"""Reading entries: ranges of a path, points on it, and messages by id.

Every row's checksum is compared and no seq may be missing: a damaged or missing record is an error, never a shorter
answer. A path is read by the key ranges of its segments, so a read costs what it returns. ``entries`` appends to the
log; nothing here writes, and nothing is imported that only writing needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from ..errors import Corrupt, Error, NotFound
from ..ids import MAX_SEQ as MAX_SEQ
from ..ids import entry_id, parse_entry_id
from ..model.entry import GENESIS, Entry, Numbers
from ..model.message import Message
from ..storage.base import Row, Tx, scalar
from ..tables.entries import ENTRY, RANGE, RANGE_BY_KEY, messages_in
from ..tables.entries import EntryRow as EntryRow
from . import branches, open_streams, sessions
from .branches import Segment
from .sessions import SessionRow

if TYPE_CHECKING:
    from .points import Target

T = TypeVar("T")
Reader: TypeAlias = Callable[[dict[str, Any]], Any] | None  # opens the attachments of a message
Make = Callable[[dict[int, str], list[EntryRow]], list[T]]  # makes values of rows and the ids of their branches

_RANGE = f"{ENTRY.select} WHERE scope = ? AND key > ? AND key <= ?"
BY_MID = "SELECT key FROM entry WHERE scope = ? AND mid = ? ORDER BY key DESC LIMIT ?"
MID_BETWEEN = "SELECT key FROM entry WHERE scope = ? AND mid = ? AND key > ? AND key <= ? ORDER BY key DESC LIMIT 1"

PAGE = 200
PAGE_BYTES = 16 << 20
_FEW = 32
_RANGES = 16  # segments that one statement reads


def key_of(branch: int, seq: int) -> int:
    """Return the key of an entry's row."""
    return branch << 32 | seq


def read(tx: Tx, scope: str, segments: Sequence[Segment], *, spilled: bool = True) -> list[EntryRow]:
    """Read the entries of a path's segments, oldest first.

    A missing seq raises ``Corrupt``. Spilled parts are loaded unless ``spilled`` is False; once they exceed
    ``PAGE_BYTES`` the remaining entries are left out.
    """
    keys = [key for s in segments for key in range(key_of(s.bid, s.low) + 1, key_of(s.bid, s.high) + 1)]
    stored = _stored(tx, scope, segments)
    try:
        rows = ENTRY.all_checked(stored)
    except Corrupt:
        raise _damaged(segments, stored, keys) from None
    if len(segments) > 1:
        rows.sort(key=lambda row: row.key & MAX_SEQ)  # UNION ALL guarantees no order
    if [row.key for row in rows] != keys:
        raise _damaged(segments, stored, keys)
    return loaded(tx, rows) if spilled and any([row.spill for row in rows]) else rows  # noqa: C419 - faster


def _stored(tx: Tx, scope: str, segments: Sequence[Segment]) -> list[Row]:
    """Read the rows of some segments: one key range each, several per statement."""
    found = list[Row]()
    for at in range(0, len(segments), _RANGES):
        some = segments[at : at + _RANGES]
        sql = RANGE if len(some) == 1 else " UNION ALL ".join([_RANGE] * len(some))
        found += tx.all(sql, [each for s in some for each in (scope, key_of(s.bid, s.low), key_of(s.bid, s.high))])
    return found


def _damaged(segments: Sequence[Segment], stored: Sequence[Row], keys: Sequence[int]) -> Error:
    """Return the error for the first entry that is missing or fails its check."""
    sound = {ENTRY.unchecked(row).key: ENTRY.is_sound(row) for row in stored}
    key = next((key for key in keys if not sound.get(key)), keys[0])
    uid = next(segment.uid for segment in segments if segment.bid == key >> 32)
    return damage(entry_id(uid, key & MAX_SEQ), missing=key not in sound)


def damage(entry: str, *, missing: bool) -> Error:
    """Return the error for an entry that is damaged or missing."""
    state = "missing" if missing else "damaged"
    return Corrupt(f"entry {entry} is {state}; run verify to see what else is affected", what=f"entry {entry}")


def loaded(tx: Tx, rows: list[EntryRow]) -> list[EntryRow]:
    """Load the parts stored in blobs; end the page once they exceed ``PAGE_BYTES``."""
    from . import blobs  # few entries have such parts; the others need not import decompression

    size = 0
    for index, row in enumerate(rows):
        if row.spill is None:
            continue
        body_blob, raw_blob = row.spilled
        body = blobs.read_whole(tx, row.scope, body_blob) if body_blob else row.body
        raw = blobs.read_whole(tx, row.scope, raw_blob) if raw_blob else row.raw
        rows[index] = row._replace(body=body, raw=raw)
        size += len(body or b"") + len(raw or b"")
        if size > PAGE_BYTES:
            return rows[: index + 1]
    return rows


def read_all(tx: Tx, scope: str, segments: Sequence[Segment]) -> list[EntryRow]:
    """Read segments in full, even where large entries end pages early."""
    rows = read(tx, scope, segments)
    while (reached := rows[-1].seq) < segments[-1].high:
        left = [segment for segment in segments if segment.high > reached]
        rows += read(tx, scope, [left[0]._replace(low=max(left[0].low, reached)), *left[1:]])
    return rows


def path_segments(tx: Tx, session: SessionRow, low: int, high: int) -> list[Segment]:
    """Find the segments that hold entries low+1..high of the head's path; usually just one, without a read."""
    high = min(high, session.seq)
    if low >= session.fork and high > low:
        return [Segment(session.branch, session.uid, low, high)]
    return branches.segments(tx, branches.get(tx, session.scope, session.branch), low, high)


def as_entry(uid: str, row: EntryRow) -> Entry:
    """Return an entry as the value that callers see."""
    return Entry(uid, row.seq, row.kind, row.at_ms, row.turns, row.body, row.raw, row.mid, row.chain.late_ms)


# ---------------------------------------------------------------------- points


def message_rows(tx: Tx, session: SessionRow, wanted: str) -> tuple[dict[int, str], list[EntryRow]]:
    """Read the entry on the path with this id; return the id of its branch and the row."""
    segment = find_message(tx, session, wanted)
    if segment is None:
        raise NotFound(f"there is no message {wanted!r} on the path of this session")
    return {segment.bid: segment.uid}, read(tx, session.scope, [segment])


def read_path(tx: Tx, session: SessionRow, low: int, high: int, make: Make[T]) -> tuple[list[T], int]:
    """Read a page of a path; return also where it ended, which is early after very large entries."""
    segments = path_segments(tx, session, low, high)
    rows = read(tx, session.scope, segments)
    uids = {segment.bid: segment.uid for segment in segments}
    return make(uids, rows), rows[-1].seq


def as_message(uid: str, row: EntryRow, reader: Reader) -> Message:
    """Return an entry as a message."""
    return Message(uid, row.seq, row.turns, row.at_ms, row.body, row.raw, None, reader, row.rest)


def read_messages(
    tx: Tx, session: SessionRow, low: int, high: int, kinds: frozenset[str], reader: Reader
) -> tuple[list[Message], int]:
    """Read the messages of a page of a path, as ``read_path`` does; most pages are one statement and one loop."""
    segments = path_segments(tx, session, low, high)
    if len(segments) == 1:
        ((bid, uid, low, high),) = segments
        scope, first, last = session.scope, key_of(bid, low), key_of(bid, high)
        by_key = tx.dialect.gapless
        rows = tx.all(RANGE_BY_KEY, (first, last)) if by_key else tx.all(RANGE, (scope, first, last))
        found = messages_in(rows, scope, uid, first, kinds, reader)
        if found is not None and len(rows) == high - low:
            return found, high
    # Several branches, parts in blobs, or damage, which this reports.
    uids = {segment.bid: segment.uid for segment in segments}
    entries = read(tx, session.scope, segments)
    return [as_message(uids[row.branch], row, reader) for row in entries if row.kind in kinds], entries[-1].seq


class Begun(NamedTuple):
    """A reading of messages after its first transaction: what it found, and the range of seqs that this covers."""

    session: SessionRow
    open: list[Message]  # answers that are still being written
    found: list[Message]
    low: int
    high: int


def begin(
    tx: Tx,
    scope: str,
    session_id: str,
    target: Target | None,
    low: int,
    high: int,
    kinds: frozenset[str],
    reader: Reader,
    *,
    latest: int | None,
    now_ms: int,
) -> Begun:
    """Read a session, now or at a point, and a page of its messages: after ``low``, or the last ones up to ``high``."""
    if target is None:
        session, open_ = open_streams.moment(tx, scope, session_id, now_ms)
    else:
        from . import points  # here, since it imports this module

        session, open_ = points.seen_from(tx, sessions.get(tx, scope, session_id), target), []
    last = min(high, session.seq)
    if latest is not None:
        low = max(0, last - min(latest, PAGE))
    upto = min(low + PAGE, last)
    if low >= upto:
        return Begun(session, open_, [], low, low)
    found, reached = read_messages(tx, session, low, upto, kinds, reader)
    return Begun(session, open_, found, low, reached)


def totals_at(tx: Tx, session: SessionRow, target: Target | None) -> tuple[Numbers, int]:
    """Return the running totals at a point, by default the head, and when the session began."""
    if target is None:
        return session.numbers, session.created_ms
    from . import points  # here, since it imports this module

    return points.seen_from(tx, session, target).numbers, session.created_ms


class Point(NamedTuple):
    """A position on a path, with what the head needs to be there."""

    branch: int
    uid: str
    fork: int
    seq: int
    hash: bytes
    numbers: Numbers


def point(tx: Tx, session: SessionRow, seq: int) -> Point:
    """Find entry ``seq`` of the head's path; 0 is the beginning, and a seq beyond the head raises ``NotFound``."""
    if not 0 <= seq <= session.seq:
        raise NotFound(f"the session has entries 1 to {session.seq}; there is no entry {seq} on its path")
    if seq == session.seq:
        return Point(session.branch, session.uid, session.fork, seq, session.hash, session.numbers)
    return point_on(tx, session.scope, branches.get(tx, session.scope, session.branch), seq)


def place_of(tx: Tx, session: SessionRow, seq: int, uid: str | None) -> Point:
    """Find a point on the head's path; if ``uid`` is given, that branch must own the entry."""
    found = point(tx, session, seq)
    if (
        uid is not None
        and seq > 0
        and branches.owner(tx, branches.get(tx, session.scope, session.branch), seq).uid != uid
    ):
        raise NotFound(f"that message is not on the path of this session; entry {seq} is a different one")
    return found


def point_on(tx: Tx, scope: str, branch: branches.BranchRow, seq: int) -> Point:
    """Find entry ``seq`` on the path of a branch, and check its row."""
    if seq == 0:
        return Point(branch.bid, branch.uid, branch.fork_seq, 0, GENESIS, sessions.NO_NUMBERS)
    holder = branches.owner(tx, branch, seq)
    # By the statement that reads it as part of a range: a transaction that reads both asks once (``Remembering``).
    stored = tx.one(RANGE, (scope, key_of(holder.bid, seq - 1), key_of(holder.bid, seq)))
    # Where pages are out of order, a range may begin too early: the row must be the one that was asked for.
    missing = stored is None or ENTRY.unchecked(stored).key != key_of(holder.bid, seq)
    if stored is None or missing or not ENTRY.is_sound(stored):
        raise damage(entry_id(holder.uid, seq), missing=missing)
    found = ENTRY.checked(stored).chain
    return Point(holder.bid, holder.uid, holder.fork_seq, seq, found.hash, found.numbers)


def points_on(tx: Tx, scope: str, wanted: Iterable[tuple[branches.BranchRow, int]]) -> dict[tuple[int, int], Point]:
    """Find entries on the paths of branches, as ``point_on`` does for one, by number of the branch and seq.

    Those that the branches hold themselves are read many at once.
    """
    asked = {(branch.bid, seq): (branch, seq) for branch, seq in wanted}
    own = [key_of(branch.bid, seq) for branch, seq in asked.values() if seq > branch.fork_seq]
    stored = ENTRY.numbered(tx, scope, own, damaged=False)
    found = dict[tuple[int, int], Point]()
    for place, (branch, seq) in asked.items():
        row = stored.get(key_of(branch.bid, seq))
        if row is None:  # a branch above holds it, or it is lost, which this reports
            found[place] = point_on(tx, scope, branch, seq)
        else:
            chain = row.chain
            found[place] = Point(branch.bid, branch.uid, branch.fork_seq, seq, chain.hash, chain.numbers)
    return found


def is_on_path(tx: Tx, session: SessionRow, uid: str, seq: int) -> bool:
    """Whether an entry of a branch is on the path of the head."""
    return seq <= session.seq and branches.owner(tx, branches.get(tx, session.scope, session.branch), seq).uid == uid


def find_by_id(tx: Tx, session: SessionRow, message_id: str) -> Segment | None:
    """Find an entry of the head's path by the id that the caller gave it."""
    if "\0" in message_id:
        return None  # no id contains NUL, and PostgreSQL refuses it in a query
    rows = tx.all(BY_MID, (session.scope, message_id, _FEW + 1))
    if len(rows) > _FEW:  # many sessions use this id: search only the path
        return _find_on_path(tx, session, message_id)
    for (key,) in rows:
        bid, seq = key >> 32, key & MAX_SEQ
        if seq <= session.seq:
            holder = branches.owner(tx, branches.get(tx, session.scope, session.branch), seq)
            if holder.bid == bid:
                return Segment(bid, holder.uid, seq - 1, seq)
    return None


def between(tx: Tx, scope: str, message_id: str, low: int, high: int) -> int | None:
    """Return the key of the entry with this id in a range of keys, or None."""
    found = scalar(tx, MID_BETWEEN, (scope, message_id, low, high))
    return None if found is None else int(found)


def _find_on_path(tx: Tx, session: SessionRow, message_id: str) -> Segment | None:
    for segment in reversed(path_segments(tx, session, 0, session.seq)):
        base = key_of(segment.bid, 0)
        key = between(tx, session.scope, message_id, base + segment.low, base + segment.high)
        if key is not None:
            seq = key & MAX_SEQ
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
    """Return the running totals at a point of the path, by default the head."""
    return session.numbers if seq is None else point(tx, session, seq).numbers
