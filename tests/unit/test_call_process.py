"""The start of a call names the process that runs it, whatever the handle; once that is gone, its end is unknown."""

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

import takeback

# Starts a tool through a handle without a lease, and is killed while it runs.
KILLED = """
import os, signal, sys
import takeback
store = takeback.open(sys.argv[1])
session = store.get_session("work")
with session.tool("bash", {"command": "make"}, id="call_1"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with a session that somebody was killed in."""
    made = str(tmp_path / "store.db")
    with takeback.open(made) as store:
        store.create_session("work").user("go on")
    subprocess.run([sys.executable, "-c", KILLED, made], check=False)
    return made


@pytest.mark.trial("T2")
def test_a_call_whose_process_was_killed_is_unknown_and_only_a_retry_runs_it(url: str) -> None:
    with takeback.open(url) as store:
        session = store.get_session("work")
        (call,) = session.pending_calls()
        assert call.status == "unknown"
        with pytest.raises(takeback.Conflict, match="unknown whether tool call 'call_1' took effect"):
            session.tool(call).__enter__()
        with pytest.raises(takeback.Conflict):
            session.tool("bash", {"command": "make"}, id="call_1").__enter__()
        with session.retry(call) as run:
            assert [each.status for each in session.pending_calls()] == ["running"]
            run.result("made")
        assert [(each.status, each.attempts) for each in session.tool_calls()] == [("completed", 2)]
        assert not store.verify()


@pytest.mark.trial("T2")
def test_a_call_of_a_living_process_runs_for_everybody(tmp_path: Path) -> None:
    with takeback.open(tmp_path / "store.db") as store:
        session = store.create_session("work")
        run = session.tool("bash", {"command": "make"})
        run.__enter__()
        (start,) = session.entries()
        process = json.loads(start.body)["process"]
        assert (process["pid"], process["host"]) == (os.getpid(), os.uname().nodename)
        with takeback.open(tmp_path / "store.db", read_only=True) as reader:
            assert [each.status for each in reader.get_session("work").pending_calls()] == ["running"]
        run.result("made")


@pytest.mark.trial("T35")
@pytest.mark.parametrize("ended", [True, False])
def test_what_changed_after_a_known_end_is_somebody_elses_and_else_unclear(tmp_path: Path, ended: bool) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "gone.txt").write_text("x\n")
    with takeback.open(tmp_path / "store.db") as store:
        session = store.session("work", workspace=work, hold=False, capture="manual")
        start = session.user("go on")
        session.capture_files()
        call = session.tool("bash", {"command": "make"}).__enter__().call
        (work / "before.txt").write_text("by the call\n")
        time.sleep(0.05)  # the clock of a file system may be coarse
        until = datetime.now(UTC)
        time.sleep(0.05)
        (work / "after.txt").write_text("by somebody\n")
        (work / "gone.txt").unlink()  # when that was, nothing tells
        session.capture_files(calls=[call], until=until, ended=ended)
        session.resolve_call(call, "interrupted", success=False)
        plan = session.preview_rewind(start)
        assert [each.path for each in plan.files] == ["before.txt"]
        assert (plan.kept, sorted(plan.unclear)) == (
            (("after.txt",), ["gone.txt"]) if ended else ((), ["after.txt", "gone.txt"])
        )
        for wrong in ({"until": until}, {"ended": True}, {"calls": [call], "ended": True}, {"until": "now"}):
            with pytest.raises(takeback.Invalid):
                session.capture_files(**wrong)  # type: ignore[arg-type]
