"""Branches and paths: nothing is copied, and finding an entry costs the logarithm of the depth.

A branch reads entries up to ``fork_seq`` from its parent, which is always the branch that owns that entry, so fork
points grow on the way down a path. Each branch also knows one far ancestor (``jump``) and the last seq owned by it or
by a branch above it. So the owner of any seq is found in at most 3 log2(depth) reads, even if every turn was popped
and written again. Reading a range takes one index range per branch in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .sessions import SessionRow

import itertools
from typing import NamedTuple

from ..errors import Corrupt, NotFound
from ..ids import new_id
from ..model.branch import Branch
from ..model.entry import GENESIS
from ..storage.base import Tx
from ..tables.branches import BRANCH
from ..tables.branches import BranchRow as BranchRow
from ..tables.table import several, slots

# coalesce, since a plain comparison excludes NULL and would lead PostgreSQL to the partial index of parents, which it
# would then scan for the whole scope.
PATH = f"""WITH RECURSIVE path (at) AS (SELECT CAST(? AS BIGINT) UNION ALL
SELECT b.parent FROM path CROSS JOIN branch b WHERE b.scope = ? AND b.bid = path.at AND b.fork_seq > ?
AND coalesce(b.parent, 0) < b.bid)
SELECT {BRANCH.selected("h")} FROM path CROSS JOIN branch h WHERE h.scope = ? AND h.bid = path.at ORDER BY h.bid DESC"""


_MANY = 500  # branches of one read


class Segment(NamedTuple):
    """The entries low+1..high of one branch."""

    bid: int
    uid: str
    low: int
    high: int


def get(tx: Tx, scope: str, bid: int) -> BranchRow:
    """Return a branch that must exist."""
    found = BRANCH.get(tx, scope, bid)
    if found is None:
        raise Corrupt(f"the record of branch {bid} is missing", what=f"branch {bid}")
    return found


def find_by_uid(tx: Tx, scope: str, uid: str) -> BranchRow | None:
    """Return a branch by its id, whichever session it belongs to, or None."""
    return BRANCH.one(tx, "WHERE scope = ? AND uid = ?", (scope, uid))


def by_uids(tx: Tx, scope: str, uids: Iterable[str]) -> dict[str, BranchRow]:
    """Return branches by their ids, many per read; missing ones are left out."""
    found = dict[str, BranchRow]()
    for some in several(sorted(uids), _MANY):
        where = f"WHERE scope = ? AND uid IN ({slots(len(some))})"
        found |= {row.uid: row for row in BRANCH.all(tx, where, (scope, *some))}
    return found


def find_by_name(tx: Tx, scope: str, session: int, name: str) -> BranchRow | None:
    """Return a session's branch by its name, or None."""
    return BRANCH.one(tx, "WHERE scope = ? AND session = ? AND name = ?", (scope, session, name))


def find(tx: Tx, scope: str, session: int, name: str) -> BranchRow:
    """Return a branch of a session by its name or its id."""
    found = find_by_name(tx, scope, session, name) or find_by_uid(tx, scope, name)
    if found is None or found.session != session:
        raise NotFound(f"this session has no branch {name!r}; branches() lists them")
    return found


def of_session(tx: Tx, scope: str, session: int, expected: int) -> list[BranchRow]:
    """Return all branches of a session, oldest first; a missing one raises ``Corrupt``."""
    found = BRANCH.all(tx, "WHERE scope = ? AND session = ? ORDER BY bid", (scope, session))
    _require_all(found, session, expected)
    return found


def of_sessions(tx: Tx, scope: str, expected: Mapping[int, int]) -> dict[int, list[BranchRow]]:
    """Return the branches of several sessions, oldest first, in one read; ``expected`` is how many each has."""
    found: dict[int, list[BranchRow]] = {session: [] for session in expected}
    where = f"WHERE scope = ? AND session IN ({slots(len(expected))}) ORDER BY bid"
    for row in BRANCH.all(tx, where, (scope, *expected)):
        found[row.session].append(row)
    for session, rows in found.items():
        _require_all(rows, session, expected[session])
    return found


def _require_all(found: list[BranchRow], session: int, expected: int) -> None:
    if len(found) != expected:
        raise Corrupt(f"{expected} branches were recorded, but {len(found)} were found", what=f"session {session}")


def owner(tx: Tx, branch: BranchRow, seq: int) -> BranchRow:
    """Find the branch that holds entry ``seq`` of this branch's path."""
    while seq <= branch.fork_seq:
        up = branch.jump if seq <= branch.jump_seq else branch.parent
        if up is None:
            raise Corrupt(f"branch {branch.name!r} has lost its parent", what=f"branch {branch.uid}")
        branch = get(tx, branch.scope, up)
    return branch


def segments(tx: Tx, branch: BranchRow, low: int, high: int) -> list[Segment]:
    """Split the entries low+1..high of a path by the branches that hold them, oldest first."""
    if high <= low:
        return []
    branch = owner(tx, branch, high)
    if branch.fork_seq <= low:
        return [Segment(branch.bid, branch.uid, low, high)]
    found, expected = list[Segment](), branch.bid
    for row in path(tx, branch, low):
        if row.bid != expected or (row.parent is None and row.fork_seq > low):
            break
        start = max(low, row.fork_seq)
        found.append(Segment(row.bid, row.uid, start, high))
        expected, high = row.parent or 0, start
    if high > low:
        raise Corrupt(f"branch {branch.name!r} has lost a parent", what=f"branch {branch.uid}")
    return found[::-1]


def every_segment(tx: Tx, session: SessionRow) -> list[Segment]:
    """Return all that the branches of a session hold: what they read of other sessions, then each branch itself."""
    own = of_session(tx, session.scope, session.sid, session.branches)
    mine, others = {row.bid for row in own}, dict[int, Segment]()
    for row in own:
        if row.parent is not None and row.parent not in mine:
            for each in segments(tx, row, 0, row.fork_seq):
                known = others.get(each.bid, each)
                others[each.bid] = each._replace(high=max(each.high, known.high))
    tips = [(row, session.seq if row.bid == session.branch and session.attached else row.tip_seq) for row in own]
    held = [Segment(row.bid, row.uid, row.fork_seq, tip) for row, tip in tips if tip > row.fork_seq]
    return [*(others[bid] for bid in sorted(others)), *held]


def path(tx: Tx, branch: BranchRow, low: int = 0) -> list[BranchRow]:
    """Return a branch and those above it that hold entries after ``low`` of its path, newest first."""
    stored = tx.all(PATH, (branch.bid, branch.scope, low, branch.scope))
    return [BRANCH.checked(row) for row in stored]


def create(
    tx: Tx, scope: str, session: int, *, name: str, origin: BranchRow | None, seq: int, tip_hash: bytes, now_ms: int
) -> BranchRow:
    """Open a branch at entry ``seq`` of ``origin``'s path; at the beginning if there is no origin or ``seq`` is 0."""
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
    return BRANCH.put(tx, branch)


def _jump(tx: Tx, parent: BranchRow | None, seq: int) -> tuple[int | None, int]:
    """Choose the far ancestor: two equal jumps in a row become one of twice the length (a skip list)."""
    if parent is None:
        return None, 0
    if parent.jump is not None:
        middle = get(tx, parent.scope, parent.jump)
        if middle.jump is not None:
            far = get(tx, parent.scope, middle.jump)
            if parent.depth - middle.depth == middle.depth - far.depth:
                return far.bid, middle.jump_seq
    return parent.bid, seq


def set_tip(tx: Tx, branch: BranchRow, seq: int, tip_hash: bytes) -> BranchRow:
    """Record where a branch ends, when the head leaves it or a late entry extends it."""
    return BRANCH.update(tx, branch, branch._replace(tip_seq=seq, tip_hash=tip_hash))


def set_hidden(tx: Tx, branch: BranchRow, hidden: int) -> BranchRow:
    """Hide a branch from listings, or show it again."""
    return BRANCH.update(tx, branch, branch._replace(hidden=hidden))


def forks(tx: Tx, scope: str, bid: int) -> list[BranchRow]:
    """Return the branches that start on this one, whichever session they belong to."""
    return BRANCH.all(tx, "WHERE scope = ? AND parent = ? ORDER BY bid", (scope, bid))


def free_name(tx: Tx, scope: str, session: int, *, base: str, count: int) -> str:
    """Return a name for branch number ``count`` + 1: base-N with the first free N from there on."""
    stem, dash, number = base.rpartition("-")
    stem = stem if dash and number.isdigit() else base
    numbers = itertools.count(count + 1)
    names = (f"{stem}-{number}" for number in numbers)
    return next(name for name in names if find_by_name(tx, scope, session, name) is None)


def shown(tx: Tx, session: SessionRow) -> list[Branch]:
    """Return the branches of a session, oldest first; one whose fork was undone is left out."""
    found = of_session(tx, session.scope, session.sid, session.branches)
    names = {branch.bid: branch.name for branch in found}
    return [as_value(session, each, names) for each in found if not each.hidden or each.bid == session.branch]


def as_value(session: SessionRow, row: BranchRow, names: Mapping[int, str]) -> Branch:
    """Return a branch of a session as a value; ``names`` maps the branches it may have forked from to their names."""
    here = session.branch == row.bid
    tip = session.seq if here and session.attached else row.tip_seq
    parent = None if row.parent is None else names.get(row.parent)
    return Branch(row.uid, row.name, parent, row.fork_seq, tip, here, row.created_ms)
