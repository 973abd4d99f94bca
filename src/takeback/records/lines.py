"""Records as lines of JSON: a file that any store can read, whatever its numbers, its scope and its engine.

The first line says which format this is, the last one how many lines came before it and the SHA-256 of their bytes. A
line has the columns of its row by their names, but for those that are local to a store or that a store computes for
itself, so a file cannot contradict itself there. Stored bytes - bodies of entries, what a provider sent, details - are
shown as the JSON that they are where writing that again gives the same bytes; other text is ``{"$text": ...}``,
anything else ``{"$base64": ...}``; hashes and salts are hexadecimal. What has its default is left out.

A file is somebody else's word: every line is bounded and of its form, or it is refused. Whether it is true is judged
once it is in a store.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from hashlib import sha256
from typing import Annotated, Any, NamedTuple, TypeAlias, get_args, get_type_hints

import msgspec

from ..errors import Invalid
from ..ids import MAX_SEQ
from ..model.entry import Numbers
from ..ops import blobs
from ..tables.agents import AGENT, VERSION
from ..tables.branches import BRANCH
from ..tables.content import BLOB, CHUNK
from ..tables.documents import DOCUMENT
from ..tables.files import SCAN, WORKSPACE
from ..tables.history import CHECKPOINT, ONCE, OPERATION
from ..tables.sessions import SESSION
from ..tables.table import Table
from .incoming import as_it_came
from .stream import (
    AgentRecord,
    Blob,
    BranchRecord,
    CheckpointRecord,
    Chunk,
    DocumentRecord,
    EntriesRecord,
    Key,
    OperationRecord,
    Record,
    ScanRecord,
    SessionRecord,
    Version,
    WorkspaceRecord,
)

FORMAT, VERSION_OF_FORMAT = "takeback", 1
# What keys stand for, beside entries; of a session it is the session itself.
MADE_BY_STORE, MADE_BY_SESSION = ("session",), ("operation", "checkpoint", "session")
REFUSED = "nothing was imported"
_WRAPPED = ("$text", "$base64")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 53) - 1)]
Time: TypeAlias = Annotated[int, msgspec.Meta(ge=-62_135_596_800_000, le=253_402_300_799_999)]  # what a date can be
Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=1 << 16)]
Span: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 49), le=1 << 49)]  # between any two of them
Lost: TypeAlias = tuple[str, Time] | None


class FileLimits(NamedTuple):
    """How much a file may hold: bytes of a line, lines, bytes in all."""

    line: int = 64 << 20
    lines: int = 20_000_000
    bytes: int = 16 << 30


class HeadLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a session is: at the tip of a branch, or at a point of it."""

    branch: str
    seq: Count
    attached: bool


class Made(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a call with a key made, where it stored no entries."""

    kind: str
    id: str


@cache
def column_kinds(table: Table[Any]) -> dict[str, tuple[Any, ...]]:
    """Return of which kinds each column of a table may be; working that out takes longer than reading a line."""
    return {name: get_args(hint) or (hint,) for name, hint in get_type_hints(table.row).items()}


def _field(name: str, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return how a column stands in a line; stored bytes are any JSON."""
    shown: Any = {int: Time if name.endswith("_ms") else Count, str: Text, bytes: Any}[kinds[0]]
    if type(None) in kinds:
        return (name, shown if shown is Any else shown | None, None)
    return (name, shown, kinds[0]()) if name in _ZERO else (name, shown)


def _line(kind: str, table: Table[Any] | None, without: str = "", *more: tuple[Any, ...]) -> Any:
    """Make the form of a line: the columns of a table without some of them, and what the record has beside."""
    left, kinds = {"scope", *without.split()}, {} if table is None else column_kinds(table)
    own = [_field(name, kinds[name]) for name in kinds if name not in left]
    form = msgspec.defstruct(
        f"{kind.title()}Line",
        [*own, *more],
        frozen=True,
        kw_only=True,
        omit_defaults=True,
        forbid_unknown_fields=True,
        tag_field="type",
        tag=kind,
    )
    COLUMNS[form] = tuple(name for name, *_ in own)
    return form


COLUMNS: dict[Any, tuple[str, ...]] = {}  # of each form, those that it has of its table
_ZERO = {"hidden", "archived", "pinned", "states", "revision", "as_of", "bulk", "lacks", "operation", "why"}
_COMPUTED = (
    "sid parent updated rank past branches branch hash fork seq uid attached calls messages tasks completed builds"
)
_Totals = msgspec.defstruct(
    "Totals",
    [(name, Count, 0) for name in Numbers._fields],
    frozen=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
)

HeaderLine = _line("header", None, "", ("format", str), ("version", int))
EndLine = _line("end", None, "", ("lines", Count), ("sha256", str))
AgentLine = _line("agent", AGENT, "aid", ("ordinal", Count, 0), ("undone", tuple[tuple[str, str], ...], ()))
VersionLine = _line("agent_version", VERSION, "agent")
BlobLine = _line("blob", BLOB, "blob_id hash created_ms place", ("hash", str))
ChunkLine = _line("chunk", CHUNK, "blob_id codec data", ("data", Any))
SessionLine = _line(
    "session",
    SESSION,
    f"{_COMPUTED} {' '.join(Numbers._fields)}",
    ("parent", str | None, None),
    ("head", HeadLine),
    ("order", Count),
    ("detail", Any),
    ("undone", tuple[tuple[str, str], ...], ()),
)
BranchLine = _line(
    "branch",
    BRANCH,
    "bid uid session parent depth jump jump_seq tip_seq tip_hash",
    ("id", str),
    ("session", str),
    ("parent", str | None, None),
    ("lost", Lost, None),
)
EntryLine = _line(
    "entry",
    None,
    "",
    ("branch", str),
    ("seq", Count),
    ("kind", str),
    ("at_ms", Time),
    ("late_ms", Span, 0),
    ("id", str | None, None),
    ("body", Any, None),
    ("raw", Any, None),
    ("spill", str | None, None),
    ("totals", _Totals),
    ("calls", tuple[tuple[str, str], ...], ()),
    ("links", tuple[str, ...], ()),
    ("lost", Lost, None),
    ("salt", str | None, None),
    ("body_hash", str | None, None),
    ("hash", str),
)
PointLine = _line(
    "checkpoint", CHECKPOINT, "cid session type branch hash", ("kind", str), ("branch", str), ("hash", str)
)
# A workspace is a directory of whoever wrote the file; on which machine, and who is at work in it, is their own affair.
WorkspaceLine = _line("workspace", WORKSPACE, "wid uid machine identity root owed over by missing", ("id", str))
Authors: TypeAlias = tuple[tuple[str, tuple[tuple[str | None, tuple[str, ...]], ...]], ...]
ScanLine = _line(
    "scan",
    SCAN,
    "wid session authors changed",
    ("workspace", str),
    ("session", str | None, None),
    ("authors", Authors, ()),
    ("touched", tuple[tuple[Any, Count, str], ...], ()),
)
DocumentLine = _line("document", DOCUMENT, "did base_version base_ms base_hidden")
OperationLine = _line(
    "operation",
    OPERATION,
    "oid session agent workspace undoes undone_by",
    ("session", str | None, None),
    ("agent", str | None, None),
    ("workspace", str | None, None),
    ("undoes", str | None, None),
)
KeyLine = _line(
    "key",
    ONCE,
    "session ikey branch seq last_seq kind id",
    ("key", str),
    ("session", str | None, None),
    ("branch", str | None, None),
    ("first", Count, 0),
    ("last", Count, 0),
    ("made", Made | None, None),
)
_Any = (HeaderLine | EndLine | AgentLine | VersionLine | BlobLine | ChunkLine | SessionLine) | (
    BranchLine | EntryLine | PointLine | WorkspaceLine | ScanLine | DocumentLine | OperationLine | KeyLine
)
decode = msgspec.json.Decoder(_Any).decode


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
    return shown_as_text(data)


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


def unhex(text: str | None, size: int) -> Any:
    """Read a hash or a salt; nothing stays nothing."""
    if text is None:
        return None
    try:
        data = bytes.fromhex(text)
    except ValueError as error:
        raise Invalid(f"{text[:80]!r} is not a hexadecimal number") from error
    if len(data) != size:
        raise Invalid(f"{text[:80]!r} does not have {size} bytes")
    return data


# ---------------------------------------------------------------------- writing


def written(records: Iterable[Record]) -> Iterator[tuple[str, bytes]]:
    """Yield the lines of records, each with its kind, between the first and the last line."""
    digest, count = sha256(), 0
    for line in _headed(records):
        data = encode(line)
        digest.update(data)
        count += 1
        yield str(line.__struct_config__.tag), data
    yield "end", encode(EndLine(lines=count, sha256=digest.hexdigest()))


def encode(line: Any) -> bytes:
    """Write a line."""
    return _encode(line) + b"\n"


def _headed(records: Iterable[Record]) -> Iterator[Any]:
    yield HeaderLine(format=FORMAT, version=VERSION_OF_FORMAT)
    session, branch = "", None
    for record in records:
        if branch is not None:  # what a repair recorded about a branch comes with its first entries
            yield _branch(branch, session, record)
        session = record.row.id if isinstance(record, SessionRecord) else session
        branch = record if isinstance(record, BranchRecord) else None
        if isinstance(record, EntriesRecord):
            yield from _entries(record)
        elif (write := _WRITES.get(type(record))) is not None and (line := write(record)) is not None:
            yield line
    if branch is not None:
        yield _branch(branch, session, None)


def _branch(record: BranchRecord, session: str, following: Record | None) -> Any:
    own = following.lost if isinstance(following, EntriesRecord) and following.branch == record.row.uid else []
    lost = next(((row.what, row.at_ms) for row in own if row.key & MAX_SEQ == 0), None)
    return _said(BranchLine, record.row, id=record.row.uid, session=session, parent=record.parent, lost=lost)


def _said(form: Any, row: Any, **more: Any) -> Any:
    """Fill a line with the columns of a row that it has, and with what it has beside."""
    own = {name: getattr(row, name) for name in COLUMNS[form]}
    return form(**{name: shown(value) if isinstance(value, bytes) else value for name, value in own.items()}, **more)


def _session(record: SessionRecord) -> Any:
    record = as_it_came(record)
    row = record.row
    key = f"purged:{row.id}" if record.purged else row.key  # what a purge writes there is random
    head = HeadLine(row.uid, row.seq, bool(row.attached))
    beside = {"head": head, "parent": record.parent, "order": record.order, "undone": record.undone}
    return _said(SessionLine, row._replace(key=key), detail=shown(record.doc), **beside)


def _entries(page: EntriesRecord) -> Iterator[Any]:
    lost = {row.key & MAX_SEQ: (row.what, row.at_ms) for row in page.lost}
    links = dict[int, list[str]]()
    for link in page.links:
        links.setdefault(link.key & MAX_SEQ, []).append(link.hash)
    for row in page.rows:
        found = row.chain
        yield EntryLine(
            branch=page.branch,
            seq=row.seq,
            kind=row.kind,
            at_ms=row.at_ms,
            late_ms=found.late_ms,
            id=row.mid,
            body=shown(row.body),
            raw=shown(row.raw),
            spill=row.spill,
            totals=_Totals(*found.numbers),
            calls=found.calls,
            links=tuple(sorted(links.get(row.seq, ()))),
            lost=lost.get(row.seq),
            salt=None if found.salt is None else found.salt.hex(),
            body_hash=None if found.body_hash is None else found.body_hash.hex(),
            hash=found.hash.hex(),
        )


def _scan(record: ScanRecord) -> Any:
    row, names = record.row, record.names
    authors = tuple((kind, tuple(_known(who, names))) for kind, who in row.authors)
    touched = tuple((shown_as_text(each.path), each.author, each.action) for each in record.touched)
    beside = {"workspace": record.workspace, "session": names.get(row.session), "authors": authors, "touched": touched}
    return _said(ScanLine, row, **beside)


def _known(who: Any, names: dict[int, str]) -> Iterator[tuple[str | None, tuple[str, ...]]]:
    """Yield sessions by their ids with their calls; of one that does not go over, neither."""
    return ((names.get(sid), tuple(ids) if sid in names else ()) for sid, ids in who)


def _key(record: Key) -> Any:
    row, entries = record.row, record.branch is not None
    if not entries and row.kind not in (MADE_BY_SESSION if record.session else MADE_BY_STORE):
        return None
    made = None if entries else Made(row.kind, row.id)
    beside = {"session": record.session, "branch": record.branch, "first": row.seq, "last": row.last_seq}
    return _said(KeyLine, row, key=row.ikey, made=made, **beside)


_WRITES: dict[type, Callable[[Any], Any]] = {
    AgentRecord: lambda record: _said(AgentLine, record.row, ordinal=record.ordinal, undone=record.undone),
    Version: lambda record: _said(VersionLine, record.row),
    Blob: lambda record: _said(BlobLine, record.row, hash=record.row.hash),
    Chunk: lambda record: _said(ChunkLine, record.row, data=shown_as_text(blobs.unpack(record.row))),
    SessionRecord: _session,
    CheckpointRecord: lambda record: _said(
        PointLine, record.row, kind=record.row.type, branch=record.branch, hash=record.row.hash.hex()
    ),
    WorkspaceRecord: lambda record: _said(WorkspaceLine, record.row, id=record.row.uid),
    ScanRecord: _scan,
    DocumentRecord: lambda record: _said(DocumentLine, record.row),
    OperationRecord: lambda record: _said(
        OperationLine,
        record.row,
        session=record.session,
        agent=record.agent,
        undoes=record.undoes,
        workspace=record.workspace,
    ),
    Key: _key,
}
