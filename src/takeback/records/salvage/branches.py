"""Salvage of branches: where each starts, and whose it is.

The first entry of a branch proves id, parent and fork point together: its hash follows from the hash of the entry
where the branch starts and from a header that names the branch. So candidates are tried until one fits: what the row
says, what the session's head and the operations log say, and every branch that has an entry at that place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from ... import codec
from ...ids import MAX_SEQ, is_id, new_id
from ...ops import branches, chain
from ...ops.log import key_of
from ...ops.verify.base import UNREADABLE, is_object
from ...ops.verify.history import BRANCH as LOST_BRANCH
from ...ops.verify.log import chain_of, follows, line_of, read_row
from ...ops.verify.sessions import COUNT, has_session, shortcut
from ...tables.branches import BRANCH, BranchRow
from ...tables.entries import ENTRY, LOST, EntryRow, LostRow
from ...tables.history import FEED, OPERATION
from ...tables.sessions import SESSION, SessionRow
from .base import PARTLY, ReadRow, Salvage, proved
from .sessions import readable

ENTRY_BRANCHES = "SELECT DISTINCT key >> 32 FROM entry"
OLDER = "SELECT bid FROM branch WHERE scope = ? AND bid < ? ORDER BY bid DESC"
TAKEN_UID = "SELECT 1 FROM branch WHERE scope = ? AND uid = ? AND bid <> ?"
TAKEN_NAME = "SELECT 1 FROM branch WHERE scope = ? AND session = ? AND name = ? AND bid <> ?"
FIRST_OF = "SELECT min(bid) FROM branch WHERE session = ?"
_DIGITS = str.maketrans("jkmnpqrstvwxyz", "ijklmnopqrstuv")


class _Start(NamedTuple):
    """Where a branch starts, and under which id its entries were hashed."""

    uid: str
    parent: int | None
    fork: int


def fix_branches(fix: Salvage) -> None:
    """Make every number have a sound row that starts where its entries say."""
    told = {row.branch for row in fix.sound(FEED) if row.session > 0}
    heads = {session.branch for session in _sessions(fix)}
    owners = {bid for (bid,) in fix.tx.all(ENTRY_BRANCHES)}
    for bid, found in fix.numbered(BRANCH, (told & heads) | owners, told | heads | owners):
        if found is None or not found.sound or not _fits(fix, found.row):
            _mend(fix, bid, found)
        else:
            fix.replace(BRANCH, found.row, _with_shortcut(fix, found.row)._replace(hidden=int(found.row.hidden == 1)))


def _fits(fix: Salvage, branch: BranchRow) -> bool:
    """Whether a sound row can stay: what it names is there, and its first entry does not prove another start."""
    if not has_session(fix.tx, branch.scope, branch.session) or not _is_plausible(fix, branch):
        return False
    # A session that has as many branches as it counts has this one.
    if _missing(fix, branch.scope, branch.session) and _told(fix, branch.bid) not in (None, branch.session):
        return False
    stored = _Start(branch.uid, branch.parent, branch.fork_seq)
    return _start(fix, branch.bid, branch.scope, branch) in (None, stored)


def _is_plausible(fix: Salvage, branch: BranchRow) -> bool:
    if branch.parent is None or branch.fork_seq == 0:
        return branch.parent is None and branch.fork_seq == 0
    found = fix.find(BRANCH, branch.parent)
    if found is None or found.row.bid >= branch.bid:
        return False
    return found.row.scope == branch.scope and found.row.fork_seq < branch.fork_seq


def _with_shortcut(fix: Salvage, branch: BranchRow) -> BranchRow:
    parent = None if branch.parent is None else branches.get(fix.tx, branch.scope, branch.parent)
    depth, jump, jump_seq = shortcut(fix.tx, parent, branch.fork_seq)
    return branch._replace(depth=depth, jump=jump, jump_seq=jump_seq)


# ---------------------------------------------------------------------- what the entries prove


def _start(fix: Salvage, bid: int, scope: str, row: BranchRow | None) -> _Start | None:
    """Search the start that the first entry proves, or the recorded end of a branch without entries."""
    uids, ends = _uids(fix, bid, row), fix.ends(bid)
    if ends is None:
        return _empty_start(fix, bid, scope, uids, row)
    first = read_row(fix.tx, scope, key_of(bid, ends[0]))
    fork = first.seq - 1
    tries = (_Start(uid, parent, fork) for uid in uids for parent in _parents(fix, scope, bid, fork, row))
    return next((each for each in tries if _proves(fix, first, scope, each)), None)


def _parents(fix: Salvage, scope: str, bid: int, fork: int, row: BranchRow | None) -> list[int | None]:
    """Return the branches that another one may start on: the one that its row names, then the newest first."""
    if fork == 0:
        return [None]
    older = [each for (each,) in fix.tx.all(OLDER, (scope, bid))]
    return sorted(older, key=lambda each: row is None or each != row.parent)


def _proves(fix: Salvage, first: EntryRow, scope: str, start: _Start) -> bool:
    """Whether the first entry of a branch is intact and follows from this start."""
    previous = _hash_at(fix, start)
    if previous is None or first.seq != start.fork + 1:
        return False
    return follows(fix.tx, line_of(fix.tx, _plain(first.branch, scope, start)), first, previous)


def _hash_at(fix: Salvage, start: _Start) -> bytes | None:
    """Return the hash that the first entry of a branch follows from, None if that entry is not there."""
    return chain.GENESIS if start.fork == 0 else _entry_hash(fix, start.parent or 0, start.fork)


def _entry_hash(fix: Salvage, bid: int, seq: int) -> bytes | None:
    """Return the hash that an entry says it has, None if it is not there."""
    found = fix.find(ENTRY, key_of(bid, seq)) if 0 <= seq <= MAX_SEQ else None
    try:
        return None if found is None else found.row.chain.hash
    except UNREADABLE:
        return None


def _empty_start(fix: Salvage, bid: int, scope: str, uids: list[str], row: BranchRow | None) -> _Start | None:
    """A branch without entries ends where it starts: its row or a head at it knows that entry's hash."""
    ends = [] if row is None else [(row.tip_seq, row.tip_hash), (row.fork_seq, row.tip_hash)]
    ends += [(head.seq, head.hash) for head in _heads(fix, bid)]
    for seq, wanted in (each for each in ends if uids and 0 <= each[0] <= MAX_SEQ):
        for parent in _parents(fix, scope, bid, seq, row):
            start = _Start(uids[0], parent, seq)
            if _hash_at(fix, start) == wanted:
                return start
    return None


# ---------------------------------------------------------------------- who it was


def _sessions(fix: Salvage) -> Iterator[SessionRow]:
    """Yield what sessions say, damaged or not."""
    return (readable(fix, row) for row, _, _ in fix.rows(SESSION))


def _heads(fix: Salvage, bid: int) -> list[SessionRow]:
    return [session for session in _sessions(fix) if session.branch == bid]


def _missing(fix: Salvage, scope: str, sid: int) -> int:
    """Return how many more branches a session counts than there are."""
    found, (count,) = fix.find(SESSION, sid), fix.tx.one(COUNT, (scope, sid)) or (0,)
    return 0 if found is None else readable(fix, found.row).branches - int(count)


def _uids(fix: Salvage, bid: int, row: BranchRow | None) -> list[str]:
    """Return ids that a branch may have had: its own, that of a head on it, those that operations name."""
    found = [row.uid] if row is not None else []
    found += [head.uid for head in _heads(fix, bid)]
    found += [uid for _, uid in _named(fix)]
    return list(dict.fromkeys(uid for uid in found if is_id(uid)))


def _named(fix: Salvage) -> Iterator[tuple[int, str]]:
    """Yield session and id of each branch that an operation names."""
    for row in fix.sound(OPERATION):
        for view in (row.before, row.after):
            said = codec.decode(view) if is_object(view) else {}
            for thing in ("head", "branch"):
                if isinstance(said.get(thing), list) and said[thing] and isinstance(said[thing][0], str):
                    yield row.session, said[thing][0]


def _session(fix: Salvage, bid: int, old: BranchRow | None) -> SessionRow | None:
    """Return the session that a branch belongs to, as others know it or as it is most likely."""
    tries = [_told(fix, bid), *(head.sid for head in _heads(fix, bid))]
    if old is not None:
        tries += [*(sid for sid, uid in _named(fix) if uid == old.uid), old.session]
    tries += [each.sid for each in _sessions(fix) if _missing(fix, each.scope, each.sid) > 0]
    found = (fix.find(SESSION, sid) for sid in (*tries, 1) if sid)
    return next((each.row for each in found if each is not None), None)


def _told(fix: Salvage, bid: int) -> int | None:
    """Return the session that the feed names for a branch most often, if it is there."""
    changes = fix.all(FEED, "WHERE branch = ? AND session > 0", (bid,))
    told = Counter(row.session for row, sound, _ in changes if sound)
    return next((sid for sid, _ in told.most_common() if fix.find(SESSION, sid) is not None), None)


# ---------------------------------------------------------------------- putting it right


def _mend(fix: Salvage, bid: int, found: ReadRow[BranchRow] | None) -> None:
    old = None if found is None else found.row
    session = _session(fix, bid, old)
    sid, scope = (session.sid, session.scope) if session else (1, "")
    start = _start(fix, bid, scope, old)
    new = _row(fix, bid, sid, scope, start or _unproved(fix, bid, scope, old), old)
    whole = None if found is None else proved(BRANCH, found, _changes(new))
    if found is not None and start is not None and found.sound:  # wrong, but not by accident: the rest stays
        whole = new._replace(name=_free_name(fix, new, found.row.name), created_ms=found.row.created_ms)
    if whole is None:
        whole = new
        what = "its name is lost" if start else "its name and where it starts are lost"
        fix.lose("branch", f"branch {new.uid}", what, PARTLY)
    if fix.tx.one(TAKEN_UID, (whole.scope, whole.uid, bid)):  # what proves it proves another one as well
        whole, start = whole._replace(uid=new_id(fix.now_ms)), None
        fix.lose("branch", f"branch {whole.uid}", "its id is lost", PARTLY)
    fix.replace(BRANCH, whole, whole)
    if start is None and (ends := fix.ends(bid)) is not None:
        first = read_row(fix.tx, scope, key_of(bid, ends[0]))
        begins = _Start(whole.uid, whole.parent, whole.fork_seq)
        if chain_of(first) is not None and not _proves(fix, first, scope, begins):
            lost = LostRow(scope, key_of(bid, 0), LOST_BRANCH, fix.now_ms)
            fix.replace(LOST, lost, lost)


def _changes(new: BranchRow) -> Iterator[dict[str, Any]]:
    """Yield what may be wrong in a row that is damaged: everything that others know, with its own end or a new one."""
    known = new._asdict()
    ends = {name: known.pop(name) for name in ("tip_seq", "tip_hash")}
    others = {name: known.pop(name) for name in ("name", "created_ms", "hidden")}
    for extra in ({}, *({name: value} for name, value in others.items()), {"hidden": 0}, {"hidden": 1}):
        yield {**known, **extra}
        yield {**known, **ends, **extra}
        yield {**known, "tip_seq": new.fork_seq, **extra}


def _unproved(fix: Salvage, bid: int, scope: str, old: BranchRow | None) -> _Start:
    """Return a start that nothing proves: at the beginning, or where the first entry says if its parent is known."""
    free = (uid for uid in _uids(fix, bid, old) if not fix.tx.one(TAKEN_UID, (scope, uid, bid)))
    uid = next(free, "") or new_id(fix.now_ms)
    first, _ = fix.ends(bid) or (1, 1)
    tries = (_Start(uid, parent, first - 1) for parent in _parents(fix, scope, bid, first - 1, old))
    return next((start for start in tries if _hash_at(fix, start)), _Start(uid, None, 0))


def _plain(bid: int, scope: str, start: _Start) -> BranchRow:
    return BranchRow(scope, bid, start.uid, 0, "", start.parent, start.fork, 0, None, 0, 0, start.fork, chain.GENESIS)


def _row(fix: Salvage, bid: int, sid: int, scope: str, start: _Start, old: BranchRow | None) -> BranchRow:
    _, last = fix.ends(bid) or (0, 0)
    end = _entry_hash(fix, bid, last) if last else _hash_at(fix, start)
    (first,) = fix.tx.one(FIRST_OF, (sid,)) or (None,)
    row = _plain(bid, scope, start)._replace(
        session=sid,
        created_ms=int(start.uid[:9].translate(_DIGITS), 32),  # an id begins with the time of its making
        tip_seq=last or start.fork,
        tip_hash=end or chain.GENESIS,
        hidden=int(old is not None and old.hidden == 1),
    )
    name = "main" if first is None or first >= bid else f"lost-{bid}"  # the first one of a session is called main
    return _with_shortcut(fix, row._replace(name=_free_name(fix, row, name)))


def _free_name(fix: Salvage, row: BranchRow, wanted: str) -> str:
    taken = fix.tx.one(TAKEN_NAME, (row.scope, row.session, wanted, row.bid))
    return f"lost-{row.bid}" if taken else wanted
