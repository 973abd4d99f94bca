"""Sessions as lossless lines, each a JSON object: the first names the format, the last holds a checksum.

Each session is exported as of one moment, and every hash is recomputed on the way; the store may be in use. No line
contains a scope, a number local to a store, or the time of the export: the same sessions give the same bytes, whichever
store they come from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

from ..client.copying import Progress, source_of
from ..client.session import Session
from ..client.store import Store
from ..model.copied import Copying
from ..records import stream as records
from ..records.lines import written
from ..records.stream import AgentRecord, EntriesRecord, Record
from ..shell.secrets import Findings

_BINARY = b'"data":{"$base64":'  # binary content: no text to search for secrets


class LineTarget(Protocol):
    """Where lines go: a file, or anything else that takes bytes."""

    def write(self, data: bytes, /) -> object:
        """Write some bytes."""


class WrittenLines(NamedTuple):
    """What an export wrote, and how many likely secrets of each kind it contains."""

    lines: int
    bytes: int
    sessions: int
    entries: int
    blobs: int
    secrets: Counter[str]


def write(
    store: Store,
    sessions: Iterable[Session | str],
    out: LineTarget,
    *,
    subagents: bool = True,
    documents: bool = False,
    progress: Progress | None = None,
) -> WrittenLines:
    """Write sessions as lines, with their sub-agents unless excluded, and everything they depend on.

    With ``documents``, the documents of the scope too.
    """
    counts, size, secrets = Counter[str](), 0, Findings()
    for kind, line in lines(store, sessions, subagents=subagents, documents=documents, progress=progress):
        out.write(line)
        counts[kind] += 1
        size += len(line)
        if _BINARY not in line:
            secrets.look(line.decode())
    total = sum(counts.values())
    return WrittenLines(total, size, counts["session"], counts["entry"], counts["blob"], secrets.counts)


def lines(
    store: Store,
    sessions: Iterable[Session | str],
    *,
    subagents: bool = True,
    documents: bool = False,
    progress: Progress | None = None,
) -> Iterator[tuple[str, bytes]]:
    """Yield the lines of an export, each with the kind of its record."""
    source = source_of(store, [_id(each) for each in sessions], subagents=subagents, documents=documents)
    yield from written(_told(source.records(_Nothing()), source.totals()["sessions"], progress))


def _id(session: Session | str) -> str:
    return session if isinstance(session, str) else session.id


class _Nothing:
    """The receiving end of an export: a new file holds only what was written to it."""

    def __init__(self) -> None:
        self._contents = set[str]()

    def agent(self, agent: AgentRecord) -> int | None:
        return 0

    def has(self, scope: str, content_hash: str) -> bool:
        there = content_hash in self._contents
        self._contents.add(content_hash)
        return there

    def has_root(self, scope: str, content_hash: str) -> bool:
        return False

    def session(self, session: records.SessionRecord, require: Callable[[], None]) -> dict[str, int] | None:
        require()
        return {}

    def workspace(self, workspace: records.WorkspaceRecord) -> int | None:
        return 0

    def document(self, document: records.DocumentRecord) -> bool:
        return True


def _told(found: Iterator[Record], total: int, progress: Progress | None) -> Iterator[Record]:
    """Yield records, and report progress after every session and page of entries."""
    sessions = entries = 0
    for record in found:
        yield record
        sessions += isinstance(record, records.SessionRecord)
        entries += len(record.rows) if isinstance(record, EntriesRecord) else 0
        if progress is not None and isinstance(record, records.SessionRecord | EntriesRecord):
            progress(Copying("entries", sessions=sessions, sessions_total=total, entries=entries))
