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
from typing import Annotated, Any, BinaryIO, NamedTuple, TypeAlias, get_args, get_type_hints

import msgspec

from ..errors import Corrupt, Invalid, SchemaTooNew
from ..ids import MAX_SEQ
from ..model.entry import Numbers
from ..ops import blobs, idempotency
from ..tables.agents import AGENT, VERSION
from ..tables.branches import BRANCH
from ..tables.content import BLOB, CHUNK, ChunkRow
from ..tables.entries import Chain, EntryRow, LinkRow, LostRow
from ..tables.history import CHECKPOINT, ONCE, OPERATION
from ..tables.sessions import SESSION
from ..tables.table import Table
from .incoming import as_it_came
from .source import BYTES, ROWS
from .stream import (
    AgentRecord,
    Blob,
    BranchRecord,
    CheckpointRecord,
    Chunk,
    EntriesRecord,
    Key,
    OperationRecord,
    Record,
    SessionRecord,
    Version,
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
def _kinds(table: Table[Any]) -> dict[str, tuple[Any, ...]]:
    """Return of which kinds each column of a table may be; working that out takes longer than reading a line."""
    return {name: get_args(hint) or (hint,) for name, hint in get_type_hints(table.row).items()}


def _field(name: str, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return how a column stands in a line; stored bytes are any JSON."""
    shown: Any = {int: Time if name.endswith("_ms") else Count, str: Text, bytes: Any}[kinds[0]]
    if type(None) in kinds:
        return (name, shown if shown is Any else shown | None, None)
    return (name, shown, 0) if name in _ZERO else (name, shown)


def _line(kind: str, table: Table[Any] | None, without: str = "", *more: tuple[Any, ...]) -> Any:
    """Make the form of a line: the columns of a table without some of them, and what the record has beside."""
    left, kinds = {"scope", *without.split()}, {} if table is None else _kinds(table)
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
    _COLUMNS[form] = tuple(name for name, *_ in own)
    return form


_COLUMNS: dict[Any, tuple[str, ...]] = {}  # of each form, those that it has of its table
_ZERO = {"hidden", "archived", "pinned", "states", "revision"}
_COMPUTED = "sid parent updated rank branches branch hash fork seq uid attached calls messages tasks completed builds"
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
    ("late_ms", Time, 0),
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
OperationLine = _line(
    "operation",
    OPERATION,
    "oid session agent undoes undone_by",
    ("session", str | None, None),
    ("agent", str | None, None),
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
    BranchLine | EntryLine | PointLine | OperationLine | KeyLine
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


def _unhex(text: str | None, size: int) -> Any:
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
    own = {name: getattr(row, name) for name in _COLUMNS[form]}
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
    OperationRecord: lambda record: _said(
        OperationLine, record.row, session=record.session, agent=record.agent, undoes=record.undoes
    ),
    Key: _key,
}


# ---------------------------------------------------------------------- reading


class NumberedRecord(NamedTuple):
    """A record and the number of the line that it begins with."""

    line: int
    record: Record


def read(source: BinaryIO, scope: str, limits: FileLimits) -> Iterator[NumberedRecord]:
    """Yield the records of a file, once its lines are what they must be."""
    return _Reader(scope).records(_lines(source, limits))


def _lines(source: BinaryIO, limits: FileLimits) -> Iterator[tuple[int, int, Any]]:
    """Yield the lines between the first and the last one, with their numbers and sizes."""
    digest, number, size = sha256(), 0, 0
    while line := source.readline(limits.line + 1):
        number, size = number + 1, size + len(line)
        if len(line) > limits.line or number > limits.lines or size > limits.bytes:
            raise Invalid(f"line {number}: the file is larger than is read ({limits}); {REFUSED}")
        found = _decoded(line, number)
        if number == 1:
            _require_header(found)
        elif isinstance(found, EndLine):
            _require_end(found, digest.hexdigest(), number, source)
            return
        else:
            yield number, len(line), found
        digest.update(line)
    if not number:
        raise Invalid("the file is empty; name one that takeback export wrote")
    raise Corrupt(f"the file is cut off behind line {number}: its last line is missing; {REFUSED}", what="end")


def _decoded(line: bytes, number: int) -> Any:
    try:
        return decode(line)
    except RecursionError:
        wrong = "it is nested too deeply"
    except (msgspec.MsgspecError, ValueError) as error:
        wrong = f"it is not a record of this format: {error}"
    if number == 1:
        raise Invalid("this is not a file that takeback export wrote: its first line is not a header")
    raise at_line(number, Invalid(wrong))


def at_line(number: object, error: Exception) -> Corrupt:
    """Return the error for a line that cannot be true."""
    return Corrupt(f"line {number}: {str(error)[:500]}; {REFUSED}", what=f"line {number}")


def _require_header(line: Any) -> None:
    if not isinstance(line, HeaderLine) or line.format != FORMAT:
        raise Invalid("this is not a file that takeback export wrote: its first line is not a header")
    if line.version > VERSION_OF_FORMAT:
        raise SchemaTooNew(f"the file has version {line.version} of its format; import it with a newer Takeback")


def _require_end(end: Any, digest: str, number: int, source: BinaryIO) -> None:
    if end.lines != number - 1 or end.sha256 != digest:
        raise Corrupt(f"the file was changed or lost lines: its checksum does not fit; {REFUSED}", what="end")
    if source.read(1):
        raise Corrupt(f"line {number + 1}: something stands behind the end; {REFUSED}", what=f"line {number + 1}")


class _Reader:
    """Makes records of lines: entries are gathered in pages, and a session waits for its first branch."""

    def __init__(self, scope: str) -> None:
        self._scope = scope
        self._session: tuple[int, SessionRecord] | None = None
        self._entries: list[Any] = []
        self._first = self._size = 0  # line of the first entry that waits, bytes of all
        self._branch_lost: Lost = None

    def records(self, lines: Iterator[tuple[int, int, Any]]) -> Iterator[NumberedRecord]:
        """Yield the records of lines."""
        for number, size, line in lines:
            try:
                yield from self._read(number, size, line)
            except (Invalid, ValueError, OverflowError) as error:
                raise at_line(number, error) from error
        yield from self._page()
        if self._session is not None:
            raise at_line(self._session[0], Invalid("the session has no branch"))

    def _read(self, number: int, size: int, line: Any) -> Iterator[NumberedRecord]:
        _require_storable(line)
        if isinstance(line, EntryLine):
            if self._entries and (line.branch != self._entries[-1].branch or line.seq != self._entries[-1].seq + 1):
                yield from self._page()
            if len(self._entries) >= ROWS or self._size + size > BYTES:
                yield from self._page()
            self._first = self._first if self._entries else number
            self._entries.append(line)
            self._size += size
            return
        yield from self._page()
        if self._session is not None and not isinstance(line, BranchLine):
            raise Invalid(f"session {self._session[1].row.id} has no branch")
        if isinstance(line, SessionLine):
            self._session = number, self._session_of(line)
        elif isinstance(line, BranchLine):
            branch = self._branch_of(line)
            if self._session is not None:
                at, session = self._session
                self._session = None
                if line.session != session.row.id:
                    raise Invalid(f"the branch of session {line.session!r} stands behind another session")
                yield NumberedRecord(at, session._replace(branches=(branch,)))
            yield NumberedRecord(number, branch)
        elif (make := _READS.get(type(line))) is not None:
            yield NumberedRecord(number, make(self._scope, line))
        else:
            raise Invalid("this record belongs at the beginning or the end of a file")

    def _page(self) -> Iterator[NumberedRecord]:
        if self._entries:
            entries, self._entries, self._size = self._entries, [], 0
            yield NumberedRecord(self._first, self._page_of(entries))

    def _page_of(self, lines: list[Any]) -> EntriesRecord:
        lost = [LostRow(self._scope, line.seq, *line.lost) for line in lines if line.lost is not None]
        if self._branch_lost is not None:
            lost.insert(0, LostRow(self._scope, 0, *self._branch_lost))
            self._branch_lost = None
        links = [LinkRow(self._scope, each, line.seq) for line in lines for each in dict.fromkeys(line.links)]
        return EntriesRecord(lines[0].branch, b"", [self._entry_of(line) for line in lines], links, lost)

    def _entry_of(self, line: Any) -> EntryRow:
        if not 0 < line.seq <= MAX_SEQ:
            raise Invalid(f"entry {line.branch}-{line.seq} has a number that no entry has")
        numbers = Numbers(**msgspec.structs.asdict(line.totals))
        linked = (_unhex(line.salt, 16), _unhex(line.body_hash, 32), _unhex(line.hash, 32))
        held = (line.id, stored(line.body), stored(line.raw), line.spill, b"")
        row = EntryRow(self._scope, line.seq, line.kind, line.at_ms, numbers.turns, *held)
        return row.with_chain(Chain(line.late_ms, *numbers, line.calls, *linked))

    def _session_of(self, line: Any) -> SessionRecord:
        head = {"uid": line.head.branch, "seq": line.head.seq, "attached": int(line.head.attached)}
        row, detail = _row(SESSION, line, self._scope, **head), stored(line.detail)
        if detail is None:
            raise Invalid("detail is missing")
        return SessionRecord(row, detail, line.parent, (), line.undone, order=line.order)

    def _branch_of(self, line: Any) -> BranchRecord:
        self._branch_lost = line.lost
        row = _row(BRANCH, line, self._scope, uid=line.id, tip_seq=line.fork_seq)
        return BranchRecord(row, line.parent, b"", line.fork_seq, b"")


def _row(table: Table[Any], line: Any, scope: str, **more: Any) -> Any:
    """Make the row of a line; a column that it does not have is local to a store, or computed there."""
    kinds = _kinds(table)
    made = {name: None if {type(None), Any}.intersection(kinds[name]) else kinds[name][0]() for name in kinds}
    for name in _COLUMNS[type(line)]:
        value = getattr(line, name)
        value = stored(value) if bytes in kinds[name] else value
        if value is None and type(None) not in kinds[name]:
            raise Invalid(f"{name} is missing")
        made[name] = value
    return table.row(**{**made, "scope": scope, **more})


def _chunk(scope: str, line: Any) -> Chunk:
    data = stored(line.data)
    if data is None or not 0 < len(data) <= blobs.CHUNK:
        raise Invalid(f"chunk {line.n} of a content is empty or too large")
    return Chunk(ChunkRow(scope, 0, line.n, *blobs.pack_small(data)))


def _key_of(scope: str, line: Any) -> Key:
    named: dict[str, Any] = {"seq": line.first, "last_seq": line.last, "kind": idempotency.ENTRIES, "id": ""}
    if line.branch is None:
        allowed = MADE_BY_SESSION if line.session else MADE_BY_STORE
        if line.made is None or line.made.kind not in allowed:
            raise Invalid(f"key {line.key!r} stands for nothing that there is here")
        named = {"seq": 0, "last_seq": 0, "kind": line.made.kind, "id": line.made.id}
    return Key(_row(ONCE, line, scope, ikey=line.key, **named), line.session, line.branch)


_READS: dict[Any, Callable[[str, Any], Record]] = {
    AgentLine: lambda scope, line: AgentRecord(_row(AGENT, line, scope), line.ordinal, line.undone),
    VersionLine: lambda scope, line: Version(_row(VERSION, line, scope)),
    BlobLine: lambda scope, line: Blob(_row(BLOB, line, scope, hash=line.hash)),
    ChunkLine: _chunk,
    PointLine: lambda scope, line: CheckpointRecord(
        _row(CHECKPOINT, line, scope, type=line.kind, hash=_unhex(line.hash, 32)), line.branch
    ),
    OperationLine: lambda scope, line: OperationRecord(
        _row(OPERATION, line, scope), line.session, line.agent, line.undoes
    ),
    KeyLine: _key_of,
}


def _require_storable(line: Any) -> None:
    """Refuse text for columns that no engine can keep; contents are bytes there, and hold anything."""
    texts = [value for value in map(line.__getattribute__, line.__struct_fields__) if isinstance(value, str)]
    texts += [text for call in getattr(line, "calls", ()) for text in call]
    if any("\0" in text for text in texts):
        raise Invalid("a name or an id holds a NUL")
