"""Agents: an identity with fields and a versioned state.

Every change to fields or state is a new version, starting at 1. A version stores the whole state, or nothing if the
state equals that of the previous version. Rewinding a session never touches its agent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .. import codec
from ..errors import Conflict, Corrupt, NotFound
from ..storage.base import LOCK, Tx
from ..tables.agents import AGENT, VERSION, VersionRow
from ..tables.agents import AgentRow as AgentRow
from . import feed, idempotency, work

if TYPE_CHECKING:
    from .idempotency import ApiCall

BY_ID = f"WHERE scope = ? AND id = ? AND hidden = 0{LOCK}"
ANY_BY_ID = f"WHERE scope = ? AND id = ? AND hidden < 2 ORDER BY hidden, aid DESC LIMIT 1{LOCK}"
HAS = "SELECT 1 FROM agent WHERE scope = ? AND id = ? AND hidden = 0"
HAS_VERSION = "SELECT 1 FROM agent_version WHERE scope = ? AND agent = ? AND version = ?"
STATE_AT = f"""{VERSION.select} WHERE scope = ? AND agent = ? AND version <= ? AND state IS NOT NULL
ORDER BY version DESC LIMIT 1"""

EMPTY: dict[str, Any] = {
    "name": None,
    "type": "",
    "system_prompt": None,
    "capabilities": [],
    "config": {},
    "metadata": {},
}


def find(tx: Tx, scope: str, agent_id: str) -> AgentRow | None:
    """Return a visible agent, or None."""
    return AGENT.one(tx, BY_ID, (scope, agent_id))


def find_any(tx: Tx, scope: str, agent_id: str) -> AgentRow | None:
    """Return the visible agent with that id, else the last one moved to the trash, or None."""
    return AGENT.one(tx, ANY_BY_ID, (scope, agent_id))


def get(tx: Tx, scope: str, agent_id: str) -> AgentRow:
    """Return a visible agent."""
    return _there(find(tx, scope, agent_id), agent_id)


def get_any(tx: Tx, scope: str, agent_id: str) -> AgentRow:
    """Return an agent: the visible one, else the last one moved to the trash."""
    return _there(find_any(tx, scope, agent_id), agent_id)


def _there(found: AgentRow | None, agent_id: str) -> AgentRow:
    if found is None:
        raise NotFound(f"there is no agent {agent_id!r} in this store and scope")
    return found


def by_number(tx: Tx, scope: str, aid: int) -> AgentRow:
    """Return an agent that must exist by its local number."""
    found = AGENT.get_locked(tx, scope, aid)
    if found is None:
        raise Corrupt(f"the record of agent number {aid} is missing", what=f"agent number {aid}")
    return found


def page(tx: Tx, scope: str, *, after: str, limit: int) -> list[AgentRow]:
    """Return visible agents ordered by id, after a given id."""
    return AGENT.all(tx, "WHERE scope = ? AND hidden = 0 AND id > ? ORDER BY id LIMIT ?", (scope, after, limit))


def create(tx: Tx, scope: str, agent_id: str, fields: bytes, *, now_ms: int) -> AgentRow:
    """Create an agent at version 1 with an empty state; an id that is taken raises ``Conflict``."""
    if find(tx, scope, agent_id):
        raise Conflict(f"agent {agent_id!r} already exists; update it, or choose another id", found=agent_id)
    return _create(tx, scope, agent_id, fields, now_ms)


def _create(tx: Tx, scope: str, agent_id: str, fields: bytes, now_ms: int) -> AgentRow:
    agent = AGENT.put(tx, AgentRow(scope, tx.next("agent"), agent_id, 0, 1, now_ms, now_ms, fields))
    _add_version(tx, agent, b"{}", now_ms)
    feed.record_agent(tx, scope, agent.aid, "agent")
    return agent


def ensure(tx: Tx, scope: str, agent_id: str, *, now_ms: int) -> None:
    """Create the agent of a new session, with empty fields, unless it already exists."""
    if tx.one(HAS, (scope, agent_id)) is None:
        tx.lock(f"agent {scope} {agent_id}")  # and search again below: another session may just have created it
        if find(tx, scope, agent_id) is None:
            _create(tx, scope, agent_id, codec.encode(EMPTY), now_ms)


def write(
    tx: Tx, agent: AgentRow, *, now_ms: int, fields: bytes | None = None, state: bytes | None = None, hidden: int = 0
) -> AgentRow:
    """Write the next version of an agent."""
    kept = agent.fields if fields is None else fields
    new = agent._replace(hidden=hidden, version=agent.version + 1, modified_ms=now_ms, fields=kept)
    AGENT.update(tx, agent, new)
    _add_version(tx, new, state, now_ms)
    return new


def _add_version(tx: Tx, agent: AgentRow, state: bytes | None, now_ms: int) -> None:
    VERSION.put(tx, VersionRow(agent.scope, agent.aid, agent.version, now_ms, state))


# ---------------------------------------------------------------------- state


def state_at(tx: Tx, agent: AgentRow, version: int | None = None) -> dict[str, Any]:
    """Return the state at a version, by default the newest."""
    wanted = agent.version if version is None else version
    if not 1 <= wanted <= agent.version:
        raise NotFound(f"agent {agent.id!r} has versions 1 to {agent.version}, not {wanted}")
    stored = tx.one(STATE_AT, (agent.scope, agent.aid, wanted))
    known = tx.one(HAS_VERSION, (agent.scope, agent.aid, wanted)) is not None
    if stored is None or not known or not VERSION.is_sound(stored):
        raise Corrupt(f"the state of agent {agent.id!r} at version {wanted} is damaged", what=f"agent {agent.id}")
    value = codec.decode(VERSION.unchecked(stored).state or b"")
    if not isinstance(value, dict):
        raise Corrupt(f"the state of agent {agent.id!r} is not an object", what=f"agent {agent.id}")
    return value


def state_of(tx: Tx, scope: str, agent_id: str, version: int | None) -> tuple[int, dict[str, Any]]:
    """Return the version and content of an agent's state, now or at a version."""
    row = get(tx, scope, agent_id)
    return version or row.version, state_at(tx, row, version)


def change_state_once(
    tx: Tx,
    scope: str,
    agent_id: str,
    call: ApiCall,
    *,
    put: Mapping[str, Any],
    drop: Iterable[str],
    expected: int | None,
) -> int:
    """Change an agent's state, once per idempotency key, and return the new version."""

    def do() -> tuple[int, str]:
        row = change_state(tx, scope, agent_id, put=put, drop=drop, expected_version=expected, now_ms=call.now_ms)
        return row.version, str(row.version)

    return idempotency.once(tx, scope, 0, call, kind="state", do=do, again=int)


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
    """Set and delete keys; an unexpected version raises ``Conflict``. Nothing changed means no new version."""
    agent = get(tx, scope, agent_id)
    work.require_version(agent.version, expected_version)
    gone, before = set(drop), state_at(tx, agent)
    after = {**{key: value for key, value in before.items() if key not in gone}, **put}
    old, new = codec.encode(before), codec.encode(after)
    if old == new:
        return agent
    changed = write(tx, agent, now_ms=now_ms, state=new)
    feed.record_agent(tx, scope, agent.aid, "agent")
    return changed
