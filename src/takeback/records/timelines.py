"""Timelines on their way into a store: workspaces by their uid, scans by their number.

A timeline is in order at any moment of a copy. Its last number is known from the start, and a scan that is not here,
or not here yet, is counted as missing: what it found is unknown and never guessed. So an interrupted copy goes on where
it ended, chosen sessions bring only the scans that were made for them, and the rest may follow later.

A timeline that went on in both stores is not merged; it stays as it is in each. One from a file is never that of a
directory here: it is ``away``, found by its uid alone. Whoever writes a file could otherwise say what a directory of
ours held, and a rewind there would go by that.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any, TypeAlias

from ..files import timeline
from ..ops import sessions
from ..ops.verify.base import Read
from ..storage.base import Tx
from ..tables.files import SCAN, TOUCHED, WORKSPACE, ScanRow, WorkspaceRow
from .stream import ScanRecord, WorkspaceRecord

AWAY = "away:"
CLEAR = tuple(f"DELETE FROM {table} WHERE scope = ? AND wid = ?" for table in ("touched", "scan"))
Who: TypeAlias = "list[list[Any]]"  # sessions by their numbers, each with calls


def away(record: WorkspaceRecord) -> WorkspaceRecord:
    """Return a workspace that is no directory of any machine; nobody is at work there."""
    row = record.row
    return record._replace(row=row._replace(machine=f"{AWAY}{row.uid}", identity="", owed=[], over=[], by={}))


def is_away(row: WorkspaceRow) -> bool:
    """Whether a workspace is no directory that is known here."""
    return row.machine.startswith(AWAY)


# ---------------------------------------------------------------------- sessions by their names


def workspace_of(tx: Tx, row: WorkspaceRow, chosen: Container[int] | None) -> WorkspaceRecord:
    """Name the sessions of a workspace; only those that are ``chosen``."""
    known = {*(sid for sid, _, _ in (*row.owed, *row.over)), *row.by}
    return WorkspaceRecord(row, _names(tx, row.scope, known, chosen))


def scan_of(tx: Tx, workspace: WorkspaceRow, row: ScanRow, chosen: Container[int] | None) -> ScanRecord:
    """Read what a scan found, and name its sessions; only those that are ``chosen``."""
    known = {row.session, *(sid for _, who in row.authors for sid, _ in who)}
    touched = TOUCHED.all(tx, timeline.IN_SCAN, (row.scope, row.wid, row.n))
    return ScanRecord(row, tuple(touched), _names(tx, row.scope, known, chosen), workspace.uid)


def _names(tx: Tx, scope: str, numbers: Iterable[int], chosen: Container[int] | None) -> dict[int, str]:
    wanted = (sid for sid in sorted(numbers) if sid and (chosen is None or sid in chosen))
    found = {sid: sessions.find_number(tx, scope, sid) for sid in wanted}
    return {sid: row.id for sid, row in found.items() if row is not None}


def _numbers(tx: Tx, scope: str, names: dict[int, str]) -> dict[int, int]:
    """Return which numbers sessions have here."""
    found = {sid: sessions.find_any(tx, scope, name) for sid, name in names.items()}
    return {sid: row.sid for sid, row in found.items() if row is not None}


def _ended(said: Iterable[Any], numbers: dict[int, int]) -> list[list[Any]]:
    """Return calls that ended, with the numbers that their sessions have here; those of others are left out."""
    return [[numbers[sid], call, at] for sid, call, at in said if sid in numbers]


def _who(said: Iterable[Any], numbers: dict[int, int]) -> Who:
    """Renumber sessions; one that is not here is 0, without its calls."""
    found = {numbers.get(sid, 0): [*ids] if sid in numbers else [] for sid, ids in said}
    return [[sid, ids] for sid, ids in found.items()]


# ---------------------------------------------------------------------- deciding


def reached(record: WorkspaceRecord, look: Read, read: Read) -> tuple[int | None, str]:
    """Return behind which scan the others are wanted, None for none of them, and what to say of a timeline that parts.

    ``read`` looks into the store that the records come from, ``look`` into the other one.
    """
    mine = record.row
    there: WorkspaceRow | None = look(lambda tx: timeline.by_uid(tx, mine.scope, mine.uid))
    if there is None or is_away(there) > is_away(mine):
        return 0, ""
    if is_away(mine) > is_away(there):
        return None, ""  # it is known here at first hand
    common = min(mine.tip, there.tip)
    one, two = read(lambda tx: timeline.scan_at(tx, mine, common)), look(lambda tx: timeline.scan_at(tx, there, common))
    if one is not None and two is not None and not _same(one, two):
        return None, parted(mine)
    if there.missing:
        return 0, ""
    return (None if mine.tip <= there.tip else there.tip), ""


def _same(one: ScanRow, two: ScanRow) -> bool:
    """Whether two stores speak of the same scan; what it found may have been purged in one of them."""
    return (one.at_ms, one.branch, one.seq, one.operation) == (two.at_ms, two.branch, two.seq, two.operation)


def parted(row: WorkspaceRow) -> str:
    """Describe a timeline that is not copied."""
    return f"the timeline of {row.path}: it went on in both stores, and stays as it is in each"


# ---------------------------------------------------------------------- writing


def put_workspace(tx: Tx, record: WorkspaceRecord, left_out: list[str]) -> int:
    """Write a workspace; return its number, 0 if its scans are not to be put.

    All scans that are new are missing until they are put.
    """
    mine, numbers = record.row, _numbers(tx, record.row.scope, record.names)
    there, at = timeline.by_uid(tx, mine.scope, mine.uid), WORKSPACE.one(tx, timeline.AT, _place(mine))
    if at is not None and at.uid != mine.uid:
        mine = away(record).row
    begun = mine._replace(
        wid=tx.next("workspace") if there is None else there.wid,
        root="",
        missing=mine.tip,
        owed=_ended(mine.owed, numbers),
        over=_ended(mine.over, numbers),
        by={numbers[sid]: holder for sid, holder in mine.by.items() if sid in numbers},
    )
    if there is None:
        if is_away(mine) > is_away(record.row):
            left_out.append(f"the place of the timeline of {mine.path}: the destination has one of that directory")
        return WORKSPACE.put(tx, begun).wid
    if is_away(mine) > is_away(there):
        return 0
    if is_away(there) > is_away(mine):
        for sql in CLEAR:
            tx.run(sql, (there.scope, there.wid))
    elif mine.tip <= there.tip:
        return there.wid
    else:
        begun = begun._replace(missing=there.missing + mine.tip - there.tip)
    return WORKSPACE.update(tx, there, begun).wid


def _place(row: WorkspaceRow) -> tuple[str, str, str]:
    return row.scope, row.machine, row.path


def put_scan(tx: Tx, wid: int, record: ScanRecord, require: Callable[[ScanRow], None]) -> bool:
    """Write a scan unless it is there; return whether it is the same one there. ``require`` refuses its root."""
    row, workspace = record.row, WORKSPACE.get_locked(tx, record.row.scope, wid)
    if workspace is None or workspace.uid != record.workspace:
        return False
    numbers = _numbers(tx, row.scope, record.names)
    authors = [[kind, _who(who, numbers)] for kind, who in row.authors]
    made = row._replace(wid=wid, session=numbers.get(row.session, 0), authors=authors)
    there = SCAN.get(tx, row.scope, wid, row.n)
    if there is not None:
        return _same(made, there)
    if not 0 < row.n <= workspace.tip:
        return False
    require(made)
    SCAN.put(tx, made)
    TOUCHED.put_many(tx, [each._replace(wid=wid) for each in record.touched])
    now = workspace._replace(missing=workspace.missing - 1)
    WORKSPACE.update(tx, workspace, now._replace(root=timeline.standing(tx, now)))
    return True
