"""The demo shows the main job and proves it; what it prints is what the commands gave; its recording is current."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from _terminal import Terminal
from _world import World

import takeback
from takeback.cli.demo.scratch import Kept, Scratch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import record_demo  # noqa: E402

sys.path.remove(str(ROOT / "tools"))

pytestmark = [pytest.mark.feature("F10", "F1", "F4"), pytest.mark.slow]


class Played(NamedTuple):
    """A demo that was played in a pipe."""

    ran: subprocess.CompletedProcess[str]
    folder: Path
    mine: Path  # the store of the person who runs it


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Play the demo once, in a directory whose name a shell would cut in two."""
    here = tmp_path_factory.mktemp("demo")
    folder, mine = here / "a demo", here / "mine.db"
    env = {**os.environ, "TAKEBACK_STORE": str(mine), "TAKEBACK_SESSION": "mine"}
    command = [sys.executable, "-m", "takeback", "demo", str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=env)
    return Played(ran, folder, mine)


def test_it_proves_what_it_shows(played: Played) -> None:
    assert (played.ran.returncode, played.ran.stderr) == (0, "")
    acts = re.findall(r"^(\d)\. ", played.ran.stdout, re.M)
    proofs = re.findall(r"^✓ ", played.ran.stdout, re.M)
    assert (acts, len(proofs)) == (["1", "2", "3"], 13)
    assert f"All {len(proofs)} proofs hold" in played.ran.stdout


def test_a_pipe_gets_plain_text_and_the_persons_own_store_is_left_alone(played: Played) -> None:
    assert "\x1b" not in played.ran.stdout
    assert not played.mine.exists()


def test_what_it_left_is_what_it_said(played: Played) -> None:
    project = played.folder / "payments"
    assert (project / "pool.py").read_text() == "retry(3)\n"
    assert (project / "config.py").read_text() == "TIMEOUT = 5\nTIMEOUT = 60  # your own\n"
    assert not (project / "old.md").exists()
    with takeback.open(played.folder / "work.db") as store:
        (session,) = store.list_sessions()
        kinds = [each.kind for each in session.operations()]
        assert (session.turn_count, kinds[:3]) == (1, ["redo", "undo", "rewind"])
        assert [each.status for each in session.messages()].count("interrupted") == 1
        assert not store.verify()


def test_its_last_lines_run_as_printed(played: Played) -> None:
    *_, enter, look = played.ran.stdout.splitlines()
    env = {name: value for name, value in os.environ.items() if not name.startswith("TAKEBACK_")}
    typed = f"set -e\n{enter}\n{look}\nagent 'Clean up'\ntakeback undo -n\n"
    done = subprocess.run(["sh"], input=typed, capture_output=True, text=True, timeout=60, check=False, env=env)
    assert done.returncode == 0, done.stderr
    assert "Fix the flaky test" in done.stdout
    assert "Cleaned up" in done.stdout


def test_the_recording_is_what_it_prints_today(tmp_path: Path) -> None:
    shown = record_demo.comparable(record_demo.record(str(tmp_path)))
    assert shown == record_demo.comparable(record_demo.recorded())
    assert record_demo.PICTURE.stat().st_size < 60_000
    assert not re.search(r"<script|href|@import|url\(", record_demo.PICTURE.read_text("utf-8"))


def test_it_obeys_no_color_and_ends_when_it_is_interrupted(tmp_path: Path) -> None:
    terminal = Terminal("demo", env={"NO_COLOR": "1", "TMPDIR": str(tmp_path)})
    terminal.wait_for("finished its turn")
    terminal.interrupt()
    assert terminal.end() == 130
    assert "\x1b" not in terminal.seen


def test_a_claim_that_does_not_hold_is_exit_1(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter(range(100))
    whole = Scratch.look

    def look(scratch: Scratch) -> dict[str, Kept]:
        seen = whole(scratch)  # as if the rewind had forgotten a file
        return {**seen, "pool.py": Kept("0000000", 0o644)} if next(looks) == 2 else seen

    monkeypatch.setattr(Scratch, "look", look)
    ran = world.run("demo", "elsewhere")
    assert ran.code == 1
    assert ran.err.startswith("takeback: this does not hold: every other file is as before")


def test_programs_get_a_document_and_nothing_else(world: World) -> None:
    given = world.ok("-C", "..", "demo", "elsewhere", "--json").document
    assert given["directory"] == str(world.project.parent / "elsewhere")
    assert len(given["proofs"]) == 13


def test_a_directory_with_something_in_it_is_refused(work: World) -> None:
    ran = work.run("demo", ".")
    assert (ran.code, ran.out) == (1, "")
    assert "is not empty; name a new directory" in ran.err


def test_it_takes_no_store_of_yours(work: World) -> None:
    ran = work.run("demo", "--store", str(work.url))
    assert (ran.code, ran.err) == (2, "takeback: the demo uses its own store; leave out --store\n")
