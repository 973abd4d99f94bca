"""Agents on their way into a store: a new one is begun where nobody sees it, and shown with its last version.

An agent is the same one in both stores if it has the same id and was made at the same moment. An agent that nobody
described - no fields, no state, as every session makes one - stands for whatever agent has its id. Otherwise two
visible agents with one id are a conflict, unless they say the same.
"""

from __future__ import annotations

from .. import codec
from ..errors import Conflict, Corrupt, Invalid
from ..ops import agent_checkpoints, agent_totals, agents, branches, feed, sessions
from ..ops.verify.agents import place_fault
from ..ops.verify.base import Read
from ..storage.base import LOCK, Tx, scalar
from ..tables.agents import AGENT, AGENT_CHECKPOINT, PIN, VERSION, AgentCheckpointRow, AgentRow, PinRow, VersionRow
from ..tables.sessions import PURGED
from .as_of import AGAIN, OPERATION_ID, OPERATIONS, tally
from .stream import AgentPoint, AgentRecord, Pin

NEWEST_POINT = "WHERE scope = ? AND agent = ? ORDER BY acid DESC LIMIT 1"
POINTS = "SELECT 1 FROM agent_checkpoint WHERE scope = ? AND agent = ? LIMIT 1"
ORDINAL = "SELECT count(*) FROM agent WHERE scope = ? AND id = ? AND created_ms = ? AND aid < ?"
TWIN = f"WHERE scope = ? AND id = ? AND created_ms = ? ORDER BY aid LIMIT 1 OFFSET ?{LOCK}"

_STAGED = b'{"copying":true}'
_EMPTY = codec.encode(agents.EMPTY)


def agent_of(tx: Tx, row: AgentRow) -> AgentRecord:
    """Name an agent so that it is found in another store."""
    return AgentRecord(row, int(scalar(tx, ORDINAL, (row.scope, row.id, row.created_ms, row.aid))))


def find_twin(tx: Tx, agent: AgentRecord) -> AgentRow | None:
    """Return the agent that is the same one in another store, or None: several in the trash may have one id."""
    row = agent.row
    return AGENT.one(tx, TWIN, (row.scope, row.id, row.created_ms, agent.ordinal))


def is_staged(row: AgentRow) -> bool:
    """Whether an agent is half copied."""
    return row.hidden == PURGED and row.fields == _STAGED


def number(tx: Tx, scope: str, name: str, *, itself: bool = False) -> int:
    """Return the number of the agent that ``AgentRecord.name`` names; where another stands for it, of that one.

    ``itself`` is for what only the agent itself can have: 0 if it is not there.
    """
    created_ms, _, rest = name.partition(".")
    ordinal, _, agent_id = rest.partition(".")
    if not (created_ms.lstrip("-").isdigit() and ordinal.isdigit()):
        raise Invalid(f"{name!r} does not name an agent")
    found = AGENT.one(tx, TWIN, (scope, agent_id, int(created_ms), int(ordinal)))
    if itself:
        return found.aid if found is not None and not is_staged(found) else 0
    found = found or agents.find(tx, scope, agent_id)
    if found is None:
        raise Invalid(f"agent {agent_id!r} did not come before what names it")
    return found.aid


# ---------------------------------------------------------------------- deciding


def reached(agent: AgentRecord, look: Read, read: Read) -> int | None:
    """Return the version that the destination has, 0 for none; None if there is nothing to do.

    An agent that says something else in the destination raises ``Conflict``. The two stores are read one after the
    other, never one within a read of the other: two copies in both directions would wait for each other.
    """
    mine, twin = agent.row, look(lambda tx: find_twin(tx, agent))
    if twin is None or is_staged(twin):
        if not mine.hidden and _is_there(mine, look, read):
            return None
        return 0 if twin is None else int(twin.version)
    common = min(mine.version, twin.version)
    if look(lambda tx: _version(tx, twin, common)) != read(lambda tx: _version(tx, mine, common)):
        raise _diverged(mine)
    if mine.version > twin.version:
        return int(twin.version)
    same = (mine.hidden, mine.modified_ms, mine.fields) == (twin.hidden, twin.modified_ms, twin.fields)
    if mine.version == twin.version and not same:
        raise _diverged(mine)
    if mine.version == twin.version and agent.operations > look(lambda tx: _operations(tx, twin)):
        return int(twin.version)
    return None  # it is the same, or has gone on there


def _operations(tx: Tx, agent: AgentRow) -> int:
    return tally(tx, OPERATIONS, OPERATION_ID, agent.scope, 0, agent.aid).total


def _version(tx: Tx, agent: AgentRow, version: int) -> tuple[int, bytes | None] | None:
    """Return time and state that a version says, without local numbers."""
    row = VERSION.get(tx, agent.scope, agent.aid, version)
    return None if row is None else (row.at_ms, row.state)


def _is_bare(tx: Tx, agent: AgentRow) -> bool:
    """Whether nobody has described an agent yet."""
    plain = agent.version == 1 and agent.fields == _EMPTY and agents.state_at(tx, agent) == {}
    return plain and tx.one(POINTS, (agent.scope, agent.aid)) is None


def _is_there(mine: AgentRow, look: Read, read: Read) -> bool:
    """Whether another visible agent of this id can stand for this one; one that says something else cannot."""
    theirs = look(lambda tx: agents.find(tx, mine.scope, mine.id))
    if theirs is None or _gives_way(theirs, look, read):
        return False
    if read(lambda tx: _is_bare(tx, mine)):
        return True
    if look(lambda tx: _is_bare(tx, theirs)):
        return False  # it gives way when this one is finished
    same = (mine.version, mine.fields) == (theirs.version, theirs.fields)
    if not same or read(lambda tx: agents.state_at(tx, mine)) != look(lambda tx: agents.state_at(tx, theirs)):
        raise _differs(mine)
    return True


def _gives_way(theirs: AgentRow, look: Read, read: Read) -> bool:
    """Whether an agent of the destination is a copy whose original is in the trash by now."""
    named = look(lambda tx: agent_of(tx, theirs))
    original = read(lambda tx: find_twin(tx, named))
    return original is not None and original.hidden > 0 and original.version > theirs.version


def _differs(mine: AgentRow) -> Conflict:
    return Conflict(
        f"agent {mine.id!r} is there in the destination and says something else. Delete one of the two, or make"
        f" them equal. {AGAIN}",
        found=mine.id,
    )


def _diverged(mine: AgentRow) -> Conflict:
    return Conflict(f"agent {mine.id!r} was changed in both stores; it stays as it is in each. {AGAIN}", found=mine.id)


# ---------------------------------------------------------------------- writing


def begin(tx: Tx, agent: AgentRecord) -> None:
    """Write the row of a new agent, hidden and without versions."""
    AGENT.put(tx, agent.row._replace(aid=tx.next("agent"), hidden=PURGED, version=0, fields=_STAGED))


def put_version(tx: Tx, twin: AgentRow, row: VersionRow) -> None:
    """Write the next version, with its change in the feed."""
    VERSION.put(tx, row._replace(agent=twin.aid))
    feed.record_agent(tx, twin.scope, twin.aid, "agent")
    AGENT.update(tx, twin, twin._replace(version=row.version, modified_ms=row.at_ms))


def finish(tx: Tx, agent: AgentRecord) -> int:
    """Show an agent that has its last version; return how many were shown."""
    mine, twin = agent.row, find_twin(tx, agent)
    if twin is None or twin.version != mine.version:
        return 0
    there = None if mine.hidden else agents.find(tx, twin.scope, twin.id)
    if there is not None and there.aid != twin.aid:
        if not _is_bare(tx, there):
            raise _differs(twin)
        AGENT.update(tx, there, there._replace(hidden=PURGED))
    AGENT.update(tx, twin, mine._replace(aid=twin.aid))
    return 1


# ---------------------------------------------------------------------- checkpoints


def put_point(tx: Tx, point: AgentPoint) -> str:
    """Write a checkpoint of an agent behind the one that came before it; return why it is left out, if it is.

    Its checks are those of this store.
    """
    row = point.row
    aid = number(tx, row.scope, point.agent, itself=True)
    before = AGENT_CHECKPOINT.one(tx, NEWEST_POINT, (row.scope, aid))
    if AGENT_CHECKPOINT.one(tx, "WHERE scope = ? AND id = ?", (row.scope, row.id)) is not None:
        return ""
    said = f"checkpoint {row.name!r} of agent {point.agent.split('.', 2)[2]!r}"
    if not aid:
        return f"{said}: that agent is not in the destination"
    if (before.id if before else "") != point.previous:
        return f"{said}: the destination has others of that agent"
    absent = [each.session for each in point.pins if sessions.find(tx, row.scope, each.session) is None]
    if absent:
        return f"{said}: session {absent[0]} is not in the destination"
    acid = tx.next("agent_checkpoint")
    pins = [_pinned(tx, each, acid) for each in point.pins]
    made = _agent_point(tx, row._replace(acid=acid, agent=aid, position=0, rank=0), before, pins)
    AGENT_CHECKPOINT.put(tx, made)
    PIN.put_many(tx, pins)
    feed.record_agent(tx, row.scope, aid, agent_checkpoints.FEED_KIND)
    return ""


def _pinned(tx: Tx, pin: Pin, acid: int) -> PinRow:
    """Return a pin with the numbers that it has here; one that names another entry than it says raises ``Corrupt``."""
    session, branch = sessions.get(tx, pin.row.scope, pin.session), branches.find_by_uid(tx, pin.row.scope, pin.branch)
    made = pin.row._replace(session=session.sid, branch=branch.bid if branch else 0, checkpoint=acid)
    if fault := "" if made.hidden == agent_checkpoints.UNKNOWN else place_fault(tx, made):
        raise Corrupt(f"a checkpoint of an agent is damaged: {fault}. Repair the source first", what=pin.session)
    return made


def _agent_point(
    tx: Tx, row: AgentCheckpointRow, before: AgentCheckpointRow | None, pins: list[PinRow]
) -> AgentCheckpointRow:
    """Return a checkpoint of an agent with the checksum that follows from the pins in force."""
    force = {} if before is None else agent_checkpoints.all_in_force(tx, before)
    force |= {pin.session: pin for pin in pins}
    agent = agent_checkpoints.parts(row).agent
    totals = agent_totals.at_pins(tx, force.values())
    checksum = agent_checkpoints.checksum(agent, agent_checkpoints.total_of(force.values()), len(pins), totals)
    return row._replace(sessions=agent_checkpoints.visible(force), checksum=checksum)
