"""Repair of the tables beside the log: what is derived is made again, what is not and is damaged is left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...ids import is_id, new_id
from ...tables.agents import AGENT
from ...tables.branches import BRANCH
from ...tables.entries import ENTRY as ENTRIES
from ...tables.entries import LINK, LOST, EntryRow, LinkRow, LostRow
from ...tables.history import CHECKPOINT, ONCE, OPERATION, CheckpointRow, OperationRow
from ...tables.store import META, MIGRATION
from ..log import key_of
from ..verify import derived, tables
from ..verify.base import has
from ..verify.changes import PURGED_CHANGES, operation_deficits, operation_gaps
from ..verify.index import HAS_BLOB, link_fault
from ..verify.log import Line, content_of, line_of
from ..verify.tables import ATTACHMENT, CONTENT, ENTRY, LOST_KIND, checkpoint_fault, operation_fault
from .base import SPARE, Repair, proved
from .entries import walk

BRANCHES_OF = "SELECT bid FROM branch WHERE session = ?"
SCOPE_OF = "SELECT scope FROM session WHERE sid = ?"
COUNT = "SELECT count(*), coalesce(max(oid), 0) FROM operation"
SIDS = "SELECT ifnull(max(sid), 0) FROM session"
TAKEN = "SELECT 1 FROM operation WHERE scope = ? AND id = ? AND oid <> ?"


def fix_records(fix: Repair) -> None:
    """Put the records of schema versions right; other records of the store itself cannot be proved."""
    for row, sound, _ in fix.rows(MIGRATION):
        if not sound:
            fix.rebuild(MIGRATION, row, row)
    for meta, sound, _ in fix.rows(META):
        if not sound and meta.name != "store":
            fix.delete(META, meta)
            fix.lose("meta", META.called(meta), "its record was damaged")


# ---------------------------------------------------------------------- tool calls and links


def fix_derived(fix: Repair) -> None:
    """Make the tool calls that entries note and the links to blobs what the entries say."""
    for row, sound, _ in fix.rows(LINK):
        fault = link_fault(fix.tx, row) if sound else None
        if not sound or (fault is not None and fault.kind == "link"):
            fix.delete(LINK, row)
            fix.rebuilt += 1
    for branch in fix.sound(BRANCH):
        line = line_of(fix.tx, branch)
        for entry in walk(fix, line, branch.fork_seq):
            if line.lost.get(entry.seq) not in (CONTENT, ENTRY):
                _derive(fix, line, entry)


def _derive(fix: Repair, line: Line, row: EntryRow) -> None:
    (body, raw), _ = content_of(fix.tx, line.branch.scope, row)
    if body is None:
        return
    needed = derived.needs(row, body, raw)
    calls = tuple(dict.fromkeys(needed.marks))
    if row.chain.calls != calls:
        fix.rebuild(ENTRIES, row, row.with_chain(row.chain._replace(calls=calls)))
    for each in sorted(derived.links(row, needed)):
        if not has(fix.tx, LINK, row.scope, each, row.key):
            LINK.put(fix.tx, LinkRow(row.scope, each, row.key))
            fix.rebuilt += 1


def fix_attachments(fix: Repair) -> None:
    """Record attachments whose content is gone; the message that names them stays as it is."""
    for row, _, _ in fix.rows(LINK):
        fault = None if fix.tx.one(HAS_BLOB, (row.scope, row.hash)) else link_fault(fix.tx, row)
        if fault is not None and fault.kind == "blob":
            lost = LostRow(row.scope, row.key, ATTACHMENT, fix.now_ms)
            fix.replace(LOST, lost, lost)
            where = f"blob {row.hash} of entry {tables.place(row.key)}"
            fix.lose("blob", where, "the content of an attachment is lost")


# ---------------------------------------------------------------------- checkpoints and keys


def fix_checkpoints(fix: Repair) -> None:
    """Keep a checkpoint if its check or its hash proves the entry that it names."""
    for found in fix.rows(CHECKPOINT):
        row = found.row
        if found.sound and not checkpoint_fault(fix.tx, row):
            continue
        fix.delete(CHECKPOINT, row)
        places = list(_places(fix, row))
        if found.sound:  # it means an entry of another branch of its session
            tries = [row._replace(branch=place["branch"]) for place in places if "branch" in place]
        else:
            whole = proved(CHECKPOINT, found, places)
            tries = [] if whole is None else [whole]
        new = next((each for each in tries if not checkpoint_fault(fix.tx, each)), None)
        if new is not None:
            CHECKPOINT.put(fix.tx, new)
            fix.rebuilt += 1
        else:
            fix.lose("checkpoint", f"checkpoint {row.name}", "its record was damaged, or the entry it names is gone")


def _places(fix: Repair, row: CheckpointRow) -> Iterator[dict[str, Any]]:
    """Yield what a damaged row may have said: one of the entries at that place."""
    for (bid,) in fix.tx.all(BRANCHES_OF, (row.session,)):
        yield {"branch": bid}
        found = fix.find(ENTRIES, key_of(bid, row.seq))
        if found is not None and found.sound:
            yield from ({"hash": found.row.chain.hash}, {"branch": bid, "hash": found.row.chain.hash})


def fix_keys(fix: Repair) -> None:
    """Leave out idempotency keys that are damaged or name what is not there."""
    what = "its record was damaged: a retry with this key is stored again"
    fix.drop(ONCE, tables.key_fault, "idempotency", what)


# ---------------------------------------------------------------------- operations


def fix_operations(fix: Repair) -> None:
    """Put a blank in the place of each operation that is lost: nothing of it can be undone, and pointers stay valid."""
    _drop_far(fix)
    for found in fix.rows(OPERATION):
        if found.sound:
            continue
        whole = proved(OPERATION, found, ({"after": found.row.before}, {"before": found.row.after}))
        if whole is None:
            _blank(fix, found.row.oid, found.row)
        else:
            fix.rebuild(OPERATION, found.row, whole)
    _fill_pointers(fix)
    _fill_gaps(fix)
    for row in fix.sound(OPERATION):
        if operation_fault(fix.tx, row):
            _mend_pointers(fix, row)


def _drop_far(fix: Repair) -> None:
    """Drop operations whose number cannot have been given out: all that purges erased would not reach it."""
    (count, _), (purged,) = fix.tx.one(COUNT) or (0, 0), fix.tx.one(PURGED_CHANGES) or (0,)
    for row, _, _ in fix.all(OPERATION, "WHERE oid > ?", (count + purged + SPARE,)):
        fix.never_given(OPERATION, row)


def _blank(fix: Repair, oid: int, row: OperationRow | None, sid: int = 0) -> None:
    """Put in an operation that nothing is known of but whose it was, and its id and time if its row says them."""
    scope, aid = "", 0
    if row is not None and fix.tx.one(SCOPE_OF, (row.session,)):
        sid = row.session
    elif row is not None and has(fix.tx, AGENT, row.scope, row.agent):
        aid, scope = row.agent, row.scope
    (scope,) = fix.tx.one(SCOPE_OF, (sid,)) or (scope,)
    known = row is not None and is_id(row.id) and not fix.tx.one(TAKEN, (scope, row.id, oid))
    name = row.id if row is not None and known else new_id(fix.now_ms)
    at_ms = fix.now_ms if row is None else row.at_ms
    # Undone by itself: it does not stand, so no undo and no redo finds it.
    blank = OperationRow(scope, oid, name, LOST_KIND, sid, aid, at_ms, b"{}", b"{}", None, oid)
    fix.replace(OPERATION, blank, blank)
    fix.lose("operation", f"operation {name}", "what it did is lost, so it cannot be undone")


def _fill_pointers(fix: Repair) -> None:
    """Put a blank where an operation names one that took it back, or that it took back, and that is missing."""
    (_, top) = fix.tx.one(COUNT) or (0, 0)
    for row in fix.sound(OPERATION):
        undoes, undone_by = row.undoes or 0, row.undone_by or 0
        for oid in (undoes if undoes < row.oid else 0, undone_by if row.oid < undone_by <= top + 1 else 0):
            if oid > 0 and fix.find(OPERATION, oid) is None:
                _blank(fix, oid, None, row.session)


def _fill_gaps(fix: Repair) -> None:
    missing = operation_gaps(fix.tx)
    numbers = {row.oid for row in fix.sound(OPERATION)} if missing else set()
    for oid in [oid for oid in range(1, max(numbers, default=0)) if oid not in numbers][:missing]:
        _blank(fix, oid, None, next(iter(_deficits(fix)), 0))
    for sid, number in _deficits(fix).items():
        for _ in range(number):
            (_, last) = fix.tx.one(COUNT) or (0, 0)
            _blank(fix, last + 1, None, sid)


def _deficits(fix: Repair) -> dict[int, int]:
    """Return the sessions that have fewer operations than the feed tells of."""
    (top,) = fix.tx.one(SIDS) or (0,)
    return operation_deficits(fix.tx, 0, top)


def _mend_pointers(fix: Repair, row: OperationRow) -> None:
    """Let go of operations that are not there; one that cannot be read itself becomes a blank."""
    for new in (row._replace(undone_by=None), row._replace(undoes=None), row._replace(undoes=None, undone_by=None)):
        if not operation_fault(fix.tx, new):
            fix.replace(OPERATION, row, new)
            what = "which operation took it back, or which it took back, is lost"
            fix.lose("operation", f"operation {row.id}", what)
            return
    _blank(fix, row.oid, row)
