"""A store as work leaves it."""

from __future__ import annotations

from pathlib import Path

import pytest
from _world import HOUR, World, use_tool

from takeback import Usage


@pytest.fixture
def world(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> World:
    """A store that is not there yet, and an empty project as the current directory."""
    made = World(tmp_path, capsys)
    monkeypatch.chdir(made.project)
    monkeypatch.setenv("TAKEBACK_STORE", str(made.url))
    monkeypatch.setenv("TZ", "UTC")
    for name in ("NO_COLOR", "TAKEBACK_SESSION", "PAGER"):
        monkeypatch.delenv(name, raising=False)
    return made


@pytest.fixture
def work(world: World) -> World:
    """Two sessions in the project, one elsewhere that was cut off.

    ``oauth``: three turns. ``fix-retry``: two turns in which a shell wrote files, with the checkpoint ``fixed`` after
    the first.
    """
    with world.open() as store:
        with store.session("oauth", agent="coder", workspace=world.project, model="some-model") as s:
            for turn in (1, 2, 3):
                s.user(f"Add OAuth, step {turn}")
                s.assistant(f"Step {turn} is done.", usage=Usage(4000, 100))
        world.clock.ms += 6 * HOUR
        support = world.project.parent / "support"
        support.mkdir()
        other = store.create_session("refunds", agent="triage", workspace=support)
        support.rmdir()
        other.user("Refund triage")
        world.clock.ms += HOUR
        pool = world.project / "pool.py"
        with store.session("fix-retry", agent="coder", workspace=world.project) as s:
            s.user("Fix the flaky retry test")
            use_tool(s, "bash", lambda: pool.write_text("retry(5)\n"))
            s.assistant("Fixed.", usage=Usage(20_000, 500))
            s.checkpoint("fixed", description="it works")
            s.set_tasks(["Find the race", "Fix it"])
            s.user("Now make it fast")
            use_tool(s, "bash", lambda: (pool.write_text("broken\n"), (world.project / "new.py").write_text("x\n")))
            s.assistant("Faster.\nMuch \x1b[31mfaster.", usage=Usage(21_000, 600))
    return world
