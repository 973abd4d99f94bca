"""A plan that tells all, and an apply that does it: what is in the way, what stays and why, a workspace gone."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from _folders import look

import takeback
from takeback import Conflict, Unsupported

pytestmark = [pytest.mark.feature("F1"), pytest.mark.promise("R14")]

_NOBODY = 65534


@pytest.fixture
def store(tmp_path: Path) -> Iterator[takeback.Store]:
    with takeback.open(tmp_path / "s.db") as made:
        yield made


@pytest.fixture
def session(store: takeback.Store, root: Path) -> Iterator[takeback.Session]:
    (root / ".gitignore").write_text("*.log\n")
    (root / "keep.txt").write_text("the old content")
    (root / "folder").mkdir()
    (root / "folder/x").write_text("x")
    with store.session("one", workspace=root, capture=takeback.Capture(largest_file=10_000)) as made:
        made.user("first")
        made.checkpoint("begin")
        yield made


def as_fifo(root: Path, name: str) -> None:
    os.mkfifo(root / name)


def as_socket(root: Path, name: str) -> None:
    here = os.getcwd()
    os.chdir(root)  # the name of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(name)
    finally:
        os.chdir(here)


def as_large(root: Path, name: str) -> None:
    (root / name).write_bytes(b"x" * 10_001)


def as_directory(root: Path, name: str) -> None:
    (root / name).mkdir()
    (root / name / "a.log").write_text("ignored")
    (root / name / "captured").write_text("captured")


OBSTACLES = [as_fifo, as_socket, as_large, as_directory]


def remove(path: Path) -> None:
    (shutil.rmtree if path.is_dir() else os.unlink)(path)


def inode(path: Path) -> int:
    return path.lstat().st_ino


# ---------------------------------------------------------------------- what is in the way


@pytest.mark.trial("T24", "T27")
@pytest.mark.parametrize("name", ["keep.txt", "folder"])
@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_what_is_in_the_way_is_named_and_by_force_moved_aside_and_back(
    session: takeback.Session, root: Path, obstacle: Callable[[Path, str], None], name: str
) -> None:
    if (obstacle, name) == (as_directory, "folder"):
        return  # a directory is not in the way of one
    before = look(root)
    with session.tool("shell"):
        remove(root / name)
        obstacle(root, name)
    broken, own = look(root), inode(root / name)

    plan = session.preview_rewind("begin")
    assert name in plan.stays
    assert plan.moved == {}
    assert f"overwrite=['{name}'] restores it" in str(plan)
    plan.apply()
    assert inode(root / name) == own, "what was not captured is not replaced"
    session.undo()
    assert look(root) == broken

    for overwrite in ([name], "all"):
        plan = session.preview_rewind("begin", overwrite=overwrite)
        aside = plan.moved[name]
        assert name not in plan.stays
        assert f"{name} is not captured, so it moves to {aside}" in str(plan)
        done = plan.apply()
        assert aside in done.paths
        assert look(root, but=(os.fsencode(aside),)).items() >= before.items()
        assert inode(root / aside) == own
        back = session.preview_undo()
        assert back.moved == {aside: name}
        assert f"{aside} moves back to {name}" in str(back)
        session.undo()
        assert look(root) == broken
        assert inode(root / name) == own
        assert session.preview_redo().moved == {name: aside}
        session.redo()
        assert inode(root / aside) == own
        assert look(root, but=(os.fsencode(aside),)).items() >= before.items()
        session.undo()
        assert (look(root), inode(root / name)) == (broken, own)


@contextmanager
def unprivileged(root: Path) -> Iterator[None]:
    """Run as somebody who may not read everything; root may."""
    if os.geteuid() != 0:
        yield
        return
    for path in (root, *root.rglob("*")):
        os.chown(path, _NOBODY, _NOBODY)
    os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.trial("T27")
def test_a_file_that_lost_its_permissions_is_moved_aside_and_back(store: takeback.Store) -> None:
    root = Path(tempfile.mkdtemp(prefix="takeback-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    try:
        (root / "keep.txt").write_text("the old content")
        with store.session("one", workspace=root) as session:
            session.user("first")
            session.checkpoint("begin")
            session.rewind("begin", overwrite="all")  # loads every module while all of them can be read
            with unprivileged(root):
                with session.tool("shell"):
                    (root / "keep.txt").write_text("new")
                    (root / "keep.txt").chmod(0)
                assert "unreadable" in session.preview_rewind("begin").stays["keep.txt"]
                session.rewind("begin", overwrite="all")
                assert (root / "keep.txt").read_text() == "the old content"
                session.undo()
                assert stat.S_IMODE((root / "keep.txt").stat().st_mode) == 0
            assert sorted(os.listdir(root)) == ["keep.txt"]
    finally:
        shutil.rmtree(root)


@pytest.mark.trial("T24")
def test_a_name_that_is_taken_is_not_used_to_move_something_aside(session: takeback.Session, root: Path) -> None:
    (root / "keep.txt.takeback-1").write_text("a person's")
    with session.tool("shell"):
        remove(root / "keep.txt")
        as_fifo(root, "keep.txt")
    assert session.preview_rewind("begin", overwrite="all").moved == {"keep.txt": "keep.txt.takeback-2"}
    plan = session.preview_rewind("begin", overwrite="all")
    (root / "keep.txt.takeback-2").write_text("just now")
    with pytest.raises(Conflict, match=r"keep\.txt\.takeback-2"):
        plan.apply()
    assert (root / "keep.txt.takeback-2").read_text() == "just now"
    assert stat.S_ISFIFO((root / "keep.txt").lstat().st_mode)


@pytest.mark.trial("T24")
def test_no_later_rewind_removes_what_was_moved_aside(session: takeback.Session, root: Path) -> None:
    with session.tool("shell"):
        remove(root / "keep.txt")
        as_directory(root, "keep.txt")
    session.rewind("begin", overwrite=["keep.txt"])
    with session.tool("shell"):
        (root / "folder/x").write_text("y")
    plan = session.preview_rewind("begin", overwrite="all")
    assert "moved it aside" in plan.stays["keep.txt.takeback-1"]
    plan.apply()
    assert (root / "folder/x").read_text() == "x"
    assert (root / "keep.txt.takeback-1/captured").read_text() == "captured"


@pytest.mark.trial("T24")
def test_an_edit_of_what_came_back_is_kept_and_what_was_moved_aside_stays_there(
    session: takeback.Session, root: Path
) -> None:
    with session.tool("shell"):
        remove(root / "keep.txt")
        as_fifo(root, "keep.txt")
    session.rewind("begin", overwrite="all")
    (root / "keep.txt").write_text("a person's")
    plan = session.preview_undo()
    assert plan.moved == {}
    assert plan.stays.keys() == {"keep.txt", "keep.txt.takeback-1"}
    session.undo()
    assert (root / "keep.txt").read_text() == "a person's"
    assert stat.S_ISFIFO((root / "keep.txt.takeback-1").lstat().st_mode)


# ---------------------------------------------------------------------- what should come back and does not


@pytest.mark.trial("T28")
def test_a_file_whose_directory_a_person_renamed_is_named(session: takeback.Session, root: Path) -> None:
    (root / "folder/y").write_text("y")
    session.user("seen")
    point = session.refresh().head.seq
    with session.tool("shell"):
        (root / "folder/x").unlink()
    (root / "folder").rename(root / "renamed")
    plan = session.preview_rewind(point)
    assert plan.files == ()
    assert "someone else removed its directory 'folder'" in plan.stays["folder/x"]
    assert "folder/x does not come back: " in str(plan)
    session.rewind(point, overwrite=["folder/x"])
    assert (root / "folder/x").read_text() == "x"
    assert (root / "renamed/y").read_text() == "y"
    assert not (root / "folder/y").exists()


def test_paths_bring_the_directories_that_they_need(session: takeback.Session, root: Path) -> None:
    (root / "folder/deep").mkdir()
    (root / "folder/deep/z").write_text("z")
    session.checkpoint("deep")
    with session.tool("shell"):
        shutil.rmtree(root / "folder")
    session.rewind("deep", paths=["folder/deep/z"])
    assert sorted(os.listdir(root / "folder")) == ["deep"]
    assert (root / "folder/deep/z").read_text() == "z"


def test_a_directory_that_holds_something_kept_is_named(session: takeback.Session, root: Path) -> None:
    with session.tool("shell"):
        (root / "new").mkdir()
        (root / "new/made").write_text("1")
    (root / "new/mine").write_text("a person's")
    plan = session.preview_rewind("begin")
    assert plan.kept == ("new/mine",)
    assert "new is not removed: it holds 'new/mine', which is left alone" in str(plan)
    plan.apply()
    assert sorted(os.listdir(root / "new")) == ["mine"]


# ---------------------------------------------------------------------- what people read


@pytest.mark.trial("T30", "T38", "T40")
def test_the_plan_names_the_directory_first_and_cuts_no_list_in_silence(session: takeback.Session, root: Path) -> None:
    with session.tool("shell"):
        for number in range(60):
            (root / f"{number}.log").write_text("ignored")
            (root / f"made{number}").write_text("")
            (root / f"over{number}").write_text("")
    for number in range(60):
        (root / f"over{number}").write_text("a person's")
        (root / f"person{number}").write_text("a person's")
    lines = str(session.preview_rewind("begin")).splitlines()
    assert lines[1] == f"  in            {root}"
    assert sum("... and " in line for line in lines) == 3
    assert "                ... and 40 more" in lines
    assert "  kept          ! ... and 100 more" in lines
    assert "  stays         ! ... and 40 more" in lines
    with session.tool("shell"):
        pass
    session.checkpoint("now")
    (root / "0.log").write_text("changed")
    text = str(session.preview_rewind("now"))
    assert "not captured  0.log (ignored); it does not come back" in text
    assert "not captured  ... and 55 more" in text


@pytest.mark.trial("T37")
def test_a_plan_past_two_runs_names_the_second_and_takes_it_back_when_asked(
    store: takeback.Store, session: takeback.Session, root: Path
) -> None:
    with session.tool("shell"):
        (root / "keep.txt").write_text("by the first")
    with store.session("two", workspace=root) as second:
        second.user("go on")
        with second.tool("shell"):
            (root / "keep.txt").write_text("by the second")
            (root / "more").write_text("by the second")
    plan = session.preview_rewind("begin")
    assert (plan.files, plan.others) == ((), ("keep.txt", "more"))
    text = str(plan)
    assert "keep.txt changed later by shell of session 'two', left alone (overwrite=['keep.txt'] restores it, " in text
    assert f"sessions=['{second.id}'] all that session changed)" in text
    assert "(overwrite=['more'] deletes it" in text
    session.rewind("begin", sessions=[second])
    assert (root / "keep.txt").read_text() == "the old content"
    assert not (root / "more").exists()
    session.undo()
    assert (root / "more").read_text() == "by the second"


# ---------------------------------------------------------------------- a workspace that is gone


@pytest.mark.trial("T21")
def test_a_workspace_that_the_agent_deleted_is_made_again(session: takeback.Session, root: Path) -> None:
    root.chmod(0o750)
    session.user("the mode is seen")
    session.checkpoint("whole")
    before = look(root)
    with session.tool("shell"):
        shutil.rmtree(root)
    plan = session.preview_rewind("begin")
    assert plan.kept == ()
    assert {each.path for each in plan.files} == {os.fsdecode(path) for path in before}
    plan.apply()
    assert look(root) == before
    assert stat.S_IMODE(root.stat().st_mode) == 0o750
    session.undo()
    assert os.listdir(root) == [], "the directory itself stays: somebody may be in it"
    session.redo()
    assert look(root) == before
    shutil.rmtree(root)
    session.user("deleted by a person")
    plan = session.preview_rewind("begin")
    assert (plan.files, set(plan.kept)) == ((), {os.fsdecode(path) for path in before})
    session.rewind("begin", overwrite="all")
    assert look(root) == before


@pytest.mark.trial("T21", "T32")
def test_a_workspace_that_comes_back_before_the_plan_is_applied_is_a_conflict(
    session: takeback.Session, root: Path
) -> None:
    with session.tool("shell"):
        shutil.rmtree(root)
    plan = session.preview_rewind("begin")
    root.mkdir()
    with pytest.raises(Conflict, match="different directory"):
        plan.apply()
    assert os.listdir(root) == []
    assert session.refresh().turn_count == 1
    session.rewind("begin")
    assert (root / "keep.txt").read_text() == "the old content"


@pytest.mark.trial("T32")
def test_a_workspace_that_was_replaced_by_an_equal_one_is_a_conflict(session: takeback.Session, root: Path) -> None:
    with session.tool("shell"):
        (root / "keep.txt").write_text("changed")
    plan = session.preview_rewind("begin")
    root.rename(root.with_name("original"))
    shutil.copytree(root.with_name("original"), root, symlinks=True)
    with pytest.raises(Conflict, match="different directory"):
        plan.apply()
    assert (root / "keep.txt").read_text() == "changed"


@pytest.mark.trial("T21")
@pytest.mark.parametrize("is_file", [True, False])
def test_no_conversation_moves_where_its_files_cannot(store: takeback.Store, tmp_path: Path, is_file: bool) -> None:
    root = tmp_path / "above/root"
    root.mkdir(parents=True)
    (root / "a").write_text("a")
    session = store.create_session("elsewhere", workspace=root)
    session.user("first")
    session.checkpoint("begin")
    with session.tool("shell"):
        (root / "a").write_text("b")
    session.user("second")
    shutil.rmtree(root.parent)
    if is_file:
        root.parent.mkdir()
        root.write_text("a file now")
    why = "it is not a directory" if is_file else "it is gone, and so is the directory that contained it"
    assert session.preview_rewind("begin").not_captured == (f"{root} ({why})",)
    for move in (session.preview_rewind("begin").apply, lambda: session.rewind("begin")):
        with pytest.raises(Unsupported, match=f"{why}.*files=False"):
            move()
    assert session.refresh().turn_count == 2
    session.rewind("begin", files=False)
    assert session.refresh().turn_count == 1


# ---------------------------------------------------------------------- between preview and apply


@pytest.mark.trial("T25")
def test_only_the_paths_of_the_plan_are_compared_again(session: takeback.Session, root: Path) -> None:
    (root / "written.all.the.time").write_text("")
    session.user("seen")
    point = session.refresh().head.seq
    for number in range(20):
        with session.tool("shell"):
            (root / "keep.txt").write_text(f"{number}")
        plan = session.preview_rewind(point, conversation=False)
        with (root / "written.all.the.time").open("a") as file:
            file.write("more\n")
        plan.apply()
        assert (root / "keep.txt").read_text() == "the old content"
    assert len((root / "written.all.the.time").read_text().splitlines()) == 20


@pytest.mark.trial("T25")
def test_a_file_that_appears_in_a_directory_that_goes_is_a_conflict_that_names_it(
    session: takeback.Session, root: Path
) -> None:
    with session.tool("shell"):
        (root / "new/deep").mkdir(parents=True)
        (root / "new/made").write_text("1")
    plan = session.preview_rewind("begin")
    (root / "new/deep/mine").write_text("a person's")
    with pytest.raises(Conflict, match="new/deep/mine"):
        plan.apply()
    assert (root / "new/made").read_text() == "1", "nothing was changed"
    plan = session.preview_rewind("begin")
    assert plan.kept == ("new/deep/mine",)
    plan.apply()
    assert (root / "new/deep/mine").read_text() == "a person's"
    assert not (root / "new/made").exists()
