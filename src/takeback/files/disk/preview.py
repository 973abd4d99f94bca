"""The plan of a change of files: from what is there to what was there, path by path. Pure: it only compares trees.

What somebody else changed is kept, unless it is named; what was not captured, then or now, is not touched unless it is
named and its content is known; what belongs to a repository is never written, whatever a tree says; nothing is removed
that contains something kept. Each remaining path becomes one step. Whatever should change and does not has its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import NamedTuple

from ...model import names, tree
from ...model.tree import ABSENT, DIR, FILE, GAP, LINK, THERE, Difference, Load, Node
from .apply import Step

Yours = Mapping[bytes, bytes | None]  # somebody else's edits, each with its tree if it is not on disk


class FilePlan(NamedTuple):
    """What would be done, and what is left alone and why."""

    steps: tuple[Step, ...]
    kept: tuple[bytes, ...]  # somebody else's changes
    stays: Mapping[bytes, str]  # what should change and does not, with the reason
    refused: tuple[bytes, ...] = ()  # belong to a repository: never written


def plan(
    load: Load,
    now: bytes,
    wanted: bytes,
    *,
    yours: Yours,
    wants: Callable[[bytes], bool] = lambda path: True,
    overwrite: Callable[[bytes], bool] = lambda path: False,
    seen: Container[bytes] | None = None,
) -> FilePlan:
    """Plan how tree ``now`` becomes tree ``wanted``, except that somebody else's edits end as they left them.

    Only paths that are ``wants`` change, and of those only what was ``seen`` to change since, if that is known: what
    came to be while it was not captured is nobody's to take back.
    """
    steps, kept, stays = dict[bytes, Step](), list[bytes](), dict[bytes, str]()
    refused = dict[bytes, None]()
    gap: bytes | None = None  # the last directory that was not captured; its contents follow directly
    for path, old, new in tree.differences(load, now, wanted):
        old, new = _there(old), _there(new)
        if old == new or not wants(path) or (gap is not None and path.startswith(gap)):
            continue  # behind a gap: captured only now, with its directory, so it may be older than the point
        if is_refused(path, old, new):
            refused[names.control_part(path)] = None
            continue
        if GAP in (old and old.kind, new and new.kind):
            gap = path + b"/"
            if old is None or new is None or old.kind != new.kind:
                stays[path] = _why(old, new)
        elif path in yours and not overwrite(path):
            kept.append(path)
        elif seen is not None and path not in seen and not overwrite(path):
            stays[path] = "it changed while it was not captured"
        else:
            steps[path] = Step(path, old, new)
    fixed = {*stays, *refused, *(path for path in kept if yours[path] is None)}
    edited = {path: root for path, root in yours.items() if root and wants(path) and not overwrite(path)}
    back = _bring_back(load, now, edited, steps, fixed)
    possible = _possible([*steps.values()], fixed, back, stays, load, now)
    return FilePlan(possible, tuple(kept), stays, tuple(refused))


def _why(old: Node | None, new: Node | None) -> str:
    """Explain why a path stays that was not captured then, or is not now."""
    if new is not None and new.kind == GAP:
        return f"not captured then: {new.content.decode('utf-8', 'replace')}"
    reason = "" if old is None else old.content.decode("utf-8", "replace")
    return f"not captured now: {reason}"


def is_refused(path: bytes, old: Node | None, new: Node | None) -> bool:
    """Whether a path is left alone because it belongs to a repository; a gap there is merely not captured."""
    there = not THERE.isdisjoint((old and old.kind, new and new.kind))
    return there and names.leads_into_control(path)


def _bring_back(load: Load, now: bytes, yours: Yours, steps: dict[bytes, Step], fixed: set[bytes]) -> dict[bytes, Node]:
    """Restore somebody else's edits as they left them, with the directories they need; return those nodes."""
    back = dict[bytes, Node]()
    for path, root in yours.items():
        in_the_way = any(above in fixed and not _is_dir(load, now, above) for above in above_all(path))
        if root is None or path in fixed or in_the_way or names.leads_into_control(path):
            continue
        for each in (*above_all(path), path):
            old, mine = _there(tree.find(load, now, each)), _there(tree.find(load, root, each))
            leads = each == path or (mine is not None and mine.kind == DIR and (old is None or old.kind != DIR))
            if leads and not _same(old, mine) and GAP not in (old and old.kind, mine and mine.kind):
                steps[each] = Step(each, old, mine)
            elif leads and each == path:
                steps.pop(each, None)
            if each == path and mine is not None and mine.kind != GAP:
                back[path] = mine
    return back


def _same(old: Node | None, new: Node | None) -> bool:
    return tree.shown(old) == tree.shown(new)


def _there(node: Node | None) -> Node | None:
    """Return what is at a path; a node that records an absence counts as nothing."""
    return None if node is None or node.kind == ABSENT else node


def _possible(
    steps: list[Step], fixed: set[bytes], back: dict[bytes, Node], stays: dict[bytes, str], load: Load, now: bytes
) -> tuple[Step, ...]:
    """Drop steps that would remove or replace a directory of something kept, and those below something kept."""
    holding = {above for path in (*fixed, *back) for above in above_all(path)}
    ends = {path for path, node in back.items() if node.kind != DIR}
    found = list[Step]()
    for step in steps:
        old, new = step.old, step.new
        goes = old is not None and old.kind == DIR and (new is None or new.kind != DIR)
        if goes and (step.path in holding or _has_gaps(load, now, step.path)):
            fixed.add(step.path)
            if new is not None or step.path not in holding:
                stays[step.path] = "it is a directory that holds something kept or not captured"
            continue
        if any(above in fixed and not _is_dir(load, now, above) for above in above_all(step.path)):
            stays[step.path] = "something that is kept is in its place"
            continue
        if new is not None and not ends.isdisjoint(above_all(step.path)):
            stays[step.path] = "something that is kept is in its place"
            continue
        found.append(step)
    return tuple(found)


def _is_dir(load: Load, root: bytes, path: bytes) -> bool:
    node = tree.find(load, root, path)
    return node is not None and node.kind == DIR


def _has_gaps(load: Load, root: bytes, path: bytes) -> bool:
    """Whether something in a directory was not captured: then it cannot be removed."""
    node = tree.find(load, root, path)
    waiting, known = [node.content] if node is not None and node.kind == DIR else [], set[bytes]()
    while waiting:
        known.add(digest := waiting.pop())
        for each in load(digest).values():
            if each.kind == GAP:
                return True
            if each.kind == DIR and each.content not in known:  # equal directories share one digest
                waiting.append(each.content)
    return False


def above_all(path: bytes) -> Iterable[bytes]:
    """Return the directories that contain a path."""
    parts = path.split(b"/")
    return [b"/".join(parts[:count]) for count in range(1, len(parts))]


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
