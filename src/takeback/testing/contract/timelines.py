"""The contract: the timeline of a directory that several sessions and a person share, and back to any moment of it."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from takeback import Conflict, Invalid, NotFound, Scan, Session, Store

from .files import Folders, change, tree_of


def found(scan: Scan) -> dict[str, tuple[str, str]]:
    """Return what a scan found changed: action and kind of author by path."""
    return {each.path: (each.action, each.kind) for each in scan.changes}


def now() -> datetime:
    """Return a moment behind all that is recorded and before all to come, although times are stored in milliseconds."""
    time.sleep(0.002)
    moment = datetime.now(UTC)
    time.sleep(0.002)
    return moment


class Timelines(Folders):
    """Whoever scans, each change of a directory is one step of its timeline, with its author."""

    def two(self, store: Store, work: Path) -> tuple[Session, Session]:
        """Let one session work here, then a person, then another session without a lease."""
        one, two = store.session("one", workspace=work), store.create_session("two", workspace=work)
        with one:
            one.user("go")
            self.run(one, work, {"a.txt": "by one\n", "one.txt": "1\n"})
            change(work, {"mine.txt": "by hand\n"})
            one.user("thanks")
        two.user("go on")
        self.run(two, work, {"a.txt": "by two\n", "two.txt": "2\n"})
        return one, two

    @pytest.mark.feature("F1", "F14")
    @pytest.mark.trial("T34", "T36")
    def test_each_change_has_its_author_whatever_the_handle(self, store: Store, work: Path) -> None:
        here = store.workspace(work)
        assert [*here.timeline()] == []
        one, two = self.two(store, work)
        last, hand, first, start = here.timeline()
        assert found(last) == {"a.txt": ("overwrite", "calls"), "two.txt": ("create", "calls")}
        assert {each.session_ids for each in last.changes} == {(two.id,)}
        assert last.session_id == two.id
        assert all("bash" in each.by and "'two'" in each.by for each in last.changes)
        assert last.calls == tuple(dict.fromkeys(each.calls[0] for each in last.changes))
        assert found(hand) == {"mine.txt": ("create", "outside")}
        assert found(first) == {"a.txt": ("overwrite", "calls"), "one.txt": ("create", "calls")}
        assert {each.session_ids for each in first.changes} == {(one.id,)}
        assert (found(start), start.failed, start.operation) == ({}, None, None)
        assert os.path.realpath(last.workspace) == os.path.realpath(work)
        assert last.created_at >= hand.created_at >= first.created_at >= start.created_at

    @pytest.mark.feature("F1")
    def test_a_timeline_has_pages_and_is_asked_for_a_path_or_a_time(self, store: Store, work: Path) -> None:
        self.two(store, work)
        here, seen, cursor = store.workspace(work), list[str](), None
        whole = [each.id for each in here.timeline()]
        for _ in whole:
            page = here.timeline(limit=1, cursor=cursor)
            seen += [each.id for each in page]
            cursor = page.cursor
        assert (seen, cursor) == (whole, None)
        assert [each.id for each in here.timeline(path="a.txt")] == [whole[0], whole[2]]
        assert [[*found(each)] for each in here.timeline(path=work / "mine.txt")] == [["mine.txt"]]
        assert [*here.timeline(path="src")] == []
        change(work, {"src/new.py": "n\n"})
        store.create_session("three", workspace=work).capture_files()
        assert [[*found(each)] for each in here.timeline(path="src")] == [["src/new.py"]]
        assert [*here.timeline(since=now())] == []
        with pytest.raises(Invalid, match="time zone"):
            here.timeline(since=datetime.now())
        with pytest.raises(Invalid, match="not inside"):
            here.timeline(path="../elsewhere")

    @pytest.mark.feature("F1", "B5")
    @pytest.mark.trial("T36", "T37", "T38")
    def test_a_plan_names_the_session_that_changed_a_path_later_and_takes_it_back_when_asked(
        self, store: Store, work: Path
    ) -> None:
        before = tree_of(work)
        one, two = self.two(store, work)
        after = tree_of(work)
        plan = one.preview_rewind(0)
        assert [each.path for each in plan.files] == ["one.txt"]
        assert plan.other_sessions == {"a.txt": two.id, "two.txt": two.id}
        assert (plan.others, plan.kept, plan.unclear) == (("a.txt", "two.txt"), ("mine.txt",), {})
        shown = str(plan).splitlines()
        assert os.path.realpath(work) in shown[1], "the directory comes first"
        assert any("a.txt" in line and "'two'" in line and two.id in line for line in shown), "who, and what to do"
        plan = one.preview_rewind(0, sessions=[two])
        assert {each.path for each in plan.files} == {"a.txt", "one.txt", "two.txt"}
        assert plan.others == ()
        messages = len(two.messages())
        operation = plan.apply()
        assert tree_of(work) == {**before, "mine.txt": after["mine.txt"]}
        assert len(two.messages()) == messages, "its conversation stays"
        store.undo(operation)
        assert tree_of(work) == after
        one.rewind(0, overwrite="all", sessions="all", conversation=False)
        assert tree_of(work) == before
        one.undo()
        assert tree_of(work) == after

    @pytest.mark.feature("F1", "F14")
    def test_files_go_back_to_any_moment_whoever_changed_them_and_undo_keeps_what_came_since(
        self, store: Store, work: Path
    ) -> None:
        here, trees = store.workspace(work), dict[datetime, object]()
        one, two = store.session("one", workspace=work), store.create_session("two", workspace=work)
        with one:
            one.user("go")
            trees[now()] = tree_of(work)
            self.run(one, work, {"a.txt": "by one\n", "src/b.py": None})
            trees[now()] = tree_of(work)
            change(work, {"mine.txt": "by hand\n"})
            one.user("more")
            trees[now()] = tree_of(work)
        self.run(two, work, {"a.txt": None, "two/deep.txt": "2\n"})
        last = tree_of(work)
        for moment, wanted in trees.items():
            plan = here.preview_rewind(moment)
            assert plan.target_at <= moment
            operation = plan.apply()
            assert tree_of(work) == wanted
            assert (operation.session_id, operation.kind) == (None, "rewind")
            assert {*operation.paths} == {each.path for each in plan.files}
            change(work, {"since.txt": "s\n"})
            store.undo(operation)
            assert tree_of(work) == {**last, "since.txt": tree_of(work)["since.txt"]}
            (work / "since.txt").unlink()
        assert [each.kind for each in store.operations(limit=2)] == ["undo", "rewind"]
        messages = [each.text for each in one.messages()]
        assert messages[-1] == "more", "conversations stay"
        assert not store.verify()

    @pytest.mark.feature("F1")
    def test_only_some_paths_go_back_and_redo_is_the_inverse_of_undo(self, store: Store, work: Path) -> None:
        here = store.workspace(work)
        one, two = self.two(store, work)
        start = [*here.timeline()][-1]
        plan = here.preview_rewind(start, paths=["a.txt"])
        assert [each.path for each in plan.files] == ["a.txt"]
        before, operation = tree_of(work), plan.apply()
        after = tree_of(work)
        assert (after["a.txt"][-1], after["two.txt"]) == (b"one\n", before["two.txt"])
        store.undo(operation)
        assert tree_of(work) == before
        store.redo()
        assert tree_of(work) == after
        here.preview_undo().apply()
        assert tree_of(work) == before
        here.preview_redo().apply()
        assert tree_of(work) == after
        assert here.preview_rewind(start, paths=["a.txt"]).is_empty
        done = here.preview_rewind(start, paths=["a.txt"]).apply()
        assert done.summary == "nothing to change"
        assert {each.path for each in here.preview_rewind((one, 0)).files} == {"mine.txt", "one.txt", "two.txt"}
        assert here.preview_rewind((two.id, two.checkpoint("here"))).is_empty
        two.rewind(0)
        assert here.preview_undo().from_seq == two.head.seq, "the last change of these files was the session's"

    @pytest.mark.feature("F1")
    def test_an_operation_on_the_same_paths_must_be_undone_first(self, store: Store, work: Path) -> None:
        here = store.workspace(work)
        self.two(store, work)
        start = [*here.timeline()][-1]
        first = here.preview_rewind(start, paths=["a.txt"]).apply()
        other = here.preview_rewind(start, paths=["one.txt"]).apply()
        store.undo(first)
        first = here.preview_rewind(start, paths=["a.txt", "two.txt"]).apply()
        later = here.preview_rewind([*here.timeline()][1], paths=["two.txt"]).apply()
        with pytest.raises(Conflict, match="undo that one first") as error:
            store.undo(first)
        assert error.value.found == later.id
        assert [store.undo(each).kind for each in (other, later, first)] == ["undo"] * 3
        with pytest.raises(Conflict, match="already undone"):
            store.undo(first)

    @pytest.mark.feature("F1")
    def test_a_rewind_is_no_change_of_its_own(self, store: Store, work: Path) -> None:
        here = store.workspace(work)
        one, two = self.two(store, work)
        moment = [*here.timeline()][1]
        here.preview_rewind(moment).apply()
        assert (work / "a.txt").read_text() == "by one\n"
        plan = one.preview_rewind(0)
        assert {each.path for each in plan.files} == {"a.txt", "one.txt"}, "what it holds now is the session's again"
        assert two.preview_rewind(0).files == ()

    @pytest.mark.feature("F1")
    def test_a_moment_that_nothing_is_known_of_is_an_error_that_says_so(self, store: Store, work: Path) -> None:
        here, early = store.workspace(work), now()
        with pytest.raises(NotFound, match="never captured"):
            here.preview_rewind(early)
        one, _ = self.two(store, work)
        with pytest.raises(NotFound, match="nothing is known"):
            here.preview_rewind(early)
        with pytest.raises(Invalid, match="a moment is"):
            here.preview_rewind("14:00")  # type: ignore[arg-type]
        with pytest.raises(Invalid, match="time zone"):
            here.preview_rewind(datetime.now())
        with pytest.raises(Conflict, match="nothing to undo"):
            here.preview_undo()
        other = work.parent / "other"
        other.mkdir()
        store.create_session("elsewhere", workspace=other).capture_files()
        with pytest.raises(Invalid, match="that scan is of"):
            store.workspace(other).preview_rewind(next(iter(here.timeline())))
        with pytest.raises(NotFound):
            store.workspace(other).preview_rewind((one, 0))
