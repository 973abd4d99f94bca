"""Taking back a change that was carried out completely, in part or not at all.

Nothing was logged on the way: what is at a path and what is in the staging directory tell for each step how far it got.
``new-n`` exists until it was put in place; ``old-n`` exists from when it was moved away until it is back. So every call
here may be killed and repeated. What is neither the old version nor ours is somebody's, and is kept.
"""

from __future__ import annotations

import contextlib
import os

from ...model.tree import Node
from ._carry_out import settle, source_of, sync_all
from ._steps import LONGEST, Numbered, Schedule, is_directory, is_moved, only_mode, possible_modes
from ._syscalls import (
    OWNER,
    PERMISSIONS,
    Inside,
    Slot,
    create,
    glance,
    move,
    put,
    remove_if_empty,
    same,
    seen,
    set_mode,
    stamp,
    sync,
    unlink,
)


class Back:
    """One backward run through the steps of a plan."""

    def __init__(self, inside: Inside, staging: int, plan: Schedule, *, id: str) -> None:
        self._inside, self._staging, self._plan = inside, staging, plan
        self._suffix = b".takeback-" + id.encode()
        self._kept: set[bytes] = set()

    def run(self) -> list[bytes]:
        """Undo every step and sync it; return the paths that are somebody else's by now."""
        for phase in (self._loosen, self._remove, self._restore, self._sync, self._tighten):
            self._inside.forget()
            phase()
        return sorted(self._kept)

    def _loosen(self) -> None:
        for step in self._plan.directories():
            found = self._inside.find(step.path)
            if found is not None:
                mode = os.fstat(found).st_mode & PERMISSIONS
                if mode in possible_modes(step):
                    set_mode(found, mode | OWNER)

    def _remove(self) -> None:
        """Remove what came, deepest first."""
        for each in reversed(list(self._plan.coming())):
            place = self._inside.place(each.step.path)
            if place is None or not self._is_ours(place, each):
                continue
            if is_moved(each.step.new):
                with contextlib.suppress(FileExistsError):
                    put(place, source_of(each, place, self._staging))
                continue
            if is_directory(each.step.new):
                remove_if_empty(place)
            else:
                self._unbring(place, Slot(self._staging, each.new_name))

    def _is_ours(self, place: Slot, each: Numbered) -> bool:
        """Whether what is at a place is what we put there, unchanged since."""
        staged = source_of(each, place, self._staging)
        if glance(staged) is not None and not same(place, staged):
            return False
        new = each.step.new
        if new is None or not is_directory(new):
            return new is not None and seen(place, new) is not None
        return any(seen(place, new._replace(mode=mode)) for mode in possible_modes(each.step))

    def _unbring(self, place: Slot, staged: Slot) -> None:
        if glance(staged) is not None:
            unlink(staged)  # a hard link to the same file: a rename between the two would do nothing
        before = glance(place)
        move(place, staged)
        after = glance(staged)
        if before is None or after is None or stamp(before).lasting != stamp(after).lasting:
            put(staged, place)  # somebody replaced it at this very moment: put theirs back

    def _restore(self) -> None:
        """Put back what went, directories first; whatever is in the way is kept and named."""
        for each in sorted(self._plan.shallow_first, key=lambda each: not is_directory(each.step.old)):
            if only_mode(each.step):
                continue
            if not self._restore_one(each, self._inside.place(each.step.path)):
                self._kept.add(each.step.path)

    def _restore_one(self, each: Numbered, place: Slot | None) -> bool:
        if each.step.old is None:
            return place is None or glance(place) is None
        if is_directory(each.step.old):
            return place is not None and self._restore_directory(each, place, each.step.old)
        if is_moved(each.step.old):
            return place is not None and self._restore_aside(place, each.step.old)
        moved = Slot(self._staging, each.old_name)
        if glance(moved) is None:
            return place is not None and seen(place, each.step.old) is not None
        return self._restore_moved(each, place, moved)

    def _restore_aside(self, place: Slot, old: Node) -> bool:
        """Move back what was moved aside; if its place is taken by now, it stays where it is."""
        saved = Slot(place.directory, old.content.rpartition(b"/")[2])
        if seen(saved, old) is not None:
            with contextlib.suppress(FileExistsError):
                put(saved, place)
        return seen(place, old) is not None

    def _restore_directory(self, each: Numbered, place: Slot, old: Node) -> bool:
        if glance(place) is None:
            # Created in the staging directory and then renamed, so that nobody ever sees it with another mode.
            made = Slot(self._staging, each.old_name)
            with contextlib.suppress(FileExistsError):
                create(made, old, ())
                put(made, place)
        return any(seen(place, old._replace(mode=mode)) for mode in possible_modes(each.step))

    def _restore_moved(self, each: Numbered, place: Slot | None, moved: Slot) -> bool:
        old = each.step.old
        assert old is not None
        if place is not None:
            with contextlib.suppress(FileExistsError):
                put(moved, place)
                return seen(place, old) is not None  # else we had moved somebody's edit away
            if seen(place, old) and seen(moved, old):
                return True
        put_beside(self._inside, each, moved, self._suffix)
        return False

    def _sync(self) -> None:
        sync_all(self._inside, self._staging, self._plan)

    def _tighten(self) -> None:
        for step in reversed(list(self._plan.directories())):
            node = step.old if is_directory(step.old) else step.new
            assert node is not None
            if not settle(self._inside, step, node.mode) and is_directory(step.old):
                self._kept.add(step.path)


def put_beside(inside: Inside, each: Numbered, moved: Slot, suffix: bytes) -> None:
    """Save a version that cannot go back to its place in the nearest remaining directory of its path."""
    path = each.step.path
    while (place := inside.place(path)) is None:
        path = path.rpartition(b"/")[0]
    name = each.step.path.rpartition(b"/")[2][:LONGEST] + suffix
    try:
        put(moved, Slot(place.directory, name))
    except FileExistsError:
        put(moved, Slot(place.directory, name + b"-" + each.old_name))
    sync(place.directory)
