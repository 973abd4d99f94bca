"""Moving the files of a workspace alone, whoever changed them: to a moment of its timeline, and back again.

Such a move belongs to the workspace and to no session. It is an operation like any other, undone and redone by its id.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import codec
from ..clock import to_datetime
from ..errors import Conflict, Invalid, NotFound
from ..files import authors, roots, snapshots, timeline
from ..model import tree
from ..model.operation import Operation
from ..storage.base import Tx
from ..tables.files import WorkspaceRow
from ..tables.sessions import SessionRow
from . import blobs, operations, rewinds, sessions, undo, work
from .points import Target, seen_from

if TYPE_CHECKING:
    from ..files.disk.apply import Step
    from ..files.timeline import DirectoryAt


class WorkspaceGoal(NamedTuple):
    """Where a move of files goes: a time, a scan by its number, or a point of a session; or what an operation found."""

    kind: str = "rewind"
    at_ms: int | None = None
    scan: tuple[str, int, str] | None = None  # the timeline's uid, its number there, and the directory
    point: tuple[str, Target] | None = None
    operation: str | None = None


class FilesAt(NamedTuple):
    """A workspace, and what to go back to: the scan, its root and its time.

    ``since`` is the scan behind which changes are somebody else's, to be kept; None if everybody's are taken back.
    """

    workspace: WorkspaceRow
    n: int
    root: str
    at_ms: int
    since: int | None
    running: tuple[tuple[SessionRow, bytes], ...]  # sessions with calls that run here, and their processes
    paths: frozenset[bytes] = frozenset()  # what the operation that is reversed changed
    aside: Mapping[str, str] = MappingProxyType({})  # what the operation that is reversed moved aside


def look(tx: Tx, scope: str, place: DirectoryAt, goal: WorkspaceGoal) -> FilesAt:
    """Find what a goal stands for: the last good scan at or before it, or what an operation found."""
    workspace = timeline.find(tx, scope, place)
    if workspace is None or not workspace.tip:
        raise NotFound(
            f"the files of {place.path!r} were never captured; run a session there (takeback run), or guard it"
            " (takeback guard)"
        )
    running = tuple(authors.running(tx, workspace))
    if goal.operation is not None:
        row = operations.find(tx, scope, goal.operation)
        before = codec.decode(row.before)["files"]
        _, n, root = before["scan"]
        if not _is_there(tx, scope, root):
            raise Conflict("the files that this would bring back were erased when a session was purged", found=row.id)
        since = codec.decode(row.after)["files"]["scan"][1]
        scan = timeline.scan_at(tx, workspace, n)
        at_ms, aside = row.at_ms if scan is None else scan.at_ms, before.get("aside", {})
        return FilesAt(workspace, n, root, at_ms, since, running, _paths(before), aside)
    n = _scan_of(tx, workspace, goal)
    found = None if n is None else timeline.good_before(tx, workspace, n + 1)
    if found is None or found.root is None:
        raise NotFound(f"nothing is known of the files of {place.path!r} at that moment{_begins(tx, workspace)}")
    return FilesAt(workspace, found.n, found.root, found.at_ms, None, running)


def _paths(files: dict[str, Any]) -> frozenset[bytes]:
    return frozenset(os.fsencode(path) for path in files["paths"])


def _is_there(tx: Tx, scope: str, root: str) -> bool:
    """Whether what a root names was not erased; deeper damage is found when it is read."""
    if not blobs.exists(tx, scope, root):
        return False
    top = roots.read(tx, scope, root).tree
    return top == tree.EMPTY or blobs.exists(tx, scope, top.hex())


def _begins(tx: Tx, workspace: WorkspaceRow) -> str:
    first = timeline.scan_at(tx, workspace, 1)
    return "" if first is None else f"; its timeline begins at {to_datetime(first.at_ms):%Y-%m-%d %H:%M:%S} UTC"


def _scan_of(tx: Tx, workspace: WorkspaceRow, goal: WorkspaceGoal) -> int | None:
    """Return the number of the scan that a goal names."""
    if goal.scan is not None:
        uid, n, path = goal.scan
        if uid != workspace.uid:
            raise Invalid(f"that scan is of {path!r} in another timeline, not of {workspace.path!r} here")
        return n
    if goal.point is not None:
        session = sessions.get(tx, workspace.scope, goal.point[0])
        there = seen_from(tx, session, goal.point[1])
        taken = work.latest(tx, there, snapshots.KIND) or snapshots.at(tx, session, min(there.seq, session.seq))
        uid, n = ("", 0) if taken is None else taken.body.get("scan", ("", 0))
        return n if uid == workspace.uid else None
    found = timeline.before(tx, workspace, goal.at_ms or 0)
    return None if found is None else found.n


class WorkspaceWish(NamedTuple):
    """A move of files that was previewed."""

    place: DirectoryAt
    goal: WorkspaceGoal
    as_of: int
    steps: tuple[Step, ...]


def finish(tx: Tx, root: str, now_ms: int, *, scope: str, wish: WorkspaceWish) -> Operation:
    """Record a move of files that are in place; ``root`` is the workspace as it is now."""
    workspace = timeline.opened(tx, scope, wish.place, now_ms)
    moved, (kind, operation) = rewinds.files_moved(workspace, wish.steps, root), (wish.goal.kind, wish.goal.operation)
    if operation is None:
        done = operations.on_workspace(tx, scope, kind, moved, now_ms=now_ms)[1]
    elif kind == "undo":
        done = undo.undo(tx, scope, operation, now_ms=now_ms, beside=moved).operation
    else:
        done = undo.redo(tx, scope, session_id=None, operation_id=operation, now_ms=now_ms, beside=moved).operation
    timeline.restored(tx, workspace, root, wish.steps, session=None, as_of=wish.as_of, operation=done.id, now_ms=now_ms)
    return done
