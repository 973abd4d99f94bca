"""Changing the files of a workspace together with the store: all of it, or nothing.

The journal is written first, then everything new is staged, then the files are moved, then one transaction moves the
session and erases the journal: that is the moment from which the change counts. Whatever fails before is taken back at
once; whatever dies before is taken back by the next one who uses the workspace.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from .. import presence
from ..errors import BackendError, Busy, Conflict, StorageFull
from ..ids import new_id
from ..model.tree import FILE, LINK, Node
from ..ops import sessions
from ..ops.sessions import SessionRow
from ..storage.base import Tx
from ..storage.runner import Runner
from . import journal
from .disk import identity as directories
from .disk.apply import Changeset, Step
from .journal import JournalRow
from .workspaces import Trees, Workspace

T = TypeVar("T")
_SHOWN = 20
_under_way: set[str] = set()  # the changes that this process is making; a journal of ours that is not in it was left


def change_files(
    runner: Runner, place: Workspace, session: SessionRow, steps: Sequence[Step], finish: Callable[[Tx, str], T]
) -> T:
    """Carry out steps and then ``finish``, which makes them count; it is given the root of what is there then."""
    if not steps:
        return place.finish([], finish)
    row, change = _begin(runner, place, session, steps)
    _under_way.add(row.id)
    try:
        _carry_out(runner, place, change, row)
        done = _make_count(runner, place, change, row, finish)
    finally:
        _under_way.discard(row.id)
    _clean(change)
    return done


def _carry_out(runner: Runner, place: Workspace, change: Changeset, row: JournalRow) -> None:
    try:
        with _in_words():
            change.stage(place.trees.content)
            change.check()
            change.carry_out()
    except BaseException:
        if not change.half_done:
            _end(runner, change, row)
        raise


def _make_count(
    runner: Runner, place: Workspace, change: Changeset, row: JournalRow, finish: Callable[[Tx, str], T]
) -> T:
    """Commit; if that fails take the files back, unless the store says that it was committed all the same."""
    steps = [_step(*each) for each in journal.decode_steps(row)]
    put = {step.path: step.new for step in steps if step.new is not None and step.new.kind in (FILE, LINK)}

    def complete(tx: Tx, root: str) -> T:
        done = finish(tx, root)
        journal.complete(tx, row)
        return done

    try:
        place.expect(put)
        return place.finish([step.path for step in steps], complete)
    except BaseException:
        place.forget()
        if not _counts(runner, row):
            with _in_words():
                change.take_back(place.trees.content)
            _end(runner, change, row)
        raise


def _counts(runner: Runner, row: JournalRow) -> bool:
    """Say whether a change became an operation; an error of the store leaves that to the next one who asks."""
    found = runner.read(journal.find, row.scope, row.place)
    return found is None or found.id != row.id or not found.steps


def _begin(
    runner: Runner, place: Workspace, session: SessionRow, steps: Sequence[Step]
) -> tuple[JournalRow, Changeset]:
    now_ms = runner.clock.now_ms()
    where = f"{place.path}\0{directories.identity(place.path) or ''}"
    row = JournalRow(
        runner.scope,
        place.name,
        session.sid,
        new_id(now_ms),
        now_ms,
        presence.encode(presence.here(now_ms)),
        os.fsencode(where),
        journal.encode_steps(steps),
    )
    change = Changeset(place.path, steps, row.id)
    runner.write(journal.begin, row)
    return row, change


def _end(runner: Runner, change: Changeset, row: JournalRow) -> None:
    _clean(change)
    runner.write(journal.end, row)


def _clean(change: Changeset) -> None:
    """Remove what was staged; where that fails it stays, and the next look at the workspace removes it."""
    try:
        change.clean()
    except OSError:
        pass


@contextmanager
def _in_words() -> Iterator[None]:
    """Say in our own words what the system refused."""
    try:
        yield
    except OSError as error:
        where = f" ({os.fsdecode(error.filename)})" if error.filename else ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(
                f"there is no space for the files of the workspace{where}; nothing was changed"
            ) from error
        raise BackendError(f"files could not be changed: {error.strerror}{where}; nothing was changed") from error


def pending(runner: Runner, place: Workspace, session_id: str) -> JournalRow | None:
    """Give the change of this workspace that somebody left half done; one that is still under way is ``Busy``."""
    row = runner.read(_left_in, runner.scope, place, session_id)
    if row is None or not row.steps:
        return None
    if not is_left(row, runner.clock.now_ms()):
        holder = presence.decode(row.holder)
        raise Busy(f"{holder} is changing the files of this workspace; try again when it has ended", holder=str(holder))
    return row


def said(row: JournalRow, *, left: bool) -> str:
    """Say that a change of files is under way, or was left half done."""
    holder, since = presence.decode(row.holder), presence.since(row.at_ms)
    if left:
        return f"a change of the files of {_root_of(row)[0]!r} that {holder} began at {since} was cut off half way"
    return f"{holder} is changing the files of {_root_of(row)[0]!r} since {since}"


def is_left(row: JournalRow, now_ms: int) -> bool:
    """Say whether nobody is at work on a change any more."""
    holder = presence.decode(row.holder)
    left_by_us = presence.is_here(holder) and row.id not in _under_way
    return left_by_us or presence.seems_gone(holder, row.at_ms, now_ms)


def is_there(row: JournalRow) -> bool:
    """Say whether the directory of a change is still the one that it was begun in."""
    path, identity = _root_of(row)
    return os.path.isdir(path) and (directories.identity(path) or "") == identity


def recover(runner: Runner, place: Workspace, session_id: str) -> str | None:
    """Take back a change that somebody left half done in this workspace, and say so; None if there was none.

    One that is still under way is ``Busy``.
    """
    left = runner.read(_left_in, runner.scope, place, session_id)
    if left is None:
        return None
    if not left.steps:  # it counts, and only could not be tidied up
        _clean(Changeset(_root_of(left)[0], (), left.id))
        return None
    row = pending(runner, place, session_id)
    return None if row is None else _taken_back(runner, place, row)


def _taken_back(runner: Runner, place: Workspace, row: JournalRow) -> str:
    mine = row._replace(holder=presence.encode(presence.here(runner.clock.now_ms())))
    if not runner.write(journal.take, row.holder, mine):
        raise Busy("somebody else is putting the files of this workspace right; try again when that has ended")
    about = said(row, left=True)
    if is_there(row):
        change = Changeset(_root_of(row)[0], [_step(*each) for each in journal.decode_steps(row)], row.id)
        with _in_words():
            kept = change.take_back(place.trees.content)
            change.clean()
        told = f"{about}, and was taken back{_named(kept, row.id)}"
    else:
        told = f"{about}; that is another directory by now, and its files stay as they are"
    runner.write(journal.end, mine)
    return told


def _named(kept: Sequence[bytes], id: str) -> str:
    """Name the paths that are neither old nor new."""
    if not kept:
        return ""
    names = ", ".join(os.fsdecode(each) for each in kept[:_SHOWN]) + (" and more" if len(kept) > _SHOWN else "")
    return f"; kept, since somebody changed them meanwhile (before: NAME.takeback-{id}): {names}"


def _left_in(tx: Tx, scope: str, place: Workspace, session_id: str) -> JournalRow | None:
    """Find a change of this workspace, also one that was begun where the directory was before it was moved."""
    found = journal.find(tx, scope, place.name)
    if found is not None:
        return found
    for row in journal.of_session(tx, sessions.get(tx, scope, session_id)):
        path, identity = _root_of(row)
        if row.steps and path != place.path and identity and identity == directories.identity(place.path):
            return row._replace(root=os.fsencode(f"{place.path}\0{identity}"))
    return None


def _root_of(row: JournalRow) -> tuple[str, str]:
    """Give the path of the workspace of a change, and what tells the directory from others."""
    path, _, identity = os.fsdecode(row.root).partition("\0")
    return path, identity


def _step(path: bytes, old: tuple[str, int, int, bytes] | None, new: tuple[str, int, int, bytes] | None) -> Step:
    return Step(path, None if old is None else Node(*old), None if new is None else Node(*new))


def materialise(trees: Trees, into: str, steps: Sequence[Step]) -> None:
    """Write files into a directory that is new, or holds nothing yet; one that is made for it goes again on failure."""
    if os.path.lexists(into) and not os.path.isdir(into):
        raise Conflict(f"{into!r} is no directory; name a new or an empty one", found=into)
    with _in_words():
        made = not os.path.isdir(into)
        os.makedirs(into, exist_ok=True)
        if os.listdir(into):
            raise Conflict(f"{into!r} is not empty; name a new or an empty directory", found=into)
        change = Changeset(into, steps, new_id(0))
        try:
            change.stage(trees.content)
            change.carry_out()
        except BaseException:
            _clean(change)
            if made and not os.listdir(into):
                os.rmdir(into)
            raise
    _clean(change)
