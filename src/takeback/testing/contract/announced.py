"""The contract: files that are announced before they change, and garbage collection of content."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from takeback import Invalid, Store

from .base import blocking
from .files import Folders, change


class Announced(Folders):
    """Files that are announced before they are changed."""

    @pytest.mark.feature("B3")
    @pytest.mark.parametrize("mode", ["calls", "off"])
    def test_the_first_announcement_counts_until_it_is_forgotten(self, store: Store, work: Path, mode: str) -> None:
        with store.session("s", workspace=work, capture=mode) as session:
            assert (session.file_diff("a.txt"), session.file_diffs()) == (None, [])
            session.snapshot_file("a.txt")
            assert session.file_diff("a.txt") is None, "unchanged"
            change(work, {"a.txt": "two\n"})
            session.snapshot_file("a.txt")
            change(work, {"a.txt": "three\n", "src/b.py": "unannounced"})
            found = session.file_diff("a.txt")
            assert found is not None
            assert (found.path, found.before.data, found.after.data) == ("a.txt", b"one\n", b"three\n")
            assert found.created_at is not None
            assert "-one" in found.text
            assert "+three" in found.text
            assert [each.path for each in session.file_diffs()] == ["a.txt"]
            session.forget_files()
            assert (session.file_diff("a.txt"), session.file_diffs()) == (None, [])
            session.snapshot_file("a.txt")
            change(work, {"a.txt": "four\n"})
            again = session.file_diff("a.txt")
            assert again is not None
            assert again.before.data == b"three\n"
            for wrong in ("../x", "/etc/passwd", "", 3):
                with pytest.raises(Invalid):
                    session.snapshot_file(wrong)  # type: ignore[arg-type]

    @pytest.mark.feature("B3", "B4")
    def test_tracking_starts_anew_at_each_checkpoint(self, store: Store, work: Path) -> None:
        session = store.create_session("s", workspace=work)
        session.snapshot_file("a.txt")
        change(work, {"a.txt": "two\n"})
        session.checkpoint("c")
        assert session.file_diffs() == []
        session.snapshot_file("a.txt")
        change(work, {"a.txt": "three\n"})
        (found,) = session.file_diffs()
        assert found.before.data == b"two\n"

    @pytest.mark.feature("B3")
    def test_binary_empty_missing_and_unreadable_are_four_things(self, store: Store, work: Path) -> None:
        data = b"\x89PNG\0\xff\r\n" * 50
        (work / "bin").write_bytes(data)
        (work / "empty").write_bytes(b"")
        os.mkfifo(work / "pipe")
        (work / "exe").write_text("x")
        (work / "exe").chmod(0o750)
        (work / "link").symlink_to("a.txt")
        session = store.create_session("s", workspace=work)
        names = ("bin", "empty", "none", "pipe", "exe", "link")
        kinds = {name: session.snapshot_file(name).kind for name in names}
        assert kinds == {
            **dict.fromkeys(("bin", "empty", "exe"), "file"),
            "none": "missing",
            "pipe": "unreadable",
            "link": "link",
        }
        (work / "bin").write_bytes(b"")
        (work / "empty").unlink()
        (work / "none").write_bytes(b"")
        (work / "pipe").unlink()
        (work / "exe").chmod(0o600)
        (work / "link").unlink()
        (work / "link").symlink_to("src")
        found = {each.path: each for each in session.file_diffs()}
        assert [*found] == [*names], "in the order they were announced"
        assert (found["bin"].before.data, found["bin"].after.data) == (data, b"")
        assert (found["empty"].before.data, found["empty"].after.kind, found["empty"].after.data) == (
            b"",
            "missing",
            None,
        )
        assert (found["none"].before.kind, found["none"].before.data, found["none"].after.data) == (
            "missing",
            None,
            b"",
        )
        assert (found["pipe"].before.kind, found["pipe"].after.kind) == ("unreadable", "missing")
        assert (found["exe"].before.mode, found["exe"].after.mode) == (0o750, 0o600)
        assert (found["link"].before.target, found["link"].after.target) == ("a.txt", "src")
        assert all(str(each) for each in found.values() if each.path not in ("none", "empty"))
        with pytest.raises(Invalid):
            store.create_session("nowhere").snapshot_file("a.txt")

    @pytest.mark.feature("B3")
    def test_that_an_empty_file_came_is_shown(self, store: Store, work: Path) -> None:
        session = store.create_session("s", workspace=work)
        session.snapshot_file("empty")
        (work / "empty").write_bytes(b"")
        assert "empty" in str(session.file_diff("empty"))

    @pytest.mark.feature("B3")
    def test_announcements_survive_reopening_and_go_back_with_a_rewind(self, tmp_path: Path, work: Path) -> None:
        store = self.open(tmp_path)
        session = store.create_session("s", workspace=work)
        session.user("a")
        session.snapshot_file("a.txt", idempotency_key="k")
        session.snapshot_file("a.txt", idempotency_key="k")
        if store.capabilities.persistent:
            store.close()
            store = self.open(tmp_path)
            session = store.get_session(session.id)
        with store:
            change(work, {"a.txt": "two\n"})
            (found,) = session.file_diffs()
            assert (found.before.data, found.before.mode) == (b"one\n", stat.S_IMODE((work / "a.txt").stat().st_mode))
            session.rewind(1, files=False)
            assert session.file_diffs() == []
            session.undo()
            assert len(session.file_diffs()) == 1
            assert not store.verify()

    @pytest.mark.feature("B3")
    def test_a_directory_that_became_a_link_is_not_followed(self, store: Store, work: Path, tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "b.py").write_text("SECRET")
        session = store.create_session("s", workspace=work)
        session.snapshot_file("src/b.py")
        (work / "src" / "b.py").unlink()
        (work / "src").rmdir()
        (work / "src").symlink_to(outside)
        assert all(b"SECRET" not in (each.after.data or b"") for each in session.file_diffs())


class Sweeping(Folders):
    """Garbage collection erases content that nothing needs, and nothing else."""

    @pytest.mark.feature("F12")
    @pytest.mark.promise("R17")
    def test_prune_removes_nothing_reachable(self, store: Store, work: Path) -> None:
        with store.session("s", workspace=work) as session:
            session.user("go")
            session.checkpoint("c")
            self.run(session, work, {"a.txt": "two\n", "new": "n"})
            session.snapshot_file("src/b.py")
            session.rewind("c")
            self.run(session, work, {"a.txt": "three\n"})
            before = store.stats()
            said = store.prune(spare_seconds=0)
            assert (said.dry_run, store.stats()) == (True, before), "a dry run, the default, changes nothing"
            assert said.blobs == 0, "branches, points, undo and announced files are all reachable"
            store.prune(dry_run=False, spare_seconds=0)
            assert not store.verify()
            assert session.file_at("a.txt", "c") == b"one\n"
            session.undo()
            assert (work / "a.txt").read_text() == "two\n"
            session.redo()
            assert (work / "a.txt").read_text() == "three\n"
            self.run(session, work, {"a.txt": "one\n"})
            assert session.file_at("a.txt", session.messages()[-1]) == b"one\n"
            with pytest.raises(Invalid):
                store.prune("everything")

    @pytest.mark.feature("F12")
    def test_a_purge_erases_the_files_of_a_session_and_spares_those_of_others(
        self, store: Store, tmp_path: Path, work: Path
    ) -> None:
        other = tmp_path / "other"
        other.mkdir()
        (other / "a.txt").write_text("one\n")
        with store.session("s", workspace=work) as session, store.session("t", workspace=other) as second:
            session.user("go")
            second.user("go")
            kept = second.checkpoint("c")
            self.run(session, work, {"secret": "CANARY-7319\n" * 100})
            session.snapshot_file("secret")
        many = store.stats().blobs
        store.delete_session(session)
        assert store.stats().blobs == many, "the trash keeps everything"
        purged = store.purge_session(session)
        assert purged.blobs > 0
        store.prune(dry_run=False, spare_seconds=0)
        assert store.stats().blobs < many
        assert second.file_at("a.txt", kept) == b"one\n"
        assert not store.verify()
        assert (work / "secret").exists(), "the workspace itself is the user's"
        with store.session("again", workspace=work) as session:
            session.user("go")
            assert session.file_at("secret", session.checkpoint("c")).startswith(b"CANARY-7319"), "kept anew"
            assert blocking(session).capture_error is None

    @pytest.mark.promise("R17")
    def test_a_purge_spares_what_was_attached_and_is_also_a_file_of_another_session(
        self, store: Store, work: Path
    ) -> None:
        content = b"attached, and in a workspace\n" * 200
        (work / "same").write_bytes(content)
        with store.session("s", workspace=work) as session:
            session.user("go")
            kept = session.checkpoint("c")
            self.run(session, work, {"same": "changed\n"})
        with store.session("attached") as other:
            other.user("look at this", attachments=[content])
        assert store.purge_session(other).blobs == 0
        assert session.file_at("same", kept) == content
        assert not store.verify()
