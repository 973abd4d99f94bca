"""Watching: the system tells which paths changed, nothing is missed, and what is in doubt is looked at whole."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import takeback
from takeback.files.disk.scan import Scanner
from takeback.files.disk.watch import Watcher

pytestmark = pytest.mark.feature("A4", "F1")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    (root / "src").mkdir(parents=True)
    for number in range(60):
        (root / "src" / f"f{number}").write_text(str(number))
    return root


@pytest.fixture
def session(tmp_path: Path, work: Path) -> Iterator[takeback.Session]:
    watched = takeback.Capture(watch=True)
    with takeback.open(tmp_path / "s.db") as store, store.session("s", workspace=work, capture=watched) as session:
        session.user("go")
        yield session


def test_what_shells_do_is_told_and_goes_back(session: takeback.Session, work: Path) -> None:
    before = sorted(str(path) for path in work.rglob("*"))
    for number in range(12):
        with session.tool("bash"):
            command = f"echo x >> src/f{number}; mkdir -p n{number}/a; echo y > n{number}/a/c; rm src/f{59 - number};"
            subprocess.run(f"{command} mv src/f{20 + number} src/g{number}", shell=True, cwd=work, check=True)
    touched = {each.path: each.action for each in session.files()}
    assert len(touched) == 12 * 5
    planned = session.preview_rewind(0)
    assert planned.kept == ()
    planned.apply()
    assert sorted(str(path) for path in work.rglob("*")) == before
    assert [(work / "src" / f"f{number}").read_text() for number in range(60)] == [str(number) for number in range(60)]


def test_only_the_paths_that_were_told_are_looked_at(
    session: takeback.Session, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = list[list[bytes] | None]()
    scan = Scanner.scan

    def noted(self: Scanner, keep: object, paths: object = None) -> object:
        looks.append(None if paths is None else list(paths))  # type: ignore[call-overload]
        return scan(self, keep, paths)  # type: ignore[arg-type]

    monkeypatch.setattr(Scanner, "scan", noted)
    with session.tool("bash"):
        (work / "src" / "f1").write_text("changed")
    assert looks[-1] is not None
    assert b"src/f1" in looks[-1]
    assert len(looks[-1]) < 5
    assert session.files()[-1].path == "src/f1"


def test_the_first_answer_is_that_nothing_is_known(work: Path) -> None:
    watcher = Watcher(str(work))
    try:
        assert watcher.changed() is None
        assert watcher.changed() == []
        (work / "src" / "f2").unlink()
        assert watcher.changed() == [b"src/f2"]
    finally:
        watcher.close()
    assert not [name for name in os.listdir(work) if name.startswith(".takeback-")]


def test_without_the_package_it_is_said_what_to_install(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    with pytest.raises(takeback.Unsupported, match=r"takeback\[watch\]"):
        Watcher(str(work))
