"""What is a person's stays theirs, whenever they did it: single cases, each on real files."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import takeback
from takeback.files import changes
from takeback.files.disk.apply import Changeset

pytestmark = [pytest.mark.feature("F1"), pytest.mark.promise("R14")]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[takeback.Store]:
    with takeback.open(tmp_path / "s.db") as made:
        yield made


@pytest.fixture
def session(store: takeback.Store, root: Path) -> Iterator[takeback.Session]:
    with store.session("one", workspace=root) as made:
        yield made


def began(session: takeback.Session) -> None:
    session.user("first")
    session.checkpoint("begin")


def after(monkeypatch: pytest.MonkeyPatch, where: object, name: str, then: Callable[[], None]) -> None:
    """Let somebody do something right after a step of a rewind."""
    real = getattr(where, name)

    def both(*args: object) -> object:
        given = real(*args)
        then()
        return given

    monkeypatch.setattr(where, name, both)


@pytest.mark.parametrize("folder", ["build", "named/by/a/rule"])
def test_what_an_agent_only_brings_out_of_an_ignored_directory_is_not_deleted(
    session: takeback.Session, root: Path, folder: str
) -> None:
    (root / ".gitignore").write_text("named\n")
    (root / folder).mkdir(parents=True)
    (root / folder / "mine").write_text("an afternoon")
    began(session)
    with session.tool("shell"):
        (root / ".gitignore").write_text("")
        (root / ".takebackignore").write_text("!build/\n")
        (root / "a").write_text("1")
    plan = session.preview_rewind("begin")
    assert {each.path for each in plan.files} == {".gitignore", ".takebackignore", "a"}
    plan.apply()
    assert (root / folder / "mine").read_text() == "an afternoon"
    assert (root / "a").read_text() == "0"
    session.undo()
    assert (root / folder / "mine").read_text() == "an afternoon"


def test_an_edit_after_a_sub_agent_has_ended_is_kept(session: takeback.Session, root: Path) -> None:
    began(session)
    with session.spawn("work").session as child:
        with child.tool("shell"):
            (root / "a").write_text("1")
            (root / "b").write_text("1")
        child.complete()
    with session.tool("other"):
        pass
    (root / "a").write_text("mine")
    with session.tool("other"):
        pass
    (root / "b").write_text("mine too")
    plan = session.preview_rewind("begin")
    assert plan.kept == ("a", "b")
    plan.apply()
    assert [(root / name).read_text() for name in ("a", "b")] == ["mine", "mine too"]


def test_what_a_sub_agent_is_at_while_others_look_goes_back(session: takeback.Session, root: Path) -> None:
    began(session)
    child = session.spawn("work").session
    with child:
        with child.tool("shell"):
            (root / "a").write_text("half")
            session.capture_files()
            (root / "a").write_text("whole")
        with child.tool("shell"):
            (root / "a").write_text("more")
            session.capture_files()
            assert session.preview_rewind("begin").kept == ()
    plan = session.preview_rewind("begin")
    assert [each.path for each in plan.files] == ["a"]
    assert plan.kept == ()


@pytest.mark.parametrize("conversation", [True, False])
def test_undo_returns_a_path_that_became_what_a_person_had_left(
    session: takeback.Session, root: Path, conversation: bool
) -> None:
    began(session)
    (root / "a").write_text("mine")
    (root / "b").unlink()
    with session.tool("shell"):
        (root / "a").write_text("mine and the agent's")
        (root / "b").mkdir()
        (root / "b" / "new").write_text("1")
    for _ in range(2):
        session.rewind("begin", conversation=conversation)
        assert (root / "a").read_text() == "mine"
        assert not (root / "b").exists()
        session.undo()
        assert (root / "a").read_text() == "mine and the agent's"
        assert (root / "b" / "new").read_text() == "1"
        session.redo()
        assert (root / "a").read_text() == "mine"
        session.undo()
    session.redo()
    (root / "a").write_text("later")
    session.undo()
    assert (root / "a").read_text() == "later"


def test_an_edit_that_keeps_size_and_time_is_seen_until_the_file_is_moved_away(
    session: takeback.Session, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began(session)
    with session.tool("shell"):
        (root / "a").write_text("1")
    seen = (root / "a").stat()

    def edit() -> None:
        (root / "a").write_text("!")
        os.utime(root / "a", ns=(seen.st_atime_ns, seen.st_mtime_ns))

    after(monkeypatch, Changeset, "check", edit)
    with pytest.raises(takeback.Conflict, match="a: it changed"):
        session.rewind("begin")
    assert (root / "a").read_text() == "!"


def test_what_is_written_into_a_file_that_was_moved_away_is_put_beside(
    session: takeback.Session, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began(session)
    with session.tool("shell"):
        (root / "a").write_text("1")
    with (root / "a").open("a") as editor:

        def write() -> None:
            editor.write(" mine")
            editor.flush()

        after(monkeypatch, changes, "_carry_out", write)
        session.rewind("begin")
    (beside,) = root.glob("a.takeback-*")
    assert beside.read_text() == "1 mine"
    assert (root / "a").read_text() == "0"


def test_a_write_through_mmap_is_a_conflict_once(tmp_path: Path, root: Path) -> None:
    (root / "a").write_bytes(b"0" * mmap.PAGESIZE)
    with (
        takeback.open(tmp_path / "s.db") as store,
        store.session("one", workspace=root) as session,
        (root / "a").open("r+b") as file,
        mmap.mmap(file.fileno(), 0) as memory,
    ):
        began(session)
        with session.tool("shell"):
            memory[:1] = b"1"
        time.sleep(0.3)  # until a look trusts what it sees
        session.capture_files()
        memory[:1] = b"!"  # no time changes while the page waits to be written
        try:
            session.rewind("begin")
        except takeback.Conflict:
            session.rewind("begin")
        assert (root / "a").read_bytes()[:1] == b"!"
