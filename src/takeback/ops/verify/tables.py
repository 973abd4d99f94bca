"""Checks of the tables beside the log: agents, checkpoints, operations, idempotency keys, meta, migrations, lost.

Each row must match its check, hold what its columns promise, and name only what is there.
"""

from __future__ import annotations

from ...errors import Error
from ...storage.base import Row, Tx
from .. import agents, branches, checkpoints, entries, operations
from ..operations import OperationRow
from .base import BACKUP, LOST, LOWEST, REBUILD, RETRY, Found, Key, Table, advance, gaps, is_sound, numbered
from .places import HAS_SESSION, is_object

AGENTS = Table("agent", agents.COLUMNS, "aid")
VERSIONS = Table(
    "agent_version", "scope, agent, version, at_ms, state, chk", "scope, agent, version", ("", LOWEST, LOWEST)
)
CHECKPOINTS = Table("checkpoint", checkpoints.COLUMNS, "cid")
OPERATIONS = Table("operation", operations.COLUMNS, "oid")
KEYS = Table(
    "idempotency",
    "scope, session, ikey, branch, seq, last_seq, digest, chk",
    "scope, session, ikey, branch, seq",
    ("", LOWEST, "", LOWEST, LOWEST),
)
MIGRATIONS = Table("migration", "version, name, applied_ms, chk", "version")
META = "SELECT name, value, chk FROM meta"
LOST_ROWS = Table("lost", "key, scope, what, at_ms, chk", "key")
VERSIONS_OF = "SELECT count(*), min(version), max(version) FROM agent_version WHERE scope = ? AND agent = ?"
FIRST_STATE = "SELECT state FROM agent_version WHERE scope = ? AND agent = ? AND version = 1"
OWNER = "SELECT hidden FROM agent WHERE aid = ? AND scope = ?"
OPERATION = f"SELECT {operations.COLUMNS} FROM operation WHERE oid = ?"
HIDDEN = "SELECT hidden FROM session WHERE sid = ? AND scope = ?"
HAS_ENTRY = "SELECT 1 FROM entry WHERE key = ? AND scope = ?"
EMPTY_ENTRY = "SELECT body IS NULL AND raw IS NULL AND salt IS NULL FROM entry WHERE key = ? AND scope = ?"

# How much of an entry a repair found destroyed. CONTENT: place and hash are kept. ENTRY: the hash is not known, so the
# entry behind it cannot be checked. ATTACHMENT: the entry is whole, a blob that it names is gone. BRANCH (at seq 0):
# the id of the branch is not known, so the hashes of its entries cannot be checked.
CONTENT, ENTRY, ATTACHMENT, BRANCH = "content", "entry", "attachment", "branch"
LOST_KIND = "lost"  # of operations and changes that a repair put in the place of destroyed ones


# ---------------------------------------------------------------------- agents


def agents_page(tx: Tx, found: Found, after: Key) -> Key | None:
    """Check the next agents against their versions."""
    rows = AGENTS.rows(tx, after)
    for first, last in gaps(tx, rows, after):
        found.add("missing", f"agent {numbered(first, last)}", "the record is missing")
    for row in rows:
        found.checked += 1
        where = f"agent {row[2]}"
        if not is_sound(row) or not is_object(row[7]):
            found.add("agent", where, "the record is damaged")
        elif row[3] < 2:
            _versions(tx, found, agents.checked(row), where)
    return advance(rows, after)


def _versions(tx: Tx, found: Found, agent: agents.AgentRow, where: str) -> None:
    asked = agent.scope, agent.aid
    count, lowest, highest = tx.one(VERSIONS_OF, asked) or (0, None, None)
    if highest is not None and (lowest, highest - lowest + 1) != (1, count):
        found.add("missing", where, f"of its versions up to {highest} some are missing")
    elif highest != agent.version:
        found.add("agent", where, f"it is at version {agent.version}, but its newest one is {highest}", REBUILD)
    if tx.one(FIRST_STATE, asked) == (None,):
        found.add("agent", where, "its first version holds no state")


def versions_page(tx: Tx, found: Found, after: Key) -> Key | None:
    """Check the next versions of agents."""
    rows = VERSIONS.rows(tx, after)
    for row in rows:
        found.checked += 1
        where = f"version {row[2]} of agent number {row[1]}"
        if not is_sound(row) or not (row[4] is None or is_object(row[4])):
            found.add("agent", where, "its state is damaged")
        elif not tx.one(OWNER, (row[1], row[0])):
            found.add("missing", where, "there is no such agent")
    return advance(rows, after, 3)


# ---------------------------------------------------------------------- checkpoints


def checkpoints_page(tx: Tx, found: Found, after: Key) -> Key | None:
    """Check the next checkpoints against the entries that they name."""
    rows = CHECKPOINTS.rows(tx, after)
    for row in rows:
        found.checked += 1
        fault = "the record is damaged" if not is_sound(row) else checkpoint_fault(tx, row)
        if fault:
            found.add("checkpoint", f"checkpoint {row[2]}", fault)
    return advance(rows, after)


def checkpoint_fault(tx: Tx, row: Row) -> str:
    """Say what does not fit about a checkpoint whose row is sound."""
    checkpoint = checkpoints.checked(row)
    try:
        branch = branches.get(tx, checkpoint.branch)
        checkpoints.point(tx, checkpoint)
    except Error as error:
        return f"it names an entry that is not there or another one: {error}"
    if tx.one(HIDDEN, (checkpoint.session, checkpoint.scope)) in (None, (2,)):
        return "its session is missing"
    if branch.session != checkpoint.session:
        return "it names an entry of another session"
    return "" if checkpoint.type in checkpoints.TYPES else f"its type is {checkpoint.type!r}"


# ---------------------------------------------------------------------- operations


def operations_page(tx: Tx, found: Found, after: Key) -> Key | None:
    """Check the next operations; their number is checked with the feed's."""
    rows = OPERATIONS.rows(tx, after)
    for row in rows:
        found.checked += 1
        fault = "the record does not match its check" if not is_sound(row) else operation_fault(tx, row)
        if fault:
            found.add("operation", f"operation {row[2]}", fault)
    return advance(rows, after)


def operation_fault(tx: Tx, row: Row) -> str:
    """Say what does not fit about an operation whose row is sound."""
    operation = operations.checked(row)
    if operation.kind == LOST_KIND:
        return ""
    if not is_object(operation.before) or not is_object(operation.after):
        return "what it changed cannot be read"
    if bool(operation.session) == bool(operation.agent) or not _subject(tx, operation):
        return "its session or agent is missing"
    if operation.undoes is not None and not _same_subject(tx, operation, operation.undoes):
        return f"operation number {operation.undoes}, which it takes back, is missing"
    if operation.undone_by is not None and not _takes_back(tx, operation):
        return f"operation number {operation.undone_by}, which took it back, is missing or took back another"
    return ""


def _subject(tx: Tx, operation: OperationRow) -> Row | None:
    if operation.session:
        return tx.one(HAS_SESSION, (operation.session, operation.scope))
    return tx.one(OWNER, (operation.agent, operation.scope))


def _same_subject(tx: Tx, operation: OperationRow, oid: int) -> Row | None:
    """Give another operation if it is there and on the same thing; one that was destroyed may be."""
    row = tx.one(OPERATION, (oid,))
    if row is None or (row[3] != LOST_KIND and row[4:6] != (operation.session, operation.agent)):
        return None
    return row


def _takes_back(tx: Tx, operation: OperationRow) -> bool:
    row = _same_subject(tx, operation, operation.undone_by or 0)
    return row is not None and (row[3] == LOST_KIND or row[9] == operation.oid)


# ---------------------------------------------------------------------- keys, meta, migrations, lost


def keys_page(tx: Tx, found: Found, after: Key) -> Key | None:
    """Check the next idempotency keys."""
    rows = KEYS.rows(tx, after)
    for row in rows:
        found.checked += 1
        fault = "the record does not match its check" if not is_sound(row) else key_fault(tx, row)
        if fault:
            found.add("idempotency", f"key {row[2]!r}", fault, RETRY)
    return advance(rows, after, 5)


def key_fault(tx: Tx, row: Row) -> str:
    """Say what does not fit about an idempotency key whose row is sound."""
    scope, sid, _, branch, first, last = row[:6]
    if sid and tx.one(HIDDEN, (sid, scope)) in (None, (2,)):
        return "its session is missing"
    if not branch:
        return "" if first == last > 0 else "it names nothing"
    there = first <= last and all(tx.one(HAS_ENTRY, (entries.key_of(branch, seq), scope)) for seq in {first, last})
    return "" if there else "the entries that it names are missing"


def migrations_page(tx: Tx, found: Found, after: Key) -> Key | None:
    """Check the record of schema versions."""
    rows = MIGRATIONS.rows(tx, after)
    for first, last in gaps(tx, rows, after):
        found.add("migration", f"schema {numbered(first, last)}", "the record is missing", BACKUP)
    for row in rows:
        found.checked += 1
        if not is_sound(row):
            found.add("migration", f"schema number {row[0]}", "the record does not match its check", REBUILD)
    return advance(rows, after)


def meta_page(tx: Tx, found: Found, after: Key) -> Key | None:
    """Check the store's own records; there are few."""
    rows = tx.all(META)
    for row in rows:
        found.checked += 1
        if not is_sound(row):
            found.add("meta", f"meta {row[0]!r}", "the record does not match its check", BACKUP)
    if not any(row[0] == "store" and len(row[1]) == 16 for row in rows):
        found.add("meta", "meta 'store'", "the store has lost its identity", BACKUP)
    return None


def lost_page(tx: Tx, found: Found, after: Key) -> Key | None:
    """Check the records of what a repair could not keep."""
    rows = LOST_ROWS.rows(tx, after)
    for row in rows:
        found.checked += 1
        fault = "the record does not match its check" if not is_sound(row) else _lost_fault(tx, row)
        if fault:
            found.add("lost", f"record of the lost entry {place(row[0])}", fault, LOST)
    return advance(rows, after)


def _lost_fault(tx: Tx, row: Row) -> str:
    key, scope, what = row[:3]
    if what == BRANCH:
        return "" if tx.one(branches.GET, (key >> 32,)) else "there is no such branch"
    empty = tx.one(EMPTY_ENTRY, (key, scope))
    if empty is None:
        return "there is no such entry"
    return "" if what == ATTACHMENT or empty == (1,) else "the entry is not empty"


def place(key: int) -> str:
    """Write the place of an entry whose branch may be unknown."""
    return f"{key & entries.MAX_SEQ} of branch number {key >> 32}"
