"""guard: a checkpoint whenever files come to rest; nobody is in its way, and it is in nobody's."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from _world import World, use_tool

import takeback

pytestmark = [pytest.mark.feature("F1", "F2", "F10"), pytest.mark.slow]

FAST = ("--settle", "0.2s", "--every", "0.2s")


class Guard:
    """A guard that runs as a process of its own; each checkpoint is a document on its stdout."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "takeback", "guard", "--jsonl", *arguments]
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(command, text=True, start_new_session=True, **pipes)
        self.began, self.said = self.process.stderr.readline(), ""
        self._lines = _Collected(self.process.stdout)

    def next(self, seconds: float = 30.0) -> Any:
        """Wait for the next checkpoint."""
        return json.loads(self._lines.next(seconds))

    @property
    def waiting(self) -> int:
        """How many checkpoints were taken that nobody asked for yet."""
        return len(self._lines)

    def end(self, number: signal.Signals = signal.SIGINT) -> tuple[int, str]:
        """End it, and give its exit code and what it said."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(30)
        self._lines.thread.join(30)
        if not self.process.stderr.closed:
            self.said += self.process.stderr.read()
            self.process.stdout.close()
            self.process.stderr.close()
        return self.process.returncode, self.said


class _Collected(list[str]):
    """Lines that a thread reads as they come."""

    def __init__(self, stream: Any) -> None:
        self._there = threading.Condition()
        self.thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self.thread.start()

    def _read(self, stream: Any) -> None:
        for line in stream:
            with self._there:
                self.append(line)
                self._there.notify_all()

    def next(self, seconds: float) -> str:
        with self._there:
            assert self._there.wait_for(lambda: len(self) > 0, seconds), "no checkpoint was taken"
            return self.pop(0)


@pytest.fixture
def guards() -> Iterator[Callable[..., Guard]]:
    """Start guards; all of them end with the test."""
    started = list[Guard]()

    def start(*arguments: str) -> Guard:
        started.append(Guard(*arguments))
        return started[-1]

    yield start
    for each in started:
        each.end(signal.SIGKILL)


@pytest.fixture(params=["told", "poll"])
def how(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Both ways to notice changes."""
    return FAST if request.param == "told" else (*FAST, "--poll")


def test_every_rest_is_a_checkpoint_and_any_of_them_can_be_gone_back_to(
    world: World, guards: Callable[..., Guard], how: tuple[str, ...]
) -> None:
    (world.project / "a.txt").write_text("one\n")
    guard = guards(*how)
    assert guard.began.startswith(f"Guarding {world.project}, ")
    first = guard.next()
    assert (first["type"], first["description"], first["files"]) == ("automatic", "first checkpoint", True)
    (world.project / "a.txt").write_text("two, by anybody\n")
    (world.project / "b.txt").write_text("new\n")
    second = guard.next()
    assert second["description"] == "2 changes: a.txt, b.txt"
    (world.project / "a.txt").unlink()
    third = guard.next()
    assert third["description"] == "1 change: a.txt"
    code, said = guard.end()
    assert (code, said) == (0, "3 checkpoints taken. List them: takeback checkpoints guard\n")
    world.ok("rewind", f"guard:{first['id']}", "-y")
    assert [(path.name, path.read_text()) for path in world.project.iterdir()] == [("a.txt", "one\n")]
    world.ok("undo", "-y")
    assert [path.name for path in world.project.iterdir()] == ["b.txt"]


def test_nothing_new_adds_nothing(world: World, guards: Callable[..., Guard], how: tuple[str, ...]) -> None:
    (world.project / "a.txt").write_text("one\n")
    guard = guards(*how)
    guard.next()
    size = _entries(world)
    (world.project / "a.txt").write_text("one\n")  # another time, the same content
    (world.project / "build").mkdir()
    (world.project / "build" / "out.o").write_text("ignored")
    time.sleep(3)
    assert (guard.waiting, _entries(world)) == (0, size)


def _entries(world: World) -> int:
    with takeback.open(world.url, read_only=True) as store:
        session = store.get_session("guard")
        return len(session.checkpoints()) + sum(1 for _ in session.entries())


def test_files_that_are_still_being_written_are_waited_for(world: World, guards: Callable[..., Guard]) -> None:
    guard = guards("--settle", "1s", "--every", "0.2s")
    guard.next()
    for number in range(12):
        with (world.project / "log.txt").open("a") as file:
            file.write(f"{number}\n")
        time.sleep(0.2)
    made = guard.next()
    with takeback.open(world.url, read_only=True) as store:
        assert store.get_session("guard").file_at("log.txt", made["id"]).count(b"\n") == 12
    assert guard.waiting == 0


def test_only_so_many_stay_and_those_made_by_hand_all_do(world: World) -> None:
    for number in range(6):
        (world.project / "a.txt").write_text(f"{number}\n")
        document = world.ok("guard", "--once", "--keep", "3", "--json").document
        if number == 1:
            world.ok("checkpoint", "by hand", "-s", "guard")
    names = [each["name"] for each in world.ok("checkpoints", "guard", "--json").document["checkpoints"]]
    assert (len(names), names[0], document["name"] in names) == (4, "by hand", True)


def test_once_says_when_there_is_nothing_to_do(world: World) -> None:
    (world.project / "a.txt").write_text("one\n")
    assert "first checkpoint" in world.ok("guard", "--once").out
    ran = world.ok("guard", "--once")
    assert (ran.out, ran.err) == ("", "Nothing changed since the last checkpoint.\n")
    (world.project / "a.txt").write_text("two\n")
    assert "1 change: a.txt" in world.ok("guard", "--once").out


def test_killed_with_9_and_started_again_it_goes_on(
    world: World, guards: Callable[..., Guard], how: tuple[str, ...]
) -> None:
    (world.project / "a.txt").write_text("one\n")
    guard = guards(*how)
    guard.next()
    assert guard.end(signal.SIGKILL)[0] == -signal.SIGKILL
    (world.project / "a.txt").write_text("while nobody watched\n")
    again = guards(*how)
    assert again.next()["description"] == "1 change: a.txt"
    (world.project / "a.txt").write_text("three\n")
    assert again.next()["description"] == "1 change: a.txt"
    assert again.end()[0] == 0
    with takeback.open(world.url) as store:
        session = store.get_session("guard")
        assert (session.status, len(session.checkpoints()), bool(store.verify())) == ("active", 3, False)


def test_it_is_in_nobodys_way(world: World, guards: Callable[..., Guard]) -> None:
    """A session beside it rewinds its own files as if nobody watched, and stays the newest of the workspace."""
    (world.project / "a.txt").write_text("one\n")
    guard = guards(*FAST)
    guard.next()
    with takeback.open(world.url) as store, store.session("agent", workspace=world.project) as s:
        start = s.user("go on")
        use_tool(s, "bash", lambda: (world.project / "a.txt").write_text("by the agent\n"))
        guard.next()
        (world.project / "mine.txt").write_text("mine\n")
        guard.next()
        rewind = s.preview_rewind(start)
        assert ([each.path for each in rewind.files], rewind.kept, rewind.others) == (["a.txt"], ("mine.txt",), ())
        rewind.apply()
        assert (world.project / "a.txt").read_text() == "one\n"
        assert guard.next()["description"] == "1 change: a.txt"
    assert sorted(world.ok("ls", "--fields", "name").out.split()) == ["agent", "guard"]
    assert world.ok("show", "--json").document["session"]["name"] == "agent"
    status = world.ok("status", "--json").document
    assert (status["session"]["name"], status["guard"]["type"]) == ("agent", "automatic")
    assert f"takeback rewind {status['guard']['name']}" in world.ok("status").out


def test_a_rewind_to_one_of_its_checkpoints_while_it_stands_guard(world: World, guards: Callable[..., Guard]) -> None:
    (world.project / "a.txt").write_text("one\n")
    guard = guards(*FAST)
    first = guard.next()
    (world.project / "a.txt").write_text("two\n")
    guard.next()
    world.ok("rewind", f"guard:{first['id']}", "-y")
    assert (world.project / "a.txt").read_text() == "one\n"
    assert guard.next()["description"] == "1 change: a.txt"
    (world.project / "a.txt").write_text("three\n")
    assert guard.next()["description"] == "1 change: a.txt"


def test_two_of_them_take_each_state_once(world: World, guards: Callable[..., Guard]) -> None:
    (world.project / "a.txt").write_text("one\n")
    first = guards(*FAST)
    first.next()
    second = guards(*FAST, "--poll")
    (world.project / "a.txt").write_text("two\n")
    time.sleep(4)
    assert first.waiting + second.waiting == 1


def test_a_directory_that_is_named_and_one_that_goes_away(world: World, guards: Callable[..., Guard]) -> None:
    other = world.project.parent / "other"
    other.mkdir()
    (other / "x").write_text("x")
    guard = guards(str(other), *FAST)
    guard.next()
    (other / "x").unlink()
    other.rmdir()
    assert guard.process.wait(30) == 1
    assert guard.end()[1] == f"takeback: {other} no longer exists, so there is nothing left to guard\n"


def test_its_beginning_is_nothing_to_undo(world: World) -> None:
    (world.project / "a.txt").write_text("one\n")
    world.process("run", "--name", "work", "--", "sh", "-c", "echo two > a.txt")
    world.ok("rewind", "work:1^", "-y")
    world.ok("guard", "--once")
    with takeback.open(world.url) as store:
        assert [each.kind for each in store.operations()] == ["rewind"]
    world.ok("undo", "-y")
    assert (world.project / "a.txt").read_text() == "two\n"
    world.ok("archive", "guard")
    (world.project / "a.txt").write_text("three\n")
    world.ok("guard", "--once")
    with takeback.open(world.url) as store:
        assert store.get_session("guard").archived, "whoever hid it did so on purpose"


def test_a_dry_run_and_what_cannot_be_guarded(world: World) -> None:
    (world.project / "a.txt").write_text("one\n")
    begin = f"Dry run: would guard {world.project}, starting with a checkpoint of "
    assert world.ok("guard", "-n").err == f"{begin}all files.\n"
    assert not world.url.exists()
    world.ok("guard", "--once")
    (world.project / "b.txt").write_text("two\n")
    assert world.ok("guard", "-n").err == f"{begin}1 change.\n"
    assert world.run("guard", "/", "--once").code == 1
    assert world.run("guard", "nosuch").code == 2
    assert world.run("guard", "--settle", "soon").code == 2
    assert world.run("guard", "--json").code == 2


def test_terminated_it_ends_as_with_ctrl_c(world: World, guards: Callable[..., Guard]) -> None:
    guard = guards(*FAST)
    guard.next()
    assert guard.end(signal.SIGTERM)[0] == 0


def test_a_line_for_people_names_time_and_paths(world: World) -> None:
    for name in "edcba":
        (world.project / name).write_text(name)
    world.ok("guard", "--once")
    for name in "edcba":
        (world.project / name).write_text(name * 2)
    (line,) = world.ok("guard", "--once", "--utc").out.splitlines()
    when, name, *what = line.split()
    assert (len(when), name.startswith("auto-"), " ".join(what)) == (8, True, "5 changes: a, b, c and 2 more")


def test_names_that_steer_a_terminal_are_escaped(world: World) -> None:
    world.ok("guard", "--once")
    (world.project / "bad\x1b[2Jname").write_text("x")
    assert "\x1b" not in world.ok("guard", "--once").out


def test_a_new_directory_and_what_is_in_it_are_reported(world: World, guards: Callable[..., Guard]) -> None:
    guard = guards(*FAST)
    assert guard.began == f"Guarding {world.project}, the system reports changes. Ctrl-C ends it.\n"
    guard.next()
    (world.project / "deep" / "er").mkdir(parents=True)
    (world.project / "deep" / "er" / "a.txt").write_text("one\n")
    assert "deep/er/a.txt" in guard.next()["description"]
    (world.project / "deep" / "er" / "a.txt").write_text("two\n")
    assert guard.next()["description"] == "1 change: deep/er/a.txt"
    (world.project / "deep").rename(world.project / "moved")
    guard.next()
    (world.project / "moved" / "er" / "a.txt").write_text("three\n")
    assert guard.next()["description"] == "1 change: moved/er/a.txt"


# ---------------------------------------------------------------------- a session of its directory


@pytest.mark.trial("T39")
def test_a_guard_is_a_session_of_its_directory(world: World) -> None:
    (world.project / "a.txt").write_text("one\n")
    name = world.ok("guard", "--once", "--json").document["name"]
    (world.project / "a.txt").write_text("two\n")
    assert world.ok("ls", "--fields", "name").out == "guard\n"
    status = world.ok("status", "--json").document
    assert (status["session"]["name"], status["checkpoint"]["name"]) == ("guard", name)
    assert [each["path"] for each in status["changes"]] == ["a.txt"]
    assert [each["failed"] for each in world.ok("timeline", "--json").document["scans"]] == [None]
    ran = world.run("rewind", "guard")
    assert (ran.code, "name a point: takeback rewind " in ran.err) == (2, True)
    world.ok("rewind", name, "-y")  # its checkpoints are points, by their bare names too
    assert (world.project / "a.txt").read_text() == "one\n"


@pytest.mark.trial("T39")
def test_the_guard_of_another_directory_is_not_shown(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    (world.project / "a.txt").write_text("one\n")
    world.ok("guard", "--once")
    other = world.project.parent / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    assert world.ok("ls").out == ""
    assert world.ok("status", "--json").document["session"] is None
    assert world.ok("timeline", "--json").document["scans"] == []
    for arguments in (("rewind", "guard", "-n"), ("checkpoints", "guard"), ("show", "guard")):
        ran = world.run(*arguments)
        assert (ran.code, ran.out) == (4, "")
        assert (
            f"nothing guards {other}; start with: takeback guard. The guard of {world.project} is session " in ran.err
        )


@pytest.mark.trial("T39")
def test_a_guard_claims_nothing(world: World) -> None:
    """What its scans find is a call's that was open, or else somebody's outside; its points restore both."""
    (world.project / "a.txt").write_text("one\n")
    first = world.ok("guard", "--once", "--json").document["id"]
    with takeback.open(world.url) as store, store.session("agent", workspace=world.project) as s:
        s.user("go on")
        with s.tool("bash", {"command": "make"}) as run:
            (world.project / "made.txt").write_text("by the agent\n")
            world.ok("guard", "--once")
            run.result("ok")
    (world.project / "mine.txt").write_text("mine\n")
    world.ok("guard", "--once")
    found = {
        change["path"]: (change["kind"], len(change["session_ids"]))
        for scan in world.ok("timeline", "--json").document["scans"]
        for change in scan["changes"]
    }
    assert found == {"made.txt": ("calls", 1), "mine.txt": ("outside", 0)}
    plan = world.ok("rewind", "agent:1^", "-n", "--json").document
    assert ([each["path"] for each in plan["files"]], plan["kept"]) == (["made.txt"], ["mine.txt"])
    world.ok("rewind", f"guard:{first}", "-y")
    assert [path.name for path in world.project.iterdir()] == ["a.txt"]
    world.ok("undo", "-y")
    assert sorted(path.name for path in world.project.iterdir()) == ["a.txt", "made.txt", "mine.txt"]
