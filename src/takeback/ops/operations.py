"""The operations log: changes other than appends, each with what was before and after, so each can be taken back.

An operation changes some things of one session or of one agent; ``before`` and ``after`` are objects with one key
per thing. ``undo`` takes back the newest operation that still stands, or a named one unless a later one touched
the same thing; ``redo`` brings back what the last undo took back. Both are operations themselves and record what
they found: an attached head goes back to the tip of its branch, wherever that is by then. Appends never clear
what can be redone; a new operation does. Nothing that was appended is lost by any of them.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple, TypeAlias

from .. import codec
from ..errors import Conflict, Corrupt, NotFound
from ..ids import new_id
from ..model.entry import Numbers
from ..model.operation import Operation
from ..storage.base import Row, Tx, row_check
from . import agents, branches, describe, entries, feed, sessions, snapshots, work
from .agents import AgentRow
from .sessions import SessionRow

COLUMNS = "oid, scope, id, kind, session, agent, at_ms, before, after, undoes, undone_by, chk"
INSERT = f"INSERT INTO operation ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
GET = f"SELECT {COLUMNS} FROM operation WHERE oid = ?"
BY_ID = f"SELECT {COLUMNS} FROM operation WHERE scope = ? AND id = ?"
STANDING = f"""SELECT {COLUMNS} FROM operation
WHERE scope = ? AND session = ? AND agent = ? AND oid > ? AND undone_by IS NULL AND kind NOT IN ('undo', 'redo')
ORDER BY oid DESC LIMIT ?"""
LAST_UNDO = f"""SELECT {COLUMNS} FROM operation
WHERE scope = ? AND session = ? AND agent = ? AND kind = 'undo' AND undone_by IS NULL ORDER BY oid DESC LIMIT 1"""
SINCE = """SELECT 1 FROM operation
WHERE scope = ? AND session = ? AND agent = ? AND oid > ? AND kind NOT IN ('undo', 'redo') LIMIT 1"""
LATER = f"""SELECT {COLUMNS} FROM operation
WHERE scope = ? AND session = ? AND agent = ? AND oid > ? AND undone_by IS NULL"""
OF_SESSION = f"""SELECT {COLUMNS} FROM operation
WHERE scope = ? AND session = ? AND agent = 0 AND oid < ? ORDER BY oid DESC LIMIT ?"""
OF_SCOPE = f"SELECT {COLUMNS} FROM operation WHERE scope = ? AND oid < ? ORDER BY oid DESC LIMIT ?"
SET_UNDONE = "UPDATE operation SET undone_by = ?, chk = ? WHERE oid = ?"

RESTORED = "restored"
NOTHING = "it is so already: nothing was changed"
View: TypeAlias = "dict[str, Any]"


class OperationRow(NamedTuple):
    """A row of ``operation``, checked."""

    oid: int
    scope: str
    id: str
    kind: str
    session: int
    agent: int
    at_ms: int
    before: bytes
    after: bytes
    undoes: int | None
    undone_by: int | None


class Done(NamedTuple):
    """What an operation did, and the session after it; None for an operation on an agent."""

    operation: Operation
    session: SessionRow | None


def checked(row: Row) -> OperationRow:
    """Check a row that was read; damage is ``Corrupt``."""
    if row_check(row[:-1]) != row[-1]:
        raise Corrupt(f"the record of operation {row[2]!r} is damaged", what=f"operation {row[2]}")
    return OperationRow(*row[:-1])


# ---------------------------------------------------------------------- doing


def on_session(
    tx: Tx, session: SessionRow, kind: str, after: View, *, now_ms: int, undoes: int | None = None
) -> tuple[SessionRow, Operation]:
    """Change a session as ``after`` says and record what that replaced."""
    before = _session_view(tx, session, after)
    if before == after and undoes is None:
        return session, Operation(new_id(now_ms), kind, session.id, now_ms, NOTHING)
    changed = _apply(tx, session, after, now_ms)
    position, rank = feed.record(tx, session, kind, branch=changed.branch, first=changed.seq, last=changed.seq)
    changed = touch(tx, changed, position, rank, now_ms, moved="head" in after)
    row = _record(tx, kind, (session.scope, session.sid, 0), before, _session_view(tx, changed, after), now_ms, undoes)
    return changed, as_value(tx, row, session.id, None)


def note(
    tx: Tx, session: SessionRow, kind: str, before: View, after: View, now_ms: int
) -> tuple[SessionRow, Operation]:
    """Record an operation that was made in steps: ``session`` is as it left it."""
    position, rank = feed.record(tx, session, kind, branch=session.branch, first=session.seq, last=session.seq)
    session = touch(tx, session, position, rank, now_ms, moved=False)
    row = _record(tx, kind, (session.scope, session.sid, 0), before, after, now_ms, None)
    return session, as_value(tx, row, session.id, None)


def view_of(tx: Tx, session: SessionRow, things: View) -> View:
    """Describe the things that an operation is about to change, as they are now."""
    return _session_view(tx, session, things)


def put_in_place(tx: Tx, session: SessionRow, after: View, now_ms: int) -> SessionRow:
    """Change a session as ``after`` says; the caller records it."""
    return _apply(tx, session, after, now_ms)


def touch(tx: Tx, session: SessionRow, position: int, rank: int, now_ms: int, *, moved: bool) -> SessionRow:
    """Write a session that an operation changed at its new position; one revision further if its head moved."""
    revision = session.revision + moved
    return sessions.write_head(tx, session, (*session.head[:-5], revision, position, now_ms, session.message_ms, rank))


def on_agent(
    tx: Tx, agent: AgentRow, kind: str, after: View, *, now_ms: int, undoes: int | None = None
) -> tuple[AgentRow, Operation]:
    """Change an agent as ``after`` says, with the sessions it names, and record what that replaced."""
    before = _agent_view(tx, agent, after)
    fields = codec.encode(after["fields"]) if "fields" in after else None
    hidden = after.get("hidden", agent.hidden)
    if agent.hidden and not hidden and agents.find(tx, agent.scope, agent.id):
        raise Conflict(f"there is another agent {agent.id!r} by now; delete that one first", found=agent.id)
    told = RESTORED if kind == "restore" else kind  # another word than for a session that leaves the trash
    _change_sessions(tx, agent.scope, after.get("sessions", {}), after.get("heads", {}), told, now_ms)
    state = codec.encode(agents.state_at(tx, agent, after["state"])) if "state" in after else None
    changed = agents.write(tx, agent, now_ms=now_ms, fields=fields, state=state, hidden=hidden)
    feed.record_agent(tx, agent.scope, agent.aid, told)
    row = _record(tx, kind, (agent.scope, 0, agent.aid), before, after, now_ms, undoes)
    return changed, as_value(tx, row, None, agent.id)


def _change_sessions(tx: Tx, scope: str, trash: View, heads: View, kind: str, now_ms: int) -> None:
    """Put an agent's sessions into the trash, then others out of it, and move heads."""
    for session_id in sorted({*trash, *heads}, key=lambda each: not trash.get(each, 0)):
        session = unless_purged(tx, scope, session_id)
        if session is None:
            continue
        before, gone = session, trash.get(session_id, session.hidden)
        if bool(session.hidden) != bool(gone):
            session = _set_visible(tx, session, gone, session.name)
        if session_id in heads:
            session = _move(tx, session, *heads[session_id])
        if session != before:
            _bump(tx, session, kind, now_ms, moved=head_view(session) != head_view(before))


def _bump(tx: Tx, session: SessionRow, kind: str, now_ms: int, *, moved: bool = False) -> None:
    position, rank = feed.record(tx, session, kind, branch=session.branch, first=session.seq, last=session.seq)
    touch(tx, session, position, rank, now_ms, moved=moved)


def _record(
    tx: Tx, kind: str, on: tuple[str, int, int], before: View, after: View, now_ms: int, undoes: int | None
) -> OperationRow:
    scope, sid, aid = on
    views = codec.encode(before), codec.encode(after)
    row = OperationRow(tx.next("operation"), scope, new_id(now_ms), kind, sid, aid, now_ms, *views, undoes, None)
    tx.run(INSERT, (*row, row_check(row)))
    return row


# ---------------------------------------------------------------------- undo and redo


def undo_session(
    tx: Tx, scope: str, session_id: str, *, operation_id: str | None, now_ms: int, files: View | None = None
) -> Done:
    """Take back the newest operation of a session that stands, or a named one of it; ``files`` says what it changes."""
    session = sessions.get(tx, scope, session_id)
    if operation_id is None:
        rows = tx.all(STANDING, (scope, session.sid, 0, 0, 1))
        if not rows:
            raise Conflict("there is nothing to undo in this session")
        return _undo(tx, checked(rows[0]), now_ms, files)
    row = find(tx, scope, operation_id)
    if row.session != session.sid:
        raise NotFound(f"this session has no operation {operation_id!r}")
    return undo(tx, scope, operation_id, now_ms=now_ms, files=files)


def find_to_take_up(tx: Tx, scope: str, session_id: str, kind: str, operation_id: str | None) -> OperationRow | None:
    """Give the operation that an undo or a redo of a session would take up, or None."""
    session = sessions.get(tx, scope, session_id)
    if kind == "redo":
        return _last_undo(tx, scope, session_id)
    if operation_id is not None:
        row = find(tx, scope, operation_id)
        return row if row.session == session.sid and row.undone_by is None else None
    rows = tx.all(STANDING, (scope, session.sid, 0, 0, 1))
    return checked(rows[0]) if rows else None


def to_take_up(tx: Tx, scope: str, session_id: str, kind: str, operation_id: str | None) -> OperationRow:
    """Give the operation that an undo or a redo of a session would take up; none is ``Conflict``."""
    found = find_to_take_up(tx, scope, session_id, kind, operation_id)
    if found is None:
        raise Conflict(f"there is nothing to {kind} in this session")
    return found


def moved_files(row: OperationRow) -> bool:
    """Say whether an operation changed files."""
    return "files" in codec.decode(row.after)


def undo(tx: Tx, scope: str, operation_id: str, *, now_ms: int, files: View | None = None) -> Done:
    """Take back a named operation unless a later one touched the same thing."""
    row = find(tx, scope, operation_id)
    if row.kind in ("undo", "redo", "purge"):
        raise Conflict(f"an operation of kind {row.kind} cannot be undone; redo brings back what an undo took back")
    if row.undone_by is not None:
        raise Conflict(f"operation {operation_id!r} is undone already")
    things = codec.decode(row.before).keys()
    for later in map(checked, tx.all(STANDING, (scope, row.session, row.agent, row.oid, 10_000))):
        if things & codec.decode(later.before).keys():
            raise Conflict(
                f"a later operation ({later.kind}) changed the same thing; undo that first",
                expected=operation_id,
                found=later.id,
            )
    return _undo(tx, row, now_ms, files)


def _undo(tx: Tx, row: OperationRow, now_ms: int, files: View | None) -> Done:
    done = _again(tx, row, "undo", now_ms, files)
    _set_undone(tx, row, number_of(tx, row.scope, done.operation.id))
    return done


def redo(
    tx: Tx,
    scope: str,
    *,
    session_id: str | None,
    operation_id: str | None = None,
    now_ms: int,
    files: View | None = None,
) -> Done:
    """Bring back what the last undo of a session, or a named undo, took back; unless another operation came since."""
    last = _last_undo(tx, scope, session_id) if operation_id is None else _named_undo(tx, scope, operation_id)
    if last is None:
        raise Conflict("there is nothing to redo here")
    done = _again(tx, last, "redo", now_ms, files)
    _set_undone(tx, last, number_of(tx, scope, done.operation.id))
    _set_undone(tx, by_number(tx, last.undoes or 0), None)
    return done


def _last_undo(tx: Tx, scope: str, session_id: str | None) -> OperationRow | None:
    sid = sessions.get(tx, scope, session_id or "").sid
    row = tx.one(LAST_UNDO, (scope, sid, 0))
    return None if row is None or tx.one(SINCE, (scope, sid, 0, row[0])) else checked(row)


def _named_undo(tx: Tx, scope: str, operation_id: str) -> OperationRow | None:
    """Give an undo that can be redone: nothing that stands has touched the same things since."""
    row = find(tx, scope, operation_id)
    things = codec.decode(row.before).keys()
    later = map(checked, tx.all(LATER, (scope, row.session, row.agent, row.oid)))
    touched = any(things & codec.decode(each.before).keys() for each in later)
    return None if row.undone_by is not None or touched else row


def _again(tx: Tx, row: OperationRow, kind: str, now_ms: int, files: View | None) -> Done:
    """Put back what was before an operation."""
    before = codec.decode(row.before)
    if files is not None and "files" in before:
        before["files"] = {**before["files"], **files}
    if row.agent:
        agent = agents.by_number(tx, row.agent)
        return Done(on_agent(tx, agent, kind, before, now_ms=now_ms, undoes=row.oid)[1], None)
    session = sessions.by_number(tx, row.session)
    session, done = on_session(tx, session, kind, before, now_ms=now_ms, undoes=row.oid)
    return Done(done, session)


def find(tx: Tx, scope: str, operation_id: str) -> OperationRow:
    """Give an operation by its id."""
    row = tx.one(BY_ID, (scope, operation_id))
    if row is None:
        raise NotFound(f"there is no operation {operation_id!r} in this store and scope")
    return checked(row)


def number_of(tx: Tx, scope: str, operation_id: str) -> int:
    """Give the local number of an operation; 0 for one that changed nothing and was not recorded."""
    row = tx.one(BY_ID, (scope, operation_id))
    return 0 if row is None else int(row[0])


def by_number(tx: Tx, oid: int) -> OperationRow:
    """Give an operation that must exist by its local number."""
    row = tx.one(GET, (oid,))
    if row is None:
        raise Corrupt(f"the record of operation number {oid} is missing", what=f"operation number {oid}")
    return checked(row)


def stands(tx: Tx, scope: str, operation_id: str) -> bool:
    """Say whether an operation is there and not taken back."""
    row = tx.one(BY_ID, (scope, operation_id))
    return row is not None and checked(row).undone_by is None


def _set_undone(tx: Tx, row: OperationRow, by: int | None) -> None:
    tx.run(SET_UNDONE, (by, row_check(row._replace(undone_by=by)), row.oid))


# ---------------------------------------------------------------------- what was, and making it so


def head_view(session: SessionRow) -> list[Any]:
    """Describe where a session is."""
    return [session.uid, session.seq, session.attached]


def _session_view(tx: Tx, session: SessionRow, things: View) -> View:
    """Describe the things of a session that an operation names, as they are now."""
    return {thing: _thing(tx, session, thing, asked) for thing, asked in things.items()}


def _thing(tx: Tx, session: SessionRow, thing: str, asked: Any) -> Any:
    match thing:
        case "head":
            return head_view(session)
        case "metadata":
            return sessions.decoded(sessions.detail(tx, session)).get("metadata", {})
        case "branch":  # made by a fork
            return [asked[0], branches.find(tx, session.scope, session.sid, asked[0]).hidden]
        case "files":  # what a move did in the workspace, for people to read; of a move of files alone also to what
            return {**asked, "root": snapshots.disk_of(tx, session)} if "root" in asked else asked
        case "below":  # sub-agents that moved with it
            known = {sid: unless_purged(tx, session.scope, sid) for sid in asked}
            return {sid: [*head_view(row), row.hidden] for sid, row in known.items() if row is not None}
        case "session":  # made by a fork
            made = unless_purged(tx, session.scope, asked[0])
            return [asked[0], 1 if made is None else made.hidden]
        case _:
            return getattr(session, thing)


def unless_purged(tx: Tx, scope: str, session_id: str) -> SessionRow | None:
    """Give a session that an operation names; a purge that came since leaves nothing to change."""
    row = tx.one(sessions.GET, (scope, session_id))
    return None if row is None or row[13] == 2 else sessions.checked(row)


def _agent_view(tx: Tx, agent: AgentRow, things: View) -> View:
    view: View = {}
    if "fields" in things:
        view["fields"] = codec.decode(agent.fields)
    if "hidden" in things:
        view["hidden"] = agent.hidden
    if "sessions" in things:
        known = {sid: unless_purged(tx, agent.scope, sid) for sid in things["sessions"]}
        view["sessions"] = {sid: row.hidden for sid, row in known.items() if row is not None}
    if "heads" in things:
        known = {sid: unless_purged(tx, agent.scope, sid) for sid in things["heads"]}
        view["heads"] = {sid: head_view(row) for sid, row in known.items() if row is not None}
    if "state" in things:
        view["state"] = agent.version
    return view


def _apply(tx: Tx, session: SessionRow, after: View, now_ms: int) -> SessionRow:
    if 0 in (after.get("hidden"), after.get("session", ["", 1])[1]):  # what returns may have lost its agent meanwhile
        agents.ensure(tx, session.scope, session.agent, now_ms=now_ms)
    if "hidden" in after:
        session = _set_visible(tx, session, after["hidden"], after.get("name", session.name))
    if "metadata" in after:
        details = sessions.decoded(sessions.detail(tx, session))
        sessions.put_detail(tx, session.sid, codec.encode({**details, "metadata": after["metadata"]}))
    if "branch" in after:
        uid, hidden = after["branch"]
        branches.set_hidden(tx, branches.find(tx, session.scope, session.sid, uid), hidden)
    if "session" in after:
        made = unless_purged(tx, session.scope, after["session"][0])
        if made is not None and made.hidden != after["session"][1]:
            _bump(tx, _set_visible(tx, made, after["session"][1], made.name), "fork", now_ms)
    for child, place in after.get("below", {}).items():
        _place_below(tx, session, child, place, now_ms)
    plain = {thing: value for thing, value in after.items() if thing in _COLUMNS}
    if plain:
        session = sessions.write_cold(tx, session, **plain)
    return _move(tx, session, *after["head"]) if "head" in after else session


def _place_below(tx: Tx, session: SessionRow, child_id: str, place: list[Any], now_ms: int) -> None:
    """Bring a sub-agent to where it was, in the list or out of it."""
    child = unless_purged(tx, session.scope, child_id)
    if child is None or [*head_view(child), child.hidden] == place:
        return
    moved = _move(tx, child, *place[:3])
    if moved.hidden != place[3]:
        moved = _set_visible(tx, moved, place[3], moved.name)
    position, rank = feed.record(tx, moved, "below", branch=moved.branch, first=moved.seq, last=moved.seq)
    touch(tx, moved, position, rank, now_ms, moved=True)


_COLUMNS = frozenset({"title", "tags", "archived", "pinned", "workspace", "key", "status"})


def _set_visible(tx: Tx, session: SessionRow, hidden: int, name: str | None) -> SessionRow:
    """Put a session into the trash or take it out; a name taken by then gets `` (2)``, a taken key is ``Conflict``."""
    if not hidden and session.hidden:
        name = _free_name(tx, session, name)
        if sessions.find_by_key(tx, session.scope, session.key) is not None:
            raise Conflict(f"another session has the key {session.key!r} by now; delete that one first")
        if session.label is not None and sessions.find_by_label(tx, session.scope, session.parent, session.label):
            raise Conflict(f"another sub-agent has the label {session.label!r} by now; delete that one first")
    return sessions.write_cold(tx, session, hidden=hidden, name=name)


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


def _move(tx: Tx, session: SessionRow, uid: str, seq: int, attached: int) -> SessionRow:
    """Move the head; the branch that it leaves learns where it ends."""
    if [uid, seq, attached] == head_view(session):
        return session
    left = sessions.head_branch(tx, session)
    if session.attached:
        branches.set_tip(tx, left, session.seq, session.hash)
    branch = left if uid == session.uid else branches.find(tx, session.scope, session.sid, uid)
    seq = branch.tip_seq if attached else seq
    target = entries.point_on(tx, session.scope, branch, seq)
    numbers = Numbers._make(target.numbers)._asdict()
    place: dict[str, Any] = {"branch": branch.bid, "uid": branch.uid, "fork": branch.fork_seq, "seq": seq}
    moved = session._replace(**place, attached=attached, hash=target.hash, **numbers)
    return moved if moved.work_seq == session.work_seq == 0 else counted(tx, moved)


def counted(tx: Tx, session: SessionRow) -> SessionRow:
    """Let the row show the tasks and build attempts of its head."""
    return sessions.write_cold(tx, session, **work.counts_at_head(tx, session))


# ---------------------------------------------------------------------- looking


def of_session(tx: Tx, scope: str, session_id: str, *, limit: int, before: int = 1 << 62) -> list[OperationRow]:
    """Give a session's operations, newest first."""
    session = sessions.get(tx, scope, session_id)
    return [checked(row) for row in tx.all(OF_SESSION, (scope, session.sid, before, limit))]


def of_scope(tx: Tx, scope: str, *, limit: int, before: int = 1 << 62) -> list[OperationRow]:
    """Give all operations of a scope, newest first."""
    return [checked(row) for row in tx.all(OF_SCOPE, (scope, before, limit))]


def named(tx: Tx, row: OperationRow) -> Operation:
    """Show an operation to callers with the ids of what it changed."""
    session_id = sessions.by_number(tx, row.session).id if row.session else None
    agent_id = agents.by_number(tx, row.agent).id if row.agent else None
    return as_value(tx, row, session_id, agent_id)


def as_value(tx: Tx, row: OperationRow, session_id: str | None, agent_id: str | None) -> Operation:
    """Show an operation to callers."""
    before, after = codec.decode(row.before), codec.decode(row.after)
    summary = describe.summary(before, after, lambda uid: _branch_name(tx, row.scope, uid))
    undone = row.undone_by is not None
    files = after.get("files") or {}
    place, paths = files.get("workspace") or after.get("workspace"), tuple(files.get("paths", ()))
    return Operation(row.id, row.kind, session_id, row.at_ms, summary, undone, agent_id, place, paths)


def _branch_name(tx: Tx, scope: str, uid: str) -> str | None:
    """Give the name of a branch that an operation knows by its id; None if a purge took it."""
    found = tx.one(branches.BY_UID, (scope, uid))
    return None if found is None else branches.checked(found).name
