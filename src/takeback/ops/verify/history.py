"""What is demanded of checkpoints, operations, idempotency keys, records of losses, and the store's own records.

Each row must hold what its columns promise and name only what is there.
"""

from __future__ import annotations

from ...errors import Error
from ...ids import MAX_SEQ
from ...storage.base import Tx
from ...tables.agents import AGENT
from ...tables.branches import BRANCH as BRANCHES
from ...tables.entries import ENTRY as ENTRIES
from ...tables.entries import LOST as LOSSES
from ...tables.entries import LostRow
from ...tables.files import WORKSPACE
from ...tables.history import CHECKPOINT, ONCE, OPERATION, CheckpointRow, OnceRow, OperationRow
from ...tables.sessions import IS_STAGED
from ...tables.store import META, MIGRATION, MetaRow
from .. import branches, checkpoints, idempotency, stored_json
from ..entries import key_of
from ..stored_json import Things
from .base import BACKUP, PURGED, REBUILD, RETRY, Check, Fault, Found, Key, Rule, has, intact, is_object
from .sessions import has_session

ALIVE = f"SELECT 1 FROM session WHERE scope = ? AND sid = ? AND (hidden < {PURGED} OR {IS_STAGED})"
# What a key may name by its id. A checkpoint of an agent may have been deleted since.
HAS_ID = {kind: f"SELECT 1 FROM {kind} WHERE scope = ? AND id = ?" for kind in ("session", "agent", "operation")}
IN_SESSION = {
    kind: f"SELECT 1 FROM {table} WHERE scope = ? AND id = ? AND session = ?"
    for kind, table in (("checkpoint", "checkpoint"), ("message", "inbox"))
}

# How much of an entry a repair found destroyed. CONTENT: place and hash are kept. ENTRY: the hash is not known, so the
# entry behind it cannot be checked. ATTACHMENT: the entry is whole, a blob that it names is gone. BRANCH (at seq 0):
# the id of the branch is not known, so the hashes of its entries cannot be checked.
CONTENT, ENTRY, ATTACHMENT, BRANCH = "content", "entry", "attachment", "branch"


# ---------------------------------------------------------------------- checkpoints and operations


def checkpoint_fault(tx: Tx, checkpoint: CheckpointRow) -> str:
    """Return what is wrong with a checkpoint: it must name the entry that it named when it was made."""
    try:
        branch = branches.get(tx, checkpoint.scope, checkpoint.branch)
        checkpoints.point(tx, checkpoint)
    except Error as error:
        return f"it names an entry that is not there or another one: {error}"
    if _is_gone(tx, checkpoint.scope, checkpoint.session):
        return "its session is missing"
    if branch.session != checkpoint.session:
        return "it names an entry of another session"
    return "" if checkpoint.type in checkpoints.TYPES else f"its type is {checkpoint.type!r}"


def _is_gone(tx: Tx, scope: str, sid: int) -> bool:
    """Whether a session was purged, or is not there; one that is half copied has its records already."""
    return tx.one(ALIVE, (scope, sid)) is None


def operation_fault(tx: Tx, operation: OperationRow) -> str:
    """Return what is wrong with an operation; how many there are is checked with the feed."""
    for said in (operation.before, operation.after):
        if not is_object(said):
            return "what it changed cannot be read"
        if wrong := stored_json.fault(said, Things):
            return f"what it changed is not what an operation changes: {wrong}"
    if (operation.session and operation.agent) or not _has_subject(tx, operation):
        return "its session, agent or workspace is missing"
    if operation.undoes is not None and not (
        operation.undoes < operation.oid and _same_subject(tx, operation, operation.undoes)
    ):
        return f"operation number {operation.undoes}, which it takes back, is missing or not before it"
    if operation.undone_by is not None and not _takes_back(tx, operation):
        return f"operation number {operation.undone_by}, which took it back, is missing or took back another"
    return ""


def _has_subject(tx: Tx, operation: OperationRow) -> bool:
    if operation.workspace and not has(tx, WORKSPACE, operation.scope, operation.workspace):
        return False
    if operation.session:
        return has_session(tx, operation.scope, operation.session)
    if operation.agent:
        return has(tx, AGENT, operation.scope, operation.agent)
    return operation.workspace > 0


def _same_subject(tx: Tx, operation: OperationRow, oid: int) -> OperationRow | None:
    """Return another operation if it is there and on the same thing."""
    stored = tx.one(f"{OPERATION.select} WHERE scope = ? AND oid = ?", (operation.scope, oid))
    other = None if stored is None else OPERATION.unchecked(stored)  # a damaged one is reported as such
    same = other is not None and (other.session, other.agent) == (operation.session, operation.agent)
    return other if same else None


def _takes_back(tx: Tx, operation: OperationRow) -> bool:
    other = _same_subject(tx, operation, operation.undone_by or 0)
    return other is not None and other.undoes == operation.oid


# ---------------------------------------------------------------------- keys, meta, lost


def key_fault(tx: Tx, row: OnceRow) -> str:
    """Return what is wrong with an idempotency key: what the call made must be there."""
    if row.session and _is_gone(tx, row.scope, row.session):
        return "its session is missing"
    if row.branch:
        keys = {key_of(row.branch, row.seq), key_of(row.branch, row.last_seq)}
        there = row.seq <= row.last_seq and all(has(tx, ENTRIES, row.scope, key) for key in keys)
        return "" if there and row.kind == idempotency.ENTRIES else "the entries that it names are missing"
    if not row.id or row.kind == idempotency.ENTRIES or (row.seq, row.last_seq) != (0, 0):
        return "it names nothing"
    if row.kind in IN_SESSION:
        there = tx.one(IN_SESSION[row.kind], (row.scope, row.id, row.session)) is not None
    else:
        there = row.kind not in HAS_ID or tx.one(HAS_ID[row.kind], (row.scope, row.id)) is not None
    return "" if there else f"the {row.kind} that it names is missing"


def _meta_fault(tx: Tx, row: MetaRow) -> str:
    return "the store has lost its identity" if row.name == "store" and len(row.value) != 16 else ""


def _check_identity(tx: Tx, found: Found, after: Key | None) -> Key | None:
    if not has(tx, META, "store"):
        found.add("meta", "meta 'store'", "the store has lost its identity", BACKUP)
    return None


def lost_fault(tx: Tx, row: LostRow) -> str:
    """Return what is wrong with the record of what a repair could not keep."""
    if row.what == BRANCH:
        return "" if has(tx, BRANCHES, row.scope, row.key >> 32) else "there is no such branch"
    if not has(tx, ENTRIES, row.scope, row.key):
        return "there is no such entry"
    entry = intact(tx, ENTRIES, row.scope, row.key)
    if row.what == ATTACHMENT or entry is None:
        return ""
    empty = entry.body is None and entry.raw is None and entry.chain.salt is None
    return "" if empty else "the entry is not empty"


def place(key: int) -> str:
    """Write the place of an entry whose branch may be unknown."""
    return f"{key & MAX_SEQ} of branch number {key >> 32}"


RULES: tuple[Check, ...] = (
    Rule(LOSSES, lost_fault, "lost", where=lambda row: f"record of the lost entry {place(row.key)}"),
    Rule(CHECKPOINT, checkpoint_fault, "checkpoint"),
    Rule(ONCE, key_fault, "idempotency", RETRY),
    Rule(MIGRATION, lambda tx, row: "", "migration", REBUILD, gaps=Fault("migration", "the record is missing", BACKUP)),
    Rule(META, _meta_fault, "meta", BACKUP),
    _check_identity,
)
