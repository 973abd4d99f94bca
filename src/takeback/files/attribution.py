"""What a move in time may take back: of each path changed since a point, whether that was the session's own doing.

The timeline is walked backwards. What the session, its sub-agents and whoever else is to be taken back changed goes
back. The last change of somebody else stops it: that state is kept, and is what the path goes back to if the session
changed it again afterwards. A rewind, whoever made it, is no change of its own: behind it, the path is as it was at the
scan that it went back to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from ..model import tree
from ..model.tree import Load
from ..ops import log, sessions
from ..ops.sessions import SessionRow
from ..storage.base import Tx
from ..tables.files import TOUCHED, ScanRow, TouchedRow, WorkspaceRow
from . import authors, candidates, roots, timeline
from .authors import CALLS, OUTSIDE, RESTORE, SESSION, START, TURN, UNCLEAR, Author, Authors
from .candidates import Claim, When

TOUCHED_SINCE = "INDEXED BY touched_scan WHERE scope = ? AND wid = ? AND n > ?"
OTHERS = "others"
_OWN = (CALLS, TURN, SESSION, RESTORE)
_NOW = 1 << 62  # the number of a scan that is not recorded


class Verdict(NamedTuple):
    """Somebody else's change of a path: ``outside``, ``unclear`` or of ``others``.

    ``root`` is the tree that holds the path as they left it, if it was changed again since; None: it is on disk.
    """

    kind: str
    author: Author
    root: bytes | None


class Blame(NamedTuple):
    """``by``: who of those to be taken back changed a path last, and in which turn. ``kept``: others' changes."""

    by: dict[bytes, tuple[Author, int]]
    kept: dict[bytes, Verdict]


class _Change(NamedTuple):
    path: bytes
    author: Author
    n: int
    turn: int
    place: tuple[str, int, int]  # branch and entry at which the session was that scanned, and that session
    as_of: int
    after: bytes | None  # the tree that it led to; None: what is on disk


class Question(NamedTuple):
    """What is asked of a timeline: who changed what behind a scan, up to the tree that is on disk ``now``.

    ``own`` are the families that are taken back; None takes back everybody, whoever it was. What happened on the path
    of a ``fork`` before it was one is its own, too. ``wanted`` is the tree to go back to.
    """

    workspace: WorkspaceRow
    since: int
    now: bytes
    wanted: bytes
    claim: Claim | None
    own: Collection[int] | None
    fork: SessionRow | None = None
    when: Callable[[bytes], When | None] = lambda path: None


def blame(tx: Tx, load: Load, asked: Question) -> Blame:
    """Judge every path changed behind a scan."""
    by, kept, skip = dict[bytes, tuple[Author, int]](), dict[bytes, Verdict](), dict[bytes, int]()
    families, own = _Families(tx, asked.workspace.scope), asked.own
    before_fork, then = _Path(tx, asked.fork), _Earlier(tx, load, asked.workspace)
    for path, author, n, turn, place, as_of, after in _changes(tx, load, asked):
        if path in kept or n > skip.get(path, _NOW):
            continue
        if author.kind == RESTORE and as_of >= asked.since and then.had(path, as_of, after):
            skip[path] = as_of
            continue
        if own is None or families.are(author, own) or (_is_own_of(author, place) and place[:2] in before_fork):
            by.setdefault(path, (author, turn))
        elif author.kind != START:
            kind = author.kind if author.kind in (OUTSIDE, UNCLEAR) else OTHERS if author.who else OUTSIDE
            kept[path] = Verdict(kind, author, after if path in by else None)
    return Blame(by, kept)


def _is_own_of(author: Author, place: tuple[str, int, int]) -> bool:
    """Whether a change was made by the session that scanned, and by nobody else."""
    return author.kind in _OWN and bool(author.who) and all(sid == place[2] for sid, _ in author.who)


def _changes(tx: Tx, load: Load, asked: Question) -> Iterator[_Change]:
    """Yield what happened to the workspace, newest first."""
    workspace = asked.workspace
    if workspace.root:
        judged, turn = Authors(tx, workspace, asked.claim), 0 if asked.claim is None else asked.claim.session.turns
        last = roots.read(tx, workspace.scope, workspace.root).tree
        for each in timeline.real(tree.differences(load, last, asked.now)):
            yield _Change(each.path, judged.of(each, asked.when(each.path)), _NOW, turn, ("", 0, 0), 0, None)
    touched = dict[int, list[TouchedRow]]()
    for row in TOUCHED.all(tx, TOUCHED_SINCE, (workspace.scope, workspace.wid, asked.since)):
        touched.setdefault(row.n, []).append(row)
    newer = _Newer(load, workspace.tip + 1, asked.now, None)
    for scan in timeline.since(tx, workspace, asked.since):
        given, after = authors.of_scan(scan), None if scan.root is None else roots.read(tx, scan.scope, scan.root).tree
        if after is not None:
            yield from newer.unknown(scan.n, after)
            newer = _Newer(load, scan.n, after, after)
        newer.pass_over(scan)
        for path, number, _ in timeline.changes_of(tx, load, workspace, scan, touched.get(scan.n, ())):
            newer.listed.add(path)
            place = scan.branch, scan.seq, scan.session
            yield _Change(path, given[number], scan.n, scan.turn, place, scan.as_of, after)
    yield from newer.unknown(asked.since, asked.wanted)


class _Newer:
    """The newer one of two good scans, to find what scans between them saw that is not known here.

    They were purged, or are in another store. Whatever differs and nobody lists was changed by somebody unknown.
    """

    def __init__(self, load: Load, n: int, held: bytes, after: bytes | None) -> None:
        self._load, self._n, self._held, self._after = load, n, held, after
        self._known, self._lacks = n, False
        self.listed = set[bytes]()

    def pass_over(self, scan: ScanRow) -> None:
        """Take note of this scan, or of one before it that found no files."""
        self._lacks |= bool(scan.lacks) or scan.n < self._known - 1
        self._known = scan.n

    def unknown(self, n: int, held: bytes) -> Iterator[_Change]:
        """Yield the paths that changed since an older scan with these files by nobody knows whose doing."""
        if n == self._known - 1 and not self._lacks:
            return
        for each in timeline.real(tree.differences(self._load, held, self._held)):
            if each.path not in self.listed:
                yield _Change(each.path, Author(UNCLEAR), self._n, 0, ("", 0, 0), 0, self._after)


class _Earlier:
    """What a workspace held at earlier scans: each root is read once."""

    def __init__(self, tx: Tx, load: Load, workspace: WorkspaceRow) -> None:
        self._tx, self._load, self._workspace = tx, load, workspace
        self._known: dict[int, bytes | None] = {}

    def had(self, path: bytes, n: int, root: bytes | None) -> bool:
        """Whether a path was the same at a scan as in a tree."""
        if n not in self._known:
            scan = timeline.good_before(self._tx, self._workspace, n + 1)
            found = None if scan is None else scan.root
            self._known[n] = None if found is None else roots.read(self._tx, self._workspace.scope, found).tree
        then = self._known[n]
        if then is None or root is None:
            return False
        return tree.shown(tree.find(self._load, then, path)) == tree.shown(tree.find(self._load, root, path))


class _Path:
    """The path of a session that was forked from another one: each place on it is looked up once."""

    def __init__(self, tx: Tx, session: SessionRow | None) -> None:
        self._tx, self._session = tx, session if session is not None and session.fork else None
        self._known: dict[tuple[str, int], bool] = {}

    def __contains__(self, place: tuple[str, int]) -> bool:
        if self._session is None or not place[0]:
            return False
        if place not in self._known:
            self._known[place] = place[1] > 0 and log.is_on_path(self._tx, self._session, *place)
        return self._known[place]


class _Families:
    """The families of sessions, each found once."""

    def __init__(self, tx: Tx, scope: str) -> None:
        self._tx, self._scope = tx, scope
        self._known: dict[int, int] = {}

    def are(self, author: Author, own: Collection[int]) -> bool:
        """Whether a change was made by these families alone."""
        return author.kind in _OWN and bool(author.who) and all(self._of(sid) in own for sid, _ in author.who)

    def _of(self, sid: int) -> int:
        if sid not in self._known:
            row = sessions.find_number(self._tx, self._scope, sid)
            self._known[sid] = sid if row is None else candidates.family_of(self._tx, row)
        return self._known[sid]
