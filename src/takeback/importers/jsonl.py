"""Reading back what an export wrote: into a store of its own, which is verified, and only then into the real one.

A file is somebody else's word. Its lines are bounded in size, number and depth; each must name only what came before
it; every hash of it is computed again. A file that is cut off, changed or forged is refused with the line or the record
that says so, before anything of it is in the store. Copying then knows what is there already: importing a
file twice changes nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ..client.copying import copy
from ..client.open import open_store
from ..client.store import Store
from ..errors import Corrupt, Error
from ..model.copied import Copied
from ..ops.sessions import decoded
from ..records import lines
from ..records.arrivals import Arrivals
from ..records.lines import REFUSED
from ..records.lines import Limits as Limits
from ..records.sink import Sink, Wrong
from ..records.stream import Session


class Imported(NamedTuple):
    """The ids of the sessions of a file, what was copied of it (None for a dry run), and what is new or renamed."""

    sessions: tuple[str, ...]
    copied: Copied | None
    new: tuple[str, ...]
    renamed: dict[str, str]


def read(
    store: Store,
    source: BinaryIO,
    *,
    limits: Limits | None = None,
    workspace: str = "",
    dry_run: bool = False,
    progress: Callable[[int], Any] | None = None,
) -> Imported:
    """Import a file of lines into the scope of a store.

    Raises ``Invalid`` if it is another file, ``Corrupt`` if it is cut off or not true; ``Conflict``, as with ``copy``,
    for a session that was changed in both, once everything else is there. A dry run only judges the file. ``progress``
    is told how many lines were read. Sessions that had a workspace get ``workspace``, or none.
    """
    arrivals = Arrivals(store._backend.read, workspace=workspace)
    with tempfile.TemporaryDirectory(prefix="takeback-import-") as folder:
        path = Path(folder) / "copy.db"
        with open_store(path, scope=store.scope, durability="relaxed") as judged:
            found = _load(judged, source, limits or Limits(), arrivals, progress or (lambda count: None))
            if report := judged.verify():
                problem = report.problems[0]
                raise Corrupt(f"the file is not true: {problem.where}: {problem.what}; {REFUSED}", what=problem.where)
            done = None if dry_run else copy(judged, store, sessions=found, subagents=False)  # all are named
            return Imported(found, done, tuple(arrivals.new), arrivals.renamed)


def _load(
    judged: Store, source: BinaryIO, limits: Limits, arrivals: Arrivals, progress: Callable[[int], Any]
) -> tuple[str, ...]:
    """Put the records of a file into an empty store, sessions where they are to be; return the ids of the sessions."""
    sink, found, last = Sink(judged._backend, now_ms=judged._clock.now_ms, fresh=True), list[str](), 1
    for last, record in lines.read(source, judged.scope, limits):
        if isinstance(record, Session):
            with _named(last):
                decoded(record.doc)
            record = arrivals.place(record)
        with _named(last):
            sink.put(record, where=last)
        if isinstance(record, Session) and not record.purged:
            found.append(record.row.id)
        progress(last)
    with _named(last):
        sink.close()
    if sink.conflicts:
        raise lines.at_line(last, sink.conflicts[0])
    return tuple(found)


@contextmanager
def _named(line: int) -> Iterator[None]:
    """Make an error name the line that says so."""
    try:
        yield
    except Wrong as error:
        raise lines.at_line(error.where, error) from error
    except (Error, ValueError, OverflowError, RecursionError) as error:
        raise lines.at_line(line, error) from error
