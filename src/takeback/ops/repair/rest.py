"""Repair of the tables beside the log: what is derived is made again, what is not and is damaged is left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...ids import is_id, new_id
from ...storage.base import Row
from .. import branches, entries
from ..verify import derived, index, tables
from ..verify.base import is_sound
from ..verify.changes import PURGED, operation_deficits, operation_gaps
from ..verify.index import CALLS, HAS_BLOB, LINKS
from ..verify.log import Line, content_of, line_of, marks_of, read_rows
from ..verify.places import BRANCHES
from ..verify.tables import (
    ATTACHMENT,
    CHECKPOINTS,
    CONTENT,
    ENTRY,
    HAS_ENTRY,
    KEYS,
    LOST_KIND,
    LOST_ROWS,
    MIGRATIONS,
    OPERATION,
    OPERATIONS,
    OWNER,
)
from .base import SPARE, Repair, checked, proved

META = "SELECT name, value, chk FROM meta"
DROP_META = "DELETE FROM meta WHERE name = ?"
MARKS_OF = "DELETE FROM call WHERE scope = ? AND key = ?"
HAS_LINK = "SELECT 1 FROM link WHERE scope = ? AND hash = ? AND key = ?"
HASH_AT = "SELECT bid FROM branch WHERE session = ?"
ENTRY_HASH = "SELECT hash FROM entry WHERE key = ?"
COUNT = "SELECT count(*) FROM operation"
TOP = "SELECT ifnull(max(oid), 0) FROM operation"
TAKEN = "SELECT 1 FROM operation WHERE scope = ? AND id = ? AND oid != ?"
SCOPE_OF = "SELECT scope FROM session WHERE sid = ?"
SIDS = "SELECT ifnull(max(sid), 0) FROM session"

_PAGE = 300


def fix_records(fix: Repair) -> None:
    """Put the records of schema versions right; other records of the store itself cannot be proved."""
    for row in fix.rows(MIGRATIONS):
        if not is_sound(row):
            fix.replace(MIGRATIONS, row[:1], checked((row[0], row[1] or "", row[2] or 0)))
            fix.rebuilt += 1
    for row in fix.tx.all(META):
        if not is_sound(row) and row[0] != "store":
            fix.tx.run(DROP_META, row[:1])
            fix.lose("meta", f"meta {row[0]!r}", "its record was damaged")


# ---------------------------------------------------------------------- tool calls and links


def fix_derived(fix: Repair) -> None:
    """Make the records of tool calls and links what the entries say."""
    for row in fix.rows(CALLS):
        if not is_sound(row) or not fix.tx.one(HAS_ENTRY, (row[1], row[0])):
            fix.delete(CALLS, row[:4])
            fix.rebuilt += 1
    for row in fix.rows(LINKS):
        fault = index.link_fault(fix.tx, row) if is_sound(row) else None
        if not is_sound(row) or (fault is not None and fault.kind == "link"):
            fix.delete(LINKS, row[:3])
            fix.rebuilt += 1
    for row in fix.rows(BRANCHES):
        _derive(fix, line_of(fix.tx, branches.checked(row)))


def _derive(fix: Repair, line: Line) -> None:
    seq = line.branch.fork_seq
    while rows := read_rows(fix.tx, line, seq, _PAGE):
        marks = marks_of(fix.tx, line, rows)
        for row in rows:
            seq = row[0] & entries.MAX_SEQ
            if line.lost.get(seq) not in (CONTENT, ENTRY):
                _derive_one(fix, line, row, marks.get(row[0], set()))


def _derive_one(fix: Repair, line: Line, row: Row, stored: set[derived.Mark]) -> None:
    scope, key = line.branch.scope, row[0]
    (body, raw), _ = content_of(fix.tx, scope, row)
    if body is None:
        return
    needed = derived.needs(row, body, raw)
    if not derived.marks_fit(fix.tx, line.branch, key & entries.MAX_SEQ, needed.marks, stored):
        fix.tx.run(MARKS_OF, (scope, key))
        for what, call_id in derived.rebuilt_marks(fix.tx, line.branch, row, needed.marks, body):
            fix.insert(CALLS, checked((scope, key, what, call_id)))
        fix.rebuilt += 1
    for each in sorted(derived.links(row, needed)):
        if not fix.tx.one(HAS_LINK, (scope, each, key)):
            fix.insert(LINKS, checked((scope, each, key)))
            fix.rebuilt += 1


def fix_attachments(fix: Repair) -> None:
    """Record attachments whose content is gone; the message that names them stays as it is."""
    for row in fix.rows(LINKS):
        scope, content_hash, key = row[:3]
        if fix.tx.one(HAS_BLOB, (scope, content_hash)):
            continue
        fault = index.link_fault(fix.tx, row)
        if fault is not None and fault.kind == "blob":
            fix.replace(LOST_ROWS, (key,), checked((key, scope, ATTACHMENT, fix.now_ms)))
            fix.lose(
                "blob", f"blob {content_hash} of entry {tables.place(key)}", "the content of an attachment is lost"
            )


# ---------------------------------------------------------------------- checkpoints and keys


def fix_checkpoints(fix: Repair) -> None:
    """Keep a checkpoint if its check or its hash proves the entry that it names."""
    for row in fix.rows(CHECKPOINTS):
        if is_sound(row) and not tables.checkpoint_fault(fix.tx, row):
            continue
        fix.delete(CHECKPOINTS, row[:1])
        new = _by_hash(fix, row) if is_sound(row) else proved(row, _places(fix, row))
        if new is not None and not tables.checkpoint_fault(fix.tx, new):
            fix.insert(CHECKPOINTS, new)
            fix.rebuilt += 1
        else:
            fix.lose("checkpoint", f"checkpoint {row[4]}", "its record was damaged, or the entry that it names is gone")


def _places(fix: Repair, row: Row) -> Iterator[dict[int, Any]]:
    """Give what a damaged row may have said: one of the entries at that place, another type, no description."""
    for (bid,) in fix.tx.all(HASH_AT, (row[3],)):
        found = fix.tx.one(ENTRY_HASH, (entries.key_of(bid, row[9] or 0),)) if isinstance(row[9], int) else None
        yield from ({8: bid, 10: found[0]}, {10: found[0]}) if found else ({8: bid},)
    yield from ({6: kind} for kind in ("manual", "automatic", "pre-operation", "recovery"))
    yield {5: None}


def _by_hash(fix: Repair, row: Row) -> Row | None:
    """Find the entry that a sound row means by its hash, on another branch of its session."""
    changes = ({8: bid} for (bid,) in fix.tx.all(HASH_AT, (row[3],)))
    tries = (checked(tuple(change.get(at, value) for at, value in enumerate(row[:-1]))) for change in changes)
    return next((each for each in tries if not tables.checkpoint_fault(fix.tx, each)), None)


def fix_keys(fix: Repair) -> None:
    """Leave out idempotency keys that are damaged or name what is not there."""
    for row in fix.rows(KEYS):
        if not is_sound(row) or tables.key_fault(fix.tx, row):
            fix.delete(KEYS, row[:5])
            fix.lose("idempotency", f"key {row[2]!r}", "its record was damaged: a retry with this key is stored again")


# ---------------------------------------------------------------------- operations


def fix_operations(fix: Repair) -> None:
    """Put a blank in the place of each operation that is lost: nothing of it can be undone, and pointers stay valid."""
    _drop_far(fix)
    for row in fix.rows(OPERATIONS):
        if not is_sound(row):
            whole = proved(row, [{9: None}, {10: None}, {8: row[7]}, {7: row[8]}])
            if whole is None:
                _blank(fix, row[0], row)
            else:
                fix.replace(OPERATIONS, row[:1], whole)
                fix.rebuilt += 1
    _fill_pointers(fix)
    _fill_gaps(fix)
    for row in fix.rows(OPERATIONS):
        if tables.operation_fault(fix.tx, row):
            _mend_pointers(fix, row)


def _drop_far(fix: Repair) -> None:
    """Drop operations whose number cannot have been given out: all that purges erased would not reach it."""
    (count,), (purged,) = fix.tx.one(COUNT) or (0,), fix.tx.one(PURGED) or (0,)
    for row in list(fix.rows(OPERATIONS, (count + purged + SPARE,))):
        fix.delete(OPERATIONS, row[:1])
        fix.lose("operation", f"operation {row[2]}", "its number was never given out")


def _blank(fix: Repair, oid: int, row: Row | None, sid: int = 0) -> None:
    scope, aid = "", 0
    if row is not None and (found := fix.tx.one(SCOPE_OF, (row[4],))):
        sid = row[4]
    elif row is not None and isinstance(row[5], int) and fix.tx.one(OWNER, (row[5], row[1])):
        aid, scope = row[5], row[1]
    found = fix.tx.one(SCOPE_OF, (sid,))
    scope = found[0] if found else scope
    known = (
        row is not None and isinstance(row[2], str) and is_id(row[2]) and not fix.tx.one(TAKEN, (scope, row[2], oid))
    )
    name = row[2] if known and row is not None else new_id(fix.now_ms)
    at_ms = row[6] if row is not None and isinstance(row[6], int) else fix.now_ms
    # Undone by itself: it does not stand, so no undo and no redo finds it.
    fix.replace(OPERATIONS, (oid,), checked((oid, scope, name, LOST_KIND, sid, aid, at_ms, b"{}", b"{}", None, oid)))
    fix.lose("operation", f"operation {name}", "what it did is lost, so it cannot be undone")


def _fill_pointers(fix: Repair) -> None:
    """Put a blank where an operation names one that took it back, or that it took back, and that is missing."""
    (top,) = fix.tx.one(TOP) or (0,)
    for row in fix.rows(OPERATIONS):
        undoes, undone_by = row[9] or 0, row[10] or 0
        for oid in (undoes if undoes < row[0] else 0, undone_by if row[0] < undone_by <= top + 1 else 0):
            if oid and not fix.tx.one(OPERATION, (oid,)):
                _blank(fix, oid, None, row[4])


def _fill_gaps(fix: Repair) -> None:
    missing = operation_gaps(fix.tx)
    numbers = {row[0] for row in fix.rows(OPERATIONS)} if missing else set()
    for oid in [oid for oid in range(1, max(numbers, default=0)) if oid not in numbers][:missing]:
        _blank(fix, oid, None, next(iter(_deficits(fix)), 0))
    for sid, number in _deficits(fix).items():
        for _ in range(number):
            (last,) = fix.tx.one(TOP) or (0,)
            _blank(fix, last + 1, None, sid)


def _deficits(fix: Repair) -> dict[int, int]:
    """Give the sessions that have fewer operations than the feed tells of."""
    (top,) = fix.tx.one(SIDS) or (0,)
    return operation_deficits(fix.tx, 0, top)


def _mend_pointers(fix: Repair, row: Row) -> None:
    """Let go of operations that are not there; one that cannot be read itself becomes a blank."""
    for change in ({10: None}, {9: None}, {9: None, 10: None}):
        new = checked(tuple(change.get(at, value) for at, value in enumerate(row[:-1])))
        if not tables.operation_fault(fix.tx, new):
            fix.replace(OPERATIONS, row[:1], new)
            fix.lose("operation", f"operation {row[2]}", "which operation took it back, or which it took back, is lost")
            return
    _blank(fix, row[0], row)
