"""What a strict source demands of rows before it passes them on, and the rows that it reads beside them.

A row that ``verify`` would report raises ``Corrupt`` here, so a copy or an export never carries damage on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ..errors import Corrupt
from ..files import snapshots
from ..files.timeline import IN_SCAN
from ..ids import entry_id
from ..model.items import CUSTOM
from ..ops import agents, blobs, branches, sessions
from ..ops.log import key_of
from ..ops.verify import derived, log
from ..ops.verify.agents import checkpoint_fault as agent_checkpoint_fault
from ..ops.verify.agents import in_order
from ..ops.verify.base import Said, first_of, is_object
from ..ops.verify.files import TreeChecks
from ..ops.verify.sessions import branch_faults, session_faults
from ..ops.verify.timelines import scan_fault, touched_fault
from ..storage.base import Row, Tx
from ..tables.agents import AGENT_CHECKPOINT, VERSION, AgentRow, VersionRow
from ..tables.branches import BRANCH, BranchRow
from ..tables.content import CHUNK, BlobRow
from ..tables.entries import LINK, LOST, EntryRow, LinkRow, LostRow
from ..tables.files import SCAN, TOUCHED, ScanRow
from ..tables.sessions import SESSION
from ..tables.table import Table

R = TypeVar("R", bound="tuple[Any, ...]")
ROWS = 500
BYTES = 8 << 20
GAPS = """SELECT (SELECT coalesce(max(sid), 0) - count(*) FROM session) +
(SELECT coalesce(max(bid), 0) - count(*) FROM branch) + (SELECT coalesce(max(aid), 0) - count(*) FROM agent) +
(SELECT coalesce(max(did), 0) - count(*) FROM document)"""
STATE_SIZES = """SELECT coalesce(length(state), 0) FROM agent_version
WHERE scope = ? AND agent = ? AND version > ? ORDER BY version LIMIT ?"""
VERSIONS = "WHERE scope = ? AND agent = ? AND version > ? AND version <= ? ORDER BY version LIMIT ?"
BETWEEN = "WHERE scope = ? AND key > ? AND key <= ? ORDER BY key"


def require(tx: Tx, table: Table[R], row: R, faults: Callable[[Tx, R], Said]) -> None:
    if what := first_of(faults(tx, row)):
        raise Corrupt(f"{table.called(row)}: {what}", what=table.called(row))


def require_rows(tx: Tx, orphan: str, args: tuple[str, ...]) -> None:
    """Refuse a store in which whole sessions, branches, agents or documents are missing."""
    if tx.dialect.gapless and tx.one(GAPS) != (0,):
        raise Corrupt("records of sessions, branches, agents or documents are missing", what="session")
    for (uid,) in tx.all(orphan, args):
        raise Corrupt(f"branch {uid} belongs to a session whose record is lost", what=f"branch {uid}")


def require_session(tx: Tx, scope: str, sid: int) -> None:
    """Refuse a session whose row, details or branches do not agree with its entries."""
    session = sessions.by_number(tx, scope, sid)
    require(tx, SESSION, session, session_faults)
    if not is_object(sessions.detail(tx, session)):
        raise Corrupt(f"session {session.id}: its details are damaged", what=f"session {session.id}")
    for branch in branches.of_session(tx, scope, sid, session.branches):
        require(tx, BRANCH, branch, branch_faults)


def require_agent_points(tx: Tx, scope: str, aid: int) -> None:
    """Refuse checkpoints of an agent that do not agree with the agent, or with where its sessions were."""
    agent = agents.by_number(tx, scope, aid)
    for stored, here in in_order(tx, scope, aid):
        if fault := agent_checkpoint_fault(tx, agent, stored, here):
            name = AGENT_CHECKPOINT.called(AGENT_CHECKPOINT.unchecked(stored))
            raise Corrupt(f"{name}: {fault}", what=name)


def require_scan(tx: Tx, scan: ScanRow, trees: TreeChecks) -> None:
    """Refuse a scan that does not agree with its workspace, or with the paths that it found changed."""
    require(tx, SCAN, scan, lambda tx, row: scan_fault(tx, row, trees))
    for row in TOUCHED.all(tx, IN_SCAN, (scan.scope, scan.wid, scan.n)):
        require(tx, TOUCHED, row, touched_fault)


def versions(tx: Tx, agent: AgentRow, after: int) -> list[VersionRow]:
    """Read the next versions of an agent; a damaged or missing one raises ``Corrupt``."""
    count = shares(tx.all(STATE_SIZES, (agent.scope, agent.aid, after, ROWS)))
    rows = VERSION.all(tx, VERSIONS, (agent.scope, agent.aid, after, agent.version, count))
    readable = all(row.state is None or is_object(row.state) for row in rows)
    if not rows or not readable or [row.version for row in rows] != list(range(after + 1, after + len(rows) + 1)):
        raise Corrupt(f"a version of agent {agent.id!r} is damaged or missing", what=f"agent {agent.id}")
    return rows


def chunk(tx: Tx, blob: BlobRow, number: int) -> tuple[Any, bytes]:
    """Read a chunk as it is packed, and what it holds."""
    data = blobs.read_chunk(tx, blob.scope, blob.blob_id, number)
    return CHUNK.get(tx, blob.scope, blob.blob_id, number), data


def links(tx: Tx, branch: BranchRow, rows: list[EntryRow], lost: set[int]) -> list[LinkRow]:
    """Return the links of entries; where content was erased nobody can tell from it, so the stored ones are taken."""
    found = set[LinkRow]()
    for row in rows:
        if row.key in lost:
            continue
        if row.body is None and row.spill is None:
            found.update(LINK.all(tx, "INDEXED BY link_key WHERE scope = ? AND key = ?", (branch.scope, row.key)))
        elif row.spill or _may_need(row):
            found.update(LinkRow(branch.scope, each, row.key) for each in linked(tx, branch, row))
    return sorted(found)


def _may_need(row: EntryRow) -> bool:
    """Whether an entry may need contents beside its own body."""
    return row.kind in snapshots.NEEDS or row.kind.startswith(CUSTOM) or b'"attachments"' in (row.body or b"")


def linked(tx: Tx, branch: BranchRow, row: EntryRow) -> set[str]:
    try:
        content, _ = log.content_of(tx, branch.scope, row)
        return derived.links(row, derived.needs(row, *content))
    except derived.UNREADABLE as error:
        raise damage(branch, row.seq, f"its content cannot be read: {error}") from error


def damage(branch: BranchRow, seq: int, what: str) -> Corrupt:
    name = entry_id(branch.uid, seq)
    return Corrupt(f"entry {name} is damaged: {what}", what=f"entry {name}")


def lost(tx: Tx, branch: BranchRow, low: int, high: int) -> list[LostRow]:
    """Return what a repair recorded about these entries; what it recorded about the branch goes with the first ones."""
    first = key_of(branch.bid, 0)
    begin = first - 1 if low == branch.fork_seq else first + low
    rows = LOST.all(tx, BETWEEN, (branch.scope, begin, first + high))
    return [row for row in rows if row.key == first or row.key > first + low]


def shares(sizes: Iterable[Row]) -> int:
    """Return how many of some rows make one page, by their sizes: at least one."""
    total = count = 0
    for (size,) in sizes:
        total += size
        if total > BYTES and count:
            break
        count += 1
    return count
