"""Files through time, as operations: the snapshot at a point, where two paths part, announced files.

An announced file is kept as it was when first announced; that copy counts until it is forgotten or a checkpoint starts
over. It is an entry, so it survives a crash and goes back with a rewind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..model import tree
from ..model.work import FileTouched
from ..ops import checkpoints, entries, moves, work
from ..ops.points import Target, seen_from
from ..ops.sessions import SessionRow
from ..storage.base import Tx
from ..storage.runner import Reads
from ..tables.entries import EntryRow
from . import snapshots, timeline
from .authors import CALLS, SESSION, TURN

if TYPE_CHECKING:
    from .workspaces import Trees

_MESSAGES = 1000
_NONE = work.WorkEntry(0, 0, {})


class Parted(NamedTuple):
    """A session as it stood at two points, and the point where the paths to them part."""

    first: SessionRow
    second: SessionRow
    point: entries.Point


def snapshot_at(tx: Tx, session: SessionRow, target: Target) -> work.WorkEntry | None:
    """Return the snapshot in force at a point; None if the files were never captured."""
    there = seen_from(tx, session, target)
    return work.latest(tx, there, snapshots.KIND) or snapshots.at(tx, session, min(there.seq, session.seq))


def is_captured(tx: Tx, session: SessionRow) -> bool:
    """Whether the files of a session were ever captured."""
    return snapshots.at(tx, session, 0) is not None


def parted(tx: Tx, session: SessionRow, a: Target, b: Target | None) -> Parted:
    """Find where the paths to two points part; the second one is the head by default."""
    first, second = seen_from(tx, session, a), seen_from(tx, session, b)
    there = Target(first.seq, first.uid, anywhere=True)
    return Parted(first, second, moves.common_point(tx, second, there))


def rows_between(
    tx: Tx, session: SessionRow, a: Target, b: Target | None
) -> tuple[tuple[dict[int, str], list[EntryRow]], ...]:
    """Read what each of two paths has after the point where they part, with the names of its branches."""
    first, second = seen_from(tx, session, a), seen_from(tx, session, b)
    there = Target(first.seq, first.uid, anywhere=True)
    after = moves.common_point(tx, second, there).seq if second.seq else 0
    return tuple(_rows_after(tx, each, after) for each in (first, second))


def _rows_after(tx: Tx, there: SessionRow, after: int) -> tuple[dict[int, str], list[EntryRow]]:
    if there.seq <= after:
        return {}, []
    segments = entries.path_segments(tx, there, after, min(there.seq, after + _MESSAGES))
    return {each.bid: each.uid for each in segments}, entries.read_all(tx, there.scope, segments)


def touched(tx: Tx, session: SessionRow) -> tuple[list[work.WorkEntry], list[FileTouched]]:
    """Return the snapshots of the path, newest first, and the files that ``record_file`` named."""
    return snapshots.since(tx, session, 0), work.file_list(tx, session)


def pairs(newest_first: Sequence[work.WorkEntry]) -> Iterator[tuple[work.WorkEntry | None, work.WorkEntry]]:
    """Yield consecutive snapshots, newest pair first; None stands before one that started from known files."""
    yield from zip(newest_first[1:], newest_first, strict=False)
    if newest_first and newest_first[-1].body.get("from") and newest_first[-1].body["first"] == newest_first[-1].seq:
        yield None, newest_first[-1]


def own_changes(
    reads: Reads[Any], trees: Trees, session: SessionRow, before: work.WorkEntry | None, after: work.WorkEntry
) -> Iterator[tree.Difference]:
    """Yield what a session changed from one snapshot to the next."""
    start = after.body.get("from") or (before.body["root"] if before is not None else after.body["root"])
    who, only = after.body["who"], None
    if who == snapshots.SEVERAL:
        uid, n = after.body["scan"]
        only = reads.read(timeline.touched_by, session.scope, uid, n, session.sid)
    elif who not in (CALLS, TURN, SESSION):
        return
    for each in tree.differences(trees.load, trees.root(start).tree, trees.root(after.body["root"]).tree):
        if who != snapshots.SEVERAL or (only is not None and each.path in only):
            yield each


# ---------------------------------------------------------------------- announced files


def announced(tx: Tx, session: SessionRow) -> dict[str, Any]:
    """Return the announced files by their paths, as they were announced."""
    found = _announced(tx, session)
    return {} if found is None else work.mapping(tx, session, found)


def announce(path: str, node: list[Any]) -> work.Decide:
    """Keep a file as it is before a change, unless it was announced already."""

    def decide(tx: Tx, session: SessionRow) -> work.WorkChange | work.WorkEntry:
        before = _announced(tx, session)
        if before is not None and path in work.mapping(tx, session, before):
            return before
        body = work.next_map(tx, session, before, {path: node})
        return work.WorkChange(body, blobs=snapshots.NEEDS[snapshots.ANNOUNCED](body))

    return decide


def forget(tx: Tx, session: SessionRow) -> work.WorkChange | work.WorkEntry:
    """Forget all announced files."""
    return work.WorkChange(work.whole_map({})) if _announced(tx, session) is not None else _NONE


def _announced(tx: Tx, session: SessionRow) -> work.WorkEntry | None:
    """Return what is announced: since the last checkpoint of this path, if there is one."""
    found = work.latest(tx, session, snapshots.ANNOUNCED)
    if found is None:
        return None
    return None if checkpoints.newest_on_path(tx, session, found.seq) is not None else found
