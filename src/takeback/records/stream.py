"""What a stream of records is made of, and the order of it.

A record is a row of a table together with the names of what the row refers to by number, since numbers are local to a
store: ids of sessions and operations, of branches, hashes of content. The order is: agents, each with its versions;
content, each with its chunks; sessions, each with its branches and their entries, its checkpoints and what is under way
in it; workspaces, each with its scans; documents; then operations, idempotency keys and the checkpoints of agents.
Content that an entry, a scan or a document needs comes before it, so some of it stands among the sessions.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from ..tables.agents import AgentCheckpointRow, AgentRow, PinRow, VersionRow
from ..tables.branches import BranchRow
from ..tables.content import BlobRow, ChunkRow
from ..tables.documents import DocumentRow
from ..tables.entries import EntryRow, LinkRow, LostRow
from ..tables.files import ScanRow, TouchedRow, WorkspaceRow
from ..tables.history import CheckpointRow, OnceRow, OperationRow
from ..tables.sessions import PURGED, SessionRow
from ..tables.table import Table


class AgentRecord(NamedTuple):
    """An agent. Several in the trash may have one id and one time: ``ordinal`` tells them apart."""

    row: AgentRow
    ordinal: int = 0
    undone: tuple[tuple[str, str], ...] = ()  # operations that are undone, and by which
    operations: int = 0

    @property
    def name(self) -> str:
        """What names it in any store."""
        return f"{self.row.created_ms}.{self.ordinal}.{self.row.id}"


class Version(NamedTuple):
    """A version of the agent before it."""

    row: VersionRow


class Blob(NamedTuple):
    """A content; its chunks follow."""

    row: BlobRow


class Chunk(NamedTuple):
    """A chunk of the content before it."""

    row: ChunkRow


class Counted(NamedTuple):
    """How many records of a kind there are, and the newest of them."""

    total: int = 0
    number: int = 0
    id: str = ""


class BranchRecord(NamedTuple):
    """A branch of the session before it: the id of the one it starts on, the hash there, and where it truly ends."""

    row: BranchRow
    parent: str | None
    fork_hash: bytes
    tip: int
    hash: bytes


class SessionRecord(NamedTuple):
    """A session as of one moment, with what its row does not hold; its branches are yielded behind it."""

    row: SessionRow
    doc: bytes
    parent: str | None
    branches: tuple[BranchRecord, ...] = ()
    undone: tuple[tuple[str, str], ...] = ()
    operations: Counted = Counted()
    checkpoints: Counted = Counted()
    order: int = 0  # its place among the sessions of the stream by when they last changed

    @property
    def staged(self) -> bool:
        """Whether it is half copied."""
        return self.row.staged

    @property
    def purged(self) -> bool:
        """Whether it was purged."""
        return self.row.hidden == PURGED and not self.staged

    @property
    def entries(self) -> int:
        """How many entries its branches own."""
        return sum(branch.tip - branch.row.fork_seq for branch in self.branches)


class EntriesRecord(NamedTuple):
    """Entries of the branch before it that follow one another, with what lies beside them."""

    branch: str
    previous: bytes  # the hash of the entry before them
    rows: list[EntryRow]
    links: list[LinkRow]
    lost: list[LostRow]

    @property
    def low(self) -> int:
        """The seq of the entry before them."""
        return self.rows[0].seq - 1

    @property
    def high(self) -> int:
        """The seq of the last one."""
        return self.rows[-1].seq

    @property
    def size(self) -> int:
        """Bytes of content that lie in the rows."""
        return sum(len(row.body or b"") + len(row.raw or b"") for row in self.rows)


class CheckpointRecord(NamedTuple):
    """A checkpoint of the session before it."""

    row: CheckpointRow
    branch: str


class Key(NamedTuple):
    """An idempotency key of a session or of the store; ``branch`` is that of the entries that it stands for."""

    row: OnceRow
    session: str | None
    branch: str | None


class Live(NamedTuple):
    """A row of what is under way in the session before it; ``branch`` names the branch of it or of its entry."""

    table: Table[Any]
    row: Any
    branch: str | None = None


class WorkspaceRecord(NamedTuple):
    """A workspace; its scans follow. ``names`` has the ids of the sessions that the row names by numbers."""

    row: WorkspaceRow
    names: dict[int, str]


class ScanRecord(NamedTuple):
    """A scan of the workspace before it, with what it found changed; sessions that ``names`` lacks stay behind."""

    row: ScanRow
    touched: tuple[TouchedRow, ...]
    names: dict[int, str]
    workspace: str


class DocumentRecord(NamedTuple):
    """A document in its last version. ``kept``: it is as its own store has it, not a copy of that."""

    row: DocumentRow
    kept: bool = False


class OperationRecord(NamedTuple):
    """An operation on a session or an agent, or on the files of a workspace alone."""

    row: OperationRow
    session: str | None
    agent: str | None
    undoes: str | None
    workspace: str | None = None


class Pin(NamedTuple):
    """Where a session was at a checkpoint of its agent."""

    row: PinRow
    session: str
    branch: str


class AgentPoint(NamedTuple):
    """A checkpoint of an agent, with the pins that are its own."""

    row: AgentCheckpointRow
    agent: str
    pins: tuple[Pin, ...]
    previous: str = ""  # the id of the one before it of the same agent


Record: TypeAlias = (
    AgentRecord
    | Version
    | Blob
    | Chunk
    | SessionRecord
    | BranchRecord
    | EntriesRecord
    | CheckpointRecord
    | Key
    | Live
    | WorkspaceRecord
    | ScanRecord
    | DocumentRecord
    | OperationRecord
    | AgentPoint
)
