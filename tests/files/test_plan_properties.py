"""Every path that differs is in exactly one list of a plan, and a plan can be carried out as it stands.

Trees, authors and choices are random. The first test is about the plan alone, the second about real directories.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from takeback.files.disk import preview
from takeback.files.disk._steps import MOVED
from takeback.files.disk.preview import FilePlan
from takeback.model import names, tree
from takeback.model.tree import DIR, FILE, GAP, LINK, Directory, Node

pytestmark = [pytest.mark.feature("F1"), pytest.mark.promise("R14")]

Nested = dict[bytes, Any]  # a directory by its names: nodes, and directories again
_NAMES = [b"a", b"b", b"c.log", b".git", b"a.takeback-1"]


def leaves() -> st.SearchStrategy[Node]:
    files = st.sampled_from([1, 2]).map(lambda each: Node(FILE, 0o644, 1, bytes([each]) * 32))
    gaps = st.sampled_from([b"a pipe", b"ignored", b"another file system"]).map(lambda why: Node(GAP, 0, 0, why))
    return st.one_of(files, files, st.just(Node(LINK, 0, 1, b"a")), gaps)


def trees() -> st.SearchStrategy[Nested]:
    return st.recursive(
        st.dictionaries(st.sampled_from(_NAMES), leaves(), max_size=4),
        lambda inner: st.dictionaries(st.sampled_from(_NAMES), st.one_of(leaves(), inner), max_size=4),
        max_leaves=8,
    )


def some(paths: set[bytes], most: int) -> st.SearchStrategy[list[bytes]]:
    return st.lists(st.sampled_from(sorted(paths)), max_size=most) if paths else st.just([])


class Trees:
    """Directories by their digests."""

    def __init__(self) -> None:
        self._known: dict[bytes, Directory] = {tree.EMPTY: {}}

    def add(self, nested: Nested) -> bytes:
        here = {
            name: Node(DIR, 0o755, 0, self.add(each)) if isinstance(each, dict) else each
            for name, each in nested.items()
        }
        digest = tree.digest(tree.encode(here))
        self._known[digest] = here
        return digest

    def load(self, digest: bytes) -> Directory:
        return self._known[digest]

    def all(self, root: bytes, at: bytes = b"") -> dict[bytes, Node]:
        """Return every path of a tree; directories with their mode only."""
        found = {}
        for name, node in self.load(root).items():
            found[at + name] = node._replace(content=b"") if node.kind == DIR else node
            if node.kind == DIR:
                found |= self.all(node.content, at + name + b"/")
        return found


def is_in(path: bytes, among: list[bytes]) -> bool:
    return any(path == each or path.startswith(each + b"/") for each in among)


def carried_out(now: Mapping[bytes, Node], plan: FilePlan) -> dict[bytes, Node]:
    """Carry out a plan on paths, as ``Changeset`` does on disk: what goes, deepest first, then what comes."""
    left = dict(now)
    for path, old, new in sorted(plan.steps, key=lambda step: -step.path.count(b"/")):
        if old is not None and not (old.kind == DIR and new is not None and new.kind == DIR):
            if old.kind == MOVED:
                assert old.content not in left, "nothing is replaced"
                moved = {each for each in left if is_in(each, [path])}
                left |= {old.content + each[len(path) :]: left[each] for each in moved}
                for each in moved:
                    del left[each]
            else:
                assert not [each for each in left if each.startswith(path + b"/")], "only what is empty goes"
                assert left.pop(path) in (old, old._replace(content=b"") if old.kind == DIR else old)
    for path, _, new in sorted(plan.steps, key=lambda step: step.path.count(b"/")):
        if new is not None:
            above = path.rpartition(b"/")[0]
            assert not above or left[above].kind == DIR, "it has its directory"
            left[path] = new._replace(content=b"") if new.kind == DIR else new
    return left


@pytest.mark.trial("T24", "T28")
@settings(max_examples=300, deadline=None)
@given(st.data(), trees(), trees(), trees(), st.booleans())
def test_every_path_that_differs_is_in_exactly_one_list(
    data: st.DataObject, now: Nested, wanted: Nested, between: Nested, every: bool
) -> None:
    known = Trees()
    now_root, wanted_root, edits = known.add(now), known.add(wanted), known.add(between)
    left, then = known.all(now_root), known.all(wanted_root)
    mine, again = data.draw(some({*left, *then}, 4)), data.draw(some({*left, *then, *known.all(edits)}, 3))
    yours: dict[bytes, bytes | None] = dict.fromkeys(again, edits) | dict.fromkeys(mine)
    forced = data.draw(some({*left, *then}, 2))
    only = [] if every else data.draw(some({*left, *then}, 3))
    plan = preview.plan(
        known.load,
        now_root,
        wanted_root,
        yours=yours,
        wants=lambda path: every or is_in(path, only),
        overwrite=lambda path: is_in(path, forced),
    )
    lists = [{step.path for step in plan.steps}, {*plan.kept}, {*plan.stays}]
    assert sum(map(len, lists)) == len(set.union(*lists)), "no path is in two lists"
    gaps = [path for path in plan.stays if GAP in {each[path].kind for each in (left, then) if path in each}]
    gaps += [path for path in plan.stays if b".takeback-" in path]
    moved = [path for path, old, _ in plan.steps if old is not None and old.kind == MOVED]
    both = [path for path, node in left.items() if node.kind == GAP and path in then and then[path].kind == GAP]
    for path in left.keys() | then.keys():
        if left.get(path) == then.get(path) or not (every or is_in(path, only)):
            continue
        named = any(path in each for each in lists) or names.control_part(path) in plan.refused
        below = any(path.startswith(each + b"/") for each in (*gaps, *moved, *both)) or path in both
        assert named or below, path
    carried_out(left, plan)
