"""Writing from a script: new, say, task, plan, note, state."""

import io

import pytest
from _world import World

pytestmark = pytest.mark.feature("F10")


def test_a_session_is_started_in_this_workspace(work: World) -> None:
    assert work.ok("new", "next", "--agent", "coder").lines == [f"Session ####### in {work.project}"]
    document = work.ok("new", "--title", "Another", "--tag", "a", "--tag", "b", "--json").document
    assert (document["title"], document["tags"], document["workspace"]) == ("Another", ["a", "b"], str(work.project))
    ran = work.run("new", "next", "--agent", "coder")
    assert ran.code == 5
    assert work.ok("new", "--no-workspace", "--fields", "workspace").out == "\n"


def test_the_first_session_makes_the_store_and_finds_the_repository(world: World) -> None:
    (world.project / ".git").mkdir()
    (world.project / "src").mkdir()
    assert world.ok("-C", "src", "new", "first", "-n").err == f"Dry run: would start a session in {world.project}.\n"
    assert not world.url.exists()
    assert world.ok("-C", "src", "new", "first").lines == [f"Session ####### in {world.project}"]
    assert world.ok("ls", "--fields", "name").out == "first\n"


def test_no_other_verb_makes_a_store(world: World) -> None:
    for command in (["say", "x"], ["task", "x"], ["checkpoint"], ["rewind", ":1"], ["undo"], ["state"], ["plan"]):
        assert world.run(*command).code in (4, 5)
        assert not world.url.exists()


def test_messages_come_from_arguments_and_from_stdin(work: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert work.ok("say", "Hello", "there", "-s", "oauth").lines == ["Message 8 in turn 4 of #######"]
    monkeypatch.setattr("sys.stdin", io.StringIO("two\nlines\n"))
    document = work.ok("say", "-", "-s", "oauth", "--role", "assistant", "--json").document
    assert (document["role"], document["text"]) == ("assistant", "two\nlines")
    first = work.ok("say", "once", "-s", "oauth", "--key", "k", "-q").out
    assert work.ok("say", "once", "-s", "oauth", "--key", "k", "-q").out == first
    assert work.run("say", "other", "-s", "oauth", "--key", "k").code == 5
    assert work.run("say", "-s", "oauth").code == 2
    assert work.ok("say", "x", "-s", "oauth", "-n").err.startswith("Dry run: would add a message of 1 characters to ")


def test_tasks(work: World) -> None:
    assert work.ok("task").lines == ["  1 [ ] Find the race", "  2 [ ] Fix it"]
    assert work.ok("task", "Write", "tests").lines[-1] == "  3 [ ] Write tests"
    assert work.ok("task", "--set", "1", "--status", "completed").lines[0] == "  1 [x] Find the race"
    assert work.ok("task", "--set", "2", "Fix", "both").lines[1] == "  2 [ ] Fix both"
    assert [each["status"] for each in work.ok("task", "--json").document["tasks"]] == [
        "completed",
        "pending",
        "pending",
    ]
    assert work.run("task", "--set", "9", "--status", "failed").code == 4
    assert work.run("task", "--set", "1").code == 2
    assert work.run("task", "--status", "failed").code == 2
    work.ok("task", "never", "-n")
    assert len(work.ok("task").lines) == 3
    assert "has no tasks. Add one: takeback task TEXT" in work.ok("task", "-s", "oauth").err


def test_plan_and_notes(work: World) -> None:
    assert "has no plan. Set one: takeback plan TEXT" in work.ok("plan").err
    assert work.ok("plan", "First\nthen").lines == ["First", "then"]
    assert work.ok("plan", "--json").document["plan"] == "First\nthen"
    assert work.ok("plan", "--clear").out == ""
    assert work.run("plan", "--clear", "x").code == 2
    assert "has no notes. Add one: takeback note TEXT" in work.ok("note").err
    assert work.ok("note", "It", "races", "--task", "1").lines == [" now  It races"]
    assert work.ok("note", "--json").document["notes"][0]["task"]


def test_state(work: World) -> None:
    assert work.ok("state", "mode", '{"fast": true}').lines == ['mode = {"fast": true}']
    assert work.ok("state", "mode").out == '{"fast": true}\n'
    assert work.ok("state", "who", "me").lines == ['mode = {"fast": true}', 'who = "me"']
    assert work.ok("state", "mode", "--json").document["value"] == {"fast": True}
    document = work.ok("state", "--json").document
    assert document["state"] == {"mode": {"fast": True}, "who": "me"}
    assert work.run("state", "who", "you", "--expect", "1").code == 5
    assert work.ok("state", "who", "you", "--expect", str(document["version"])).lines[-1] == 'who = "you"'
    assert work.ok("state", "who", "--delete").lines == ['mode = {"fast": true}']
    ran = work.run("state", "nosuch")
    assert (ran.code, ran.err) == (4, "takeback: the state has no key 'nosuch'; its keys: mode\n")
    assert work.run("state", "--delete").code == 2
    assert work.ok("state", "a", "1", "--agent", "coder").lines == ["a = 1"]
    assert work.run("state", "--agent", "nobody").code == 4
