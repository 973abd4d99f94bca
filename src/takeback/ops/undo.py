"""Undo and redo: an operation is taken back by putting in place what was before it, as an operation of its own.

``undo`` takes back the newest operation that still stands, or a named one unless a later one touched the same thing;
``redo`` brings back what the last undo took back. Both record what they found, so each can be taken back in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .. import codec
from ..errors import Conflict, NotFound
from ..model.operation import Operation
from ..storage.base import Tx
from ..tables.files import WORKSPACE, WorkspaceRow
from ..tables.history import OPERATION
from ..tables.history import OperationRow as OperationRow
from . import agents, sessions
from .operation_summaries import all_named as all_named
from .operation_summaries import as_value as as_value
from .operation_summaries import named as named
from .operations import (
    NO_FILES,
    OF,
    SINCE,
    STANDS,
    Beside,
    Done,
    by_number,
    find,
    moved_files,
    on_agent,
    on_session,
    on_workspace,
    set_undone,
    stands,
)
from .sessions import SessionRow

IN_WORKSPACE = "INDEXED BY operation_workspace WHERE scope = ? AND workspace = ? AND workspace > 0"
ALONE = "session = 0 AND agent = 0"


class Chosen(NamedTuple):
    """An operation to undo or redo, and whose files it changed: a session's, or those of a workspace alone."""

    id: str
    session: str | None
    workspace: WorkspaceRow | None


def take_up(
    tx: Tx, scope: str, session_id: str, kind: str, wanted: str | None, *, now_ms: int
) -> tuple[SessionRow, Operation]:
    """Undo the last or the wanted operation of a session, or redo the last undo."""
    if kind == "redo":
        done = redo(tx, scope, session_id=session_id, now_ms=now_ms)
    else:
        done = undo_session(tx, scope, session_id, operation_id=wanted, now_ms=now_ms)
    return done.session or sessions.get(tx, scope, session_id), done.operation


def chosen_undo(tx: Tx, scope: str, wanted: str | None, made: Sequence[str]) -> Chosen:
    """Return the wanted operation, or the last of ``made`` not undone."""
    nothing = "nothing done through this handle is left to undo; name an operation"
    return _with_files(tx, scope, wanted or _last_of(tx, scope, made, nothing))


def undo_chosen(tx: Tx, scope: str, wanted: str | None, made: Sequence[str], *, now_ms: int) -> Done:
    """Undo the wanted operation, or the last of ``made`` that is not undone."""
    return undo(tx, scope, chosen_undo(tx, scope, wanted, made).id, now_ms=now_ms)


def chosen_redo(tx: Tx, scope: str, undone: Sequence[str]) -> Chosen:
    """Return the last of these undos that is not redone."""
    nothing = "nothing undone through this handle is left to redo"
    return _with_files(tx, scope, _last_of(tx, scope, undone, nothing))


def redo_chosen(tx: Tx, scope: str, undone: Sequence[str], *, now_ms: int) -> Done:
    """Redo the last of these undos."""
    return redo(tx, scope, session_id=None, operation_id=chosen_redo(tx, scope, undone).id, now_ms=now_ms)


def _last_of(tx: Tx, scope: str, ids: Sequence[str], nothing: str) -> str:
    found = next((each for each in reversed(ids) if stands(tx, scope, each)), None)
    if found is None:
        raise Conflict(nothing)
    return found


def _with_files(tx: Tx, scope: str, operation_id: str) -> Chosen:
    row = find(tx, scope, operation_id)
    if row.session:
        return Chosen(row.id, sessions.by_number(tx, scope, row.session).id if moved_files(row) else None, None)
    return Chosen(row.id, None, WORKSPACE.get(tx, scope, row.workspace) if row.workspace else None)


def of_workspace(tx: Tx, scope: str, wid: int, kind: str) -> Chosen | None:
    """Return the newest operation on the files of a workspace that an undo or redo can act on, or None."""
    if kind == "undo":
        found = OPERATION.one(tx, f"{IN_WORKSPACE} AND {STANDS} ORDER BY oid DESC LIMIT 1", (scope, wid))
    else:
        where = f"{IN_WORKSPACE} AND kind = 'undo' AND undone_by IS NULL ORDER BY oid DESC LIMIT 1"
        found = OPERATION.one(tx, where, (scope, wid))
        since = "AND oid > ? AND kind NOT IN ('undo', 'redo') LIMIT 1"
        if found is not None and OPERATION.one(tx, f"{IN_WORKSPACE} {since}", (scope, wid, found.oid)):
            found = None
    return None if found is None else _with_files(tx, scope, found.id)


def undo_session(
    tx: Tx, scope: str, session_id: str, *, operation_id: str | None, now_ms: int, beside: Beside = NO_FILES
) -> Done:
    """Undo the newest standing operation of a session, or a named one; ``beside`` says what that changes in files."""
    session = sessions.get(tx, scope, session_id)
    if operation_id is None:
        row = _last_standing(tx, session)
        if row is None:
            raise Conflict("there is nothing to undo in this session")
        return _undo(tx, row, now_ms, beside)
    if find(tx, scope, operation_id).session != session.sid:
        raise NotFound(f"this session has no operation {operation_id!r}")
    return undo(tx, scope, operation_id, now_ms=now_ms, beside=beside)


def _last_standing(tx: Tx, session: SessionRow) -> OperationRow | None:
    """Return the newest operation of a session that is not undone, or None."""
    return OPERATION.one(tx, f"{OF} AND {STANDS} ORDER BY oid DESC LIMIT 1", (session.scope, session.sid, 0))


def find_to_take_up(tx: Tx, scope: str, session_id: str, kind: str, operation_id: str | None) -> OperationRow | None:
    """Return the operation that an undo or redo of a session would act on, or None."""
    session = sessions.get(tx, scope, session_id)
    if kind == "redo":
        return _last_undo(tx, scope, session_id)
    if operation_id is not None:
        row = find(tx, scope, operation_id)
        return row if row.session == session.sid and row.undone_by is None else None
    return _last_standing(tx, session)


def to_take_up(tx: Tx, scope: str, session_id: str, kind: str, operation_id: str | None) -> OperationRow:
    """Return the operation that an undo or redo of a session would act on; none raises ``Conflict``."""
    found = find_to_take_up(tx, scope, session_id, kind, operation_id)
    if found is None:
        raise Conflict(f"there is nothing to {kind} in this session")
    return found


def undo(tx: Tx, scope: str, operation_id: str, *, now_ms: int, beside: Beside = NO_FILES) -> Done:
    """Undo a named operation; a later one that changed the same property raises ``Conflict``."""
    row = find(tx, scope, operation_id)
    if row.kind in ("undo", "redo", "purge", "redact"):
        raise Conflict(f"an operation of kind {row.kind} cannot be undone; to revert an undo, use redo")
    if row.undone_by is not None:
        raise Conflict(f"operation {operation_id!r} is already undone")
    later = _touched_since(tx, row, STANDS)
    if later is not None:
        raise Conflict(
            f"a later operation ({later.kind}) changed the same thing; undo that one first",
            expected=operation_id,
            found=later.id,
        )
    return _undo(tx, row, now_ms, beside)


def _touched_since(tx: Tx, row: OperationRow, which: str) -> OperationRow | None:
    """Return the newest later operation among ``which`` that changed a property this one changed, or None."""
    before = codec.decode(row.before)
    if row.session or row.agent:
        where = f"{OF} AND oid > ? AND {which} ORDER BY oid DESC"
        for each in OPERATION.all(tx, where, (row.scope, row.session, row.agent, row.oid)):
            if before.keys() & codec.decode(each.before).keys():
                return each
    if row.workspace:  # somebody else's operation in the same directory
        paths = {*before["files"]["paths"]}
        where = f"{IN_WORKSPACE} AND oid > ? AND {which} ORDER BY oid DESC"
        for each in OPERATION.all(tx, where, (row.scope, row.workspace, row.oid)):
            if not paths.isdisjoint(codec.decode(each.before)["files"]["paths"]):
                return each
    return None


def _undo(tx: Tx, row: OperationRow, now_ms: int, beside: Beside) -> Done:
    done = _again(tx, row, "undo", now_ms, beside)
    set_undone(tx, row, find(tx, row.scope, done.operation.id).oid)
    return done


def redo(
    tx: Tx,
    scope: str,
    *,
    session_id: str | None,
    operation_id: str | None = None,
    now_ms: int,
    beside: Beside = NO_FILES,
) -> Done:
    """Redo the last undo of a session, or a named undo, unless another operation came since."""
    last = _last_undo(tx, scope, session_id) if operation_id is None else _named_undo(tx, scope, operation_id)
    if last is None:
        raise Conflict("there is nothing to redo")
    done = _again(tx, last, "redo", now_ms, beside)
    set_undone(tx, last, find(tx, scope, done.operation.id).oid)
    set_undone(tx, by_number(tx, scope, last.undoes or 0), None)
    return done


def _last_undo(tx: Tx, scope: str, session_id: str | None) -> OperationRow | None:
    sid = sessions.get(tx, scope, session_id or "").sid
    where = f"{OF} AND kind = 'undo' AND undone_by IS NULL ORDER BY oid DESC LIMIT 1"
    found = OPERATION.one(tx, where, (scope, sid, 0))
    return None if found is None or tx.one(SINCE, (scope, sid, 0, found.oid)) else found


def _named_undo(tx: Tx, scope: str, operation_id: str) -> OperationRow | None:
    """Return an undo that can be redone: nothing has changed the same properties since."""
    row = find(tx, scope, operation_id)
    which = "undone_by IS NULL AND kind <> 'redo'"  # what was brought back since is older than what this took back
    return None if row.undone_by is not None or _touched_since(tx, row, which) else row


def _again(tx: Tx, row: OperationRow, kind: str, now_ms: int, beside: Beside) -> Done:
    """Restore what was there before an operation."""
    before = codec.decode(row.before)
    before.pop("files", None)
    if row.agent:
        agent = agents.by_number(tx, row.scope, row.agent)
        return Done(on_agent(tx, agent, kind, before, now_ms=now_ms, undoes=row.oid)[1], None)
    if not row.session:
        return Done(on_workspace(tx, row.scope, kind, beside, now_ms=now_ms, undoes=row.oid)[1], None)
    session = sessions.by_number(tx, row.scope, row.session)
    session, done = on_session(tx, session, kind, before, now_ms=now_ms, undoes=row.oid, beside=beside)
    return Done(done, session)
