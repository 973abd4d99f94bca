"""What is in progress: answers being written, and messages waiting to be received."""

from typing import NamedTuple

from .table import Table


class StreamRow(NamedTuple):
    """A row of ``stream``: an answer being written, which has no seq yet."""

    scope: str
    session: int
    id: str
    branch: int
    seq: int
    token: int
    holder: bytes
    about: bytes
    at_ms: int
    pieces: int = 0


class DeltaRow(NamedTuple):
    """A row of ``delta``: a piece that arrived on a stream."""

    scope: str
    stream: str
    n: int
    kind: str
    data: bytes
    at_ms: int


class SentRow(NamedTuple):
    """A row of ``inbox``: a message that was sent to a session."""

    scope: str
    session: int
    n: int
    id: str
    sender: str | None
    at_ms: int
    body: bytes | None
    key: int


STREAM = Table(
    "stream",
    StreamRow,
    key="scope, session, id",
    called=lambda row: f"stream {row.id}",
    refs={"session": "session", "branch": "branch"},
    notes={
        "branch": "where it began, and where it will be appended",
        "token": "of the lease of its writer; 0 without one",
        "about": "role, model and id as JSON",
        "pieces": "how many rows of delta belong to it",
    },
)
DELTA = Table(
    "delta",
    DeltaRow,
    key="scope, stream, n",
    called=lambda row: f"piece {row.n} of stream {row.stream}",
    notes={
        "n": "from 1, without gaps",
        "kind": "'text', 'thinking' or 'tool_input'",
        "data": "UTF-8, lone surrogates included",
    },
)
INBOX = Table(
    "inbox",
    SentRow,
    key="scope, session, n",
    called=lambda row: f"message {row.id}",
    refs={"session": "session"},
    notes={
        "n": "from 1, without gaps: their order",
        "sender": "the id of the session that sent it",
        "body": "the message as JSON; NULL once it was received",
        "key": "of the entry that it became; 0 while it waits",
    },
)
