"""R15 for what a plan does besides writing files: moving aside what is in the way, making the workspace again, forking.

The process dies at any step. Afterwards everything is as it was or as it should be, and nothing is lost on the way.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import takeback

from . import _rewinds
from ._harness import ChildDied, in_child, open_through, told
from ._rewinds import CountingVFS, Steps, killing

pytestmark = [pytest.mark.slow, pytest.mark.feature("F1"), pytest.mark.promise("R15")]

Found = dict[str, str]


@pytest.fixture
def place() -> Iterator[Path]:
    with _rewinds.places() as above:
        yield above / "place"


def read(root: Path) -> Found:
    """Return what a directory holds; what cannot be captured by its inode."""
    found: Found = {}
    for path in sorted(root.rglob("*")):
        if path.is_file():
            found[str(path.relative_to(root))] = f"file: {path.read_text()}"
        elif path.is_fifo():
            found[str(path.relative_to(root))] = f"pipe {path.lstat().st_ino}"
        else:
            found[str(path.relative_to(root))] = (
                f"directory {path.lstat().st_ino}" if path.name == "doc" else "directory "
            )
    return found


def make(place: Path) -> Found:
    """Make a session whose call put a pipe and a directory with ignored files in the place of two files."""
    shutil.rmtree(place, ignore_errors=True)
    root = place / "w"
    (root / "src").mkdir(parents=True)
    for name in ("a", "doc", "src/b", "src/c"):
        (root / name).write_text(f"the old {name}")
    (root / ".gitignore").write_text("*.log\n")
    with takeback.open(place / "s.db") as store, store.session("one", workspace=root) as session:
        session.user("first")
        session.checkpoint("then")
        with session.tool("shell"):
            for name in ("a", "doc"):
                (root / name).unlink()
            os.mkfifo(root / "a")
            (root / "doc").mkdir()
            (root / "doc/x.log").write_text("ignored")
            (root / "doc/y").write_text("captured")
            shutil.rmtree(root / "src")
            os.mkfifo(root / "src")
        session.user("second")
    return read(root)


def go(place: Path, what: str, at: int) -> int:
    """Rewind by force, or undo that, and die at a step; return how many there are."""
    steps = Steps(killing(at))
    with open_through(CountingVFS(steps), place / "s.db") as store:
        session = store.get_session("one")
        if what != "rewind":
            session.rewind("then", overwrite="all")
        with steps.watching():
            if what == "rewind":
                session.rewind("then", overwrite="all")
            else:
                session.undo()
    return steps.count


def recovered(place: Path) -> tuple[Found, int]:
    """Use the workspace; return what is in it, and the turns of the session."""
    with takeback.open(place / "s.db") as store:
        session = store.get_session("one")
        session.capture_files()
        assert not store.verify()
        return read(place / "w"), session.refresh().turn_count


def back_and_forth(place: Path, broken: Found) -> None:
    with takeback.open(place / "s.db") as store:
        session = store.get_session("one")
        if session.turn_count == 2:
            session.rewind("then", overwrite="all")
        session.undo()
        assert read(place / "w") == broken
        session.redo()
        session.undo()
        assert read(place / "w") == broken


def killed(work: Callable[..., Any], *args: Any) -> Any:
    try:
        return in_child(work, *args)
    except ChildDied:
        return None


def some(total: int, count: int, seed: int) -> list[int]:
    """Choose steps all over a run."""
    every = range(1, total + 1)
    return [*every] if total <= count else sorted(random.Random(f"plan {seed}").sample(every, count))


@pytest.mark.trial("T24", "T27")
@pytest.mark.parametrize("what", ["rewind", "undo"])
def test_what_is_moved_aside_is_never_lost(
    place: Path, what: str, seed: int, counts: Callable[[int, int], int], tally: Callable[..., int]
) -> None:
    in_child(make, place)
    total = in_child(go, place, what, 0)
    for number, at in enumerate(some(total, counts(5, 1000), seed)):
        with told(seed=seed, step=at, of=total, what=what):
            broken = in_child(make, place)
            aside = {f"{path}.takeback-1": thing for path, thing in broken.items() if path in ("a", "doc", "src")}
            aside |= {f"doc.takeback-1/{name}": broken[f"doc/{name}"] for name in ("x.log", "y")}
            old = {name: f"file: the old {name}" for name in ("a", "doc", "src/b", "src/c")}
            whole = {".gitignore": "file: *.log\n", "src": "directory ", **old, **aside}
            whole["doc.takeback-1"] = "directory "
            killed(go, place, what, at)
            found, turns = in_child(recovered, place)
            assert found == (broken if turns == 2 else whole)
            if number % 4 == 0:
                in_child(back_and_forth, place, broken)
        tally("R15 kills", 1)


# ---------------------------------------------------------------------- a fork into a directory


def make_one_to_fork(place: Path) -> Found:
    shutil.rmtree(place, ignore_errors=True)
    (place / "w/src/deep").mkdir(parents=True)
    for name in ("a", "src/b", "src/deep/c"):
        (place / "w" / name).write_text(name)
    with takeback.open(place / "s.db") as store, store.session("one", workspace=place / "w") as session:
        session.user("first")
        session.checkpoint("then")
    return read(place / "w")


def fork(place: Path, at: int) -> int:
    steps = Steps(killing(at))
    with open_through(CountingVFS(steps), place / "s.db") as store:
        session = store.get_session("one")
        with steps.watching():
            session.fork("then", as_session=True, into=place / "new", idempotency_key="fork")
    return steps.count


def fork_again(place: Path, key: str | None, also: str | None) -> tuple[Found, int]:
    """Make the same call again; return what is in the new directory and how many sessions there are."""
    if also is not None and (place / "new").is_dir():
        (place / "new" / also).write_text("a person's")
    with takeback.open(place / "s.db") as store:
        try:
            store.get_session("one").fork("then", as_session=True, into=place / "new", idempotency_key=key)
        except takeback.Conflict:
            assert also is not None, "only what is somebody else's is in the way"
        assert not store.verify()
        return read(place / "new"), len(store.list_sessions())


@pytest.mark.trial("T29")
def test_a_killed_fork_into_a_directory_is_taken_up_by_the_same_call(
    place: Path, seed: int, counts: Callable[[int, int], int], tally: Callable[..., int]
) -> None:
    in_child(make_one_to_fork, place)
    total = in_child(fork, place, 0)
    for number, at in enumerate(some(total, counts(6, 1000), seed)):
        with told(seed=seed, step=at, of=total):
            whole = in_child(make_one_to_fork, place)
            if number % 3 == 0:
                (place / "new").mkdir()
            killed(fork, place, at)
            if number % 5 == 4:  # somebody puts a file there before the next call: it stays, and is in the way
                found, sessions = in_child(fork_again, place, "fork", "mine")
                mine = {"mine": "file: a person's"}
                assert (found, sessions) in ((mine, 1), ({**whole, **mine}, 2))
            else:
                assert in_child(fork_again, place, "fork", None) == [whole, 2]
        tally("R15 kills", 1)
