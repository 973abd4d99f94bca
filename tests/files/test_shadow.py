"""What a shadow git repository gets wrong, each with the test that shows that it does not happen here.

Measured with one made as Gemini CLI makes it, or read in the code of other tools. Those that are not in this file are
in ``test_field``:

- a nested repository without commits, no snapshot at all; with commits, nothing inside is restored:
  ``test_files_of_a_nested_repository_are_restored``
- ignored files are not restored, and nobody is told: ``test_ignored_files_are_untouched_and_named``
- an empty directory does not come back, 0600 comes back as 0644:
  ``test_an_empty_directory_and_private_modes_come_back``
- a hard link is written through or becomes a file: ``test_a_hard_link_outside_is_not_written_through``
- a snapshot that is gone counts as an empty one, and ``clean -fd`` deletes:
  ``test_a_snapshot_that_is_missing_is_an_error_and_deletes_nothing``
- a reverted ``.gitignore`` no longer protects what it named: ``test_a_gitignore_that_goes_back_deletes_nothing``
- ``reset --hard`` drops commits, the index is clobbered: ``test_the_users_repository_is_never_touched``,
  ``test_commits_made_by_a_tool_stay_and_only_files_go_back``
- nothing happens outside of git: ``test_it_works_without_git``
- an undo of a turn without changes, of an edited file: ``test_undo_of_a_turn_that_changed_nothing_changes_nothing``,
  ``test_an_edited_file_is_restored_and_not_deleted``
- 120 GB of checkpoints: ``test_what_an_unchanged_workspace_costs``
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from _folders import look, run, shell

from takeback import Session, Store, Unsupported

pytestmark = [pytest.mark.feature("F1", "B5")]


def test_a_snapshot_that_failed_is_no_empty_one(session: Session, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot that failed, and a restore that then removes all that is not in it: measured."""
    before, real = look(work), os.scandir

    def failing(path: Any = ".") -> Any:
        raise OSError(errno.EIO, "Input/output error")

    shell(work, "echo mine > mine.txt")
    monkeypatch.setattr(os, "scandir", failing)
    unseen = session.user("second")
    assert "Input/output error" in str(session.capture_error)
    for ask in (lambda: session.checkpoint("no"), lambda: session.preview_rewind(1), lambda: session.rewind(1)):
        with pytest.raises(Unsupported, match="Input/output error"):
            ask()
    assert session.checkpoints() == []
    monkeypatch.setattr(os, "scandir", real)
    run(session, work, "echo two > a.txt; echo n > new")
    preview = session.preview_rewind(unseen)
    assert {each.path: each.action for each in preview.files} == {"a.txt": "overwrite", "new": "delete"}
    preview.apply()
    assert look(work) == {**before, b"mine.txt": ("file", 0o644, b"mine\n")}


def test_what_is_there_after_each_of_many_points_comes_back(session: Session, work: Path) -> None:
    """A hundred snapshots and no more, in Claude Code; a repository that was not brought up to date, in Gemini CLI.

    https://github.com/google-gemini/gemini-cli/issues/11243
    """
    points = []
    for number in range(120):
        (work / "a.txt").write_text(f"{number}\n")
        points.append(session.checkpoint())
        run(session, work, f"echo agent {number} > a.txt")
    for number in (119, 0, 60, 119):
        session.rewind(points[number], overwrite=["a.txt"])
        assert (work / "a.txt").read_text() == f"{number}\n"


@pytest.mark.parametrize("into", [False, True], ids=["in the same directory", "in one of its own"])
def test_a_fork_goes_back_to_before_it_was_forked(
    store: Store, session: Session, work: Path, tmp_path: Path, into: bool
) -> None:
    """Forked sessions start without undo history, in Claude Code's SDK."""
    before = look(work)
    run(session, work, "echo two > a.txt; echo n > new")
    where = {"into": tmp_path / "other"} if into else {}
    session.release()
    fork = session.fork(as_session=True, name="fork", **where)
    root = tmp_path / "other" if into else work
    after = look(root)
    with fork:
        fork.user("second")
        run(fork, root, "echo three > a.txt; rm new")
        fork.rewind(fork.messages()[0])
        assert look(root) == before
        fork.undo()
        fork.rewind(fork.messages()[1])
        assert look(root) == after
