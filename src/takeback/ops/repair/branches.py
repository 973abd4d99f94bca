"""Repair of branches: where each starts, and whose it is.

The first entry of a branch proves id, parent and fork point together: its hash follows from the hash of the entry
where the branch starts and from a header that names the branch. So candidates are tried until one fits: what the row
says, what the session's head and the operations log say, and every branch that has an entry at that place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from ... import codec
from ...ids import LENGTH, is_id, new_id
from ...storage.base import Row
from .. import branches, chain, entries, operations
from ..branches import BranchRow
from ..verify import derived
from ..verify.base import is_sound
from ..verify.changes import FEED
from ..verify.log import LAST_KEY, content_of, hash_of, is_chained, is_whole, line_of, read_row
from ..verify.places import BRANCHES, HAS_SESSION, SESSIONS, is_object, shortcut
from ..verify.tables import BRANCH, LOST_ROWS
from .base import PARTLY, Repair, checked, extend, proved

FIRST_KEY = "SELECT min(key) FROM entry WHERE key > ? AND key <= ?"
ENTRY_BRANCHES = "SELECT DISTINCT key >> 32 FROM entry"
AT_SEQ = "SELECT bid FROM branch WHERE bid < ? ORDER BY bid DESC"
HASH_AT = "SELECT hash FROM entry WHERE key = ?"
OF_BRANCH = f"SELECT {FEED.columns} FROM feed WHERE branch = ? AND session > 0 ORDER BY pos"
HEADS = "SELECT sid, head_uid, head_seq, head_hash FROM session WHERE head_branch = ?"
SCOPE_OF = "SELECT scope FROM session WHERE sid = ?"
TAKEN_UID = "SELECT 1 FROM branch WHERE scope = ? AND uid = ? AND bid != ?"
TAKEN_NAME = "SELECT 1 FROM branch WHERE scope = ? AND session = ? AND name = ? AND bid != ?"
TAKEN_UID = "SELECT 1 FROM branch WHERE scope = ? AND uid = ? AND bid != ?"
COUNTED = """SELECT branches, (SELECT count(*) FROM branch b WHERE b.scope = s.scope AND b.session = s.sid)
FROM session s WHERE sid = ?"""
SHORT = """SELECT sid FROM session s
WHERE branches > (SELECT count(*) FROM branch b WHERE b.scope = s.scope AND b.session = s.sid)"""
FIRST_OF = "SELECT min(bid) FROM branch WHERE session = ?"
ALL_OPERATIONS = f"SELECT {operations.COLUMNS} FROM operation ORDER BY oid"
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


class _Start(NamedTuple):
    """Where a branch starts, and under which id its entries were hashed."""

    uid: str
    parent: int | None
    fork: int


def fix_branches(fix: Repair) -> None:
    """Let every number have a sound row that starts where its entries say."""
    for bid, row in fix.numbered(BRANCHES, _top(fix)):
        if row is None or not is_sound(row) or not _fits(fix, branches.checked(row)):
            _mend(fix, bid, row)
        else:
            _mend_shortcut(fix, branches.checked(row))


def _top(fix: Repair) -> int:
    top = fix.highest(BRANCHES)
    told = {row[4] for row in fix.rows(FEED) if is_sound(row) and row[3] > 0}
    heads = {row[22] for row in fix.rows(SESSIONS)}
    return extend(top, (told & heads) | {row[0] for row in fix.tx.all(ENTRY_BRANCHES)})


def _fits(fix: Repair, branch: BranchRow) -> bool:
    """Say whether a sound row can stay: what it names is there, and its first entry does not prove another start."""
    if not fix.tx.one(HAS_SESSION, (branch.session, branch.scope)) or not _is_plausible(fix, branch):
        return False
    if not _is_counted(fix, branch) and _told(fix, branch.bid) not in (None, branch.session):
        return False
    stored = _Start(branch.uid, branch.parent, branch.fork_seq)
    if _proves(fix, branch.bid, branch.scope, stored) or _ends_there(fix, branch):
        return True
    return _start(fix, branch.bid, branch.scope, _uids(fix, branch), branch) is None


def _is_counted(fix: Repair, branch: BranchRow) -> bool:
    """Say whether the session that a branch names has as many branches as it counts: then the branch is one of them."""
    row = fix.tx.one(COUNTED, (branch.session,))
    return row is not None and row[0] == row[1]


def _is_plausible(fix: Repair, branch: BranchRow) -> bool:
    if branch.parent is None or branch.fork_seq == 0:
        return branch.parent is None and branch.fork_seq == 0
    row = fix.tx.one(branches.GET, (branch.parent,))
    return row is not None and row[0] < branch.bid and row[1] == branch.scope and row[6] < branch.fork_seq


def _ends_there(fix: Repair, branch: BranchRow) -> bool:
    """Say whether a branch without entries ends at the entry where it starts."""
    start = _Start(branch.uid, branch.parent, branch.fork_seq)
    return _is_empty(fix, branch.bid) and _hash_at(fix, start) == branch.tip_hash


def _mend_shortcut(fix: Repair, branch: BranchRow) -> None:
    parent = None if branch.parent is None else branches.get(fix.tx, branch.parent)
    depth, jump, jump_seq = shortcut(fix.tx, parent, branch.fork_seq)
    new = branch._replace(depth=depth, jump=jump, jump_seq=jump_seq)
    if new != branch:
        fix.replace(BRANCHES, (branch.bid,), checked(new))
        fix.rebuilt += 1


# ---------------------------------------------------------------------- what the entries prove


def _first_key(fix: Repair, bid: int) -> int | None:
    base = entries.key_of(bid, 0)
    found = fix.tx.one(FIRST_KEY, (base, base + entries.MAX_SEQ))
    return found[0] if found else None


def _is_empty(fix: Repair, bid: int) -> bool:
    return _first_key(fix, bid) is None


def _first(fix: Repair, bid: int) -> Row | None:
    """Give the first entry of a branch if there is one and it is intact."""
    key = _first_key(fix, bid)
    row = None if key is None else read_row(fix.tx, key)
    return row if row is not None and is_chained(row) and is_whole(row) else None


def _proves(fix: Repair, bid: int, scope: str, start: _Start) -> bool:
    """Say whether the first entry follows from this start; without entries nothing does."""
    row = _first(fix, bid)
    if row is None or row[0] & entries.MAX_SEQ != start.fork + 1:
        return False
    previous = _hash_at(fix, start)
    try:
        _, hashed = content_of(fix.tx, scope, row)
        line = line_of(fix.tx, _plain(bid, scope, start))
        return previous is not None and hash_of(line, row, previous, hashed) == row[23]
    except derived.UNREADABLE:
        return False


def _hash_at(fix: Repair, start: _Start) -> bytes | None:
    if start.fork == 0:
        return chain.GENESIS
    row = fix.tx.one(HASH_AT, (entries.key_of(start.parent or 0, start.fork),))
    return None if row is None else bytes(row[0])


def _plain(bid: int, scope: str, start: _Start) -> BranchRow:
    return BranchRow(bid, scope, start.uid, 0, "", start.parent, start.fork, 0, None, 0, 0, start.fork, chain.GENESIS)


def _start(fix: Repair, bid: int, scope: str, uids: list[str], row: BranchRow | None) -> _Start | None:
    """Search the start that the first entry proves, or the recorded end of a branch without entries."""
    if _is_empty(fix, bid):
        return _empty_start(fix, bid, uids, row)
    first = _first(fix, bid)
    if first is None:
        return None
    fork = (first[0] & entries.MAX_SEQ) - 1
    parents = [None] if fork == 0 else [each for (each,) in fix.tx.all(AT_SEQ, (bid,))]
    tries = (_Start(uid, parent, fork) for uid in uids for parent in parents)
    return next((each for each in tries if _proves(fix, bid, scope, each)), None)


def _empty_start(fix: Repair, bid: int, uids: list[str], row: BranchRow | None) -> _Start | None:
    """A branch without entries ends where it starts: its row or a head at it knows that entry's hash."""
    if not uids:
        return None
    ends = [] if row is None else [(row.tip_seq, row.tip_hash), (row.fork_seq, row.tip_hash)]
    ends += [(seq, found) for _, _, seq, found in fix.tx.all(HEADS, (bid,))]
    for seq, wanted in ends:
        if seq == 0 and wanted == chain.GENESIS:
            return _Start(uids[0], None, 0)
        for (parent,) in fix.tx.all(AT_SEQ, (bid,)) if isinstance(seq, int) and 0 < seq <= entries.MAX_SEQ else ():
            if fix.tx.one(HASH_AT, (entries.key_of(parent, seq),)) == (wanted,):
                return _Start(uids[0], parent, seq)
    return None


# ---------------------------------------------------------------------- who it was


def _uids(fix: Repair, row: BranchRow | None, bid: int = 0) -> list[str]:
    """Give ids that a branch may have had: its own, that of a head on it, those that operations name."""
    found = [row.uid] if row is not None else []
    found += [uid for _, uid, _, _ in fix.tx.all(HEADS, (row.bid if row is not None else bid,))]
    found += [uid for _, uid in _named(fix)]
    return list(dict.fromkeys(uid for uid in found if isinstance(uid, str) and is_id(uid)))


def _named(fix: Repair) -> Iterator[tuple[int, str]]:
    """Give session and id of each branch that an operation names."""
    for row in fix.tx.all(ALL_OPERATIONS):
        for view in (row[7], row[8]):
            said = codec.decode(view) if is_sound(row) and is_object(view) else {}
            for thing in ("head", "branch"):
                if isinstance(said.get(thing), list) and said[thing] and isinstance(said[thing][0], str):
                    yield row[4], said[thing][0]


def _mend(fix: Repair, bid: int, row: Row | None) -> None:
    old = BranchRow(*row[:-1]) if row is not None else None
    sid = _session(fix, bid, old)
    scope = (fix.tx.one(SCOPE_OF, (sid,)) or ("",))[0]
    start = _start(fix, bid, scope, _uids(fix, old, bid), old)
    known = start is not None
    if start is None:
        start = _unproved(fix, bid, scope, old)
    new = _row(fix, bid, sid, scope, start, old)
    whole = None if row is None else proved(row, _changes(new))
    if old is not None and known and row is not None and is_sound(row):  # wrong, but not by accident: the rest stays
        name = f"lost-{bid}" if fix.tx.one(TAKEN_NAME, (scope, sid, old.name, bid)) else old.name
        whole = checked(new._replace(name=name, created_ms=old.created_ms, hidden=old.hidden, **_old_tip(old, new)))
    if whole is not None:
        fix.rebuilt += 1
    else:
        whole = checked(new)
        what = "its name is lost" if known else "its name and where it starts are lost"
        fix.lose("branch", f"branch {start.uid}", what, PARTLY)
    if fix.tx.one(TAKEN_UID, (whole[1], whole[2], bid)):  # what proves it proves another one as well
        whole, known = checked((*whole[:2], new_id(fix.now_ms), *whole[3:-1])), False
        start = start._replace(uid=whole[2])
        fix.lose("branch", f"branch {start.uid}", "its id is lost", PARTLY)
    fix.replace(BRANCHES, (bid,), whole)
    if not known and _first(fix, bid) is not None and not _proves(fix, bid, scope, start):
        fix.replace(LOST_ROWS, (bid << 32,), checked((bid << 32, scope, BRANCH, fix.now_ms)))


def _old_tip(old: BranchRow, new: BranchRow) -> dict[str, Any]:
    return {"tip_seq": old.tip_seq, "tip_hash": old.tip_hash} if new.fork_seq <= old.tip_seq <= new.tip_seq else {}


def _changes(new: BranchRow) -> Iterator[dict[int, object]]:
    """Give what may be wrong in a row that is damaged: everything that others know, with its own end or a new one."""
    sure = {0: new.bid, 1: new.scope, 2: new.uid, 3: new.session, 5: new.parent, 6: new.fork_seq, 7: new.depth}
    sure |= {8: new.jump, 9: new.jump_seq}
    ends = {11: new.tip_seq, 12: new.tip_hash}
    for extra in ({}, {10: new.created_ms}, {13: 0}, {13: 1}, {4: new.name}):
        yield {**sure, **extra}
        yield {**sure, **ends, **extra}
        yield {**sure, 11: new.fork_seq, **extra}


def _session(fix: Repair, bid: int, old: BranchRow | None) -> int:
    told = _told(fix, bid)
    if told:
        return told
    for sid, _, _, _ in fix.tx.all(HEADS, (bid,)):
        return int(sid)
    there = {row[2] for row in fix.rows(BRANCHES)} - {old.uid if old is not None else ""}
    named = [sid for sid, uid in _named(fix) if uid == old.uid] if old is not None else []
    stored = [old.session] if old is not None else []
    short = [sid for (sid,) in fix.tx.all(SHORT)]
    unknown = [sid for sid, uid in _named(fix) if uid not in there]
    found = (sid for sid in (*named, *stored, *short, *unknown) if fix.tx.one(SCOPE_OF, (sid,)))
    return next(found, 1)


def _told(fix: Repair, bid: int) -> int | None:
    """Give the session that the feed names for a branch most often, if it is there."""
    told = Counter(row[3] for row in fix.tx.all(OF_BRANCH, (bid,)) if is_sound(row))
    there = (int(sid) for sid, _ in told.most_common() if fix.tx.one(SCOPE_OF, (sid,)))
    return next(there, None)


def _unproved(fix: Repair, bid: int, scope: str, old: BranchRow | None) -> _Start:
    """Give a start that nothing proves: at the beginning, or where the first entry says if its parent is known."""
    free = [uid for uid in _uids(fix, old, bid) if not fix.tx.one(TAKEN_UID, (scope, uid, bid))]
    uid = free[0] if free else new_id(fix.now_ms)
    first = _first_key(fix, bid)
    fork = 0 if first is None else (first & entries.MAX_SEQ) - 1
    named = old.parent if old is not None else None
    parents = [named, *(each for (each,) in fix.tx.all(AT_SEQ, (bid,)))]
    holds = (each for each in parents if each and each < bid and fix.tx.one(HASH_AT, (entries.key_of(each, fork),)))
    parent = next(holds, None) if fork else None
    return _Start(uid, parent, fork if parent else 0)


def _row(fix: Repair, bid: int, sid: int, scope: str, start: _Start, old: BranchRow | None) -> BranchRow:
    parent = None if start.parent is None else branches.get(fix.tx, start.parent)
    depth, jump, jump_seq = shortcut(fix.tx, parent, start.fork)
    base = entries.key_of(bid, 0)
    last = fix.tx.one(LAST_KEY, (base, base + entries.MAX_SEQ))
    end = last[0] if last and last[0] is not None else None
    found = fix.tx.one(HASH_AT, (end,)) if end is not None else None
    tip = (
        (end & entries.MAX_SEQ, bytes(found[0]))
        if end and found
        else (start.fork, _hash_at(fix, start) or chain.GENESIS)
    )
    return BranchRow(
        bid=bid,
        scope=scope,
        uid=start.uid,
        session=sid,
        name=_name(fix, bid, sid, scope),
        parent=start.parent,
        fork_seq=start.fork,
        depth=depth,
        jump=jump,
        jump_seq=jump_seq,
        created_ms=_time(start.uid),
        tip_seq=tip[0],
        tip_hash=tip[1],
        hidden=old.hidden if old is not None and old.hidden in (0, 1) else 0,
    )


def _name(fix: Repair, bid: int, sid: int, scope: str) -> str:
    """Name a branch whose name is lost: the first one of a session is called main."""
    first = fix.tx.one(FIRST_OF, (sid,))
    is_first = not first or first[0] is None or first[0] >= bid
    wanted = "main" if is_first else f"lost-{bid}"
    return f"lost-{bid}" if fix.tx.one(TAKEN_NAME, (scope, sid, wanted, bid)) else wanted


def _time(uid: str) -> int:
    """Read the time out of an id: that of its making."""
    value = 0
    for character in uid[:9] if len(uid) == LENGTH else "":
        value = value << 5 | _ALPHABET.index(character)
    return value
