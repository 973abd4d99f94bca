"""Moving a session in time with its files and its sub-agents: what that would change, and the transaction for it.

Files are not touched here. ``look`` reads which snapshots are in force at the head and at the point, and who changed
what in between. ``move`` records the move as an operation once the files are in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import codec
from ..errors import Conflict, Invalid, NotFound
from ..files import snapshots
from ..model.operation import Operation
from ..storage.base import Tx
from ..tables.sessions import LEASE, SESSION, LeaseRow, SessionRow
from . import branches, calls, entries, leases, moves, operations, sessions, subagents, undo, work
from . import subagent_points as below
from .moves import Target
from .operations import OperationRow, View
from .points import located
from .work import WorkEntry

if TYPE_CHECKING:
    from .idempotency import ApiCall

LIVE = f"""SELECT {SESSION.selected("s")}, {LEASE.selected("l")}
FROM lease l CROSS JOIN session s
WHERE l.scope = ? AND l.holder IS NOT NULL AND s.scope = l.scope AND s.sid = l.session AND s.hidden = 0"""


class MoveFacts(NamedTuple):
    """A session as it is, and as it was at a point of its path or of another branch."""

    session: SessionRow
    view: list[Any]  # the head after the move
    point: entries.Point
    parting: entries.Point  # the last entry that both paths share
    at_ms: int
    here: str | None  # the root of the snapshot at the head; without one, of what is known to be on disk
    there: str | None  # the root of the snapshot at the point
    disk: str | None
    changes: tuple[WorkEntry, ...]  # snapshots after the parting, newest first, ending with the one in force there
    history: tuple[tuple[WorkEntry, int], ...]  # the same along the path to what is on disk, each with its turn
    open: tuple[str, ...]  # calls that may be running
    below: dict[str, list[Any]]
    elsewhere: tuple[str, ...]  # workspaces of sub-agents other than the session's own
    work: bool  # whether tasks, plan, notes or state differ at the point
    runners: tuple[tuple[SessionRow, LeaseRow], ...]  # who runs the session and its sub-agents

    @property
    def is_quiet(self) -> bool:
        """Whether both ends hold the same conversation, with only snapshots between them."""
        new = sum(each.seq > self.parting.seq for each in self.changes)
        return self.point.seq == self.parting.seq and self.session.seq - self.parting.seq == new


class Goal(NamedTuple):
    """Where a move goes: to a point that is resolved anew each time, or to what was before an operation.

    ``asked`` describes the request, to compare two with the same idempotency key.
    """

    kind: str
    target: Target
    asked: list[Any]
    operation: str | None = None
    files: tuple[str, int] | None = None  # for a move of files alone: the root, and the entry since which they differ
    since: tuple[str, int] | None = None  # where the operation left the head: earlier changes are its own doing


def goal_of(row: OperationRow, kind: str, wanted: str | None) -> Goal:
    """Return where the undo or redo of an operation goes."""
    before, asked = codec.decode(row.before), asked_again(kind, wanted)
    head, alone = before.get("head"), before.get("files", {}).get("root")
    if head is not None:
        uid, seq, attached = head
        left_uid, left_seq, _ = codec.decode(row.after)["head"]
        target = Target(seq, uid, anywhere=True, at_tip=bool(attached))
        return Goal(kind, target, asked, wanted, since=(left_uid, left_seq))
    if alone is None:
        raise Invalid(f"that operation ({row.kind}) moves neither the conversation nor files: use {kind} directly")
    return Goal(kind, Target(at_head=True), asked, wanted, files=(alone, before["files"]["seq"]))


def asked_again(kind: str, wanted: str | None) -> list[Any]:
    """Describe an undo or redo, to compare two requests with the same idempotency key."""
    return ["undo", wanted] if kind == "undo" else [kind]


def look_at(tx: Tx, session: SessionRow, goal: Goal) -> MoveFacts:
    """Read what a move to a goal would change now."""
    found = look(tx, session, goal.target)
    if goal.files is not None:
        return of_files(tx, found, *goal.files)
    return found if goal.since is None else seen_since(tx, found, *goal.since)


def look(tx: Tx, session: SessionRow, target: Target) -> MoveFacts:
    """Read what a move to a point would change."""
    place = located(tx, session, target)
    point, origin = moves.point_of(tx, session, place)
    parting = moves.common_point(tx, session, place)
    there = sessions.standing_at(session, origin, point.seq, point.numbers)
    at_ms = _time_of(tx, there)
    changes = snapshots.since(tx, session, parting.seq)
    disk = snapshots.disk_of(tx, session)
    then = work.latest(tx, there, snapshots.KIND)
    if then is None and changes:  # nothing was seen to change before the first scan
        then = work.entry_at(tx, session, changes[0].body["first"])
    children = subagents.below(tx, session)
    moved = below.wanted(tx, children, there, at_ms)
    return MoveFacts(
        session,
        moves.head_at(tx, session, place),
        point,
        parting,
        at_ms,
        changes[0].body["root"] if changes else disk,
        None if then is None else then.body["root"],
        disk,
        tuple(changes),
        tuple(_history(tx, session, Target(point.seq, origin.uid, anywhere=True), changes)),
        tuple(calls.going_on(tx, session)) if session.workspace else (),
        moved,
        tuple(sorted({each.workspace for each in children if each.id in moved} - {"", session.workspace})),
        _work_of(tx, session) != _work_of(tx, there),
        _runners(tx, [session, *children]),
    )


def _history(tx: Tx, session: SessionRow, place: Target, changes: list[WorkEntry]) -> Iterator[tuple[WorkEntry, int]]:
    """Yield the snapshots by which the files of a point became what is on disk, newest first, with their turns.

    If the head moved and the files stayed, they are on the path where the files were last scanned.
    """
    row: SessionRow | None = _where_files_are(tx, session)
    if row == session and not any("at" in each.body for each in changes):
        yield from _with_turns(tx, session, changes)
        return
    while row is not None:
        low, path, row = moves.common_point(tx, row, place).seq, row, None
        for each in work.history(tx, path, snapshots.KIND):
            yield each, entries.numbers_at(tx, path, each.seq).turns
            if each.seq <= low:
                return
            if "at" in each.body:
                row = _standing(tx, session, each.body["at"])
                break


def _where_files_are(tx: Tx, session: SessionRow) -> SessionRow:
    """Return the session as it was when its files were last scanned; as it is now if they match the head."""
    disk, at = snapshots.disk_of(tx, session), snapshots.disk_at(tx, session)
    last = work.latest(tx, session, snapshots.KIND)
    if disk is None or at is None or (last is not None and last.body["root"] == disk):
        return session
    return _standing(tx, session, at) or session


def _standing(tx: Tx, session: SessionRow, at: list[Any]) -> SessionRow | None:
    """Return the session as it was at an entry of a branch, or None if that was purged."""
    try:
        point, origin = moves.point_of(tx, session, Target(at[1], at[0], anywhere=True))
    except NotFound:
        return None
    return sessions.standing_at(session, origin, point.seq, point.numbers)


def of_files(tx: Tx, look: MoveFacts, root: str, seq: int) -> MoveFacts:
    """Return the facts for a move of files alone: to a root, from what was recorded since an entry."""
    return _changed_since(tx, look._replace(there=root), min(seq, look.session.seq))


def seen_since(tx: Tx, look: MoveFacts, uid: str, seq: int) -> MoveFacts:
    """Return the facts for the undo of a move: only what changed since that move can be somebody else's."""
    if seq:
        branch = branches.find(tx, look.session.scope, look.session.sid, uid)
        if not entries.is_on_path(tx, look.session, branches.owner(tx, branch, seq).uid, seq):
            return look
    return _changed_since(tx, look, seq)


def _changed_since(tx: Tx, look: MoveFacts, seq: int) -> MoveFacts:
    """Count changes from a move on; what the move itself kept or restored, in the next snapshot, does not count."""
    changes = snapshots.since(tx, look.session, seq)
    own = len(changes) > 1 and changes[-2].body.get("kept") and changes[-2].seq == seq + 1
    history = _with_turns(tx, look.session, changes[:-1] if own else changes)
    return look._replace(changes=tuple(changes), history=tuple(history))


def _with_turns(tx: Tx, session: SessionRow, changes: list[WorkEntry]) -> Iterator[tuple[WorkEntry, int]]:
    return ((each, entries.numbers_at(tx, session, each.seq).turns) for each in changes)


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


def others_in(tx: Tx, session: SessionRow) -> list[tuple[SessionRow, LeaseRow]]:
    """Return the running sessions in the same workspace, except this one and its sub-agents."""
    own = {session.sid, *(each.sid for each in subagents.below(tx, session))}
    rows = tx.all(LIVE, (session.scope,)) if session.workspace else []
    found = ((SESSION.checked(row[: SESSION.width]), LEASE.checked(row[SESSION.width :])) for row in rows)
    return [(each, lease) for each, lease in found if each.sid not in own and _overlap(each, session)]


def _overlap(one: SessionRow, other: SessionRow) -> bool:
    """Whether one workspace is the other or is inside it."""
    paths = [f"{each.workspace}/" for each in (one, other)]
    return bool(one.workspace) and (paths[0].startswith(paths[1]) or paths[1].startswith(paths[0]))


class Wish(NamedTuple):
    """A move that was previewed: where to, with what, and the facts at that time."""

    look: MoveFacts
    kind: str
    operation: str | None = None  # the operation that an undo or redo acts on
    conversation: bool = True
    files: bool = True
    paths: tuple[str, ...] = ()  # the paths that change on disk
    result: str | None = None  # the root of the workspace after that
    take_over: bool = False
    token: int = 0  # of the caller's lease
    actual: str | None = None  # the root of what is really in the workspace then, including what was kept


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
    moved = wish.result is not None
    about = {"workspace": session.workspace, "paths": list(wish.paths)}
    if wish.kind in ("undo", "redo"):
        done = _take_up(tx, session, wish, about, now_ms)
        session, operation = done.session or session, done.operation
        if moved and not wish.conversation:
            session = _say_files(tx, session, str(wish.result), snapshots.SESSION, now_ms)
    elif wish.conversation:
        session, operation = _rewind(tx, session, wish, {"files": about} if moved else {}, now_ms)
    else:
        session, operation = _rewind_files(tx, session, wish, about, now_ms)
    if wish.result is not None and operation.summary != operations.NOTHING:
        snapshots.set_disk(tx, session, wish.result)
        if wish.actual not in (None, wish.result):  # what was kept stays attributed to somebody else
            session = _say_files(tx, session, str(wish.actual), snapshots.OUTSIDE, now_ms, kept=True)
    return session, operation


def _take_up(tx: Tx, session: SessionRow, wish: Wish, about: View, now_ms: int) -> operations.Done:
    files = about if wish.result is not None else None
    if wish.kind == "redo":
        return undo.redo(tx, session.scope, session_id=session.id, now_ms=now_ms, files=files)
    return undo.undo_session(tx, session.scope, session.id, operation_id=wish.operation, now_ms=now_ms, files=files)


def _say_files(tx: Tx, session: SessionRow, root: str, who: str, now_ms: int, *, kept: bool = False) -> SessionRow:
    """Record at the head what is in the workspace now."""
    if snapshots.disk_of(tx, session) == root:
        return session
    return snapshots.put(tx, session, root, who=who, carried=None, now_ms=now_ms, kept=kept)


def _rewind_files(tx: Tx, session: SessionRow, wish: Wish, about: View, now_ms: int) -> tuple[SessionRow, Operation]:
    """Rewind only the files: the conversation stays, and a snapshot at its head records what is there now."""
    before = snapshots.disk_of(tx, session)
    if wish.result is None or before == wish.result:
        return operations.on_session(tx, session, wish.kind, {}, now_ms=now_ms)
    session = _say_files(tx, session, wish.result, snapshots.SESSION, now_ms)
    after = {"files": {**about, "root": wish.result, "seq": session.seq}}
    return operations.note(tx, session, wish.kind, {"files": {**after["files"], "root": before}}, after, now_ms)


def _rewind(tx: Tx, session: SessionRow, wish: Wish, files: View, now_ms: int) -> tuple[SessionRow, Operation]:
    look_ = wish.look
    after: View = {"head": look_.view, **files}
    if look_.below:
        after["below"] = look_.below
    root = look_.disk
    if wish.files or look_.here is None or root is None or look_.there == root:
        return operations.on_session(tx, session, wish.kind, after, now_ms=now_ms)
    return _without_files(tx, session, wish.kind, after, root, now_ms)


def _without_files(
    tx: Tx, session: SessionRow, kind: str, after: View, root: str, now_ms: int
) -> tuple[SessionRow, Operation]:
    """Rewind only the conversation: a snapshot on a new branch records what is in the workspace."""
    before = operations.view_of(tx, session, after)
    moved = operations.put_in_place(tx, session, after, now_ms)
    if moved.attached:
        branches.set_tip(tx, branches.get(tx, moved.scope, moved.branch), moved.seq, moved.hash)
        moved = sessions.write(tx, moved, attached=0)
    revision = session.revision
    moved = snapshots.put(tx, moved, root, who=snapshots.SESSION, carried=None, now_ms=now_ms)
    moved = sessions.write(tx, moved, revision=revision + 1)
    return operations.note(tx, moved, kind, before, {**after, "head": operations.head_view(moved)}, now_ms)


def _fence(tx: Tx, session: SessionRow, own: int, now_ms: int) -> None:
    """Fence off everybody else who runs a session or its sub-agents: their next write is refused."""
    for each, lease in _runners(tx, [session, *subagents.below(tx, session)]):
        if each.sid != session.sid or lease.token != own:
            leases.put(tx, lease._replace(token=lease.token + 1, holder=None))
            # Read again under its lock: whoever runs a sub-agent may have appended to it since it was found.
            leases.changed(tx, sessions.by_number(tx, each.scope, each.sid), now_ms)
