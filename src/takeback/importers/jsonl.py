"""Reading back what an export wrote: into a store of its own, which is verified, and only then into the real one.

A file is somebody else's word. Its lines are bounded in size, number and depth; each must name only what came before
it; every hash of it is computed again. A file that is cut off, changed or forged is refused with the line or the record
that says so, before anything of it is in the store. Copying then knows what is there already: importing a
file twice changes nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ..client.copying import copy
from ..client.open import open_store
from ..client.store import Store
from ..errors import Corrupt, Error, Invalid, SchemaTooNew
from ..model.copied import Copied
from ..ops.lines import records
from ..ops.lines.writing import Writer
from ..storage.base import Op, Tx

_BATCH, _BATCH_BYTES = 500, 8 << 20
_REFUSED = "nothing was imported"


class Limits(NamedTuple):
    """How much a file may hold: bytes of a line, lines, bytes in all."""

    line: int = 64 << 20
    lines: int = 20_000_000
    bytes: int = 16 << 30


class Imported(NamedTuple):
    """The ids of the sessions of a file, and what was copied of it; None for a dry run."""

    sessions: tuple[str, ...]
    copied: Copied | None


def read(
    store: Store,
    source: BinaryIO,
    *,
    limits: Limits | None = None,
    dry_run: bool = False,
    progress: Callable[[int], Any] | None = None,
) -> Imported:
    """Import a file of lines into the scope of a store.

    Raises ``Invalid`` if it is no such file, ``Corrupt`` if it is cut off or not true; ``Conflict``, as with ``copy``,
    for a session that was changed in both, once everything else is there. A dry run only judges the file. ``progress``
    is told how many lines were read.
    """
    with tempfile.TemporaryDirectory(prefix="takeback-import-") as folder:
        path = Path(folder) / "copy.db"
        with open_store(path, scope=store.scope, durability="relaxed") as judged:
            found = _load(judged, _records(source, limits or Limits()), progress or (lambda count: None))
            if report := judged.verify():
                problem = report.problems[0]
                raise Corrupt(f"the file is not true: {problem.where}: {problem.what}; {_REFUSED}", what=problem.where)
            done = None if dry_run else copy(judged, store, sessions=found, subagents=False)  # all are named
            return Imported(found, done)


class _Line(NamedTuple):
    number: int
    size: int
    record: records.Any_


def _records(source: BinaryIO, limits: Limits) -> Iterator[_Line]:
    """Yield the records between the first and the last line, once these are what they must be."""
    digest, number, size = sha256(), 0, 0
    while line := source.readline(limits.line + 1):
        number, size = number + 1, size + len(line)
        if len(line) > limits.line or number > limits.lines or size > limits.bytes:
            raise Invalid(f"line {number}: the file is larger than is read ({limits}); {_REFUSED}")
        record = _decoded(line, number)
        if number == 1:
            _require_header(record)
        elif isinstance(record, records.End):
            _require_end(record, digest.hexdigest(), number, source)
            return
        else:
            yield _Line(number, len(line), record)
        digest.update(line)
    if not number:
        raise Invalid("the file is empty; name one that takeback export wrote")
    raise Corrupt(f"the file is cut off behind line {number}: its last line is missing; {_REFUSED}", what="end")


def _decoded(line: bytes, number: int) -> records.Any_:
    try:
        return records.decode(line)
    except Invalid as error:
        if number == 1:
            raise Invalid("this is no file that takeback export wrote: its first line is no header") from error
        raise _wrong(number, error) from error


def _wrong(number: int, error: Exception) -> Corrupt:
    return Corrupt(f"line {number}: {str(error)[:500]}; {_REFUSED}", what=f"line {number}")


def _require_header(record: records.Any_) -> None:
    if not isinstance(record, records.Header) or record.format != records.FORMAT:
        raise Invalid("this is no file that takeback export wrote: its first line is no header")
    if record.version > records.VERSION:
        raise SchemaTooNew(f"the file has version {record.version} of its format; import it with a newer Takeback")


def _require_end(end: records.End, digest: str, number: int, source: BinaryIO) -> None:
    if end.lines != number - 1 or end.sha256 != digest:
        raise Corrupt(f"the file was changed or lost lines: its checksum does not fit; {_REFUSED}", what="end")
    if source.read(1):
        raise Corrupt(f"line {number + 1}: something stands behind the end; {_REFUSED}", what=f"line {number + 1}")


def _load(judged: Store, lines: Iterator[_Line], progress: Callable[[int], Any]) -> tuple[str, ...]:
    """Write records into an empty store, some hundred at a time; return the ids of the sessions."""
    backend, writer, batch, size = judged._backend, Writer(judged.scope), list[_Line](), 0
    for line in lines:
        batch.append(line)
        size += line.size
        if len(batch) >= _BATCH or size >= _BATCH_BYTES:
            backend.write(_putting(writer, batch))
            progress(line.number)
            batch, size = [], 0
    last = batch[-1].number if batch else 0
    backend.write(_putting(writer, batch))
    try:
        backend.write(_closing(writer))
        now_ms = judged._clock.now_ms()
        backend.write(lambda tx: writer.tell(tx, now_ms=now_ms))
    except (Error, ValueError, OverflowError, RecursionError) as error:
        raise _wrong(last + 1, error) from error
    return tuple(each for each in writer.sessions if each not in writer.purged)


def _putting(writer: Writer, batch: list[_Line]) -> Op[None]:
    before = writer.state()

    def put(tx: Tx) -> None:
        writer.resume(before)
        for line in batch:
            try:
                writer.put(tx, line.record)
            except (Error, ValueError, OverflowError, RecursionError) as error:
                raise _wrong(line.number, error) from error

    return put


def _closing(writer: Writer) -> Op[None]:
    before = writer.state()

    def close(tx: Tx) -> None:
        writer.resume(before)
        writer.close(tx)

    return close
