"""Sessions: the row that knows where a session is.

The row holds head, hash and running numbers, so an append is one read, one insert and one update.
Its two checks keep apart what an append changes (``head_chk``) and what it does not (``chk``).
The invariant: the numbers and the hash of the row are those of the entry at the head.
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import Conflict, Corrupt, NotFound
from ..ids import new_id
from ..model.entry import Numbers
from ..model.session import Head, SessionInfo
from ..storage.base import Row, Tx, row_check
from . import branches, chain, feed

_NUMBERS = ", ".join(Numbers._fields)
COLUMNS = (
    "sid, scope, id, agent, kind, name, workspace, title, hidden, created_ms, chk,"
    " head_branch, head_uid, head_fork, head_seq, attached, head_hash,"
    f" {_NUMBERS}, branches, revision, updated, updated_ms, head_chk"
)
_SLOTS = ", ".join("?" * len(COLUMNS.split(",")))
GET = f"SELECT {COLUMNS} FROM session WHERE scope = ? AND id = ?"
BY_NAME = f"SELECT {COLUMNS} FROM session WHERE scope = ? AND agent = ? AND workspace = ? AND name = ? AND hidden = 0"
NEXT = "SELECT max(sid) FROM session"
INSERT = f"INSERT INTO session ({COLUMNS}) VALUES ({_SLOTS})"
LIST = f"SELECT {COLUMNS} FROM session WHERE scope = ? AND hidden = 0 AND updated < ? ORDER BY updated DESC LIMIT ?"
SET_VISIBLE = "UPDATE session SET name = ?, hidden = ?, chk = ? WHERE sid = ?"
MOVE = f"""UPDATE session SET head_branch = ?, head_uid = ?, head_fork = ?, head_seq = ?, attached = ?, head_hash = ?,
{", ".join(f"{name} = ?" for name in Numbers._fields)},
branches = ?, revision = ?, updated = ?, updated_ms = ?, head_chk = ? WHERE sid = ?"""

_COLD = slice(0, 10)
_HOT = slice(11, -1)
_FIRST = 17
_LAST = _FIRST + len(Numbers._fields)
NO_NUMBERS = Numbers()


class Place(NamedTuple):
    """What an append changes in a session's row: head, numbers, counters. In the order of the columns."""

    branch: int
    uid: str
    fork: int
    seq: int
    attached: int
    hash: bytes
    numbers: tuple[int, ...]
    branches: int
    revision: int
    updated: int
    updated_ms: int

    def columns(self) -> tuple[int | str | bytes, ...]:
        """Give the values in the order of the table's columns."""
        return (*self[:6], *self.numbers, *self[7:])


class SessionRow(NamedTuple):
    """A session's row, checked."""

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
    place: Place


def checked(row: Row) -> SessionRow:
    """Check a row that was read; damage is ``Corrupt``."""
    if row_check(row[_COLD]) != row[10] or row_check((row[0], *row[_HOT])) != row[-1]:
        raise Corrupt(f"the record of session {row[2]!r} is damaged", what=f"session {row[2]}")
    place = Place._make((*row[11:_FIRST], row[_FIRST:_LAST], *row[_LAST:-1]))
    return SessionRow._make((*row[_COLD], place))


def get(tx: Tx, scope: str, session_id: str) -> SessionRow:
    """Give a session by its id, also one in the trash; another scope's is not found."""
    row = tx.one(GET, (scope, session_id))
    if row is None:
        raise NotFound(f"there is no session {session_id!r} in this store and scope")
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
    empty = Place(0, "", 0, 0, 1, chain.GENESIS, NO_NUMBERS, 1, 0, 0, now_ms)
    session = SessionRow(*cold, empty)
    tx.run(INSERT, (*cold, row_check(cold), *empty.columns(), 0))
    main = branches.create(tx, scope, sid, name="main", origin=None, seq=0, tip_hash=chain.GENESIS, now_ms=now_ms)
    position = feed.record(tx, scope, "session", sid, main.bid, 0, 0)
    return move(tx, session, empty._replace(branch=main.bid, uid=main.uid, updated=position))


def move(tx: Tx, session: SessionRow, place: Place) -> SessionRow:
    """Write a session's new place."""
    columns = place.columns()
    tx.run(MOVE, (*columns, row_check((session.sid, *columns)), session.sid))
    return session._replace(place=place)


def set_visible(tx: Tx, session: SessionRow, *, hidden: int, name: str | None) -> SessionRow:
    """Put a session into the trash or take it out, under the name given."""
    changed = session._replace(hidden=hidden, name=name)
    tx.run(SET_VISIBLE, (name, hidden, row_check(changed[:10]), session.sid))
    return changed


def newest(tx: Tx, scope: str, *, before: int | None, limit: int) -> list[SessionRow]:
    """Give visible sessions, last changed first, below a feed position."""
    bound = (1 << 62) if before is None else before
    return [checked(row) for row in tx.all(LIST, (scope, bound, limit))]


def head_branch(tx: Tx, session: SessionRow) -> branches.BranchRow:
    """Give the branch of the head with its true tip: while attached, only the session's row knows it."""
    branch = branches.get(tx, session.place.branch)
    if session.place.attached:
        return branch._replace(tip_seq=session.place.seq, tip_hash=session.place.hash)
    return branch


def as_value(session: SessionRow) -> SessionInfo:
    """Show a session to callers."""
    place = session.place
    return SessionInfo(
        id=session.id,
        agent_id=session.agent,
        kind=session.kind,
        name=session.name,
        workspace=session.workspace or None,
        title=session.title,
        created_ms=session.created_ms,
        updated_ms=place.updated_ms,
        head=Head(place.uid, place.seq, bool(place.attached)),
        numbers=Numbers(*place.numbers),
        revision=place.revision,
        hidden=bool(session.hidden),
    )
