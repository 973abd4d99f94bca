"""What lies beside the log: operations, checkpoints, idempotency keys. They name others by number: each is looked up.

Operations go over in their order; which of them are undone is put right at the end, as of the moment that is copied.
An operation that a repair could not keep has no subject and goes over as it is, since others may point at it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ...errors import Corrupt
from ...storage.base import Tx
from ...tables.agents import AGENT
from ...tables.history import CHECKPOINT, ONCE, OPERATION, CheckpointRow, OnceRow, OperationRow
from ...tables.sessions import SESSION
from ...tables.table import Table
from .. import branches, once
from ..verify.tables import LOST_KIND
from . import base, soundness
from .base import Read
from .moments import Moment, Tally

OPERATIONS = f"""SELECT {OPERATION.selected("o")}, u.id FROM operation o
LEFT JOIN operation u ON u.scope = o.scope AND u.oid = o.undoes
WHERE o.scope = ? AND o.session = ? AND o.agent = ? AND o.oid > ? AND o.oid <= ? ORDER BY o.oid LIMIT ?"""
LOOSE = "WHERE session = 0 AND agent = 0 AND (scope, oid) > (?, ?) ORDER BY scope, oid LIMIT ?"
UNDONE = """SELECT o.id, b.id FROM operation o JOIN operation b ON b.scope = o.scope AND b.oid = o.undone_by
WHERE o.scope = ? AND o.session = ? AND o.agent = ?"""
CHECKPOINTS = f"""SELECT {CHECKPOINT.selected("c")}, b.uid FROM checkpoint c
LEFT JOIN branch b ON b.scope = c.scope AND b.bid = c.branch
WHERE c.scope = ? AND c.session = ? AND c.cid > ? ORDER BY c.cid"""
KEYS = f"""SELECT {ONCE.selected("i")}, b.uid FROM idempotency i
LEFT JOIN branch b ON b.scope = i.scope AND b.bid = i.branch
WHERE i.scope = ? AND i.session = ? AND (i.ikey, i.branch, i.seq) > (?, ?, ?) AND (i.branch = 0 OR i.seq > ?)
ORDER BY i.ikey, i.branch, i.seq LIMIT ?"""

# What a key can stand for in another store: a record that is looked for by its id there. A version of an agent's state
# has no record of its own that an id would name.
MADE: dict[str, Table[Any]] = {"session": SESSION, "operation": OPERATION, "checkpoint": CHECKPOINT, "agent": AGENT}
STATE = "state"

_LOST_CHANGE = "operation"  # the change that tells of an operation whose kind is lost


class Subject(NamedTuple):
    """What an operation is on: a session or an agent, the other one is 0."""

    scope: str
    session: int
    agent: int


# ---------------------------------------------------------------------- operations


def operation_pages(
    read: Read, subject: Subject, after: int, upto: int
) -> Iterator[list[tuple[OperationRow, str | None]]]:
    """Yield the operations of a session or agent in pages, each with the id of the one that it takes back."""
    while page := read(lambda tx: _operations(tx, subject, after, upto)):  # noqa: B023
        yield page
        after = page[-1][0].oid


def _operations(tx: Tx, subject: Subject, after: int, upto: int) -> list[tuple[OperationRow, str | None]]:
    found = [base.joined(OPERATION, row) for row in tx.all(OPERATIONS, (*subject, after, upto, base.ROWS))]
    for row, _ in found:
        soundness.require_operation(tx, row)
    return found


def put_operation(tx: Tx, theirs: OperationRow, undoes: str | None, subject: Subject) -> str:
    """Write an operation behind those that are there; return the kind of its change, '' if it was there."""
    found = base.by_id(tx, OPERATION, subject.scope, theirs.id)
    if found is not None:
        if (found.session, found.agent) != (subject.session, subject.agent):
            raise base.conflict(f"operation {theirs.id} is on something else in the destination", theirs.id)
        return ""
    target = None if undoes is None else base.by_id(tx, OPERATION, subject.scope, undoes)
    if theirs.undoes is not None and target is None:
        raise Corrupt(f"operation {theirs.id} takes back one that is missing", what=f"operation {theirs.id}")
    made = theirs._replace(
        oid=tx.next("operation"),
        session=subject.session,
        agent=subject.agent,
        undoes=target.oid if target else None,
        undone_by=None,
    )
    OPERATION.put(tx, made)
    return change_of(made.kind)


def change_of(kind: str) -> str:
    """Return the kind of the change that tells of an operation."""
    return _LOST_CHANGE if kind == LOST_KIND else kind


def undone(tx: Tx, subject: Subject) -> dict[str, str]:
    """Return which operations are undone, and by which."""
    return dict(tx.all(UNDONE, subject))


def mark_undone(tx: Tx, subject: Subject, wanted: dict[str, str]) -> None:
    """Let exactly these operations be undone."""
    where = "WHERE scope = ? AND session = ? AND agent = ? AND undone_by IS NOT NULL"
    known = {row.id: row for row in OPERATION.all(tx, where, subject)}
    for name in known.keys() | wanted.keys():
        row = known.get(name) or base.by_id(tx, OPERATION, subject.scope, name)
        by = base.by_id(tx, OPERATION, subject.scope, wanted[name]) if name in wanted else None
        if row is not None:
            OPERATION.update(tx, row, row._replace(undone_by=by.oid if by else None))


def loose_pages(read: Read) -> Iterator[list[OperationRow]]:
    """Yield the operations of which a repair knew nothing but that they were there, in pages."""
    after = ("", 0)
    while page := read(lambda tx: OPERATION.all(tx, LOOSE, (*after, base.ROWS))):  # noqa: B023
        yield page
        after = page[-1].scope, page[-1].oid


def known_loose(tx: Tx, rows: list[OperationRow]) -> set[str]:
    """Return the ids of those that are there."""
    return {row.id for row in rows if base.by_id(tx, OPERATION, row.scope, row.id) is not None}


def put_loose(tx: Tx, theirs: OperationRow) -> None:
    """Write such an operation unless it is there; like all of them it is undone by itself."""
    if not known_loose(tx, [theirs]):
        oid = tx.next("operation")
        OPERATION.put(tx, theirs._replace(oid=oid, undone_by=oid))


def newest(before: Tally, read: Read, scope: str) -> int:
    """Return the number, in the store that is copied, of the newest operation that the other store has."""
    if not before.total:
        return 0
    found = read(lambda tx: base.by_id(tx, OPERATION, scope, before.id))
    return found.oid if found else 0


# ---------------------------------------------------------------------- checkpoints


def new_checkpoints(tx: Tx, scope: str, session: int, newest: str) -> list[tuple[CheckpointRow, str]]:
    """Return a session's checkpoints behind one of them, all if there is none; each with the id of its branch."""
    after = base.by_id(tx, CHECKPOINT, scope, newest) if newest else None
    rows = tx.all(CHECKPOINTS, (scope, session, after.cid if after else 0))
    found = [base.joined(CHECKPOINT, row) for row in rows]
    for row, _ in found:
        soundness.require_checkpoint(tx, row)
    return found


def put_checkpoint(tx: Tx, theirs: CheckpointRow, uid: str, session: int) -> int:
    """Write a checkpoint unless it is there; return the branch that it names, 0 if it was there."""
    branch = branches.find_by_uid(tx, theirs.scope, uid)
    found = base.by_id(tx, CHECKPOINT, theirs.scope, theirs.id)
    if branch is None or (found is not None and found.session != session):
        raise base.conflict(f"checkpoint {theirs.id} is on something else in the destination", theirs.id)
    if found is not None:
        return 0
    CHECKPOINT.put(tx, theirs._replace(cid=tx.next("checkpoint"), session=session, branch=branch.bid))
    return branch.bid


# ---------------------------------------------------------------------- idempotency keys


class Key(NamedTuple):
    """An idempotency key, with the id of the branch whose entries it stands for, if it stands for entries."""

    row: OnceRow
    uid: str | None


def keys(read: Read, ours: Moment, above: int) -> Iterator[Key]:
    """Yield the keys of a session as of a moment, without those of entries up to ``above``."""
    tips = {part.branch.uid: part.tip for part in ours.parts}
    for key in _keys(read, *ours.who, above):
        if key.uid is None or (key.uid in tips and key.row.last_seq <= tips[key.uid]):
            yield key


def store_keys(read: Read, scope: str) -> Iterator[Key]:
    """Yield the keys of calls on a store: new sessions, agents and their versions."""
    return _keys(read, scope, 0, -1)


def _keys(read: Read, scope: str, sid: int, above: int) -> Iterator[Key]:
    after = ("", -1, -1)
    while page := read(lambda tx: _page(tx, scope, sid, *after, above)):  # noqa: B023
        yield from page
        last = page[-1].row
        after = last.ikey, last.branch, last.seq


def _page(tx: Tx, *asked: Any) -> list[Key]:
    return [Key(*base.joined(ONCE, row)) for row in tx.all(KEYS, (*asked, base.ROWS))]


def has_store_key(tx: Tx, key: Key) -> bool:
    """Whether the destination knows a key of its own by that name: what it stands for stays."""
    return ONCE.get(tx, key.row.scope, 0, key.row.ikey, 0, 0) is not None


def put_key(tx: Tx, key: Key, session: int) -> bool | None:
    """Remember a key unless it is known; False if it was, None if what it stands for is not here."""
    made = key.row._replace(session=session)
    if made.kind == once.ENTRIES:
        branch = None if key.uid is None else branches.find_by_uid(tx, made.scope, key.uid)
        if branch is None:
            return None
        made = made._replace(branch=branch.bid)
    elif not _is_here(tx, made):
        return None
    if ONCE.get(tx, made.scope, session, made.ikey, made.branch, made.seq) is not None:
        return False
    once.keep(tx, made)
    return True


def _is_here(tx: Tx, key: OnceRow) -> bool:
    table = MADE.get(key.kind)
    return key.kind == STATE if table is None else base.by_id(tx, table, key.scope, key.id) is not None
