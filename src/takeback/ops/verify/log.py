"""Checks of entries: each matches its checks, follows from the one before it, and what was derived from it is there.

A damaged entry is reported once, where it is: the entry behind it is judged by the hash that is stored, so damage
never spreads along the chain. An entry that a repair recorded as lost is not damage, and neither is a redacted one.
"""

from __future__ import annotations

from typing import NamedTuple

from ...errors import Corrupt
from ...model.entry import STATE_KINDS
from ...model.message import MESSAGE_KINDS
from ...storage.base import Row, Tx, row_check
from .. import blobs, branches, chain, entries
from ..branches import BranchRow
from ..sessions import SessionRow
from . import derived
from .base import LOST, PAGE, REBUILD, Found, Key, is_sound
from .derived import Mark, Needs
from .places import tip_of
from .tables import BRANCH, CONTENT, ENTRY

COLUMNS = """key, kind, at_ms, turns, mid, body, raw, spill, chk,
scope, messages, tool_calls, tool_failures, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens,
reasoning_tokens, cost_nano, active_ms, work_seq, salt, body_hash, hash, chain_chk"""
ENTRIES = f"SELECT {COLUMNS} FROM entry WHERE key > ? AND key <= ? ORDER BY key LIMIT ?"
ENTRY_KEYS = "SELECT key FROM entry WHERE key > ? AND key <= ? ORDER BY key LIMIT ?"
ONE_ENTRY = f"SELECT {COLUMNS} FROM entry WHERE key = ?"
LAST_KEY = "SELECT max(key) FROM entry WHERE key > ? AND key <= ?"
NEXT_BRANCH = f"SELECT {branches.COLUMNS} FROM branch WHERE bid >= ? ORDER BY bid LIMIT 1"
LOST_BETWEEN = "SELECT key, scope, what, at_ms, chk FROM lost WHERE key >= ? AND key <= ?"
LOST_AT = "SELECT what FROM lost WHERE key = ?"
CALLS_BETWEEN = "SELECT key, what, call_id FROM call WHERE scope = ? AND key > ? AND key <= ?"
HAS_LINK = "SELECT 1 FROM link WHERE scope = ? AND hash = ? AND key = ?"

_SPILLED = 20  # an entry whose content lies in a blob takes as much of a page as this many others
Content = tuple[bytes | None, bytes | None]


class Before(NamedTuple):
    """What is known of the entry before: its hash and numbers, None where they cannot be trusted."""

    hash: bytes | None
    numbers: tuple[int, ...] | None


class Line(NamedTuple):
    """A branch that is walked: with its session if that is sound, its end, and what is recorded as lost on it."""

    branch: BranchRow
    session: SessionRow | None
    tip: int
    tip_hash: bytes
    lost: dict[int, str]

    def where(self, seq: int) -> str:
        """Name an entry."""
        return f"entry {self.branch.uid}-{seq}"


class Fault(NamedTuple):
    """What is wrong with a record."""

    kind: str
    what: str
    fix: str = LOST


# ---------------------------------------------------------------------- branch after branch


def entries_page(tx: Tx, found: Found, after: Key) -> Key | None:
    """Check the next entries, branch after branch; ``after`` is a branch and a seq of it."""
    bid, seq = after
    room = PAGE
    while room > 0:
        row = tx.one(NEXT_BRANCH, (bid,))
        if row is None:
            return None
        bid, seq = row[0], seq if row[0] == bid else 0
        if not is_sound(row):  # reported with the branches; without its id nothing on it can be checked
            bid, seq, room = bid + 1, 0, room - 1
            continue
        line = line_of(tx, branches.checked(row))
        seq = max(seq, line.branch.fork_seq)
        rows = read_rows(tx, line, seq, room)
        seq = _check_rows(tx, found, line, seq, rows)
        if len(rows) < room:
            _check_end(tx, found, line, seq)
            bid, seq, room = bid + 1, 0, room - 1
        room -= sum(_SPILLED if row[7] else 1 for row in rows)
    return bid, seq


def line_of(tx: Tx, branch: BranchRow) -> Line:
    """Gather what the entries of a branch are judged by."""
    base = entries.key_of(branch.bid, 0)
    rows = tx.all(LOST_BETWEEN, (base, base + entries.MAX_SEQ))
    lost = {row[0] & entries.MAX_SEQ: row[2] for row in rows if is_sound(row)}
    return Line(branch, *tip_of(tx, branch), lost)


def read_rows(tx: Tx, line: Line, seq: int, limit: int) -> list[Row]:
    """Read entries behind a seq up to the end of their branch; one that cannot be read is only its key."""
    base = entries.key_of(line.branch.bid, 0)
    asked = (base + seq, base + max(line.tip, seq), limit)
    try:
        return tx.all(ENTRIES, asked)
    except Corrupt:
        return [read_row(tx, key) for (key,) in tx.all(ENTRY_KEYS, asked)]


def read_row(tx: Tx, key: int) -> Row:
    """Read an entry; one that is missing or cannot be read is only its key."""
    try:
        row = tx.one(ONE_ENTRY, (key,))
    except Corrupt:
        row = None
    return row or (key, *[None] * 24)


def _check_rows(tx: Tx, found: Found, line: Line, seq: int, rows: list[Row]) -> int:
    """Check entries that follow a seq; give the last one."""
    before, marks = before_of(tx, line, seq), marks_of(tx, line, rows)
    for row in rows:
        found.checked += 1
        here = row[0] & entries.MAX_SEQ
        if here <= seq:
            raise Corrupt(f"the entries of branch {line.branch.uid} are out of order", what="file")
        if here != seq + 1:
            _missing(found, line, seq + 1, here - 1)
            before = Before(None, None)
        seq = here
        if fault := entry_fault(tx, line, row, before, marks.get(row[0], set())):
            found.add(fault.kind, line.where(seq), fault.what, fault.fix)
        before = after_of(line, row)
    return seq


def _missing(found: Found, line: Line, first: int, last: int) -> None:
    found.add("missing", f"branch {line.branch.uid}", f"entries {first} to {last} are missing")


def _check_end(tx: Tx, found: Found, line: Line, seq: int) -> None:
    """The branch ends where its row or its head says, with that entry, and nothing lies behind."""
    base, where = entries.key_of(line.branch.bid, 0), f"branch {line.branch.uid}"
    if seq < line.tip:
        _missing(found, line, seq + 1, line.tip)
    else:
        last = before_of(tx, line, seq).hash
        if last is not None and last != line.tip_hash:
            found.add("chain", where, "the last entry is not the one that was recorded")
    row = tx.one(LAST_KEY, (base + line.tip, base + entries.MAX_SEQ))
    # A session whose row is damaged may have gone on: only that row knew the end.
    if row and row[0] is not None and line.session is not None:
        end = row[0] & entries.MAX_SEQ
        found.add("entry", where, f"entries {line.tip + 1} to {end} lie behind the end of the branch")


# ---------------------------------------------------------------------- what comes before


def before_of(tx: Tx, line: Line, seq: int) -> Before:
    """Give what is known of the entry that the next one of a branch follows."""
    if seq == 0:
        return Before(chain.GENESIS, (0,) * 12)
    own = seq > line.branch.fork_seq
    key = entries.key_of(line.branch.bid if own else line.branch.parent or 0, seq)
    row = read_row(tx, key)
    if own:
        return after_of(line, row)
    lost = tx.one(LOST_AT, (key,))
    return _known(row, lost[0] if lost else None)


def after_of(line: Line, row: Row) -> Before:
    """Give what an entry tells the next one."""
    return _known(row, line.lost.get(row[0] & entries.MAX_SEQ))


def _known(row: Row, lost: str | None) -> Before:
    if not is_chained(row) or lost == ENTRY:
        return Before(None, None)
    return Before(bytes(row[23]), None if lost == CONTENT else numbers_of(row))


def is_chained(row: Row) -> bool:
    """Say whether the columns of an entry that the chain needs match their check."""
    return bool(row_check((row[0], row[3], *row[9:24])) == row[24])


def is_whole(row: Row) -> bool:
    """Say whether the content of an entry matches its check."""
    return bool(row_check(row[:8]) == row[8])


def numbers_of(row: Row) -> tuple[int, ...]:
    """Give the running numbers of an entry."""
    return (row[10], row[3], *row[11:21])


# ---------------------------------------------------------------------- one entry


def entry_fault(tx: Tx, line: Line, row: Row, before: Before, marks: set[Mark]) -> Fault | None:
    """Say what is wrong with an entry, if anything is."""
    fault, content = judge(tx, line, row, before)
    if fault is None and line.lost.get(row[0] & entries.MAX_SEQ) not in (CONTENT, ENTRY):
        return _inner_fault(tx, line, row, before, content, marks)
    return fault


def judge(tx: Tx, line: Line, row: Row, before: Before) -> tuple[Fault | None, Content]:
    """Check an entry against its checks and the chain; give what is wrong, and its content."""
    nothing: Content = (None, None)
    if not is_chained(row):
        return Fault("entry", "its place in the chain is damaged"), nothing
    if not is_whole(row):
        return Fault("entry", "its content is damaged"), nothing
    if row[9] != line.branch.scope:
        return Fault("entry", "it is of another scope than its branch"), nothing
    if line.lost.get(row[0] & entries.MAX_SEQ) in (CONTENT, ENTRY):
        return None, nothing
    try:
        content, hashed = content_of(tx, line.branch.scope, row)
    except derived.UNREADABLE as error:
        return Fault("blob", str(error)), nothing
    chained = before.hash is not None and line.lost.get(0) != BRANCH
    if chained and row[23] != hash_of(line, row, before.hash or b"", hashed):
        return Fault("chain", "its hash does not follow from the entry before it"), content
    return None, content


def hash_of(line: Line, row: Row, previous: bytes, hashed: bytes) -> bytes:
    """Compute the hash that an entry must have."""
    head = chain.header(line.branch.uid, row[0] & entries.MAX_SEQ, row[1], row[2], numbers_of(row))
    return chain.entry_hash(previous, head, hashed)


def content_of(tx: Tx, scope: str, row: Row) -> tuple[Content, bytes]:
    """Load an entry's content, also from blobs, and hash it; a redacted one has its hash only."""
    body, raw, spill, salt, redacted = row[5], row[6], row[7], row[21], row[22]
    if redacted is not None:
        return (None, None), bytes(redacted)
    if spill is not None:
        body_blob, _, raw_blob = spill.partition(",")
        body = blobs.read_whole(tx, scope, body_blob) if body_blob else body
        raw = blobs.read_whole(tx, scope, raw_blob) if raw_blob else raw
    if body is None or salt is None:
        raise Corrupt("its content is missing")
    return (body, raw), chain.body_hash(salt, body, raw)


def _inner_fault(tx: Tx, line: Line, row: Row, before: Before, content: Content, marks: set[Mark]) -> Fault | None:
    """Check what an intact entry says: its numbers, what was derived from it, the state it continues."""
    body, raw = content
    if before.numbers is not None and not numbers_follow(row, before.numbers):
        return Fault("entry", "its running totals do not follow from those before it")
    if body is None:
        return None
    try:
        needed = derived.needs(row, body, raw)
        state = derived.state_fault(tx, line.branch, row, body, before.numbers) if derived.is_state(row) else ""
        newest = derived.version_of(row, body)
    except derived.UNREADABLE as error:
        return Fault("entry", f"its content cannot be read: {error}")
    if line.session is not None and newest > line.session.states + 1:
        state = "its version of the state is newer than the newest that its session counted"
    return Fault("state", state) if state else _derived_fault(tx, line, row, needed, marks)


def numbers_follow(row: Row, before: tuple[int, ...]) -> bool:
    """Say whether the running numbers of an entry can come after others."""
    numbers, seq = numbers_of(row), row[0] & entries.MAX_SEQ
    return (
        numbers[0] == before[0] + (row[1] in MESSAGE_KINDS)
        and numbers[-1] == (seq if row[1] in STATE_KINDS else before[-1])
        and all(now >= then for now, then in zip(numbers, before, strict=True))
    )


def _derived_fault(tx: Tx, line: Line, row: Row, needed: Needs, marks: set[Mark]) -> Fault | None:
    key, scope = row[0], line.branch.scope
    if not derived.marks_fit(tx, line.branch, key & entries.MAX_SEQ, needed.marks, marks):
        return Fault("call", "the record of its tool calls is not what it says", REBUILD)
    if not all(tx.one(HAS_LINK, (scope, each, key)) for each in derived.links(row, needed)):
        return Fault("link", "a link to a blob that it needs is missing", REBUILD)
    return None


def marks_of(tx: Tx, line: Line, rows: list[Row]) -> dict[int, set[Mark]]:
    """Read the recorded tool calls of some entries of a branch."""
    marks: dict[int, set[Mark]] = {}
    if rows:
        for key, what, call_id in tx.all(CALLS_BETWEEN, (line.branch.scope, rows[0][0] - 1, rows[-1][0])):
            marks.setdefault(key, set()).add((what, call_id))
    return marks
