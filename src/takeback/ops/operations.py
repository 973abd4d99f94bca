"""The operations log: every change except appends, with its before and after, so that it can be undone.

An operation changes some properties of one session or agent, or files alone; ``before`` and ``after`` are objects with
one key per property. ``undo`` reverts the newest operation that is not undone, or a named one unless a later one
changed the same property; ``redo`` reverts the last undo. Both are operations themselves and record what they found: an
attached head goes back to the tip of its branch, wherever that is by then. Appending keeps what can be redone; a new
operation clears it. None of them loses anything that was appended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from .. import codec
from ..errors import Conflict, Corrupt, NotFound
from ..ids import new_id
from ..model.operation import Operation
from ..storage.base import Tx
from ..tables.history import OPERATION
from ..tables.history import OperationRow as OperationRow
from ..tables.sessions import SESSION
from ..tables.table import several, slots
from . import agents, branches, feed, idempotency, session_metadata, sessions, work
from .operation_summaries import all_named as all_named
from .operation_summaries import as_value as as_value
from .operation_summaries import named as named
from .sessions import SessionRow

if TYPE_CHECKING:
    from .agents import AgentRow
    from .idempotency import ApiCall

OF = "INDEXED BY operation_session WHERE scope = ? AND session = ? AND agent = ?"
STANDS = "undone_by IS NULL AND kind NOT IN ('undo', 'redo', 'redact')"
SINCE = f"SELECT 1 FROM operation {OF} AND oid > ? AND kind NOT IN ('undo', 'redo', 'redact') LIMIT 1"

RESTORED = "restored"
NOTHING = "nothing to change"
View: TypeAlias = "dict[str, Any]"
_MANY = 500  # sessions that one statement looks up


class Beside(NamedTuple):
    """What an operation changed in the files of a workspace, before and after."""

    wid: int
    before: View
    after: View


NO_FILES = Beside(0, {}, {})


class Done(NamedTuple):
    """An operation that was done, and the session after it; None if it was none of a session."""

    operation: Operation
    session: SessionRow | None


# ---------------------------------------------------------------------- doing


def on_session(
    tx: Tx,
    session: SessionRow,
    kind: str,
    after: View,
    *,
    now_ms: int,
    undoes: int | None = None,
    beside: Beside = NO_FILES,
) -> tuple[SessionRow, Operation]:
    """Change a session as ``after`` says, and record what that replaced.

    ``beside`` is what else the operation changed, before and after.
    """
    before = view_of(tx, session, after)
    if before == after and beside.before == beside.after and undoes is None:
        return session, Operation(new_id(now_ms), kind, session.id, now_ms, NOTHING)
    changed = _applied(tx, session, after, now_ms)
    changed = _put(tx, session, changed, kind, now_ms, moved="head" in after)
    views = before | beside.before, view_of(tx, changed, after) | beside.after
    row = _record(tx, kind, (session.scope, session.sid, 0, beside.wid), *views, now_ms, undoes)
    return changed, as_value(tx, row, session.id, None)


def on_workspace(
    tx: Tx, scope: str, kind: str, files: Beside, *, now_ms: int, undoes: int | None = None
) -> tuple[None, Operation]:
    """Record that the files of a workspace were changed, by no session."""
    row = _record(tx, kind, (scope, 0, 0, files.wid), files.before, files.after, now_ms, undoes)
    return None, as_value(tx, row, None, None)


def once(
    tx: Tx,
    scope: str,
    session_id: str,
    call: ApiCall,
    op: Callable[..., tuple[SessionRow, Operation]],
    *args: Any,
    **kwargs: Any,
) -> tuple[SessionRow, Operation]:
    """Run an operation on a session, once per idempotency key; ``op`` takes scope, session id and ``now_ms``."""

    def do() -> tuple[tuple[SessionRow, Operation], str]:
        done = op(tx, scope, session_id, *args, now_ms=call.now_ms, **kwargs)
        return done, recorded_id(done[1])

    def again(made: str) -> tuple[SessionRow, Operation]:
        return sessions.get(tx, scope, session_id), named(tx, find(tx, scope, made))

    sid = 0 if call.key is None else sessions.get(tx, scope, session_id).sid
    return idempotency.once(tx, scope, sid, call, kind="operation", do=do, again=again)


def done_before(tx: Tx, session: SessionRow, call: ApiCall) -> Operation | None:
    """Return the operation made by an earlier call with this key, or None."""
    made = None if call.key is None else idempotency.made_before(tx, session.scope, session.sid, call.key, call.request)
    return None if made is None else named(tx, find(tx, session.scope, made))


def record(tx: Tx, session: SessionRow, kind: str, after: View, *, now_ms: int) -> SessionRow:
    """Record an operation that cannot be undone and changes nothing that the row of its session says."""
    _record(tx, kind, (session.scope, session.sid, 0, 0), {thing: [] for thing in after}, after, now_ms, None)
    return _put(tx, session, session, kind, now_ms, moved=False)


def touch(tx: Tx, session: SessionRow, position: int, rank: int, now_ms: int, *, moved: bool) -> SessionRow:
    """Write a session at its new feed position; its revision grows if the head moved."""
    return sessions.store(tx, session, touched(session, position, rank, now_ms, moved=moved))


def touched(session: SessionRow, position: int, rank: int, now_ms: int, *, moved: bool) -> SessionRow:
    """Return a session at its new feed position; its revision grows if the head moved."""
    revision = session.revision + moved
    return session._replace(revision=revision, **sessions.placed(session, position, rank, now_ms))


def _put(tx: Tx, session: SessionRow, new: SessionRow, kind: str, now_ms: int, *, moved: bool) -> SessionRow:
    """Write a session that an operation changes, and record the change in the feed."""
    position, rank = feed.record(tx, session, kind, branch=new.branch, first=new.seq, last=new.seq, now_ms=now_ms)
    return sessions.store(tx, session, touched(new, position, rank, now_ms, moved=moved))


def on_agent(
    tx: Tx, agent: AgentRow, kind: str, after: View, *, now_ms: int, undoes: int | None = None
) -> tuple[AgentRow, Operation]:
    """Change an agent as ``after`` says, with the sessions it names, and record what that replaced."""
    named = {*after.get("sessions", {}), *after.get("heads", {})}
    known = all_unless_purged(tx, agent.scope, named)
    before = _agent_view(agent, after, known)
    fields = codec.encode(after["fields"]) if "fields" in after else None
    hidden = after.get("hidden", agent.hidden)
    if agent.hidden and not hidden and agents.find(tx, agent.scope, agent.id):
        raise Conflict(f"another agent has the id {agent.id!r} now; delete that one first", found=agent.id)
    # In the feed, "restore" already means that a session left the trash.
    change = RESTORED if kind == "restore" else kind
    if known:
        from . import session_changes  # it imports this module

        trash, heads = after.get("sessions", {}), after.get("heads", {})
        session_changes.place(tx, known.values(), trash, heads, change, now_ms)
    state = codec.encode(agents.state_at(tx, agent, after["state"])) if "state" in after else None
    changed = agents.write(tx, agent, now_ms=now_ms, fields=fields, state=state, hidden=hidden)
    feed.record_agent(tx, agent.scope, agent.aid, change)
    row = _record(tx, kind, (agent.scope, 0, agent.aid, 0), before, after, now_ms, undoes)
    return changed, as_value(tx, row, None, agent.id)


def _record(
    tx: Tx, kind: str, on: tuple[str, int, int, int], before: View, after: View, now_ms: int, undoes: int | None
) -> OperationRow:
    row = OperationRow(
        scope=on[0],
        oid=tx.next("operation"),
        id=new_id(now_ms),
        kind=kind,
        session=on[1],
        agent=on[2],
        workspace=on[3],
        at_ms=now_ms,
        before=codec.encode(before),
        after=codec.encode(after),
        undoes=undoes,
        undone_by=None,
    )
    return OPERATION.put(tx, row)


# ---------------------------------------------------------------------- finding


def moved_files(row: OperationRow) -> bool:
    """Whether an operation changed files."""
    return "files" in codec.decode(row.after)


def find(tx: Tx, scope: str, operation_id: str) -> OperationRow:
    """Return an operation by its id."""
    found = _find(tx, scope, operation_id)
    if found is None:
        raise NotFound(f"there is no operation {operation_id!r} in this store and scope")
    return found


def _find(tx: Tx, scope: str, operation_id: str) -> OperationRow | None:
    return OPERATION.one(tx, "WHERE scope = ? AND id = ?", (scope, operation_id))


def by_number(tx: Tx, scope: str, oid: int) -> OperationRow:
    """Return an operation by its local number; a missing one raises ``Corrupt``."""
    found = OPERATION.get(tx, scope, oid)
    if found is None:
        raise Corrupt(f"the record of operation number {oid} is missing", what=f"operation number {oid}")
    return found


def stands(tx: Tx, scope: str, operation_id: str) -> bool:
    """Whether an operation exists and is not undone."""
    found = _find(tx, scope, operation_id)
    return found is not None and found.undone_by is None


def recorded_id(operation: Operation) -> str:
    """Return the id of an operation; empty for one that changed nothing and was not recorded."""
    return "" if operation.summary == NOTHING else operation.id


def set_undone(tx: Tx, row: OperationRow, by: int | None) -> None:
    OPERATION.update(tx, row, row._replace(undone_by=by))


def hid(tx: Tx, session: SessionRow, above: Sequence[int]) -> OperationRow | None:
    """Return the newest operation that moved a session to the trash: its own, or one of a session above or its agent.

    None if nothing says how it got there.
    """
    agent = agents.find_any(tx, session.scope, session.agent)
    owners = [(session.sid, 0), *((sid, 0) for sid in above), *([] if agent is None else [(0, agent.aid)])]
    newest: OperationRow | None = None
    for owner in owners:
        where = f"{OF} AND oid > ? ORDER BY oid DESC"
        rows = OPERATION.all(tx, where, (session.scope, *owner, newest.oid if newest else 0))
        own = owner[0] == session.sid
        newest = next((row for row in rows if session.id in hidden_by(row, session.id if own else None)), newest)
    return newest


def hidden_by(row: OperationRow, own: str | None = None) -> set[str]:
    """Return the ids of the sessions that an operation moved to the trash; ``own`` is that of the one it is about."""
    before, after = codec.decode(row.before), codec.decode(row.after)
    was = {each: place[3] for each, place in before.get("below", {}).items()} | before.get("sessions", {})
    now = {each: place[3] for each, place in after.get("below", {}).items()} | after.get("sessions", {})
    if own is not None:
        was[own], now[own] = before.get("hidden", 0), after.get("hidden", 0)
    return {each for each, hidden in now.items() if hidden and not was.get(each)}


def hidden_since(tx: Tx, scope: str, sids: Sequence[int], oid: int) -> set[int]:
    """Return which sessions were moved to the trash by an operation of their own after another operation."""
    found = set[int]()
    for some in several(sids, _MANY):
        where = "INDEXED BY operation_session WHERE scope = ? AND agent = 0 AND oid > ? AND session IN"
        rows = OPERATION.all(tx, f"{where} ({slots(len(some))})", (scope, oid, *some))
        found |= {row.session for row in rows if codec.decode(row.after).get("hidden")}
    return found


# ---------------------------------------------------------------------- what was, and making it so


def head_view(session: SessionRow) -> list[Any]:
    """Describe where a session is."""
    return [session.uid, session.seq, session.attached]


def view_of(tx: Tx, session: SessionRow, things: View) -> View:
    """Describe the properties of a session that an operation names, as they are now."""
    return {thing: _thing(tx, session, thing, asked) for thing, asked in things.items()}


def _thing(tx: Tx, session: SessionRow, thing: str, asked: Any) -> Any:
    match thing:
        case "head":
            return head_view(session)
        case "metadata":
            return sessions.decoded(sessions.detail(tx, session)).get("metadata", {})
        case "branch":  # made by a fork
            return [asked[0], branches.find(tx, session.scope, session.sid, asked[0]).hidden]
        case "below":  # sub-agents that moved with it
            known = all_unless_purged(tx, session.scope, asked)
            return {sid: [*head_view(known[sid]), known[sid].hidden] for sid in asked if sid in known}
        case "session":  # made by a fork
            made = unless_purged(tx, session.scope, asked[0])
            return [asked[0], 1 if made is None else made.hidden]
        case _:
            return getattr(session, thing)


def unless_purged(tx: Tx, scope: str, session_id: str) -> SessionRow | None:
    """Return a session that an operation names; None if it was purged since."""
    return sessions.find(tx, scope, session_id)


def all_unless_purged(tx: Tx, scope: str, ids: Iterable[str]) -> dict[str, SessionRow]:
    """Return the sessions that an operation names, by id, without those purged since."""
    found, wanted = dict[str, SessionRow](), sorted(ids)
    for first in range(0, len(wanted), _MANY):
        found |= sessions.several(tx, scope, wanted[first : first + _MANY])
    return found


def _agent_view(agent: AgentRow, things: View, known: dict[str, SessionRow]) -> View:
    view: View = {}
    if "fields" in things:
        view["fields"] = codec.decode(agent.fields)
    if "hidden" in things:
        view["hidden"] = agent.hidden
    if "sessions" in things:
        view["sessions"] = {sid: known[sid].hidden for sid in things["sessions"] if sid in known}
    if "heads" in things:
        view["heads"] = {sid: head_view(known[sid]) for sid in things["heads"] if sid in known}
    if "state" in things:
        view["state"] = agent.version
    return view


def _applied(tx: Tx, session: SessionRow, after: View, now_ms: int) -> SessionRow:
    """Return a session as ``after`` says, for the caller to store; what is stored beside its row is written here."""
    if 0 in (after.get("hidden"), after.get("session", ["", 1])[1]):  # the agent may have been deleted meanwhile
        agents.ensure(tx, session.scope, session.agent, now_ms=now_ms)
    if "metadata" in after:
        details = sessions.decoded(sessions.detail(tx, session))
        doc = codec.encode({**details, "metadata": after["metadata"]})
        sessions.put_detail(tx, session, doc)
        session_metadata.index(tx, session, doc)
    if "branch" in after:
        uid, hidden = after["branch"]
        branches.set_hidden(tx, branches.find(tx, session.scope, session.sid, uid), hidden)
    session = session._replace(**{thing: value for thing, value in after.items() if thing in _PLAIN})
    return session if _PLACES.isdisjoint(after) else _placed(tx, session, after, now_ms)


def _placed(tx: Tx, session: SessionRow, after: View, now_ms: int) -> SessionRow:
    """Return a session in the trash or out of it, and at its new head, after moving those that go with it."""
    from . import session_changes  # it imports this module, and most operations only change fields

    if "hidden" in after:
        (session,) = session_changes.visible(tx, [(session, after["hidden"], after.get("name", session.name))])
    if "session" in after:
        made = unless_purged(tx, session.scope, after["session"][0])
        if made is not None:
            session_changes.place(tx, [made], dict([after["session"]]), {}, "fork", now_ms)
    if below := after.get("below"):
        children = all_unless_purged(tx, session.scope, below).values()
        hidden = {child: place[3] for child, place in below.items()}
        heads = {child: place[:3] for child, place in below.items()}
        for agent in {child.agent for child in children if child.hidden and not hidden[child.id]}:
            agents.ensure(tx, session.scope, agent, now_ms=now_ms)
        session_changes.place(tx, children, hidden, heads, "below", now_ms)
    return session_changes.moved(tx, [(session, after["head"])])[0] if "head" in after else session


_PLACES = frozenset({"hidden", "session", "below", "head"})
# Without "workspace": no operation changes it, so an imported file that claims so must not redirect a session.
_PLAIN = frozenset({"title", "tags", "archived", "pinned", "status"})


def counted(tx: Tx, session: SessionRow) -> SessionRow:
    """Write the tasks and build attempts at the head into the session's row."""
    return sessions.write(tx, session, **work.counts_at_head(tx, session))


# ---------------------------------------------------------------------- looking


def of_session(tx: Tx, scope: str, session_id: str, *, limit: int, before: int = 1 << 62) -> list[OperationRow]:
    """Return a session's operations, newest first."""
    session = sessions.get(tx, scope, session_id)
    where = f"{OF} AND oid < ? ORDER BY oid DESC LIMIT ?"
    return OPERATION.all(tx, where, (scope, session.sid, 0, before, limit))


def page(tx: Tx, scope: str, *, limit: int, before: int) -> tuple[list[Operation], int | None]:
    """Return operations of a scope, newest first, and where the next page begins."""
    rows = of_scope(tx, scope, limit=limit + 1, before=before)
    return all_named(tx, rows[:limit]), rows[limit - 1].oid if len(rows) > limit else None


def value_of(tx: Tx, scope: str, operation_id: str) -> Operation:
    """Return an operation as a value, by its id."""
    return all_named(tx, [find(tx, scope, operation_id)])[0]


def values_of_session(tx: Tx, scope: str, session_id: str, *, limit: int) -> list[Operation]:
    """Return a session's operations as values, newest first."""
    return all_named(tx, of_session(tx, scope, session_id, limit=limit))


def of_scope(tx: Tx, scope: str, *, limit: int, before: int = 1 << 62) -> list[OperationRow]:
    """Return all operations of a scope, newest first."""
    found = list[OperationRow]()
    while len(found) < limit:
        where = "INDEXED BY operation_scope WHERE scope = ? AND oid < ? ORDER BY oid DESC LIMIT ?"
        wanted = limit - len(found)
        rows = OPERATION.all(tx, where, (scope, before, wanted))
        # A session still being copied is invisible, but its operations are already stored: leave them out.
        known = SESSION.numbered(tx, scope, {row.session for row in rows if row.session})
        found += [row for row in rows if row.session not in known or not known[row.session].staged]
        if len(rows) < wanted:
            break
        before = rows[-1].oid
    return found
