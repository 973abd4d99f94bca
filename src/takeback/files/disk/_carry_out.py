"""Carrying out a change: what goes is moved into the staging directory, then what comes is moved out of it.

Any interference with somebody else's edit raises ``Conflict``: what was moved away is compared with what the check saw,
and nothing is put where something has appeared. Taking back happens elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ._steps import Numbered, Schedule, Step, is_directory, is_moved, possible_modes
from ._syscalls import (
    OWNER,
    PERMISSIONS,
    Inside,
    Slot,
    Stamp,
    conflict,
    glance,
    move,
    put,
    remove_if_empty,
    seen,
    set_mode,
    stamp,
    sync,
)

_CHANGED = "it changed while the change was being made"
_APPEARED = "something appeared there while the change was being made"
_NOT_EMPTY = "the directory holds files that are not part of the change, so nothing can take its place"


class Forward:
    """One forward run through the steps of a plan."""

    def __init__(self, inside: Inside, staging: int, plan: Schedule, stamps: Mapping[bytes, Stamp]) -> None:
        self._inside, self._staging, self._plan, self._stamps = inside, staging, plan, stamps

    def run(self) -> None:
        """Do every step and sync it; may stop anywhere with an error."""
        # Descriptors are dropped between phases, since a phase may replace a directory that an open one points to.
        for phase in (self._loosen, self._move_away, self._bring, self._sync, self._tighten):
            self._inside.forget()
            phase()

    def _loosen(self) -> None:
        """Make directories writable whose contents are about to change."""
        for step in self._plan.directories():
            if step.old is None or not is_directory(step.old):
                continue
            found = self._inside.find(step.path)
            if found is None or (os.fstat(found).st_mode ^ step.old.mode) & PERMISSIONS:
                raise conflict([step.path], _CHANGED)
            set_mode(found, step.old.mode | OWNER)

    def _move_away(self) -> None:
        for each in self._plan.leaving():
            place = self._inside.need(each.step.path)
            if is_directory(each.step.old):
                self._remove_directory(place, each.step)
            elif is_moved(each.step.old):
                self._move_aside(place, each.step)
            else:
                self._move_one(place, each)

    def _remove_directory(self, place: Slot, step: Step) -> None:
        try:
            removed = remove_if_empty(place)
        except (FileNotFoundError, NotADirectoryError):
            raise conflict([step.path], _CHANGED) from None
        # What is left was not captured, or appeared just now: it is somebody's, and the directory stays for it.
        if not removed and step.new is not None:
            raise conflict([step.path], _NOT_EMPTY)

    def _move_one(self, place: Slot, each: Numbered) -> None:
        known = self._stamps[each.step.path]
        status = glance(place)
        if status is None or stamp(status) != known:
            raise conflict([each.step.path], _CHANGED)
        kept = Slot(self._staging, each.old_name)
        move(place, kept)
        status = glance(kept)  # again: somebody may have written to it right up to the rename
        if status is None or stamp(status).lasting != known.lasting:
            raise conflict([each.step.path], _CHANGED)

    def _move_aside(self, place: Slot, step: Step) -> None:
        assert step.old is not None
        if seen(place, step.old) is None:
            raise conflict([step.path], _CHANGED)
        try:
            put(place, Slot(place.directory, step.old.content.rpartition(b"/")[2]))
        except FileExistsError:
            raise conflict([step.old.content], _APPEARED) from None

    def _bring(self) -> None:
        for each in self._plan.coming():
            place = self._inside.need(each.step.path)
            try:
                put(source_of(each, place, self._staging), place)
            except FileExistsError:
                raise conflict([each.step.path], _APPEARED) from None
            except FileNotFoundError:
                raise conflict([each.step.path], _CHANGED) from None

    def _sync(self) -> None:
        sync_all(self._inside, self._staging, self._plan)

    def _tighten(self) -> None:
        for step in reversed(list(self._plan.directories())):
            node = step.new if is_directory(step.new) else step.old
            assert node is not None
            settle(self._inside, step, node.mode)


def source_of(each: Numbered, place: Slot, staging: int) -> Slot:
    """Return where what comes to a place comes from: the staging directory, or a name next to it."""
    new = each.step.new
    if new is not None and is_moved(new):
        return Slot(place.directory, new.content.rpartition(b"/")[2])
    return Slot(staging, each.new_name)


def sync_all(inside: Inside, staging: int, plan: Schedule) -> None:
    """Sync every directory in which names came or went."""
    for path in plan.parents():
        found = inside.find(path)
        if found is not None:
            sync(found)
    sync(staging)


def settle(inside: Inside, step: Step, mode: int) -> bool:
    """Set a directory's mode, unless it is gone or somebody gave it another; return whether it has it now."""
    found = inside.find(step.path)
    if found is None or os.fstat(found).st_mode & PERMISSIONS not in possible_modes(step):
        return False
    set_mode(found, mode)
    sync(found)
    return True
