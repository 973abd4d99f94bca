"""A store as work leaves it: two sessions, one of which changed files, an agent with its state, checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from _client import use_tool

import takeback


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An empty project."""
    made = tmp_path / "pay"
    made.mkdir()
    return made


@pytest.fixture
def store(tmp_path: Path) -> Iterator[takeback.Store]:
    """A store that has no problem when the test has ended."""
    with takeback.open(tmp_path / "store.db") as made:
        yield made
        report = made.verify()
        assert not report, str(report)


@pytest.fixture
def worked(store: takeback.Store, place: Path) -> takeback.Store:
    """A store with work in it: ``fix-retry`` wrote files in two turns, ``oauth`` only talked."""
    store.save_agent("coder", name="Coder", state={"likes": "tea"})
    with store.session("oauth", agent="coder", workspace=place) as s:
        s.user("Add OAuth")
        s.assistant("Which provider?")
    with store.session("fix-retry", agent="coder", workspace=place) as s:
        s.user("Fix the flaky retry test")
        use_tool(s, "bash", lambda: (place / "pool.py").write_text("retry(5)\n"))
        s.assistant("Fixed.")
        s.checkpoint("fixed", description="it works")
        s.set_tasks(["Find the race", "Fix it"])
        s.state.set("tries", 3)
        s.user("Now make it fast")
        use_tool(s, "bash", lambda: ((place / "pool.py").write_text("broken\n"), (place / "new.py").write_text("x\n")))
        s.assistant("Faster.")
    return store
