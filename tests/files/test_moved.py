"""Which directory a timeline belongs to: one that was moved, made anew, or is shared by several containers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import takeback
from takeback import presence

pytestmark = pytest.mark.feature("F14")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    root.mkdir()
    (root / "a").write_text("1")
    return root


def changed(session: takeback.Session, root: Path, text: str) -> None:
    with session.tool("write", {}):
        (root / "a").write_text(text)


def steps(store: takeback.Store, root: Path) -> int:
    return len([*store.workspace(root).timeline()])


def test_a_directory_that_was_moved_keeps_its_timeline(tmp_path: Path, work: Path) -> None:
    with takeback.open(tmp_path / "s.db") as store:
        changed(store.create_session("one", workspace=work), work, "2")
        moved = work.rename(tmp_path / "elsewhere")
        assert steps(store, moved) == 2
        changed(store.create_session("two", workspace=moved), moved, "3")
        assert (steps(store, moved), steps(store, work)) == (3, 0)


def test_a_copy_has_a_timeline_of_its_own(tmp_path: Path, work: Path) -> None:
    with takeback.open(tmp_path / "s.db") as store:
        changed(store.create_session("one", workspace=work), work, "2")
        copy = Path(shutil.copytree(work, tmp_path / "copy"))
        assert steps(store, copy) == 0


def test_a_directory_that_was_made_anew_goes_on_and_can_be_moved(tmp_path: Path, work: Path) -> None:
    with takeback.open(tmp_path / "s.db") as store:
        changed(store.create_session("one", workspace=work), work, "2")
        shutil.rmtree(work)
        work.mkdir()
        changed(store.create_session("two", workspace=work), work, "3")
        assert steps(store, work) == 4, "first, changed, found empty, changed"
        assert steps(store, work.rename(tmp_path / "elsewhere")) == 4


def test_containers_that_share_a_directory_share_its_timeline(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with takeback.open(tmp_path / "s.db") as store:
        changed(store.create_session("one", workspace=work), work, "2")
        monkeypatch.setattr(presence, "stable_machine", lambda: "another container")
        assert steps(store, work) == 2
        two = store.create_session("two", workspace=work)
        changed(two, work, "3")
        assert store.get_session("one").preview_rewind(0).other_sessions == {"a": two.id}
        monkeypatch.undo()
        assert steps(store, work) == 3
