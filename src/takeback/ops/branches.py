"""Branches and paths: nothing is copied, and finding a place costs the logarithm of the depth.

A branch reads entries up to ``fork_seq`` from its parent, which is always the branch that owns that
entry, so fork points grow on the way down a path. Each branch also knows one far ancestor (``jump``)
and the last seq that lies there or above: the owner of any seq is found in at most 3 log2(depth) reads,
even when every turn was popped and written again. Reading a range is one index range per branch in it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import NamedTuple

from ..errors import Corrupt, NotFound
from ..ids import new_id
from ..model.branch import Branch
from ..model.entry import GENESIS
from ..storage.base import Row, Tx, row_check

COLUMNS = (
    "bid, scope, uid, session, name, parent, fork_seq, depth, jump, jump_seq, created_ms, tip_seq, tip_hash,"
    " hidden, chk"
)
GET = f"SELECT {COLUMNS} FROM branch WHERE bid = ?"
BY_UID = f"SELECT {COLUMNS} FROM branch WHERE scope = ? AND uid = ?"
BY_NAME = f"SELECT {COLUMNS} FROM branch WHERE scope = ? AND session = ? AND name = ?"
OF_SESSIONS = f"SELECT {COLUMNS} FROM branch WHERE scope = ? AND session IN "
OF_SESSION = f"SELECT {COLUMNS} FROM branch WHERE scope = ? AND session = ? ORDER BY bid"
PATH = f"""WITH RECURSIVE path (at) AS (SELECT CAST(? AS BIGINT) UNION ALL
SELECT b.parent FROM path JOIN branch b ON b.bid = path.at WHERE b.fork_seq > ? AND b.parent < b.bid)
SELECT {COLUMNS} FROM path JOIN branch ON bid = at ORDER BY bid DESC"""
INSERT = f"INSERT INTO branch ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
SET_TIP = "UPDATE branch SET tip_seq = ?, tip_hash = ?, chk = ? WHERE bid = ?"
SET_HIDDEN = "UPDATE branch SET hidden = ?, chk = ? WHERE bid = ?"
FORKS = f"SELECT {COLUMNS} FROM branch WHERE parent = ? ORDER BY bid"


class BranchRow(NamedTuple):
    """A row of ``branch``, checked."""

    bid: int
    scope: str
    uid: str
    session: int
    name: str
    parent: int | None
    fork_seq: int
    depth: int
    jump: int | None
    jump_seq: int
    created_ms: int
    tip_seq: int
    tip_hash: bytes
    hidden: int = 0


class Segment(NamedTuple):
    """The entries low+1..high of one branch."""

    bid: int
    uid: str
    low: int
    high: int


def checked(row: Row) -> BranchRow:
    """Check a row that was read; damage is ``Corrupt``."""
    if row_check(row[:-1]) != row[-1]:
        raise Corrupt(f"the record of branch {row[4]!r} is damaged", what=f"branch {row[2]}")
    return BranchRow(*row[:-1])


def get(tx: Tx, bid: int) -> BranchRow:
    """Give a branch that must exist."""
    row = tx.one(GET, (bid,))
    if row is None:
        raise Corrupt(f"the record of branch {bid} is missing", what=f"branch {bid}")
    return checked(row)


def find(tx: Tx, scope: str, session: int, name: str) -> BranchRow:
    """Give a branch of a session by its name or its id."""
    row = tx.one(BY_NAME, (scope, session, name)) or tx.one(BY_UID, (scope, name))
    if row is None or row[3] != session:
        raise NotFound(f"this session has no branch {name!r}; branches() lists them")
    return checked(row)


def of_session(tx: Tx, scope: str, session: int, expected: int) -> list[BranchRow]:
    """Give all branches of a session, oldest first; a missing one is ``Corrupt``."""
    found = [checked(row) for row in tx.all(OF_SESSION, (scope, session))]
    _require_all(found, session, expected)
    return found


def of_sessions(tx: Tx, scope: str, expected: Mapping[int, int]) -> dict[int, list[BranchRow]]:
    """Give all branches of several sessions, oldest first, in one read; ``expected`` says how many each has."""
    found: dict[int, list[BranchRow]] = {session: [] for session in expected}
    sql = f"{OF_SESSIONS}({', '.join('?' * len(expected))}) ORDER BY bid"
    for row in map(checked, tx.all(sql, (scope, *expected))):
        found[row.session].append(row)
    for session, rows in found.items():
        _require_all(rows, session, expected[session])
    return found


def _require_all(found: list[BranchRow], session: int, expected: int) -> None:
    if len(found) != expected:
        raise Corrupt(f"{expected} branches were recorded, {len(found)} are there", what=f"session {session}")


def owner(tx: Tx, branch: BranchRow, seq: int) -> BranchRow:
    """Find the branch that holds entry ``seq`` of this branch's path."""
    while seq <= branch.fork_seq:
        up = branch.jump if seq <= branch.jump_seq else branch.parent
        if up is None:
            raise Corrupt(f"branch {branch.name!r} has lost its parent", what=f"branch {branch.uid}")
        branch = get(tx, up)
    return branch


def segments(tx: Tx, branch: BranchRow, low: int, high: int) -> list[Segment]:
    """Split the entries low+1..high of a path by the branches that hold them, oldest first."""
    if high <= low:
        return []
    branch = owner(tx, branch, high)
    if branch.fork_seq <= low:
        return [Segment(branch.bid, branch.uid, low, high)]
    found, expected = list[Segment](), branch.bid
    for row in map(checked, tx.all(PATH, (branch.bid, low))):
        if row.bid != expected or (row.parent is None and row.fork_seq > low):
            break
        start = max(low, row.fork_seq)
        found.append(Segment(row.bid, row.uid, start, high))
        expected, high = row.parent or 0, start
    if high > low:
        raise Corrupt(f"branch {branch.name!r} has lost a parent", what=f"branch {branch.uid}")
    return found[::-1]


def create(
    tx: Tx, scope: str, session: int, *, name: str, origin: BranchRow | None, seq: int, tip_hash: bytes, now_ms: int
) -> BranchRow:
    """Open a branch at entry ``seq`` of ``origin``'s path; without an origin, or at 0, at the beginning."""
    parent = owner(tx, origin, seq) if origin is not None and seq > 0 else None
    jump, jump_seq = _jump(tx, parent, seq)
    branch = BranchRow(
        bid=tx.next("branch"),
        scope=scope,
        uid=new_id(now_ms),
        session=session,
        name=name,
        parent=parent.bid if parent else None,
        fork_seq=seq if parent else 0,
        depth=parent.depth + 1 if parent else 0,
        jump=jump,
        jump_seq=jump_seq,
        created_ms=now_ms,
        tip_seq=seq if parent else 0,
        tip_hash=tip_hash if parent else GENESIS,
    )
    tx.run(INSERT, (*branch, row_check(branch)))
    return branch


def _jump(tx: Tx, parent: BranchRow | None, seq: int) -> tuple[int | None, int]:
    """Choose the far ancestor: two equal jumps in a row become one of twice the length."""
    if parent is None:
        return None, 0
    if parent.jump is not None:
        middle = get(tx, parent.jump)
        if middle.jump is not None:
            far = get(tx, middle.jump)
            if parent.depth - middle.depth == middle.depth - far.depth:
                return far.bid, middle.jump_seq
    return parent.bid, seq


def set_tip(tx: Tx, branch: BranchRow, seq: int, tip_hash: bytes) -> None:
    """Record where a branch ends, as its head leaves it or a late arrival extends it."""
    changed = branch._replace(tip_seq=seq, tip_hash=tip_hash)
    tx.run(SET_TIP, (seq, tip_hash, row_check(changed), branch.bid))


def set_hidden(tx: Tx, branch: BranchRow, hidden: int) -> None:
    """Take a branch out of listings, or put it back."""
    tx.run(SET_HIDDEN, (hidden, row_check(branch._replace(hidden=hidden)), branch.bid))


def forks(tx: Tx, bid: int) -> list[BranchRow]:
    """Give the branches that start on this one, whatever session they belong to."""
    return [checked(row) for row in tx.all(FORKS, (bid,))]


def free_name(tx: Tx, scope: str, session: int, *, base: str, count: int) -> str:
    """Give a name for branch number ``count`` + 1: base-N with the first free N from there."""
    stem, dash, number = base.rpartition("-")
    stem = stem if dash and number.isdigit() else base
    numbers = itertools.count(count + 1)
    names = (f"{stem}-{number}" for number in numbers)
    return next(name for name in names if tx.one(BY_NAME, (scope, session, name)) is None)


def as_value(row: BranchRow, *, parent: str | None, head_seq: int, is_head: bool) -> Branch:
    """Show a branch to callers."""
    return Branch(row.uid, row.name, parent, row.fork_seq, head_seq, is_head, row.created_ms)
