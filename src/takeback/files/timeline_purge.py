"""Purging a session from the timelines of workspaces: what it saw, and which paths it changed, is erased.

A scan that was made for the session keeps its number and its time, and so does one that was made for nobody and found
the session's work, or files that it alone had changed. What they found is gone, and each says that it ``lacks``
something: who changed a path that no other scan lists is unclear from then on. Scans of other sessions keep their
files, as those sessions' snapshots do, but not which paths the purged session changed. If nobody else saw the files
that are there now, the next scan starts anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .. import codec
from ..errors import Corrupt
from ..model import tree
from ..ops.sessions import SessionRow
from ..storage.base import Tx
from ..tables.files import SCAN, TOUCHED, WORKSPACE, ScanRow, TouchedRow, WorkspaceRow
from ..tables.history import OPERATION
from . import authors, roots, timeline
from .authors import RESTORE, Author

ALL = "WHERE scope = ?"
NEXT = "WHERE scope = ? AND wid = ? AND n > ? ORDER BY n LIMIT ?"
AT_PATH = "WHERE scope = ? AND wid = ? AND path = ?"
BY_ID = "WHERE scope = ? AND id = ?"
PURGED = "purged"
_PAGE = 500
_UNSAID: dict[str, Any] = {"session": 0, "branch": "", "seq": 0, "turn": 0, "root": None, "why": PURGED}


def forget_session(tx: Tx, session: SessionRow) -> set[str]:
    """Erase a session from all timelines; return the roots that its scans named."""
    found = set[str]()
    for workspace in WORKSPACE.all(tx, ALL, (session.scope,)):
        paths = set[bytes]()
        for scan in _scans(tx, workspace):
            _forget_in(tx, workspace, scan, session.sid, paths, found)
        alone = [path for path in sorted(paths) if _forget_path(tx, workspace, path)]
        for scan in _scans(tx, workspace) if alone else ():
            if not scan.session and scan.root is not None and _holds(tx, scan, alone):
                found.add(scan.root)
                _drop(tx, scan, scan._replace(root=None, why=PURGED), [], lacks=True)
        _settle(tx, workspace, session.sid)
    return found


def _scans(tx: Tx, workspace: WorkspaceRow) -> Iterator[ScanRow]:
    n = 0
    while rows := SCAN.all(tx, NEXT, (workspace.scope, workspace.wid, n, _PAGE)):
        yield from rows
        n = rows[-1].n


def _forget_in(tx: Tx, workspace: WorkspaceRow, scan: ScanRow, sid: int, paths: set[bytes], found: set[str]) -> None:
    """Erase a session from a scan, with what was found for it; ``paths`` and ``found`` gain what that was."""
    given, own = authors.of_scan(scan), scan.session == sid
    named = {at for at, each in enumerate(given) if sid in dict(each.who)}
    if not own and not named:
        return
    whole = own or not scan.session
    rows = TOUCHED.all(tx, timeline.IN_SCAN, (scan.scope, scan.wid, scan.n))
    doomed = [row for row in rows if whole or row.author in named]
    paths.update(row.path for row in doomed if row.author in named)
    if scan.bulk and whole:
        paths.update(_compared(tx, workspace, scan))
    new = scan._replace(authors=[_nameless(each, sid) for each in given])
    if whole:
        found.update([scan.root] if scan.root else [])
        new = new._replace(**_UNSAID)
    _drop(tx, scan, new, doomed, lacks=whole and scan.root is not None)


def _drop(tx: Tx, old: ScanRow, new: ScanRow, doomed: list[TouchedRow], *, lacks: bool = False) -> None:
    """Write a scan without some of the paths that it found changed."""
    for row in doomed:
        TOUCHED.delete(tx, row.scope, row.wid, row.path, row.n)
    lacking = int(lacks or bool(doomed) or bool(old.lacks))
    SCAN.update(tx, old, new._replace(changed=old.changed - len(doomed), lacks=lacking))


def _nameless(author: Author, sid: int) -> Author:
    """Return an author without the calls of a session."""
    return author._replace(who=tuple((each, () if each == sid else ids) for each, ids in author.who))


def _compared(tx: Tx, workspace: WorkspaceRow, scan: ScanRow) -> Iterator[bytes]:
    """Yield the paths of a scan that lists none, since there were very many."""
    earlier = timeline.good_before(tx, workspace, scan.n)
    if earlier is None or earlier.root is None or scan.root is None:
        return
    try:
        old, new = (roots.read(tx, scan.scope, each).tree for each in (earlier.root, scan.root))
        yield from (each.path for each in tree.differences(roots.loading(tx, scan.scope), old, new))
    except Corrupt:
        return  # what is damaged names nothing


def _holds(tx: Tx, scan: ScanRow, paths: list[bytes]) -> bool:
    """Whether a scan found something at one of some paths; what is damaged holds nothing."""
    load = roots.loading(tx, scan.scope)
    try:
        held = roots.read(tx, scan.scope, scan.root or "").tree
        return any(tree.find(load, held, path) is not None for path in paths)
    except Corrupt:
        return False


def _forget_path(tx: Tx, workspace: WorkspaceRow, path: bytes) -> bool:
    """Erase that a path was restored, with the operations that name it; False if somebody else changed it as well."""
    rows = TOUCHED.all(tx, AT_PATH, (workspace.scope, workspace.wid, path))
    scans = [scan for row in rows if (scan := timeline.scan_at(tx, workspace, row.n)) is not None]
    if any(author.kind != RESTORE for scan in scans for author in authors.of_scan(scan)):
        return False
    for row, scan in zip(rows, scans, strict=True):
        _drop(tx, scan, scan, [row])
        operation = OPERATION.one(tx, BY_ID, (workspace.scope, scan.operation))
        if operation is not None:
            before, after = (_without(each, path) for each in (operation.before, operation.after))
            OPERATION.update(tx, operation, operation._replace(before=before, after=after))
    return True


def _without(view: bytes, path: bytes) -> bytes:
    said = codec.decode(view)
    files = said.get("files") or {}
    gone = path.decode("utf-8", "surrogateescape")
    if gone not in files.get("paths", ()):
        return view
    return codec.encode({**said, "files": {**files, "paths": [each for each in files["paths"] if each != gone]}})


def _settle(tx: Tx, workspace: WorkspaceRow, sid: int) -> None:
    """Let a session be at work nowhere. What its calls left to be found is still its own, whatever they were."""
    owed = [[each, "" if each == sid else call, until] for each, call, until in workspace.owed]
    over = [[each, *call] for each, *call in workspace.over if each != sid]
    by = {each: holder for each, holder in workspace.by.items() if each != sid}
    new = workspace._replace(owed=owed, over=over, by=by, root=timeline.standing(tx, workspace))
    if new != workspace:
        WORKSPACE.update(tx, workspace, new)
