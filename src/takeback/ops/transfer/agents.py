"""Agents: a new one is begun where nobody sees it, gets its versions page by page, and is shown when it is whole.

An agent is the same one in both stores if it has the same id and was made at the same moment. An agent that nobody
described - no fields, no state, as every session makes one - stands for whatever agent has its id. Otherwise two
visible agents with one id are a conflict, unless they say the same.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ... import codec
from ...errors import Corrupt
from ...storage.base import Tx
from ...tables.agents import AGENT, VERSION, AgentRow, VersionRow
from .. import agents, feed
from ..verify.base import is_object
from . import base, moments, records, soundness
from .base import STAGED_FIELDS, Read
from .moments import Tally
from .records import Subject

SIZES = """SELECT coalesce(length(state), 0) FROM agent_version
WHERE scope = ? AND agent = ? AND version > ? ORDER BY version LIMIT ?"""
BEHIND = "WHERE scope = ? AND agent = ? AND version > ? AND version <= ? ORDER BY version LIMIT ?"

_EMPTY = codec.encode(agents.EMPTY)


class Found(NamedTuple):
    """An agent as of one moment: its row, the how-manieth of its id and time it is, its operations."""

    agent: AgentRow
    ordinal: int
    operations: Tally
    undone: dict[str, str]


class Step(Enum):
    """What is to be done with an agent."""

    NOTHING = "nothing"
    BEGIN = "begin"
    GO_ON = "go on"
    FINISH = "finish"


# ---------------------------------------------------------------------- looking


def of(tx: Tx, scope: str, aid: int) -> Found:
    """Read what belongs to an agent's row."""
    agent = agents.by_number(tx, scope, aid)
    soundness.require_agent(tx, agent)
    done = moments.tally(tx, moments.OPERATIONS, moments.OPERATION_ID, scope, 0, aid)
    return Found(agent, base.ordinal(tx, agent), done, records.undone(tx, Subject(scope, 0, aid)))


def versions(tx: Tx, agent: AgentRow, after: int, upto: int) -> list[VersionRow]:
    """Read the next versions of an agent; a damaged or missing one raises ``Corrupt``."""
    count = base.shares(tx.all(SIZES, (agent.scope, agent.aid, after, base.ROWS)))
    rows = VERSION.all(tx, BEHIND, (agent.scope, agent.aid, after, upto, count))
    readable = all(row.state is None or is_object(row.state) for row in rows)
    if not readable or [row.version for row in rows] != list(range(after + 1, after + len(rows) + 1)):
        raise Corrupt(f"a version of agent {agent.id!r} is damaged or missing", what=f"agent {agent.id}")
    return rows


def _version(tx: Tx, agent: AgentRow, version: int) -> tuple[int, bytes | None] | None:
    """Return time and state that a version says, without local numbers."""
    row = VERSION.get(tx, agent.scope, agent.aid, version)
    return None if row is None else (row.at_ms, row.state)


def is_bare(tx: Tx, agent: AgentRow) -> bool:
    """Whether nobody has described an agent yet."""
    return agent.version == 1 and agent.fields == _EMPTY and agents.state_at(tx, agent) == {}


# ---------------------------------------------------------------------- deciding


def decide(tx: Tx, ours: Found, read: Read) -> Step:
    """Say what is to be done with an agent in the destination; one that differs there raises ``Conflict``."""
    mine = ours.agent
    twin = base.find_twin(tx, mine.scope, mine.id, mine.created_ms, ours.ordinal)
    if twin is None or base.is_staged_agent(twin):
        if not mine.hidden and _is_there(tx, mine, read):
            return Step.NOTHING
        return Step.BEGIN if twin is None else Step.GO_ON
    return _compare(tx, ours, twin, read)


def _is_there(tx: Tx, mine: AgentRow, read: Read) -> bool:
    """Whether another visible agent of this id can stand for this one; one that says something else cannot."""
    theirs = agents.find(tx, mine.scope, mine.id)
    if theirs is None or _gives_way(tx, theirs, read):
        return False
    if read(lambda tx: is_bare(tx, mine)):
        return True
    if is_bare(tx, theirs):
        return False  # it gives way when this one is finished
    same = (mine.version, mine.fields) == (theirs.version, theirs.fields)
    if not same or read(lambda tx: agents.state_at(tx, mine)) != agents.state_at(tx, theirs):
        raise _differs(mine)
    return True


def _gives_way(tx: Tx, theirs: AgentRow, read: Read) -> bool:
    """Whether an agent of the destination is a copy whose original is in the trash by now."""
    asked = (theirs.scope, theirs.id, theirs.created_ms, base.ordinal(tx, theirs))
    original = read(lambda tx: base.find_twin(tx, *asked))
    return original is not None and original.hidden > 0 and original.version > theirs.version


def _differs(mine: AgentRow) -> Exception:
    return base.conflict(
        f"agent {mine.id!r} is there in the destination and says something else. Delete one of the two, or make"
        f" them equal. {base.AGAIN}",
        mine.id,
    )


def _diverged(mine: AgentRow) -> Exception:
    return base.conflict(
        f"agent {mine.id!r} was changed in both stores; it stays as it is in each. {base.AGAIN}", mine.id
    )


def _compare(tx: Tx, ours: Found, twin: AgentRow, read: Read) -> Step:
    """Compare two copies of one agent by the version that both have."""
    mine, common = ours.agent, min(ours.agent.version, twin.version)
    if _version(tx, twin, common) != read(lambda tx: _version(tx, mine, common)):
        raise _diverged(mine)
    if mine.version > twin.version:
        return Step.GO_ON
    if mine.version < twin.version:
        return Step.NOTHING  # it has gone on there
    if (mine.hidden, mine.modified_ms, mine.fields) != (twin.hidden, twin.modified_ms, twin.fields):
        raise _diverged(mine)
    return Step.NOTHING


# ---------------------------------------------------------------------- writing


def begin(tx: Tx, ours: Found) -> None:
    """Write the row of a new agent, hidden and without versions, unless it is there."""
    mine = ours.agent
    if _twin(tx, ours) is None:
        made = mine._replace(aid=tx.next("agent"), hidden=base.HIDDEN, version=0, fields=STAGED_FIELDS)
        AGENT.put(tx, made)


def _twin(tx: Tx, ours: Found) -> AgentRow | None:
    mine = ours.agent
    return base.find_twin(tx, mine.scope, mine.id, mine.created_ms, ours.ordinal)


def reached(tx: Tx, ours: Found) -> int:
    """Return the last version that the destination has."""
    twin = _twin(tx, ours)
    return 0 if twin is None else twin.version


def put_versions(tx: Tx, ours: Found, rows: list[VersionRow]) -> None:
    """Write versions behind those that are there, each with its change in the feed."""
    twin = _twin(tx, ours)
    if twin is None or (rows and twin.version != rows[0].version - 1):
        raise base.conflict(f"somebody else writes agent {ours.agent.id!r} in the destination", ours.agent.id)
    for row in rows:
        VERSION.put(tx, row._replace(agent=twin.aid))
        feed.record_agent(tx, twin.scope, twin.aid, "agent")
    if rows:
        AGENT.update(tx, twin, twin._replace(version=rows[-1].version, modified_ms=rows[-1].at_ms))


def finish(tx: Tx, ours: Found, rows: list[VersionRow], read: Read) -> int:
    """Write the last versions, the operations and the row as it is; return how many operations were new."""
    mine = ours.agent
    put_versions(tx, ours, rows)
    twin = _twin(tx, ours)
    assert twin is not None
    if not mine.hidden:
        _make_way(tx, twin)
    subject = Subject(mine.scope, 0, twin.aid)
    before = moments.tally(tx, moments.OPERATIONS, moments.OPERATION_ID, *subject)
    after = records.newest(before, read, mine.scope)
    done = 0
    for each in records.operation_pages(read, Subject(mine.scope, 0, mine.aid), after, ours.operations.number):
        done += sum(bool(records.put_operation(tx, row, undoes, subject)) for row, undoes in each)
    records.mark_undone(tx, subject, ours.undone)
    AGENT.update(tx, twin, mine._replace(aid=twin.aid))
    return done


def _make_way(tx: Tx, twin: AgentRow) -> None:
    """Let an agent that nobody described make way for the one that is copied."""
    there = agents.find(tx, twin.scope, twin.id)
    if there is None or there.aid == twin.aid:
        return
    if not is_bare(tx, there):
        raise _differs(twin)
    AGENT.update(tx, there, there._replace(hidden=base.HIDDEN))
