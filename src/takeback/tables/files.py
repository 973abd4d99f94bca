"""Files of workspaces: what a directory looked like when last scanned, and file changes in progress."""

from typing import NamedTuple

from .table import Index, Table


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
    session: int
    id: str
    at_ms: int
    holder: bytes
    root: bytes
    steps: bytes


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
        "holder": "who does it, as JSON, as in lease",
        "root": "the path of the workspace",
        "steps": 'path, what was there, what shall be there (SPEC.md, "Files")',
    },
)
