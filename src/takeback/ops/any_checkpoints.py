"""Checkpoints by id, whether they belong to an agent or to a session."""

from __future__ import annotations

from typing import TypeAlias

from ..errors import Invalid, NotFound
from ..model.checkpoint import Checkpoint
from ..model.operation import Operation
from ..storage.base import Tx
from ..tables.agents import AGENT, AGENT_CHECKPOINT
from . import agent_checkpoints, agent_restore, agents, checkpoints, sessions
from .agents import AgentRow
from .checkpoint_rows import Portion

Found: TypeAlias = "tuple[list[Checkpoint], int | None]"  # and where the next page begins


def get(tx: Tx, scope: str, wanted: str) -> Checkpoint:
    """Return a checkpoint of an agent or of a session."""
    found = agent_checkpoints.find(tx, scope, wanted)
    if found is not None:
        return agent_checkpoints.as_value(tx, agents.by_number(tx, scope, found.agent), found)
    row = checkpoints.by_id(tx, scope, wanted)
    if row is None:
        raise _not_found(wanted)
    return checkpoints.as_value(tx, sessions.by_number(tx, scope, row.session), row)


def of_agent(tx: Tx, scope: str, agent_id: str, number: int, portion: Portion) -> Found:
    """Return checkpoints of an agent known by its number, even if it is in the trash."""
    found = AGENT.get(tx, scope, number)
    if found is None or found.hidden == 2:
        raise _nothing(agent_id)
    return _of_agent(tx, found, portion)


def of_session(tx: Tx, scope: str, session_id: str, portion: Portion) -> Found:
    """Return checkpoints of a session."""
    found = sessions.find(tx, scope, session_id)
    if found is None:
        raise _nothing(session_id)
    return checkpoints.page(tx, found, portion)


def of_either(tx: Tx, scope: str, wanted: str, portion: Portion) -> Found:
    """Return checkpoints of the agent with this id, else of the session, else of the agent in the trash."""
    agent = agents.find_any(tx, scope, wanted)
    if agent is not None and not agent.hidden:
        return _of_agent(tx, agent, portion)
    session = sessions.find(tx, scope, wanted)
    if session is not None:
        return checkpoints.page(tx, session, portion)
    if agent is None:
        raise _nothing(wanted)
    return _of_agent(tx, agent, portion)


def _of_agent(tx: Tx, agent: AgentRow, portion: Portion) -> Found:
    rows, more = portion.read(tx, AGENT_CHECKPOINT, "scope = ? AND agent = ?", (agent.scope, agent.aid))
    return [agent_checkpoints.as_value(tx, agent, row) for row in rows], more


def restore(
    tx: Tx, scope: str, wanted: str, judge: agent_restore.Judge, *, now_ms: int
) -> tuple[AgentRow, Operation | None]:
    """Restore an agent to one of its checkpoints; a checkpoint of a session raises ``Invalid``."""
    row = agent_checkpoints.find(tx, scope, wanted)
    if row is not None:
        return agent_restore.restore(tx, row, judge, now_ms=now_ms)
    if checkpoints.by_id(tx, scope, wanted) is not None:
        raise Invalid(f"checkpoint {wanted!r} belongs to a session; use session.rewind to go back to it")
    raise _not_found(wanted)


def delete(tx: Tx, scope: str, wanted: str) -> None:
    """Erase a checkpoint; it is not an error if it does not exist."""
    found = agent_checkpoints.find(tx, scope, wanted)
    if found is not None:
        agent_checkpoints.delete(tx, found)
    elif row := checkpoints.by_id(tx, scope, wanted):
        agent_checkpoints.delete_of_session(tx, row)


def _nothing(wanted: str) -> NotFound:
    return NotFound(f"there is no agent or session {wanted!r} in this store and scope")


def _not_found(wanted: str) -> NotFound:
    return NotFound(f"there is no checkpoint {wanted!r} in this store and scope")
