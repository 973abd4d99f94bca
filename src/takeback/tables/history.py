"""Records of points and changes: checkpoints, operations, idempotency keys, the feed."""

from typing import NamedTuple

from .table import Index, Table


class CheckpointRow(NamedTuple):
    """A row of ``checkpoint``."""

    scope: str
    cid: int
    id: str
    session: int
    name: str
    description: str | None
    type: str
    at_ms: int
    branch: int
    seq: int
    hash: bytes


class OperationRow(NamedTuple):
    """A row of ``operation``."""

    scope: str
    oid: int
    id: str
    kind: str
    session: int
    agent: int
    workspace: int
    at_ms: int
    before: bytes
    after: bytes
    undoes: int | None
    undone_by: int | None


class OnceRow(NamedTuple):
    """A row of ``idempotency``: what a call with a key made.

    Entries are identified by branch and first and last seq; anything else by kind and id.
    """

    scope: str
    session: int
    ikey: str
    branch: int
    seq: int
    last_seq: int
    kind: str
    id: str
    digest: int
    at_ms: int


class FeedRow(NamedTuple):
    """A row of ``feed``: one committed change."""

    scope: str
    pos: int
    kind: str
    session: int
    branch: int
    first_seq: int
    last_seq: int


CHECKPOINT = Table(
    "checkpoint",
    CheckpointRow,
    key="scope, cid",
    number="cid",
    called=lambda row: f"checkpoint {row.id}",
    refs={"session": "session", "branch": "branch"},
    indexes=[
        Index("checkpoint_id", "scope, id", unique=True),
        Index("checkpoint_name", "scope, session, name, cid"),
        Index("checkpoint_session", "scope, session, cid"),
    ],
    notes={"type": "'manual', 'automatic', 'pre-operation' or 'recovery'", "hash": "of the entry there"},
)
OPERATION = Table(
    "operation",
    OperationRow,
    key="scope, oid",
    number="oid",
    called=lambda row: f"operation {row.id}",
    indexes=[
        Index("operation_id", "scope, id", unique=True),
        Index("operation_session", "scope, session, agent, oid"),
        Index("operation_scope", "scope, oid", engine="sqlite"),
        Index("operation_workspace", "scope, workspace, oid", where="workspace > 0"),
    ],
    notes={
        "session": "0: an operation on an agent, or on files alone",
        "agent": "0: an operation on a session, or on files alone",
        "workspace": "whose files it changed; 0: none",
        "before": "what it changed, as it was and as it became: JSON objects with the same keys",
        "undoes": "what an undo took back, what a redo brought back",
    },
)
ONCE = Table(
    "idempotency",
    OnceRow,
    key="scope, session, ikey, branch, seq",
    called=lambda row: f"idempotency key {row.ikey!r}",
    notes={
        "session": "0: of the store",
        "branch": "0: the call stored no entry",
        "seq": "the first entry that the call stored",
        "kind": "what else the call made: 'session', 'operation', ...",
        "id": "its id",
        "digest": "CRC-32 of the request; 0 where entries are compared, or were redacted",
        "at_ms": "when",
    },
)
FEED = Table(
    "feed",
    FeedRow,
    key="scope, pos",
    number="pos",
    order={"postgresql": "scope, epoch, xid, pos"},
    # Most SQLite stores have only the default scope and pay nothing for this; on PostgreSQL the key begins with scope.
    indexes=[Index("feed_scope", "scope, pos", where="scope <> ''", engine="sqlite")],
    called=lambda row: f"change {row.pos} of the feed",
    notes={
        "pos": "the order of commits; the last row is never deleted",
        "session": "0: a change of an agent; -1: of a document",
        "branch": "then the number of the agent or the document",
        "first_seq": "for a document: its version, 0 once it is deleted",
    },
)
