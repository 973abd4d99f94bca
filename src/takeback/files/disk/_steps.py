"""What a change consists of: its steps, their numbers, and the order in which they can be done.

Everything is a function of the steps, so a fresh process finds what a killed one left behind: step ``n`` keeps what it
took away as ``old-n`` and what it brings as ``new-n``. Directories that only have to be writable for a while are steps
too, after the given ones: their mode is the same before and after.

What is in the way and was not captured is known nowhere else, so it must survive the staging directory: it is moved to
a name next to its place, and that name is the content of a ``MOVED`` node. As the old version of a step it goes there,
as the new one it comes from there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ...errors import Invalid
from ...model import names
from ...model.tree import DIR, FILE, LINK, Node
from ._syscalls import OWNER, PERMISSIONS

MOVED = "m"  # a node's kind; the content is the other path, and the size the inode, by which it is recognised
_SUFFIX = b".takeback-"
LONGEST = 150  # bytes of a name kept when a suffix is added, to stay below the limit of 255
_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")


class Step(NamedTuple):
    """What must be at a path now and what shall be there; None for nothing."""

    path: bytes
    old: Node | None
    new: Node | None


class Numbered(NamedTuple):
    """A step, and the names of its two versions in the staging directory."""

    step: Step
    old_name: bytes
    new_name: bytes


def is_directory(node: Node | None) -> bool:
    """Whether a node is a directory."""
    return node is not None and node.kind == DIR


def is_moved(node: Node | None) -> bool:
    """Whether a node stands for something that is kept next to its place."""
    return node is not None and node.kind == MOVED


def beside(path: bytes, mark: bytes) -> bytes:
    """Return a name next to a path."""
    above, slash, name = path.rpartition(b"/")
    return above + slash + name[:LONGEST] + _SUFFIX + mark


def only_mode(step: Step) -> bool:
    """Whether what is there stays in place: a directory, whose mode may change.

    A file with another mode is replaced: a mode set in place would apply to all its hard links, even those outside.
    """
    if step.old is None or step.new is None or step.old.kind != step.new.kind:
        return False
    return step.old.kind == DIR or step.old == step.new


def possible_modes(step: Step) -> set[int]:
    """Return the modes that a directory of this step can have while it is being changed."""
    modes = {node.mode & PERMISSIONS for node in (step.old, step.new) if node is not None and node.kind == DIR}
    return modes | {mode | OWNER for mode in modes}


class Schedule:
    """The steps of a change in the orders in which they are done."""

    def __init__(self, steps: Sequence[Step], locked: Mapping[bytes, Node]) -> None:
        every = [*steps, *(Step(path, node, node) for path, node in sorted(locked.items()))]
        numbered = [Numbered(step, b"old-%d" % n, b"new-%d" % n) for n, step in enumerate(every)]
        self.shallow_first = sorted(numbered, key=lambda each: (each.step.path.count(b"/"), each.step.path))

    @property
    def deep_first(self) -> Iterator[Numbered]:
        """The steps with what is in a directory before the directory."""
        return reversed(self.shallow_first)

    def directories(self) -> Iterator[Step]:
        """Yield the steps with a directory before or after, shallowest first."""
        return (each.step for each in self.shallow_first if is_directory(each.step.old) or is_directory(each.step.new))

    def leaving(self) -> Iterator[Numbered]:
        """Yield the steps in which something goes, deepest first."""
        return (each for each in self.deep_first if each.step.old is not None and not only_mode(each.step))

    def coming(self) -> Iterator[Numbered]:
        """Yield the steps in which something comes: directories first, shallowest first, then everything else."""
        here = [each for each in self.shallow_first if each.step.new is not None and not only_mode(each.step)]
        return iter(sorted(here, key=lambda each: not is_directory(each.step.new)))

    def parents(self) -> list[bytes]:
        """Return the directories in which names come or go."""
        return sorted({each.step.path.rpartition(b"/")[0] for each in self.shallow_first if not only_mode(each.step)})


def check_id(id: str) -> str:
    """Refuse an id that cannot be part of a file name."""
    if not _ID.fullmatch(id):
        raise Invalid(f"{id!r} cannot be the id of a change; use letters, digits, '-' and '_'")
    return id


def check_steps(steps: Iterable[Step], *, reserved: Iterable[bytes]) -> None:
    """Refuse steps that leave the root, touch a repository or the staging directory, repeat a path or have no kind."""
    known: set[bytes] = set()
    for path, old, new in steps:
        if names.path_fault(path) or path.partition(b"/")[0] in reserved:
            raise Invalid(f"{path[:200]!r} is not a path within the directory; join plain names with '/'")
        if names.leads_into_control(path):
            raise Invalid(f"{names.shown(path)} belongs to a repository (git, hg, svn or jj) and is never written")
        if path in known:
            raise Invalid(f"{path!r} appears twice; pass one step for each path")
        if any(node is not None and node.kind not in (FILE, LINK, DIR, MOVED) for node in (old, new)):
            raise Invalid(f"{path!r} is not a file, link or directory; leave it out")
        _check_moved(path, old, new)
        known.add(path)


def _check_moved(path: bytes, old: Node | None, new: Node | None) -> None:
    """Refuse to move something elsewhere than to a new name in its directory."""
    for node in (old, new):
        if node is not None and node.kind == MOVED:
            name = node.content.rpartition(b"/")[2]
            if node.content.rpartition(b"/")[0] != path.rpartition(b"/")[0] or names.fault(name):
                raise Invalid(f"{node.content[:200]!r} is not a name next to {path[:200]!r}")
