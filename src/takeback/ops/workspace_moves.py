"""Moving the files of a workspace alone, whoever changed them: to a moment of its timeline, and back again.

Such a move belongs to the workspace and to no session. It is an operation like any other, undone and redone by its id.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from .. import codec
from ..errors import Conflict, NotFound
from ..files import snapshots, timeline
from ..model.operation import Operation
from ..storage.base import Tx
from ..tables.files import ScanRow, WorkspaceRow
from ..tables.history import OPERATION, OperationRow
from . import operations, sessions, work
from .points import Target, seen_from

if TYPE_CHECKING:
    from ..files.disk.apply import Step
    from ..files.timeline import DirectoryAt

OF_WORKSPACE = "INDEXED BY operation_session WHERE scope = ? AND session = 0 AND agent = 0 AND workspace = ?"


class WorkspaceGoal(NamedTuple):
    """Where a move of files goes: a time, a scan by its number, or a point of a session; or what an operation found."""

    kind: str = "rewind"
    at_ms: int | None = None
    n: int | None = None
    point: tuple[str, Target] | None = None
    operation: str | None = None


class FilesAt(NamedTuple):
    """A workspace, and the scan to go back to."""

    workspace: WorkspaceRow
    scan: ScanRow


def look(tx: Tx, scope: str, place: DirectoryAt, goal: WorkspaceGoal) -> FilesAt:
    """Find the scan that a goal stands for: the last good one at or before it."""
    workspace = timeline.find(tx, scope, place)
    if workspace is None or not workspace.tip:
        raise NotFound(f"the files of {place.path!r} were never captured; run a session there, or guard it")
    found = _scan_of(tx, workspace, goal)
    if found is None or found.root is None:
        raise NotFound(f"nothing is known of the files of {place.path!r} at that moment")
    return FilesAt(workspace, found)


def _scan_of(tx: Tx, workspace: WorkspaceRow, goal: WorkspaceGoal) -> ScanRow | None:
    if goal.operation is not None:
        uid, n, _ = codec.decode(operations.find(tx, workspace.scope, goal.operation).before)["files"]["scan"]
        return timeline.scan_at(tx, workspace, n) if uid == workspace.uid else None
    if goal.point is not None:
        session = sessions.get(tx, workspace.scope, goal.point[0])
        there = seen_from(tx, session, goal.point[1])
        taken = work.latest(tx, there, snapshots.KIND) or snapshots.at(tx, session, min(there.seq, session.seq))
        uid, n = ("", 0) if taken is None else taken.body.get("scan", ("", 0))
        return timeline.scan_at(tx, workspace, n) if uid == workspace.uid else None
    if goal.n is not None:
        found = timeline.scan_at(tx, workspace, goal.n)
        return found if found is None or found.root is not None else timeline.good_before(tx, workspace, goal.n)
    return timeline.before(tx, workspace, goal.at_ms or 0)


class WorkspaceWish(NamedTuple):
    """A move of files that was previewed."""

    place: DirectoryAt
    goal: WorkspaceGoal
    as_of: int
    steps: tuple[Step, ...]


def finish(tx: Tx, root: str, now_ms: int, *, scope: str, wish: WorkspaceWish) -> Operation:
    """Record a move of files that are in place; ``root`` is the workspace as it is now."""
    workspace = timeline.opened(tx, scope, wish.place, now_ms)
    kind, undoes = wish.goal.kind, None
    if wish.goal.operation is not None:
        undoes = _undoable(tx, workspace, wish.goal)
    about = {"workspace": workspace.path, "paths": [os.fsdecode(each.path) for each in wish.steps]}
    before = [workspace.uid, workspace.tip, workspace.root]
    after = [workspace.uid, workspace.tip + (root != workspace.root), root]
    views = {"files": {**about, "scan": before}}, {"files": {**about, "scan": after}}
    row = operations.record(tx, kind, (scope, 0, 0, workspace.wid), *views, now_ms, undoes and undoes.oid)
    if undoes is not None:
        operations.set_undone(tx, undoes, row.oid)
        if kind == "redo" and undoes.undoes:
            operations.set_undone(tx, operations.by_number(tx, scope, undoes.undoes), None)
    timeline.restored(
        tx, workspace, root, wish.steps, session=None, as_of=wish.as_of, operation=row.id, now_ms=now_ms
    )
    return operations.as_value(tx, row, None, None)


def _undoable(tx: Tx, workspace: WorkspaceRow, goal: WorkspaceGoal) -> OperationRow:
    """Return the operation that an undo or redo acts on; a later one in this workspace raises ``Conflict``."""
    row = operations.find(tx, workspace.scope, goal.operation or "")
    if row.undone_by is not None:
        raise Conflict(f"operation {row.id!r} is already undone")
    where = f"{OF_WORKSPACE} AND oid > ? AND undone_by IS NULL AND kind NOT IN ('undo', 'redo') LIMIT 1"
    later = OPERATION.one(tx, where, (workspace.scope, workspace.wid, row.oid))
    if later is not None:
        raise Conflict(f"a later operation ({later.kind}) changed the same files; undo that one first", found=later.id)
    return row
