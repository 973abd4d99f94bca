"""Timelines: every scan and every changed path that can be proved is kept, under its number.

Snapshots name scans by number, so none is numbered anew. A scan that is lost leaves its number missing, one whose
files or paths are not all there says that it lacks something; from then on it is unclear who changed what these alone
knew. A workspace whose record is lost takes its timeline with it: nothing else tells which directory it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...files import timeline
from ...ops.verify import timelines
from ...ops.verify.base import each_of
from ...ops.verify.files import TreeChecks
from ...ops.verify.timelines import LISTED, SCANS
from ...storage.base import Tx, scalar
from ...tables.files import SCAN, TOUCHED, WORKSPACE, ScanRow, WorkspaceRow
from .base import PARTLY, ReadRow, Salvage

PATHS = "SELECT DISTINCT workspace FROM session WHERE workspace <> ''"
OWNER = "SELECT session FROM branch WHERE uid = ?"
NEWEST = "SELECT ifnull(max(n), 0) FROM scan WHERE scope = ? AND wid = ?"
_NOBODY: dict[str, Any] = {"owed": [], "over": [], "by": {}}
_UNKNOWN = "who changed what it found cannot be told any more"


def fix_timelines(fix: Salvage) -> None:
    """Keep what can be proved of timelines."""
    what = "its record was damaged or is missing, so its timeline is lost"
    fix.settle(WORKSPACE, lambda tx, row: timelines.identity_fault(row), "workspace", what, changes=_places)
    what = f"its record was damaged, or its workspace is lost: {_UNKNOWN}"
    fix.settle(SCAN, _scan_fault, "scan", what, changes=_sessions)
    fix.settle(TOUCHED, timelines.touched_fault, "touched", f"its record was damaged, or its scan is lost: {_UNKNOWN}")
    trees = TreeChecks()
    for row in list(fix.sound(SCAN)):
        _fix_scan(fix, row, trees)
    for workspace in list(fix.sound(WORKSPACE)):
        _fix_workspace(fix, workspace)


def _places(fix: Salvage, found: ReadRow[WorkspaceRow]) -> Iterator[dict[str, Any]]:
    """Yield which directory a workspace may have been: one of a session."""
    yield from ({"path": path} for (path,) in fix.tx.all(PATHS))


def _sessions(fix: Salvage, found: ReadRow[ScanRow]) -> Iterator[dict[str, Any]]:
    """Yield for which session a scan may have been made: the one whose branch it names."""
    yield from ({"session": sid} for (sid,) in fix.tx.all(OWNER, (found.row.branch or "",)))


def _scan_fault(tx: Tx, row: ScanRow) -> str:
    return timelines.workspace_missing(tx, row) or timelines.authors_fault(row)


def _fix_scan(fix: Salvage, row: ScanRow, trees: TreeChecks) -> None:
    """Let a scan lack what is not there: paths, or files."""
    new = row._replace(changed=scalar(fix.tx, LISTED, (row.scope, row.wid, row.n)))
    fault = each_of(timelines.root_fault(fix.tx, row, trees))
    if fault:
        kept = not timelines.root_fault(fix.tx, row._replace(lacks=1), trees)
        new = new._replace(root=row.root if kept else None)
    if new != row or fault:
        fix.replace(SCAN, row, new._replace(lacks=1))
        fix.lose("scan", SCAN.called(row), f"some of what it found is lost: {_UNKNOWN}", PARTLY)


def _fix_workspace(fix: Salvage, row: WorkspaceRow) -> None:
    """Count the scans that are left, and let nobody be at work whom nothing proves."""
    own = row.scope, row.wid
    tip = max(row.tip, scalar(fix.tx, NEWEST, own))
    new = row._replace(tip=tip, missing=tip - scalar(fix.tx, SCANS, own))
    if timelines.work_fault(new):
        new = new._replace(**_NOBODY)
    new = new._replace(root=timeline.standing(fix.tx, new))
    if new != row:
        fix.replace(WORKSPACE, row, new)
        what = f"scans of it, or who is at work there, are lost: {_UNKNOWN}"
        fix.lose("workspace", WORKSPACE.called(row), what, PARTLY)
