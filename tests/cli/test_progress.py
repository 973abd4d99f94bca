"""The line that says how far long work is."""

from __future__ import annotations

import re
import time

import pytest
from _terminal import Terminal
from _world import World

from takeback.cli.progress import Progress

pytestmark = pytest.mark.feature("F10")


def test_long_work_is_shown_with_rate_and_time_left_and_leaves_its_counts(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("Verifying", "records", shown=True) as progress:
        progress(40_000, 120_000)
        time.sleep(1.3)
    shown = capsys.readouterr().err
    first, *_, last = shown.split("\r\x1b[K")[1:]
    assert first.startswith("Verifying: 40,000 of 120,000 records, ")
    assert first.endswith("s left")
    assert "/s, " in first
    assert re.fullmatch(r"Verifying: 40,000 of 120,000 records in \d+s\n", last)


def test_short_work_and_work_that_nobody_watches_show_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("Verifying", "records", shown=True) as progress:
        progress(10)
    with Progress("Verifying", "records", shown=False):
        time.sleep(1.2)
    assert capsys.readouterr().err == ""


def test_work_that_fails_leaves_no_line_behind(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        with Progress("Checkpoint", "scanning files", shown=True):
            time.sleep(1.3)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        work()
    shown = capsys.readouterr().err
    assert "Checkpoint: scanning files, 1s" in shown
    assert shown.endswith("\r\x1b[K")


@pytest.mark.slow
def test_on_a_terminal_a_large_store_shows_it_and_a_pipe_does_not(world: World) -> None:
    with world.open() as store:
        session = store.session("long")
        for _ in range(100):
            session.append(*({"role": "user", "content": "x" * 50} for _ in range(1000)))
    terminal = Terminal("verify")
    terminal.wait_for("Verifying: ")
    assert terminal.end() == 0
    assert "records checked, no problems" in terminal.seen
    assert "Verifying" not in world.process("verify").stderr
