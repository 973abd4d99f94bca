"""Agents: an identity with fields and a versioned state.

Every change, of fields or of state, is a version of its own, from 1. A version keeps the whole state, or
nothing where the state is that of the version before. A session's rewind never touches it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from .. import codec
from ..errors import Conflict, Corrupt, NotFound
from ..storage.base import Row, Tx, row_check
from . import feed
from .work import require_version

COLUMNS = "aid, scope, id, hidden, version, created_ms, modified_ms, fields, chk"
INSERT = f"INSERT INTO agent ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
BY_NUMBER = f"SELECT {COLUMNS} FROM agent WHERE aid = ?"
HAS = "SELECT 1 FROM agent WHERE scope = ? AND id = ? AND hidden = 0"
GET = f"SELECT {COLUMNS} FROM agent WHERE scope = ? AND id = ? AND hidden = 0"
LIST = f"SELECT {COLUMNS} FROM agent WHERE scope = ? AND hidden = 0 AND id > ? ORDER BY id LIMIT ?"
UPDATE = "UPDATE agent SET hidden = ?, version = ?, modified_ms = ?, fields = ?, chk = ? WHERE aid = ?"
ADD_VERSION = "INSERT INTO agent_version (scope, agent, version, at_ms, state, chk) VALUES (?, ?, ?, ?, ?, ?)"
STATE_AT = """SELECT scope, agent, version, at_ms, state, chk FROM agent_version
WHERE scope = ? AND agent = ? AND version <= ? AND state IS NOT NULL ORDER BY version DESC LIMIT 1"""
VERSION = (
    "SELECT scope, agent, version, at_ms, state, chk FROM agent_version WHERE scope = ? AND agent = ? AND version = ?"
)

EMPTY: dict[str, Any] = {
    "name": None,
    "type": "",
    "system_prompt": None,
    "capabilities": [],
    "config": {},
    "metadata": {},
}


class AgentRow(NamedTuple):
    """A row of ``agent``, checked."""

    aid: int
    scope: str
    id: str
    hidden: int
    version: int
    created_ms: int
    modified_ms: int
    fields: bytes


def checked(row: Row) -> AgentRow:
    """Check a row that was read; damage is ``Corrupt``."""
    if row_check(row[:-1]) != row[-1]:
        raise Corrupt(f"the record of agent {row[2]!r} is damaged", what=f"agent {row[2]}")
    return AgentRow(*row[:-1])


def find(tx: Tx, scope: str, agent_id: str) -> AgentRow | None:
    """Give a visible agent, or None."""
    row = tx.one(GET, (scope, agent_id))
    return None if row is None else checked(row)


def get(tx: Tx, scope: str, agent_id: str) -> AgentRow:
    """Give a visible agent."""
    found = find(tx, scope, agent_id)
    if found is None:
        raise NotFound(f"there is no agent {agent_id!r} in this store and scope")
    return found


def by_number(tx: Tx, aid: int) -> AgentRow:
    """Give an agent that must exist by its local number."""
    row = tx.one(BY_NUMBER, (aid,))
    if row is None:
        raise Corrupt(f"the record of agent number {aid} is missing", what=f"agent number {aid}")
    return checked(row)


def page(tx: Tx, scope: str, *, after: str, limit: int) -> list[AgentRow]:
    """Give visible agents in the order of their ids, behind one of them."""
    return [checked(row) for row in tx.all(LIST, (scope, after, limit))]


def create(tx: Tx, scope: str, agent_id: str, fields: bytes, *, now_ms: int) -> AgentRow:
    """Make an agent at version 1 with an empty state; a taken id is ``Conflict``."""
    if find(tx, scope, agent_id):
        raise Conflict(f"there is an agent {agent_id!r} already; update it, or choose another id", found=agent_id)
    return _create(tx, scope, agent_id, fields, now_ms)


def _create(tx: Tx, scope: str, agent_id: str, fields: bytes, now_ms: int) -> AgentRow:
    agent = AgentRow(tx.next("agent"), scope, agent_id, 0, 1, now_ms, now_ms, fields)
    tx.run(INSERT, (*agent, row_check(agent)))
    _add_version(tx, agent, b"{}", now_ms)
    feed.record_agent(tx, scope, agent.aid, "agent")
    return agent


def ensure(tx: Tx, scope: str, agent_id: str, *, now_ms: int) -> None:
    """Let there be an agent for a session that is being made; one that nobody described yet begins bare."""
    if tx.one(HAS, (scope, agent_id)) is None:
        tx.lock(f"agent {scope} {agent_id}")
        if find(tx, scope, agent_id) is None:
            _create(tx, scope, agent_id, codec.encode(EMPTY), now_ms)


def write(
    tx: Tx, agent: AgentRow, *, now_ms: int, fields: bytes | None = None, state: bytes | None = None, hidden: int = 0
) -> AgentRow:
    """Write the next version of an agent."""
    kept = agent.fields if fields is None else fields
    new = agent._replace(hidden=hidden, version=agent.version + 1, modified_ms=now_ms, fields=kept)
    tx.run(UPDATE, (new.hidden, new.version, new.modified_ms, new.fields, row_check(new), new.aid))
    _add_version(tx, new, state, now_ms)
    return new


def _add_version(tx: Tx, agent: AgentRow, state: bytes | None, now_ms: int) -> None:
    row = (agent.scope, agent.aid, agent.version, now_ms, state)
    tx.run(ADD_VERSION, (*row, row_check(row)))


# ---------------------------------------------------------------------- state


def state_at(tx: Tx, agent: AgentRow, version: int | None = None) -> dict[str, Any]:
    """Give the state at a version, the newest without one."""
    wanted = agent.version if version is None else version
    if not 1 <= wanted <= agent.version:
        raise NotFound(f"agent {agent.id!r} has versions 1 to {agent.version}, not {wanted}")
    row = tx.one(STATE_AT, (agent.scope, agent.aid, wanted))
    if row is None or row_check(row[:-1]) != row[-1] or not tx.one(VERSION, (agent.scope, agent.aid, wanted)):
        raise Corrupt(f"the state of agent {agent.id!r} at version {wanted} is damaged", what=f"agent {agent.id}")
    value = codec.decode(row[4])
    if not isinstance(value, dict):
        raise Corrupt(f"the state of agent {agent.id!r} is no object", what=f"agent {agent.id}")
    return value


def change_state(
    tx: Tx,
    scope: str,
    agent_id: str,
    *,
    put: Mapping[str, Any],
    drop: Iterable[str],
    expected_version: int | None,
    now_ms: int,
) -> AgentRow:
    """Set and delete keys; another version than the expected one is ``Conflict``. No change, no new version."""
    agent = get(tx, scope, agent_id)
    require_version(agent.version, expected_version)
    gone, before = set(drop), state_at(tx, agent)
    after = {**{key: value for key, value in before.items() if key not in gone}, **put}
    old, new = codec.encode(before), codec.encode(after)
    if old == new:
        return agent
    changed = write(tx, agent, now_ms=now_ms, state=new)
    feed.record_agent(tx, scope, agent.aid, "agent")
    return changed
