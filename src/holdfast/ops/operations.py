"""Operations: changes other than appends, each with what was before and after, so each can be taken back.

``undo`` takes back the newest operation of a session that still stands, ``redo`` what the last undo took
back. Both are operations themselves and record the head they found: an attached head goes back to
the tip of its branch, wherever that is by then. Appends never clear what can be redone; a new
operation does. Nothing that was appended is lost by any of them: it stays on its branch.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

from .. import codec
from ..errors import Conflict, Corrupt, NotFound
from ..ids import new_id
from ..model.entry import Numbers
from ..model.operation import Operation
from ..storage.base import Row, Tx, row_check
from . import branches, entries, feed, sessions
from .sessions import SessionRow

COLUMNS = "oid, scope, id, kind, session, at_ms, before, after, undoes, undone_by, chk"
INSERT = f"INSERT INTO operation ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
NEXT = "SELECT max(oid) FROM operation"
GET = f"SELECT {COLUMNS} FROM operation WHERE oid = ?"
BY_ID = f"SELECT {COLUMNS} FROM operation WHERE scope = ? AND id = ?"
LAST_STANDING = f"""SELECT {COLUMNS} FROM operation
WHERE scope = ? AND session = ? AND undone_by IS NULL AND kind NOT IN ('undo', 'redo') ORDER BY oid DESC LIMIT 1"""
LAST_UNDO = f"""SELECT {COLUMNS} FROM operation
WHERE scope = ? AND session = ? AND kind = 'undo' AND undone_by IS NULL ORDER BY oid DESC LIMIT 1"""
SINCE = """SELECT 1 FROM operation
WHERE scope = ? AND session = ? AND oid > ? AND kind NOT IN ('undo', 'redo') LIMIT 1"""
OF_SESSION = f"SELECT {COLUMNS} FROM operation WHERE scope = ? AND session = ? ORDER BY oid DESC LIMIT ?"
SET_UNDONE = "UPDATE operation SET undone_by = ?, chk = ? WHERE oid = ?"


class OperationRow(NamedTuple):
    """A row of ``operation``, checked."""

    oid: int
    scope: str
    id: str
    kind: str
    session: int
    at_ms: int
    before: bytes
    after: bytes
    undoes: int | None
    undone_by: int | None


def checked(row: Row) -> OperationRow:
    """Check a row that was read; damage is ``Corrupt``."""
    if row_check(row[:-1]) != row[-1]:
        raise Corrupt(f"the record of operation {row[2]!r} is damaged", what=f"operation {row[2]}")
    return OperationRow(*row[:-1])


# ---------------------------------------------------------------------- what operations do


def rewind(
    tx: Tx, scope: str, session_id: str, *, to: int, uid: str | None = None, now_ms: int
) -> tuple[SessionRow, Operation]:
    """Move the head back to entry ``to`` of its path; what follows stays on its branch."""
    session = sessions.get(tx, scope, session_id)
    target = entries.place_of(tx, session, to, uid)
    attached = bool(session.attached) and to == session.seq
    return _do(tx, session, "rewind", _view(session, target=target, attached=attached), now_ms)


def switch(tx: Tx, scope: str, session_id: str, *, branch: str, now_ms: int) -> tuple[SessionRow, Operation]:
    """Move the head to the tip of a branch."""
    session = sessions.get(tx, scope, session_id)
    row = branches.find(tx, scope, session.sid, branch)
    after = {**_view(session), "branch": row.uid, "seq": row.tip_seq, "attached": 1}
    return _do(tx, session, "switch", after, now_ms)


def hide(tx: Tx, scope: str, session_id: str, *, hidden: bool, now_ms: int) -> Operation | None:
    """Put a session into the trash, or take it out; None if it is absent or so already."""
    row = tx.one(sessions.GET, (scope, session_id))
    session = None if row is None else sessions.checked(row)
    if session is None or bool(session.hidden) == hidden:
        return None
    kind = "delete" if hidden else "restore"
    return _do(tx, session, kind, {**_view(session), "hidden": int(hidden)}, now_ms)[1]


def fork(
    tx: Tx, scope: str, session_id: str, *, at: int | None, uid: str | None = None, name: str | None, now_ms: int
) -> tuple[SessionRow, branches.BranchRow]:
    """Open a branch at a point of the head's path without copying anything; the head stays."""
    session = sessions.get(tx, scope, session_id)
    target = entries.place_of(tx, session, session.seq if at is None else at, uid)
    origin = branches.get(tx, session.branch)
    if name is None:
        name = branches.free_name(tx, scope, session.sid, base=origin.name, count=session.branches)
    elif tx.one(branches.BY_NAME, (scope, session.sid, name)):
        raise Conflict(f"this session has a branch {name!r} already; choose another name", found=name)
    row = branches.create(
        tx, scope, session.sid, name=name, origin=origin, seq=target.seq, tip_hash=target.hash, now_ms=now_ms
    )
    position, rank = feed.record(tx, session, "fork", branch=row.bid, first=target.seq, last=target.seq)
    changed = session._replace(branches=session.branches + 1)
    return _touch(tx, changed, position, rank, now_ms), row


def _touch(tx: Tx, session: SessionRow, position: int, rank: int, now_ms: int) -> SessionRow:
    """Write a session that an operation changed: one revision further, at its new position."""
    head = (*session.head[:-4], session.revision + 1, position, now_ms, rank)
    return sessions.write_head(tx, session, head)


# ---------------------------------------------------------------------- undo and redo


def undo(tx: Tx, scope: str, session_id: str, *, operation_id: str | None, now_ms: int) -> tuple[SessionRow, Operation]:
    """Take back the newest operation that stands, or the named one if nothing newer stands."""
    session = sessions.get(tx, scope, session_id)
    row = tx.one(LAST_STANDING, (scope, session.sid))
    newest = None if row is None else checked(row)
    if operation_id is not None:
        _require_newest(tx, scope, session, operation_id, newest)
    if newest is None:
        raise Conflict("there is nothing to undo in this session")
    session, done = _do(tx, session, "undo", codec.decode(newest.before), now_ms, undoes=newest.oid)
    _set_undone(tx, newest, _last_oid(tx))
    return session, done


def _require_newest(tx: Tx, scope: str, session: SessionRow, operation_id: str, newest: OperationRow | None) -> None:
    row = tx.one(BY_ID, (scope, operation_id))
    if row is None or row[4] != session.sid:
        raise NotFound(f"this session has no operation {operation_id!r}")
    named = checked(row)
    if named.undone_by is not None:
        raise Conflict(f"operation {operation_id!r} is undone already")
    if newest is None or newest.oid != named.oid:
        later = newest.kind if newest else "none"
        raise Conflict(
            f"a later operation ({later}) changed the same session; undo that first",
            expected=operation_id,
            found=newest.id if newest else None,
        )


def redo(tx: Tx, scope: str, session_id: str, *, now_ms: int) -> tuple[SessionRow, Operation]:
    """Bring back what the last undo took back, unless another operation came after it."""
    session = sessions.get(tx, scope, session_id)
    row = tx.one(LAST_UNDO, (scope, session.sid))
    if row is None or tx.one(SINCE, (scope, session.sid, row[0])):
        raise Conflict("there is nothing to redo in this session")
    last = checked(row)
    session, done = _do(tx, session, "redo", codec.decode(last.before), now_ms, undoes=last.oid)
    _set_undone(tx, last, _last_oid(tx))
    undone = tx.one(GET, (last.undoes,))
    if undone is None:
        raise Corrupt("the operation that an undo took back is missing", what=f"operation {last.undoes}")
    _set_undone(tx, checked(undone), None)
    return session, done


def _last_oid(tx: Tx) -> int:
    row = tx.one(NEXT)
    return row[0] if row and row[0] is not None else 0


def _set_undone(tx: Tx, row: OperationRow, by: int | None) -> None:
    tx.run(SET_UNDONE, (by, row_check(row._replace(undone_by=by)), row.oid))


# ---------------------------------------------------------------------- how they do it


def _view(session: SessionRow, *, target: entries.Point | None = None, attached: bool = True) -> dict[str, Any]:
    """Describe what an operation may change: the head, the trash, and the name that may have to give way."""
    view = {"branch": session.uid, "seq": session.seq, "attached": session.attached}
    if target is not None:
        view = {"branch": target.uid, "seq": target.seq, "attached": int(attached)}
    return {**view, "hidden": session.hidden, "name": session.name}


def _do(
    tx: Tx, session: SessionRow, kind: str, after: dict[str, Any], now_ms: int, *, undoes: int | None = None
) -> tuple[SessionRow, Operation]:
    """Apply a view and record it with the view it replaced."""
    before = _view(session)
    changed = _apply(tx, session, after)
    position, rank = feed.record(tx, session, kind, branch=changed.branch, first=changed.seq, last=changed.seq)
    changed = _touch(tx, changed, position, rank, now_ms)
    now = _view(changed)
    row = OperationRow(
        _last_oid(tx) + 1,
        session.scope,
        new_id(now_ms),
        kind,
        session.sid,
        now_ms,
        codec.encode(before),
        codec.encode(now),
        undoes,
        None,
    )
    tx.run(INSERT, (*row, row_check(row)))
    return changed, as_value(row, session.id)


def _apply(tx: Tx, session: SessionRow, after: dict[str, Any]) -> SessionRow:
    if (after["hidden"], after["name"]) != (session.hidden, session.name):
        name = after["name"] if after["hidden"] else _free_name(tx, session, after["name"])
        session = sessions.set_visible(tx, session, hidden=after["hidden"], name=name)
    if (after["branch"], after["seq"], after["attached"]) == (session.uid, session.seq, session.attached):
        return session
    left = sessions.head_branch(tx, session)
    if session.attached:
        branches.set_tip(tx, left, session.seq, session.hash)
    branch = left if after["branch"] == session.uid else branches.find(tx, session.scope, session.sid, after["branch"])
    seq = branch.tip_seq if after["attached"] else after["seq"]
    target = entries.point_on(tx, session.scope, branch, seq)
    numbers = Numbers._make(target.numbers)._asdict()
    return session._replace(
        branch=branch.bid,
        uid=branch.uid,
        fork=branch.fork_seq,
        seq=seq,
        attached=after["attached"],
        hash=target.hash,
        **numbers,
    )


def _free_name(tx: Tx, session: SessionRow, name: str | None) -> str | None:
    """Give the name back, or with `` (2)`` and so on behind it where another session has it by now."""
    if name is None:
        return None
    names = itertools.chain([name], (f"{name} ({number})" for number in itertools.count(2)))
    for candidate in names:
        taken = sessions.find_by_name(
            tx, session.scope, agent=session.agent, workspace=session.workspace, name=candidate
        )
        if taken is None or taken.sid == session.sid:
            break
    return candidate


def of_session(tx: Tx, scope: str, session_id: str, *, limit: int) -> list[Operation]:
    """Give a session's operations, newest first."""
    session = sessions.get(tx, scope, session_id)
    rows = tx.all(OF_SESSION, (scope, session.sid, limit))
    return [as_value(checked(row), session.id) for row in rows]


def as_value(row: OperationRow, session_id: str) -> Operation:
    """Show an operation to callers."""
    before, after = codec.decode(row.before), codec.decode(row.after)
    if before["hidden"] != after["hidden"]:
        summary = "into the trash" if after["hidden"] else "out of the trash"
        if after["name"] != before["name"]:
            summary += f", now named {after['name']!r}"
    else:
        summary = f"entry {before['seq']} -> entry {after['seq']}"
        if after["branch"] != before["branch"] and before["seq"]:
            summary += ", on another branch"
        elif after["seq"] < before["seq"]:
            summary += f"; {before['seq'] - after['seq']} entries leave the path and stay on their branch"
    return Operation(row.id, row.kind, session_id, row.at_ms, summary, row.undone_by is not None)
