"""The timeline of a workspace: every change of its files, whoever's scan found it, and who made it.

What is known of a directory belongs to the directory, not to one session. Each scan that finds a change is one step,
and each changed path has an author (``authors``): calls of a session, the session itself, somebody outside, or it is
unclear, with those who may have done it.

A scan is added only behind the one that it was compared with: two processes that scan at once never record each
other's files as changed back.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from .. import presence
from ..errors import Error
from ..ids import new_id
from ..model import tree
from ..model.tree import Difference, Load
from ..ops import calls, sessions
from ..ops.sessions import SessionRow
from ..storage.base import LOCK, Tx
from ..tables.files import SCAN, TOUCHED, WORKSPACE, ScanRow, TouchedRow, WorkspaceRow
from . import authors, roots
from .authors import OUTSIDE, RESTORE, START, UNCLEAR, Author, Authors
from .candidates import Claim, When
from .disk import apply, preview
from .disk.identity import identity

AT = f"WHERE scope = ? AND machine = ? AND path = ?{LOCK}"
SAME = f"WHERE scope = ? AND identity = ? AND identity <> ''{LOCK}"
IN_SCAN = "INDEXED BY touched_scan WHERE scope = ? AND wid = ? AND n = ?"
BY_UID = "WHERE scope = ? AND uid = ?"
SINCE = "WHERE scope = ? AND wid = ? AND n > ? ORDER BY n DESC"
BETWEEN = "WHERE scope = ? AND wid = ? AND n > ? AND n < ?"
GOOD = "WHERE scope = ? AND wid = ? AND n < ? AND root IS NOT NULL ORDER BY n DESC LIMIT 1"
BEFORE = "WHERE scope = ? AND wid = ? AND at_ms <= ? AND root IS NOT NULL ORDER BY at_ms DESC, n DESC LIMIT 1"
PAGE = "WHERE scope = ? AND wid = ? AND n < ? AND at_ms >= ? ORDER BY n DESC LIMIT ?"
OF_PATH = """SELECT DISTINCT n FROM touched WHERE scope = ? AND wid = ?
AND (path = ? OR path = ? OR (path > ? AND path < ?)) AND n < ? ORDER BY n DESC LIMIT ?"""
WHOLE = b""  # stands in ``touched`` for very many paths at once, which are found by comparing trees
_MOST = 2000  # changed paths that are listed one by one
_AT_WORK = 64  # sessions without an open call whose process is remembered
_SHOWN = 200  # changed paths of a scan that a page lists


class Behind(Error):
    """Somebody else recorded a scan meanwhile; scan again."""

    code = "behind"
    gone: frozenset[tuple[object, ...]] = frozenset()  # processes that were gone when that was found


class DirectoryAt(NamedTuple):
    """A directory on this machine, as a timeline is found by."""

    machine: str
    path: str


def at(path: str) -> DirectoryAt:
    """Return a directory of this machine."""
    return DirectoryAt(presence.stable_machine(), path)


# ---------------------------------------------------------------------- finding


def find(tx: Tx, scope: str, place: DirectoryAt) -> WorkspaceRow | None:
    """Return the workspace of a directory, even one that was moved since; None if it was never scanned.

    A directory that containers share is the same one in each of them, though each is a machine of its own.
    """
    found = WORKSPACE.one(tx, AT, (scope, *place))
    if found is None and (known := identity(place.path)):
        same = WORKSPACE.all(tx, SAME, (scope, known))
        found = next((each for each in same if each.path == place.path or not os.path.isdir(each.path)), None)
    return found


def of_session(tx: Tx, session: SessionRow) -> WorkspaceRow | None:
    """Return the workspace of a session's directory on this machine; None if it has none, or it was never scanned."""
    return find(tx, session.scope, at(session.workspace)) if session.workspace else None


def by_uid(tx: Tx, scope: str, uid: str) -> WorkspaceRow | None:
    """Return the workspace that snapshots name, or None."""
    return WORKSPACE.one(tx, BY_UID, (scope, uid))


def scan_at(tx: Tx, workspace: WorkspaceRow, n: int) -> ScanRow | None:
    """Return a scan by its number, or None."""
    return SCAN.get(tx, workspace.scope, workspace.wid, n)


def before(tx: Tx, workspace: WorkspaceRow, at_ms: int) -> ScanRow | None:
    """Return the last good scan at or before a time, or None."""
    return SCAN.one(tx, BEFORE, (workspace.scope, workspace.wid, at_ms))


def good_before(tx: Tx, workspace: WorkspaceRow, n: int) -> ScanRow | None:
    """Return the last good scan before one, or None."""
    return SCAN.one(tx, GOOD, (workspace.scope, workspace.wid, n))


def standing(tx: Tx, workspace: WorkspaceRow) -> str:
    """Return what a workspace is known to hold: what its last good scan found; empty if there is none.

    It is empty, too, where a scan behind that one was purged or is not here: what that one saw is not known any more.
    """
    last = good_before(tx, workspace, workspace.tip + 1)
    if last is None or last.root is None:
        return ""
    return "" if is_unknown(tx, workspace, last.n, workspace.tip + 1) else last.root


def is_unknown(tx: Tx, workspace: WorkspaceRow, low: int, high: int) -> bool:
    """Whether something of what scans between two numbers found is not known here."""
    found = SCAN.all(tx, BETWEEN, (workspace.scope, workspace.wid, low, high))
    return len(found) < high - low - 1 or any(scan.lacks for scan in found)


def is_vague(tx: Tx, workspace: WorkspaceRow, scan: ScanRow) -> bool:
    """Whether it cannot be told what a scan with very many changes found: not all is known of the ones before it."""
    earlier = good_before(tx, workspace, scan.n) if scan.bulk else None
    return earlier is not None and is_unknown(tx, workspace, earlier.n, scan.n)


def touched_by(tx: Tx, scope: str, uid: str, n: int, sid: int) -> set[bytes] | None:
    """Return the paths that a session changed in one scan; None if this store does not have the scan."""
    workspace = by_uid(tx, scope, uid)
    scan = None if workspace is None else scan_at(tx, workspace, n)
    if workspace is None or scan is None:
        return None
    own = {at for at, each in enumerate(authors.of_scan(scan)) if each.kind != UNCLEAR and sid in dict(each.who)}
    found = changes_of(tx, roots.loading(tx, scope), workspace, scan)
    return {path for path, number, _ in found if number in own}


def authors_of(scan: ScanRow) -> list[Author]:
    """Return all authors of a scan."""
    return authors.of_scan(scan)


def since(tx: Tx, workspace: WorkspaceRow, n: int) -> list[ScanRow]:
    """Return the scans behind one, newest first."""
    return SCAN.all(tx, SINCE, (workspace.scope, workspace.wid, n))


class ScanPaths(NamedTuple):
    """A scan with what it found changed: path, action and author of the first few paths, and how many more."""

    scan: ScanRow
    changed: list[tuple[bytes, str, Author]]
    more: int


def page(
    tx: Tx, scope: str, place: DirectoryAt, *, path: bytes | None, since_ms: int, before: int, limit: int
) -> tuple[WorkspaceRow | None, list[ScanPaths], int | None]:
    """Return steps before a number, newest first, and where the next page begins; only those that touch a ``path``."""
    workspace = find(tx, scope, place)
    if workspace is None:
        return None, [], None
    key, found = (scope, workspace.wid), list[ScanPaths]()
    while True:
        if path is None:
            rows = SCAN.all(tx, PAGE, (*key, before, since_ms, limit + 1))
        else:
            args = (*key, path, WHOLE, path + b"/", path + b"0", before, limit + 1)
            rows = [row for (n,) in tx.all(OF_PATH, args) if (row := SCAN.get(tx, *key, n)) is not None]
        for row in rows:
            if row.at_ms < since_ms:
                return workspace, found, None
            step = _paths_of(tx, workspace, row, path)
            if path is None or step.changed:
                found.append(step)
            if len(found) > limit:
                return workspace, found[:limit], found[limit - 1].scan.n
        if len(rows) <= limit:
            return workspace, found, None
        before = rows[-1].n


def _paths_of(tx: Tx, workspace: WorkspaceRow, scan: ScanRow, path: bytes | None) -> ScanPaths:
    given, changed = authors.of_scan(scan), list[tuple[bytes, str, Author]]()
    count = 0
    for each, number, action in changes_of(tx, roots.loading(tx, scan.scope), workspace, scan):
        if path is not None and each != path and not each.startswith(path + b"/"):
            continue
        count += 1
        if len(changed) < _SHOWN:
            changed.append((each, action, given[number]))
    return ScanPaths(scan, changed, count - len(changed))


def changes_of(
    tx: Tx, load: Load, workspace: WorkspaceRow, scan: ScanRow, listed: Sequence[TouchedRow] | None = None
) -> Iterator[tuple[bytes, int, str]]:
    """Yield path, author and action of each change that a scan found.

    Where there were very many they are found by comparing it with the good scan before.
    """
    if not scan.bulk:
        rows = TOUCHED.all(tx, IN_SCAN, (scan.scope, scan.wid, scan.n)) if listed is None else listed
        yield from ((row.path, row.author, row.action) for row in rows)
        return
    earlier = good_before(tx, workspace, scan.n)
    if earlier is None or earlier.root is None or scan.root is None or is_vague(tx, workspace, scan):
        return
    old, new = (roots.read(tx, workspace.scope, each).tree for each in (earlier.root, scan.root))
    yield from ((each.path, 0, preview.action(each)) for each in real(tree.differences(load, old, new)))


# ---------------------------------------------------------------------- recording


def opened(tx: Tx, scope: str, place: DirectoryAt, now_ms: int) -> WorkspaceRow:
    """Return the workspace of a directory, locked; make it if it is new, and follow it if it was moved."""
    found = find(tx, scope, place)
    if found is None:
        known = identity(place.path) or ""
        row = WorkspaceRow(scope, tx.next("workspace"), new_id(now_ms), *place, known, 0, "", [], [], {})
        return WORKSPACE.put(tx, row)
    known = identity(place.path) or found.identity  # it may have been made anew, or never scanned
    return _stored(tx, found, found._replace(machine=place.machine, path=place.path, identity=known))


def require_tip(workspace: WorkspaceRow, root: str, base: int) -> None:
    """Raise ``Behind`` unless a scan was compared with the newest one, or found the same."""
    if workspace.tip != base and workspace.root != root:
        raise Behind()


def add(
    tx: Tx,
    workspace: WorkspaceRow,
    root: str,
    changed: Iterable[Difference] | None,
    claim: Claim | None,
    *,
    now_ms: int,
    holder: bytes | None = None,
    when: Callable[[bytes], When | None] = lambda path: None,
    gone: Collection[tuple[object, ...]] = (),
    whole: bool = True,
) -> tuple[WorkspaceRow, ScanRow | None]:
    """Add a scan; ``changed`` is what it found changed, None for a first one.

    A scan that found nothing new is no step: then only what is remembered for the next one may change. Raises
    ``Behind`` if the process of an open call is gone by now, but was not known to be ``gone`` before the scan began: it
    may have changed files behind it.
    """
    known = _at_work(tx, workspace, claim, holder)
    owed = [] if whole else known.owed  # some paths only: what was owed may be elsewhere
    if root == workspace.root:
        return _stored(tx, workspace, known._replace(owed=owed)), None
    n = workspace.tip + 1
    found = [] if changed is None else [*islice(real(changed), _MOST + 1)]
    bulk = changed is None or len(found) > _MOST
    judged, listed = Authors(tx, workspace, claim), list[TouchedRow]()
    _require_known(judged, gone)
    if not workspace.root:
        given = [Author(START)]
    elif bulk:
        given = [judged.of_all()]
        listed = [TouchedRow(workspace.scope, workspace.wid, WHOLE, n, 0, "")]
    else:
        touched = [(each, judged.of(each, when(each.path))) for each in found]
        given = [*dict.fromkeys(author for _, author in touched)] or [judged.of_all()]
        number = {author: at for at, author in enumerate(given)}
        listed = [
            TouchedRow(workspace.scope, workspace.wid, each.path, n, number[author], preview.action(each))
            for each, author in touched
        ]
    row = _row(workspace, n, root, None if claim is None else claim.session, now_ms, given, bulk=bulk)
    over = judged.over() if whole else known.over
    return _stored(tx, workspace, known._replace(tip=n, root=root, owed=owed, over=over)), _put(tx, row, listed)


def _require_known(judged: Authors, known: Collection[tuple[object, ...]]) -> None:
    found = {tuple(presence.brief(each)) for each in judged.gone}
    if not found.issubset(known):
        error = Behind()
        error.gone = frozenset(found)
        raise error


def _put(tx: Tx, row: ScanRow, touched: Sequence[TouchedRow]) -> ScanRow:
    TOUCHED.put_many(tx, touched)
    return SCAN.put(tx, row._replace(changed=len(touched)))


def restored(
    tx: Tx,
    workspace: WorkspaceRow,
    root: str,
    paths: Sequence[Difference | apply.Step],
    *,
    session: SessionRow | None,
    as_of: int,
    operation: str,
    now_ms: int,
) -> tuple[WorkspaceRow, ScanRow | None]:
    """Add what a rewind, undo or redo made of the files: the state as of an earlier scan, at these paths."""
    if root == workspace.root:
        return workspace, None
    n, scope, wid = workspace.tip + 1, workspace.scope, workspace.wid
    who = () if session is None else ((session.sid, ()),)
    touched = [TouchedRow(scope, wid, each.path, n, 0, preview.action(each)) for each in paths]
    row = _row(workspace, n, root, session, now_ms, [Author(RESTORE, who)], as_of=as_of, operation=operation)
    return _stored(tx, workspace, workspace._replace(tip=n, root=root)), _put(tx, row, touched)


def _row(
    workspace: WorkspaceRow,
    n: int,
    root: str | None,
    session: SessionRow | None,
    now_ms: int,
    given: list[Author],
    *,
    as_of: int = 0,
    operation: str = "",
    bulk: bool = False,
) -> ScanRow:
    row = ScanRow(
        workspace.scope,
        workspace.wid,
        n,
        now_ms,
        session=0,
        root=root,
        branch="",
        seq=0,
        turn=0,
        as_of=as_of,
        operation=operation,
        bulk=int(bulk),
        why="",
        authors=given,
    )
    if session is None:
        return row
    return row._replace(session=session.sid, branch=session.uid, seq=session.seq, turn=session.turns)


def failed(
    tx: Tx,
    scope: str,
    session_id: str,
    place: DirectoryAt,
    running: Sequence[str],
    why: str,
    *,
    now_ms: int,
    holder: bytes | None = None,
) -> None:
    """Record that a scan failed while calls were running: what changed up to now may be theirs."""
    session = sessions.get(tx, scope, session_id)
    workspace = opened(tx, scope, place, now_ms)
    owed = {(sid, call): until for sid, call, until in workspace.owed}
    owed |= {(session.sid, call_id): now_ms for call_id in running}
    new = _at_work(tx, workspace, Claim(session, OUTSIDE), holder)
    new = new._replace(owed=[[*key, until] for key, until in owed.items()][-authors.MOST_OVER :])
    last = scan_at(tx, workspace, workspace.tip)
    if last is None or (last.root, last.why, last.session) != (None, why, session.sid):  # the first of its kind
        row = _row(workspace, workspace.tip + 1, None, session, now_ms, [])
        new = new._replace(tip=SCAN.put(tx, row._replace(why=why)).n)
    _stored(tx, workspace, new)


def ended(tx: Tx, scope: str, session_id: str, place: DirectoryAt, ids: Sequence[str], *, now_ms: int) -> None:
    """Record that calls have ended which stay open in the log: what changes from now on is not theirs."""
    session = sessions.get(tx, scope, session_id)
    found = [each for call_id in ids if (each := calls.find_open(tx, session, call_id)) is not None]
    workspace = opened(tx, scope, place, now_ms)
    for known in (workspace, *authors.beside(tx, workspace)):
        over = [*known.over, *([session.sid, call.id, call.start] for call in found)]
        _stored(tx, known, known._replace(over=over[-authors.MOST_OVER :]))


def _at_work(tx: Tx, workspace: WorkspaceRow, claim: Claim | None, holder: bytes | None) -> WorkspaceRow:
    """Return the workspace with the process that scans for a session.

    Every start of a call scans, so sessions without an open call need not be remembered for ever.
    """
    if claim is None or holder is None or workspace.by.get(claim.session.sid) == holder:
        return workspace
    by = {sid: each for sid, each in workspace.by.items() if sid != claim.session.sid}
    if len(by) >= 2 * _AT_WORK:
        busy = {each.session.sid for each in Authors(tx, workspace, None).found}
        recent = [*by][-_AT_WORK:]
        by = {sid: each for sid, each in by.items() if sid in busy or sid in recent}
    return workspace._replace(by={**by, claim.session.sid: holder})


def _stored(tx: Tx, old: WorkspaceRow, new: WorkspaceRow) -> WorkspaceRow:
    if new != old:
        WORKSPACE.update(tx, old, new)
    return new


def real(changed: Iterable[Difference]) -> Iterator[Difference]:
    """Leave out what was not captured before or is not now: that is not a change, nor is anything below it."""
    gap: bytes | None = None  # the last directory that was not captured; its contents follow directly
    for each in changed:
        if gap is not None and each.path.startswith(gap):
            continue
        if tree.GAP in (each.old and each.old.kind, each.new and each.new.kind):
            gap = each.path + b"/"
        else:
            yield each
