"""Reading lines: each becomes a record again, or the file is refused with the line that is wrong.

A file is read once, front to back, within limits; nothing in it is trusted. Its first line says which format it is, its
last one how many lines there were and their digest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any, BinaryIO, NamedTuple

import msgspec

from ..errors import Corrupt, Invalid, SchemaTooNew
from ..ids import MAX_SEQ
from ..model.entry import Numbers
from ..ops import blobs, idempotency
from ..tables.agents import AGENT, VERSION
from ..tables.branches import BRANCH
from ..tables.content import BLOB, ChunkRow
from ..tables.documents import DOCUMENT
from ..tables.entries import Chain, EntryRow, LinkRow, LostRow
from ..tables.files import SCAN, WORKSPACE, TouchedRow
from ..tables.history import CHECKPOINT, ONCE, OPERATION
from ..tables.sessions import SESSION
from ..tables.table import Table
from .lines import (
    COLUMNS,
    FORMAT,
    MADE_BY_SESSION,
    MADE_BY_STORE,
    REFUSED,
    VERSION_OF_FORMAT,
    AgentLine,
    BlobLine,
    BranchLine,
    ChunkLine,
    DocumentLine,
    EndLine,
    EntryLine,
    FileLimits,
    HeaderLine,
    KeyLine,
    Lost,
    OperationLine,
    PointLine,
    ScanLine,
    SessionLine,
    VersionLine,
    WorkspaceLine,
    column_kinds,
    decode,
    stored,
    unhex,
)
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
from .strict_checks import BYTES, ROWS
from .timelines import away


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
        linked = (unhex(line.salt, 16), unhex(line.body_hash, 32), unhex(line.hash, 32))
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
    kinds = column_kinds(table)
    made = {name: None if {type(None), Any}.intersection(kinds[name]) else kinds[name][0]() for name in kinds}
    for name in COLUMNS[type(line)]:
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


def _workspace_of(scope: str, line: Any) -> WorkspaceRecord:
    """Make a workspace; it is a directory of nobody here, whatever its path is."""
    if not line.tip > 0:
        raise Invalid(f"workspace {line.id!r} has no scan")
    return away(WorkspaceRecord(_row(WORKSPACE, line, scope, uid=line.id, root=""), {}))


def _scan_of(scope: str, line: Any) -> ScanRecord:
    """Make a scan; its sessions get numbers here, which hold in this record alone."""
    named = {line.session, *(name for _, who in line.authors for name, _ in who)} - {None}
    numbers = {name: at for at, name in enumerate(sorted(named), 1)}
    authors = [[kind, [[numbers.get(name, 0), [*ids]] for name, ids in who]] for kind, who in line.authors]
    touched = [(stored(path), author, action) for path, author, action in line.touched]
    rows = tuple(TouchedRow(scope, 0, path or b"", line.n, author, action) for path, author, action in touched)
    row = _row(SCAN, line, scope, session=numbers.get(line.session, 0), authors=authors, changed=len(rows))
    return ScanRecord(row, rows, {number: name for name, number in numbers.items()}, line.workspace)


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
        _row(CHECKPOINT, line, scope, type=line.kind, hash=unhex(line.hash, 32)), line.branch
    ),
    OperationLine: lambda scope, line: OperationRecord(
        _row(OPERATION, line, scope), line.session, line.agent, line.undoes, line.workspace
    ),
    WorkspaceLine: _workspace_of,
    ScanLine: _scan_of,
    DocumentLine: lambda scope, line: DocumentRecord(_row(DOCUMENT, line, scope)),
    KeyLine: _key_of,
}


def _require_storable(line: Any) -> None:
    """Refuse text for columns that no engine can keep; contents are bytes there, and hold anything."""
    texts = [value for value in map(line.__getattribute__, line.__struct_fields__) if isinstance(value, str)]
    texts += [text for call in getattr(line, "calls", ()) for text in call]
    if any("\0" in text for text in texts):
        raise Invalid("a name or an id holds a NUL")
