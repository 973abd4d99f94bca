"""The contract: who may rewind a session; work and sub-agents go back in the same operation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from takeback import Busy, LeaseLost, Session, Store

from .base import said
from .files import Folders, elsewhere, tree_of


class RewindsOfOthers(Folders):
    """Rewinding sessions that somebody else runs."""

    @pytest.mark.feature("F1", "F6")
    @pytest.mark.parametrize("how", [{}, {"files": False}, {"conversation": False}], ids=["both", "talk", "files"])
    def test_a_session_that_runs_elsewhere_is_busy_until_it_is_taken_over(
        self, store: Store, work: Path, how: dict[str, Any]
    ) -> None:
        session = store.session("s", workspace=work)
        session.user("first")
        point = session.checkpoint("c")
        self.run(session, work, {"a.txt": "two\n"})
        elsewhere(session)
        person, before = store.get_session(session.id), tree_of(work)
        with pytest.raises(Busy):
            person.rewind(point, **how)
        assert (tree_of(work), len(said(person))) == (before, 2)
        person.rewind(point, take_over=True, **how)
        assert (tree_of(work) == before, len(said(person)) == 2) == ("files" in how, "conversation" in how)

    @pytest.mark.feature("F1", "F6")
    def test_whoever_ran_it_is_told_when_it_is_taken_over(self, store: Store, work: Path) -> None:
        with store.session("s", workspace=work) as session:
            session.user("first")
            point = session.checkpoint("c")
            self.run(session, work, {"a.txt": "two\n"})
            person = store.scoped(store.scope).get_session(session.id)
            person.preview_rewind(point).apply(take_over=True)
            assert ((work / "a.txt").read_text(), said(person)) == ("one\n", ["first"])
            with pytest.raises(LeaseLost):
                session.user("late")


class RewindsOfWork(Folders):
    """Tasks, plan, notes, state and sub-agents go back in the same operation."""

    @pytest.mark.feature("B5", "F1")
    def test_all_work_goes_back_with_the_files_and_comes_back(self, store: Store, work: Path) -> None:
        def look(session: Session) -> tuple[object, ...]:
            tasks = [(task.description, task.status) for task in session.tasks()]
            notes = [note.text for note in session.notes()]
            texts = session.get_plan(), session.get_walkthrough()
            return tasks, notes, texts, dict(session.state.items()), session.build_attempts, tree_of(work)

        with store.session("s", workspace=work) as session:
            session.user("first")
            session.set_tasks(["one", "two"])
            session.set_plan("plan A")
            session.note("why A")
            session.state.set("k", 1)
            point, before = session.checkpoint("c"), look(session)
            session.user("second")
            session.update_task(0, "completed")
            session.add_task("three")
            session.set_plan("plan B")
            session.set_walkthrough("walk")
            session.note("why B")
            session.state.set("k", 2)
            session.state.set("l", 3)
            session.add_build_attempt()
            self.run(session, work, {"a.txt": "two\n"})
            after = look(session)
            session.rewind(point)
            assert look(session) == before
            session.undo()
            assert look(session) == after
            session.redo()
            assert look(session) == before
            session.rewind(0)
            assert look(session)[:4] == ([], [], (None, None), {})

    @pytest.mark.feature("B5", "F1", "D4")
    def test_sub_agents_go_back_and_those_made_later_leave(self, store: Store, work: Path) -> None:
        with store.session("s", workspace=work) as session:
            session.user("first")
            old = session.spawn("early", label="early").session
            old.user("one")
            old.state.set("k", 1)
            point = session.checkpoint("c")
            old.user("two")
            old.state.set("k", 2)
            new = session.spawn("late", label="late").session
            new.user("hello")
            self.run(session, work, {"a.txt": "two\n"})

            def look() -> tuple[object, ...]:
                children = session.children()
                first = store.get_session(old.id)
                return [each.label for each in children], said(first), first.state.get("k"), tree_of(work)

            after = look()
            assert after[:3] == (["early", "late"], ["one", "two"], 2)
            assert "sub-agent" in str(session.preview_rewind(point))
            session.rewind(point)
            before = look()
            assert before[:3] == (["early"], ["one"], 1)
            assert (work / "a.txt").read_text() == "one\n"
            session.undo()
            assert look() == after
            assert said(store.get_session(new.id)) == ["hello"]
            session.redo()
            assert look() == before

    @pytest.mark.feature("B5", "F1", "D4")
    @pytest.mark.parametrize("calls", [True, False], ids=["turn with calls", "turn without"])
    def test_what_a_sub_agent_did_to_files_goes_back_with_its_parent(
        self, store: Store, work: Path, calls: bool
    ) -> None:
        with store.session("s", workspace=work) as session:
            session.user("first")
            point, before = session.checkpoint("c"), tree_of(work)
            session.user("second")
            if calls:
                self.run(session, work, {})
            child = session.spawn("do it", workspace=work).session
            with store.session(child) as running:
                running.user("do it")
                self.run(running, work, {"a.txt": "child\n", "new": "n"})
            session.assistant("done")
            preview = session.preview_rewind(point)
            assert preview.kept == (), "nobody outside the agent edited anything"
            preview.apply()
            assert tree_of(work) == before
            session.undo()
            assert (work / "a.txt").read_text() == "child\n"

    @pytest.mark.feature("F1", "D4")
    def test_a_sub_agent_that_runs_elsewhere_makes_a_rewind_busy(self, store: Store, work: Path) -> None:
        with store.session("s", workspace=work) as session:
            session.user("first")
            point = session.checkpoint("c")
            self.run(session, work, {"a.txt": "two\n"})
            elsewhere(store.session(session.spawn("do it", workspace=work).session))
            before = tree_of(work)
            with pytest.raises(Busy):
                session.rewind(point)
            assert (tree_of(work), len(said(session))) == (before, 2)
            session.rewind(point, take_over=True)
            assert (said(session), session.children()) == (["first"], [])
