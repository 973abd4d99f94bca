"""Files of workspaces: timelines, what a directory looked like when last scanned, and file changes in progress."""

from typing import Any, NamedTuple

from .table import Index, Table


class WorkspaceRow(NamedTuple):
    """A row of ``workspace``: a directory of one machine, and how far its timeline reaches."""

    scope: str
    wid: int
    uid: str
    machine: str
    path: str
    identity: str
    # packed from here on
    tip: int  # the number of its last scan
    root: str  # what that scan found; empty before the first one
    owed: Any  # calls that ended without a good scan: session, call, and when
    over: Any  # calls that are open in the log, but are known to have ended: session, call, entry of the start
    by: Any  # which process last scanned for a session
    missing: int = 0  # how many numbers up to the last one have no scan here


class ScanRow(NamedTuple):
    """A row of ``scan``: a change of a workspace's files, as one scan found it."""

    scope: str
    wid: int
    n: int
    at_ms: int
    session: int
    root: str | None
    # packed from here on
    branch: str
    seq: int
    turn: int
    as_of: int
    operation: str
    bulk: int
    why: str
    authors: Any
    changed: int = 0  # how many rows of ``touched`` it has
    lacks: int = 0  # 1: some of what it found was purged or lost, so its rows are not all that it found


class TouchedRow(NamedTuple):
    """A row of ``touched``: a path that a scan found changed, and who changed it."""

    scope: str
    wid: int
    path: bytes
    n: int
    author: int
    action: str


class SeenRow(NamedTuple):
    """A row of ``seen``: a directory of a workspace as last scanned; a cache that saves reading files again."""

    scope: str
    place: str
    dir: bytes
    doc: bytes


class JournalRow(NamedTuple):
    """A row of ``journal``: a file change in progress, rolled back unless it became an operation."""

    scope: str
    place: str
    session: int | None
    id: str
    at_ms: int
    holder: bytes
    root: bytes
    steps: bytes


WORKSPACE = Table(
    "workspace",
    WorkspaceRow,
    key="scope, wid",
    number="wid",
    called=lambda row: f"workspace {row.path}",
    packed=("tip", "root", "owed", "over", "by", "missing"),
    indexes=[
        Index("workspace_path", "scope, machine, path", unique=True),
        Index("workspace_uid", "scope, uid", unique=True),
        Index("workspace_identity", "scope, identity"),
    ],
    notes={
        "uid": "what snapshots name it by, in any store",
        "machine": "which machine the directory is on; 'away:' and the uid: none that is known here",
        "identity": "device, inode and time of birth of the directory; empty where the system cannot tell",
    },
)
SCAN = Table(
    "scan",
    ScanRow,
    key="scope, wid, n",
    called=lambda row: f"scan {row.n} of workspace {row.wid}",
    packed=("branch", "seq", "turn", "as_of", "operation", "bulk", "why", "authors", "changed", "lacks"),
    refs={"wid": "workspace"},
    indexes=[Index("scan_time", "scope, wid, at_ms"), Index("scan_session", "scope, session", where="session > 0")],
    notes={
        "n": "counts from 1 in each workspace",
        "session": "for which it was made; 0: for none",
        "root": "what the workspace held, as a snapshot names it; NULL: it failed, or was purged",
    },
)
TOUCHED = Table(
    "touched",
    TouchedRow,
    key="scope, wid, path, n",
    called=lambda row: f"a change of workspace {row.wid} in scan {row.n}",
    refs={"wid": "workspace"},
    indexes=[Index("touched_scan", "scope, wid, n")],
    notes={"n": "the scan that found it", "author": "which of that scan's authors changed it"},
)
SEEN = Table(
    "seen",
    SeenRow,
    key="scope, place, dir",
    called=lambda row: f"what was seen of {row.place}",
    notes={
        "place": "which workspace, on which machine; '': how often contents were swept out",
        "dir": "its path in the workspace",
        "doc": 'names with sizes, times and contents (SPEC.md, "Files")',
    },
)
JOURNAL = Table(
    "journal",
    JournalRow,
    key="scope, place",
    called=lambda row: f"journal {row.id}",
    refs={"session": "session"},
    indexes=[Index("journal_session", "scope, session")],
    notes={
        "place": "one at a time in a workspace",
        "session": "which is moved; NULL: files alone",
        "holder": "who does it, as JSON, as in lease",
        "root": "the path of the workspace",
        "steps": 'path, what was there, what shall be there (SPEC.md, "Files")',
    },
)
