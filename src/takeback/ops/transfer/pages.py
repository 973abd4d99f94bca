"""Entries, a page at a time: read and checked in one store, written into the other, compared with it afterwards.

What the chain covers goes over byte for byte; keys and checks, which are local, are made anew. A page lands behind the
last one or not at all, and moves the end of its branch with it: an interruption leaves a shorter branch, never a hole.
"""

from __future__ import annotations

from typing import NamedTuple

from ...errors import Conflict, Corrupt
from ...ids import entry_id
from ...storage.base import Row, Tx, row_check
from .. import blobs, branches, calls, entries, feed, operations, sessions, snapshots
from ..branches import BranchRow
from ..sessions import SessionRow
from ..verify import derived, log
from ..verify.base import is_sound
from ..verify.tables import ATTACHMENT, ENTRY
from . import base, moments
from .base import sealed
from .moments import Part

SIZES = f"""SELECT key, coalesce(length(body), 0) + coalesce(length(raw), 0) +
CASE WHEN spill IS NULL THEN 0 ELSE {base.SPILLED} END
FROM entry WHERE key > ? AND key <= ? ORDER BY key LIMIT ?"""
HASHES = "SELECT hash FROM entry WHERE key > ? AND key <= ? AND scope = ? ORDER BY key LIMIT ?"
LINKS = "SELECT scope, hash, key, chk FROM link WHERE scope = ? AND key > ? AND key <= ?"
ADD_LOST = "INSERT INTO lost (key, scope, what, at_ms, chk) VALUES (?, ?, ?, ?, ?)"


class Page(NamedTuple):
    """Entries of a branch that follow one another, with what lies beside them; places are seqs, not keys."""

    scope: str
    uid: str
    low: int
    previous: bytes  # the hash of the entry before them
    states: int
    rows: list[Row]
    calls: list[tuple[int, str, str]]
    links: list[tuple[int, str]]
    lost: list[tuple[int, str, int]]

    @property
    def high(self) -> int:
        """The seq of the last one."""
        return self.low + len(self.rows)

    @property
    def size(self) -> int:
        """Bytes of content that lie in the rows."""
        return sum(len(row[5] or b"") + len(row[6] or b"") for row in self.rows)


# ---------------------------------------------------------------------- reading


def read(tx: Tx, part: Part, low: int, states: int) -> Page:
    """Read the next entries of a branch; whatever is damaged or missing is ``Corrupt``."""
    branch = branches.get(tx, part.branch.bid)
    first = entries.key_of(branch.bid, 0)
    count = base.shares(tx.all(SIZES, (first + low, first + part.tip, base.ROWS)))
    line = log.line_of(tx, branch)
    rows = log.read_rows(tx, line, low, count)
    if not rows or [row[0] for row in rows] != list(range(first + low + 1, first + low + count + 1)):
        raise _damage(branch, low + 1, "it is missing, or one behind it is")
    _require_sound(tx, line, low, rows)
    marks, lost = _calls(tx, branch, low, low + count), _lost(tx, branch, low, low + count)
    previous = moments.fork_hash(tx, part) if low == branch.fork_seq else base.hash_at(tx, branch, low)
    links = sorted(_links(tx, branch, low, rows))
    return Page(branch.scope, branch.uid, low, previous or b"", states, rows, marks, links, lost)


def _require_sound(tx: Tx, line: log.Line, low: int, rows: list[Row]) -> None:
    """Check entries as verify does: their checks, the chain, and what follows from them."""
    before, marks = log.before_of(tx, line, low), log.marks_of(tx, line, rows)
    for row in rows:
        if fault := log.entry_fault(tx, line, row, before, marks.get(row[0], set())):
            raise _damage(line.branch, row[0] & entries.MAX_SEQ, fault.what)
        before = log.after_of(line, row)


def _links(tx: Tx, branch: BranchRow, low: int, rows: list[Row]) -> set[tuple[int, str]]:
    """Give the blobs that entries need; where their content is gone nobody can tell from it, so the links are read."""
    found = set[tuple[int, str]]()
    for row in rows:
        if row[5] is None and row[7] is None:
            return found | _stored_links(tx, branch, low, low + len(rows))
        if row[7] or row[1] in snapshots.NEEDS or b'"attachments"' in row[5]:
            found |= {(row[0] & entries.MAX_SEQ, each) for each in _needed(tx, branch, row)}
    return found


def _needed(tx: Tx, branch: BranchRow, row: Row) -> set[str]:
    try:
        content, _ = log.content_of(tx, branch.scope, row)
        return derived.links(row, derived.needs(row, *content))
    except derived.UNREADABLE as error:
        raise _damage(branch, row[0] & entries.MAX_SEQ, f"its content cannot be read: {error}") from error


def _damage(branch: BranchRow, seq: int, what: str) -> Corrupt:
    name = entry_id(branch.uid, seq)
    return Corrupt(f"entry {name} is damaged: {what}", what=f"entry {name}")


def _stored_links(tx: Tx, branch: BranchRow, low: int, high: int) -> set[tuple[int, str]]:
    first = entries.key_of(branch.bid, 0)
    rows = tx.all(LINKS, (branch.scope, first + low, first + high))
    if not all(map(is_sound, rows)):
        raise Corrupt(f"a link of branch {branch.uid} is damaged", what=f"branch {branch.uid}")
    return {(row[2] & entries.MAX_SEQ, row[1]) for row in rows}


def _calls(tx: Tx, branch: BranchRow, low: int, high: int) -> list[tuple[int, str, str]]:
    first = entries.key_of(branch.bid, 0)
    rows = tx.all(calls.BETWEEN, (branch.scope, first + low, first + high))
    if not all(map(is_sound, rows)):
        raise Corrupt(f"a record of tool calls of branch {branch.uid} is damaged", what=f"branch {branch.uid}")
    return [(row[1] & entries.MAX_SEQ, row[2], row[3]) for row in rows]


def _lost(tx: Tx, branch: BranchRow, low: int, high: int) -> list[tuple[int, str, int]]:
    """Give what a repair recorded about these entries; what it recorded about the branch goes with the first ones."""
    first = entries.key_of(branch.bid, 0)
    rows = tx.all(log.LOST_BETWEEN, (first + low + 1, first + high))
    if low == branch.fork_seq:
        rows += tx.all(log.LOST_BETWEEN, (first, first))
    if not all(map(is_sound, rows)):
        raise Corrupt(f"a record of what was lost on branch {branch.uid} is damaged", what=f"branch {branch.uid}")
    return [(row[0] & entries.MAX_SEQ, row[2], row[3]) for row in rows]


# ---------------------------------------------------------------------- writing


def put(tx: Tx, page: Page) -> None:
    """Write a page behind the end of its branch; an end that is not where the page begins is ``Conflict``."""
    branch = base.find_branch(tx, page.scope, page.uid)
    if branch is None:
        raise _moved(page)
    session = sessions.by_number(tx, branch.session)
    attached = bool(session.attached) and session.branch == branch.bid
    end = (session.seq, session.hash) if attached else (branch.tip_seq, branch.tip_hash)
    if end != (page.low, page.previous):
        raise _moved(page)
    _require_blobs(tx, page)
    _insert(tx, page, entries.key_of(branch.bid, 0))
    if session.states < page.states:
        session = sessions.write_cold(tx, session, states=page.states)
    if not attached:
        branches.set_tip(tx, branch, page.high, page.rows[-1][23])
    if session.hidden < base.HIDDEN:
        _show(tx, session, branch, page, attached)


def _moved(page: Page) -> Conflict:
    return base.conflict(
        f"branch {page.uid} does not end at entry {page.low} in the destination: somebody else writes there;"
        " call again when that is over",
        page.uid,
    )


def _require_blobs(tx: Tx, page: Page) -> None:
    gone = {seq for seq, what, _ in page.lost if what == ATTACHMENT}
    needed = sorted({each for seq, each in page.links if seq not in gone})
    missing = [each for each in needed if not blobs.exists(tx, page.scope, each)]
    if missing:
        raise base.Needs(page.scope, missing)


def _insert(tx: Tx, page: Page, first: int) -> None:
    for row in page.rows:
        key = first + (row[0] & entries.MAX_SEQ)
        chained = row[9:24]
        tx.run(entries.INSERT, (*sealed((key, *row[1:8])), *chained, row_check((key, row[3], *chained))))
    for seq, what, call_id in page.calls:
        tx.run(entries.ADD_CALL, sealed((page.scope, first + seq, what, call_id)))
    for seq, content_hash in page.links:
        tx.run(entries.ADD_LINK, sealed((page.scope, content_hash, first + seq)))
    for seq, what, at_ms in page.lost:
        tx.run(ADD_LOST, sealed((first + seq, page.scope, what, at_ms)))


def _show(tx: Tx, session: SessionRow, branch: BranchRow, page: Page, attached: bool) -> None:
    """Let a session that people see show the new entries, as after an append."""
    position, rank = feed.record(tx, session, "entries", branch=branch.bid, first=page.low + 1, last=page.high)
    if not attached:
        operations.touch(tx, session, position, rank, session.updated_ms, moved=False)
        return
    last = page.rows[-1]
    place = (branch.bid, branch.uid, branch.fork_seq, page.high, 1, last[23])
    counts = (session.branches, session.revision, position, session.updated_ms, session.message_ms, rank)
    operations.counted(tx, sessions.write_head(tx, session, (*place, *log.numbers_of(last), *counts)))


# ---------------------------------------------------------------------- comparing


def hashes(tx: Tx, part: Part, low: int, count: int) -> list[bytes]:
    """Give the hashes of the next entries of a branch, as they are stored."""
    first = entries.key_of(part.branch.bid, 0)
    return [row[0] for row in tx.all(HASHES, (first + low, first + low + count, part.branch.scope, count))]


def computed(tx: Tx, scope: str, uid: str, low: int) -> list[bytes]:
    """Give the hashes of the next entries of a branch, each computed again from what is stored."""
    branch = base.find_branch(tx, scope, uid)
    if branch is None:
        return []
    line, first = log.line_of(tx, branch), entries.key_of(branch.bid, 0)
    count = base.shares(tx.all(SIZES, (first + low, first + max(line.tip, low), base.ROWS)))
    rows = log.read_rows(tx, line, low, count) if count else []
    before = log.before_of(tx, line, low)
    for row in rows:
        seq = row[0] & entries.MAX_SEQ
        fault, _ = log.judge(tx, line, row, before)
        if fault is not None:
            raise _damage(branch, seq, fault.what)
        before = log.Before(None if line.lost.get(seq) == ENTRY else row[23], None)
    return [row[23] for row in rows]
