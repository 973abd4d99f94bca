"""What is copied must be sound: the checks of verify, for just the records that are about to be copied.

Damage that a check of its own row does not show - a row that vanished, numbers that contradict each other - would come
over as if it were so. It is refused here, by name, before anything of the record is written.
"""

from __future__ import annotations

from ...errors import Corrupt
from ...storage.base import Tx
from ...tables.agents import AgentRow
from ...tables.history import CheckpointRow, OperationRow
from .. import branches, sessions
from ..verify import places, tables
from ..verify.base import is_object

GAPS = """SELECT (SELECT coalesce(max(sid), 0) - count(*) FROM session) +
(SELECT coalesce(max(bid), 0) - count(*) FROM branch) + (SELECT coalesce(max(aid), 0) - count(*) FROM agent)"""
ORPHAN = """SELECT b.uid FROM branch b LEFT JOIN session s ON s.scope = b.scope AND s.sid = b.session
WHERE s.sid IS NULL LIMIT 1"""


def require_rows(tx: Tx) -> None:
    """Refuse a store in which whole sessions, branches or agents are missing."""
    if tx.dialect.gapless and tx.one(GAPS) != (0,):
        raise Corrupt("records of sessions, branches or agents are missing", what="session")
    for (uid,) in tx.all(ORPHAN):
        raise Corrupt(f"branch {uid} belongs to a session whose record is lost", what=f"branch {uid}")


def require_session(tx: Tx, scope: str, sid: int) -> None:
    """Refuse a session whose row, details or branches do not agree with its entries."""
    session = sessions.by_number(tx, scope, sid)
    where = f"session {session.id}"
    for fault in places.session_faults(tx, session):
        raise Corrupt(f"{where}: {fault.what}", what=where)
    if not is_object(sessions.detail(tx, session)):
        raise Corrupt(f"{where}: its details are damaged", what=where)
    for branch in branches.of_session(tx, scope, sid, session.branches):
        for fault in places.branch_faults(tx, branch):
            raise Corrupt(f"branch {branch.uid}: {fault.what}", what=f"branch {branch.uid}")


def require_agent(tx: Tx, agent: AgentRow) -> None:
    """Refuse an agent that does not have all its versions, or does not say what it is."""
    for fault in tables.agent_faults(tx, agent):
        raise Corrupt(f"agent {agent.id!r}: {fault.what}", what=f"agent {agent.id}")


def require_operation(tx: Tx, row: OperationRow) -> None:
    """Refuse an operation that names what is not there."""
    if fault := tables.operation_fault(tx, row):
        raise Corrupt(f"operation {row.id} is damaged: {fault}", what=f"operation {row.id}")


def require_checkpoint(tx: Tx, row: CheckpointRow) -> None:
    """Refuse a checkpoint that names another entry than it says."""
    if fault := tables.checkpoint_fault(tx, row):
        raise Corrupt(f"checkpoint {row.id} is damaged: {fault}", what=f"checkpoint {row.id}")
