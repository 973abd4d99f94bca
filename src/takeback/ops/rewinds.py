"""Moving a session in time with its files and its sub-agents: what that would change, and the transaction for it.

Files are not touched here. ``look`` reads where the session was at the point, with which files. ``move`` records the
move as an operation once the files are in place.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import codec
from ..errors import Conflict, Invalid
from ..files import snapshots, timeline
from ..files.disk import apply
from ..model.operation import Operation
from ..storage.base import Tx
from ..tables.files import WorkspaceRow
from ..tables.sessions import LeaseRow, SessionRow
from . import branches, entries, leases, moves, operations, sessions, subagents, undo, work
from . import subagent_points as below
from .moves import Target
from .operations import NO_FILES, Beside, OperationRow, View
from .points import located

if TYPE_CHECKING:
    from ..files.disk.apply import Step
    from .idempotency import ApiCall


class MoveFacts(NamedTuple):
    """A session as it is, and as it was at a point of its path or of another branch."""

    session: SessionRow
    view: list[Any]  # the head after the move
    point: entries.Point
    parting: entries.Point  # the last entry that both paths share
    at_ms: int
    workspace: WorkspaceRow | None  # the session's directory, with its newest scan
    there: str | None  # the root of the files at the point; None if they were never captured
    scan: int  # the scan behind which changes are to be taken back
    elsewhere: str  # the directory in which the files at the point were captured, if it is not the session's own
    is_quiet: bool  # both ends hold the same conversation, with only snapshots between them
    below: dict[str, list[Any]]
    apart: tuple[str, ...]  # workspaces of sub-agents other than the session's own
    work: bool  # whether tasks, plan, notes or state differ at the point
    runners: tuple[tuple[SessionRow, LeaseRow], ...]  # who runs the session and its sub-agents


class FilesThen(NamedTuple):
    """The files of a workspace at one moment: the scan, and its root."""

    uid: str
    n: int
    root: str
    aside: Mapping[str, str] = MappingProxyType({})  # paths from which an operation moved something aside, and to where


class Goal(NamedTuple):
    """Where a move goes: to a point that is resolved anew each time, or to what was before an operation.

    ``asked`` describes the request, to compare two with the same idempotency key.
    """

    kind: str
    target: Target
    asked: list[Any]
    operation: str | None = None
    files: FilesThen | None = None  # the files that an operation found
    alone: bool = False  # a move of files, without the conversation


def goal_of(row: OperationRow, kind: str, wanted: str | None) -> Goal:
    """Return where the undo or redo of an operation goes."""
    before, asked = codec.decode(row.before), asked_again(kind, wanted)
    head, found = before.get("head"), before.get("files") or {}
    files = FilesThen(*found["scan"])._replace(aside=found.get("aside", {})) if "scan" in found else None
    if head is not None:
        uid, seq, attached = head
        return Goal(kind, Target(seq, uid, anywhere=True, at_tip=bool(attached)), asked, wanted, files)
    if files is None:
        raise Invalid(f"that operation ({row.kind}) moves neither the conversation nor files: use {kind} directly")
    return Goal(kind, Target(at_head=True), asked, wanted, files, alone=True)


def asked_again(kind: str, wanted: str | None) -> list[Any]:
    """Describe an undo or redo, to compare two requests with the same idempotency key."""
    return ["undo", wanted] if kind == "undo" else [kind]


def look(tx: Tx, session: SessionRow, goal: Goal) -> MoveFacts:
    """Read what a move to a goal would change now."""
    place = located(tx, session, goal.target)
    point, origin = moves.point_of(tx, session, place)
    parting = moves.common_point(tx, session, place)
    there = sessions.standing_at(session, origin, point.seq, point.numbers)
    at_ms, workspace = _time_of(tx, there), timeline.of_session(tx, session)
    found = goal.files or _files_at(tx, session, there)
    elsewhere, scan = "", 0
    if found is not None and workspace is not None and found.uid == workspace.uid:
        scan = found.n
    elif found is not None and not _continues(tx, session, workspace):
        elsewhere = _where(tx, session.scope, found.uid)
    children = subagents.below(tx, session)
    moved = below.wanted(tx, children, there, at_ms)
    between = sum(1 for each in snapshots.since(tx, session, parting.seq) if each.seq > parting.seq)
    return MoveFacts(
        session,
        moves.head_at(tx, session, place),
        point,
        parting,
        at_ms,
        workspace,
        None if found is None or elsewhere else found.root,
        scan,
        elsewhere,
        point.seq == parting.seq and session.seq - parting.seq == between,
        moved,
        tuple(sorted({each.workspace for each in children if each.id in moved} - {"", session.workspace})),
        _work_of(tx, session) != _work_of(tx, there),
        _runners(tx, [session, *children]),
    )


def _files_at(tx: Tx, session: SessionRow, there: SessionRow) -> FilesThen | None:
    """Return the files at a point; before the first scan of a path nothing was seen to change."""
    found = work.latest(tx, there, snapshots.KIND) or snapshots.at(tx, session, min(there.seq, session.seq))
    if found is None:
        return None
    uid, n = found.body.get("scan", ("", 0))
    return FilesThen(uid, n, found.body["root"])


def _continues(tx: Tx, session: SessionRow, workspace: WorkspaceRow | None) -> bool:
    """Whether a session's directory began as the files that it had before: a fork into a directory of its own."""
    if workspace is None:
        return False
    first = timeline.scan_at(tx, workspace, 1)
    for each in work.history(tx, session, snapshots.KIND):
        if each.body.get("scan", ("", 0))[0] != workspace.uid:
            return first is not None and each.body["root"] == first.root
    return False


def _where(tx: Tx, scope: str, uid: str) -> str:
    found = timeline.by_uid(tx, scope, uid) if uid else None
    return "another directory" if found is None else found.path


def _work_of(tx: Tx, session: SessionRow) -> dict[str, int]:
    """Return the last entry of each kind of work that people see."""
    hidden = (snapshots.KIND, snapshots.ANNOUNCED, below.KIND)
    return {kind: seq for kind, seq in work.lasts(tx, session).items() if kind not in hidden}


def _time_of(tx: Tx, there: SessionRow) -> int:
    if there.seq == 0:
        return there.created_ms - 1
    (row,) = entries.read(tx, there.scope, entries.path_segments(tx, there, there.seq - 1, there.seq))
    return row.at_ms


def _runners(tx: Tx, tree: list[SessionRow]) -> tuple[tuple[SessionRow, LeaseRow], ...]:
    found = ((each, sessions.find_lease(tx, each)) for each in tree)
    return tuple((each, lease) for each, lease in found if lease is not None and lease.holder is not None)


class Wish(NamedTuple):
    """A move that was previewed: where to, with what, and the facts at that time."""

    look: MoveFacts
    kind: str
    operation: str | None = None  # the operation that an undo or redo acts on
    conversation: bool = True
    files: bool = True
    steps: tuple[Step, ...] = ()  # what changes on disk
    take_over: bool = False
    token: int = 0  # of the caller's lease
    actual: str | None = None  # the root of what is in the workspace after that; None if files stay


def move_as_seen(
    tx: Tx, scope: str, session_id: str, wish: Wish, revision: int, *, now_ms: int
) -> tuple[SessionRow, Operation]:
    """Move a session unless it changed since the preview."""
    _require_same(sessions.get(tx, scope, session_id), revision)
    return move(tx, scope, session_id, wish, now_ms=now_ms)


def finish(
    tx: Tx,
    root: str,
    now_ms: int,
    *,
    where: tuple[str, str],
    call: ApiCall,
    wish: Wish,
    revision: int,
    fence: leases.Fence | None,
) -> tuple[SessionRow, Operation]:
    """Move a session whose files are in place, once per idempotency key; ``root`` is the workspace as it is now.

    Changing files takes time, so the operation is dated by its commit (``now_ms``) and not by its call.
    """
    session = sessions.get(tx, *where)
    _require_same(session, revision)
    if fence is not None:
        leases.require(tx, session, fence)
    call = call._replace(now_ms=now_ms)
    return operations.once(tx, *where, call, move_as_seen, wish._replace(actual=root), revision)


def _require_same(session: SessionRow, revision: int) -> None:
    if session.revision != revision:
        raise Conflict(
            "the session changed since the preview; preview again", expected=revision, found=session.revision
        )


def move(tx: Tx, scope: str, session_id: str, wish: Wish, *, now_ms: int) -> tuple[SessionRow, Operation]:
    """Move the head, state of work, sub-agents and what is known of the files, as one operation."""
    session = sessions.get(tx, scope, session_id)
    if wish.take_over:
        _fence(tx, session, wish.token, now_ms)
        session = sessions.get(tx, scope, session_id)  # again: fencing changed its row
    workspace = None if wish.actual is None else timeline.of_session(tx, session)
    beside = NO_FILES if workspace is None else files_moved(workspace, wish.steps, wish.actual or "")
    if wish.kind in ("undo", "redo"):
        done = _take_up(tx, session, wish, beside, now_ms)
        session, operation = done.session or session, done.operation
    elif wish.conversation:
        after: View = {"head": wish.look.view} | ({"below": wish.look.below} if wish.look.below else {})
        session, operation = operations.on_session(tx, session, wish.kind, after, now_ms=now_ms, beside=beside)
    else:
        session, operation = operations.on_session(tx, session, wish.kind, {}, now_ms=now_ms, beside=beside)
    if operation.summary == operations.NOTHING:
        return session, operation
    if workspace is not None and wish.actual is not None:
        workspace, _ = timeline.restored(
            tx,
            workspace,
            wish.actual,
            wish.steps,
            session=session,
            as_of=wish.look.scan,
            operation=operation.id,
            now_ms=now_ms,
        )
    elif not wish.files:  # the conversation goes alone
        workspace = timeline.of_session(tx, session)
    if workspace is not None and workspace.root:
        session = _note_files(tx, session, workspace, wish, now_ms)
    return session, operation


def files_moved(workspace: WorkspaceRow, steps: Sequence[Step], actual: str) -> Beside:
    """Describe the files before and after a move."""
    about: View = {"workspace": workspace.path, "paths": [os.fsdecode(path) for path in apply.touched(steps)]}
    if aside := {os.fsdecode(path): os.fsdecode(name) for path, name in apply.aside(steps)}:
        about["aside"] = aside
    before = [workspace.uid, workspace.tip, workspace.root]
    after = [workspace.uid, workspace.tip + (actual != workspace.root), actual]
    return Beside(workspace.wid, {"files": {**about, "scan": before}}, {"files": {**about, "scan": after}})


def _take_up(tx: Tx, session: SessionRow, wish: Wish, beside: Beside, now_ms: int) -> operations.Done:
    if wish.kind == "redo":
        return undo.redo(tx, session.scope, session_id=session.id, now_ms=now_ms, beside=beside)
    return undo.undo_session(tx, session.scope, session.id, operation_id=wish.operation, now_ms=now_ms, beside=beside)


def _note_files(tx: Tx, session: SessionRow, workspace: WorkspaceRow, wish: Wish, now_ms: int) -> SessionRow:
    """Record at the head what is in the workspace now, unless that is what was there then."""
    same = wish.conversation and workspace.root == wish.look.there
    if wish.look.there is None or same or snapshots.is_recorded(tx, session, workspace.root):
        return session
    if session.attached and wish.conversation and wish.kind == "rewind":  # on a branch of its own, as after any rewind
        branches.set_tip(tx, branches.get(tx, session.scope, session.branch), session.seq, session.hash)
        session = sessions.write(tx, session, attached=0)
    root, revision = workspace.root, session.revision
    made = snapshots.put(tx, session, root, at=workspace, who=snapshots.FOUND, carried=root, now_ms=now_ms)
    return sessions.write(tx, made, revision=revision)


def _fence(tx: Tx, session: SessionRow, own: int, now_ms: int) -> None:
    """Fence off everybody else who runs a session or its sub-agents: their next write is refused."""
    for each, lease in _runners(tx, [session, *subagents.below(tx, session)]):
        if each.sid != session.sid or lease.token != own:
            leases.put(tx, lease._replace(token=lease.token + 1, holder=None))
            # Read again under its lock: whoever runs a sub-agent may have appended to it since it was found.
            leases.changed(tx, sessions.by_number(tx, each.scope, each.sid), now_ms)
