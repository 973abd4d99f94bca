"""Repair of agents and their versions.

A version whose state is lost shows that of the version before it, and the loss is said: versions have no gaps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ... import codec
from ...storage.base import Row
from .. import agents, operations
from ..agent_checkpoints import FEED_KIND
from ..verify.base import is_sound
from ..verify.changes import FEED, change_fault
from ..verify.places import is_object
from ..verify.tables import AGENTS, VERSIONS
from .base import PARTLY, Repair, checked, extend, proved

NEWEST = "SELECT ifnull(max(version), 0), max(scope) FROM agent_version WHERE agent = ?"
TIME_OF = "SELECT at_ms FROM agent_version WHERE agent = ? AND version = ?"
VERSION = (
    "SELECT scope, agent, version, at_ms, state, chk FROM agent_version WHERE scope = ? AND agent = ? AND version = ?"
)
NAMED = "SELECT 1 FROM session WHERE scope = ? AND agent = ? LIMIT 1"
VISIBLE = "SELECT 1 FROM agent WHERE scope = ? AND id = ? AND hidden = 0 AND aid != ?"
UPDATES = f"SELECT {operations.COLUMNS} FROM operation WHERE agent = ? ORDER BY oid DESC"
NAMELESS = """SELECT DISTINCT scope, agent FROM session s WHERE NOT EXISTS
(SELECT 1 FROM agent a WHERE a.scope = s.scope AND a.id = s.agent)"""


def fix_agents(fix: Repair) -> None:
    """Let every number have a sound row, and every version up to its newest one."""
    for row in fix.rows(VERSIONS):
        if not is_sound(row) or not (row[4] is None or is_object(row[4])):
            fix.delete(VERSIONS, row[:3])
            _lost_state(fix, row[1], row[2])
    for aid, found in fix.numbered(AGENTS, _top(fix)):
        sound = found is not None and is_sound(found) and is_object(found[7]) and _is_at_home(fix, found)
        row = found if found is not None and sound else _mend(fix, aid, found)
        if row[3] < 2:
            _fill(fix, row, 0 if sound else _told(fix, aid))
    for row in fix.rows(VERSIONS):
        if row[1] > _top(fix):
            fix.delete(VERSIONS, row[:3])
            fix.lose("agent", f"version {row[2]} of agent number {row[1]}", "there is no such agent")


def _is_at_home(fix: Repair, row: Row) -> bool:
    """Say whether an agent is of the scope that its versions are of."""
    newest = fix.tx.one(NEWEST, row[:1])
    return newest is None or newest[1] in (None, row[1])


def _top(fix: Repair) -> int:
    told = [row[4] for row in fix.rows(FEED) if is_sound(row) and row[3] == 0]
    return extend(fix.highest(AGENTS), {*told} & {row[1] for row in fix.rows(VERSIONS)})


def _lost_state(fix: Repair, aid: int, version: int) -> None:
    where = f"version {version} of agent number {aid}"
    fix.lose("agent", where, "its state is lost; it shows that of the version before", PARTLY)


def _mend(fix: Repair, aid: int, row: Row | None) -> Row:
    newest, scope = fix.tx.one(NEWEST, (aid,)) or (0, None)
    if row is not None and is_sound(row) and is_object(row[7]):
        return _put(fix, checked((aid, scope, *row[2:8])))
    if row is not None:
        whole = proved(row, _candidates(fix, row, newest, scope))
        if whole is not None and is_object(whole[7]):
            return _put(fix, whole)
    whole = checked(_rebuilt(fix, aid, row or (aid, *[None] * 8), newest, scope))
    fix.replace(AGENTS, (aid,), whole)
    fix.lose("agent", f"agent {whole[2]}", "its name, prompt, capabilities, config and metadata are lost", PARTLY)
    return whole


def _put(fix: Repair, row: Row) -> Row:
    fix.replace(AGENTS, row[:1], row)
    fix.rebuilt += 1
    return row


def _candidates(fix: Repair, row: Row, newest: int, scope: str | None) -> Iterator[dict[int, Any]]:
    yield {4: newest}
    yield {1: scope}
    yield from ({3: hidden} for hidden in (0, 1, 2))
    yield from ({7: fields} for fields in _fields(fix, row[0]))
    times = fix.tx.one(TIME_OF, (row[0], 1)), fix.tx.one(TIME_OF, (row[0], newest))
    yield from ({index: time[0]} for index, time in zip((5, 6), times, strict=True) if time)
    yield from ({2: agent_id} for _, agent_id in fix.tx.all(NAMELESS))


def _fields(fix: Repair, aid: int) -> Iterator[bytes]:
    """Give the fields that the operations log knows for an agent, newest first."""
    for operation in fix.tx.all(UPDATES, (aid,)):
        for view in (operation[8], operation[7]):
            said = codec.decode(view) if is_sound(operation) and is_object(view) else {}
            if "fields" in said:
                yield codec.encode(said["fields"])
    yield codec.encode(agents.EMPTY)


def _rebuilt(fix: Repair, aid: int, row: Row, newest: int, scope: str | None) -> Row:
    scope = scope if scope is not None else row[1] or ""
    agent_id, hidden = _id(fix, scope, row)
    if fix.tx.one(VISIBLE, (scope, agent_id, aid)):
        hidden = 1
    first, last = fix.tx.one(TIME_OF, (aid, 1)), fix.tx.one(TIME_OF, (aid, newest))
    created = first[0] if first else fix.now_ms
    return (
        aid,
        scope,
        agent_id,
        hidden,
        max(newest, 1),
        created,
        last[0] if last else created,
        next(_fields(fix, aid)),
    )


def _id(fix: Repair, scope: str, row: Row) -> tuple[str, int]:
    """Give id and visibility: an id counts if a session names it, or if one name alone has no agent."""
    if isinstance(row[2], str) and row[2] and fix.tx.one(NAMED, (scope, row[2])):
        return row[2], row[3] if row[3] in (0, 1) else 0
    nameless = [agent_id for owner, agent_id in fix.tx.all(NAMELESS) if owner == scope]
    return (nameless[0], 0) if len(nameless) == 1 else (f"lost agent {row[0]}", 1)


def _told(fix: Repair, aid: int) -> int:
    """Give how many versions of an agent the feed tells of."""
    rows = (row for row in fix.rows(FEED) if row[3:5] == (0, aid) and row[2] != FEED_KIND and is_sound(row))
    return sum(not change_fault(fix.tx, row) for row in rows)


def _fill(fix: Repair, row: Row, told: int) -> None:
    """Let an agent be at its newest version and have all of them."""
    aid, scope, version = row[0], row[1], row[4]
    newest, _ = fix.tx.one(NEWEST, (aid,)) or (0, None)
    top, at_ms = max(newest, version, told), row[5]
    for number in range(1, top + 1):
        found = fix.tx.one(VERSION, (scope, aid, number))
        at_ms = found[3] if found else at_ms
        if found is None or (number == 1 and found[4] is None):
            fix.replace(
                VERSIONS, (scope, aid, number), checked((scope, aid, number, at_ms, None if number > 1 else b"{}"))
            )
            _lost_state(fix, aid, number)
    if top != version:
        fix.replace(AGENTS, (aid,), checked((*row[:4], top, *row[5:8])))
        fix.rebuilt += 1


def name_one(fix: Repair, scope: str, agent_id: str) -> None:
    """Make a record for an agent that a session names and that has none."""
    aid = _top(fix) + 1
    row = (aid, scope, agent_id, 0, 1, fix.now_ms, fix.now_ms, codec.encode(agents.EMPTY))
    fix.insert(AGENTS, checked(row))
    fix.insert(VERSIONS, checked((scope, aid, 1, fix.now_ms, b"{}")))
    fix.lose("agent", f"agent {agent_id}", "its record was missing: fields and state are lost", PARTLY)
