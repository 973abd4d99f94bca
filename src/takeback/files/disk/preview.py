"""The plan of a change of files: from what is there to what was there, path by path. Pure: it only compares trees.

What somebody else changed is kept, unless it is named; what was not captured, then or now, is not touched; what belongs
to a repository is never written, whatever a tree says; nothing is removed that contains something kept. Each remaining
path becomes one step. Whatever should change and does not has its reason, so every path that differs is in exactly one
list, or is below a directory that was not captured and is in one.

What is in the way and was not captured cannot be stored, so it is never replaced. By force it is moved aside instead,
to a free name next to it, and undo moves it back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import NamedTuple

from ...model import names, tree
from ...model.tree import ABSENT, DIR, FILE, GAP, LINK, THERE, Difference, Load, Node
from . import gaps
from ._steps import MOVED, beside
from .apply import Step, aside

Yours = Mapping[bytes, bytes | None]  # somebody else's edits, each with its tree if it is not on disk
_SAVED = re.compile(rb"(?s).+\.takeback-[A-Za-z0-9_-]+")  # what we moved aside, or saved next to its place


class Stay(NamedTuple):
    """Why a path does not change although it should.

    ``removal``: it should not be there. ``force``: it changes all the same if the caller asks to overwrite it.
    """

    why: str
    removal: bool = False
    force: bool = False
    is_gap: bool = False  # what is there now is not captured


class FilePlan(NamedTuple):
    """What would be done, and what is left alone and why."""

    steps: tuple[Step, ...]
    kept: tuple[bytes, ...]  # somebody else's changes
    stays: Mapping[bytes, Stay]  # what should change and does not
    refused: tuple[bytes, ...] = ()  # belong to a repository: never written
    back: frozenset[bytes] = frozenset()  # steps that restore somebody else's edit
    absent: frozenset[bytes] = frozenset()  # those of ``kept`` that were not there


def plan(
    load: Load,
    now: bytes,
    wanted: bytes,
    *,
    yours: Yours,
    wants: Callable[[bytes], bool] = lambda path: True,
    overwrite: Callable[[bytes], bool] = lambda path: False,
    was_aside: Mapping[bytes, bytes] | None = None,
    seen: Container[bytes] | None = None,
) -> FilePlan:
    """Plan how tree ``now`` becomes tree ``wanted``, except that somebody else's edits end as they left them.

    Only paths that are ``wants`` change. ``was_aside`` maps paths to what an operation that is now reversed moved
    aside: it moves back, or moves aside again. If it is known what was ``seen`` to change since, nothing else changes:
    what came to be while it was not captured is nobody's to take back.
    """
    return _Planner(load, now, wanted, yours, wants, overwrite, was_aside or {}, seen).run()


class _Planner:
    """Makes one plan. Each pass decides over what the ones before it left in ``steps``."""

    def __init__(
        self,
        load: Load,
        now: bytes,
        wanted: bytes,
        yours: Yours,
        wants: Callable[[bytes], bool],
        overwrite: Callable[[bytes], bool],
        was_aside: Mapping[bytes, bytes],
        seen: Container[bytes] | None,
    ) -> None:
        self._seen = seen
        self._load, self._now, self._wanted = load, now, wanted
        self._yours, self._wants, self._overwrite = yours, wants, overwrite
        self._aside, self._asides = was_aside, frozenset(was_aside.values())
        self._taken = set[bytes]()  # names that something is moved to, or from
        self._steps = dict[bytes, Step]()
        self._kept = dict[bytes, None]()
        self._stays = dict[bytes, Stay]()
        self._refused = dict[bytes, None]()
        self._back = dict[bytes, bytes]()  # somebody else's edits that are restored, each with its tree

    def run(self) -> FilePlan:
        """Return the plan."""
        self._sort()
        self._bring_back()
        self._make_way()
        self._keep_what_holds()
        self._name_asides()
        steps = sorted(self._steps.values(), key=lambda step: step.path.split(b"/"))
        back = frozenset(self._back.keys() & self._steps.keys())
        absent = frozenset(path for path in self._kept if at(self._load, self._wanted, path) is None)
        return FilePlan(tuple(steps), tuple(self._kept), self._stays, tuple(self._refused), back, absent)

    # ------------------------------------------------------------------ each path by itself

    def _sort(self) -> None:
        below: bytes | None = None  # the last path that decides over everything below it, which follows directly
        for path, old, new in tree.differences(self._load, self._now, self._wanted):
            old, new = _there(old), _there(new)
            if old == new or not self._wants(path) or (below is not None and path.startswith(below)):
                continue
            if path in self._asides:
                below = path + b"/"
            elif is_refused(path, old, new):
                self._refused[names.control_part(path)] = None
            elif not self._sort_one(path, old, new):
                below = path + b"/"

    def _sort_one(self, path: bytes, old: Node | None, new: Node | None) -> bool:
        """Sort one path; False if that decides over what is below it, too."""
        if self._returns(path, old):
            self._steps[path] = Step(path, old, self._moved(path))
            return old is not None and old.kind == DIR
        if new is None and _SAVED.fullmatch(path):
            self._stays[path] = _saved()
            return False
        if GAP in (old and old.kind, new and new.kind):
            return self._sort_gap(path, old, new)
        if path in self._yours and not self._overwrite(path):
            self._kept[path] = None
        elif self._seen is not None and path not in self._seen and not self._overwrite(path):
            self._stays[path] = Stay("it changed while it was not captured", removal=new is None, force=True)
        else:
            self._steps[path] = Step(path, old, new)
        return True

    def _sort_gap(self, path: bytes, old: Node | None, new: Node | None) -> bool:
        """Sort a path that was not captured then, or is not now."""
        can_move = old is not None and _is_obstacle(old) and new is not None and new.kind in THERE
        if can_move and self._forced(path):
            self._steps[path] = Step(path, self._moved(path), new)
            return True
        # Behind a gap: captured only now, with its directory, so it may be older than the point.
        if old is None or new is None or old.kind != new.kind:
            gap = old is not None and old.kind == GAP
            self._stays[path] = Stay(_why(old, new), removal=new is None, force=can_move, is_gap=gap)
        return False

    def _forced(self, path: bytes) -> bool:
        return path in self._aside or self._overwrite(path)

    def _returns(self, path: bytes, old: Node | None) -> bool:
        """Whether what was moved aside from a path moves back there: its place is free, or can be."""
        if path not in self._aside or path in self._yours or (old is not None and old.kind not in THERE):
            return False
        return self._at_now(self._aside[path]) is not None

    def _moved(self, path: bytes) -> Node:
        """Return the node for what is moved between a path and a name next to it."""
        name = self._aside.get(path)
        number = 1
        while name is None or name in self._taken:
            name, number = beside(path, b"%d" % number), number + 1
            if self._at_now(name) is not None or at(self._load, self._wanted, name) is not None:
                name = None
        self._taken.add(name)
        return Node(MOVED, 0, 0, name)

    def _name_asides(self) -> None:
        """Name what an operation moved aside and what does not move now."""
        moved = {name for _, name in aside(self._steps.values())}
        for name in self._asides - moved:
            here, there = self._at_now(name), at(self._load, self._wanted, name)
            if not _same(here, there) and self._wants(name):
                self._stays[name] = _saved() if here is not None else Stay("what was moved there is gone")

    # ------------------------------------------------------------------ somebody else's edits

    def _bring_back(self) -> None:
        """Restore somebody else's edits that were changed again since, as they left them."""
        for path, root in self._yours.items():
            if root is None or not self._wants(path) or self._overwrite(path):
                continue
            if path in self._stays or names.leads_into_control(path):
                continue
            old, mine = self._at_now(path), at(self._load, root, path)
            if _same(old, mine):
                self._steps.pop(path, None)
            elif GAP not in (old and old.kind, mine and mine.kind):
                self._steps[path], self._back[path] = Step(path, old, mine), root
                self._kept.pop(path, None)

    # ------------------------------------------------------------------ directories

    def _make_way(self) -> None:
        """Make the directories that steps need; what cannot have its directory stays."""
        for path in sorted(self._steps, key=lambda path: path.count(b"/")):
            step = self._steps[path]
            for above in above_all(path) if step.new is not None else ():
                if not self._will_be_directory(above) and not self._make_directory(above, path):
                    del self._steps[path]
                    self._stays[path] = self._without(above)
                    break

    def _will_be_directory(self, path: bytes) -> bool:
        """Whether a directory is there for what comes; one that was to go stays for it."""
        step = self._steps.get(path)
        return _is_dir(self._at_now(path)) or (step is not None and _is_dir(step.new))

    def _make_directory(self, above: bytes, path: bytes) -> bool:
        """Add a step for a directory that a path needs; False if something has to stay in its place."""
        force, edit = self._overwrite(path), self._back.get(path)
        node = at(self._load, self._wanted if edit is None else edit, above)
        old = self._at_now(above)
        if node is None or node.kind != DIR or above in self._back or names.leads_into_control(above):
            return False
        if (above in self._kept or above in self._stays) and not force:
            return False
        if above not in self._steps and old is not None and not force and edit is None:
            return False  # not among the paths to restore
        if old is not None and old.kind == GAP and not _is_obstacle(old):
            return False
        is_gap = old is not None and old.kind == GAP
        self._steps[above] = Step(above, self._moved(above) if is_gap else old, node)
        if edit is not None:
            self._back[above] = edit
        self._kept.pop(above, None)
        self._stays.pop(above, None)
        return True

    def _without(self, above: bytes) -> Stay:
        """Explain why a path stays whose directory cannot be made."""
        name = names.shown(above)
        if self._at_now(above) is None:
            return Stay(f"someone else removed its directory {name}, which is left alone", force=True)
        if above in self._kept or above in self._back:
            return Stay(f"{name} is in its place, and is left alone", force=True)
        if above in self._stays:
            return Stay(f"{name} is in its place, and stays", force=self._stays[above].force)
        return Stay(f"{name} is in its place, and is not among the paths to restore", force=True)

    def _keep_what_holds(self) -> None:
        """Let directories stay that would still hold something; by force they are moved aside."""
        holding = {above for step in self._steps.values() if step.new is not None for above in above_all(step.path)}
        going = [step for step in self._steps.values() if _is_dir(step.old) and not _is_dir(step.new)]
        for step in sorted(going, key=lambda step: -step.path.count(b"/")):
            path, new = step.path, step.new
            left = path if path in holding else self._left_in(path)
            if left is None:
                continue
            del self._steps[path]
            if new is not None and new.kind in THERE and self._moves_whole(path):
                self._drop_below(path)
                self._steps[path] = Step(path, self._moved(path), new)
                continue
            self._stays[path] = self._held(path, left, new)
            holding.update(above_all(path))

    def _left_in(self, path: bytes) -> bytes | None:
        """Return something that is still in a directory after the steps, or None."""
        node = self._at_now(path)
        for name, each in (self._load(node.content) if node is not None else {}).items():
            inside = path + b"/" + name
            step = self._steps.get(inside)
            if each.kind != ABSENT and inside not in self._taken and (step is None or step.new is not None):
                return inside
        return None

    def _held(self, path: bytes, left: bytes, new: Node | None) -> Stay:
        """Explain why a directory stays that holds something."""
        node = self._at_now(left)
        what = "something that stays"
        if left != path and left in self._kept:
            what = f"{names.shown(left)}, which is left alone"
        elif left != path and node is not None and node.kind == GAP:
            what = f"{names.shown(left)}, which is not captured ({_reason(node)})"
        force = new is not None and new.kind in THERE
        return Stay(f"the directory there now holds {what}" if new else f"it holds {what}", not new, force)

    def _moves_whole(self, path: bytes) -> bool:
        """Whether a directory is moved aside with everything in it."""
        kept = any(each.startswith(path + b"/") for each in (*self._kept, *self._back))
        return self._overwrite(path) or (path in self._aside and not kept)

    def _drop_below(self, path: bytes) -> None:
        """Forget what was decided below a directory that is moved as a whole."""
        prefix = path + b"/"
        for each in (self._steps, self._kept, self._stays, self._refused):
            for inside in [inside for inside in each if inside.startswith(prefix)]:
                del each[inside]

    def _at_now(self, path: bytes) -> Node | None:
        return at(self._load, self._now, path)


def at(load: Load, root: bytes, path: bytes) -> Node | None:
    """Return what is at a path of a tree; nothing is below what was not captured."""
    above, _, name = path.rpartition(b"/")
    folder = tree.find(load, root, above) if above else Node(DIR, 0, 0, root)
    return _there(load(folder.content).get(name)) if folder is not None and folder.kind == DIR else None


def _is_dir(node: Node | None) -> bool:
    return node is not None and node.kind == DIR


def _is_obstacle(node: Node) -> bool:
    """Whether something is in the way that can be moved; a mount point or an open store cannot."""
    return node.kind == GAP and _reason(node) not in gaps.FIXED


def _saved() -> Stay:
    return Stay("an earlier change moved it aside; delete it when you no longer need it", removal=True)


def _reason(gap: Node) -> str:
    return gap.content.decode("utf-8", "replace")


def _why(old: Node | None, new: Node | None) -> str:
    """Explain why a path stays that was not captured then, or is not now."""
    if new is not None and new.kind == GAP:
        return f"it was not captured then ({_reason(new)})"
    return f"what is there now is not captured ({'' if old is None else _reason(old)})"


def is_refused(path: bytes, old: Node | None, new: Node | None) -> bool:
    """Whether a path is left alone because it belongs to a repository; a gap there is merely not captured."""
    there = not THERE.isdisjoint((old and old.kind, new and new.kind))
    return there and names.leads_into_control(path)


def _same(old: Node | None, new: Node | None) -> bool:
    return tree.shown(old) == tree.shown(new)


def _there(node: Node | None) -> Node | None:
    """Return what is at a path; a node that records an absence counts as nothing."""
    return None if node is None or node.kind == ABSENT else node


def above_all(path: bytes) -> Iterable[bytes]:
    """Return the directories that contain a path."""
    parts = path.split(b"/")
    return [b"/".join(parts[:count]) for count in range(1, len(parts))]


def appeared(load: Load, now: bytes, steps: Iterable[Step]) -> Iterator[bytes]:
    """Yield what is in directories that go, but is not part of the plan: it came since the preview."""
    known = {step.path for step in steps}.union(*moves(steps))
    for path, old, new in steps:
        here = at(load, now, path) if _is_dir(old) and not _is_dir(new) else None
        for name in load(here.content) if here is not None and here.kind == DIR else ():
            if path + b"/" + name not in known:
                yield path + b"/" + name


def moves(steps: Iterable[Step]) -> Iterator[tuple[bytes, bytes]]:
    """Yield what is moved aside or back: from where, and to where."""
    for path, old, new in steps:
        if old is not None and old.kind == MOVED:
            yield path, old.content
        if new is not None and new.kind == MOVED:
            yield new.content, path


def action(step: Step | Difference) -> str:
    """Name what a step does."""
    old, new = step.old, step.new
    if new is None:
        return "rmdir" if old is not None and old.kind == DIR else "delete"
    if new.kind == LINK:
        return "link"
    if new.kind == DIR:
        return "chmod" if old is not None and old.kind == DIR else "mkdir"
    if old is None or old.kind == DIR:
        return "create"
    same = old.kind == FILE and old.content == new.content
    return "chmod" if same else "overwrite"
