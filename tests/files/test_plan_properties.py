"""Every path that differs is in exactly one list of a plan, and a plan can be carried out as it stands.

Trees, authors and choices are random. The first test is about the plan alone, the second about real directories.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from _folders import look
from _hands import RULES, Hand, is_ignored
from hypothesis import given, settings
from hypothesis import strategies as st

import takeback
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
@settings(max_examples=200, deadline=None)
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


# ---------------------------------------------------------------------- real directories


@contextmanager
def places() -> Iterator[Path]:
    """Return a directory in memory where there is such a thing."""
    made = Path(tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    try:
        yield made
    finally:
        for at, _, _ in os.walk(made):
            os.chmod(at, 0o700)
        shutil.rmtree(made)


def put_a_pipe(root: Path, rng: random.Random) -> None:
    """Put something that cannot be captured in the place of a file or a directory."""
    path = Hand(root, rng).some(rng.choice(("file", "folder")))
    if path is not None and not is_ignored(path):  # somebody may write to an ignored one, and would wait for a reader
        shutil.rmtree(path, ignore_errors=True)
        with suppress(OSError):
            os.unlink(path)
            os.mkfifo(path)


def work(session: takeback.Session, root: Path, rng: random.Random) -> None:
    """Let the agent and a person change files, the agent more often."""
    hand = Hand(root, rng)
    for _ in range(rng.randrange(1, 4)):
        with session.tool("shell"):
            for _ in range(rng.randrange(1, 4)):
                hand.act()
            if rng.random() < 0.3:
                put_a_pipe(root, rng)
        if rng.random() < 0.5:
            hand.act()
            session.user("seen" if rng.random() < 0.5 else "and again")


@pytest.mark.trial("T24", "T28")
@settings(max_examples=12, deadline=None)
@given(st.integers(0, 1 << 30))
def test_a_plan_names_every_path_that_differs_and_does_what_it_says(seed: int) -> None:
    rng = random.Random(seed)
    with places() as place, takeback.open(place / "s.db") as store:
        root = place / "w"
        root.mkdir()
        (root / ".gitignore").write_bytes(RULES)
        for _ in range(8):
            Hand(root, rng).act()
        with store.session("one", workspace=root) as session:
            session.user("first")
            session.checkpoint("then")
            then = look(root)
            work(session, root, rng)
            before = look(root)
            forced = [os.fsdecode(path) for path in (*then, *before) if rng.random() < 0.1 and not is_ignored(path)]
            overwrite: Any = "all" if rng.random() < 0.3 else forced
            plan = session.preview_rewind("then", conversation=False, overwrite=overwrite)
            lists = [{each.path for each in plan.files}, {*plan.kept}, {*plan.others}, {*plan.unclear}, {*plan.stays}]
            named = set.union(*lists)
            assert sum(map(len, lists)) == len(named), "no path is in two lists"
            missed = {each.rpartition(" (")[0].rstrip("/") for each in plan.not_captured}
            for path in then.keys() | before.keys():
                name = os.fsdecode(path)
                if then.get(path) != before.get(path) and not is_ignored(path):
                    within = [os.fsencode(each) for each in (*plan.stays, *plan.moved)]  # it stays or moves as a whole
                    assert name in named | missed or is_in(path, within), name
            plan.apply()
            after = look(root)
            for change in plan.files:
                path = os.fsencode(change.path)
                if path not in plan._plan.back:
                    assert after.get(path) == then.get(path), change
            for name in (*plan.kept, *plan.stays):
                path = os.fsencode(name)
                assert after.get(path) == before.get(path), name
            made = after.keys() - before.keys() - then.keys() - plan._plan.back
            assert all(is_in(path, [os.fsencode(name) for name in plan.moved.values()]) for path in made)
            if plan.files:
                session.undo()
                assert look(root) == before
                session.redo()
                assert look(root) == after


# ---------------------------------------------------------------------- undo and redo


@pytest.mark.trial("T42")
@settings(max_examples=8, deadline=None)
@given(st.integers(0, 1 << 30))
def test_redo_is_the_exact_inverse_of_undo(seed: int) -> None:
    """Several rewinds of files alone, with edits between them; then all undone, and all done again."""
    rng = random.Random(seed)
    with places() as place, takeback.open(place / "s.db") as store, _run(store, place / "w") as session:
        root, points, rewinds = place / "w", [session.head.seq], 0
        for _ in range(14):
            act = rng.choice(("agent", "agent", "person", "rewind", "rewind", "point"))
            if act == "agent":
                with session.tool("shell"):
                    _edit(root, rng, "agent")
            elif act == "person":
                _edit(root, rng, "person")
            elif act == "point":
                session.user("go on")
                points.append(session.refresh().head.seq)
            else:
                before = look(root)
                overwrite: Any = "all" if rng.random() < 0.3 else ()
                made = session.rewind(rng.choice(points), conversation=False, overwrite=overwrite)
                after = look(root)
                if made.paths:
                    rewinds += 1
                    session.undo()
                    assert look(root) == before
                    session.redo()
                    assert look(root) == after
        states = [look(root)]
        for _ in range(rewinds):
            _person(root, rng)
            session.undo()
            states.append(look(root))
        for number in range(1, rewinds + 1):
            mine = _person(root, rng)
            session.redo()
            assert _others(look(root)) == _others(states[-1 - number]), f"redo {number} of {rewinds}"
            assert look(root).get(b"mine") == mine
        for number in range(1, rewinds + 1):
            session.undo()
            assert _others(look(root)) == _others(states[number])


@contextmanager
def _run(store: takeback.Store, root: Path) -> Iterator[takeback.Session]:
    root.mkdir()
    for name in ("a", "b"):
        (root / name).write_text("0")
    with store.session("one", workspace=root) as session:
        session.user("first")
        yield session.refresh()


def _edit(root: Path, rng: random.Random, who: str) -> None:
    path = root / rng.choice(("a", "b", "c", "d/x", "d/y"))
    if rng.random() < 0.3:
        path.unlink(missing_ok=True)
    else:
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{who} {rng.randrange(99)}")


def _person(root: Path, rng: random.Random) -> Any:
    """Let a person change a file that nobody else knows; return what is there now."""
    if rng.random() < 0.5:
        _edit_mine(root / "mine", rng)
    return look(root).get(b"mine")


def _edit_mine(path: Path, rng: random.Random) -> None:
    if path.exists() and rng.random() < 0.3:
        path.unlink()
    else:
        path.write_text(f"a person's {rng.random()}")


def _others(found: dict[bytes, Any]) -> dict[bytes, Any]:
    return {path: thing for path, thing in found.items() if path != b"mine"}
