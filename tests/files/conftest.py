"""Small workspaces, a store that must be sound at the end, and a session in it; a file may have its own instead."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import takeback
from takeback import Session, Store


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A workspace with one file."""
    root = tmp_path / "work"
    root.mkdir()
    (root / "a.txt").write_text("one\n")
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace with two files."""
    made = tmp_path / "w"
    made.mkdir()
    for name in ("a", "b"):
        (made / name).write_text("0")
    return made


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store that has no problem when the test has ended."""
    with takeback.open(tmp_path / "store.db") as store:
        yield store
        report = store.verify()
        assert not report, str(report)


@pytest.fixture
def session(store: Store, work: Path) -> Iterator[Session]:
    """A session that runs in the workspace, and has one turn."""
    with store.session("s", workspace=work) as session:
        session.user("first")
        yield session
