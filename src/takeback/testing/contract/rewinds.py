"""The contract: rewinding conversation, files, work and sub-agents in one previewed operation, with undo and redo."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from takeback import Conflict, Invalid, NotFound, Rewind, Store

from .base import die, doom, said
from .files import Folders, change, tree_of


def actions(preview: Rewind) -> dict[str, str]:
    """Return what a preview would do to each path."""
    return {each.path: each.action for each in preview.files}


class Rewinds(Folders):
    """A preview says exactly what a rewind then does."""

    @pytest.mark.feature("B5", "F1")
    def test_a_preview_says_path_by_path_what_happens_and_changes_nothing(self, store: Store, work: Path) -> None:
        (work / "exe").write_text("x")
        (work / "gone").write_text("g\n")
        (work / "link").symlink_to("a.txt")
        (work / ".gitignore").write_text(".env\n")
        (work / ".env").write_text("K")
        (work / "empty").mkdir()
        with store.session("s", workspace=work) as session:
            session.user("first")
            point, before = session.checkpoint("c"), tree_of(work)
            session.user("break things")
            with session.tool("bash", {}) as run:
                change(work, {"a.txt": "two\n", "gone": None, "made/new": "n\n"})
                (work / "exe").chmod(0o700)
                (work / "link").unlink()
                (work / "link").symlink_to("src")
                (work / "empty").rmdir()
                run.result("ok")
            session.user("and more")
            after, stored = tree_of(work), store.stats()
            preview = session.preview_rewind(point)
            assert actions(preview) == {
                "a.txt": "overwrite",
                "gone": "create",
                "made": "rmdir",
                "made/new": "delete",
                "exe": "chmod",
                "link": "link",
                "empty": "mkdir",
            }
            assert all("bash" in each.by and "2" in each.by for each in preview.files)
            assert (preview.kept, preview.others, preview.turns, preview.prompt) == ((), (), 2, "break things")
            assert (preview.is_empty, preview.target) == (False, point)
            assert any(".env" in each for each in preview.not_captured)
            text = preview.diff()
            assert all(line in text for line in ("-two", "+one", "+g", "-n")), text
            shown = str(preview)
            assert all(word in shown for word in ("a.txt", "gone", "made/new", ".env", "break things", "bash")), shown
            assert (tree_of(work), store.stats()) == (after, stored), "a preview changes nothing"
            done = preview.apply()
            assert tree_of(work) == before
            assert (done.kind, done.session_id, {*done.paths} >= {"a.txt", "gone", "made/new"}) == (
                "rewind",
                session.id,
                True,
            )
            assert os.path.realpath(done.workspace or "") == os.path.realpath(work)
            assert said(session) == ["first"]
            assert session.preview_rewind(point).is_empty
            with pytest.raises(Conflict):
                preview.apply()

    @pytest.mark.feature("B5", "F1", "F7")
    def test_undo_and_redo_any_number_of_times_and_after_reopening(self, tmp_path: Path, work: Path) -> None:
        store = self.open(tmp_path)
        with store.session("s", workspace=work) as session:
            session.user("first")
            point, before = session.checkpoint("c"), tree_of(work)
            self.run(session, work, {"a.txt": "two\n", "new": "n", "src/b.py": None})
            after = tree_of(work)
            texts = said(session)
            session.rewind(point)
            for _ in range(3):
                assert "new" in actions(session.preview_undo())
                session.undo()
                assert (tree_of(work), said(session)) == (after, texts)
                assert "new" in actions(session.preview_redo())
                session.redo()
                assert (tree_of(work), said(session)) == (before, ["first"])
        if store.capabilities.persistent:
            store.close()
            store = self.open(tmp_path)
        with store:
            for _ in range(2):
                session = store.get_session(session.id)
                session.undo()
                assert (tree_of(work), said(session)) == (after, texts)
                store.get_session(session.id).redo()
                assert (tree_of(work), said(store.get_session(session.id))) == (before, ["first"])
            assert not store.verify()

    @pytest.mark.feature("B5", "F1")
    @pytest.mark.parametrize("first", ["files", "conversation"])
    def test_conversation_alone_and_files_alone_and_back(self, store: Store, work: Path, first: str) -> None:
        with store.session("s", workspace=work) as session:
            session.user("first")
            point, before = session.checkpoint("c"), tree_of(work)
            self.run(session, work, {"a.txt": "two\n", "new": "n"})
            after, texts = tree_of(work), said(session)

            def talk_only() -> None:
                files = tree_of(work)
                assert session.preview_rewind(point, files=False).files == ()
                session.rewind(point, files=False)
                assert (tree_of(work), said(session)) == (files, ["first"])

            def files_only() -> None:
                path = said(session)
                preview = session.preview_rewind(point, conversation=False)
                assert (preview.turns, preview.prompt) == (0, None)
                preview.apply()
                assert (tree_of(work), said(session)) == (before, path)

            steps = [files_only, talk_only] if first == "files" else [talk_only, files_only]
            for step in steps:
                step()
            assert (tree_of(work), said(session)) == (before, ["first"])
            session.undo()
            half = (before, texts) if first == "files" else (after, ["first"])
            assert (tree_of(work), said(session)) == half
            session.undo()
            assert (tree_of(work), said(session)) == (after, texts)
            session.redo()
            session.redo()
            assert (tree_of(work), said(session)) == (before, ["first"])
            with pytest.raises(Invalid):
                session.preview_rewind(point, files=False, conversation=False)

    @pytest.mark.feature("B5", "F1")
    def test_after_files_alone_went_back_what_is_said_next_takes_nothing_of_it_back(
        self, store: Store, work: Path
    ) -> None:
        with store.session("s", workspace=work) as session:
            session.user("first")
            point = session.checkpoint("c")
            self.run(session, work, {"a.txt": "two\n"})
            session.rewind(point, conversation=False)
            session.user("next")
            here = session.checkpoint("d")
            self.run(session, work, {"src/b.py": "b = 2\n"})
            session.rewind(here)
            assert ((work / "a.txt").read_text(), (work / "src/b.py").read_text()) == ("one\n", "b = 1\n")
            assert session.preview_rewind(point).kept == (), "nobody else edited anything"

    @pytest.mark.feature("B5", "F1")
    @pytest.mark.parametrize("name", ["c", "d"], ids=["nothing to do", "files to restore"])
    def test_files_alone_go_back_also_where_the_head_is_at_a_point(self, tmp_path: Path, work: Path, name: str) -> None:
        with self.open(tmp_path) as store, store.session("s", workspace=work) as session:
            session.user("first")
            session.checkpoint("c")
            session.user("second")
            self.run(session, work, {"a.txt": "two\n"})
            session.checkpoint("d")
            texts, tip = said(session), session.branches()[0].head_seq
            session.rewind("c")
            session.rewind(name, conversation=False)
            assert session.branches()[0].head_seq == tip, "what was said is never lost"
            assert (work / "a.txt").read_text() == {"c": "one\n", "d": "two\n"}[name]
            session.switch("main")
            assert said(session) == texts
            assert not store.verify()

    @pytest.mark.feature("F7")
    @pytest.mark.parametrize("how", [{"conversation": False}])
    def test_a_rewind_that_changes_nothing_is_no_operation(self, store: Store, work: Path, how: dict[str, Any]) -> None:
        with store.session("s", workspace=work) as session:
            session.user("first")
            point = session.checkpoint("c")
            session.user("second")
            before = session.operations(), session.branches()
            preview = session.preview_rewind(point, **how)
            assert preview.is_empty
            preview.apply()
            assert (session.operations(), session.branches()) == before

    @pytest.mark.feature("B5", "F1")
    def test_what_somebody_else_edited_is_kept_unless_it_is_named(self, store: Store, work: Path) -> None:
        (work / "c.txt").write_text("c\n")
        with store.session("s", workspace=work) as session:
            change(work, {"c.txt": "before the first turn\n"})
            session.user("first")
            point = session.checkpoint("c")
            self.run(session, work, {"a.txt": "two\n", "src/b.py": "b = 2\n", "new": "n\n"})
            change(work, {"src/b.py": "mine between\n", "own": "o\n"})
            session.user("second")
            change(work, {"new": "mine after\n"})
            preview = session.preview_rewind(point)
            assert {*preview.kept} == {"src/b.py", "new", "own"}
            assert actions(preview) == {"a.txt": "overwrite"}
            assert "src/b.py" in str(preview)
            named = session.preview_rewind(point, overwrite=["src/b.py", work / "new"])
            assert actions(named) == {"a.txt": "overwrite", "src/b.py": "overwrite", "new": "delete"}
            assert "own" not in actions(session.preview_rewind(point, overwrite=["src"])), "a folder names no file"
            preview.apply()
            texts = {path: data[2] for path, data in tree_of(work).items() if data[0] == "file"}
            assert texts == {
                "a.txt": b"one\n",
                "src/b.py": b"mine between\n",
                "new": b"mine after\n",
                "own": b"o\n",
                "c.txt": b"before the first turn\n",
            }
            session.undo()
            session.rewind(point, overwrite=["src/b.py"])
            assert (work / "src/b.py").read_text() == "b = 1\n"
            assert (work / "new").read_text() == "mine after\n"
            session.undo()
            assert (work / "src/b.py").read_text() == "mine between\n", "what was overwritten comes back"
            for wrong in ("src/b.py", ["../x"], [3]):
                with pytest.raises(Invalid):
                    session.preview_rewind(point, overwrite=wrong)  # type: ignore[arg-type]

    @pytest.mark.feature("B5", "F1")
    @pytest.mark.parametrize("talks", [False, True], ids=["at once", "after more was said"])
    @pytest.mark.parametrize("move", ["rewind", "clear", "switch"])
    def test_an_edit_stays_somebody_elses_when_the_head_moves_without_the_files(
        self, store: Store, work: Path, move: str, talks: bool
    ) -> None:
        with store.session("s", workspace=work) as session:
            session.user("first")
            point = session.checkpoint("c")
            session.fork(point, name="other")
            self.run(session, work, {"a.txt": "two\n"})
            change(work, {"src/b.py": "mine\n", "own": "o\n"})
            session.user("here they are seen")
            if move == "rewind":
                session.rewind(point, files=False)
            elif move == "switch":
                session.switch("other")
            else:
                session.clear()
            if talks:
                session.user("another way")
                self.run(session, work, {"new": "n\n"})
            preview = session.preview_rewind(point)
            assert {*preview.kept} == {"src/b.py", "own"}
            assert actions(preview) == {"a.txt": "overwrite", **({"new": "delete"} if talks else {})}
            preview.apply()
            texts = {path: data[2] for path, data in tree_of(work).items() if data[0] == "file"}
            assert texts == {"a.txt": b"one\n", "src/b.py": b"mine\n", "own": b"o\n"}

    @pytest.mark.feature("B5", "F1")
    def test_edits_after_a_rewind_are_kept_by_its_undo(self, store: Store, work: Path) -> None:
        with store.session("s", workspace=work) as session:
            session.user("first")
            point = session.checkpoint("c")
            self.run(session, work, {"a.txt": "two\n", "src/b.py": "b = 2\n"})
            session.rewind(point)
            change(work, {"a.txt": "mine\n"})
            assert session.preview_undo().kept == ("a.txt",)
            session.undo()
            assert ((work / "a.txt").read_text(), (work / "src/b.py").read_text()) == ("mine\n", "b = 2\n")

    @pytest.mark.feature("B5", "F1")
    def test_every_kind_of_point_is_reached_also_on_other_branches(self, store: Store, work: Path) -> None:
        with store.session("s", workspace=work) as session:
            session.user("first")
            states = {0: tree_of(work)}
            for number in range(1, 4):
                self.run(session, work, {"a.txt": f"{number}\n", f"f{number}": "x"})
                states[number] = tree_of(work)
                session.checkpoint(f"c{number}")
            results = [message for message in session.messages() if message.role == "tool"]
            session.rewind(results[1])
            assert tree_of(work) == states[2]
            session.rewind(results[0].seq)
            assert tree_of(work) == states[1]
            session.user("another way")
            self.run(session, work, {"a.txt": "side\n", "side": "s"})
            side = session.checkpoint("side")
            states[4] = tree_of(work)
            for target, number in ((session.get_checkpoint("c3"), 3), ("side", 4), ("c2", 2), (side.id, 4)):
                session.rewind(target)
                assert tree_of(work) == states[number], target
            session.rewind(0)
            assert (tree_of(work), said(session)) == (states[0], [])
            for number in (4, 2, 4, 3):
                session.undo()
                assert tree_of(work) == states[number]
            with pytest.raises(NotFound):
                session.rewind("nosuch")

    @pytest.mark.feature("F1")
    def test_switching_takes_the_files_along_when_asked(self, store: Store, work: Path) -> None:
        with store.session("s", workspace=work) as session:
            session.user("first")
            point = session.checkpoint("c")
            self.run(session, work, {"a.txt": "main\n", "m": "m"})
            main = tree_of(work)
            session.rewind(point)
            session.user("other")
            self.run(session, work, {"a.txt": "side\n", "s": "s"})
            side, name = tree_of(work), session.branches()[-1].name
            session.switch("main")
            assert tree_of(work) == side, "without files they stay"
            session.undo()
            session.switch("main", files=True)
            assert tree_of(work) == main
            session.switch(name, files=True)
            assert tree_of(work) == side
            session.undo()
            assert tree_of(work) == main
            session.user("goes on")
            assert said(session)[-1] == "goes on"


class FileRewinds(Folders):
    """What can block a rewind, and who."""

    @pytest.mark.feature("B5", "F1")
    def test_a_path_of_the_plan_that_changed_since_the_preview_is_a_conflict_and_nothing_is_touched(
        self, store: Store, work: Path
    ) -> None:
        with store.session("s", workspace=work) as session:
            session.user("first")
            point = session.checkpoint("c")
            self.run(session, work, {"a.txt": "two\n", "src/b.py": "b = 2\n"})
            for path, text in (("a.txt", "mine\n"), ("src/b.py", None)):
                preview = session.preview_rewind(point)
                change(work, {path: text})
                before, texts = tree_of(work), said(session)
                with pytest.raises(Conflict):
                    preview.apply()
                assert (tree_of(work), said(session)) == (before, texts)
            preview = session.preview_rewind(point)
            store.get_session(session.id).note("somebody says something")
            before = tree_of(work)
            with pytest.raises(Conflict):
                preview.apply()
            assert tree_of(work) == before
            assert not [each for each in os.listdir(work) if each.startswith(".takeback-")]
            session.rewind(point)

    @pytest.mark.feature("F1")
    @pytest.mark.trial("T25")
    def test_other_paths_may_change_between_preview_and_apply(self, store: Store, work: Path) -> None:
        with store.session("s", workspace=work) as session:
            session.user("first")
            self.run(session, work, {"a.txt": "two\n"})
            preview = session.preview_rewind(1)
            change(work, {"else": "x\n", "src/b.py": "mine\n"})
            preview.apply()
            texts = {path: data[2] for path, data in tree_of(work).items() if data[0] == "file"}
            assert (texts["a.txt"], texts["else"], texts["src/b.py"]) == (b"one\n", b"x\n", b"mine\n")

    @pytest.mark.feature("A2", "F7")
    def test_a_retry_with_the_same_key_moves_nothing_twice(self, store: Store, work: Path) -> None:
        with store.session("s", workspace=work) as session:
            session.user("first")
            point = session.checkpoint("c")
            self.run(session, work, {"a.txt": "two\n"})
            first = session.rewind(point, idempotency_key="k")
            change(work, {"a.txt": "three\n"})
            session.user("next")
            assert session.rewind(point, idempotency_key="k").id == first.id
            assert ((work / "a.txt").read_text(), said(session)[-1]) == ("three\n", "next")
            session.rewind(point)
            undone = session.undo(idempotency_key="u")
            after = tree_of(work)
            assert session.undo(idempotency_key="u").id == undone.id
            assert tree_of(work) == after
            with pytest.raises(Conflict):
                session.rewind(0, idempotency_key="k")

    @pytest.mark.feature("A2", "F7")
    def test_a_retry_of_a_redo_is_one_redo(self, store: Store, work: Path) -> None:
        with store.session("s", workspace=work) as session:
            session.user("first")
            self.run(session, work, {"a.txt": "two\n"})
            session.rewind(1)
            session.undo()
            first = session.redo(idempotency_key="r")
            assert session.redo(idempotency_key="r").id == first.id

    @pytest.mark.feature("A2")
    def test_a_key_used_for_another_kind_of_rewind_is_a_conflict(self, store: Store, work: Path) -> None:
        with store.session("s", workspace=work) as session:
            session.user("first")
            point = session.checkpoint("c")
            self.run(session, work, {"a.txt": "two\n"})
            session.rewind(point, files=False, idempotency_key="k")
            with pytest.raises(Conflict):
                session.rewind(point, conversation=False, idempotency_key="k")

    @pytest.mark.feature("F7", "F1")
    def test_the_stores_undo_takes_files_back_too(self, store: Store, work: Path) -> None:
        with store.session("s", workspace=work) as session:
            session.user("first")
            point, before = session.checkpoint("c"), tree_of(work)
            self.run(session, work, {"a.txt": "two\n"})
            after = tree_of(work)
            session.rewind(point)
            store.undo()
            assert (tree_of(work), len(said(session.refresh()))) == (after, 2), "never one without the other"
            store.redo()
            assert (tree_of(work), said(session.refresh())) == (before, ["first"])

    @pytest.mark.feature("F1")
    def test_two_sessions_in_one_workspace_do_not_undo_each_other(self, store: Store, work: Path) -> None:
        with store.session("s", workspace=work) as session, store.session("t", workspace=work) as other:
            session.user("mine")
            other.user("theirs")
            point = session.checkpoint("c")
            with session.tool("bash", id="c1") as run:
                change(work, {"a.txt": "mine\n", "m": "m"})
                self.run(other, work, {"src/b.py": "theirs\n", "t": "t"})
                run.result("ok")
            session.user("next")
            preview = session.preview_rewind(point)
            assert {"src/b.py", "t"} <= preview.unclear.keys()  # both were at work, and nothing tells them apart
            assert "src/b.py changed by" in str(preview)
            assert {path for path in actions(preview) if path in ("src/b.py", "t")} == set()
            preview.apply()
            texts = {path: data[2] for path, data in tree_of(work).items() if data[0] == "file"}
            assert (texts["src/b.py"], texts["t"]) == (b"theirs\n", b"t")

    @pytest.mark.feature("F1")
    def test_what_another_session_changed_between_calls_stays(self, store: Store, work: Path) -> None:
        with store.session("s", workspace=work) as session, store.session("t", workspace=work) as other:
            session.user("mine")
            other.user("theirs")
            point = session.checkpoint("c")
            self.run(session, work, {"a.txt": "mine\n"})
            self.run(other, work, {"src/b.py": "theirs\n"})
            session.rewind(point)
            assert ((work / "a.txt").read_text(), (work / "src/b.py").read_text()) == ("one\n", "theirs\n")
            session.undo()
            assert ((work / "a.txt").read_text(), (work / "src/b.py").read_text()) == ("mine\n", "theirs\n")

    @pytest.mark.feature("F1")
    def test_a_session_in_a_directory_of_the_workspace_is_another_one_too(self, store: Store, work: Path) -> None:
        with store.session("s", workspace=work) as session, store.session("t", workspace=work / "src") as other:
            session.user("mine")
            other.user("theirs")
            point = session.checkpoint("c")
            with session.tool("bash", id="c1") as run:
                change(work, {"a.txt": "mine\n"})
                self.run(other, work / "src", {"b.py": "theirs\n"})
                run.result("ok")
            session.rewind(point)
            assert (work / "src" / "b.py").read_text() == "theirs\n"

    @pytest.mark.feature("F1", "F4")
    def test_what_calls_did_before_the_last_sign_of_life_of_their_process_is_theirs(
        self, store: Store, work: Path
    ) -> None:
        session = store.session("s", workspace=work)
        session.user("first")
        point, before = session.checkpoint("c"), tree_of(work)
        doom(session)
        run = session.tool("bash", id="c1")
        run.__enter__()
        change(work, {"a.txt": "two\n", "new": "n"})
        die(session, beat_ms=time.time_ns() // 1_000_000 + 1000)
        with store.session("s", workspace=work, take_over=True) as again:
            assert {each.path: each.call_id for each in again.files()} == {"a.txt": "c1", "new": "c1"}
            again.rewind(point)
            assert tree_of(work) == before

    @pytest.mark.feature("F1", "F4")
    @pytest.mark.trial("T35")
    def test_what_changed_after_the_last_sign_of_life_of_a_process_is_unclear(self, store: Store, work: Path) -> None:
        session = store.session("s", workspace=work)
        session.user("first")
        point, before = session.checkpoint("c"), tree_of(work)
        doom(session)
        run = session.tool("bash", id="c1")
        run.__enter__()
        change(work, {"a.txt": "two\n"})
        die(session)
        with store.session("s", workspace=work, take_over=True) as again:
            change(work, {"src/b.py": "mine\n"})
            again.user("second")
            preview = again.preview_rewind(point)
            assert ([*preview.unclear], preview.kept) == (["a.txt"], ("src/b.py",))
            assert preview.files == ()
            again.rewind(point, overwrite=["a.txt"])
            change(work, {"src/b.py": "b = 1\n"})
            assert tree_of(work) == before
