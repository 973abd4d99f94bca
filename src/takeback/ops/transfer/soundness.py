"""What is copied must be sound: the checks of verify, for just the records that are about to be copied.

Damage that a check of its own row does not show - a row that vanished, numbers that contradict each other - would come
over as if it were so. It is refused here, by name, before anything of the record is written.
"""

from __future__ import annotations

from ...errors import Corrupt
from ...storage.base import Row, Tx
from .. import branches, sessions
from ..agents import AgentRow
from ..verify import places, tables
from ..verify.base import Found

GAPS = """SELECT (SELECT coalesce(max(sid), 0) - count(*) FROM session) +
(SELECT coalesce(max(bid), 0) - count(*) FROM branch) + (SELECT coalesce(max(aid), 0) - count(*) FROM agent)"""
ORPHAN = "SELECT b.uid FROM branch b LEFT JOIN session s ON s.sid = b.session WHERE s.sid IS NULL LIMIT 1"


def require_rows(tx: Tx) -> None:
    """Refuse a store in which whole sessions, branches or agents are missing."""
    row = tx.one(GAPS) if tx.dialect.gapless else None
    if row is not None and row[0] != 0:
        raise Corrupt("records of sessions, branches or agents are missing", what="session")
    if (orphan := tx.one(ORPHAN)) is not None:
        raise Corrupt(f"branch {orphan[0]} belongs to a session whose record is lost", what=f"branch {orphan[0]}")


def require_session(tx: Tx, sid: int) -> None:
    """Refuse a session whose row, details or branches do not agree with its entries."""
    session, found = sessions.by_number(tx, sid), Found()
    places.check_session(tx, found, session)
    if not places.is_object(sessions.detail(tx, session)):
        found.add("detail", f"session {session.id}", "its details are damaged")
    for branch in branches.of_session(tx, session.scope, sid, session.branches):
        for fault, _ in places.branch_faults(tx, branch):
            found.add("branch", f"branch {branch.uid}", fault)
    for problem in found.problems:
        raise Corrupt(f"{problem.where}: {problem.what}", what=problem.where)


def require_agent(tx: Tx, agent: AgentRow) -> None:
    """Refuse an agent that has not all its versions."""
    count, lowest, highest = tx.one(tables.VERSIONS_OF, (agent.scope, agent.aid)) or (0, None, None)
    complete = (count, lowest, highest) == (agent.version, 1, agent.version)
    if not (complete and places.is_object(agent.fields)) and agent.hidden < places.PURGED:
        raise Corrupt(f"a version of agent {agent.id!r} is missing", what=f"agent {agent.id}")


def require_operation(tx: Tx, row: Row) -> None:
    """Refuse an operation that names what is not there."""
    if fault := tables.operation_fault(tx, row):
        raise Corrupt(f"operation {row[2]} is damaged: {fault}", what=f"operation {row[2]}")


def require_checkpoint(tx: Tx, row: Row) -> None:
    """Refuse a checkpoint that names another entry than it says."""
    if fault := tables.checkpoint_fault(tx, row):
        raise Corrupt(f"checkpoint {row[2]} is damaged: {fault}", what=f"checkpoint {row[2]}")
