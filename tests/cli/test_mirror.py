"""mirror: a folder for people, once or kept up to date, and back again with import."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from _world import World

pytestmark = pytest.mark.feature("A8")


def _folders(base: str = "out") -> list[Path]:
    return sorted(each for each in Path(base, "sessions").iterdir() if not each.name.startswith("."))


def test_the_sessions_of_this_workspace_or_all(work: World) -> None:
    assert work.ok("mirror", "out").out == "out: 2 written, 0 unchanged, 0 removed\n"
    assert len(_folders()) == 2
    assert work.ok("mirror", "out", "--all").out == "out: 1 written, 2 unchanged, 0 removed\n"
    texts = [each.joinpath("tasks.md").read_text() for each in _folders() if each.joinpath("tasks.md").exists()]
    assert texts == ["# Tasks\n\n- [ ] Find the race\n- [ ] Fix it\n"]
    assert work.run("-C", "/", "mirror", "out").code == 4


def test_the_store_is_only_read(work: World) -> None:
    before = work.ok("ops", "--all").out, work.ok("verify").out
    work.ok("mirror", "out")
    assert (work.ok("ops", "--all").out, work.ok("verify").out) == before


def test_a_dry_run_writes_nothing(work: World) -> None:
    assert work.ok("mirror", "out", "-n").err == "Dry run: would write 2 sessions to out.\n"
    assert not Path("out").exists()


def test_a_document_of_what_was_done(work: World) -> None:
    document = work.ok("mirror", "out", "--json").document
    assert (document["path"], len(document["written"]), document["removed"]) == ("out", 2, [])
    work.ok("rm", "oauth")
    assert len(work.ok("mirror", "out", "--json").document["removed"]) == 1


def test_what_is_in_the_way_is_named(work: World) -> None:
    Path("file").write_text("x")
    assert work.run("mirror", "file").code == 5
    work.ok("mirror", "out")
    place = _folders()[0]
    place.joinpath(".takeback-mirror").unlink()
    ran = work.ok("mirror", "out")
    assert ran.err.endswith("is not a mirror of this store and was left alone; move it away to mirror that session\n")
    assert place.name in ran.err


def test_a_store_that_is_not_there_removes_nothing(work: World) -> None:
    work.ok("mirror", "out", "--all")
    for more in ((), ("-n",)):
        ran = work.run("mirror", "out", "--all", "--store", str(work.url.with_name("typo.db")), *more)
        assert (ran.code, "there is no store at" in ran.err) == (4, True)
    assert len(_folders()) == 3


def test_a_damaged_session_keeps_its_folder_and_is_named(work: World) -> None:
    work.ok("mirror", "out")
    with work.open() as store:
        damaged = store.get_session("oauth").id
        store.get_session("fix-retry").user("go on")
        store._backend._connection.execute("UPDATE session SET title = 'x' WHERE name = 'oauth'")  # type: ignore[attr-defined]
    ran = work.run("mirror", "out")
    assert (ran.code, ran.out) == (7, "out: 1 written, 0 unchanged, 0 removed\n")
    assert ran.err == (
        f"takeback: session {damaged} is damaged, so its folder was left as it is; run: takeback verify\n"
    )
    assert Path("out", "sessions", damaged, "session.json").exists()


def test_it_is_kept_up_to_date_until_ctrl_c(work: World) -> None:
    command = [sys.executable, "-m", "takeback", "mirror", "out", "--follow"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        _wait(lambda: Path("out", "sessions").exists() and len(_folders()) == 2)
        work.ok("say", "-s", "oauth", "while it is mirrored")
        _wait(lambda: any("while it is mirrored" in _said(each) for each in _folders()))
        work.ok("rm", "oauth")
        _wait(lambda: len(_folders()) == 1)
    finally:
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=30)
    assert (running.returncode, err) == (0, "")


def _said(place: Path) -> str:
    try:
        return str([each["text"] for each in json.loads(place.joinpath("session.json").read_text())["messages"]])
    except FileNotFoundError:
        return ""


def _wait(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_folder_can_be_imported_again(work: World) -> None:
    work.ok("mirror", "out")
    elsewhere = str(work.url.with_name("other.db"))
    ran = work.ok("import", "out", "-n", "--store", elsewhere)
    assert [line.partition(": ")[2].split(" as ")[0] for line in ran.out.splitlines()] == ["would be imported"] * 2
    assert not os.path.exists(elsewhere)
    assert len(work.ok("import", "out", "--json", "--store", elsewhere).document["imported"]) == 2
    again = work.ok("import", "out", "--store", elsewhere)
    assert [line.partition(": ")[2] for line in again.out.splitlines()] == ["already here"] * 2
    assert [line.partition(": ")[2] for line in work.ok("import", "out").out.splitlines()] == ["already here"] * 2
    assert "Add OAuth, step 3" in work.ok("show", "oauth", "--store", elsewhere).out
    assert "Find the race" in work.ok("task", "-s", "fix-retry", "--store", elsewhere).out
    assert work.ok("verify", "--store", elsewhere).out.endswith("no problems\n")
    Path("empty").mkdir()
    assert work.run("import", "empty").code == 4
