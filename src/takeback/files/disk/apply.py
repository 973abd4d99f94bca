"""A set of file changes applied to a directory, all or nothing, whatever happens on the way.

What is new is written and synced in a staging directory in the root, ``.takeback-<id>``, before any of the user's files
is touched. Then what goes is renamed into it and what comes is renamed out of it. So at each moment the old version of
every path is in its place or in the staging directory, where ``take_back`` finds it, even in another process after a
kill -9: it needs only the same steps and id. Nothing is overwritten, no link is followed, and what somebody else
changes meanwhile is neither lost nor replaced. Errors of the system are raised as they are.

The file ``ready`` is staged last: without it nothing was carried out. It holds the modes of directories that are not
part of the change but have to be writable meanwhile. ``.takeback-<id>.tmp`` is a staging directory being removed, or
being made again after it was lost; it may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence

from ...errors import Conflict, Unsupported
from ...model.tree import DIR, FILE, LINK, THERE, Node, decode, encode
from . import _carry_out, _take_back
from ._steps import Numbered, Schedule, Step, check_id, check_steps, is_directory, is_moved
from ._syscalls import (
    OWNER,
    PERMISSIONS,
    Inside,
    Slot,
    Stamp,
    conflict,
    content,
    create,
    directory,
    ensure_directory,
    glance,
    make_directory,
    move,
    remove_all,
    seen,
    set_mode,
    shown,
    stamp,
    sync,
    write,
)

__all__ = ["Changeset", "Fetch", "Step"]

Fetch = Callable[[bytes], Iterable[bytes]]  # returns the content of a file by its digest, in pieces

_READY = b"ready"
_NOTHING = Stamp(0, 0, 0, 0)
_HALF_DONE = "The change is left half done; the next use of the workspace will finish taking it back."


class Changeset:
    """One set of steps in a directory: ``stage``, ``check``, ``carry_out``, then ``clean``, or ``take_back`` first.

    ``half_done`` means that a carry_out failed and could not be taken back; ``clean`` does nothing then.
    """

    def __init__(self, root: str | bytes, steps: Sequence[Step], id: str) -> None:
        self._root, self._id = root, check_id(id)
        self._staging = b".takeback-" + id.encode()
        self._scratch = self._staging + b".tmp"
        self._steps = tuple(steps)
        check_steps(self._steps, reserved=(self._staging, self._scratch))
        self._stamps: dict[bytes, Stamp] | None = None
        self.half_done = False

    def stage(self, fetch: Fetch) -> None:
        """Write everything new into the staging directory and sync it; nothing else is touched.

        Raises ``Corrupt`` for content that does not match its digest, ``Unsupported`` for another file system.
        """
        with Inside(self._root) as inside:
            self._on_one_device(inside)
            locked = self._locked(inside)
            place = Slot(inside.root, self._staging)
            make_directory(place)
            try:
                with directory(place) as staging:
                    self._fill(staging, fetch, locked)
                sync(inside.root)  # or a power cut could lose the staging directory with what is moved into it
            except BaseException:
                with contextlib.suppress(OSError):
                    remove_all(place)
                raise

    def _fill(self, staging: int, fetch: Fetch, locked: dict[bytes, Node]) -> None:
        set_mode(staging, OWNER)
        for step, _, name in self._made():
            assert step.new is not None
            create(Slot(staging, name), step.new, _pieces(fetch, step.new))
        _write_ready(staging, locked)

    def _made(self) -> Iterator[Numbered]:
        """Yield the steps in which something comes that is made for it."""
        return (each for each in Schedule(self._steps, {}).coming() if not is_moved(each.step.new))

    def _locked(self, inside: Inside) -> dict[bytes, Node]:
        """Find directories that are not part of the change but too read-only for what has to change in them."""
        found: dict[bytes, Node] = {}
        paths = {step.path for step in self._steps} | {b""}
        for path in Schedule(self._steps, {}).parents():
            parent = None if path in paths else inside.find(path)
            if parent is not None and (mode := os.fstat(parent).st_mode & PERMISSIONS) & OWNER != OWNER:
                found[path] = Node(DIR, mode, 0, b"")
        return found

    def _on_one_device(self, inside: Inside) -> None:
        """Refuse what a rename cannot reach, before anything is touched."""
        plan = Schedule(self._steps, {})
        for path in [*plan.parents(), *(step.path for step in plan.directories())]:
            while (found := inside.find(path)) is None:
                path = path.rpartition(b"/")[0]
            if os.fstat(found).st_dev != inside.device:
                raise Unsupported(
                    f"{shown([path])} is on another file system than the workspace, so its files cannot be restored; "
                    "leave it out, or make it a workspace of its own",
                    capability="one file system",
                )

    def check(self) -> None:
        """Check that every path is exactly its ``old``; raises ``Conflict`` naming those that are not."""
        with Inside(self._root) as inside:
            self._on_one_device(inside)
            appearing = {step.path for step in self._steps if is_directory(step.new) and not is_directory(step.old)}
            stamps = {step.path: _found(inside, step.path, step.old) for step in self._steps}
            astray = [step.path for step in self._steps if not _has_parent(inside, step.path, appearing)]
            moved = [path for step in self._steps for path in _not_movable(inside, step)]
        wrong = sorted({path for path, stamp in stamps.items() if stamp is None}.union(astray, moved))
        if wrong:
            raise conflict(wrong, "it has changed since")
        self._stamps = {path: stamp for path, stamp in stamps.items() if stamp is not None}

    def carry_out(self) -> None:
        """Do every step and sync it; on failure take everything back and raise the error.

        Checks first if ``check`` was not called. The staging directory stays, for ``take_back`` or ``clean``.
        """
        if self._stamps is None:
            self.check()
        assert self._stamps is not None
        with Inside(self._root) as inside, self._staged(inside) as (staging, plan):
            try:
                self.half_done = True
                _carry_out.Forward(inside, staging, plan, self._stamps).run()
                self.half_done = False
            except BaseException as error:
                self._give_up(error)
                raise

    @contextlib.contextmanager
    def _staged(self, inside: Inside) -> Iterator[tuple[int, Schedule]]:
        if inside.find(self._staging) is None:
            raise Conflict("the change is not staged; stage it first")
        with directory(Slot(inside.root, self._staging)) as staging:
            names = {os.fsencode(name) for name in os.listdir(staging)}
            plan = _plan(self._steps, staging)
            wanted = {_READY, *(each.new_name for each in self._made())}
            if plan is None or names != wanted:
                raise Conflict("the change was begun before or is partly staged; take it back, clean and stage it")
            yield staging, plan

    def _give_up(self, error: BaseException) -> None:
        try:
            kept = self.take_back()
            if kept:
                error.add_note(f"Somebody else changed these meanwhile; they were left alone: {shown(kept)}.")
        except BaseException as second:
            error.add_note(f"{_HALF_DONE} (Taking it back failed too: {second})")

    def take_back(self, fetch: Fetch | None = None) -> list[bytes]:
        """Undo whatever was carried out and sync it; may be repeated, and killed at any point.

        Returns the paths that somebody else changed meanwhile: these are left alone, and the version that was moved
        away for the change is saved next to them as ``<name>.takeback-<id>``. If the staging directory is gone, old
        content is fetched again. The staging directory stays; ``clean`` removes it.
        """
        with Inside(self._root) as inside:
            name = self._staging if inside.find(self._staging) is not None else self._stage_again(inside, fetch)
            kept = [] if name is None else self._undo(inside, name)
        self.half_done = False
        return kept

    def _undo(self, inside: Inside, name: bytes) -> list[bytes]:
        with directory(Slot(inside.root, name)) as staging:
            plan = _plan(self._steps, staging)
            return [] if plan is None else _take_back.Back(inside, staging, plan, id=self._id).run()

    def _stage_again(self, inside: Inside, fetch: Fetch | None) -> bytes | None:
        """Rebuild a lost staging directory, with the old content where ``fetch`` has it; return its name.

        None if every path is as it was. It gets its final name once complete: a kill on the way changes nothing.
        """
        scratch = Slot(inside.root, self._scratch)
        remove_all(scratch)
        if all(_found(inside, step.path, step.old) for step in self._steps):
            return None
        ensure_directory(scratch, OWNER)
        with directory(scratch) as staging:
            if fetch is not None:
                self._fetch_old(inside, staging, fetch)
            _write_ready(staging, self._locked(inside))
        if fetch is None:
            return self._scratch
        move(scratch, Slot(inside.root, self._staging))
        sync(inside.root)
        return self._staging

    def _fetch_old(self, inside: Inside, staging: int, fetch: Fetch) -> None:
        for step, name, _ in Schedule(self._steps, {}).leaving():
            assert step.old is not None
            gone = _found(inside, step.path, None) or _found(inside, step.path, step.new)
            if gone and step.old.kind in THERE and not is_directory(step.old):
                create(Slot(staging, name), step.old, _pieces(fetch, step.old))

    def clean(self) -> None:
        """Remove the staging directory with its contents, if it exists.

        After that a change that was carried out can be taken back only with ``fetch``.
        """
        if self.half_done:
            return
        with Inside(self._root) as inside:
            self._save_late_writes(inside)
            staging, scratch = Slot(inside.root, self._staging), Slot(inside.root, self._scratch)
            remove_all(scratch)
            if glance(staging) is not None:
                move(staging, scratch)  # atomic: a kill must not leave half of it to be mistaken for the whole
                remove_all(scratch)
            sync(inside.root)

    def _save_late_writes(self, inside: Inside) -> None:
        """Save what somebody who had a file open wrote into the version that was moved away."""
        if self._stamps is None or inside.find(self._staging) is None:
            return
        with directory(Slot(inside.root, self._staging)) as staging:
            for each in Schedule(self._steps, {}).leaving():
                moved = Slot(staging, each.old_name)
                status = glance(moved) if each.step.old is not None and each.step.old.kind in (FILE, LINK) else None
                if status is None or status.st_nlink > 1:  # a hard link elsewhere still holds it
                    continue
                if stamp(status).lasting != self._stamps[each.step.path].lasting:
                    _take_back.put_beside(inside, each, moved, self._staging)


def _pieces(fetch: Fetch, node: Node) -> Iterable[bytes]:
    return fetch(node.content) if node.kind == FILE else ()


def _found(inside: Inside, path: bytes, node: Node | None) -> Stamp | None:
    """Return the stamp of what is at a path if it matches a node, else None; None as the node has a stamp too."""
    place = inside.place(path)
    if node is None:
        return _NOTHING if place is None or glance(place) is None else None
    return None if place is None else seen(place, node)


def _not_movable(inside: Inside, step: Step) -> Iterator[bytes]:
    """Yield the names next to a path that are taken, or do not have what is to be moved back."""
    for node, there in ((step.old, None), (step.new, step.new)):
        if node is not None and is_moved(node) and _found(inside, node.content, there) is None:
            yield node.content


def identified(root: str | bytes, steps: Iterable[Step]) -> list[Step]:
    """Return steps with the inodes of what they move aside or back, as it is on disk now."""
    with Inside(root) as inside:
        return [_identified(inside, step) for step in steps]


def aside(steps: Iterable[Step]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the paths from or to which something is moved, each with the name next to it."""
    for path, *nodes in steps:
        yield from ((path, node.content) for node in nodes if node is not None and is_moved(node))


def touched(steps: Sequence[Step]) -> list[bytes]:
    """Return every path that steps change, with the names to or from which they move something."""
    return [*(step.path for step in steps), *(name for _, name in aside(steps))]


def _identified(inside: Inside, step: Step) -> Step:
    path, old, new = step
    if old is not None and is_moved(old):
        old = old._replace(size=_inode(inside, path))
    if new is not None and is_moved(new):
        new = new._replace(size=_inode(inside, new.content))
    return Step(path, old, new)


def _inode(inside: Inside, path: bytes) -> int:
    status = glance(inside.need(path))
    if status is None:
        raise conflict([path], "it has changed since")
    return status.st_ino


def _has_parent(inside: Inside, path: bytes, appearing: set[bytes]) -> bool:
    """Whether the directory of a path exists, or will through the change itself."""
    parent = path.rpartition(b"/")[0]
    return parent in appearing or inside.find(parent) is not None


def _write_ready(staging: int, locked: dict[bytes, Node]) -> None:
    """Mark the staging directory as complete, and sync its contents."""
    part = Slot(staging, _READY + b".part")
    write(part, [encode(locked)], mode=0o600)
    # The rename comes after the file is synced, so ``ready`` is never there half written.
    move(part, Slot(staging, _READY))
    sync(staging)


def _plan(steps: Sequence[Step], staging: int) -> Schedule | None:
    """Return the schedule with the directories that were found locked; None if staging was never completed."""
    with content(Slot(staging, _READY)) as file:
        if file is None:
            return None
        with open(file, "rb", closefd=False) as reader:
            return Schedule(steps, decode(reader.read()))
