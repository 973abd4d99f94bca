"""Importing the lines of an export: into a scratch store, which is verified, and only then into the real one.

A file is not trusted. Its lines are bounded in size, number and depth; each may refer only to earlier lines; every hash
is recomputed. A truncated, changed or forged file is rejected, naming the line or record at fault, before anything of
it reaches the store. Copying then skips what is already there, so importing a file twice changes nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ..client.copying import copy_file
from ..client.open import open_store
from ..client.store import Store
from ..errors import Corrupt, Error
from ..model.copied import Copied
from ..ops.sessions import decoded
from ..records import line_reading
from ..records.incoming import Arrivals
from ..records.lines import REFUSED
from ..records.lines import FileLimits as FileLimits
from ..records.sink import Sink, Wrong
from ..records.stream import SessionRecord


class Imported(NamedTuple):
    """The ids of a file's sessions, what was copied (None for a dry run), and what is new or renamed."""

    sessions: tuple[str, ...]
    copied: Copied | None
    new: tuple[str, ...]
    renamed: dict[str, str]


def read(
    store: Store,
    source: BinaryIO,
    *,
    limits: FileLimits | None = None,
    workspace: str = "",
    dry_run: bool = False,
    progress: Callable[[int], Any] | None = None,
) -> Imported:
    """Import a file of lines into the scope of a store.

    Raises ``Invalid`` if it is not an export, ``Corrupt`` if it is truncated or wrong, and, as ``copy`` does,
    ``Conflict`` for a session that changed on both sides, after everything else was imported. A dry run only checks the
    file. ``progress`` gets the number of lines read. Sessions that had a workspace get ``workspace``, or none.
    """
    arrivals = Arrivals(store._backend.read, workspace=workspace)
    with tempfile.TemporaryDirectory(prefix="takeback-import-") as folder:
        path = Path(folder) / "copy.db"
        with open_store(path, scope=store.scope, durability="relaxed") as judged:
            found = _load(judged, source, limits or FileLimits(), arrivals, progress or (lambda count: None))
            if report := judged.verify():
                problem = report.problems[0]
                raise Corrupt(f"the file is not valid: {problem.where}: {problem.what}; {REFUSED}", what=problem.where)
            done = None if dry_run else copy_file(judged, store, found)  # ``found`` lists sub-agents too
            return Imported(found, done, tuple(arrivals.new), arrivals.renamed)


def _load(
    judged: Store, source: BinaryIO, limits: FileLimits, arrivals: Arrivals, progress: Callable[[int], Any]
) -> tuple[str, ...]:
    """Load the records of a file into an empty store, with sessions in their new places; return the sessions' ids."""
    sink, found, last = Sink(judged._backend, now_ms=judged._clock.now_ms, fresh=True), list[str](), 1
    for last, record in line_reading.read(source, judged.scope, limits):
        if isinstance(record, SessionRecord):
            with _named(last):
                decoded(record.doc)
            record = arrivals.place(record)
        with _named(last):
            sink.put(record, where=last)
        if isinstance(record, SessionRecord) and not record.purged:
            found.append(record.row.id)
        progress(last)
    with _named(last):
        sink.close()
    if sink.conflicts:
        raise line_reading.at_line(last, sink.conflicts[0])
    return tuple(found)


@contextmanager
def _named(line: int) -> Iterator[None]:
    """Add the line number to errors about a record."""
    try:
        yield
    except Wrong as error:
        raise line_reading.at_line(error.where, error) from error
    except (Error, ValueError, OverflowError, RecursionError) as error:
        raise line_reading.at_line(line, error) from error
