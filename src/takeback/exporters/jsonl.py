"""Sessions as lines, losslessly: each a JSON object, the first says which format, the last closes with a checksum.

The sessions are copied into a store of their own first, with whatever they need: so each is as it was at one moment,
every hash was computed again on the way, and the original may be in use. No line names a scope, a number that is local
to a store, or the time of the export: the same sessions give the same bytes, from whichever store they come.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, Protocol

from ..client.copying import copy
from ..client.copying_base import Progress
from ..client.open import open_store
from ..client.session import Session
from ..client.store import Store
from ..ops.lines import reading, records
from .secrets import Findings

_BINARY = b'"data":{"$base64":'  # a piece of a picture or the like: no text to look for secrets in


class Sink(Protocol):
    """Where lines go: a file, or anything else that takes bytes."""

    def write(self, data: bytes, /) -> object:
        """Take some bytes."""


class Written(NamedTuple):
    """What an export wrote, and of which kinds of secrets it likely holds how many."""

    lines: int
    bytes: int
    sessions: int
    entries: int
    blobs: int
    secrets: Counter[str]


def write(
    store: Store,
    sessions: Iterable[Session | str],
    out: Sink,
    *,
    subagents: bool = True,
    progress: Progress | None = None,
) -> Written:
    """Write sessions as lines, with their sub-agents unless told otherwise, and what they cannot be without."""
    counts, size, secrets = Counter[str](), 0, Findings()
    for kind, line in lines(store, sessions, subagents=subagents, progress=progress):
        out.write(line)
        counts[kind] += 1
        size += len(line)
        if _BINARY not in line:
            secrets.look(line.decode())
    total = sum(counts.values())
    return Written(total, size, counts["session"], counts["entry"], counts["blob"], secrets.counts)


def lines(
    store: Store, sessions: Iterable[Session | str], *, subagents: bool = True, progress: Progress | None = None
) -> Iterator[tuple[str, bytes]]:
    """Yield the lines of an export, each with the kind of its record."""
    with tempfile.TemporaryDirectory(prefix="takeback-export-") as folder:
        path = Path(folder) / "copy.db"
        with open_store(path, scope=store.scope, durability="relaxed") as chosen:
            copy(store, chosen, sessions=sessions, subagents=subagents, progress=progress)
            read = chosen._backend.scoped(None).read
            yield from _closed(reading.all_records(read, chosen.scope))


def _closed(found: Iterable[records.Record]) -> Iterator[tuple[str, bytes]]:
    """Put the first and the last line around records."""
    digest, count = sha256(), 0
    for record in _headed(found):
        line = records.encode(record)
        digest.update(line)
        count += 1
        yield records.kind_of(record), line
    end = records.End(lines=count, sha256=digest.hexdigest())
    yield records.kind_of(end), records.encode(end)


def _headed(found: Iterable[records.Record]) -> Iterator[records.Record]:
    yield records.Header(format=records.FORMAT, version=records.VERSION)
    yield from found
