"""What people report about rewinding with other tools, again with two sessions in one directory."""

from __future__ import annotations

from pathlib import Path

import pytest
from _folders import look, run, shell

from takeback import Session, Store

pytestmark = [pytest.mark.feature("F1", "B5", "F14"), pytest.mark.promise("R14"), pytest.mark.trial("T36", "T37")]


@pytest.fixture
def other(store: Store, session: Session, work: Path) -> Session:
    """Another session in the same directory; nobody holds its lease, as with hooks."""
    (work / "src").mkdir()
    (work / "src/b.py").write_text("b = 1\n")
    session.user("begin")
    made = store.create_session("other", workspace=work)
    made.user("theirs")
    return made


def test_a_shell_that_deletes_and_moves_is_taken_back_around_the_other_sessions_work(
    session: Session, other: Session, work: Path
) -> None:
    """Of 96 edits by a shell none was tracked: https://github.com/anthropics/claude-code/issues/94657"""
    point = session.checkpoint("c")
    run(session, work, "mkdir d; mv a.txt d/; echo made > made.txt")
    run(other, work, "echo theirs > d/theirs.txt; echo theirs >> src/b.py; chmod 600 src/b.py")
    plan = session.preview_rewind(point)
    assert {"d/theirs.txt", "src/b.py"} <= {*plan.others}
    plan.apply()
    assert (work / "a.txt").read_text() == "one\n"
    assert (work / "d/theirs.txt").read_text() == "theirs\n"
    assert (work / "src/b.py").read_text() == "b = 1\ntheirs\n"
    assert not (work / "made.txt").exists()


def test_weeks_old_states_never_come_back_over_what_another_session_did_since(
    session: Session, other: Session, work: Path
) -> None:
    """A revert to a stale baseline cost 1,300 lines: https://github.com/anomalyco/opencode/issues/10287"""
    point = session.checkpoint("old")
    for number in range(5):
        run(session, work, f"echo {number} >> a.txt")
        run(other, work, f"echo {number} >> src/b.py; echo {number} > t{number}")
    before = look(work)
    session.rewind(point)
    assert (work / "a.txt").read_text() == "one\n"
    kept = {path: thing for path, thing in look(work).items() if path != b"a.txt"}
    assert kept == {path: thing for path, thing in before.items() if path != b"a.txt"}
    session.undo()
    assert look(work) == before


def test_undo_of_a_turn_without_changes_leaves_the_other_sessions_files(
    session: Session, other: Session, work: Path
) -> None:
    """Undo of a no-change turn corrupts the tree: https://github.com/anomalyco/opencode/issues/32529"""
    point = session.checkpoint("c")
    session.user("only a question")
    run(other, work, "rm a.txt; echo x > made")
    before = look(work)
    session.rewind(point)
    assert look(work) == before
    session.undo()
    assert look(work) == before


def test_what_a_person_edits_between_two_sessions_is_neithers(session: Session, other: Session, work: Path) -> None:
    """ "Lost 2 days" of edits: https://github.com/anomalyco/opencode/issues/26893"""
    mine, theirs = session.checkpoint("mine"), other.checkpoint("theirs")
    run(session, work, "echo one >> a.txt")
    shell(work, "echo person >> a.txt; echo p > p.txt")
    run(other, work, "echo two > two.txt")
    plans = [session.preview_rewind(mine), other.preview_rewind(theirs)]
    assert [{*plan.kept} & {"a.txt", "p.txt"} for plan in plans] == [{"a.txt", "p.txt"}, {"a.txt", "p.txt"}]
    for plan, point in zip((session, other), (mine, theirs), strict=True):
        plan.rewind(point)
    assert (work / "a.txt").read_text() == "one\none\nperson\n"
    assert ((work / "p.txt").exists(), (work / "two.txt").exists()) == (True, False)


def test_both_sessions_go_back_together_when_asked(session: Session, other: Session, work: Path) -> None:
    """Going back past two runs restores nothing in other tools: the plan names the second and offers to take it."""
    point, before = session.checkpoint("c"), look(work)
    run(session, work, "echo two > a.txt; echo m > mine.txt")
    run(other, work, "echo three > a.txt; echo t > theirs.txt; rm src/b.py")
    plan = session.preview_rewind(point)
    assert set(plan.other_sessions.values()) == {other.id}
    done = session.rewind(point, sessions=[other])
    assert look(work) == before
    after = session.undo()
    assert (done.kind, after.kind) == ("rewind", "undo")
    assert ((work / "a.txt").read_text(), (work / "src/b.py").exists()) == ("three\n", False)
