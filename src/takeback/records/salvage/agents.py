"""Salvage of agents, their versions, their checkpoints and the pins of those.

A version whose state is lost shows that of the version before it, and the loss is said: versions have no gaps. A pin
that cannot be proved says from then on that nobody knows where its session was: restoring leaves that one as it is. A
checkpoint stays if it is of the agent that it recorded and its sum over the pins fits, or if what does not fit was said
already; else it is left out, and its pins go on with the next one, which builds on them. How many pins and sessions it
has and what those add up to is not looked at: the sink computes that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ... import codec
from ...ids import is_id, new_id
from ...ops import agent_checkpoints, agent_totals, agents, chain, checkpoints, stored_json
from ...ops.agent_checkpoints import UNKNOWN, agent_hash, parts, total_of
from ...ops.verify.agents import OWNER, InForce, in_order, pin_fault, pin_name
from ...ops.verify.base import PURGED, UNREADABLE, has, intact, is_object
from ...storage.base import Tx
from ...tables.agents import AGENT, AGENT_CHECKPOINT, PIN, VERSION, AgentCheckpointRow, AgentRow, PinRow, VersionRow
from ...tables.history import OPERATION
from .base import PARTLY, SPARE, ReadRow, Salvage, proved, read_of
from .beside_the_log import BRANCHES_OF, places

NEWEST = "SELECT agent, max(version), max(scope) FROM agent_version GROUP BY agent"
NAMED = "SELECT 1 FROM session WHERE scope = ? AND agent = ? LIMIT 1"
VISIBLE = "SELECT 1 FROM agent WHERE scope = ? AND id = ? AND hidden = 0 AND aid <> ?"
NAMELESS = """SELECT DISTINCT scope, agent FROM session s WHERE NOT EXISTS
(SELECT 1 FROM agent a WHERE a.scope = s.scope AND a.id = s.agent)"""
AGENTS_OF = """SELECT a.aid FROM agent a JOIN session s ON s.scope = a.scope AND s.agent = a.id
WHERE s.scope = ? AND s.sid = ? AND s.hidden < 2"""
WITH_CHECKPOINTS = "SELECT DISTINCT scope, agent FROM agent_checkpoint ORDER BY scope, agent"
TAKEN = "SELECT 1 FROM agent_checkpoint WHERE scope = ? AND id = ? AND acid <> ?"
NEXT = "SELECT min(acid) FROM agent_checkpoint WHERE scope = ? AND agent = ? AND acid > ?"
_VERSIONS = 1000
_LOST_STATE = "its state is lost; it shows that of the version before"


class _Versions(NamedTuple):
    """What the versions of an agent know of it: the newest number, and the scope if there is one."""

    newest: int = 0
    scope: str | None = None


def fix_agents(fix: Salvage) -> None:
    """Make every number have a sound row, and every version up to its newest one."""
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


def _mend(fix: Salvage, aid: int, found: ReadRow[AgentRow] | None, versions: _Versions) -> AgentRow:
    """Return the row of an agent: as it is, as its check proves it, or as other records know it."""
    old = None if found is None else found.row
    row = old
    if found is not None and not found.sound:
        row = proved(AGENT, found, _candidates(fix, aid, versions))
    if row is None or stored_json.fault(row.fields, stored_json.AgentFields):
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
    """Bring an agent to its newest version, with none left out."""
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


# ---------------------------------------------------------------------- checkpoints


def fix_agent_points(fix: Salvage) -> None:
    """Put checkpoints of agents right."""
    for scope, aid in fix.tx.all(WITH_CHECKPOINTS):
        _prove(fix, scope, aid)
    unknown = _fix_pins(fix)
    for scope, aid in fix.tx.all(WITH_CHECKPOINTS):
        _fix_agent(fix, scope, aid, unknown=None in unknown or aid in unknown)


def _prove(fix: Salvage, scope: str, aid: int) -> None:
    for stored, here in in_order(fix.tx, scope, aid):
        found = read_of(AGENT_CHECKPOINT, stored)
        new = None if found.sound else proved(AGENT_CHECKPOINT, found, _sayings(fix, found.row, here))
        if new is not None:
            fix.replace(AGENT_CHECKPOINT, found.row, new)


def _sayings(fix: Salvage, row: AgentCheckpointRow, here: InForce) -> Iterator[dict[str, Any]]:
    """Yield what a damaged row may have said."""
    yield from ({"name": row.id}, {"id": row.name}, {"sessions": agent_checkpoints.visible(here.pins)})
    yield {"checksum": row.checksum[:72] + agent_totals.encode(here.totals)}
    agent = intact(fix.tx, AGENT, row.scope, row.agent)
    if agent is not None:
        yield {"fields": agent.fields}
        yield from ({"version": version} for version in range(agent.version, max(0, agent.version - _VERSIONS), -1))


def _fix_agent(fix: Salvage, scope: str, aid: int, *, unknown: bool) -> None:
    """Go through an agent's checkpoints in order; keep those that fit."""
    agent, gone = intact(fix.tx, AGENT, scope, aid), []
    for stored, here in in_order(fix.tx, scope, aid):
        row, sound, _ = read_of(AGENT_CHECKPOINT, stored)
        new, where = row if sound else _partly(fix, row), f"checkpoint {row.id}"
        fits = _is_sum_of(row, here.pins)
        if not _is_of(fix.tx, agent, new) or not (fits or unknown):
            gone.append(row)
            fix.lose("checkpoint", where, "its record was damaged, or something that it names is lost")
        elif not fits:
            fix.lose("checkpoint", where, "where one of its sessions was is lost", PARTLY)
        elif not sound:
            fix.lose("checkpoint", where, "its name, type or time may be others", PARTLY)
        fix.replace(AGENT_CHECKPOINT, row, new)
    for row in gone:
        for pin, _, _ in fix.all(PIN, "WHERE scope = ? AND checkpoint = ?", (scope, row.acid)):
            _move(fix, pin, aid)
        fix.delete(AGENT_CHECKPOINT, row)


def _is_of(tx: Tx, agent: AgentRow | None, row: AgentCheckpointRow) -> bool:
    """Whether a checkpoint is of an agent: its fields and its state then are those that it recorded."""
    try:
        known = agent is not None and agent.hidden != PURGED and row.type in checkpoints.TYPES
        return known and parts(row).agent == agent_hash(tx, agent, row.fields, row.version)  # type: ignore[arg-type]
    except UNREADABLE:
        return False


def _partly(fix: Salvage, row: AgentCheckpointRow) -> AgentCheckpointRow:
    """Return a damaged row as far as it can be used."""
    known = is_id(row.id) and not fix.tx.one(TAKEN, (row.scope, row.id, row.acid))
    checkpoint_id = row.id if known else new_id(fix.now_ms)
    name = row.name if row.name and "\0" not in row.name else checkpoint_id
    return row._replace(id=checkpoint_id, name=name, type=row.type if row.type in checkpoints.TYPES else "manual")


def _move(fix: Salvage, pin: PinRow, aid: int) -> bool:
    """Move a pin whose checkpoint goes to the next checkpoint of an agent, if that has none of its own."""
    (following,) = fix.tx.one(NEXT, (pin.scope, aid, pin.checkpoint)) or (None,)
    fix.delete(PIN, pin)
    if following is None or has(fix.tx, PIN, pin.scope, pin.session, following):
        return False
    PIN.put(fix.tx, pin._replace(checkpoint=following))
    return True


# ---------------------------------------------------------------------- pins


def _fix_pins(fix: Salvage) -> set[int | None]:
    """Prove pins or say that nobody knows; return the agents of which something is not known any more, None for all."""
    unknown = set[int | None]()
    for found in list(fix.rows(PIN)):
        pin, owner = found.row, fix.tx.one(OWNER, (found.row.scope, found.row.checkpoint))
        if found.sound and not pin_fault(fix.tx, pin):
            continue
        if found.sound and owner is None:
            any(_move(fix, pin, aid) for (aid,) in fix.tx.all(AGENTS_OF, (pin.scope, pin.session)))
            fix.delete(PIN, pin)
            fix.lose("checkpoint", f"checkpoint number {pin.checkpoint}", "its record is missing")
            continue
        fix.delete(PIN, pin)
        new = fix.mended(PIN, found, _pin_fault, places(fix, found))
        if new is None and not found.sound and not _pin_fault(fix.tx, pin) and _is_summed(fix, pin):
            new = pin
        if new is not None:
            PIN.put(fix.tx, new)
            continue
        unknown.add(owner[0] if owner else None)
        own = fix.tx.one(BRANCHES_OF, (pin.session,))
        nowhere = pin._replace(branch=own[0] if own else 0, seq=0, attached=0, hash=chain.GENESIS, hidden=UNKNOWN)
        if own and not _pin_fault(fix.tx, nowhere):
            PIN.put(fix.tx, nowhere)
        fix.lose("checkpoint", pin_name(pin), "it was damaged, or the entry is lost: restoring leaves it out")
    return unknown


def _pin_fault(tx: Tx, pin: PinRow) -> str:
    taken = has(tx, PIN, pin.scope, pin.session, pin.checkpoint)
    return "there is another one" if taken else pin_fault(tx, pin)


def _is_summed(fix: Salvage, pin: PinRow) -> bool:
    """Whether the check alone of a pin was damaged: the sum of its checkpoint has the pin in it."""
    checkpoint = intact(fix.tx, AGENT_CHECKPOINT, pin.scope, pin.checkpoint)
    if checkpoint is None:
        return False
    pins = dict[int, PinRow]()
    for stored, here in in_order(fix.tx, checkpoint.scope, checkpoint.agent):
        pins = dict(here.pins) if read_of(AGENT_CHECKPOINT, stored).row.acid <= checkpoint.acid else pins
    return _is_sum_of(checkpoint, pins | {pin.session: pin})


def _is_sum_of(row: AgentCheckpointRow, pins: dict[int, PinRow]) -> bool:
    return len(row.checksum) in agent_checkpoints.SIZES and parts(row).total == total_of(pins.values())
