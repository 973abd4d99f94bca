"""Salvage of checkpoints of agents and their pins, and of what is known of files.

A pin that cannot be proved says from then on that nobody knows where its session was: restoring leaves that one as it
is. A checkpoint stays if its checksum fits, or if what does not fit was said already; else it is left out, and
its pins go on with the next one, which builds on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...ids import is_id, new_id
from ...ops import agent_checkpoints, agent_totals, chain, checkpoints
from ...ops.agent_checkpoints import UNKNOWN, parts
from ...ops.log import key_of
from ...ops.verify import whole
from ...ops.verify.base import has, intact
from ...ops.verify.whole import InForce, checkpoint_fault, in_order, pin_fault
from ...tables.agents import AGENT, AGENT_CHECKPOINT, PIN, AgentCheckpointRow, PinRow
from ...tables.entries import ENTRY
from .base import PARTLY, Read, Salvage, proved

BRANCHES_OF = "SELECT bid FROM branch WHERE scope = ? AND session = ? ORDER BY bid"
AGENTS = "SELECT aid FROM agent WHERE scope = ?"
AGENTS_OF = """SELECT a.aid FROM agent a JOIN session s ON s.scope = a.scope AND s.agent = a.id
WHERE s.scope = ? AND s.sid = ? AND s.hidden < 2"""
WITH_CHECKPOINTS = "SELECT DISTINCT scope, agent FROM agent_checkpoint ORDER BY scope, agent"
TAKEN = "SELECT 1 FROM agent_checkpoint WHERE scope = ? AND id = ? AND acid <> ?"
NEXT = "SELECT min(acid) FROM agent_checkpoint WHERE scope = ? AND agent = ? AND acid > ?"
_VERSIONS = 1000


def fix_agent_points(fix: Salvage) -> None:
    """Put checkpoints of agents right."""
    for found in fix.rows(AGENT_CHECKPOINT):
        new = None if found.sound else proved(AGENT_CHECKPOINT, found, _candidates(fix, found.row))
        if new is not None:
            fix.replace(AGENT_CHECKPOINT, found.row, new)
    mended = _fix_pins(fix)
    for scope, aid in fix.tx.all(WITH_CHECKPOINTS):
        _fix_agent(fix, scope, aid, mended=None in mended or aid in mended)


# ---------------------------------------------------------------------- the rows


def _candidates(fix: Salvage, row: AgentCheckpointRow) -> Iterator[dict[str, Any]]:
    """Yield what a damaged row may have said."""
    yield from ({"name": row.id}, {"id": row.name})
    yield from ({"agent": aid} for (aid,) in fix.tx.all(AGENTS, (row.scope,)))
    agent = intact(fix.tx, AGENT, row.scope, row.agent)
    if agent is not None:
        yield {"fields": agent.fields}
        yield from ({"version": version} for version in range(agent.version, max(0, agent.version - _VERSIONS), -1))
    for _, each, here in in_order(fix.tx, row.scope, row.agent):
        if each.acid == row.acid:
            yield {"sessions": agent_checkpoints.visible(here.pins)}
            yield {"checksum": _with_totals(row, here).checksum}


def _with_totals(row: AgentCheckpointRow, here: InForce) -> AgentCheckpointRow:
    return row._replace(checksum=row.checksum[:72] + agent_totals.encode(here.totals))


def _with_sums(row: AgentCheckpointRow, here: InForce) -> AgentCheckpointRow:
    own = sum(pin.checkpoint == row.acid for pin in here.pins.values())
    total = agent_checkpoints.total_of(here.pins.values())
    checksum = agent_checkpoints.checksum(parts(row).agent, total, own, here.totals)
    return row._replace(sessions=agent_checkpoints.visible(here.pins), checksum=checksum)


def _fix_agent(fix: Salvage, scope: str, aid: int, *, mended: bool) -> None:
    """Go through an agent's checkpoints in order; keep those that fit."""
    agent, gone = intact(fix.tx, AGENT, scope, aid), []
    for sound, row, here in in_order(fix.tx, scope, aid):
        if sound and not checkpoint_fault(fix.tx, agent, row, here):
            continue
        new, where = _with_totals(row if sound else _partly(fix, row), here), f"checkpoint {row.id}"
        carried = _with_sums(new, here)
        if not checkpoint_fault(fix.tx, agent, new, here):
            fix.replace(AGENT_CHECKPOINT, row, new)
            if not sound:  # else only its statistics were wrong, and the sessions say them again
                fix.lose("checkpoint", where, "its name, type or time may be others", PARTLY)
        elif mended and not checkpoint_fault(fix.tx, agent, carried, here):
            fix.replace(AGENT_CHECKPOINT, row, carried)
            fix.lose("checkpoint", where, "where one of its sessions was is lost", PARTLY)
        else:
            gone.append(row)
            fix.lose("checkpoint", where, "its record was damaged, or something that it names is lost")
    for row in gone:
        (following,) = fix.tx.one(NEXT, (scope, aid, row.acid)) or (None,)
        for pin, _, _ in fix.all(PIN, "WHERE scope = ? AND checkpoint = ?", (scope, row.acid)):
            _move(fix, pin, following)
        fix.delete(AGENT_CHECKPOINT, row)


def _partly(fix: Salvage, row: AgentCheckpointRow) -> AgentCheckpointRow:
    """Return a damaged row as far as it can be used.

    Its position is not to be trusted, so from then on all changes count.
    """
    known = is_id(row.id) and not fix.tx.one(TAKEN, (row.scope, row.id, row.acid))
    checkpoint_id = row.id if known else new_id(fix.now_ms)
    name = row.name if row.name and "\0" not in row.name else checkpoint_id
    kind = row.type if row.type in checkpoints.TYPES else "manual"
    return row._replace(id=checkpoint_id, name=name, type=kind, position=0, rank=0)


def _move(fix: Salvage, pin: PinRow, following: int | None) -> bool:
    """Let a pin whose checkpoint goes be the next one's, if that has none of its own; it has one more then."""
    fix.delete(PIN, pin)
    if following is None or has(fix.tx, PIN, pin.scope, pin.session, following):
        return False
    PIN.put(fix.tx, pin._replace(checkpoint=following))
    row = intact(fix.tx, AGENT_CHECKPOINT, pin.scope, following)
    if row is not None and len(row.checksum) in agent_checkpoints.SIZES:
        said = parts(row)
        more = agent_checkpoints.checksum(said.agent, said.total, said.own + 1, said.totals)
        fix.replace(AGENT_CHECKPOINT, row, row._replace(checksum=more))
    return True


# ---------------------------------------------------------------------- pins


def _fix_pins(fix: Salvage) -> set[int | None]:
    """Prove pins or say that nobody knows; return the agents of which something is not known any more, None for all."""
    mended = set[int | None]()
    for found in list(fix.rows(PIN)):
        pin = found.row
        fault = pin_fault(fix.tx, pin) if found.sound else "damaged"
        if not fault:
            continue
        if fault == "its checkpoint is missing":
            _adopt(fix, pin)
            continue
        fix.delete(PIN, pin)
        new = _proved_pin(fix, found)
        if new is not None:
            PIN.put(fix.tx, new)
            continue
        (aid,) = fix.tx.one(whole.OWNER, (pin.scope, pin.checkpoint)) or (None,)
        mended.add(aid)
        own = fix.tx.one(BRANCHES_OF, (pin.scope, pin.session))
        unknown = pin._replace(branch=own[0] if own else 0, seq=0, attached=0, hash=chain.GENESIS, hidden=UNKNOWN)
        if own and not pin_fault(fix.tx, unknown):
            PIN.put(fix.tx, unknown)
        fix.lose("checkpoint", whole.pin_name(pin), "it was damaged, or the entry is lost: restoring leaves it out")
    return mended


def _proved_pin(fix: Salvage, found: Read[PinRow]) -> PinRow | None:
    """Return what a pin said that was taken out: by its check, by the hash of its entry, or by its checkpoint."""
    pin, places = found.row, list(_places(fix, found.row))
    if found.sound:
        tries = [pin._replace(branch=place["branch"]) for place in places if "branch" in place]
    else:
        tries = [new for new in (proved(PIN, found, places), pin if _is_fitting(fix, pin) else None) if new]
    free = (new for new in tries if not has(fix.tx, PIN, new.scope, new.session, new.checkpoint))
    return next((new for new in free if not pin_fault(fix.tx, new)), None)


def _places(fix: Salvage, pin: PinRow) -> Iterator[dict[str, Any]]:
    """Yield what a damaged pin may have said."""
    for (bid,) in fix.tx.all(BRANCHES_OF, (pin.scope, pin.session)):
        yield {"branch": bid}
        found = fix.find(ENTRY, key_of(bid, pin.seq))
        if found is not None and found.sound:
            yield from ({"hash": found.row.chain.hash}, {"branch": bid, "hash": found.row.chain.hash})
    yield {"seq": 0, "hash": chain.GENESIS}


def _is_fitting(fix: Salvage, pin: PinRow) -> bool:
    """Whether the check alone of a pin was damaged: the checksum of its checkpoint proves it."""
    checkpoint = intact(fix.tx, AGENT_CHECKPOINT, pin.scope, pin.checkpoint)
    if checkpoint is None:
        return False
    pins = dict[int, PinRow]()
    for _, row, here in in_order(fix.tx, checkpoint.scope, checkpoint.agent):
        pins = dict(here.pins) if row.acid <= checkpoint.acid else pins
    pins[pin.session] = pin
    return agent_checkpoints.total_of(pins.values()) == parts(checkpoint).total


def _adopt(fix: Salvage, pin: PinRow) -> None:
    """Let a pin whose checkpoint is gone be the next one's of its agent."""
    for (aid,) in fix.tx.all(AGENTS_OF, (pin.scope, pin.session)):
        (following,) = fix.tx.one(NEXT, (pin.scope, aid, pin.checkpoint)) or (None,)
        if _move(fix, pin, following):
            break
    fix.delete(PIN, pin)
    fix.lose("checkpoint", f"checkpoint number {pin.checkpoint}", "its record is missing")
