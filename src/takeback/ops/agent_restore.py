"""Restoring an agent to a checkpoint: fields, state and all its sessions, as one operation that can be undone.

Everything is checked before anything changes: the checkpoint's checksum over all its pins, the agent's state at that
time, and the entries that heads move to. A checkpoint of type ``recovery`` keeps the present state. Only sessions that
changed since are touched; a session purged since cannot be restored and is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .. import codec, presence
from ..errors import Busy, Corrupt, Error
from ..model.operation import Operation
from ..storage.base import Tx
from ..tables.branches import BRANCH
from . import agent_checkpoints, agents, branches, log, moves, operations, runs, sessions
from .agent_checkpoints import AgentCheckpointRow, New, PinRow
from .agents import AgentRow
from .operations import View
from .sessions import LeaseRow, SessionRow


class Judge(NamedTuple):
    """How to judge leases: which are the caller's own, whose holder is gone, and whether to fence off the others."""

    is_own: Callable[[LeaseRow], bool]
    is_gone: Callable[[LeaseRow], bool]
    take_over: bool


def restore(tx: Tx, row: AgentCheckpointRow, judge: Judge, *, now_ms: int) -> tuple[AgentRow, Operation | None]:
    """Restore an agent and all its sessions to a checkpoint; return no operation if nothing differs."""
    agent = agents.by_number(tx, row.scope, row.agent)
    pins = _sound_pins(tx, agent, row)
    changed = _changed(tx, agent, row)
    views = _views(tx, changed, pins)
    _let_go(tx, [session for session in changed if views[session.sid]], judge, now_ms)
    before = New(f"Before restoring {row.name}", None, "recovery")
    agent_checkpoints.create_before(tx, agent, before, now_ms=now_ms)
    # Read the rows again: taking sessions from their holders changed some of them.
    left = operations.all_unless_purged(tx, row.scope, [each.id for each in changed if views[each.sid]])
    after = _after(tx, agent, row, [*left.values()], pins)
    if not after:
        return agent, None
    return operations.on_agent(tx, agent, "restore", after, now_ms=now_ms)


def _sound_pins(tx: Tx, agent: AgentRow, row: AgentCheckpointRow) -> dict[int, PinRow]:
    """Return where all sessions were; raise ``Corrupt`` if anything disagrees with the checksum."""
    pins = agent_checkpoints.all_in_force(tx, row)
    if fault := agent_checkpoints.fault(tx, agent, row, pins):
        raise Corrupt(f"checkpoint {row.name!r} is damaged: {fault}", what=f"checkpoint {row.id}")
    return pins


def _changed(tx: Tx, agent: AgentRow, row: AgentCheckpointRow) -> list[SessionRow]:
    """Return the sessions that changed since, each locked against other writers from here on."""
    found = agent_checkpoints.changed_since(tx, agent, row)
    return list(operations.all_unless_purged(tx, row.scope, [session.id for session in found]).values())


def _after(
    tx: Tx, agent: AgentRow, row: AgentCheckpointRow, changed: list[SessionRow], pins: Mapping[int, PinRow]
) -> View:
    """Describe what the agent has to become; empty if it already is."""
    after: View = {}
    if agent.hidden:
        after["hidden"] = 0
    if agent.fields != row.fields:
        after["fields"] = codec.decode(row.fields)
    if agents.state_at(tx, agent) != agents.state_at(tx, agent, row.version):
        after["state"] = row.version
    found = _views(tx, changed, pins)
    for thing, name in (("hidden", "sessions"), ("head", "heads")):
        views = {session.id: found[session.sid][thing] for session in changed if thing in found[session.sid]}
        if views:
            after[name] = views
    return after


def _views(tx: Tx, changed: list[SessionRow], pins: Mapping[int, PinRow]) -> dict[int, View]:
    """Describe what each session has to become, by its number; empty if it already is."""
    away = [(session, pin) for session in changed if (pin := pins.get(session.sid)) and not _is_there(session, pin)]
    heads = _heads(tx, [(session, pin) for session, pin in away if pin.hidden != agent_checkpoints.UNKNOWN])
    return {session.sid: _view(tx, session, pins.get(session.sid), heads.get(session.sid)) for session in changed}


def _view(tx: Tx, session: SessionRow, pin: PinRow | None, head: list[Any] | None) -> View:
    """Describe what a session has to become: one made later goes to the trash, or back to empty if it is fixed."""
    if pin is None:
        if not moves.is_fixed(session):
            return {} if session.hidden else {"hidden": 1}
        return {"head": moves.head_at(tx, session, moves.Target(0))} if session.seq and not session.hidden else {}
    if pin.hidden == agent_checkpoints.UNKNOWN:
        return {}
    view: View = {}
    if bool(session.hidden) != bool(pin.hidden):
        view["hidden"] = pin.hidden
    if head is not None and (head[:2] != [session.uid, session.seq] or head[2] > session.attached):
        view["head"] = head
    return view


def _is_there(session: SessionRow, pin: PinRow) -> bool:
    """Whether a head is where a pin says, so that nothing has to be looked up."""
    here = session.branch, session.seq, session.hash
    return here == (pin.branch, pin.seq, pin.hash) and session.attached >= pin.attached


def _heads(tx: Tx, wanted: list[tuple[SessionRow, PinRow]]) -> dict[int, list[Any]]:
    """Return the heads for pins, by session: attached if its branch still ends there, else detached at that entry."""
    scope = wanted[0][0].scope if wanted else ""
    known = BRANCH.numbered(tx, scope, [pin.branch for _, pin in wanted], damaged=False)
    for session, pin in wanted:
        if pin.branch not in known:
            raise _no_way_back(session, f"the record of branch {pin.branch} is damaged or missing")
    try:
        points = log.points_on(tx, scope, [(known[pin.branch], pin.seq) for _, pin in wanted])
    except Error:
        points = {}  # found one by one, to report whose is lost
    found = dict[int, list[Any]]()
    for session, pin in wanted:
        branch = known[pin.branch]
        point = points.get((pin.branch, pin.seq)) or _point(tx, session, branch, pin.seq)
        if point.hash != pin.hash or branch.session != session.sid:
            raise _no_way_back(session, "a different entry is there now")
        here = session.attached and session.branch == branch.bid
        tip = session.seq if here else branch.tip_seq
        found[session.sid] = [branch.uid, pin.seq, int(bool(pin.attached) and tip == pin.seq)]
    return found


def _point(tx: Tx, session: SessionRow, branch: branches.BranchRow, seq: int) -> log.Point:
    try:
        return log.point_on(tx, session.scope, branch, seq)
    except Error as error:
        raise _no_way_back(session, str(error)) from error


def _no_way_back(session: SessionRow, why: str) -> Corrupt:
    return Corrupt(f"session {session.id!r} cannot go back: {why}", what=f"session {session.id}")


def _let_go(tx: Tx, changed: list[SessionRow], judge: Judge, now_ms: int) -> None:
    """Make sure that nobody else runs these sessions: raise ``Busy``, or fence a holder off so its next write fails."""
    held = sessions.held_leases(tx, changed)
    for session in changed:
        if session.sid in held and not judge.is_own(held[session.sid]):
            _end_hold(tx, session, held[session.sid], judge, now_ms)


def _end_hold(tx: Tx, session: SessionRow, lease: LeaseRow, judge: Judge, now_ms: int) -> None:
    if not judge.take_over and not judge.is_gone(lease):
        holder = presence.decode(lease.holder or b"")
        name = session.name or session.title or session.id
        raise Busy(
            f"session {name!r} is run by {holder}; wait until it is free, or take it over (take_over=True)",
            holder=str(holder),
        )
    if not session.hidden:
        runs.settle(tx, session, lease.token, (), now_ms=now_ms)
