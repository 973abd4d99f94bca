"""Single cases of rewind that random walks found, each as short as it can be."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import takeback

pytestmark = [pytest.mark.feature("F1"), pytest.mark.promise("R14")]


@pytest.fixture
def session(tmp_path: Path, root: Path) -> Iterator[takeback.Session]:
    with takeback.open(tmp_path / "s.db") as store, store.session("one", workspace=root) as made:
        made.user("first")
        made.checkpoint("begin")
        yield made


def names(root: Path) -> list[str]:
    return sorted(os.listdir(root))


def test_a_look_at_some_paths_after_a_rewind_does_not_bring_back_what_it_took(
    session: takeback.Session, root: Path
) -> None:
    with session.tool("shell"):
        (root / "b").write_text("1")
        (root / "new").write_text("1")
    session.rewind("begin")
    with session.tool("write", paths=["a"]):
        (root / "a").write_text("2")
    point = session.refresh().head.seq
    with session.tool("shell"):
        (root / "a").write_text("3")
    session.rewind(point)
    assert names(root) == ["a", "b"]
    assert [(root / name).read_text() for name in names(root)] == ["2", "0"]


def test_a_look_at_some_paths_after_a_rewind_takes_its_work_for_nobodys_edit(
    session: takeback.Session, root: Path
) -> None:
    with session.tool("shell"):
        (root / "new").write_text("1")
    session.checkpoint("made")
    session.rewind("begin")
    with session.tool("write", paths=["a"]):
        (root / "a").write_text("2")
    planned = session.preview_rewind("made")
    assert planned.kept == ()
    planned.apply()
    assert names(root) == ["a", "b", "new"]


def test_an_edit_that_is_kept_does_not_make_way_for_an_older_one(session: takeback.Session, root: Path) -> None:
    with session.tool("shell"):
        (root / "d").mkdir()
        (root / "d/x").write_text("0")
    session.checkpoint("a directory")
    (root / "d/x").write_text("a person's")
    session.user("the edit is seen")
    with session.tool("shell"):
        shutil.rmtree(root / "d")
        (root / "d").write_text("a file now")
    (root / "d").write_text("a person's too")
    session.rewind("a directory")
    assert (root / "d").is_file()
    assert (root / "d").read_text() == "a person's too"


def test_an_edit_that_a_rewind_kept_is_still_somebody_elses_after_a_checkpoint(
    session: takeback.Session, root: Path
) -> None:
    with session.tool("shell"):
        (root / "a").write_text("1")
    (root / "b").write_text("a person's")
    session.rewind("begin")
    assert (root / "b").read_text() == "a person's"
    session.checkpoint("kept")
    with session.tool("shell"):
        (root / "a").write_text("2")
    session.rewind("begin")
    assert (root / "b").read_text() == "a person's"


def test_a_mode_goes_back_that_two_names_of_one_file_share(session: takeback.Session, root: Path) -> None:
    with session.tool("shell"):
        os.link(root / "a", root / "also a")
    session.checkpoint("linked")
    with session.tool("shell"):
        (root / "a").chmod(0o600)
    session.rewind("linked")
    assert {(root / name).stat().st_mode & 0o777 for name in ("a", "also a")} == {0o644}


def test_a_mode_goes_back_for_one_name_of_a_file_only(session: takeback.Session, root: Path, tmp_path: Path) -> None:
    """The agent makes two equal files one; in the second case the other name is outside the workspace."""
    outside = tmp_path / "outside"
    outside.write_text("0")
    outside.chmod(0o644)
    (root / "a").chmod(0o600)
    session.user("a is private")
    session.checkpoint("private")
    with session.tool("shell"):
        (root / "a").unlink()
        os.link(outside, root / "a")
    session.rewind("private")
    assert (root / "a").stat().st_mode & 0o777 == 0o600
    assert outside.stat().st_mode & 0o777 == 0o644


def test_undo_takes_back_a_rewind_to_another_branch_exactly(session: takeback.Session, root: Path) -> None:
    (root / "b").write_text("a person's")
    session.user("the edit is seen")
    session.checkpoint("edited")
    session.rewind("begin", overwrite=["b"])
    assert (root / "b").read_text() == "0"
    session.rewind("edited")
    assert (root / "b").read_text() == "a person's"
    session.undo()
    assert (root / "b").read_text() == "0"


def test_a_file_that_a_rewind_kept_and_a_person_then_deleted_stays_deleted(
    session: takeback.Session, root: Path
) -> None:
    with session.tool("shell"):
        (root / "a").write_text("1")
    (root / "mine").write_text("a person's")
    session.rewind("begin")
    (root / "mine").unlink()
    session.undo()
    assert names(root) == ["a", "b"]


def test_a_file_that_a_person_made_in_a_directory_of_the_agent_holds_it(session: takeback.Session, root: Path) -> None:
    """Also if the agent changed it again: it comes back as the person left it."""
    with session.tool("shell"):
        (root / "d").mkdir()
        (root / "d/agent's").write_text("1")
    (root / "d/mine").write_text("a person's")
    session.user("the edit is seen")
    with session.tool("shell"):
        (root / "d/mine").write_text("changed again")
    session.rewind("begin")
    assert names(root / "d") == ["mine"]
    assert (root / "d/mine").read_text() == "a person's"


def test_a_directory_that_replaced_a_file_stays_for_what_a_person_put_into_it(
    session: takeback.Session, root: Path
) -> None:
    with session.tool("shell"):
        (root / "a").unlink()
        (root / "a").mkdir()
    (root / "a/mine").write_text("a person's")
    session.user("the edit is seen")
    with session.tool("shell"):
        (root / "a/mine").write_text("changed again")
    session.rewind("begin")
    assert (root / "a/mine").read_text() == "a person's"


def test_what_was_in_a_directory_does_not_come_back_into_a_persons_file(session: takeback.Session, root: Path) -> None:
    with session.tool("shell"):
        (root / "d").mkdir()
        (root / "d/in").write_text("0")
    session.checkpoint("a directory")
    with session.tool("shell"):
        shutil.rmtree(root / "d")
        (root / "d").write_text("1")
    (root / "d").write_text("a person's")
    session.user("the edit is seen")
    with session.tool("shell"):
        (root / "d").write_text("changed again")
    session.rewind("a directory")
    assert (root / "d").read_text() == "a person's"


def test_what_another_store_undid_is_seen_by_a_look_at_other_paths(tmp_path: Path, root: Path) -> None:
    with takeback.open(tmp_path / "s.db") as store, takeback.open(tmp_path / "s.db") as other:
        session = store.session("one", workspace=root)
        with session:
            session.user("first")
            point = session.checkpoint("begin")
            with session.tool("shell"):
                (root / "a").write_text("22")
                (root / "new").write_text("22")
            session.rewind(point)
        other.get_session(session.id).undo()
        with session.refresh(), session.tool("write", paths=["c"]) as running:
            (root / "c").write_text("3")
            message = running.result("ok")
        assert [session.file_at(name, message) for name in ("a", "new", "c")] == [b"22", b"22", b"3"]


def test_a_file_in_the_place_of_an_ignored_directory_is_captured(session: takeback.Session, root: Path) -> None:
    (root / ".gitignore").write_text("build/\n")
    (root / "build").mkdir()
    session.checkpoint("ignored")
    with session.tool("shell"):
        (root / "build").rmdir()
        (root / "build").write_text("good")
    session.checkpoint("a file")
    with session.tool("shell"):
        (root / "build").write_text("BROKEN")
    session.rewind("a file")
    assert (root / "build").read_text() == "good"


def test_a_switch_with_files_is_another_request_than_one_without(session: takeback.Session, root: Path) -> None:
    session.fork(name="side")
    with session.tool("shell"):
        (root / "a").write_text("main")
    session.switch("side", files=True, idempotency_key="k")
    assert (root / "a").read_text() == "0"
    session.switch("main", files=True)
    assert (root / "a").read_text() == "main"
    with pytest.raises(takeback.Conflict):
        session.switch("side", idempotency_key="k")
