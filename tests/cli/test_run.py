"""run: a program sees and does what it always does, and what it did is kept and can be taken back."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from _schema import check_document
from _terminal import Terminal
from _world import World

import takeback
from takeback.testing.contract.base import eventually

pytestmark = pytest.mark.feature("F1", "F10")

CHANGES = "echo two > a.txt; rm b.txt; mkdir -p sub; echo new > sub/c.txt"


def _session(world: World) -> takeback.Session:
    with takeback.open(world.url) as store:
        return store.list_sessions(limit=1)[0]


def _output(world: World) -> str:
    with takeback.open(world.url, read_only=True) as store:
        (call,) = store.list_sessions(limit=1)[0].tool_calls()
        return str(call.result)


def _script(world: World, text: str) -> str:
    """Write a program in Python and give its path."""
    path = world.project.parent / "program.py"
    path.write_text(text)
    return str(path)


def _until_gone(pid: int) -> None:
    """Look for a process until it is gone, which is an error."""
    for _ in range(600):
        os.kill(pid, 0)
        time.sleep(0.1)


def _eventually(world: World, text: str, seconds: float = 60.0) -> None:
    """Wait until a message of the newest session holds a text, as another process sees it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if world.url.exists():
            with takeback.open(world.url, read_only=True) as store:
                found = [m.text for s in store.list_sessions() for m in s.messages()]
            if any(text in each for each in found):
                return
        time.sleep(0.05)
    raise AssertionError(f"{text!r} was not recorded: {found}")


# ---------------------------------------------------------------------- without a terminal


def test_what_a_program_did_to_files_is_taken_back(world: World) -> None:
    (world.project / "a.txt").write_text("one\n")
    (world.project / "b.txt").write_text("stays\n")
    ran = world.process("run", "--", "sh", "-c", f"{CHANGES}; echo out; echo err >&2")
    assert (ran.returncode, ran.stdout) == (0, "out\n")
    said, told = ran.stderr.splitlines()
    assert said == "err"
    assert told.startswith("takeback: files A 1 M 1 D 1. Take it back with: takeback rewind 1")
    command = told.partition("takeback rewind ")[2]
    world.ok("rewind", command, "-y")
    assert sorted(path.name for path in world.project.iterdir()) == ["a.txt", "b.txt"]
    assert (world.project / "a.txt").read_text() == "one\n"
    world.ok("undo", "-y")
    assert (world.project / "sub" / "c.txt").read_text() == "new\n"


def test_a_workspace_that_it_deleted_comes_back_as_it_says(world: World) -> None:
    project = world.project.parent / "doomed"
    (project / "sub").mkdir(parents=True)
    (project / "sub" / "a.txt").write_text("one\n")
    ran = world.process("-C", str(project), "run", "--", "sh", "-c", f"rm -rf '{project}'")
    told, _, command = ran.stderr.strip().partition(" Restore its files to a new directory with: takeback ")
    assert (ran.returncode, told) == (0, f"takeback: the workspace {project} is gone.")
    assert not project.exists()
    world.ok(*shlex.split(command))
    assert (project.with_name("doomed.before") / "sub" / "a.txt").read_text() == "one\n"


def test_your_own_edits_after_it_are_kept(world: World) -> None:
    (world.project / "a.txt").write_text("one\n")
    world.process("run", "--", "sh", "-c", "echo two > a.txt; echo two > mine.txt")
    (world.project / "mine.txt").write_text("an afternoon\n")
    world.ok("rewind", "@:1^", "-y")
    assert (world.project / "a.txt").read_text() == "one\n"
    assert (world.project / "mine.txt").read_text() == "an afternoon\n"


@pytest.mark.parametrize(
    ("command", "code", "how"),
    [
        ("exit 3", 3, "exit code 3"),
        ("kill -9 $$", 137, "killed by SIGKILL"),
        ("kill -TERM $$", 143, "killed by SIGTERM"),
    ],
)
def test_how_it_ends_is_passed_on_and_kept(world: World, command: str, code: int, how: str) -> None:
    ran = world.process("run", "--", "sh", "-c", f"echo before; {command}")
    assert (ran.returncode, ran.stdout) == (code, "before\n")
    session = _session(world)
    assert (session.status, session.error) == ("error", how)
    assert _output(world) == f"before\n{how}"
    assert "tool run failed: before" in world.ok("show").out


def test_stdin_reaches_the_program_and_bytes_pass_as_they_are(world: World) -> None:
    given = b"\xff\x00\x1b[31m" + "grün\n".encode() * 30_000
    ran = world.process("run", "--", "cat", input=given, text=False)
    assert (ran.returncode, ran.stdout) == (0, given)
    assert _output(world).startswith("\\xff\x00\x1b[31mgrün\n")
    shown = world.ok("show", "--tools", "full").out
    assert "\\x1b[31mgrün" in shown
    assert "\x1b" not in shown


@pytest.mark.slow
def test_of_endless_output_the_first_and_the_last_part_are_kept(world: World) -> None:
    script = _script(world, "for number in range(700_000):\n    print(f'{number:09}')\n")
    ran = world.process("run", "--", sys.executable, script)
    assert len(ran.stdout) == 7_000_000
    output = _output(world)
    assert len(output) < 1_100_000
    assert output.startswith("000000000\n000000001\n")
    assert output.endswith("000699999\n")
    assert " characters left out ...]\n" in output


def test_a_reader_that_leaves_ends_the_program(world: World) -> None:
    command = f"'{sys.executable}' -m takeback run yes | head -2; echo ${{PIPESTATUS[0]}}"
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert ran.stdout.split() == ["y", "y", "141"]
    assert _session(world).error == "killed by SIGPIPE"


def test_the_program_finds_its_session(world: World) -> None:
    program = "echo $TAKEBACK_SESSION $TAKEBACK_STORE; "
    inside = f"'{sys.executable}' -m takeback note 'from inside'; '{sys.executable}' -m takeback run -q -- true"
    ran = world.process("run", "--", "sh", "-c", program + inside)
    session_id, url = ran.stdout.splitlines()[0].split()
    assert url == str(world.url)
    with takeback.open(world.url) as store:
        session = store.get_session(session_id)
        assert [note.text for note in session.notes()] == ["from inside"]
        assert [(child.kind, child.title, child.status) for child in session.children()] == [
            ("subagent", "true", "completed")
        ]


def test_a_named_session_goes_on(world: World) -> None:
    for number in (1, 2):
        assert (
            world.process("run", "--name", "build", "--agent", "ci", "sh", "-c", f"echo {number} > f").returncode == 0
        )
    session = _session(world)
    assert (session.name, session.agent_id, session.turn_count, session.status) == ("build", "ci", 2, "completed")
    world.ok("rewind", "build:2^", "-y")
    assert (world.project / "f").read_text() == "1\n"


def test_a_session_that_somebody_runs_is_busy_and_nothing_is_run(world: World) -> None:
    with takeback.open(world.url) as store, store.session("build", workspace=world.project):
        ran = world.process("run", "--name", "build", "--", "touch", "made")
    assert ran.returncode == 6
    assert not (world.project / "made").exists()


def test_only_the_result_is_on_stdout_if_one_is_asked_for(world: World) -> None:
    ran = world.process("run", "--json", "--", "sh", "-c", "echo out; echo x > made; exit 4")
    document = check_document(ran.stdout)
    assert (ran.returncode, document["exit_code"], document["files"]["added"]) == (4, 4, 1)
    assert document["session"]["status"] == "error"
    assert ran.stderr == "out\n"
    world.ok("rewind", document["point"], "-y")
    assert not (world.project / "made").exists()
    assert world.process("run", "-q", "true").stdout.strip() == _session(world).id


def test_what_is_not_there_is_not_run_and_a_dry_run_runs_nothing(world: World) -> None:
    assert world.run("run", "--", "no-such-program-here").code == 127
    assert world.run("run").code == 2
    ran = world.ok("run", "-n", "touch", "made")
    assert ran.err == f"Dry run: would run touch made as a session in {world.project}.\n"
    assert not (world.project / "made").exists()
    assert not world.url.exists()


def test_a_directory_that_is_not_captured_is_no_hindrance(world: World) -> None:
    ran = world.process("-C", "/", "run", "--", "echo", "hi")
    assert (ran.returncode, ran.stdout) == (0, "hi\n")
    assert "files were not captured: the workspace '/' is not captured" in ran.stderr


@pytest.mark.trial("T31")
def test_a_home_is_also_what_the_environment_says(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(world.project))
    ran = world.process("run", "--", "sh", "-c", "echo x > made")
    why = f"the workspace {str(world.project)!r} is not captured: it is a home directory"
    assert ran.returncode == 0
    assert ran.stderr.startswith(f"takeback: files were not captured: {why} (session ")
    assert check_document(world.process("run", "--json", "--", "true").stdout)["not_captured"] == why
    below = world.project / "below"
    below.mkdir()
    told = world.process("-C", str(below), "run", "--", "sh", "-c", "echo x > made").stderr
    assert told.startswith("takeback: files A 1 M 0 D 0.")  # the home above has sessions, and is no workspace for it
    refused = world.run("guard", "--once")
    assert (refused.code, refused.err) == (1, f"takeback: {world.project} cannot be guarded: it is a home directory\n")


def test_a_workspace_that_is_not_the_directory_is_named(world: World) -> None:
    below = world.project / "below"
    below.mkdir()
    (world.project / ".git").mkdir()
    ran = world.process("-C", str(below), "run", "--", "sh", "-c", "echo x > made")
    assert ran.stderr.splitlines()[0] == f"takeback: the workspace is {world.project}"
    assert world.ok("-C", str(below), "guard", "--once").err == f"The workspace is {world.project}.\n"
    assert "the workspace is" not in world.process("run", "--", "true").stderr


@pytest.mark.parametrize("then", ["", "; echo other > '{url}'"])
def test_a_store_that_the_program_deletes_promises_nothing(world: World, then: str) -> None:
    command = f"echo x > made; rm -f '{world.url}'*" + then.format(url=world.url)
    ran = world.process("run", "--", "sh", "-c", f"{command}; exit 3")
    assert ran.returncode == 3
    assert "Take it back" not in ran.stderr
    assert ran.stderr.endswith("was deleted or replaced meanwhile, so this run is lost\n")


def test_what_it_leaves_in_the_background_holds_nothing_up(world: World) -> None:
    pid = world.project.parent / "pid"
    ran = world.process("run", "--", "sh", "-c", f"echo done; sleep 3600 & echo $! > '{pid}'")
    assert (ran.returncode, ran.stdout) == (0, "done\n")
    os.kill(int(pid.read_text()), signal.SIGKILL)  # it is still there
    noisy = f"yes & echo $! > '{pid}'"
    assert world.process("run", "--", "sh", "-c", noisy).returncode == 0
    with pytest.raises(ProcessLookupError):  # nobody reads it any more
        _until_gone(int(pid.read_text()))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_are_the_programs(world: World, number: signal.Signals) -> None:
    script = _script(
        world,
        "import signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: sys.exit(7))\n"
        "print('ready', flush=True)\ntime.sleep(30)\n",
    )
    command = [sys.executable, "-m", "takeback", "run", "--", sys.executable, script]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, start_new_session=True, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        process.communicate(timeout=30)
    assert process.returncode == 7
    assert _session(world).error == "exit code 7"


def test_what_was_shown_before_a_kill_is_kept(world: World) -> None:
    script = _script(world, "import time\nprint('shown before', flush=True)\ntime.sleep(60)\n")
    command = [sys.executable, "-m", "takeback", "run", "--", sys.executable, script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "shown before\n"
        _eventually(world, "shown before")
        (world.project / "made").write_text("by it")
        process.kill()
    with takeback.open(world.url) as store:
        session = store.list_sessions(limit=1)[0]
        assert session.status == "interrupted"
        with session:
            assert [(m.text, m.status) for m in session.messages(limit=1)] == [("shown before\n", "interrupted")]
            assert [call.status for call in session.pending_calls()] == ["unknown"]
    # Nobody knows whether it was still alive when the file was made: that is shown, and taken back if you say so.
    plan = world.ok("rewind", "@:1^", "-n", "--json").document
    assert ([each["path"] for each in plan["files"]], [*plan["unclear"]]) == ([], ["made"])
    world.ok("rewind", "@:1^", "-y", "--overwrite", "made")
    assert not (world.project / "made").exists()


@pytest.mark.slow
def test_a_kill_in_the_middle_of_endless_output_loses_the_last_moment_only(world: World) -> None:
    program = "import itertools\nfor n in itertools.count():\n    print(n, '.' * 80)\n"
    command = [sys.executable, "-m", "takeback", "run", "--", sys.executable, _script(world, program)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _eventually(world, " characters left out ...]", 60)
        seen = _last_line(world)
        while (shown := _last_line(world)) == seen:  # what comes then is kept as well
            time.sleep(0.05)
        process.kill()
    with takeback.open(world.url) as store:
        session = store.list_sessions(limit=1)[0]
        with session:
            output, status = session.messages(limit=1)[0].text, session.messages(limit=1)[0].status
        assert (status, bool(store.verify())) == ("interrupted", False)
    assert len(output) < 3_000_000
    assert _last_whole(output) >= shown


def _last_line(world: World) -> int:
    with takeback.open(world.url, read_only=True) as store:
        return _last_whole(store.list_sessions(limit=1)[0].messages(limit=1)[0].text)


def _last_whole(output: str) -> int:
    return int([line for line in output.splitlines() if line.endswith("." * 80)][-1].split()[0])


# ---------------------------------------------------------------------- in a terminal


ASKING = """
import os, shutil, signal, sys, time
print("tty", sys.stdin.isatty(), sys.stdout.isatty(), sys.stderr.isatty(), *shutil.get_terminal_size())
signal.signal(signal.SIGWINCH, lambda *_: print("size", *os.get_terminal_size(), flush=True))
try:
    print("hello", input("name? "))
    print("again? ", end="", flush=True)
    while True:  # a signal that comes just before a read is told only when the read ends
        time.sleep(0.05)
except KeyboardInterrupt:
    print("\\x1b[1minterrupted\\x1b[0m")
    sys.exit(5)
"""


def test_in_a_terminal_it_is_as_without_it(world: World) -> None:
    terminal = Terminal("run", "--", sys.executable, _script(world, ASKING))
    terminal.wait_for("tty True True True 100 24")
    terminal.answer("name? ", "Ada\r")
    terminal.wait_for("hello Ada")
    assert terminal.is_raw
    terminal.wait_for("again? ")
    terminal.resize(50, 132)
    terminal.wait_for("size 132 50")
    terminal.press("\x03")
    terminal.wait_for("\x1b[1minterrupted\x1b[0m")
    terminal.wait_for("takeback: no files changed")
    assert terminal.end() == 5
    assert not terminal.was_raw
    assert "hello Ada\r\n" in _output(world)
    assert "\x1b[1minterrupted" in _output(world)


def test_a_shell_in_it_has_job_control(world: World) -> None:
    terminal = Terminal("run", "--", "bash", "--norc", "-i", env={"PS1": "> "})
    terminal.answer("> ", "sleep 30\r")
    time.sleep(0.5)
    terminal.press("\x1a")
    terminal.wait_for("Stopped")
    terminal.answer("> ", "fg\r")
    terminal.wait_for("sleep 30")
    time.sleep(0.5)
    terminal.press("\x03")
    terminal.answer("> ", "echo made > made.txt; exit 6\r")
    terminal.wait_for("takeback: files A 1 M 0 D 0.")
    assert terminal.end() == 6


def test_ctrl_c_ends_the_program_and_not_the_record(world: World) -> None:
    terminal = Terminal("run", "--", "sh", "-c", "echo began; echo x > made; sleep 30")
    terminal.wait_for("began")
    time.sleep(0.3)
    terminal.press("\x03")
    terminal.wait_for("takeback: files A 1 M 0 D 0.")
    assert terminal.end() == 130
    assert _session(world).error == "killed by SIGINT"


def test_a_window_that_is_closed_ends_the_program_and_not_the_record(world: World) -> None:
    terminal = Terminal("run", "--", "sh", "-c", "echo x > made; echo began; sleep 30")
    terminal.wait_for("began")
    terminal.close()
    with world.open() as store:
        session = store.list_sessions()[0]
        assert (session.status, session.error) == ("error", "killed by SIGHUP")
        assert [file.path for file in session.files()] == ["made"]


def test_stderr_that_goes_elsewhere_stays_apart(world: World) -> None:
    elsewhere = world.project.parent / "err.txt"
    program = f"exec '{sys.executable}' -m takeback run -- sh -c 'echo out; echo err >&2' 2> '{elsewhere}'"
    terminal = Terminal("run", "--", "sh", "-c", program)
    terminal.wait_for("out")
    assert terminal.end() == 0
    assert elsewhere.read_text().splitlines()[0] == "err"


def test_a_kill_of_takeback_in_a_terminal_ends_the_program(world: World) -> None:
    beside = world.project.parent / "ended"
    script = _script(
        world,
        "import signal, sys, time\nfrom pathlib import Path\n"
        f"signal.signal(signal.SIGHUP, lambda *_: (Path({str(beside)!r}).write_text('hup'), sys.exit()))\n"
        "print('ready', flush=True)\ntime.sleep(30)\n",
    )
    terminal = Terminal("run", "--", sys.executable, script)
    terminal.wait_for("ready")
    _eventually(world, "ready")
    terminal.kill()
    eventually(lambda: beside.exists() and beside.read_text())
    assert beside.read_text() == "hup"
    assert _session(world).status == "interrupted"


@pytest.mark.parametrize(("key", "code"), [("\x03", 130), ("\x1c", 131)])
def test_a_program_that_lets_go_of_its_terminal_can_still_be_interrupted(world: World, key: str, code: int) -> None:
    terminal = Terminal("run", "--", "bash", "-c", "ulimit -c 0; echo began; exec sleep 900 >/dev/null 2>&1 </dev/null")
    terminal.wait_for("began")
    time.sleep(0.5)
    terminal.press(key)
    terminal.wait_for("takeback: no files changed")
    assert terminal.end() == code
    assert not terminal.was_raw


def test_a_program_that_let_go_of_its_terminal_finds_it_again(world: World) -> None:
    lets_go = (
        "exec </dev/null >/dev/null 2>&1; sleep 0.5; echo again >/dev/tty; read x </dev/tty; echo got $x >/dev/tty"
    )
    terminal = Terminal("run", "--", "bash", "-c", lets_go)
    terminal.answer("again", "it\r")
    terminal.wait_for("got it")
    assert terminal.end() == 0


def test_all_of_a_redirected_stderr_arrives_when_the_terminal_is_let_go(world: World) -> None:
    elsewhere = world.project.parent / "err.txt"
    loud = "exec </dev/null >/dev/null; sleep 0.3; head -c 300000 /dev/zero >&2"
    program = f"exec '{sys.executable}' -m takeback run -- bash -c '{loud}' 2> '{elsewhere}'"
    terminal = Terminal("run", "--", "sh", "-c", program)
    assert terminal.end() == 0
    assert elsewhere.read_bytes().count(b"\0") == 300_000


def test_what_is_typed_ahead_is_the_programs(world: World) -> None:
    terminal = Terminal("run", "--", "sh", "-c", "read a; read b; echo got $a $b")
    terminal.press("one\rtwo\r")
    terminal.wait_for("got one two")
    assert terminal.end() == 0


def test_a_program_that_is_not_ours_to_signal_is_no_failure() -> None:
    """As under sudo; signal 0 asks whether one may, and does nothing."""
    script = (
        "import os\nfrom types import SimpleNamespace\nfrom takeback.cli.programs import _Signals\n"
        "if os.getuid() == 0:\n    os.setuid(65534)\n"
        "for own in (False, True):\n    signals = _Signals(own_terminal=own)\n"
        "    signals.process = SimpleNamespace(pid=1, returncode=None)\n    signals._pass_on(0, None)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.slow
def test_much_that_is_typed_at_once_all_arrives(world: World) -> None:
    script = _script(
        world,
        "import sys, time, tty\ntty.setraw(0)\nprint('ready', flush=True)\ntime.sleep(0.5)\n"
        "data = b''\nwhile len(data) < 200_000:\n    data += sys.stdin.buffer.raw.read(65536)\n"
        "print('got', len(data), data.count(b'y'), flush=True)\n",
    )
    terminal = Terminal("run", "--", sys.executable, script)
    terminal.wait_for("ready")
    for _ in range(100):
        terminal.press("xy" * 1000)
    terminal.wait_for("got 200000 100000")
    assert terminal.end() == 0


def test_resume_exec_is_the_programs_terminal_and_end(work: World) -> None:
    terminal = Terminal("resume", "oauth", "--exec", "sh -c 'echo began; trap \"exit 9\" INT; sleep 30'")
    terminal.wait_for("began")
    time.sleep(0.3)
    terminal.press("\x03")
    assert terminal.end() == 9
    ran = work.process("resume", "oauth", "--exec", "sh -c 'kill -9 $$'")
    assert ran.returncode == 137


def test_nothing_is_left_of_the_terminal_if_the_program_cannot_start(world: World, tmp_path: Path) -> None:
    path = tmp_path / "no-program"
    path.write_text("#!/no/such/interpreter\n")
    path.chmod(0o755)
    terminal = Terminal("run", "--", os.fspath(path))
    terminal.wait_for("No such file or directory")
    assert terminal.end() == 126
    assert not terminal.was_raw


def test_a_program_that_may_not_be_run_is_126_as_in_shells(world: World) -> None:
    plain, odd = world.project / "plain", world.project / "odd"
    plain.write_text("x")
    odd.write_bytes(b"\x7fno program")
    odd.chmod(0o755)
    for name in ("./plain", "./odd", "."):
        ran = world.run("run", "--", name if name != "." else "./")
        assert ran.code == 126, ran
        assert "cannot be run" in ran.err
