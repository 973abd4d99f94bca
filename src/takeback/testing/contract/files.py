"""The contract: what is captured of a workspace, to whom a change is attributed, and files at earlier points."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from takeback import Capture, Conflict, Invalid, NotFound, Session, Store, Unsupported, presence
from takeback.ops import leases, sessions
from takeback.storage.base import Tx

from .base import Contract, blocking

Tree = dict[str, tuple[Any, ...]]


def tree_of(root: Path) -> Tree:
    """Return everything below a directory: bytes, modes, link targets, empty directories."""
    found: Tree = {}
    for folder, folders, names in os.walk(root):
        for name in (*folders, *names):
            path = os.path.join(folder, name)
            status, place = os.lstat(path), os.path.relpath(path, root)
            if stat.S_ISLNK(status.st_mode):
                found[place] = "link", os.readlink(path)
            elif stat.S_ISDIR(status.st_mode):
                found[place] = "dir", stat.S_IMODE(status.st_mode)
            elif stat.S_ISREG(status.st_mode):
                found[place] = "file", stat.S_IMODE(status.st_mode), Path(path).read_bytes()
            else:
                found[place] = ("other",)
    return found


class Folders(Contract):
    """What the tests about files share: a workspace, and a tool that writes to it."""

    @pytest.fixture
    def work(self, tmp_path: Path) -> Path:
        """Return a workspace with a few files."""
        root = tmp_path / "work"
        (root / "src").mkdir(parents=True)
        (root / "a.txt").write_text("one\n")
        (root / "src" / "b.py").write_text("b = 1\n")
        return root

    @staticmethod
    def run(session: Session, root: Path, changes: dict[str, str | None], *, name: str = "bash", **how: Any) -> str:
        """Change files inside a tool call, as a shell would; return the call's id. None removes a file."""
        with session.tool(name, {"changes": len(changes)}, **how) as run:
            change(root, changes)
            run.result("done")
            return str(run.call.id)


def change(root: Path, changes: dict[str, str | None]) -> None:
    """Write or remove files, inside a call or outside."""
    for path, text in changes.items():
        if text is None:
            (root / path).unlink()
        else:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)


def touched(session: Session) -> dict[str, tuple[str, str | None]]:
    """Return the files of a session with action and call."""
    return {each.path: (each.action, each.call_id) for each in session.files()}


def elsewhere(session: Session) -> None:
    """Make a session held by this process look held by another machine."""
    inner = blocking(session)
    store, held = inner._store, inner._held
    other = presence.encode(presence.Holder("h", "far", 1, "another machine", "1"))
    held.over, inner._held = True, None
    store._keeper.drop(held)

    def op(tx: Tx) -> None:
        lease = sessions.find_lease(tx, sessions.get(tx, store.scope, inner.id))
        assert lease is not None
        leases.put(tx, lease._replace(holder=other))

    store._write(op)


class Captures(Folders):
    """When a workspace is scanned, and who changed what."""

    @pytest.mark.feature("A4", "F1")
    def test_each_path_is_listed_once_with_its_last_action_and_the_call_that_did_it(
        self, store: Store, work: Path
    ) -> None:
        with store.session("s", workspace=work) as session:
            session.user("go")
            first = self.run(session, work, {"a.txt": "two\n", "new": "n", "gone": "g"})
            second = self.run(session, work, {"a.txt": "three\n", "gone": None, "src/b.py": None})
            third = self.run(session, work, {})
            (work / "src").chmod(0o700)
            found = touched(session)
            assert found.pop("new") == ("created", first)
            assert found.pop("a.txt") == ("written", second)
            assert found.pop("gone")[1] == found.pop("src/b.py")[1] == second
            assert found == {}, f"call {third} did nothing"
            assert len({each.path for each in session.files()}) == len(session.files())

    @pytest.mark.feature("A4", "F1")
    def test_several_calls_open_at_once_share_what_changed(self, store: Store, work: Path) -> None:
        with store.session("s", workspace=work) as session:
            session.user("go")
            with session.tool("one", id="c1") as one:
                change(work, {"only-one": "1"})
                with session.tool("two", id="c2") as two:
                    change(work, {"both": "2"})
                    two.result("ok")
                change(work, {"one-again": "3"})
                one.result("ok")
            calls = {each.path: {*each.calls} or {each.call_id or ""} for each in session.files()}
            assert calls == {"only-one": {"c1"}, "both": {"c1", "c2"}, "one-again": {"c1"}}

    @pytest.mark.feature("A4", "F1")
    def test_results_that_are_given_without_running_a_tool_are_boundaries_too(self, store: Store, work: Path) -> None:
        def asked(call: str) -> dict[str, Any]:
            return {"role": "assistant", "content": "", "tool_calls": [{"id": call, "name": "bash", "arguments": {}}]}

        with store.session("s", workspace=work) as session:
            session.user("go")
            session.append(asked("c1"))
            change(work, {"by-append": "x"})
            session.append({"role": "tool", "tool_call_id": "c1", "content": "ok"})
            session.append(asked("c2"))
            change(work, {"by-result": "x"})
            session.tool_result("c2", "ok")
            change(work, {"mine": "x"})
            session.user("more")
            assert touched(session) == {"by-append": ("created", "c1"), "by-result": ("created", "c2")}

    @pytest.mark.feature("F1", "A4")
    def test_a_caller_that_has_no_lease_may_look_too(self, store: Store, work: Path) -> None:
        session = store.session("job", workspace=work, hold=False)
        session.capture_files()  # what was there before
        start = session.user("go on")
        session.tool("bash", id="c1").__enter__()
        change(work, {"a.txt": "by the tool\n"})
        other = store.get_session("job")  # in real life another process
        other.capture_files()
        other.tool_result("c1", "done")
        change(work, {"src/b.py": "yours\n"})
        other.capture_files()
        assert [(file.path, file.calls) for file in other.files()] == [("a.txt", ("c1",))]
        rewind = other.preview_rewind(start)
        assert ([each.path for each in rewind.files], rewind.kept) == (["a.txt"], ("src/b.py",))

    @pytest.mark.feature("A4", "F1")
    def test_in_a_turn_without_calls_a_change_is_the_turns(self, store: Store, work: Path) -> None:
        with store.session("s", workspace=work) as session:
            session.user("go")
            change(work, {"a.txt": "two\n"})
            session.assistant("done")
            change(work, {"src/b.py": "mine\n"})
            session.user("more")
            assert touched(session) == {"a.txt": ("written", None)}
            preview = session.preview_rewind(0)
            assert [(each.path, each.action) for each in preview.files] == [("a.txt", "overwrite")]
            assert preview.kept == ("src/b.py",)

    @pytest.mark.feature("A4")
    @pytest.mark.parametrize("mode", ["calls", "turns", "manual", "off"])
    def test_how_often_files_are_looked_at_is_the_callers_choice(self, store: Store, work: Path, mode: str) -> None:
        with store.session("s", workspace=work, capture=mode) as session:
            session.user("go")
            self.run(session, work, {"a.txt": "two\n"})
            between = len(session.messages())
            self.run(session, work, {"a.txt": "three\n"})
            session.assistant("done")
            point = session.checkpoint("end")
            assert (point.tree is None) == (mode == "off")
            if mode == "off":
                with pytest.raises(NotFound):
                    session.file_at("a.txt", point)
                return
            assert session.file_at("a.txt", point) == b"three\n"
            middle = session.messages()[between - 1]
            wanted = {"calls": b"two\n", "turns": b"one\n", "manual": b"three\n"}[mode]
            assert session.file_at("a.txt", middle) == wanted
            if mode != "manual":
                assert session.file_at("a.txt", 1) == b"one\n"
        for wrong in ("always", 3, None):
            with pytest.raises(Invalid):
                store.session("t", workspace=work, capture=wrong)  # type: ignore[arg-type]

    @pytest.mark.feature("B4")
    def test_a_checkpoint_says_what_it_holds_and_what_it_does_not(self, store: Store, work: Path) -> None:
        (work / ".gitignore").write_text(".env\nlogs/\n")
        (work / ".env").write_text("KEY=1")
        (work / "logs").mkdir()
        (work / "logs" / "l").write_text("l")
        (work / "big").write_bytes(b"x" * 5000)
        os.mkfifo(work / "pipe")
        with store.session("s", workspace=work, capture=Capture(largest_file=4096, ignore=("*.tmp",))) as session:
            (work / "x.tmp").write_text("t")
            session.user("go")
            made = session.checkpoint("one")
            missed = " | ".join(made.not_captured)
            assert all(name in missed for name in (".env", "logs/", "big", "pipe", "x.tmp")), missed
            assert "a.txt" not in missed
            same = session.checkpoint("two")
            assert (same.tree, made.tree is None) == (made.tree, False), "nothing changed, so it is the same tree"
            change(work, {"a.txt": "two\n"})
            assert session.checkpoint("three").tree != made.tree
            assert session.get_checkpoint("one") == made
            assert session.checkpoint("four", files=False).tree == session.get_checkpoint("three").tree
            assert made.size_bytes > 0
            with pytest.raises(Unsupported):
                session.file_at("big", made)
            assert session.preview_rewind(made).not_captured

    @pytest.mark.feature("F1")
    def test_a_rewind_with_capture_off_says_that_files_stay(self, store: Store, work: Path) -> None:
        with store.session("s", workspace=work) as session:
            session.user("go")
            self.run(session, work, {"a.txt": "two\n"})
        with store.session("s", workspace=work, capture="off") as session:
            preview = session.preview_rewind(1)
            assert preview.files or preview.not_captured, "files go back, or it is said that they do not"

    @pytest.mark.feature("F1")
    def test_a_preview_counts_all_that_was_not_captured(self, store: Store, work: Path) -> None:
        for number in range(60):
            os.mkfifo(work / f"p{number}")
        with store.session("s", workspace=work) as session:
            session.user("go")
            point = session.checkpoint("c")
            assert "10 more" in point.not_captured[-1]
            preview = session.preview_rewind(point)
            assert len(preview.not_captured) == 60 or "10 more" in preview.not_captured[-1]

    @pytest.mark.feature("A4", "F2")
    def test_an_unchanged_workspace_adds_nothing(self, store: Store, work: Path) -> None:
        with store.session("s", workspace=work) as session:
            session.user("go")
            before = store.stats()
            for _ in range(3):
                self.run(session, work, {})
            after = store.stats()
            assert after.blobs == before.blobs
            kinds = [each.kind for each in session.entries()]
            assert kinds.count("snapshot") == 1

    @pytest.mark.feature("F1")
    def test_sessions_without_a_workspace_or_with_one_that_is_gone_go_on(self, store: Store, tmp_path: Path) -> None:
        gone = tmp_path / "gone"
        gone.mkdir()
        store.create_session("gone", workspace=gone)
        gone.rmdir()
        for name, place in (("none", None), ("gone", gone)):
            with store.session(name, workspace=place) as session:
                session.user("a")
                with session.tool("bash") as run:
                    run.result("ok")
                point = session.checkpoint("c")
                session.user("b")
                assert (point.tree, session.files()) == (None, [])
                preview = session.preview_rewind(point)
                assert (preview.files, preview.kept) == ((), ())
                assert bool(preview.not_captured) == (place is not None), "what cannot be looked at is named"
                preview.apply()
                assert [message.role for message in session.messages()] == ["user", "tool"]
                session.undo()
                with pytest.raises((NotFound, Invalid)):
                    session.file_at("a", point)
        assert not gone.exists()

    @pytest.mark.feature("F1")
    def test_the_whole_file_system_and_a_home_directory_are_refused(self, store: Store) -> None:
        import pwd

        for place in ("/", pwd.getpwuid(os.getuid()).pw_dir):
            with store.session("s", workspace=place) as session:
                session.user("a")
                point = session.checkpoint("c")
                assert point.tree is None
                said = " ".join((*point.not_captured, *session.preview_rewind(0).not_captured))
                assert place in said or "home" in said or "whole" in said, "it is said that nothing was captured"

    @pytest.mark.feature("F1")
    def test_a_workspace_may_hold_the_store_itself(self, tmp_path: Path, work: Path) -> None:
        with self.open(work) as store, store.session("s", workspace=work) as session:
            session.user("go")
            point = session.checkpoint("c")
            self.run(session, work, {"a.txt": "two\n"})
            assert {each.path for each in session.files()} == {"a.txt"}
            session.rewind(point)
            assert (work / "a.txt").read_text() == "one\n"
            session.undo()
            assert (work / "a.txt").read_text() == "two\n"
            assert not store.verify()

    @pytest.mark.feature("F1")
    def test_names_that_are_no_text_and_control_characters(self, store: Store, work: Path) -> None:
        name = b"\xff\xfe\nx\x1b[31m"
        with store.session("s", workspace=work) as session:
            session.user("go")
            with session.tool("bash") as run:
                Path(os.fsdecode(bytes(work) + b"/" + name)).write_bytes(b"z")
                run.result("ok")
            (found,) = session.files()
            assert os.fsencode(found.path) == name
            preview = session.preview_rewind(1)
            assert "\x1b" not in str(preview) + repr(preview), "control characters never reach a terminal raw"
            done = preview.apply()
            assert [os.fsencode(path) for path in done.paths] == [name]
            assert os.fsencode(session.operations()[0].paths[0]) == name
            assert not (work / os.fsdecode(name)).exists()
            session.undo()
            assert (work / os.fsdecode(name)).read_bytes() == b"z"

    @pytest.mark.feature("F1")
    def test_a_name_in_a_repr_is_escaped(self, store: Store, work: Path) -> None:
        with store.session("s", workspace=work) as session:
            session.user("go")
            self.run(session, work, {"x\x1b[31m": "z"})
            shown = repr(session.files()) + repr(session.preview_rewind(1).files)
            assert "\x1b" not in shown


class FilePoints(Folders):
    """Files as they were at earlier points."""

    @pytest.mark.feature("B5", "F1")
    def test_a_file_as_it_was_and_four_reasons_why_not(self, store: Store, work: Path) -> None:
        (work / "link").symlink_to("a.txt")
        (work / ".gitignore").write_text("secret\n")
        (work / "secret").write_text("s")
        (work / "empty").write_bytes(b"")
        (work / "bin").write_bytes(b"\0\xff" * 1000)
        with store.session("s", workspace=work) as session:
            session.user("go")
            point = session.checkpoint("c")
            self.run(session, work, {"a.txt": "two\n", "later": "l", "empty": "no more"})
            last = session.messages()[-1]
            assert (session.file_at("a.txt", "c"), session.file_at("a.txt", last)) == (b"one\n", b"two\n")
            assert session.file_at(work / "a.txt", point.id) == b"one\n", "a whole path inside the workspace will do"
            assert (session.file_at("empty", point), session.file_at("bin", point)) == (b"", b"\0\xff" * 1000)
            with pytest.raises(NotFound):
                session.file_at("later", point)
            with pytest.raises(Unsupported):
                session.file_at("secret", point)
            for path in ("link", "src"):
                with pytest.raises(Invalid):
                    session.file_at(path, point)
            for path in ("../out", "/etc/passwd", "", "a\0b", "."):
                with pytest.raises(Invalid):
                    session.file_at(path, point)
            with pytest.raises(NotFound):
                session.file_at("a.txt", "nosuch")

    @pytest.mark.feature("B5", "F1")
    def test_two_points_are_compared_in_files_and_messages(self, store: Store, work: Path) -> None:
        with store.session("s", workspace=work) as session:
            session.user("first")
            session.checkpoint("a")
            session.user("second")
            self.run(session, work, {"a.txt": "two\n", "new": "n\n", "src/b.py": None})
            session.checkpoint("b")
            change(work, {"a.txt": "mine\n"})
            found = session.diff("a", "b")
            assert {each.path: (each.before.kind, each.after.kind) for each in found.files} == {
                "a.txt": ("file", "file"),
                "new": ("missing", "file"),
                "src/b.py": ("file", "missing"),
            }
            text = str(found)
            assert "-one" in text
            assert "+two" in text
            assert "second" in text
            assert found.left == ()
            now = {each.path: each.after.data for each in session.diff("b").files}
            assert now == {"a.txt": b"mine\n"}, "without a second point it is what is in the workspace now"
            assert not session.diff("b", "b")
            back = session.diff("b", "a")
            assert len(back.left) == len(found.right) > 0
            before = store.stats()
            session.diff("a")
            assert store.stats() == before, "looking changes nothing"

    @pytest.mark.feature("B5", "F1")
    def test_what_is_not_captured_is_not_shown_in_a_difference(self, store: Store, work: Path) -> None:
        (work / ".gitignore").write_text(".env\n")
        limits = Capture(largest_file=1000)
        with store.session("s", workspace=work, capture=limits) as session:
            session.user("first")
            session.checkpoint("a")
            change(work, {".env": "KEY=secret\n", "large": "x" * 2000})
            found = {each.path: each.after for each in session.diff("a").files}
            assert [*found] == [".env", "large"]
            assert all(each.kind == "unreadable" and each.data is None for each in found.values())
            assert "secret" not in str(session.diff("a"))

    @pytest.mark.feature("F1", "F2")
    def test_a_fork_gets_its_files_in_a_directory_of_its_own(self, store: Store, work: Path, tmp_path: Path) -> None:
        (work / "run.sh").write_text("#!/bin/sh\n")
        (work / "run.sh").chmod(0o750)
        (work / "link").symlink_to("a.txt")
        (work / "void").mkdir()
        with store.session("s", workspace=work) as session:
            session.user("go")
            point, before = session.checkpoint("c"), tree_of(work)
            self.run(session, work, {"a.txt": "two\n", "later": "l"})
            after, into = tree_of(work), tmp_path / "fork"
            fork = session.fork(point, as_session=True, into=into)
            assert (tree_of(into), tree_of(work)) == (before, after)
            assert os.path.realpath(fork.workspace or "") == os.path.realpath(into)
            with store.session(fork) as own:
                own.user("other way")
                self.run(own, into, {"a.txt": "fork\n"})
                assert {each.path for each in own.files()} == {"a.txt"}
                own.rewind(point.head.seq)
                assert (tree_of(into), tree_of(work)) == (before, after)
            with pytest.raises(Conflict):
                session.fork(point, as_session=True, into=into)
            (tmp_path / "file").write_text("mine")
            with pytest.raises(Conflict, match="not a directory"):
                session.fork(point, as_session=True, into=tmp_path / "file")
            with pytest.raises(Invalid):
                session.fork(point, into=tmp_path / "x")  # type: ignore[call-overload]
            assert not (tmp_path / "x").exists()
            here = session.fork(as_session=True, into=tmp_path / "now")
            assert tree_of(tmp_path / "now") == after
            session.undo()
            assert store.get_session(here.id).deleted
            assert tree_of(tmp_path / "now") == after, "undo leaves the directory"
