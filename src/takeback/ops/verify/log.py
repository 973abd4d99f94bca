"""Checks of entries: each matches its check, follows from the one before it, and what was derived from it is there.

A damaged entry is reported once, where it is: of the entry behind it only the link to it cannot be checked. An entry
that a repair recorded as lost is not damage, and neither is a redacted one.

Open tool calls are carried along a branch, and from a page or a point where a branch starts to what follows. That
is another read, but a path does not change: with the same hash at its end it has the same open calls.
"""

from __future__ import annotations

from typing import NamedTuple

from ...errors import Corrupt
from ...ids import MAX_SEQ
from ...model.entry import STATE_KINDS, Numbers
from ...model.message import MESSAGE_KINDS
from ...storage.base import Row, Tx, scalar
from ...tables.branches import BRANCH as BRANCHES
from ...tables.branches import BranchRow
from ...tables.entries import ENTRY as ENTRIES
from ...tables.entries import LINK, LOST, Chain, EntryRow, LinkRow
from ...tables.sessions import SessionRow
from ...tables.table import matches
from .. import blobs, chain, open_calls
from ..entries import key_of
from ..open_calls import OpenCall
from . import derived
from .base import PAGE, REBUILD, UNREADABLE, Check, Found, Key, Rule, has
from .base import Fault as Fault
from .files import TreeChecks
from .history import ATTACHMENT, BRANCH, CONTENT, ENTRY, place
from .sessions import tip_of

HAS_BLOB = "SELECT 1 FROM blob WHERE scope = ? AND hash = ?"
LAST_KEY = "SELECT max(key) FROM entry WHERE scope = ? AND key > ? AND key <= ?"
LOST_BETWEEN = f"{LOST.select} WHERE scope = ? AND key >= ? AND key <= ?"
LOST_AT = "SELECT what FROM lost WHERE scope = ? AND key = ?"
FORKS = "SELECT fork_seq FROM branch WHERE scope = ? AND parent = ?"

_SPILLED = 20  # an entry whose content lies in a blob takes as much of a page as this many others
Content = tuple[bytes | None, bytes | None]
Calls = tuple[OpenCall, ...]


class Stored(EntryRow):
    """An entry as it was read: ``sound`` says whether it matched its check. One that is made anew does."""

    sound: bool = True


class Before(NamedTuple):
    """What is known of the entry before: its hash, its numbers, the open calls; None where they cannot be trusted."""

    hash: bytes | None
    numbers: Numbers | None
    calls: Calls | None = None


class WalkedBranch(NamedTuple):
    """A branch that is walked: with its session if that is sound, its end, and what is recorded as lost on it."""

    branch: BranchRow
    session: SessionRow | None
    tip: int
    tip_hash: bytes
    lost: dict[int, str]

    def where(self, seq: int) -> str:
        """Name an entry."""
        return f"entry {self.branch.uid}-{seq}"


# ---------------------------------------------------------------------- branch after branch


class EntriesCheck:
    """The check of entries, for one run over a store."""

    def __init__(self, trees: TreeChecks) -> None:
        self._calls: dict[int, tuple[bytes | None, Calls]] = {}  # by key of entry: its hash, what is open behind it
        self._trees = trees

    def __call__(self, tx: Tx, found: Found, after: Key | None) -> Key | None:
        """Check the next entries, branch after branch; the key is that of the branch before, and a seq."""
        behind, seq = after or ((), 0)
        room = PAGE
        while room > 0:
            stored, reached = BRANCHES.page(tx, behind or None, 1)
            if reached is None:
                return None
            rows = list[EntryRow]()
            if BRANCHES.is_sound(stored[0]):  # else reported with the branches: without its id nothing can be checked
                line = line_of(tx, BRANCHES.checked(stored[0]))
                seq = max(seq, line.branch.fork_seq)
                rows = read_rows(tx, line, seq, room)
                seq = self._check_rows(tx, found, line, seq, rows)
                if len(rows) < room:
                    _check_end(tx, found, line, seq)
            if len(rows) < room:
                behind, seq, room = reached, 0, room - 1
            room -= sum(_SPILLED if row.spill else 1 for row in rows)
        return behind, seq

    def _check_rows(self, tx: Tx, found: Found, line: WalkedBranch, seq: int, rows: list[EntryRow]) -> int:
        """Check entries that follow a seq; return the last one."""
        before = self._before(tx, line, seq)
        forks = {fork for (fork,) in tx.all(FORKS, (line.branch.scope, line.branch.bid))}
        for row in rows:
            found.checked += 1
            if row.seq <= seq:
                raise Corrupt(f"the entries of branch {line.branch.uid} are out of order", what="file")
            if row.seq != seq + 1:
                _missing(found, line, seq + 1, row.seq - 1)
                before = Before(None, None)
            seq = row.seq
            if fault := entry_fault(tx, line, row, before) or self._trees.fault(tx, row, lost=seq in line.lost):
                found.add(fault.kind, line.where(seq), fault.what, fault.fix)
            before = after_of(line, row, before)
            if before.calls and (seq in forks or row is rows[-1]):
                self._calls[row.key] = before.hash, before.calls
        return seq

    def _before(self, tx: Tx, line: WalkedBranch, seq: int) -> Before:
        before = before_of(tx, line, seq)
        known = self._calls.get(_owner_key(line, seq))
        if before.calls is None and known is not None and known[0] == before.hash:
            return before._replace(calls=known[1])
        return before


def line_of(tx: Tx, branch: BranchRow) -> WalkedBranch:
    """Gather what the entries of a branch are judged by."""
    stored = tx.all(LOST_BETWEEN, (branch.scope, key_of(branch.bid, 0), key_of(branch.bid, MAX_SEQ)))
    lost = [LOST.unchecked(each) for each in stored if LOST.is_sound(each)]
    return WalkedBranch(branch, *tip_of(tx, branch), {row.key & MAX_SEQ: row.what for row in lost})


def read_rows(tx: Tx, line: WalkedBranch, seq: int, limit: int) -> list[EntryRow]:
    """Read entries behind a seq up to the end of their branch; one that cannot be read is only its key."""
    bid = line.branch.bid
    return _read(tx, line.branch.scope, key_of(bid, seq), key_of(bid, max(line.tip, seq)), limit)


def read_row(tx: Tx, scope: str, key: int) -> EntryRow:
    """Read an entry; one that is missing or cannot be read is only its key."""
    missing = tuple({"key": key}.get(name) for name in ENTRIES.stored)
    return next(iter(_read(tx, scope, key - 1, key, 1)), None) or _as_row(missing)


def _read(tx: Tx, scope: str, low: int, high: int, limit: int) -> list[EntryRow]:
    """Read entries by their keys: where those are unique, a damaged scope hides none."""
    named = () if ENTRIES.order(tx) == ("key",) else (scope,)
    stored, _ = ENTRIES.page(tx, (*named, low), limit, upto=(*named, high))
    return [_as_row(each) for each in stored]


def _as_row(stored: Row) -> Stored:
    row = Stored(*ENTRIES.unchecked(stored))
    row.sound = ENTRIES.is_sound(stored)
    return row


def _missing(found: Found, line: WalkedBranch, first: int, last: int) -> None:
    found.add("missing", f"branch {line.branch.uid}", f"entries {first} to {last} are missing")


def _check_end(tx: Tx, found: Found, line: WalkedBranch, seq: int) -> None:
    """The branch ends where its row or its head says, with that entry, and nothing lies behind."""
    branch, where = line.branch, f"branch {line.branch.uid}"
    if seq < line.tip:
        _missing(found, line, seq + 1, line.tip)
    else:
        last = before_of(tx, line, seq).hash
        if last is not None and last != line.tip_hash:
            found.add("chain", where, "the last entry is not the one that was recorded")
    last = scalar(tx, LAST_KEY, (branch.scope, key_of(branch.bid, line.tip), key_of(branch.bid, MAX_SEQ)))
    # A session whose row is damaged may have gone on: only that row knew the end.
    if last is not None and line.session is not None:
        found.add("entry", where, f"entries {line.tip + 1} to {last & MAX_SEQ} lie behind the end of the branch")


# ---------------------------------------------------------------------- what comes before


def _owner_key(line: WalkedBranch, seq: int) -> int:
    return key_of(line.branch.bid if seq > line.branch.fork_seq else line.branch.parent or 0, seq)


def before_of(tx: Tx, line: WalkedBranch, seq: int) -> Before:
    """Return what is known of the entry that the next one of a branch follows; open calls only if there are none."""
    if seq == 0:
        return Before(chain.GENESIS, Numbers(), ())
    key = _owner_key(line, seq)
    row = read_row(tx, line.branch.scope, key)
    if seq > line.branch.fork_seq:
        return after_of(line, row)
    lost = tx.one(LOST_AT, (line.branch.scope, key))
    before = _known(row, lost[0] if lost else None)
    # Where a branch starts whose id was lost, nothing proves.
    return before._replace(numbers=None, calls=None) if line.lost.get(0) == BRANCH else before


def after_of(line: WalkedBranch, row: EntryRow, before: Before | None = None) -> Before:
    """Return what an entry tells the next one; of open calls only what ``before`` knew."""
    return _known(row, line.lost.get(row.seq), before)


def _known(row: EntryRow, lost: str | None, before: Before | None = None) -> Before:
    found = chain_of(row)
    if found is None or lost == ENTRY:
        return Before(None, None)
    if lost == CONTENT:
        return Before(found.hash, None)
    return Before(found.hash, found.numbers, _calls_after(row.seq, found, before))


def _calls_after(seq: int, found: Chain, before: Before | None) -> Calls | None:
    if found.open_seq == 0:
        return ()
    if before is None or before.calls is None or before.numbers is None:
        return None
    calls, open_seq = open_calls.after(before.calls, before.numbers.open_seq, seq, found.calls)
    return calls if open_seq == found.open_seq and not open_calls.is_partial(calls, open_seq) else None


def is_sound(row: EntryRow) -> bool:
    """Whether an entry that was read here matched its check."""
    return row.sound if isinstance(row, Stored) else True


def chain_of(row: EntryRow) -> Chain | None:
    """Return an entry's part of the chain, None if the row is damaged."""
    try:
        return row.chain if is_sound(row) else None
    except UNREADABLE:
        return None


# ---------------------------------------------------------------------- one entry


def entry_fault(tx: Tx, line: WalkedBranch, row: EntryRow, before: Before) -> Fault | None:
    """Return what is wrong with an entry, if anything is."""
    fault, content = judge(tx, line, row, before)
    if fault is None and line.lost.get(row.seq) not in (CONTENT, ENTRY):
        return _inner_fault(tx, line, row, before, content)
    return fault


def judge(tx: Tx, line: WalkedBranch, row: EntryRow, before: Before) -> tuple[Fault | None, Content]:
    """Check an entry against its check and the chain; return what is wrong, and its content."""
    nothing: Content = (None, None)
    found = chain_of(row)
    if found is None:
        return Fault("entry", "its record is damaged"), nothing
    if row.scope != line.branch.scope:
        return Fault("entry", "it is of another scope than its branch"), nothing
    if line.lost.get(row.seq) in (CONTENT, ENTRY):
        return None, nothing
    if row.turns != found.turns:
        return Fault("entry", "its turn is not that of its running totals", REBUILD), nothing
    try:
        content, hashed = content_of(tx, line.branch.scope, row)
    except UNREADABLE as error:
        return Fault("blob", str(error)), nothing
    chained = before.hash is not None and line.lost.get(0) != BRANCH
    if chained and not _has_hash(line, row, before.hash or b"", hashed):
        return Fault("chain", "its hash does not follow from the entry before it"), content
    return None, content


def follows(tx: Tx, line: WalkedBranch, row: EntryRow, previous: bytes) -> bool:
    """Whether an entry is intact and its hash follows from that of the entry before it."""
    if line.lost.get(0) == BRANCH or line.lost.get(row.seq) in (CONTENT, ENTRY):
        return False
    return judge(tx, line, row, Before(previous, None))[0] is None


def _has_hash(line: WalkedBranch, row: EntryRow, previous: bytes, hashed: bytes) -> bool:
    try:
        return row.chain.hash == hash_of(line, row, previous, hashed)
    except UNREADABLE:
        return False  # numbers that no header can hold


def hash_of(line: WalkedBranch, row: EntryRow, previous: bytes, hashed: bytes) -> bytes:
    """Compute the hash that an entry must have."""
    found = row.chain
    stored_ms = row.at_ms + found.late_ms
    head = chain.header(line.branch.uid, row.seq, row.kind, row.at_ms, stored_ms, found.numbers)
    return chain.entry_hash(previous, head, hashed)


def content_of(tx: Tx, scope: str, row: EntryRow) -> tuple[Content, bytes]:
    """Load an entry's content, even from blobs, and hash it; a redacted one has its hash only."""
    found = row.chain
    if found.body_hash is not None:
        return (None, None), found.body_hash
    body_blob, raw_blob = row.spilled
    body = blobs.read_whole(tx, scope, body_blob) if body_blob else row.body
    raw = blobs.read_whole(tx, scope, raw_blob) if raw_blob else row.raw
    if body is None or found.salt is None:
        raise Corrupt("its content is missing")
    return (body, raw), chain.body_hash(found.salt, body, raw)


def _inner_fault(tx: Tx, line: WalkedBranch, row: EntryRow, before: Before, content: Content) -> Fault | None:
    """Check what an intact entry says: its tool calls, its numbers, the state it continues, the blobs it needs."""
    body, raw = content
    try:
        needed, newest = _said(row, body, raw)
    except UNREADABLE as error:
        return Fault("entry", f"its content cannot be read: {error}")
    if body is not None and tuple(dict.fromkeys(needed.marks)) != row.chain.calls:
        return Fault("call", "the record of its tool calls is not what it says", REBUILD)
    if before.numbers is not None and not _numbers_follow(row, before, before.numbers):
        return Fault("entry", "its running totals do not follow from those before it")
    if body is None:
        return None
    if line.session is not None and newest > line.session.states + 1:
        return Fault("state", "its version of the state is newer than the newest that its session counted")
    if row.kind in STATE_KINDS and (what := derived.state_fault(tx, line.branch, row, body, before.numbers)):
        return Fault("state", what)
    if not all(has(tx, LINK, row.scope, each, row.key) for each in derived.links(row, needed)):
        return Fault("link", "a link to a blob that it needs is missing", REBUILD)
    return None


def is_readable(row: EntryRow, content: Content) -> bool:
    """Whether the content of an entry is what its kind promises."""
    try:
        _said(row, *content)
    except UNREADABLE:
        return False
    return True


def _said(row: EntryRow, body: bytes | None, raw: bytes | None) -> tuple[derived.Needs, int]:
    """Return what an entry needs, and the version of the state that it makes."""
    if body is not None and row.kind in STATE_KINDS and not derived.is_state(row.kind, body):
        raise Corrupt("it is no state of work")
    return derived.needs(row, body, raw), 1 if body is None else derived.version_of(row.kind, body)


def _numbers_follow(row: EntryRow, before: Before, was: Numbers) -> bool:
    """Whether the running numbers of an entry can come after others; ``open_seq`` alone may go down."""
    found = row.chain
    numbers = found.numbers
    return (
        numbers.messages == was.messages + (row.kind in MESSAGE_KINDS)
        and numbers.work_seq == (row.seq if row.kind in STATE_KINDS else was.work_seq)
        and numbers.call_seq == (row.seq if found.calls else was.call_seq)
        and all(map(int.__ge__, numbers._replace(open_seq=0), was._replace(open_seq=0)))
        and (before.calls is None or _open_follows(row.seq, found, before.calls, was.open_seq))
    )


def _open_follows(seq: int, found: Chain, calls: Calls, was: int) -> bool:
    """Whether the oldest open call is where an entry says it is."""
    if found.open_seq == open_calls.after(calls, was, seq, found.calls)[1]:
        return True
    # Of very many open calls only the newest are known to whoever goes on from them: then it stays where it was.
    return 0 < found.open_seq == was and found.tool_calls > open_calls.MOST


# ---------------------------------------------------------------------- what points at entries


def orphans_page(tx: Tx, found: Found, after: Key | None) -> Key | None:
    """Find entries of branches that are not there, going from branch to branch."""
    has_branch = f"SELECT 1 FROM branch WHERE {matches(BRANCHES.order(tx))}"
    for _ in range(PAGE):
        _, reached = ENTRIES.page(tx, after, 1)
        if reached is None:
            return None
        *scope, key = reached
        if not tx.one(has_branch, (*scope, key >> 32)):
            found.add("missing", f"entry {place(key)}", "it belongs to a branch whose record is lost")
        after = (*scope, key | MAX_SEQ)
    return after


def link_fault(tx: Tx, link: LinkRow) -> Fault | None:
    """Return what is wrong with a link: the entry must need the blob, and the blob must be there."""
    row = read_row(tx, link.scope, link.key)
    if row.scope != link.scope:
        return Fault("link", "there is no such entry", REBUILD)
    try:
        needed = _needed_by(tx, row)
    except UNREADABLE:
        return None  # the entry is damaged: reported there
    if needed is not None and link.hash not in needed:
        return Fault("link", "the entry does not need it", REBUILD)
    has_blob = link.hash in row.spilled or tx.one(HAS_BLOB, (link.scope, link.hash))
    if has_blob or tx.one(LOST_AT, (link.scope, link.key)) == (ATTACHMENT,):
        return None
    if needed is None:
        return Fault("link", "neither the content of the entry nor the blob is there", REBUILD)
    return Fault("blob", "an attachment is missing")


def _needed_by(tx: Tx, row: EntryRow) -> set[str] | None:
    """Return the blobs that an entry needs; None if its content is gone and nobody can know."""
    if not is_sound(row) or (row.body is None and row.spill is None):
        return None
    (body, raw), _ = content_of(tx, row.scope, row)
    return derived.links(row, derived.needs(row, body, raw))


RULES: tuple[Check, ...] = (
    orphans_page,
    Rule(LINK, link_fault, "link", REBUILD, where=lambda row: f"blob {row.hash} of entry {place(row.key)}"),
)
