"""Two sessions in one directory, in the ways that went wrong when somebody tried to break it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from _folders import ENVIRONMENT

import takeback

pytestmark = [pytest.mark.feature("F1", "F14"), pytest.mark.trial("T36")]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    (root / "src").mkdir(parents=True)
    (root / "a").write_text("0")
    (root / "src" / "m.py").write_text("b")
    return root


def write(session: takeback.Session, root: Path, path: str, text: str) -> None:
    with session.tool("write", {}):
        (root / path).write_text(text)


def test_a_session_that_was_rewound_before_leaves_alone_what_another_one_made(
    store: takeback.Store, work: Path
) -> None:
    one, two = store.session("one", workspace=work), store.session("two", workspace=work)
    one.user("go")
    point = one.assistant("ok")
    one.user("more")
    write(one, work, "own", "1")
    one.rewind(point)
    two.user("go")
    with two.tool("bash", {"command": "make"}):
        (work / "report").write_text("important")
        one.user("next")  # its scan finds what the other one made
    plan = one.preview_rewind(point)
    assert (plan.others, [each.path for each in plan.files]) == (("report",), [])
    one.rewind(point)
    one.undo()
    assert (work / "report").read_text() == "important"


def test_a_fork_takes_back_what_it_did_before_it_was_one(store: takeback.Store, work: Path) -> None:
    one = store.session("one", workspace=work)
    one.user("go")
    point = one.checkpoint()
    write(one, work, "a", "1")
    fork = one.fork(as_session=True, name="fork")
    assert [each.path for each in fork.preview_rewind(point.head.seq).files] == ["a"]


def test_a_session_in_the_trash_that_is_still_at_work_is_a_candidate(store: takeback.Store, work: Path) -> None:
    one, two = store.create_session("one", workspace=work), store.create_session("two", workspace=work)
    two.user("go")
    point = two.checkpoint()
    run = one.tool("bash", {"command": "make"})
    run.__enter__()
    store.delete_session(one)
    with two.tool("bash", {"command": "make"}):
        (work / "w").write_text("by one")
    assert [*two.preview_rewind(point).unclear] == ["w"]


def test_a_word_that_is_the_name_of_a_directory_is_no_proof(store: takeback.Store, work: Path) -> None:
    one, two = store.create_session("one", workspace=work), store.create_session("two", workspace=work)
    one.user("go")
    point = one.checkpoint()
    with one.tool("search", {"question": "what does src do?"}), two.tool("bash", {"command": "make"}):
        (work / "src" / "m.py").write_text("formatted")
    assert [*one.preview_rewind(point).unclear] == ["src/m.py"]


def test_an_argument_that_is_a_directory_stands_for_what_is_in_it(store: takeback.Store, work: Path) -> None:
    one, two = store.create_session("one", workspace=work), store.create_session("two", workspace=work)
    one.user("go")
    point = one.checkpoint()
    with one.tool("format", {"folder": "src"}), two.tool("bash", {"command": "make"}):
        (work / "src" / "m.py").write_text("formatted")
    assert [each.path for each in one.preview_rewind(point).files] == ["src/m.py"]


def test_a_scan_of_another_timeline_is_refused_and_of_a_moved_directory_is_not(
    tmp_path: Path, store: takeback.Store, work: Path
) -> None:
    write(store.create_session("one", workspace=work), work, "a", "1")
    scan = store.workspace(work).timeline()[-1]
    other = store.scoped("other")
    write(other.create_session("one", workspace=work), work, "a", "2")
    with pytest.raises(takeback.Invalid, match="another timeline"):
        other.workspace(work).preview_rewind(scan)
    moved = work.rename(tmp_path / "moved")
    assert [each.path for each in store.workspace(moved).preview_rewind(scan).files] == ["a"]


@pytest.mark.trial("T42")
def test_operations_of_a_session_and_of_the_directory_are_redone_in_turn(store: takeback.Store, work: Path) -> None:
    one, here = store.session("one", workspace=work), store.workspace(work)
    one.user("go")
    point = one.checkpoint()
    write(one, work, "a", "1")
    (work / "src" / "m.py").write_text("by hand")
    seen = [work.joinpath("a").read_text()]
    one.rewind(point)
    (work / "a").write_text("again")
    here.preview_rewind(here.timeline()[-1]).apply()
    for move in (here.preview_undo, here.preview_undo, here.preview_redo, here.preview_redo):
        move().apply()
        seen.append((work / "a").read_text())
    assert seen == ["1", "again", "again", "again", "0"]


def test_what_was_purged_is_not_called_a_failure(store: takeback.Store, work: Path) -> None:
    one, two = store.create_session("one", workspace=work), store.create_session("two", workspace=work)
    write(one, work, "a", "1")
    write(two, work, "b", "2")
    store.purge_session(one)
    assert {(each.failed, each.purged) for each in store.workspace(work).timeline()} == {(None, True), (None, False)}


def test_an_undo_whose_files_were_purged_says_so(store: takeback.Store, work: Path) -> None:
    one, here = store.create_session("one", workspace=work), store.workspace(work)
    write(one, work, "n", "x")
    (work / "mine").write_text("by hand")
    operation = here.preview_rewind(here.timeline()[-1]).apply()
    store.purge_session(one)
    with pytest.raises(takeback.Conflict, match="purged"):
        store.undo(operation)


_KILLED = """
import os, sys, takeback
from takeback.files.disk import apply
store = takeback.open(sys.argv[1])
here = store.workspace(sys.argv[2])
plan = here.preview_rewind(here.timeline()[-1])
def check(self):
    os.kill(os.getpid(), 9)  # everything new is staged, and nothing is changed yet
apply.Changeset.check = check
plan.apply()
"""


@pytest.mark.promise("R15")
def test_a_killed_rewind_of_a_directory_is_taken_back_where_it_was_moved_to(tmp_path: Path, work: Path) -> None:
    with takeback.open(tmp_path / "s.db") as store:
        for number in range(5):
            write(store.create_session(f"s{number}", workspace=work), work, "f0", str(number))
    script = [sys.executable, "-c", _KILLED, str(tmp_path / "s.db"), str(work)]
    assert subprocess.run(script, env=ENVIRONMENT, check=False).returncode == -signal.SIGKILL
    moved = work.rename(tmp_path / "moved")
    assert any(each.name.startswith(".takeback-") for each in moved.iterdir())
    with takeback.open(tmp_path / "s.db") as store:
        session = store.create_session("next", workspace=moved)
        session.capture_files()
        assert "interrupted" in (session.recovered or "")
    assert not any(each.name.startswith(".takeback-") for each in moved.iterdir())
    assert os.listdir(moved / "src") == ["m.py"]
