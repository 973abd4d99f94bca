"""Checks of timelines: every scan is there or known to be missing, and says who changed what.

A snapshot may name a scan that is not here: the timeline of its workspace may have stayed behind, and the snapshot has
its own root.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...files import authors, timeline
from ...ids import is_id
from ...model import names
from ...storage.base import Tx, scalar
from ...tables.files import SCAN, TOUCHED, WORKSPACE, ScanRow, TouchedRow, WorkspaceRow
from .. import blobs
from .base import Check, Fault, Rule, Said, has
from .files import TreeChecks
from .live import is_holder

UNKNOWN = "Nothing of a session is lost by it: repair makes a copy in which it is not known who changed these files"
SCANS = "SELECT count(*) FROM scan WHERE scope = ? AND wid = ?"
BEHIND = "SELECT 1 FROM scan WHERE scope = ? AND wid = ? AND n > ? LIMIT 1"
LISTED = "SELECT count(*) FROM touched INDEXED BY touched_scan WHERE scope = ? AND wid = ? AND n = ?"
_LONGEST = 4096
_KINDS = frozenset(authors.KINDS)
_ACTIONS = frozenset({"create", "overwrite", "delete", "mkdir", "rmdir", "chmod", "link"})
_Authors = list[tuple[str, list[tuple[int, list[str]]]]]
_Ended = list[tuple[int, str, int]]


def rules(trees: TreeChecks) -> tuple[Check, ...]:
    """Return the rules of timelines."""
    return (
        Rule(
            WORKSPACE, workspace_fault, "workspace", UNKNOWN, gaps=Fault("workspace", "the record is missing", UNKNOWN)
        ),
        Rule(SCAN, lambda tx, row: scan_fault(tx, row, trees), "scan", UNKNOWN),
        Rule(TOUCHED, touched_fault, "touched", UNKNOWN),
    )


def workspace_fault(tx: Tx, row: WorkspaceRow) -> str:
    """Return what is wrong with a workspace."""
    if fault := identity_fault(row) or work_fault(row):
        return fault
    own = row.scope, row.wid
    if scalar(tx, SCANS, own) != row.tip - row.missing or tx.one(BEHIND, (*own, row.tip)):
        return "a scan of it is missing, or there is one too many"
    return "" if row.root == timeline.standing(tx, row) else "its files are not those of its last scan"


def identity_fault(row: WorkspaceRow) -> str:
    """Return what is wrong with what a workspace is found by."""
    named = all(len(each) <= _LONGEST and each.isprintable() for each in (row.machine, row.path))
    return "" if named and is_id(row.uid) else "its id or its directory is not one"


def work_fault(row: WorkspaceRow) -> str:
    """Return what is wrong with what a workspace says of those who are at work there."""
    readable = _is(row.owed, _Ended) and _is(row.over, _Ended) and _is(row.by, dict[int, bytes])
    return "" if readable and all(map(is_holder, row.by.values())) else "who is at work in it cannot be read"


def scan_fault(tx: Tx, row: ScanRow, trees: TreeChecks) -> Said:
    """Return what is wrong with a scan; where it is known that something of it is lost, that is not said again."""
    if fault := workspace_missing(tx, row) or authors_fault(row):
        return fault
    if scalar(tx, LISTED, (row.scope, row.wid, row.n)) != row.changed:
        return "a path that it found changed is missing, or there is one too many"
    return root_fault(tx, row, trees)


def workspace_missing(tx: Tx, row: ScanRow) -> str:
    """Return that the workspace of a scan is missing, if it is."""
    return "" if has(tx, WORKSPACE, row.scope, row.wid) else "its workspace is missing"


def authors_fault(row: ScanRow) -> str:
    """Return what is wrong with what a scan says of those who changed files."""
    if not _is(row.authors, _Authors) or not all(kind in _KINDS for kind, _ in row.authors):
        return "who changed what cannot be read"
    if row.root is not None and not row.authors:
        return "it does not say who changed what"
    return "" if 0 <= row.as_of < row.n else "it goes back to a scan that is not before it"


def root_fault(tx: Tx, row: ScanRow, trees: TreeChecks) -> str | Fault | None:
    """Return what is wrong with the files that a scan found."""
    if row.root is None:
        return None
    if not blobs.exists(tx, row.scope, row.root):
        return "the files that it found are missing"
    return trees.root_fault(tx, row.scope, row.root, lost=bool(row.lacks))


def touched_fault(tx: Tx, row: TouchedRow) -> str:
    """Return what is wrong with the record of a changed path."""
    scan = SCAN.get(tx, row.scope, row.wid, row.n)
    if scan is None or not 0 <= row.author < len(scan.authors):
        return "the scan that found it, or who changed it, is missing"
    if scan.bulk and row.path == timeline.WHOLE:
        return ""
    if row.action not in _ACTIONS:
        return f"what happened to it is {row.action!r}"
    if names.leads_into_control(row.path):
        return "its path belongs to a repository"
    return f"its path holds {what}" if (what := names.path_fault(row.path)) else ""


def _is(value: Any, form: Any) -> bool:
    """Whether a packed field has its form."""
    try:
        msgspec.convert(value, form, strict=True)
    except msgspec.ValidationError:
        return False
    return True
