"""hook: what Claude Code tells its hooks becomes a session, with the files around each call; it never gets in the way.

The events are those of Claude Code's documentation of hooks, each given to a process of its own as Claude Code does it.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from _claude import BASH, GAVE, SESSION, Claude
from _world import World

import takeback
from takeback.cli import claude_code, hook_settings

pytestmark = pytest.mark.feature("F1", "F10")


@pytest.fixture
def claude(world: World) -> Claude:
    (world.project / "app.py").write_text("print('hello')\n")
    return Claude(world)


def _read(claude: Claude, look: Any) -> Any:
    with takeback.open(claude.world.url) as store:
        return look(store.get_session(f"claude-{SESSION}"))


# ---------------------------------------------------------------------- a session


def test_a_whole_session_is_recorded_and_what_a_shell_did_is_taken_back(claude: Claude) -> None:
    app = claude.world.project / "app.py"
    claude.event("SessionStart", source="startup", model="claude-sonnet-4-5")
    claude.event("UserPromptSubmit", prompt="Say goodbye instead")
    claude.begin("Bash", BASH)
    app.write_text("print('goodbye')\n")
    (claude.world.project / "junk.txt").write_text("made by the shell\n")
    claude.finish("Bash", BASH, GAVE)
    claude.event("Stop", stop_hook_active=False, last_assistant_message="It says goodbye now.")
    (claude.world.project / "yours.txt").write_text("made by you\n")
    claude.event("SessionEnd", reason="prompt_input_exit")

    def look(s: takeback.Session) -> None:
        assert (s.agent_id, s.workspace, s.model) == ("claude-code", str(claude.world.project), "claude-sonnet-4-5")
        assert (s.title, s.status, s.result) == ("Say goodbye instead", "completed", {"reason": "prompt_input_exit"})
        assert s.metadata["claude_code"]["session_id"] == SESSION
        assert [(m.role, m.text) for m in s.messages(tools=False)] == [
            ("user", "Say goodbye instead"),
            ("assistant", "It says goodbye now."),
        ]
        (call,) = s.tool_calls()
        assert (call.id, call.name, call.arguments, call.result) == ("toolu_01ABC123", "Bash", BASH, GAVE)
        assert {file.path: file.calls for file in s.files()} == {
            "app.py": ("toolu_01ABC123",),
            "junk.txt": ("toolu_01ABC123",),
        }
        assert s.messages()[1].duration == 0.012

    _read(claude, look)
    claude.world.ok("rewind", f"claude-{SESSION}:1^", "-y")
    assert sorted(path.name for path in claude.world.project.iterdir()) == ["app.py", "yours.txt"]
    assert app.read_text() == "print('hello')\n"


@pytest.mark.slow
def test_your_edits_between_prompts_are_yours(claude: Claude) -> None:
    claude.event("SessionStart", source="startup")
    claude.event("UserPromptSubmit", prompt="one")
    claude.begin("Write", {"file_path": "b.py", "content": "b"})
    (claude.world.project / "b.py").write_text("b")
    claude.finish("Write", {"file_path": "b.py", "content": "b"}, {"type": "create", "filePath": "b.py"})
    claude.event("Stop", stop_hook_active=False)
    (claude.world.project / "app.py").write_text("edited in an editor\n")
    claude.event("UserPromptSubmit", prompt="two")
    claude.event("Stop", stop_hook_active=True)
    claude.world.ok("rewind", f"claude-{SESSION}:1^", "-y")
    assert [(path.name, path.read_text()) for path in claude.world.project.iterdir()] == [
        ("app.py", "edited in an editor\n")
    ]


@pytest.mark.slow
def test_calls_side_by_side_each_get_their_own_result(claude: Claude) -> None:
    claude.event("UserPromptSubmit", prompt="both")
    claude.begin("Bash", {"command": "a"}, "toolu_a")
    claude.begin("Bash", {"command": "a"}, "toolu_b")
    claude.finish("Bash", {"command": "a"}, "second", "toolu_b")
    claude.finish("Bash", {"command": "a"}, "first", "toolu_a")
    calls = _read(claude, lambda s: [(call.id, call.result) for call in s.tool_calls()])
    assert calls == [("toolu_a", "first"), ("toolu_b", "second")]


@pytest.mark.slow
def test_hooks_at_the_same_time_lose_nothing(claude: Claude) -> None:
    claude.event("UserPromptSubmit", prompt="many")
    processes = []
    for number in range(6):
        text = json.dumps(
            {
                **claude.common,
                "hook_event_name": "PreToolUse",
                "tool_name": "Bash",
                "tool_input": {"command": str(number)},
                "tool_use_id": f"toolu_{number}",
            }
        )
        command = [sys.executable, "-m", "takeback", "hook", "claude-code"]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(command, text=True, env=claude.env, **pipes)
        process.stdin.write(text)
        process.stdin.close()
        processes.append(process)
    for process in processes:
        with process:
            assert process.wait(60) == 0
            assert process.stderr.read() == ""
    assert len(_read(claude, lambda s: s.pending_calls())) == 6


def test_a_call_that_failed_says_why(claude: Claude) -> None:
    claude.begin("Bash", {"command": "npm test"})
    claude.event(
        "PostToolUseFailure",
        tool_name="Bash",
        tool_input={"command": "npm test"},
        tool_use_id="toolu_01ABC123",
        error="Command exited with non-zero status code 1",
        is_interrupt=False,
    )
    (call,) = _read(claude, lambda s: s.tool_calls())
    assert (call.status, call.error) == ("failed", "Command exited with non-zero status code 1")


@pytest.mark.slow
def test_a_call_whose_end_is_never_told_is_closed_with_its_turn(claude: Claude) -> None:
    claude.event("UserPromptSubmit", prompt="one")
    claude.begin("Bash", BASH)
    (claude.world.project / "app.py").write_text("half done\n")
    claude.event("UserPromptSubmit", prompt="two, since I pressed escape")
    (call,) = _read(claude, lambda s: s.tool_calls())
    assert (call.status, call.error) == ("failed", claude_code.UNTOLD)
    (claude.world.project / "mine.py").write_text("mine\n")
    claude.event("Stop", stop_hook_active=False, last_assistant_message="ok")
    claude.world.ok("rewind", f"claude-{SESSION}:1^", "-y", "--overwrite", "app.py")
    assert (claude.world.project / "app.py").read_text() == "print('hello')\n"
    assert (claude.world.project / "mine.py").exists()


def test_an_end_without_a_beginning_is_a_whole_call(claude: Claude) -> None:
    claude.event("UserPromptSubmit", prompt="installed in the middle")
    (claude.world.project / "app.py").write_text("print('goodbye')\n")
    claude.finish("Bash", BASH, GAVE)
    (call,) = _read(claude, lambda s: s.tool_calls())
    assert (call.status, call.arguments) == ("completed", BASH)
    assert _read(claude, lambda s: s.files())[0].calls == (call.id,)


@pytest.mark.slow
def test_a_late_end_is_not_lost(claude: Claude) -> None:
    claude.event("UserPromptSubmit", prompt="one")
    claude.begin("Bash", BASH)
    claude.event("Stop", stop_hook_active=False)
    claude.finish("Bash", BASH, "late")
    assert [call.result for call in _read(claude, lambda s: s.tool_calls())] == [claude_code.UNTOLD, "late"]


@pytest.mark.slow
def test_older_versions_name_no_call(claude: Claude) -> None:
    for name, more in (("PreToolUse", {}), ("PostToolUse", {"tool_response": GAVE})):
        claude.event(name, tool_name="Bash", tool_input=BASH, **more)
    (call,) = _read(claude, lambda s: s.tool_calls())
    assert (call.status, call.result) == ("completed", GAVE)
    claude.event("PostToolUse", tool_name="Bash", tool_input={"command": "other"}, tool_response="alone")
    assert [call.result for call in _read(claude, lambda s: s.tool_calls())] == [GAVE, "alone"]


@pytest.mark.slow
def test_a_sub_agent_has_a_session_of_its_own_and_goes_back_with_the_whole(claude: Claude) -> None:
    claude.event("SessionStart", source="startup")
    claude.event("UserPromptSubmit", prompt="Explore")
    task = {"description": "Look around", "prompt": "Look", "subagent_type": "Explore"}
    claude.begin("Agent", task, "toolu_agent")
    who = {"agent_id": "def456", "agent_type": "Explore"}
    claude.event("SubagentStart", **who)
    claude.begin("Bash", BASH, "toolu_sub", **who)
    (claude.world.project / "app.py").write_text("print('goodbye')\n")
    claude.finish("Bash", BASH, GAVE, "toolu_sub", **who)
    claude.event(
        "SubagentStop",
        **who,
        stop_hook_active=False,
        agent_transcript_path="/home/ada/.claude/projects/pay/subagents/agent-def456.jsonl",
        last_assistant_message="Found it.",
    )
    claude.finish("Agent", task, "Found it.", "toolu_agent")
    claude.event("Stop", stop_hook_active=False, last_assistant_message="Done.")

    def look(s: takeback.Session) -> None:
        (child,) = s.children()
        assert (child.label, child.title, child.status, child.result) == ("def456", "Explore", "completed", "Found it.")
        assert [call.id for call in child.tool_calls()] == ["toolu_sub"]
        assert [call.id for call in s.tool_calls()] == ["toolu_agent"]

    _read(claude, look)
    claude.world.ok("rewind", f"claude-{SESSION}:1^", "-y")
    assert (claude.world.project / "app.py").read_text() == "print('hello')\n"


@pytest.mark.slow
def test_a_conversation_that_is_resumed_goes_on(claude: Claude) -> None:
    for number, source in enumerate(("startup", "resume")):
        claude.event("SessionStart", source=source)
        claude.event("UserPromptSubmit", prompt=f"prompt {number}")
        claude.event("SessionEnd", reason="other")
    assert _read(claude, lambda s: (s.turn_count, s.status)) == (2, "completed")
    claude.event("UserPromptSubmit", prompt="without a start")
    assert _read(claude, lambda s: (s.turn_count, s.status)) == (3, "active")


def test_the_list_of_todos_is_the_list_of_tasks(claude: Claude) -> None:
    todos = [
        {"content": "Find it", "status": "completed", "activeForm": "Finding it"},
        {"content": "Fix it", "status": "in_progress", "activeForm": "Fixing it"},
        {"content": "Odd", "status": "no such status"},
        "no todo",
    ]
    claude.begin("TodoWrite", {"todos": todos})
    claude.finish("TodoWrite", {"todos": todos}, {"oldTodos": [], "newTodos": todos})
    assert _read(claude, lambda s: [(task.description, task.status) for task in s.tasks()]) == [
        ("Find it", "completed"),
        ("Fix it", "in_progress"),
        ("Odd", "pending"),
    ]


@pytest.mark.slow
def test_the_project_counts_and_not_where_a_shell_went(claude: Claude) -> None:
    claude.event("SessionStart", source="startup")
    below = claude.world.project / "sub"
    below.mkdir()
    claude.common["cwd"] = str(below)
    claude.event("UserPromptSubmit", prompt="in a subdirectory")
    with takeback.open(claude.world.url) as store:
        assert len(store.list_sessions()) == 1


def test_inside_run_it_belongs_to_that_session(claude: Claude) -> None:
    event = json.dumps({**claude.common, "hook_event_name": "UserPromptSubmit", "prompt": "hi"})
    claude.world.process("run", "--", "sh", "-c", f"echo '{event}' | '{sys.executable}' -m takeback hook claude-code")
    with takeback.open(claude.world.url) as store:
        (outer,) = [each for each in store.list_sessions() if each.kind == "main"]
        assert [each.name for each in outer.children()] == [f"claude-{SESSION}"]


# ---------------------------------------------------------------------- never in the way


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no JSON",
        "[]",
        '{"hook_event_name": "PreToolUse"}',
        '{"hook_event_name": "PreToolUse", "session_id": 7, "tool_name": {}}',
        '{"hook_event_name": "UserPromptSubmit", "session_id": "' + "x" * 5000 + '"}',
    ],
)
def test_what_cannot_be_read_is_one_line_on_stderr(claude: Claude, text: str) -> None:
    ran = claude.give(text)
    assert (ran.returncode, ran.stdout, len(ran.stderr.splitlines())) == (0, "", 1)
    assert ran.stderr.startswith("takeback: ")
    assert " was not recorded: " in ran.stderr


@pytest.mark.parametrize("name", ["Notification", "PreCompact", "SomethingNew", ""])
def test_other_events_are_nothing_to_record(claude: Claude, name: str) -> None:
    claude.event(name, message="Claude needs your permission to use Bash", notification_type="permission_prompt")
    assert not claude.world.url.exists()


def test_a_store_that_cannot_be_used_is_no_hindrance(claude: Claude, tmp_path: Path) -> None:
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"this is no store" * 1000)
    env = {**claude.env, "TAKEBACK_STORE": str(broken)}
    event = json.dumps({**claude.common, "hook_event_name": "UserPromptSubmit", "prompt": "hi"})
    ran = claude.world.process("hook", "claude-code", input=event, env=env)
    assert (ran.returncode, ran.stdout, len(ran.stderr.splitlines())) == (0, "", 1)


def test_a_directory_that_is_not_captured_is_still_recorded(claude: Claude, tmp_path: Path) -> None:
    claude.world.project = tmp_path / "gone"
    claude.common["cwd"] = str(tmp_path / "gone")
    claude.event("UserPromptSubmit", prompt="hi")
    assert _read(claude, lambda s: s.message_count) == 1


def test_a_look_that_takes_too_long_is_given_up_until_the_next_start(
    claude: Claude, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import io

    from takeback.cli import main
    from takeback.client.running import Running

    look, looks = Running.capture_files, list[Any]()

    def slow(session: Any) -> None:
        looks.append(session)
        time.sleep(5)
        look(session)

    def give(name: str, **fields: Any) -> str:
        event = json.dumps({**claude.common, "hook_event_name": name, **fields})
        monkeypatch.setattr(sys, "stdin", io.StringIO(event))
        assert main(["hook", "claude-code"]) == 0
        return capsys.readouterr().err

    monkeypatch.setattr(Running, "capture_files", slow)
    monkeypatch.setitem(hook_settings.EVENTS, "UserPromptSubmit", 2.5)
    assert "files are not captured: scanning them took more than" in give("UserPromptSubmit", prompt="one")
    assert give("UserPromptSubmit", prompt="two") == ""
    assert len(looks) == 1
    monkeypatch.setattr(Running, "capture_files", look)
    assert give("SessionStart", source="resume") == ""
    assert _read(claude, lambda s: (s.state.get(claude_code.CAPTURE_OFF), s.message_count)) == (None, 1)


# The command as it is, but with less time for an event.
HURRIED = (
    "import sys\nfrom takeback.cli import hook_settings, main\n"
    "hook_settings.EVENTS = dict.fromkeys(hook_settings.EVENTS, 4.5)\n"
    "sys.exit(main(['hook', 'claude-code']))\n"
)


@pytest.mark.slow
def test_a_store_that_somebody_has_locked_is_said_as_such_and_nothing_is_switched_off(claude: Claude) -> None:
    claude.event("UserPromptSubmit", prompt="one")
    (claude.world.project / "app.py").write_text("so that there is something to write down\n")
    holder = (
        "import sqlite3, sys\nheld = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "held.execute('begin immediate')\nprint('held', flush=True)\nsys.stdin.read()\n"
    )
    command = [sys.executable, "-c", holder, str(claude.world.url)]
    event = {**claude.common, "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": BASH}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as locked:
        assert locked.stdout is not None
        assert locked.stdout.readline() == "held\n"
        hurried, given = [sys.executable, "-c", HURRIED], json.dumps({**event, "tool_use_id": "toolu_1"})
        ran = subprocess.run(hurried, input=given, capture_output=True, text=True, env=claude.env, check=False)
        locked.communicate("", timeout=30)
    assert (ran.returncode, ran.stdout, len(ran.stderr.splitlines())) == (0, "", 1)
    assert ran.stderr.startswith("takeback: PreToolUse was not recorded: the store is in use")
    assert _read(claude, lambda s: s.state.get(claude_code.CAPTURE_OFF)) is None
    claude.begin("Bash", BASH, "toolu_2")
    assert [call.id for call in _read(claude, lambda s: s.pending_calls())] == ["toolu_2"]


@pytest.mark.slow
def test_an_event_that_never_comes_is_not_waited_for(claude: Claude) -> None:
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", HURRIED], text=True, env=claude.env, **pipes) as process:
        assert process.wait(20) == 0
        assert process.stderr is not None
        assert process.stderr.read() == "takeback: hook was not recorded: no event arrived on stdin within 2 seconds\n"


def test_a_person_is_told_how_it_is_used(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    assert world.run("hook", "claude-code", "--user").code == 2
    assert world.run("hook", "claude-code", "--install", "--uninstall").code == 2
    assert world.run("hook", "nothing").code == 2
    ran = world.run("hook", "claude-code")
    assert (ran.code, "takeback hook claude-code --install" in ran.err) == (2, True)


def test_a_dry_run_records_nothing(claude: Claude) -> None:
    event = json.dumps({**claude.common, "hook_event_name": "Stop"})
    ran = claude.world.process("hook", "claude-code", "-n", input=event)
    assert (ran.returncode, ran.stderr) == (0, "Dry run: would record Stop.\n")
    assert not claude.world.url.exists()


# ---------------------------------------------------------------------- settings


OTHERS: dict[str, Any] = {
    "permissions": {"allow": ["Bash(npm run lint)"]},
    "hooks": {
        "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "./check.sh"}]}],
        "Notification": [{"hooks": [{"type": "command", "command": "say grüß"}]}],
    },
    "model": "opus",
}


def _settings(world: World) -> Path:
    path = world.project / ".claude" / "settings.json"
    path.parent.mkdir(exist_ok=True)
    return path


def test_installing_keeps_everything_else_and_uninstalling_leaves_no_trace(world: World) -> None:
    path = _settings(world)
    path.write_text(json.dumps(OTHERS, indent=2, ensure_ascii=False) + "\n")
    path.chmod(0o600)
    before = path.read_text()
    ran = world.ok("hook", "claude-code", "--install")
    assert ran.out == f"{path} written\n"
    found = json.loads(path.read_text())
    assert (found["permissions"], found["model"]) == (OTHERS["permissions"], "opus")
    assert found["hooks"]["Notification"] == OTHERS["hooks"]["Notification"]
    assert found["hooks"]["PreToolUse"][0] == OTHERS["hooks"]["PreToolUse"][0]
    assert {*found["hooks"]} == {*hook_settings.EVENTS, "Notification"}
    (ours,) = found["hooks"]["PreToolUse"][1]["hooks"]
    assert (found["hooks"]["PreToolUse"][1]["matcher"], ours["type"], ours["timeout"]) == ("*", "command", 10)
    assert path.stat().st_mode & 0o777 == 0o600
    once = path.read_text()
    assert world.ok("hook", "claude-code", "--install").out == f"{path} is unchanged\n"
    assert path.read_text() == once
    world.ok("hook", "claude-code", "--uninstall")
    assert path.read_text() == before
    assert world.ok("hook", "claude-code", "--uninstall", "--json").document["changed"] is False
    assert not world.url.exists()


def test_what_is_installed_is_what_claude_code_runs(world: World) -> None:
    (world.project / "a.txt").write_text("a")
    world.ok("hook", "claude-code", "--install")
    event = {"session_id": SESSION, "cwd": str(world.project), "hook_event_name": "UserPromptSubmit", "prompt": "hi"}
    (group,) = json.loads(_settings(world).read_text())["hooks"]["UserPromptSubmit"]
    command = group["hooks"][0]["command"]
    ran = subprocess.run(command, shell=True, input=json.dumps(event), capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    with takeback.open(world.url) as store:
        assert store.get_session(f"claude-{SESSION}").message_count == 1
    broken = subprocess.run(command.replace("hook", "no-such-verb"), shell=True, capture_output=True, check=False)
    assert broken.returncode == 0


def test_installing_again_brings_it_up_to_date_where_it_stands(world: World, tmp_path: Path) -> None:
    path = _settings(world)
    old = {"type": "command", "command": "/old/bin/takeback hook claude-code"}
    path.write_text(json.dumps({"hooks": {"Stop": [{"hooks": [old, {"type": "command", "command": "beep"}]}]}}))
    store = tmp_path / "an other.db"
    world.ok("hook", "claude-code", "--install", "--store", str(store))
    (group,) = json.loads(path.read_text())["hooks"]["Stop"]
    assert [hook["command"] for hook in group["hooks"]][1] == "beep"
    assert f"--store '{store}' hook claude-code || true" in group["hooks"][0]["command"]
    world.ok("hook", "claude-code", "--uninstall")
    assert json.loads(path.read_text()) == {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "beep"}]}]}}


def test_a_dry_run_shows_the_change(world: World) -> None:
    ran = world.ok("hook", "claude-code", "--install", "-n")
    assert '+    "SessionStart": [' in ran.out.splitlines()
    assert ran.err == "Dry run: nothing was changed.\n"
    assert not (world.project / ".claude").exists()


def test_the_settings_of_a_person_and_a_link_to_them(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, real = world.project.parent / "config", world.project.parent / "dotfiles.json"
    folder.mkdir()
    real.write_text("{}\n")
    (folder / "settings.json").symlink_to(real)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(folder))
    world.ok("hook", "claude-code", "--install", "--user")
    assert (folder / "settings.json").is_symlink()
    assert {*json.loads(real.read_text())["hooks"]} == {*hook_settings.EVENTS}
    world.ok("hook", "claude-code", "--install", "--local")
    assert (world.project / ".claude" / "settings.local.json").exists()


@pytest.mark.parametrize(
    "command",
    [
        "cd x && takeback hook claude-code; ./my-notify.sh",
        "takeback hook claude-code || ./my-notify.sh",
        "takeback --store a.db hook claude-code || true; ./my-notify.sh",
        "NOTIFY=1 takeback hook claude-code || true",
        "takeback --store $(find-store) hook claude-code || true",
        "echo takeback hook claude-code",
        "takeback hook claude-code\n./my-notify.sh",
    ],
)
def test_a_command_that_somebody_built_around_ours_is_theirs(world: World, command: str) -> None:
    path, theirs = _settings(world), {"hooks": [{"type": "command", "command": command}]}
    path.write_text(json.dumps({"hooks": {"Stop": [theirs]}}))
    world.ok("hook", "claude-code", "--install")
    assert json.loads(path.read_text())["hooks"]["Stop"][0] == theirs
    world.ok("hook", "claude-code", "--uninstall")
    assert json.loads(path.read_text()) == {"hooks": {"Stop": [theirs]}}


@pytest.mark.parametrize("store", [None, "it's an other.db", "postgresql://u@h/d?a=1&b=2", "grüß.db"])
@pytest.mark.parametrize("python", ["/usr/bin/python3", "/an other's/bin/python"])
def test_what_we_write_is_known_again(monkeypatch: pytest.MonkeyPatch, store: str | None, python: str) -> None:
    monkeypatch.setattr(sys, "executable", python)
    for found in (None, "/bin/takeback"):
        monkeypatch.setattr(hook_settings.shutil, "which", lambda name, found=found: found)
        settings = hook_settings.installed({}, hook_settings.command(store))
        assert hook_settings.removed(settings) == {}


# What Python reads and JSON, or UTF-8, cannot hold.
NOT_TO_WRITE = ['{"a": 1e400}', '{"a": -1e999}', '{"a": NaN}', '{"a": Infinity}', '{"a": "\\ud800"}', "[" * 100_000]


@pytest.mark.parametrize("text", ["{", '{"hooks": []}', "[]", '{"hooks": {"Stop": 1}}', *NOT_TO_WRITE])
def test_settings_that_cannot_be_read_are_left_alone(world: World, text: str) -> None:
    path = _settings(world)
    path.write_text(text)
    ran = world.run("hook", "claude-code", "--install")
    assert (ran.code, "nothing was changed" in ran.err, path.read_text()) == (1, True, text)


def test_a_dry_run_says_what_is_installed_by_now(world: World) -> None:
    command = ("hook", "claude-code", "--json")
    assert world.ok(*command, "--install", "-n").document["installed"] is False
    assert world.ok(*command, "--install").document["installed"] is True
    assert world.ok(*command, "--uninstall", "-n").document["installed"] is True
    assert world.ok(*command, "--uninstall").document["installed"] is False
