"""Changing a workspace's files together with the store: all or nothing.

The journal is written first, then everything new is staged, then the files are moved, then one transaction moves the
session and clears the journal. That commit is the moment from which the change counts. A failure before it is taken
back at once; after a crash before it, the next user of the workspace takes the change back.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from .. import presence
from ..errors import BackendError, Busy, Conflict, StorageFull
from ..ids import new_id
from ..model.tree import DIR, FILE, LINK, Node
from ..ops import sessions
from ..ops.sessions import SessionRow
from ..storage.base import Tx
from ..storage.runner import Reads, Runner
from . import journal, timeline, workspaces
from .disk import apply
from .disk import identity as directories
from .journal import JournalRow
from .workspaces import CapturedDirectory, Commit, Trees

if TYPE_CHECKING:
    from .disk.apply import Changeset, Step

T = TypeVar("T")
_SHOWN = 20
_under_way: set[str] = set()  # changes this process is making now; any other journal of ours was abandoned


def change_files(
    runner: Runner, place: CapturedDirectory, session: SessionRow | None, steps: Sequence[Step], finish: Commit[T]
) -> T:
    """Carry out steps, then call ``finish`` with the root of what is there, which makes them count.

    A workspace that is gone is made again, with the mode that it had.
    """
    if not steps:
        return place.finish([], finish)
    with _root_made(place):
        row, change = _begin(runner, place.path, place.name, session, steps)
        _under_way.add(row.id)
        try:
            _carry_out(runner, place.trees, change, row)
            done = _make_count(runner, place, change, row, finish)
        finally:
            _under_way.discard(row.id)
    _clean(change)
    return done


@contextmanager
def _root_made(place: CapturedDirectory) -> Iterator[None]:
    """Make a workspace again that is gone; if the change fails, it goes again.

    No journal is needed for that: an empty directory and none are the same to every scan.
    """
    if not workspaces.is_gone(place.path):
        yield
        return
    mode = place.mode()
    with _in_words():
        os.mkdir(place.path)
    try:
        if mode is not None:
            os.chmod(place.path, mode | 0o700)  # writable until the files are there
        yield
    except BaseException:
        with suppress(OSError):
            os.rmdir(place.path)
        raise
    if mode is not None:
        with suppress(OSError):
            os.chmod(place.path, mode)


def _carry_out(runner: Runner, trees: Trees, change: Changeset, row: JournalRow) -> None:
    try:
        with _in_words():
            change.stage(trees.content)
            change.check()
            change.carry_out()
    except BaseException:
        # Half done: the journal stays, so that the next user of the workspace takes the change back.
        if not change.half_done:
            _end(runner, change, row)
        raise


def _make_count(runner: Runner, place: CapturedDirectory, change: Changeset, row: JournalRow, finish: Commit[T]) -> T:
    """Commit, with what is in the workspace now."""
    steps = [_step(*each) for each in journal.decode_steps(row)]
    put = {step.path: step.new for step in steps if step.new is not None and step.new.kind in (FILE, LINK, DIR)}

    def complete(tx: Tx, root: str, now_ms: int) -> T:
        done = finish(tx, root, now_ms)
        journal.complete(tx, row)
        return done

    def commit(_: JournalRow) -> T:
        place.expect(put)
        return place.finish(apply.touched(steps), complete)

    try:
        return _commit_or_take_back(runner, place.trees, change, row, commit)
    except BaseException:
        place.forget()  # the scanner has noted the new files, which are gone again
        raise


def _counts(runner: Runner, row: JournalRow) -> bool:
    """Whether a change became an operation; if the store cannot say, that raises and recovery decides later."""
    found = runner.read(journal.find, row.scope, row.place)
    return found is None or found.id != row.id or not found.steps


def _begin(
    runner: Runner, path: str, name: str, session: SessionRow | None, steps: Sequence[Step]
) -> tuple[JournalRow, Changeset]:
    now_ms = runner.clock.now_ms()
    with _in_words():
        steps = apply.identified(path, steps)
    where = f"{path}\0{directories.identity(path) or ''}"
    row = JournalRow(
        runner.scope,
        name,
        None if session is None else session.sid,
        new_id(now_ms),
        now_ms,
        presence.encode(presence.here(now_ms)),
        os.fsencode(where),
        journal.encode_steps(steps),
    )
    change = apply.Changeset(path, steps, row.id)
    # Before any file is touched: a crash from here on leaves a journal that says what to take back.
    runner.write(journal.begin, row)
    return row, change


def _end(runner: Runner, change: Changeset, row: JournalRow) -> None:
    _clean(change)
    runner.write(journal.end, row)


def _clean(change: Changeset) -> None:
    """Remove what was staged; if that fails it stays, and ``recover`` removes it with the next scan."""
    try:
        change.clean()
    except OSError:
        pass


@contextmanager
def _in_words() -> Iterator[None]:
    """Translate errors of the system into our own."""
    try:
        yield
    except OSError as error:
        where = f" ({os.fsdecode(error.filename)})" if error.filename else ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(
                f"no space left for the files of the workspace{where}; nothing was changed. Free some and try again"
            ) from error
        raise BackendError(f"files could not be changed: {error.strerror}{where}; nothing was changed") from error


def pending(runner: Reads[Any], place: CapturedDirectory, session_id: str | None) -> JournalRow | None:
    """Return a change of this workspace that was left half done; raises ``Busy`` if it is still in progress."""
    row = runner.read(_left_in, runner.scope, place, session_id)
    if row is None or not row.steps:
        return None
    _require_left(runner, row)
    return row


def _require_left(runner: Reads[Any], row: JournalRow) -> None:
    if not is_left(row, runner.clock.now_ms()):
        holder = presence.decode(row.holder)
        raise Busy(f"{holder} is changing the files of this workspace; try again when it is done", holder=str(holder))


def said(row: JournalRow, *, left: bool) -> str:
    """Describe a change of files that is in progress, or was left half done."""
    holder, since = presence.decode(row.holder), presence.since(row.at_ms)
    if left:
        return f"a change to the files in {_root_of(row)[0]!r}, begun by {holder} at {since}, was interrupted half way"
    return f"{holder} has been changing the files in {_root_of(row)[0]!r} since {since}"


def is_left(row: JournalRow, now_ms: int) -> bool:
    """Whether nobody is working on a change any more."""
    holder = presence.decode(row.holder)
    left_by_us = presence.is_here(holder) and row.id not in _under_way
    return left_by_us or presence.seems_gone(holder, row.at_ms, now_ms)


def is_there(row: JournalRow) -> bool:
    """Whether the directory of a change is still the one that it was begun in."""
    path, identity = _root_of(row)
    return os.path.isdir(path) and (directories.identity(path) or "") == identity


def recover(runner: Runner, place: CapturedDirectory, session_id: str | None) -> str | None:
    """Take back a change that was left half done in this workspace and describe it; None if there was none.

    Raises ``Busy`` if it is still in progress.
    """
    left = runner.read(_left_in, runner.scope, place, session_id)
    if left is None:
        return None
    if not left.steps:  # committed: only its staging directory is left to remove
        _clean(apply.Changeset(_root_of(left)[0], (), left.id))
        return None
    row = pending(runner, place, session_id)
    return None if row is None else _taken_back(runner, place.trees, row)


def _taken_back(runner: Runner, trees: Trees, row: JournalRow) -> str:
    mine = row._replace(holder=presence.encode(presence.here(runner.clock.now_ms())))
    if not runner.write(journal.take, row.holder, mine):
        raise Busy("somebody else is taking back an interrupted change in this workspace; try again when that is done")
    about = said(row, left=True)
    if is_there(row):
        change = apply.Changeset(_root_of(row)[0], [_step(*each) for each in journal.decode_steps(row)], row.id)
        with _in_words():
            kept = change.take_back(trees.content)
            change.clean()
        outcome = f"{about}, and was taken back{_named(kept, row.id)}"
    else:
        outcome = f"{about}; that path is a different directory by now, so its files were left alone"
    runner.write(journal.end, mine)
    return outcome


def _named(kept: Sequence[bytes], id: str) -> str:
    """Name the paths that are neither old nor new."""
    if not kept:
        return ""
    names = ", ".join(os.fsdecode(each) for each in kept[:_SHOWN]) + (" and more" if len(kept) > _SHOWN else "")
    return f"; left alone, since somebody changed them meanwhile (old version: NAME.takeback-{id}): {names}"


def _left_in(tx: Tx, scope: str, place: CapturedDirectory, session_id: str | None) -> JournalRow | None:
    """Find a change of this workspace, even one begun before the directory was moved."""
    found = journal.find(tx, scope, place.name)
    if found is not None:
        return found
    known = timeline.find(tx, scope, timeline.at(place.path))
    rows = [] if session_id is None else journal.of_session(tx, sessions.get(tx, scope, session_id))
    if known is not None and known.path != place.path:
        moved = journal.find(tx, scope, workspaces.name_of(known.path))
        rows += [] if moved is None else [moved]
    for row in rows:
        path, identity = _root_of(row)
        if row.steps and path != place.path and identity and identity == directories.identity(place.path):
            return row._replace(root=os.fsencode(f"{place.path}\0{identity}"))
    return None


def _root_of(row: JournalRow) -> tuple[str, str]:
    """Return the path of a change's workspace, and the identity of that directory."""
    path, _, identity = os.fsdecode(row.root).partition("\0")
    return path, identity


def _step(path: bytes, old: tuple[str, int, int, bytes] | None, new: tuple[str, int, int, bytes] | None) -> Step:
    return apply.Step(path, None if old is None else Node(*old), None if new is None else Node(*new))


def materialise(
    runner: Runner,
    trees: Trees,
    into: str,
    session: SessionRow,
    steps: Sequence[Step],
    commit: Callable[[JournalRow], T],
) -> T:
    """Write files into a new or empty directory, and call ``commit``, which makes them count and completes the journal.

    What a killed call left there is taken back first, and so is this one if it fails.
    """
    if os.path.lexists(into) and not os.path.isdir(into):
        raise Conflict(f"{into!r} is not a directory; choose a new or empty one", found=into)
    clear(runner, trees, into)
    made = not os.path.isdir(into)
    with _in_words():
        os.makedirs(into, exist_ok=True)
        if os.listdir(into):
            raise Conflict(f"{into!r} is not empty; choose a new or empty directory", found=into)
    row, change = _begin(runner, into, workspaces.name_of(into), session, steps)
    _under_way.add(row.id)
    try:
        _carry_out(runner, trees, change, row)
        done = _commit_or_take_back(runner, trees, change, row, commit)
    except BaseException:
        if made:
            with suppress(OSError):
                os.rmdir(into)
        raise
    finally:
        _under_way.discard(row.id)
    _clean(change)
    return done


def _commit_or_take_back(
    runner: Runner, trees: Trees, change: Changeset, row: JournalRow, commit: Callable[[JournalRow], T]
) -> T:
    """Commit; if that fails, take the files back, unless the store shows that it was committed after all."""
    try:
        return commit(row)
    except BaseException:
        if not _counts(runner, row):
            with _in_words():
                change.take_back(trees.content)
            _end(runner, change, row)
        raise


def clear(runner: Runner, trees: Trees, into: str) -> None:
    """Take back what a killed process left in a directory; raises ``Busy`` if somebody is still at work there."""
    row = runner.read(journal.find, runner.scope, workspaces.name_of(into))
    if row is not None and row.steps:
        _require_left(runner, row)
        _taken_back(runner, trees, row)
    elif row is not None:
        _clean(apply.Changeset(_root_of(row)[0], (), row.id))
