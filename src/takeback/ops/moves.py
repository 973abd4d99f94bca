"""Moving a session's head, and every other operation on one session.

Nothing is copied and nothing is removed: a rewind moves the head back, and a fork opens a branch that reads from the
one it starts on, in the same session or in a new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import codec
from ..errors import Conflict, NotFound
from ..ids import new_id
from ..model.branch import Branch
from ..model.entry import Draft
from ..model.message import MESSAGE_KINDS
from ..model.operation import Operation
from ..model.status import require_open
from ..storage.base import Tx
from ..tables.entries import EntryRow
from . import agents, branches, calls, entries, idempotency, operations, refs, sessions
from .points import Target as Target
from .points import located
from .points import point_of as point_of
from .points import tip_of as tip_of
from .sessions import SessionRow

if TYPE_CHECKING:
    from .idempotency import ApiCall
    from .operations import View


def change(tx: Tx, scope: str, session_id: str, kind: str, after: View, *, now_ms: int) -> tuple[SessionRow, Operation]:
    """Change fields of a session as one operation."""
    return operations.on_session(tx, sessions.get(tx, scope, session_id), kind, after, now_ms=now_ms)


def retag(
    tx: Tx, scope: str, session_id: str, *, add: Sequence[str], drop: Sequence[str], now_ms: int
) -> tuple[SessionRow, Operation]:
    """Add and remove tags, which keep the order in which they were added."""
    session = sessions.get(tx, scope, session_id)
    kept = [tag for tag in sessions.unpack_tags(session.tags) if tag not in drop]
    tags = sessions.pack_tags(tuple(dict.fromkeys([*kept, *add])))
    return operations.on_session(tx, session, "tag" if add else "untag", {"tags": tags}, now_ms=now_ms)


def head_at(tx: Tx, session: SessionRow, target: Target) -> list[str | int]:
    """Describe the head after a move to this point."""
    place = located(tx, session, target)
    if place.anywhere and place.uid is not None:
        branch = branches.find(tx, session.scope, session.sid, place.uid)
        point = entries.point_on(tx, session.scope, branch, place.seq)
        return [place.uid, point.seq, int(place.attached)]
    if place.seq == session.seq:
        entries.place_of(tx, session, place.seq, place.uid)
        return operations.head_view(session)
    point = entries.place_of(tx, session, place.seq, place.uid)
    # A session that began as a fork keeps its head on a branch of its own, even at an entry of another session.
    own = branches.get(tx, session.scope, point.branch).session == session.sid
    return [point.uid if own else session.uid, point.seq, 0]


def switch(tx: Tx, scope: str, session_id: str, *, branch: str, now_ms: int) -> tuple[SessionRow, Operation]:
    """Move the head to the tip of a branch."""
    session = sessions.get(tx, scope, session_id)
    return operations.on_session(tx, session, "switch", {"head": tip_of(tx, session, branch)}, now_ms=now_ms)


def hide(
    tx: Tx, scope: str, session_id: str, *, hidden: bool, with_below: bool = True, now_ms: int
) -> tuple[SessionRow, Operation] | None:
    """Move a session to the trash or out of it; return None if it does not exist or nothing changes.

    With ``with_below``, its sub-agents go with it, and those that went with it come back with it. A main, directory or
    cron session goes back to empty instead, since exactly one of it always exists.
    """
    session = operations.unless_purged(tx, scope, session_id)
    if session is None:
        return None
    along: View = {}
    if with_below and (found := _visible_below(tx, session) if hidden else _went_with(tx, session)):
        along = {"below": {row.id: [*operations.head_view(row), int(hidden)] for row in found}}
    if hidden and is_fixed(session):
        if session.seq == 0 and not along:
            return None
        after: View = {"head": head_at(tx, session, Target(0)), "title": None, **along}
        return operations.on_session(tx, session, "delete", after, now_ms=now_ms)
    if bool(session.hidden) == hidden:
        return None
    kind = "delete" if hidden else "restore"
    after = {"hidden": int(hidden), "name": session.name, **along}
    return operations.on_session(tx, session, kind, after, now_ms=now_ms)


def hide_named(
    tx: Tx, scope: str, wanted: str, *, hidden: bool, with_below: bool = True, now_ms: int
) -> tuple[SessionRow, Operation] | None:
    """Move a session to the trash or out of it, by id, key or name; None if it does not exist."""
    row = refs.exact(tx, scope, wanted, agent=None, workspace=None)
    return None if row is None else hide(tx, scope, row.id, hidden=hidden, with_below=with_below, now_ms=now_ms)


def _visible_below(tx: Tx, session: SessionRow) -> list[SessionRow]:
    from . import subagents  # few operations reach below a session

    return [row for row in subagents.below(tx, session) if not row.hidden and not is_fixed(row)]


def _went_with(tx: Tx, session: SessionRow) -> list[SessionRow]:
    """Return the sessions below one in the trash that went there with it, and not on their own before or since."""
    from . import subagents

    below = {row.id: row for row in subagents.below(tx, session) if row.hidden}
    gone = operations.hid(tx, session, subagents.above(tx, session)) if below else None
    if gone is None:
        return []
    found = [below[each] for each in operations.hidden_by(gone) & below.keys()]
    since = operations.hidden_since(tx, session.scope, [row.sid for row in found], gone.oid)
    return [row for row in found if row.sid not in since]


def is_fixed(session: SessionRow) -> bool:
    """Whether a session is the one main, directory or cron session of its agent."""
    return session.key.split(":")[2] not in ("session", "subagent")


# ---------------------------------------------------------------------- forks


def fork(
    tx: Tx, scope: str, session_id: str, target: Target | None, *, name: str | None, now_ms: int
) -> tuple[SessionRow, Operation]:
    """Open a branch at a point without copying anything; the head stays."""
    session = sessions.get(tx, scope, session_id)
    point, origin = point_of(tx, session, target)
    if name is None:
        name = branches.free_name(tx, scope, session.sid, base=origin.name, count=session.branches)
    elif branches.find_by_name(tx, scope, session.sid, name):
        raise Conflict(f"this session already has a branch {name!r}; choose another name", found=name)
    made = branches.create(
        tx, scope, session.sid, name=name, origin=origin, seq=point.seq, tip_hash=point.hash, now_ms=now_ms
    )
    branches.set_hidden(tx, made, 1)  # hidden first: the operation shows it, so that its undo hides it again
    session = sessions.write(tx, session, branches=session.branches + 1)
    return operations.on_session(tx, session, "fork", {"branch": [made.uid, 0]}, now_ms=now_ms)


def forked_branch(tx: Tx, session: SessionRow, operation_id: str) -> Branch:
    """Return the branch that a fork opened."""
    row = operations.find(tx, session.scope, operation_id)
    branch = branches.find(tx, session.scope, row.session, codec.decode(row.after)["branch"][0])
    above = None if branch.parent is None else branches.get(tx, session.scope, branch.parent)
    return branches.as_value(session, branch, {} if above is None else {above.bid: above.name})


def forked_session(tx: Tx, scope: str, operation_id: str) -> sessions.Whole:
    """Return the session that a fork made."""
    row = operations.find(tx, scope, operation_id)
    return sessions.whole(tx, scope, codec.decode(row.after)["session"][0])


def fork_session(
    tx: Tx,
    scope: str,
    session_id: str,
    target: Target | None,
    *,
    name: str | None,
    workspace: str | None = None,
    now_ms: int,
) -> tuple[SessionRow, Operation]:
    """Start a session at a point of this one, as one operation; it reads from the branches it came from."""
    session = sessions.get(tx, scope, session_id)
    point, origin = point_of(tx, session, target)
    fields = sessions.SessionFields(
        agent=session.agent,
        name=name,
        workspace=session.workspace if workspace is None else workspace,
        title=session.title,
        detail=_forked_detail(tx, session, now_ms),
    )
    agents.ensure(tx, scope, session.agent, now_ms=now_ms)
    start = sessions.Origin(origin, point.seq, point.hash, point.numbers)
    made = sessions.create(tx, scope, fields, now_ms=now_ms, origin=start)
    made = operations.counted(tx, made)
    # State versions continue from the original: one number never names two contents. The new session starts in the
    # trash and the operation takes it out, so that its undo puts it back there.
    sessions.write(tx, made, states=session.states, hidden=1)
    return operations.on_session(tx, session, "fork", {"session": [made.id, 0]}, now_ms=now_ms)


def _forked_detail(tx: Tx, session: SessionRow, now_ms: int) -> bytes:
    """Return the details of a fork: those of the session, with a run id of its own and where it came from."""
    kept = sessions.decoded(sessions.detail(tx, session))
    kept = {
        name: value
        for name, value in kept.items()
        if name not in ("parent_id", "directory", "came_from", "ended", *sessions.UNDER_WAY)
    }
    return codec.encode({**kept, "run_id": new_id(now_ms), "forked_from": session.id})


# ---------------------------------------------------------------------- the end of the path


def pop(tx: Tx, scope: str, session_id: str, *, now_ms: int) -> tuple[SessionRow, Operation | None]:
    """Take the last message off the path, with whatever came after it; do nothing if there is none."""
    session = entries.writable(tx, scope, session_id)
    seq = _last_message(tx, session)
    if seq is None:
        return session, None
    return operations.on_session(tx, session, "pop", {"head": head_at(tx, session, Target(seq - 1))}, now_ms=now_ms)


def pop_once(
    tx: Tx, scope: str, session_id: str, call: ApiCall
) -> tuple[SessionRow, Operation | None, list[EntryRow], dict[int, str]]:
    """Take the last message off the path, once per idempotency key, and read it."""

    def do() -> tuple[tuple[SessionRow, Operation | None], str]:
        session, done = pop(tx, scope, session_id, now_ms=call.now_ms)
        return (session, done), done.id if done else ""

    def again(made: str) -> tuple[SessionRow, Operation | None]:
        return sessions.get(tx, scope, session_id), operations.named(tx, operations.find(tx, scope, made))

    sid = sessions.get(tx, scope, session_id).sid
    session, done = idempotency.once(tx, scope, sid, call, kind="operation", do=do, again=again)
    rows, uids = popped(tx, operations.find(tx, scope, done.id)) if done else ([], {})
    return session, done, rows, uids


def popped(tx: Tx, row: operations.OperationRow) -> tuple[list[EntryRow], dict[int, str]]:
    """Read the message that a pop took off the path."""
    (uid, _, _), (_, seq, _) = codec.decode(row.before)["head"], codec.decode(row.after)["head"]
    branch = branches.find(tx, row.scope, row.session, uid)
    segments = branches.segments(tx, branch, seq, seq + 1)
    return entries.read(tx, row.scope, segments), {segment.bid: segment.uid for segment in segments}


def _last_message(tx: Tx, session: SessionRow) -> int | None:
    high, window = session.seq, 1
    while high > 0:
        low = max(0, high - window)
        rows = entries.read_all(tx, session.scope, entries.path_segments(tx, session, low, high))
        found = [row.seq for row in rows if row.kind in MESSAGE_KINDS]
        if found:
            return found[-1]
        high, window = low, min(4 * window, entries.PAGE)
    return None


def clear(tx: Tx, scope: str, session_id: str, *, now_ms: int) -> tuple[SessionRow, Operation]:
    """Go back to the beginning; everything stays on its branch."""
    session = entries.writable(tx, scope, session_id)
    return operations.on_session(tx, session, "clear", {"head": head_at(tx, session, Target(0))}, now_ms=now_ms)


def replace_tail(
    tx: Tx,
    scope: str,
    session_id: str,
    *,
    from_seq: int,
    drafts: list[Draft],
    expected_revision: int,
    now_ms: int,
    key: str | None,
) -> tuple[entries.Appended, Operation | None, list[Draft]]:
    """Replace the entries from ``from_seq`` on in one step; the old ones stay on their branch.

    The drafts are tied to the calls that stay, and returned as they were stored.
    """
    session, done = entries.writable(tx, scope, session_id), None
    if key is not None and (earlier := entries.repeat(tx, session, drafts, key)):
        return earlier, None, drafts
    entries.require_revision(session, expected_revision)
    if drafts:
        require_open(session.status)
    if not 1 <= from_seq <= session.seq + 1:
        raise NotFound(f"the session has entries 1 to {session.seq}; there is no entry {from_seq} to replace")
    if from_seq <= session.seq:
        after: View = {"head": head_at(tx, session, Target(from_seq - 1))}
        session, done = operations.on_session(tx, session, "replace", after, now_ms=now_ms)
    if not drafts:
        return entries.Appended(session, session.uid, session.seq + 1, session.seq), done, drafts
    settled = calls.settled(tx, session, drafts)
    return entries.put(tx, session, settled, now_ms=now_ms, idempotency_key=key), done, settled


# ---------------------------------------------------------------------- what a move changes


def common_point(tx: Tx, session: SessionRow, target: Target) -> entries.Point:
    """Find where the head's path and the path to a point diverge: everything after it leaves the path."""
    point, origin = point_of(tx, session, target)
    here = branches.get(tx, session.scope, session.branch)
    end = min(point.seq, session.seq)
    if end and branches.owner(tx, origin, end).bid == branches.owner(tx, here, end).bid:
        return entries.point(tx, session, end)  # the usual case: one end is on the path of the other
    return entries.point(tx, session, _shared(tx, origin, here, end - 1))


def _shared(tx: Tx, one: branches.BranchRow, other: branches.BranchRow, high: int) -> int:
    """Find the last entry that the paths of two branches share, by binary search."""
    low = 0
    while low < high:
        middle = (low + high + 1) // 2
        if branches.owner(tx, one, middle).bid == branches.owner(tx, other, middle).bid:
            low = middle
        else:
            high = middle - 1
    return low
