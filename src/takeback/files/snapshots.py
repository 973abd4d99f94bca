"""Snapshots: what the files of a workspace were, as entries of the log.

A snapshot is an entry that names a root: one content that holds the digest of the tree, its size, and what was not
captured. So the files at any point of a path are found like tasks and plan, go back with it, and an unchanged workspace
adds nothing. Each snapshot names the scan that it comes from, by workspace and number: the timeline of that workspace
knows who changed what before and after it.

What a session saw changing since its own last snapshot may be others' work. ``from`` is the root from which the scan's
changes start, where that is not the snapshot before; ``who`` and ``calls`` say who made them, in short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import codec
from ..errors import Error
from ..model import tree
from ..model.entry import Draft, More, Numbers
from ..ops import calls, entries, leases, sessions, work
from ..ops.sessions import SessionRow
from ..storage.base import Tx, scalar
from ..tables.files import SEEN, SeenRow
from . import roots, timeline
from .authors import CALLS, OUTSIDE, SESSION, TURN
from .candidates import Claim, When
from .timeline import DirectoryAt

if TYPE_CHECKING:
    from ..ops.work import WorkEntry
    from ..tables.files import ScanRow, WorkspaceRow

KIND, ANNOUNCED, FILE = "snapshot", "announced", "f"
SWEEPS = "SELECT doc FROM seen WHERE scope = ? AND place = '' AND dir = ?"
OF_PLACE = f"{SEEN.select} WHERE scope = ? AND place = ?"
MODE = b"//"  # the mode of the workspace's own directory
MARK = b"/"  # not a directory's name; holds the sweep count at which all remembered contents were known to exist

SEVERAL, FOUND = "several", "found"  # several authors, whom the timeline knows; what others had done before
TURN_ANYWAY = "turn!"  # even in a session that reports calls
_ADDS = Numbers(work_seq=1)


class Swept(Error):
    """Contents were swept out meanwhile; scan again."""

    code = "swept"


class StoredScan(NamedTuple):
    """A scan whose contents are stored: its root, the sweep count at that time, and who made the changes.

    ``base`` is the scan that it was compared with. ``who`` counts only if no call is open and the session never
    reported one; else it is those calls, or somebody outside. ``until_ms`` bounds how long calls that were cut off were
    certainly at work, to the moment if ``exact``. ``gone`` are processes that were gone before it began.
    """

    root: str
    sweeps: int
    place: DirectoryAt
    base: int = 0
    who: str | None = None
    calls: tuple[str, ...] = ()
    until_ms: int | None = None
    exact: bool = False
    memory: str = ""
    seen: tuple[tuple[bytes, bytes | None], ...] = ()  # directories to remember; None means forget
    when: Callable[[bytes], When | None] = lambda path: None
    gone: frozenset[tuple[object, ...]] = frozenset()
    whole: bool = True  # not just some paths


# ---------------------------------------------------------------------- recording


class Recorder(NamedTuple):
    """Records scans of a workspace as snapshots of a session; ``fence`` comes from the lease, if one is held.

    ``holder`` is the process that runs the session's tools.
    """

    scope: str
    session_id: str
    fence: leases.Fence | None
    now_ms: int
    holder: bytes | None = None

    def known(self, tx: Tx, place: DirectoryAt, root: str) -> SessionRow | None:
        """Return the session if its files are already recorded with this root, else None."""
        session = sessions.get(tx, self.scope, self.session_id)
        workspace = timeline.find(tx, self.scope, place)
        if workspace is None or workspace.root != root or workspace.owed or not is_recorded(tx, session, root):
            return None
        if self.holder is not None and workspace.by.get(session.sid) != self.holder:
            return None
        self._require_held(tx, session)  # nothing is written, so only this check notices a lost lease
        return session

    def commit(self, tx: Tx, taken: StoredScan) -> SessionRow:
        """Record a scan."""
        if self.fence is not None:
            self._require_held(tx, sessions.get(tx, self.scope, self.session_id))
        return record(tx, self.scope, self.session_id, taken, now_ms=self.now_ms, holder=self.holder)

    def _require_held(self, tx: Tx, session: SessionRow) -> None:
        if self.fence is not None:
            leases.require(tx, session, self.fence)


def record(
    tx: Tx, scope: str, session_id: str, taken: StoredScan, *, now_ms: int, holder: bytes | None = None
) -> SessionRow:
    """Add a scan to the timeline, and a snapshot unless the session has these files already.

    The session's revision stays, since no message was added. Raises ``Swept`` if contents were removed since the scan:
    some that it relies on may be among them. Raises ``Behind`` if others have recorded a scan meanwhile.
    """
    session = entries.writable(tx, scope, session_id)
    claim = _claim(tx, session, taken)
    before, now, scan = _added(tx, scope, taken, claim, now_ms, holder)
    if is_recorded(tx, session, taken.root):
        return session
    who, by = _in_short(session, scan)
    told = bool(claim.calls or by)
    return put(tx, session, taken.root, at=now, who=who, by=by, carried=before.root, now_ms=now_ms, told=told)


class FilesRecorder(NamedTuple):
    """Records scans of a workspace that are made for no session."""

    scope: str
    now_ms: int

    def known(self, tx: Tx, place: DirectoryAt, root: str) -> WorkspaceRow | None:
        """Return the workspace if its files are already recorded with this root, else None."""
        found = timeline.find(tx, self.scope, place)
        return found if found is not None and found.root == root and not found.owed else None

    def commit(self, tx: Tx, taken: StoredScan) -> WorkspaceRow:
        """Record a scan."""
        return _added(tx, self.scope, taken, None, self.now_ms, None)[1]


def _added(
    tx: Tx, scope: str, taken: StoredScan, claim: Claim | None, now_ms: int, holder: bytes | None
) -> tuple[WorkspaceRow, WorkspaceRow, ScanRow | None]:
    """Add a scan to the timeline; return the workspace before and after, and the scan if it found a change."""
    if sweeps(tx, scope) != taken.sweeps:
        raise Swept()
    remember(tx, scope, taken.memory, taken.seen)
    workspace = timeline.opened(tx, scope, taken.place, now_ms)
    timeline.require_tip(workspace, taken.root, taken.base)
    changed = None
    if workspace.root and workspace.root != taken.root:
        before, after = (roots.read(tx, scope, each).tree for each in (workspace.root, taken.root))
        changed = tree.differences(roots.loading(tx, scope), before, after)
    return workspace, *timeline.add(
        tx,
        workspace,
        taken.root,
        changed,
        claim,
        now_ms=now_ms,
        holder=holder,
        when=taken.when,
        gone=taken.gone,
        whole=taken.whole,
    )


def _in_short(session: SessionRow, scan: ScanRow | None) -> tuple[str, tuple[str, ...]]:
    """Return who made the changes of a scan, as a snapshot of a session names them."""
    if scan is None:
        return FOUND, ()
    given = timeline.authors_of(scan)
    if len(given) > 1:
        return SEVERAL, ()
    author = given[0]
    own = dict(author.who).get(session.sid)
    if author.kind in (CALLS, TURN, SESSION) and own is None:
        return FOUND, ()  # another session's, a sub-agent's among them
    return author.kind, own or ()


def is_recorded(tx: Tx, session: SessionRow, root: str) -> bool:
    """Whether the snapshot at the head of a session has this root."""
    before = work.known(tx, session, KIND)
    return before is not None and before.body["root"] == root


def put(
    tx: Tx,
    session: SessionRow,
    root: str,
    *,
    at: WorkspaceRow | None,
    who: str,
    by: tuple[str, ...] = (),
    carried: str = "",
    now_ms: int,
    told: bool = False,
) -> SessionRow:
    """Add a snapshot at the head; ``carried`` is the root from which its changes start."""
    before = work.known(tx, session, KIND)
    body: dict[str, Any] = {"last": work.lasts(tx, session), "root": root, "who": who}
    body |= {"scan": [at.uid, at.tip]} if at is not None else {}
    body |= {"calls": list(by)} if by else {}
    body |= {"from": carried} if carried and (before is None or carried != before.body["root"]) else {}
    body["first"] = session.seq + 1 if before is None else before.body["first"]
    draft = Draft(KIND, codec.encode(body), adds=_ADDS, more=More(blobs=_roots(body)))
    revision = session.revision
    session = entries.put(tx, session, (draft,), now_ms=now_ms).session
    session = sessions.write(tx, session, revision=revision)
    if told:
        _note_told(tx, session)
    return session


def _roots(body: dict[str, Any]) -> tuple[str, ...]:
    """Return the contents that a snapshot names."""
    return (body["root"], body["from"]) if "from" in body else (body["root"],)


def _announced(body: dict[str, Any]) -> tuple[str, ...]:
    """Return the contents that an entry of announced files refers to."""
    return tuple(sorted({each[3] for each in body["set"].values() if each[0] == FILE}))


NEEDS = {KIND: _roots, ANNOUNCED: _announced}  # the contents that an entry of each kind refers to


def _claim(tx: Tx, session: SessionRow, taken: StoredScan) -> Claim:
    """Return what a session says of the changes since the last scan."""
    if taken.who == CALLS or taken.calls:
        return Claim(session, CALLS, taken.calls, taken.until_ms, taken.exact)
    if taken.who == TURN_ANYWAY:
        return Claim(session, TURN)
    if taken.who == OUTSIDE:  # a tool is about to start: what was announced with it does not run yet
        return Claim(session, OUTSIDE, announced=False)
    if calls.going_on(tx, session):
        return Claim(session, OUTSIDE)
    told = session.tool_calls or sessions.decoded(sessions.detail(tx, session)).get("told")
    return Claim(session, OUTSIDE if told or taken.who is None else taken.who)


def _note_told(tx: Tx, session: SessionRow) -> None:
    """Remember that a session reports the calls that change files, even if it goes back to before the first one."""
    kept = sessions.decoded(sessions.detail(tx, session))
    if "told" not in kept:
        sessions.put_detail(tx, session, codec.encode({**kept, "told": True}))


# ---------------------------------------------------------------------- finding


def at(tx: Tx, session: SessionRow, seq: int | None = None) -> WorkEntry | None:
    """Return the snapshot in force at a point; before the first one of the path, that first one.

    No change was seen before the first scan, so that is what was there.
    """
    found = work.latest(tx, session, KIND, seq)
    if found is not None or seq is None:
        return found
    later = work.latest(tx, session, KIND)
    return None if later is None else work.entry_at(tx, session, later.body["first"])


def since(tx: Tx, session: SessionRow, seq: int) -> list[WorkEntry]:
    """Return the snapshots of the path after a point, newest first, then the one in force at it, if any."""
    found = []
    for each in work.history(tx, session, KIND):
        found.append(each)
        if each.seq <= seq:
            break
    return found


# ---------------------------------------------------------------------- what is remembered of a workspace


def sweeps(tx: Tx, scope: str) -> int:
    """Return how often contents were swept out of a scope."""
    return int(scalar(tx, SWEEPS, (scope, b"")) or 0)


def count_sweep(tx: Tx, scope: str) -> None:
    """Record that contents are being swept out."""
    SEEN.upsert(tx, SeenRow(scope, "", b"", mark(sweeps(tx, scope) + 1)))


def mark(count: int) -> bytes:
    """Encode a sweep count."""
    return str(count).encode()


def remembered(tx: Tx, scope: str, place: str) -> dict[bytes, bytes]:
    """Return the directories of a workspace as last scanned; a damaged record counts as none."""
    found = (SEEN.checked(stored) for stored in tx.all(OF_PLACE, (scope, place)) if SEEN.is_sound(stored))
    return {row.dir: row.doc for row in found}


def remember(tx: Tx, scope: str, place: str, seen: Iterable[tuple[bytes, bytes | None]]) -> None:
    """Remember directories of a workspace; None forgets one that is gone."""
    for path, doc in seen:
        if doc is None:
            SEEN.delete(tx, scope, place, path)
        else:
            SEEN.upsert(tx, SeenRow(scope, place, path, doc))
