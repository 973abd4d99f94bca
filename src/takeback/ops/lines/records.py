"""What a line can be: one struct per kind of record, told apart by ``type``; fields at their default are left out.

Stored bytes - bodies of entries, what a provider sent, details - are shown as the JSON that they are where writing that
again gives the same bytes; other text is ``{"$text": ...}``, anything else ``{"$base64": ...}``.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, TypeAlias

import msgspec

from ...errors import Invalid

FORMAT, VERSION = "takeback", 1
# What keys stand for, beside entries: of a session it is the session itself.
MADE_BY_STORE, MADE_BY_SESSION = "session", ("operation", "checkpoint", "session")
_WRAPPED = ("$text", "$base64")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

Int: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 53) - 1)]
Flag: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2)]


class Record(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="type",
    tag=lambda name: "".join(f"_{each.lower()}" if each.isupper() else each for each in name).strip("_"),
):
    """A line."""


class Header(Record, frozen=True, kw_only=True):
    """The first line: which format this is."""

    format: str
    version: int


class End(Record, frozen=True, kw_only=True):
    """The last line: how many lines came before it, and the SHA-256 of their bytes."""

    lines: Count
    sha256: str


class Agent(Record, frozen=True, kw_only=True):
    """An agent; its versions follow."""

    id: str
    created_ms: Int
    modified_ms: Int
    version: Count
    hidden: Flag = 0
    fields: Any


class AgentVersion(Record, frozen=True, kw_only=True):
    """One version of an agent's state; none where it is that of the version before."""

    agent: str
    version: Count
    at_ms: Int
    state: Any = None


class Blob(Record, frozen=True, kw_only=True):
    """A content by the hash of its bytes; its chunks follow."""

    hash: str
    size: Count
    chunks: Count


class Chunk(Record, frozen=True, kw_only=True):
    """A piece of the blob before it."""

    blob: str
    n: Count
    data: Any


class Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a session is: at the tip of a branch, or at a point of it."""

    branch: str
    seq: Count
    attached: bool


class Session(Record, frozen=True, kw_only=True):
    """A session; its branches with their entries follow, then its checkpoints, operations and keys.

    ``order`` is its place among the sessions of the file by when they last changed.
    """

    id: str
    key: str
    agent: str
    kind: str
    status: str
    title: str | None = None
    name: str | None = None
    label: str | None = None
    parent: str | None = None
    workspace: str = ""
    tags: str = ""
    archived: Flag = 0
    pinned: Flag = 0
    hidden: Flag = 0
    created_ms: Int
    updated_ms: Int
    message_ms: Int | None = None
    head: Head
    revision: Count = 0
    tasks: Count = 0
    completed: Count = 0
    builds: Count = 0
    states: Count = 0
    order: Count
    detail: Any


class Branch(Record, frozen=True, kw_only=True):
    """A branch and where it starts; its entries follow. ``lost``: what a repair recorded about it, and when."""

    id: str
    session: str
    name: str
    parent: str | None = None
    fork_seq: Count = 0
    created_ms: Int
    hidden: Flag = 0
    lost: tuple[str, Int] | None = None


class Totals(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The running numbers of a path after an entry, in the order of the chain."""

    messages: Int = 0
    turns: Int = 0
    tool_calls: Int = 0
    tool_failures: Int = 0
    input_tokens: Int = 0
    output_tokens: Int = 0
    cache_read_tokens: Int = 0
    cache_write_tokens: Int = 0
    reasoning_tokens: Int = 0
    cost_nano: Int = 0
    active_ms: Int = 0
    work_seq: Int = 0
    call_seq: Int = 0
    open_seq: Int = 0


class Entry(Record, frozen=True, kw_only=True):
    """An entry of the branch before it.

    ``late_ms`` says how long after it happened it was stored. ``calls`` and ``links`` are what follows from its
    content: the tool calls it announces, starts or answers, and the blobs that it needs. ``spill`` names blobs that
    hold ``body`` and ``raw``. Where there is a ``body_hash``, the content was erased.
    """

    branch: str
    seq: Count
    kind: str
    at_ms: Int
    late_ms: Int = 0
    id: str | None = None
    body: Any = None
    raw: Any = None
    spill: str | None = None
    totals: Totals
    calls: tuple[tuple[str, str], ...] = ()
    links: tuple[str, ...] = ()
    lost: tuple[str, Int] | None = None
    salt: str | None = None
    body_hash: str | None = None
    hash: str


class Checkpoint(Record, frozen=True, kw_only=True):
    """A checkpoint of the session before it."""

    id: str
    session: str
    name: str
    description: str | None = None
    kind: str
    at_ms: Int
    branch: str
    seq: Count
    hash: str


class Operation(Record, frozen=True, kw_only=True):
    """An operation on the session or the agent before it."""

    id: str
    kind: str
    session: str | None = None
    agent: str | None = None
    at_ms: Int
    before: Any
    after: Any
    undoes: str | None = None
    undone_by: str | None = None


class Made(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a call with a key made, where it stored no entries."""

    kind: str
    id: str


class Key(Record, frozen=True, kw_only=True):
    """An idempotency key: of a session, or of the store."""

    key: str
    session: str | None = None
    branch: str | None = None
    first: Count = 0
    last: Count = 0
    digest: Count = 0
    made: Made | None = None
    at_ms: Int = 0


Any_ = Header | End | Agent | AgentVersion | Blob | Chunk | Session | Branch | Entry | Checkpoint | Operation | Key
_read = msgspec.json.Decoder(Any_).decode


def kind_of(record: Record) -> str:
    """Return the word that a line has as its type."""
    return str(record.__struct_config__.tag)


def encode(record: Record) -> bytes:
    """Write a record as a line."""
    return _encode(record) + b"\n"


def decode(line: bytes) -> Any_:
    """Read a line; anything that is none raises ``Invalid``."""
    try:
        found: Any_ = _read(line)
        return found
    except RecursionError:
        raise Invalid("it is nested too deeply") from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise Invalid(f"it is no record of this format: {error}") from error


# ---------------------------------------------------------------------- stored bytes


def shown(data: bytes | None) -> Any:
    """Return stored bytes as they stand in a line."""
    if data is None:
        return None
    try:
        value = _decode(data)
        if value is not None and not _is_wrapped(value) and _encode(value) == data:
            return value
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    try:
        return {"$text": data.decode()}
    except UnicodeDecodeError:
        return {"$base64": base64.b64encode(data).decode()}


def shown_as_text(data: bytes) -> Any:
    """Return bytes of a file as they stand in a line: as text where they are, never as JSON."""
    try:
        return {"$text": data.decode()}
    except UnicodeDecodeError:
        return {"$base64": base64.b64encode(data).decode()}


def stored(value: Any) -> bytes | None:
    """Return the bytes that a line shows."""
    if value is None:
        return None
    if not _is_wrapped(value):
        return _encode(value)
    ((how, text),) = value.items()
    try:
        return text.encode() if how == "$text" else base64.b64decode(text, validate=True)
    except (AttributeError, TypeError, ValueError, binascii.Error) as error:
        raise Invalid(f"a {how} value cannot be read: {error}") from error


def _is_wrapped(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and next(iter(value)) in _WRAPPED
