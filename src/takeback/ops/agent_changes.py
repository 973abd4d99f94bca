"""Changes to agents: create, update, and delete together with all their sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import codec
from ..model.operation import Operation
from ..storage.base import Tx
from . import agent_checkpoints, agents, idempotency, operations, sessions
from .agents import AgentRow
from .idempotency import ApiCall
from .work import require_version


def create_once(tx: Tx, scope: str, agent_id: str, call: ApiCall, doc: bytes) -> AgentRow:
    """Create an agent, once per idempotency key."""

    def do() -> tuple[AgentRow, str]:
        return agents.create(tx, scope, agent_id, doc, now_ms=call.now_ms), agent_id

    def again(made: str) -> AgentRow:
        return agents.get_any(tx, scope, made)

    return idempotency.once(tx, scope, 0, call, kind="agent", do=do, again=again)


def update_once(
    tx: Tx, scope: str, agent_id: str, call: ApiCall, changed: Mapping[str, Any], expected_version: int | None
) -> tuple[AgentRow, Operation | None]:
    """Change fields of an agent as one operation, once per idempotency key; a retry returns no operation."""

    def do() -> tuple[tuple[AgentRow, Operation | None], str]:
        row = agents.get(tx, scope, agent_id)
        require_version(row.version, expected_version)
        after = {"fields": {**codec.decode(row.fields), **changed}}
        return operations.on_agent(tx, row, "update", after, now_ms=call.now_ms), agent_id

    def again(made: str) -> tuple[AgentRow, Operation | None]:
        return agents.get_any(tx, scope, made), None

    return idempotency.once(tx, scope, 0, call, kind="agent", do=do, again=again)


def save_once(
    tx: Tx,
    scope: str,
    agent_id: str,
    call: ApiCall,
    *,
    changed: Mapping[str, Any],
    put: Mapping[str, Any],
    expected_version: int | None,
) -> tuple[AgentRow, Operation | None]:
    """Create an agent, or change its fields, and set keys of its state; a retry returns no operation."""

    def do() -> tuple[tuple[AgentRow, Operation | None], str]:
        row, done = agents.find(tx, scope, agent_id), None
        require_version(0 if row is None else row.version, expected_version)
        if row is None:
            row = agents.create(tx, scope, agent_id, codec.encode({**agents.EMPTY, **changed}), now_ms=call.now_ms)
        elif (after := {**codec.decode(row.fields), **changed}) != codec.decode(row.fields):
            row, done = operations.on_agent(tx, row, "update", {"fields": after}, now_ms=call.now_ms)
        if put:
            row = agents.change_state(tx, scope, agent_id, put=put, drop=(), expected_version=None, now_ms=call.now_ms)
        return (row, done), agent_id

    def again(made: str) -> tuple[AgentRow, Operation | None]:
        return agents.get_any(tx, scope, made), None

    return idempotency.once(tx, scope, 0, call, kind="agent", do=do, again=again)


def delete(tx: Tx, scope: str, agent_id: str, *, now_ms: int) -> Operation | None:
    """Checkpoint an agent, then move it and all its sessions to the trash; return None if it does not exist."""
    row = agents.find(tx, scope, agent_id)
    if row is None:
        return None
    before = agent_checkpoints.New(f"Before deleting {agent_id}", None, "pre-operation")
    agent_checkpoints.create_before(tx, row, before, now_ms=now_ms)
    owned = [each.id for each in sessions.of_agent(tx, scope, agent_id)]
    after = {"hidden": 1, "sessions": dict.fromkeys(owned, 1)}
    return operations.on_agent(tx, row, "delete", after, now_ms=now_ms)[1]
