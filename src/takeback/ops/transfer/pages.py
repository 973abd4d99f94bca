"""Entries, a page at a time: read and checked in one store, written into the other, compared with it afterwards.

What the chain covers goes over byte for byte; keys and checks, which are local, are made anew. A page lands behind the
last one or not at all, and moves the end of its branch with it: an interruption leaves a shorter branch, never a hole.
"""

from __future__ import annotations

from typing import NamedTuple

from ...errors import Conflict, Corrupt
from ...ids import MAX_SEQ, entry_id
from ...storage.base import Tx
from ...tables.branches import BranchRow
from ...tables.entries import ENTRY, LINK, LOST, EntryRow, LinkRow, LostRow
from ...tables.sessions import SessionRow
from .. import blobs, branches, feed, operations, sessions, snapshots
from ..log import key_of
from ..verify import derived, log
from ..verify import tables as lost
from . import base, moments
from .moments import Part

SIZES = f"""SELECT coalesce(length(body), 0) + coalesce(length(raw), 0) +
CASE WHEN spill IS NULL THEN 0 ELSE {base.SPILLED} END
FROM entry WHERE scope = ? AND key > ? AND key <= ? ORDER BY key LIMIT ?"""
BETWEEN = "WHERE scope = ? AND key > ? AND key <= ? ORDER BY key"


class Page(NamedTuple):
    """Entries of a branch that follow one another, with what lies beside them; the keys are those of the source."""

    scope: str
    uid: str
    low: int
    previous: bytes  # the hash of the entry before them
    states: int
    rows: list[EntryRow]
    links: list[LinkRow]
    lost: list[LostRow]

    @property
    def high(self) -> int:
        """The seq of the last one."""
        return self.low + len(self.rows)

    @property
    def size(self) -> int:
        """Bytes of content that lie in the rows."""
        return sum(len(row.body or b"") + len(row.raw or b"") for row in self.rows)


# ---------------------------------------------------------------------- reading


def read(tx: Tx, part: Part, low: int, states: int) -> Page:
    """Read the next entries of a branch; whatever is damaged or missing raises ``Corrupt``."""
    branch = branches.get(tx, part.branch.scope, part.branch.bid)
    first = key_of(branch.bid, 0)
    count = base.shares(tx.all(SIZES, (branch.scope, first + low, first + part.tip, base.ROWS)))
    line = log.line_of(tx, branch)
    rows = log.read_rows(tx, line, low, count)
    if not rows or [row.key for row in rows] != list(range(first + low + 1, first + low + count + 1)):
        raise _damage(branch, low + 1, "it is missing, or one behind it is")
    _require_sound(tx, line, low, rows)
    previous = moments.fork_hash(tx, part) if low == branch.fork_seq else base.hash_at(tx, branch, low)
    links, gone = _links(tx, branch, low, rows), _lost(tx, branch, low, low + count)
    return Page(branch.scope, branch.uid, low, previous or b"", states, rows, links, gone)


def _require_sound(tx: Tx, line: log.Line, low: int, rows: list[EntryRow]) -> None:
    """Check entries as verify does: their checks, the chain, and what follows from them."""
    before = log.before_of(tx, line, low)
    for row in rows:
        if fault := log.entry_fault(tx, line, row, before):
            raise _damage(line.branch, row.seq, fault.what)
        before = log.after_of(line, row, before)


def _links(tx: Tx, branch: BranchRow, low: int, rows: list[EntryRow]) -> list[LinkRow]:
    """Return the links of entries; where content is gone nobody can tell from it, so the stored ones are added."""
    found = set[LinkRow]()
    for row in rows:
        if row.body is None and row.spill is None:
            first = key_of(branch.bid, 0)
            found.update(
                LINK.all(tx, f"INDEXED BY link_key {BETWEEN}", (branch.scope, first + low, first + low + len(rows)))
            )
            break
        if row.spill or row.kind in snapshots.NEEDS or b'"attachments"' in (row.body or b""):
            found.update(LinkRow(branch.scope, each, row.key) for each in _needed(tx, branch, row))
    return sorted(found)


def _needed(tx: Tx, branch: BranchRow, row: EntryRow) -> set[str]:
    try:
        content, _ = log.content_of(tx, branch.scope, row)
        return derived.links(row, derived.needs(row, *content))
    except derived.UNREADABLE as error:
        raise _damage(branch, row.seq, f"its content cannot be read: {error}") from error


def _damage(branch: BranchRow, seq: int, what: str) -> Corrupt:
    name = entry_id(branch.uid, seq)
    return Corrupt(f"entry {name} is damaged: {what}", what=f"entry {name}")


def _lost(tx: Tx, branch: BranchRow, low: int, high: int) -> list[LostRow]:
    """Return what a repair recorded about these entries; what it recorded about the branch goes with the first ones."""
    first = key_of(branch.bid, 0)
    begin = first - 1 if low == branch.fork_seq else first + low
    rows = LOST.all(tx, BETWEEN, (branch.scope, begin, first + high))
    return [row for row in rows if row.key == first or row.key > first + low]


# ---------------------------------------------------------------------- writing


def put(tx: Tx, page: Page, *, now_ms: int) -> None:
    """Write a page behind the end of its branch; an end that is not where the page begins raises ``Conflict``."""
    branch = branches.find_by_uid(tx, page.scope, page.uid)
    if branch is None:
        raise _moved(page)
    session = sessions.by_number(tx, branch.scope, branch.session)
    attached = bool(session.attached) and session.branch == branch.bid
    end = (session.seq, session.hash) if attached else (branch.tip_seq, branch.tip_hash)
    if end != (page.low, page.previous):
        raise _moved(page)
    _require_blobs(tx, page)
    _insert(tx, page, key_of(branch.bid, 0))
    if session.states < page.states:
        session = sessions.write(tx, session, states=page.states)
    if not attached:
        branches.set_tip(tx, branch, page.high, page.rows[-1].chain.hash)
    if session.hidden < base.HIDDEN:
        _show(tx, session, branch, page, attached, now_ms)


def _moved(page: Page) -> Conflict:
    return base.conflict(
        f"branch {page.uid} does not end at entry {page.low} in the destination: somebody else writes there;"
        " call again when that is over",
        page.uid,
    )


def _require_blobs(tx: Tx, page: Page) -> None:
    gone = {row.key for row in page.lost if row.what == lost.ATTACHMENT}
    needed = sorted({row.hash for row in page.links if row.key not in gone})
    missing = [each for each in needed if not blobs.exists(tx, page.scope, each)]
    if missing:
        raise base.Needs(page.scope, missing)


def _insert(tx: Tx, page: Page, first: int) -> None:
    ENTRY.put_many(tx, [row._replace(key=first + row.seq) for row in page.rows])
    LINK.put_many(tx, [row._replace(key=first + (row.key & MAX_SEQ)) for row in page.links])
    LOST.put_many(tx, [row._replace(key=first + (row.key & MAX_SEQ)) for row in page.lost])


def _show(tx: Tx, session: SessionRow, branch: BranchRow, page: Page, attached: bool, now_ms: int) -> None:
    """Let a session that people see show the new entries, as after an append."""
    position, rank = feed.record(
        tx, session, "entries", branch=branch.bid, first=page.low + 1, last=page.high, now_ms=now_ms
    )
    if not attached:
        operations.touch(tx, session, position, rank, session.updated_ms, moved=False)
        return
    last = page.rows[-1].chain
    place = {"seq": page.high, "hash": last.hash, **last.numbers._asdict(), "calls": None}
    operations.counted(tx, sessions.write(tx, session, updated=position, rank=rank, **place))


# ---------------------------------------------------------------------- comparing


def hashes(tx: Tx, part: Part, low: int, count: int) -> list[bytes]:
    """Return the hashes of the next entries of a branch, as they are stored."""
    first = key_of(part.branch.bid, low)
    return [row.chain.hash for row in ENTRY.all(tx, BETWEEN, (part.branch.scope, first, first + count))]


def computed(tx: Tx, scope: str, uid: str, low: int) -> list[bytes]:
    """Return the hashes of the next entries of a branch, each computed again from what is stored."""
    branch = branches.find_by_uid(tx, scope, uid)
    if branch is None:
        return []
    line, first = log.line_of(tx, branch), key_of(branch.bid, 0)
    count = base.shares(tx.all(SIZES, (scope, first + low, first + max(line.tip, low), base.ROWS)))
    rows = log.read_rows(tx, line, low, count) if count else []
    before = log.before_of(tx, line, low)
    for row in rows:
        fault, _ = log.judge(tx, line, row, before)
        if fault is not None:
            raise _damage(branch, row.seq, fault.what)
        before = log.Before(None if line.lost.get(row.seq) == lost.ENTRY else row.chain.hash, None)
    return [row.chain.hash for row in rows]
