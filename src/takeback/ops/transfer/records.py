"""What lies beside the log: operations, checkpoints, idempotency keys. They name others by number: each is looked up.

Operations go over in their order; which of them are undone is put right at the end, as of the moment that is copied.
An operation that a repair could not keep has no subject and goes over as it is, since others may point at it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...errors import Corrupt
from ...storage.base import Row, Tx, row_check
from .. import checkpoints, entries, operations
from ..operations import OperationRow
from ..verify.base import is_sound
from ..verify.tables import LOST_KIND
from . import base, meaning, soundness
from .base import Read, sealed
from .moments import Moment, Tally

_O = ", ".join(f"o.{name}" for name in operations.COLUMNS.split(", "))
_C = ", ".join(f"c.{name}" for name in checkpoints.COLUMNS.split(", "))
OPERATIONS = f"""SELECT {_O}, u.id FROM operation o LEFT JOIN operation u ON u.oid = o.undoes
WHERE o.scope = ? AND o.session = ? AND o.agent = ? AND o.oid > ? AND o.oid <= ? ORDER BY o.oid LIMIT ?"""
LOOSE = f"""SELECT {operations.COLUMNS} FROM operation
WHERE oid > ? AND session = 0 AND agent = 0 ORDER BY oid LIMIT ?"""
UNDONE = """SELECT o.id, b.id FROM operation o JOIN operation b ON b.oid = o.undone_by
WHERE o.scope = ? AND o.session = ? AND o.agent = ?"""
IS_UNDONE = f"""SELECT {operations.COLUMNS} FROM operation
WHERE scope = ? AND session = ? AND agent = ? AND undone_by IS NOT NULL"""
NUMBER = "SELECT oid FROM operation WHERE scope = ? AND id = ?"
CHECKPOINTS = f"""SELECT {_C}, b.uid FROM checkpoint c LEFT JOIN branch b ON b.bid = c.branch
WHERE c.scope = ? AND c.session = ? AND c.cid > ? ORDER BY c.cid"""
CHECKPOINT_NUMBER = "SELECT cid FROM checkpoint WHERE scope = ? AND id = ?"
KEYS = """SELECT i.scope, i.session, i.ikey, i.branch, i.seq, i.last_seq, i.digest, i.chk, b.uid
FROM idempotency i LEFT JOIN branch b ON b.bid = i.branch
WHERE i.scope = ? AND i.session = ? AND (i.ikey, i.branch, i.seq) > (?, ?, ?) AND (i.branch = 0 OR i.seq > ?)
ORDER BY i.ikey, i.branch, i.seq LIMIT ?"""
HAS_STORE_KEY = "SELECT 1 FROM idempotency WHERE scope = ? AND session = 0 AND ikey = ?"
HAS_KEY = (
    "SELECT 1 FROM idempotency WHERE scope = ? AND session = ? AND ikey = ? AND branch = ? AND (seq = ? OR branch = 0)"
)

_LOST_CHANGE = "operation"  # the change that tells of an operation whose kind is lost


class Subject(NamedTuple):
    """What an operation is on: a session or an agent, the other one is 0."""

    scope: str
    session: int
    agent: int


# ---------------------------------------------------------------------- operations


def operation_pages(read: Read, subject: Subject, after: int, upto: int) -> Iterator[list[Row]]:
    """Give the operations of a session or agent in pages, each with the id of the one that it takes back."""
    while True:
        rows = read(lambda tx: _operations(tx, subject, after, upto))  # noqa: B023
        if not rows:
            return
        yield rows
        after = rows[-1][0]


def _operations(tx: Tx, subject: Subject, after: int, upto: int) -> list[Row]:
    rows = tx.all(OPERATIONS, (*subject, after, upto, base.ROWS))
    for row in rows:
        soundness.require_operation(tx, row[:-1])
    return rows


def put_operation(tx: Tx, row: Row, subject: Subject) -> str:
    """Write an operation behind those that are there; give the kind of change that tells of it, '' if it was there."""
    theirs, undoes = OperationRow(*row[:11]), row[12]
    found = tx.one(operations.BY_ID, (subject.scope, theirs.id))
    if found is not None:
        if found[4:6] != subject[1:]:
            raise base.conflict(f"operation {theirs.id} is on something else in the destination", theirs.id)
        return ""
    number = None if undoes is None else tx.one(NUMBER, (subject.scope, undoes))
    if theirs.undoes is not None and number is None:
        raise Corrupt(f"operation {theirs.id} takes back one that is missing", what=f"operation {theirs.id}")
    made = theirs._replace(
        oid=tx.next("operation"),
        session=subject.session,
        agent=subject.agent,
        undoes=number[0] if number else None,
        undone_by=None,
    )
    tx.run(operations.INSERT, sealed(made))
    return _LOST_CHANGE if theirs.kind == LOST_KIND else theirs.kind


def undone(tx: Tx, subject: Subject) -> dict[str, str]:
    """Give which operations are undone, and by which."""
    return dict(tx.all(UNDONE, subject))


def mark_undone(tx: Tx, subject: Subject, wanted: dict[str, str]) -> None:
    """Let exactly these operations be undone."""
    known = {row[2]: row for row in tx.all(IS_UNDONE, subject)}
    for name in known.keys() | wanted.keys():
        row = known.get(name) or tx.one(operations.BY_ID, (subject.scope, name))
        by = tx.one(NUMBER, (subject.scope, wanted[name])) if name in wanted else None
        number = by[0] if by else None
        if row is not None and row[10] != number:
            changed = operations.checked(row)._replace(undone_by=number)
            tx.run(operations.SET_UNDONE, (number, row_check(changed), changed.oid))


def loose_page(tx: Tx, after: int) -> list[OperationRow]:
    """Give the next operations of which a repair knew nothing but that they were there."""
    return [operations.checked(row) for row in tx.all(LOOSE, (after, base.ROWS))]


def known_loose(tx: Tx, rows: list[OperationRow]) -> set[str]:
    """Give the ids of those that are there."""
    return {row.id for row in rows if tx.one(NUMBER, (row.scope, row.id)) is not None}


def put_loose(tx: Tx, theirs: OperationRow) -> None:
    """Write such an operation unless it is there; like all of them it is undone by itself."""
    if not known_loose(tx, [theirs]):
        oid = tx.next("operation")
        tx.run(operations.INSERT, sealed(theirs._replace(oid=oid, undone_by=oid)))


# ---------------------------------------------------------------------- checkpoints


def new_checkpoints(tx: Tx, session: int, scope: str, after: int) -> list[Row]:
    """Give a session's checkpoints behind one of them, each with the id of its branch."""
    rows = tx.all(CHECKPOINTS, (scope, session, after))
    for row in rows:
        soundness.require_checkpoint(tx, row[:-1])
    return rows


def put_checkpoint(tx: Tx, row: Row, session: int) -> int:
    """Write a checkpoint unless it is there; give the branch that it names, 0 if it was there."""
    theirs, uid = checkpoints.CheckpointRow(*row[:11]), row[12]
    branch = base.find_branch(tx, theirs.scope, uid)
    found = tx.one(checkpoints.BY_ID, (theirs.scope, theirs.id))
    if branch is None or (found is not None and found[3] != session):
        raise base.conflict(f"checkpoint {theirs.id} is on something else in the destination", theirs.id)
    if found is not None:
        return 0
    made = theirs._replace(cid=tx.next("checkpoint"), session=session, branch=branch.bid)
    tx.run(checkpoints.INSERT, sealed(made))
    return branch.bid


# ---------------------------------------------------------------------- idempotency keys


class Key(NamedTuple):
    """An idempotency key: what it stands for is a run of entries, or something with an id."""

    ikey: str
    uid: str | None
    first: int
    last: int
    digest: int
    made: meaning.Made | None


def keys(read: Read, ours: Moment, above: int) -> Iterator[Key]:
    """Give the keys of a session as of a moment, without those of entries up to ``above``."""
    tips = {part.branch.uid: part.tip for part in ours.parts}
    after: tuple[str, int, int] = ("", -1, -1)
    while True:
        page = read(lambda tx: _keys(tx, ours.session.scope, ours.session.sid, after, above))  # noqa: B023
        for _, key in page:
            if key.uid is None or (key.uid in tips and key.last <= tips[key.uid]):
                yield key
        if not page:
            return
        after = page[-1][0]


def _keys(
    tx: Tx, scope: str, sid: int, after: tuple[str, int, int], above: int
) -> list[tuple[tuple[str, int, int], Key]]:
    found = []
    for row in tx.all(KEYS, (scope, sid, *after, above, base.ROWS)):
        if not is_sound(row[:-1]):
            raise Corrupt(f"the record of idempotency key {row[2]!r} is damaged", what="idempotency")
        _, _, ikey, branch, first, last, digest, _, uid = row
        made = None if branch else meaning.of(tx, scope, sid, first, digest)
        found.append(((ikey, branch, first), Key(ikey, uid if branch else None, first, last, digest, made)))
    return found


def store_keys(read: Read, scope: str) -> Iterator[Key]:
    """Give the keys of calls on a store: new sessions, agents and their versions."""
    after: tuple[str, int, int] = ("", -1, -1)
    while page := read(lambda tx: _keys(tx, scope, 0, after, -1)):  # noqa: B023
        yield from (key for _, key in page)
        after = page[-1][0]


def has_store_key(tx: Tx, scope: str, key: Key) -> bool:
    """Say whether the destination knows a key of its own by that name: what it stands for stays."""
    return tx.one(HAS_STORE_KEY, (scope, key.ikey)) is not None


def put_key(tx: Tx, scope: str, session: int, key: Key) -> bool | None:
    """Remember a key unless it is known; False if it was, None if what it stands for cannot be told or is not here."""
    if key.uid is not None:
        branch = base.find_branch(tx, scope, key.uid)
        place = None if branch is None else (branch.bid, key.first, key.last, key.digest)
    else:
        number = None if key.made is None else meaning.number(tx, scope, key.made)
        place = None if number is None else (0, number, number, key.digest)
    if place is None:
        return None
    if tx.one(HAS_KEY, (scope, session, key.ikey, place[0], place[1])):
        return False
    entries.keep_key(tx, scope, session, key.ikey, place)
    return True


def newest(before: Tally, read: Read, sql: str, scope: str) -> int:
    """Give the number, in the store that is copied, of the newest record that the other store has."""
    if not before.total:
        return 0
    row = read(lambda tx: tx.one(sql, (scope, before.id)))
    return int(row[0]) if row else 0
