"""Restoring an agent to a checkpoint: fields, state and all its sessions, as one operation that can be undone.

Everything is checked before anything changes: the checkpoint's checksum over all its pins, the agent's state at that
time, and the entries that heads move to. A checkpoint of type ``recovery`` keeps the present state. Only sessions that
changed since are touched; a session purged since cannot be restored and is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .. import codec, presence
from ..errors import Busy, Corrupt, Error
from ..model.operation import Operation
from ..storage.base import Tx
from . import agent_checkpoints, agents, branches, entries, moves, operations, runs, sessions
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
    changed = [(session, pins.get(session.sid)) for session in _changed(tx, agent, row)]
    changed = [(session, pin) for session, pin in changed if _view(tx, session, pin)]
    for session, _ in changed:
        _let_go(tx, session, judge, now_ms)
    before = New(f"Before restoring {row.name}", None, "recovery")
    agent_checkpoints.create_before(tx, agent, before, now_ms=now_ms)
    # Read the rows again: taking sessions from their holders changed some of them.
    left = operations.all_unless_purged(tx, row.scope, [session.id for session, _ in changed])
    after = _after(tx, agent, row, [(session, pins.get(session.sid)) for session in left.values()])
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


def _after(tx: Tx, agent: AgentRow, row: AgentCheckpointRow, changed: list[tuple[SessionRow, PinRow | None]]) -> View:
    """Describe what the agent has to become; empty if it already is."""
    after: View = {}
    if agent.hidden:
        after["hidden"] = 0
    if agent.fields != row.fields:
        after["fields"] = codec.decode(row.fields)
    if agents.state_at(tx, agent) != agents.state_at(tx, agent, row.version):
        after["state"] = row.version
    views = {session.id: _view(tx, session, pin) for session, pin in changed}
    for thing, name in (("hidden", "sessions"), ("head", "heads")):
        found = {session_id: view[thing] for session_id, view in views.items() if thing in view}
        if found:
            after[name] = found
    return after


def _view(tx: Tx, session: SessionRow, pin: PinRow | None) -> View:
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
    head = _head(tx, session, pin)
    if head[:2] != [session.uid, session.seq] or head[2] > session.attached:
        view["head"] = head
    return view


def _head(tx: Tx, session: SessionRow, pin: PinRow) -> list[Any]:
    """Return the head for a pin: attached if its branch still ends there, else detached at that entry."""
    try:
        branch = branches.get(tx, pin.scope, pin.branch)
        found = entries.point_on(tx, session.scope, branch, pin.seq).hash
    except Error as error:
        raise Corrupt(f"session {session.id!r} cannot go back: {error}", what=f"session {session.id}") from error
    if found != pin.hash or branch.session != session.sid:
        raise Corrupt(
            f"session {session.id!r} cannot go back: a different entry is there now", what=f"session {session.id}"
        )
    here = session.attached and session.branch == branch.bid
    tip = session.seq if here else branch.tip_seq
    return [branch.uid, pin.seq, int(bool(pin.attached) and tip == pin.seq)]


def _let_go(tx: Tx, session: SessionRow, judge: Judge, now_ms: int) -> None:
    """Make sure that nobody else runs a session: raise ``Busy``, or fence the holder off so its next write fails."""
    lease = sessions.find_lease(tx, session)
    if lease is None or lease.holder is None or judge.is_own(lease):
        return
    if not judge.take_over and not judge.is_gone(lease):
        holder = presence.decode(lease.holder)
        name = session.name or session.title or session.id
        raise Busy(
            f"session {name!r} is run by {holder}; wait until it is free, or take it over (take_over=True)",
            holder=str(holder),
        )
    if not session.hidden:
        runs.settle(tx, session, lease.token, (), now_ms=now_ms)
