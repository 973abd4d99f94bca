"""Salvage of agents and their versions.

A version whose state is lost shows that of the version before it, and the loss is said: versions have no gaps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ... import codec
from ...ops import agents, things
from ...ops.verify.base import PURGED, is_object
from ...storage.base import Tx
from ...tables.agents import AGENT, VERSION, AgentRow, VersionRow
from ...tables.history import OPERATION
from .base import PARTLY, SPARE, Read, Salvage, proved

NEWEST = "SELECT agent, max(version), max(scope) FROM agent_version GROUP BY agent"
NAMED = "SELECT 1 FROM session WHERE scope = ? AND agent = ? LIMIT 1"
VISIBLE = "SELECT 1 FROM agent WHERE scope = ? AND id = ? AND hidden = 0 AND aid <> ?"
NAMELESS = """SELECT DISTINCT scope, agent FROM session s WHERE NOT EXISTS
(SELECT 1 FROM agent a WHERE a.scope = s.scope AND a.id = s.agent)"""
_LOST_STATE = "its state is lost; it shows that of the version before"


class _Versions(NamedTuple):
    """What the versions of an agent know of it: the newest number, and the scope if there is one."""

    newest: int = 0
    scope: str | None = None


def fix_agents(fix: Salvage) -> None:
    """Let every number have a sound row, and every version up to its newest one."""
    fix.settle(VERSION, _is_unreadable, "agent", _LOST_STATE, fix=PARTLY)
    known = {aid: _Versions(newest, scope) for aid, newest, scope in fix.tx.all(NEWEST)}
    for aid, found in fix.numbered(AGENT, known, known):
        versions = known.get(aid, _Versions())
        row = _mend(fix, aid, found, versions)
        if row.hidden < PURGED:
            far = row.version > versions.newest + SPARE  # so many cannot have vanished
            _fill(fix, row, versions.newest if far else max(versions.newest, row.version))


def _is_unreadable(tx: Tx, version: VersionRow) -> bool:
    return not (version.state is None or is_object(version.state))


def _mend(fix: Salvage, aid: int, found: Read[AgentRow] | None, versions: _Versions) -> AgentRow:
    """Return the row of an agent: as it is, as its check proves it, or as other records know it."""
    old = None if found is None else found.row
    row = old
    if found is not None and not found.sound:
        row = proved(AGENT, found, _candidates(fix, aid, versions))
    if row is None or things.fault(row.fields, things.Fields):
        row = _rebuilt(fix, aid, old, versions)
        fix.lose("agent", f"agent {row.id}", "its name, prompt, capabilities, config and metadata are lost", PARTLY)
    elif row.hidden not in (0, 1, PURGED):
        row = row._replace(hidden=int(fix.tx.one(VISIBLE, (row.scope, row.id, aid)) is not None))
        fix.lose("agent", f"agent {row.id}", "whether it was in the trash is lost", PARTLY)
    if versions.scope is not None:
        row = row._replace(scope=versions.scope)
    return row if found is not None and (row, True) == found[:2] else fix.replace(AGENT, row, row)


def _candidates(fix: Salvage, aid: int, versions: _Versions) -> Iterator[dict[str, Any]]:
    """Yield what a damaged row may have said."""
    created, modified = _times(fix, aid, versions)
    yield from ({"version": versions.newest}, {"created_ms": created}, {"modified_ms": modified})
    yield from ({"fields": fields} for fields in _fields(fix, aid))
    yield from ({"id": agent_id} for _, agent_id in fix.tx.all(NAMELESS))


def _times(fix: Salvage, aid: int, versions: _Versions) -> tuple[int, int]:
    """Return when an agent was made and last changed, as its versions know it."""
    asked = ((versions.scope or "", aid, number) for number in (1, versions.newest))
    first, last = (VERSION.get(fix.tx, *each) for each in asked)
    created = first.at_ms if first else fix.now_ms
    return created, last.at_ms if last else created


def _fields(fix: Salvage, aid: int) -> Iterator[bytes]:
    """Yield the fields that the operations log knows for an agent, newest first."""
    for operation, sound, _ in fix.all(OPERATION, "WHERE agent = ? ORDER BY oid DESC", (aid,)):
        for view in (operation.after, operation.before):
            said = codec.decode(view) if sound and is_object(view) else {}
            if "fields" in said:
                yield codec.encode(said["fields"])
    yield codec.encode(agents.EMPTY)


def _rebuilt(fix: Salvage, aid: int, old: AgentRow | None, versions: _Versions) -> AgentRow:
    """Return a row that is made of what other records know; an id counts if a session names it.

    If one name alone has no agent, the agent is that one.
    """
    scope = versions.scope if versions.scope is not None else old.scope if old else ""
    nameless = [agent_id for owner, agent_id in fix.tx.all(NAMELESS) if owner == scope]
    if old is not None and old.id and fix.tx.one(NAMED, (scope, old.id)):
        agent_id, hidden = old.id, int(old.hidden == 1)
    else:
        agent_id, hidden = (nameless[0], 0) if len(nameless) == 1 else (f"lost agent {aid}", 1)
    if fix.tx.one(VISIBLE, (scope, agent_id, aid)):
        hidden = 1
    times = _times(fix, aid, versions._replace(scope=scope))
    return AgentRow(scope, aid, agent_id, hidden, max(versions.newest, 1), *times, next(_fields(fix, aid)))


def _fill(fix: Salvage, row: AgentRow, top: int) -> None:
    """Let an agent be at its newest version and have all of them."""
    at_ms = row.created_ms
    for number in range(1, top + 1):
        found = VERSION.get(fix.tx, row.scope, row.aid, number)
        at_ms = found.at_ms if found else at_ms
        if found is None or (number == 1 and found.state is None):
            made = VersionRow(row.scope, row.aid, number, at_ms, None if number > 1 else b"{}")
            VERSION.upsert(fix.tx, made)
            fix.lose("agent", VERSION.called(made), _LOST_STATE, PARTLY)
    if top != row.version:
        fix.replace(AGENT, row, row._replace(version=top))


def name_one(fix: Salvage, scope: str, agent_id: str) -> None:
    """Make a record for an agent that a session names and that has none."""
    aid, now_ms = fix.tx.next("agent"), fix.now_ms
    AGENT.put(fix.tx, AgentRow(scope, aid, agent_id, 0, 1, now_ms, now_ms, codec.encode(agents.EMPTY)))
    VERSION.put(fix.tx, VersionRow(scope, aid, 1, now_ms, b"{}"))
    fix.lose("agent", f"agent {agent_id}", "its record was missing: fields and state are lost", PARTLY)
