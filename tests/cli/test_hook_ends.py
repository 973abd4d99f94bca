"""hook: whose a change is when a call ends without an event - denied, interrupted, or killed with Claude Code."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from _claude import BASH, GAVE, SESSION, Claude
from _world import World

import takeback
from takeback.cli import claude_code, claude_transcript

pytestmark = pytest.mark.feature("F1", "F10")

REJECTED = "The user doesn't want to proceed with this tool use. The tool use was rejected."
OTHER = "7c1d2f00-0000-4000-8000-000000000001"

# Claude Code, as far as hooks see it: it lives on, and starts each hook through a shell.
AGENT = """
import json, os, subprocess, sys
for line in sys.stdin:
    hook = f"'{sys.executable}' -m takeback hook claude-code || true"
    ran = subprocess.run(["sh", "-c", hook], input=line, text=True, capture_output=True)
    print(json.dumps(ran.stdout + ran.stderr), flush=True)
"""


class Running(Claude):
    """Claude Code as a process of its own, which can be killed, with a transcript."""

    def __init__(self, world: World, session: str = SESSION) -> None:
        super().__init__(world)
        self.transcript = world.project.parent / f"{session}.jsonl"
        self.common |= {"session_id": session, "transcript_path": str(self.transcript)}
        command = [sys.executable, "-c", AGENT]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.env, cwd=world.project
        )

    def event(self, name: str, **fields: Any) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({**self.common, "hook_event_name": name, **fields}) + "\n")
        self.process.stdin.flush()
        assert json.loads(self.process.stdout.readline()) == ""

    def write_result(self, call: str, text: str, *, error: bool = True) -> None:
        """Write the result of a call to the transcript, as Claude Code does."""
        block = {"type": "tool_result", "content": text, "is_error": error, "tool_use_id": call}
        line = {
            "type": "user",
            "message": {"role": "user", "content": [block]},
            "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "toolUseResult": f"Error: {text}",
            "sessionId": self.common["session_id"],
        }
        with self.transcript.open("a") as file:
            file.write(json.dumps(line, separators=(",", ":")) + "\n")
        time.sleep(0.05)  # what comes next has a later time, even on a file system with a coarse clock

    def end(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        self.process.wait(30)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def agents(world: World) -> Iterator[Callable[..., Running]]:
    """Start agents; all of them end with the test."""
    started = list[Running]()

    def start(session: str = SESSION) -> Running:
        started.append(Running(world, session))
        return started[-1]

    (world.project / "app.py").write_text("print('hello')\n")
    yield start
    for each in started:
        if each.process.poll() is None:
            each.end(signal.SIGKILL)


def _calls(world: World, session: str = SESSION) -> list[tuple[str, Any]]:
    with takeback.open(world.url, read_only=True) as store:
        return [(call.status, call.error) for call in store.get_session(f"claude-{session}").tool_calls()]


def _plan(world: World, point: str, *more: str) -> dict[str, Any]:
    plan: dict[str, Any] = world.ok("rewind", point, "-n", "--json", *more).document
    return plan


def _paths(plan: dict[str, Any]) -> list[str]:
    return [each["path"] for each in plan["files"]]


def _process(session: takeback.Session) -> Any:
    """Return what the start of the only call names as its process."""
    (start,) = [each for each in session.entries() if each.kind == "call"]
    return json.loads(start.body).get("process")


FIRST = f"claude-{SESSION}:1^"


@pytest.mark.trial("T35")
def test_what_you_edit_after_a_denial_is_yours(world: World, agents: Callable[..., Running]) -> None:
    claude = agents()
    claude.event("UserPromptSubmit", prompt="Fetch it")
    claude.begin("Bash", BASH)
    claude.write_result("toolu_01ABC123", REJECTED)
    (world.project / "app.py").write_text("my own edit\n")
    claude.event("UserPromptSubmit", prompt="Do something else")
    assert _calls(world) == [("failed", REJECTED)]
    plan = _plan(world, FIRST)
    assert (_paths(plan), plan["kept"], plan["unclear"]) == ([], ["app.py"], {})
    world.ok("rewind", FIRST, "-y")
    assert (world.project / "app.py").read_text() == "my own edit\n"


@pytest.mark.trial("T35")
def test_a_guard_and_a_rewind_find_out_that_a_call_was_denied(world: World, agents: Callable[..., Running]) -> None:
    claude = agents()
    claude.event("UserPromptSubmit", prompt="Fetch it")
    claude.begin("Bash", BASH)
    claude.write_result("toolu_01ABC123", REJECTED)
    (world.project / "app.py").write_text("my own edit\n")
    world.ok("guard", "--once")  # Claude Code is still alive, and waits for the next prompt
    (scan,) = [each for each in world.ok("timeline", "--json").document["scans"] if each["changes"]]
    assert [(each["path"], each["kind"]) for each in scan["changes"]] == [("app.py", "outside")]
    assert _calls(world) == [("failed", REJECTED)]
    claude.begin("Bash", BASH, "toolu_again")
    claude.write_result("toolu_again", REJECTED)
    (world.project / "other.py").write_text("my own file\n")
    world.ok("rewind", FIRST, "-y")
    assert sorted(path.name for path in world.project.iterdir()) == ["app.py", "other.py"]


@pytest.mark.trial("T35")
def test_what_a_call_did_before_it_was_interrupted_is_its_own(world: World, agents: Callable[..., Running]) -> None:
    claude = agents()
    claude.event("UserPromptSubmit", prompt="Slow")
    claude.begin("Bash", BASH)
    (world.project / "half.txt").write_text("written before Esc\n")
    claude.write_result("toolu_01ABC123", "[Request interrupted by user for tool use]")
    (world.project / "app.py").write_text("my own edit\n")
    claude.begin("Bash", {"command": "ls"}, "toolu_next")  # the same turn goes on: the denied call is not open any more
    claude.finish("Bash", {"command": "ls"}, GAVE, "toolu_next")
    assert [status for status, _ in _calls(world)] == ["failed", "completed"]
    plan = _plan(world, FIRST)
    assert (_paths(plan), plan["kept"], plan["unclear"]) == (["half.txt"], ["app.py"], {})


@pytest.mark.trial("T35")
def test_where_nobody_knows_when_a_call_ended_it_is_unclear(world: World, agents: Callable[..., Running]) -> None:
    claude = agents()
    claude.event("UserPromptSubmit", prompt="one")
    claude.begin("Bash", BASH)
    (world.project / "app.py").write_text("by the call, or by me\n")
    claude.event("UserPromptSubmit", prompt="two")
    assert _calls(world) == [("failed", claude_code.UNTOLD)]
    (world.project / "mine.py").write_text("mine\n")
    claude.event("Stop", last_assistant_message="ok")
    plan = _plan(world, FIRST)
    assert (_paths(plan), [*plan["unclear"]], plan["kept"]) == ([], ["app.py"], ["mine.py"])
    assert "Bash" in plan["unclear"]["app.py"]
    assert _paths(_plan(world, FIRST, "--overwrite", "app.py")) == ["app.py"]
    world.ok("rewind", FIRST, "-y", "--overwrite", "app.py")
    assert (world.project / "app.py").read_text() == "print('hello')\n"
    assert (world.project / "mine.py").exists()


@pytest.mark.trial("T2", "T35")
def test_a_call_names_the_agent_and_ends_with_it(world: World, agents: Callable[..., Running]) -> None:
    claude = agents()
    claude.event("UserPromptSubmit", prompt="one")
    claude.begin("Bash", BASH)
    with takeback.open(world.url) as store:
        s = store.get_session(f"claude-{SESSION}")
        process = _process(s)
        assert (process["pid"], process["host"]) == (claude.process.pid, os.uname().nodename)
        assert [call.status for call in s.pending_calls()] == ["running"]  # though its hook is long gone
        claude.end(signal.SIGKILL)
        assert [call.status for call in s.pending_calls()] == ["unknown"]
    (world.project / "app.py").write_text("edited once Claude Code was dead\n")
    plan = _plan(world, FIRST)
    assert (_paths(plan), [*plan["unclear"]]) == ([], ["app.py"])
    assert _paths(_plan(world, FIRST, "--overwrite", "app.py")) == ["app.py"]
    world.ok("rewind", FIRST, "-y")
    assert (world.project / "app.py").read_text() == "edited once Claude Code was dead\n"


@pytest.mark.trial("T36")
def test_rewinding_one_of_two_sessions_leaves_the_files_of_the_other(
    world: World, agents: Callable[..., Running]
) -> None:
    one, two = agents(), agents(OTHER)
    for claude, name in ((one, "one.py"), (two, "two.py")):
        given = {"file_path": str(world.project / name), "content": "x\n"}
        claude.event("UserPromptSubmit", prompt=f"Write {name}")
        claude.begin("Write", given, f"toolu_{name}")
        (world.project / name).write_text("x\n")
        claude.finish("Write", given, {"type": "create"}, f"toolu_{name}")
    claude.begin("Bash", {"command": "make"}, "toolu_two_again")
    one.begin("Write", {"file_path": "app.py"}, "toolu_one_again")  # both are at work: what a call names is its own
    (world.project / "app.py").write_text("by one\n")
    one.finish("Write", {"file_path": "app.py"}, {"type": "update"}, "toolu_one_again")
    plan = _plan(world, FIRST)
    assert sorted(_paths(plan)) == ["app.py", "one.py"]
    assert [*plan["other_sessions"]] == ["two.py"]
    ran = world.ok("rewind", FIRST, "-y")
    assert "two.py" in ran.out + ran.err
    assert f"claude-{OTHER}" in ran.out + ran.err
    assert sorted(path.name for path in world.project.iterdir()) == ["app.py", "two.py"]
    assert (world.project / "app.py").read_text() == "print('hello')\n"


def test_a_hook_whose_agent_has_exited_says_that_it_is_unknown(world: World) -> None:
    (world.project / "app.py").write_text("print('hello')\n")
    claude = Claude(world)
    event = {**claude.common, "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": BASH}
    later = f"sleep 0.3; '{sys.executable}' -m takeback hook claude-code; echo done > ../done"
    script = f"setsid sh -c {json.dumps(later)} < ../event >/dev/null 2>&1 &"
    (world.project.parent / "event").write_text(json.dumps({**event, "tool_use_id": "toolu_1"}))
    subprocess.run(["sh", "-c", script], env=claude.env, check=True)
    end = time.monotonic() + 30
    while not (world.project.parent / "done").exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    with takeback.open(world.url, read_only=True) as store:
        assert _process(store.get_session(f"claude-{SESSION}")) is None


@pytest.mark.parametrize(
    "line",
    [
        "",
        "no JSON with toolu_1",
        '{"type":"user","message":{"role":"user","content":"toolu_1"},"timestamp":"2026-11-17T16:18:30.100Z"}',
        '{"message":{"content":[{"type":"tool_result","tool_use_id":"toolu_1"}]},"timestamp":"yesterday"}',
        '{"message":{"content":[{"type":"tool_use","id":"toolu_1"}]},"timestamp":"2026-11-17T16:18:30.100Z"}',
        '{"message":{"content":[{"type":"tool_result","tool_use_id":"toolu_1"}]},"timest',
    ],
)
def test_a_transcript_that_does_not_tell_has_no_end(tmp_path: Path, line: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(f"{line}")
    assert claude_transcript.ends(str(path), ["toolu_1"]) == {}
    assert claude_transcript.ends(str(tmp_path / "none.jsonl"), ["toolu_1"]) == {}
    assert claude_transcript.ends(None, ["toolu_1"]) == {}
    end = '{"message":{"content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"ok"}]}'
    path.write_text(f'{line}\n{end},"timestamp":"2026-11-17T16:18:30.100Z"}}\n{{"later":"toolu_1"}}')
    at = datetime(2026, 11, 17, 16, 18, 30, 100_000, UTC)
    assert claude_transcript.ends(str(path), ["toolu_1", "toolu_2"]) == {
        "toolu_1": (int(at.timestamp() * 1000), "ok", True)
    }
