"""Salvage of agents and their versions.

A version whose state is lost shows that of the version before it, and the loss is said: versions have no gaps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ... import codec
from ...ops import agents
from ...ops.verify.base import PURGED, is_object
from ...tables.agents import AGENT, VERSION, AgentRow, VersionRow
from ...tables.history import OPERATION
from .base import PARTLY, SPARE, Read, Salvage, proved

NEWEST = "SELECT agent, max(version), max(scope) FROM agent_version GROUP BY agent"
NAMED = "SELECT 1 FROM session WHERE scope = ? AND agent = ? LIMIT 1"
VISIBLE = "SELECT 1 FROM agent WHERE scope = ? AND id = ? AND hidden = 0 AND aid <> ?"
NAMELESS = """SELECT DISTINCT scope, agent FROM session s WHERE NOT EXISTS
(SELECT 1 FROM agent a WHERE a.scope = s.scope AND a.id = s.agent)"""


class _Versions(NamedTuple):
    """What the versions of an agent know of it: the newest number, and the scope if there is one."""

    newest: int = 0
    scope: str | None = None


def fix_agents(fix: Salvage) -> None:
    """Let every number have a sound row, and every version up to its newest one."""
    for version, sound, _ in fix.rows(VERSION):
        if not sound or not (version.state is None or is_object(version.state)):
            fix.delete(VERSION, version)
            _lost_state(fix, version.agent, version.version)
    known = {aid: _Versions(newest, scope) for aid, newest, scope in fix.tx.all(NEWEST)}
    for aid, found in fix.numbered(AGENT, known):
        versions = known.get(aid, _Versions())
        if found is not None and not found.sound and not versions.newest:
            fix.never_given(AGENT, found.row)
            continue
        row = _sound(found, versions)
        if row is None:
            row = _mend(fix, aid, found, versions)
        if row.hidden < 2:
            far = row.version > versions.newest + SPARE  # so many cannot have vanished
            _fill(fix, row, versions.newest if far else max(versions.newest, row.version))


def _sound(found: Read[AgentRow] | None, versions: _Versions) -> AgentRow | None:
    """Return a row that can stay: it is of the scope that its versions are of."""
    if found is None or not found.sound or not is_object(found.row.fields) or found.row.hidden not in (0, 1, PURGED):
        return None
    return found.row if versions.scope in (None, found.row.scope) else None


def _lost_state(fix: Salvage, aid: int, version: int) -> None:
    where = f"version {version} of agent number {aid}"
    fix.lose("agent", where, "its state is lost; it shows that of the version before", PARTLY)


def _mend(fix: Salvage, aid: int, found: Read[AgentRow] | None, versions: _Versions) -> AgentRow:
    if found is not None and is_object(found.row.fields) and found.sound:
        scope = found.row.scope if versions.scope is None else versions.scope
        return _marked(fix, found.row, found.row._replace(scope=scope))
    if found is not None:
        whole = proved(AGENT, found, _candidates(fix, aid, versions))
        if whole is not None and is_object(whole.fields):
            return fix.replace(AGENT, found.row, whole)
    new = _rebuilt(fix, aid, None if found is None else found.row, versions)
    fix.lose("agent", f"agent {new.id}", "its name, prompt, capabilities, config and metadata are lost", PARTLY)
    return fix.replace(AGENT, new, new)


def _marked(fix: Salvage, row: AgentRow, new: AgentRow) -> AgentRow:
    """Put a row right of which only the scope and whether it is to be seen may be wrong."""
    if new.hidden in (0, 1, PURGED):
        return fix.replace(AGENT, row, new)
    fix.lose("agent", f"agent {new.id}", "whether it was in the trash is lost", PARTLY)
    taken = fix.tx.one(VISIBLE, (new.scope, new.id, new.aid))
    return fix.replace(AGENT, row, new._replace(hidden=1 if taken else 0))


def _candidates(fix: Salvage, aid: int, versions: _Versions) -> Iterator[dict[str, Any]]:
    """Yield what a damaged row may have said."""
    created, modified = _times(fix, aid, versions)
    yield from ({"version": versions.newest}, {"created_ms": created}, {"modified_ms": modified})
    yield from ({"scope": versions.scope} for _ in range(versions.scope is not None))
    yield from ({"hidden": hidden} for hidden in (0, 1, 2))
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


def _rebuilt(fix: Salvage, aid: int, row: AgentRow | None, versions: _Versions) -> AgentRow:
    scope = versions.scope if versions.scope is not None else row.scope if row else ""
    agent_id, hidden = _id(fix, scope, aid, row)
    if fix.tx.one(VISIBLE, (scope, agent_id, aid)):
        hidden = 1
    created, modified = _times(fix, aid, versions._replace(scope=scope))
    fields = next(_fields(fix, aid))
    return AgentRow(scope, aid, agent_id, hidden, max(versions.newest, 1), created, modified, fields)


def _id(fix: Salvage, scope: str, aid: int, row: AgentRow | None) -> tuple[str, int]:
    """Return id and visibility: an id counts if a session names it, or if one name alone has no agent."""
    if row is not None and row.id and fix.tx.one(NAMED, (scope, row.id)):
        return row.id, row.hidden if row.hidden in (0, 1) else 0
    nameless = [agent_id for owner, agent_id in fix.tx.all(NAMELESS) if owner == scope]
    return (nameless[0], 0) if len(nameless) == 1 else (f"lost agent {aid}", 1)


def _fill(fix: Salvage, row: AgentRow, top: int) -> None:
    """Let an agent be at its newest version and have all of them."""
    at_ms = row.created_ms
    for number in range(1, top + 1):
        found = VERSION.get(fix.tx, row.scope, row.aid, number)
        at_ms = found.at_ms if found else at_ms
        if found is None or (number == 1 and found.state is None):
            VERSION.upsert(fix.tx, VersionRow(row.scope, row.aid, number, at_ms, None if number > 1 else b"{}"))
            _lost_state(fix, row.aid, number)
    if top != row.version:
        fix.replace(AGENT, row, row._replace(version=top))


def name_one(fix: Salvage, scope: str, agent_id: str) -> None:
    """Make a record for an agent that a session names and that has none."""
    aid, now_ms = fix.tx.next("agent"), fix.now_ms
    AGENT.put(fix.tx, AgentRow(scope, aid, agent_id, 0, 1, now_ms, now_ms, codec.encode(agents.EMPTY)))
    VERSION.put(fix.tx, VersionRow(scope, aid, 1, now_ms, b"{}"))
    fix.lose("agent", f"agent {agent_id}", "its record was missing: fields and state are lost", PARTLY)
