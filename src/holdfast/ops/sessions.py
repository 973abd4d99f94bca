"""Sessions: the row that knows where a session is.

The row holds head, hash and running numbers, so an append is one read, one insert and one update.
Its two checks keep apart what an append changes (``head_chk``) and what it does not (``chk``).
The invariant: the numbers and the hash of the row are those of the entry at the head.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import Conflict, Corrupt, NotFound
from ..ids import new_id
from ..model.entry import Numbers
from ..storage.base import Row, Tx, row_check
from . import branches, chain, feed

_NUMBERS = ", ".join(Numbers._fields)
COLUMNS = (
    "sid, scope, id, agent, kind, name, workspace, title, hidden, created_ms, chk,"
    " head_branch, head_uid, head_fork, head_seq, attached, head_hash,"
    f" {_NUMBERS}, branches, revision, updated, updated_ms, rank, head_chk"
)
_SLOTS = ", ".join("?" * len(COLUMNS.split(",")))
GET = f"SELECT {COLUMNS} FROM session WHERE scope = ? AND id = ?"
BY_NUMBER = f"SELECT {COLUMNS} FROM session WHERE sid = ?"
BY_NAME = f"SELECT {COLUMNS} FROM session WHERE scope = ? AND agent = ? AND workspace = ? AND name = ? AND hidden = 0"
NEXT = "SELECT max(sid) FROM session"
INSERT = f"INSERT INTO session ({COLUMNS}) VALUES ({_SLOTS})"
LIST = f"SELECT {COLUMNS} FROM session WHERE scope = ? AND hidden = 0 AND rank < ? ORDER BY rank DESC LIMIT ?"
SET_VISIBLE = "UPDATE session SET name = ?, hidden = ?, chk = ? WHERE sid = ?"
_SET_HEAD = f"""UPDATE session SET head_branch = ?, head_uid = ?, head_fork = ?, head_seq = ?,
attached = ?, head_hash = ?,
{", ".join(f"{name} = ?" for name in Numbers._fields)},
branches = ?, revision = ?, updated = ?, updated_ms = ?, head_chk = ?"""
MOVE = f"{_SET_HEAD} WHERE sid = ?"
MOVE_UP = f"{_SET_HEAD}, rank = ? WHERE sid = ?"

NO_NUMBERS = tuple(Numbers())


class SessionRow(NamedTuple):
    """A session's row as it lies in the table, checked."""

    sid: int
    scope: str
    id: str
    agent: str
    kind: str
    name: str | None
    workspace: str
    title: str | None
    hidden: int
    created_ms: int
    chk: int
    branch: int
    uid: str
    fork: int
    seq: int
    attached: int
    hash: bytes
    messages: int
    turns: int
    tool_calls: int
    tool_failures: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    cost_nano: int
    active_ms: int
    work_seq: int
    branches: int
    revision: int
    updated: int
    updated_ms: int
    rank: int
    head_chk: int

    @property
    def numbers(self) -> tuple[int, ...]:
        """The running totals at the head."""
        return (*self[17:29],)

    @property
    def head(self) -> tuple[Any, ...]:
        """The columns from head_branch to rank."""
        return tuple(self)[11:-1]


def checked(row: Row) -> SessionRow:
    """Check a row that was read; damage is ``Corrupt``."""
    if row_check(row[:10]) != row[10] or row_check((row[0], *row[11:-1])) != row[-1]:
        raise Corrupt(f"the record of session {row[2]!r} is damaged", what=f"session {row[2]}")
    return SessionRow._make(row)


def get(tx: Tx, scope: str, session_id: str) -> SessionRow:
    """Give a session by its id, also one in the trash; another scope's is not found."""
    row = tx.one(GET, (scope, session_id))
    if row is None:
        raise NotFound(f"there is no session {session_id!r} in this store and scope")
    return checked(row)


def by_number(tx: Tx, sid: int) -> SessionRow:
    """Give a session that must exist by its local number."""
    row = tx.one(BY_NUMBER, (sid,))
    if row is None:
        raise Corrupt(f"the record of session number {sid} is missing", what=f"session number {sid}")
    return checked(row)


def find_by_name(tx: Tx, scope: str, *, agent: str, workspace: str, name: str) -> SessionRow | None:
    """Give the visible session of that name, or None."""
    row = tx.one(BY_NAME, (scope, agent, workspace, name))
    return None if row is None else checked(row)


def create(
    tx: Tx, scope: str, *, agent: str, kind: str, name: str | None, workspace: str, title: str | None, now_ms: int
) -> SessionRow:
    """Start an empty session with one branch, ``main``; a taken name is ``Conflict``."""
    if name is not None and find_by_name(tx, scope, agent=agent, workspace=workspace, name=name):
        raise Conflict(f"there is a session named {name!r} already; get it, or choose another name", found=name)
    newest = tx.one(NEXT)
    sid = (newest[0] or 0) + 1 if newest else 1
    cold = (sid, scope, new_id(now_ms), agent, kind, name, workspace, title, 0, now_ms)
    # The session and its branch point at each other: the branch comes second and the head follows it.
    head: tuple[Any, ...] = (0, "", 0, 0, 1, chain.GENESIS, *NO_NUMBERS, 1, 0, 0, now_ms, 0)
    session = SessionRow._make((*cold, row_check(cold), *head, 0))
    tx.run(INSERT, session)
    main = branches.create(tx, scope, sid, name="main", origin=None, seq=0, tip_hash=chain.GENESIS, now_ms=now_ms)
    position, rank = feed.record(tx, session, "session", branch=main.bid, first=0, last=0)
    head = (main.bid, main.uid, *head[2:-3], position, now_ms, rank)
    return write_head(tx, session, head)


def write_head(tx: Tx, session: SessionRow, head: tuple[Any, ...]) -> SessionRow:
    """Write a session's columns from head_branch to rank.

    An unchanged rank is left alone, since setting it would write its index.
    """
    sid, rank = session.sid, head[-1]
    check = row_check((sid, *head))
    if rank == session.rank:
        tx.run(MOVE, (*head[:-1], check, sid))
    else:
        tx.run(MOVE_UP, (*head[:-1], check, rank, sid))
    return SessionRow._make((*session[:11], *head, check))


def set_visible(tx: Tx, session: SessionRow, *, hidden: int, name: str | None) -> SessionRow:
    """Put a session into the trash or take it out, under the name given."""
    changed = session._replace(hidden=hidden, name=name)
    changed = changed._replace(chk=row_check(changed[:10]))
    tx.run(SET_VISIBLE, (name, hidden, changed.chk, session.sid))
    return changed


def newest(tx: Tx, scope: str, *, before: int | None, limit: int) -> list[SessionRow]:
    """Give visible sessions, last changed first, below a rank."""
    bound = (1 << 62) if before is None else before
    found = [checked(row) for row in tx.all(LIST, (scope, bound, limit))]
    for session in found:
        if session.rank >= bound:
            raise Corrupt("the order of sessions is damaged; run verify", what="session_rank")
        bound = session.rank
    return found


def head_branch(tx: Tx, session: SessionRow) -> branches.BranchRow:
    """Give the branch of the head with its true tip: while attached, only the session's row knows it."""
    branch = branches.get(tx, session.branch)
    if session.attached:
        return branch._replace(tip_seq=session.seq, tip_hash=session.hash)
    return branch
