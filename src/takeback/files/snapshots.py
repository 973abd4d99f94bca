"""Snapshots: what the files of a workspace were, as entries of the log.

A snapshot is an entry that names a root: one content that holds the digest of the tree, its size, and what was not
captured. So the files at any point of a path are found like tasks and plan, go back with it, and an unchanged workspace
adds nothing. Each snapshot names who made the changes since the one before: calls, the turn, the session itself, or
somebody outside.

``disk``, next to the session's row, is the root that the session last saw or made in its workspace. If the head moved
without the files, it differs from the snapshot at the head, and the next snapshot records that (``from``), since what
was already there is not somebody else's change. ``disk_at`` is the head at that time and is recorded with it (``at``):
the snapshots of that path say who made the files what they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from .. import codec
from ..errors import Corrupt, Error
from ..model import tree
from ..model.entry import Draft, More, Numbers
from ..ops import blobs, calls, entries, leases, sessions, work
from ..ops.sessions import SessionRow
from ..storage.base import Tx, scalar
from ..tables.files import SEEN, SeenRow

if TYPE_CHECKING:
    from ..ops.work import WorkEntry

KIND, ANNOUNCED, FILE = "snapshot", "announced", "f"
SWEEPS = "SELECT doc FROM seen WHERE scope = ? AND place = '' AND dir = ?"
OF_PLACE = f"{SEEN.select} WHERE scope = ? AND place = ?"
MARK = b"/"  # not a directory's name; holds the sweep count at which all remembered contents were known to exist

OUTSIDE, CALLS, TURN, SESSION, START = "outside", "calls", "turn", "session", "start"
TURN_ANYWAY = "turn!"  # even in a session that reports calls
_ADDS = Numbers(work_seq=1)


class Root(msgspec.Struct, frozen=True, array_like=True):
    """A whole workspace at one moment."""

    tree: bytes
    size: int
    missed: list[tuple[bytes, str]]  # the first few paths that were not captured, with the reasons
    missed_count: int


_read_root = msgspec.msgpack.Decoder(Root).decode


class Swept(Error):
    """Contents were swept out meanwhile; scan again."""

    code = "swept"


class StoredScan(NamedTuple):
    """A scan whose contents are stored: its root, the sweep count at that time, and who made the changes.

    ``who`` counts only if no call is open and the session never reported one; else it is those calls, or somebody
    outside.
    """

    root: str
    sweeps: int
    who: str | None = None
    calls: tuple[str, ...] = ()
    place: str = ""
    seen: tuple[tuple[bytes, bytes | None], ...] = ()  # directories to remember; None means forget


def encode_root(root: Root) -> bytes:
    """Encode a root."""
    return msgspec.msgpack.encode(root)


def read_root(tx: Tx, scope: str, content_hash: str) -> Root:
    """Read a root; raises ``Corrupt`` if it is missing, and never returns an empty one instead."""
    try:
        return _read_root(blobs.read_whole(tx, scope, content_hash))
    except msgspec.MsgspecError as error:
        raise Corrupt("a snapshot of files cannot be read", what=f"blob {content_hash}") from error


def root_fault(root: Root) -> str:
    """Return why no scan can have made a root; empty if one can."""
    if len(root.tree) != len(tree.EMPTY):
        return f"it names its tree by {len(root.tree)} bytes instead of {len(tree.EMPTY)}"
    if root.size < 0 or root.missed_count < len(root.missed):
        return "its size or its count of what was not captured is too small"
    return ""


def missed(root: Root) -> Iterator[str]:
    """Yield what was not captured, for people: the first few paths with the reasons, and how many more."""
    for path, reason in root.missed:
        yield f"{path.decode('utf-8', 'surrogateescape')} ({reason})"
    if root.missed_count > len(root.missed):
        yield f"... and {root.missed_count - len(root.missed):,} more"


# ---------------------------------------------------------------------- recording


class Recorder(NamedTuple):
    """Records scans of a workspace as snapshots of a session; ``fence`` comes from the lease, if one is held."""

    scope: str
    session_id: str
    fence: leases.Fence | None
    now_ms: int

    def known(self, tx: Tx, root: str) -> SessionRow | None:
        """Return the session if its files are already recorded with this root, else None."""
        session = sessions.get(tx, self.scope, self.session_id)
        if not is_recorded(tx, session, root):
            return None
        self._require_held(tx, session)  # nothing is written, so only this check notices a lost lease
        return session

    def commit(self, tx: Tx, taken: StoredScan) -> SessionRow:
        """Record a scan."""
        if self.fence is not None:
            self._require_held(tx, sessions.get(tx, self.scope, self.session_id))
        return record(tx, self.scope, self.session_id, taken, now_ms=self.now_ms)

    def _require_held(self, tx: Tx, session: SessionRow) -> None:
        if self.fence is not None:
            leases.require(tx, session, self.fence)


def record(tx: Tx, scope: str, session_id: str, taken: StoredScan, *, now_ms: int) -> SessionRow:
    """Add a snapshot unless the files are as recorded; the revision stays, since no message was added.

    Raises ``Swept`` if contents were removed since the scan: some that it relies on may be among them.
    """
    if sweeps(tx, scope) != taken.sweeps:
        raise Swept()
    session = entries.writable(tx, scope, session_id)
    remember(tx, scope, taken.place, taken.seen)
    before, disk = work.known(tx, session, KIND), disk_of(tx, session)
    if _is_recorded(before, disk, taken.root):
        return session
    if before is None and disk is None:
        return put(tx, session, taken.root, who=START, carried=None, now_ms=now_ms)
    who, by = _who(tx, session, taken)
    carried = disk if before is None or disk != before.body["root"] else None
    return put(tx, session, taken.root, who=who, by=by, carried=carried, now_ms=now_ms)


def is_recorded(tx: Tx, session: SessionRow, root: str) -> bool:
    """Whether the files of a session are already recorded with this root."""
    return _is_recorded(work.known(tx, session, KIND), disk_of(tx, session), root)


def _is_recorded(before: WorkEntry | None, disk: str | None, root: str) -> bool:
    return before is not None and before.body["root"] == root and disk in (None, root)


def put(
    tx: Tx,
    session: SessionRow,
    root: str,
    *,
    who: str,
    by: tuple[str, ...] = (),
    carried: str | None,
    now_ms: int,
    kept: bool = False,
) -> SessionRow:
    """Add a snapshot at the head; ``kept`` if a move adds it for somebody else's changes that it kept or restored."""
    before = work.known(tx, session, KIND)
    body: dict[str, Any] = {"last": work.lasts(tx, session), "root": root, "who": who}
    body |= {"calls": list(by)} if by else {}
    body |= {"from": carried} if carried else {}
    at = disk_at(tx, session) if carried else None
    body |= {"at": at} if at else {}
    body |= {"kept": True} if kept else {}
    body["first"] = session.seq + 1 if before is None else before.body["first"]
    needs = More(blobs=_roots(body))
    draft = Draft(KIND, codec.encode(body), adds=_ADDS, more=needs)
    revision = session.revision
    session = entries.put(tx, session, (draft,), now_ms=now_ms).session
    session = sessions.write(tx, session, revision=revision)
    set_disk(tx, session, root, told=bool(by))
    return session


def _roots(body: dict[str, Any]) -> tuple[str, ...]:
    """Return the contents that a snapshot names."""
    return (body["root"], body["from"]) if "from" in body else (body["root"],)


def _announced(body: dict[str, Any]) -> tuple[str, ...]:
    """Return the contents that an entry of announced files refers to."""
    return tuple(sorted({each[3] for each in body["set"].values() if each[0] == FILE}))


NEEDS = {KIND: _roots, ANNOUNCED: _announced}  # the contents that an entry of each kind refers to


def _who(tx: Tx, session: SessionRow, taken: StoredScan) -> tuple[str, tuple[str, ...]]:
    if taken.who in (OUTSIDE, CALLS):
        return taken.who, taken.calls
    if taken.who == TURN_ANYWAY:
        return TURN, ()
    found = taken.calls or tuple(calls.going_on(tx, session))
    if found:
        return CALLS, found
    told = session.tool_calls or sessions.decoded(sessions.detail(tx, session)).get("told")
    return (OUTSIDE, ()) if told or taken.who is None else (taken.who, ())


def disk_of(tx: Tx, session: SessionRow) -> str | None:
    """Return the root that a session last saw or made in its workspace."""
    found = sessions.decoded(sessions.detail(tx, session)).get("disk")
    return found if isinstance(found, str) else None


def disk_at(tx: Tx, session: SessionRow) -> list[Any] | None:
    """Return the branch and entry that the session was at when it last saw or made its workspace's files."""
    found = sessions.decoded(sessions.detail(tx, session)).get("disk_at")
    return found if isinstance(found, list) else None


def set_disk(tx: Tx, session: SessionRow, root: str, *, told: bool = False) -> None:
    """Record what is in a session's workspace now, and whether it ever reported the calls that change files."""
    kept = sessions.decoded(sessions.detail(tx, session))
    new = {**kept, "disk": root, "disk_at": [session.uid, session.seq], **({"told": True} if told else {})}
    if new != kept:
        sessions.put_detail(tx, session, codec.encode(new))


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
