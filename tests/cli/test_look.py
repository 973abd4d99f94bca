"""The verbs that look: show, status, log, checkpoints, tree, ops. None of them changes anything."""

import json

import pytest
from _world import HOUR, World

pytestmark = pytest.mark.feature("F10")


# ---------------------------------------------------------------------- show


def test_show_reads_a_session_turn_by_turn(work: World) -> None:
    lines = work.ok("show", "--utc").lines
    assert lines[0] == "####### Fix the flaky retry test, named fix-retry"
    assert lines[1] == "  agent coder, main, branch main, 2 turns, 42k tokens, active"
    assert lines[2].startswith("  began 20")
    assert " UTC (23h ago), last message " in lines[2]
    assert lines[3] == f"  workspace {work.project}"
    assert lines[4:] == [
        "",
        "-- turn 1, 23h ago",
        "user",
        "  Fix the flaky retry test",
        '-> bash {"command": "make"}',
        "tool bash ok: ok",
        "assistant",
        "  Fixed.",
        "",
        "-- turn 2, 23h ago",
        "user",
        "  Now make it fast",
        '-> bash {"command": "make"}',
        "tool bash ok: ok",
        "assistant",
        "  Faster.",
        "  Much \\x1b[31mfaster.",
    ]


@pytest.mark.parametrize(
    ("turns", "said"),
    [("2", ["step 2"]), ("2-3", ["step 2", "step 3"]), ("2-", ["step 2", "step 3"]), ("-1", ["step 1"])],
)
def test_show_some_turns(work: World, turns: str, said: list[str]) -> None:
    messages = work.ok("show", "oauth", "--turns", turns, "--json").document["messages"]
    assert [each["text"] for each in messages if each["role"] == "user"] == [f"Add OAuth, {each}" for each in said]


def test_show_turns_that_are_not_there(work: World) -> None:
    ran = work.run("show", "oauth", "--turns", "9")
    assert (ran.code, ran.err) == (4, "takeback: no such turn: 9; the session has turns 1 to 3\n")
    assert work.run("show", "--turns", "b").code == 2
    assert work.run("show", "--turns", "5-2").code == 2


def test_show_up_to_a_point(work: World) -> None:
    assert "step 2" not in work.ok("show", "oauth:1").out
    assert "Now make it fast" not in work.ok("show", "@:fixed").out
    assert "step 3" not in work.ok("show", "@-1:2").out


def test_show_tools_in_full_or_not_at_all(work: World) -> None:
    with work.open() as store:
        s = store.get_session("oauth")
        with s.tool("read", {"path": "a"}) as running:
            running.result("first\n" + "x" * 200)
        with s.tool("read", {"path": "b"}) as running:
            running.error("no such file")
    short = work.ok("show", "oauth").out
    assert f"tool read ok: first {'x' * 91}..." in short
    assert "tool read failed: no such file" in short
    assert f"tool read ok: first\n  {'x' * 200}\n" in work.ok("show", "oauth", "--tools", "full").out
    assert "tool read" not in work.ok("show", "oauth", "--tools", "none").out


def test_show_as_markdown(work: World) -> None:
    lines = work.ok("show", "--md", "--turns", "1").lines
    assert lines[:7] == [
        "# Fix the flaky retry test",
        "",
        "## Turn 1",
        "",
        "**user**",
        "",
        "> Fix the flaky retry test",
    ]
    with work.open() as store:
        store.get_session("fix-retry").user("Look:\n\n## Turn 9\n\n**user**")
    forged = work.ok("show", "--md").lines
    assert "> ## Turn 9" in forged
    assert "## Turn 9" not in forged, "a text cannot look like a heading of ours"


def test_show_for_programs(work: World) -> None:
    lines = [json.loads(line) for line in work.ok("show", "--jsonl").out.splitlines()]
    assert [each["role"] for each in lines] == ["user", "tool", "assistant", "user", "tool", "assistant"]
    assert lines[-1]["text"] == "Faster.\nMuch \x1b[31mfaster."
    assert work.ok("show", "-q").out.split() == [each["id"] for each in lines]


def test_show_a_branch_that_the_session_is_not_on(work: World) -> None:
    with work.open() as store:
        session = store.get_session("oauth")
        session.switch(session.fork(name="try"))
        session.user("Only here")
        session.switch("main")
    assert "Only here" not in work.ok("show", "oauth").out
    assert "Only here" in work.ok("show", "oauth/try").out
    assert "Only here" not in work.ok("show", "oauth/try:1").out


# ---------------------------------------------------------------------- refs


def test_a_near_miss_is_answered_with_what_is_near(work: World) -> None:
    ran = work.run("show", "fix-rety")
    assert ran.code == 4
    near = work.ok("ls", "-q").out.split()[0][:7]
    said = f"no session matches 'fix-rety' (3 sessions). Nearest: fix-retry ({near}). Try: takeback search -a fix-rety"
    assert ran.err == f"takeback: {said}\n"


def test_a_beginning_of_several_ids_names_them(work: World) -> None:
    ran = work.run("show", "1")
    assert ran.code == 4
    assert [line.split()[-1] for line in ran.err.splitlines()[1:]] == ["oauth", "refunds", "fix-retry"]


def test_the_newest_of_a_directory_without_sessions(work: World) -> None:
    ran = work.run("-C", "/", "show")
    assert ran.code == 4
    assert ran.err.startswith(
        "takeback: no session belongs to / or a directory above it; name a session (takeback ls -a lists them)"
    )


def test_the_session_of_the_environment_comes_first(work: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAKEBACK_SESSION", "oauth")
    assert "Add OAuth" in work.ok("show").out


# ---------------------------------------------------------------------- status


def test_status_says_where_you_are_and_what_changed(work: World) -> None:
    lines = work.ok("status", "--utc").lines
    assert lines[0].startswith(f"store       {work.url} (2 agents, 3 sessions, 13 messages, 1 checkpoint")
    assert lines[1:3] == [f"workspace   {work.project} (2 sessions)", "session     ####### Fix the flaky retry test"]
    assert lines[3].startswith("            branch main, turn 2, active, changed 20")
    assert lines[4] == "tasks       0 of 2 done"
    assert lines[5].startswith("checkpoint  fixed at turn 1, 20")
    assert lines[6:] == ["changes     A new.py +1 -0", "            M pool.py +1 -1"]


def test_status_names_open_calls(work: World) -> None:
    with work.open() as store:
        s = store.get_session("fix-retry")
        s.append({"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "name": "bash", "arguments": {}}]})
    assert work.ok("status").lines[-1] == "open call   bash (pending) {}"
    document = work.ok("status", "--json").document
    assert [each["name"] for each in document["open_calls"]] == ["bash"]
    assert [each["path"] for each in document["changes"]] == ["new.py", "pool.py"]


def test_status_where_nothing_is(work: World) -> None:
    lines = work.ok("-C", "/", "status").lines
    assert lines[-1] == "session     none here: takeback ls -a, or takeback new NAME"
    assert work.ok("-C", "/", "status", "--json").document["session"] is None


def test_status_without_a_store(world: World) -> None:
    assert world.ok("status").out == f"store       {world.url} (does not exist yet: takeback new NAME)\n"
    assert world.ok("status", "--json").document["store"]["exists"] is False


def test_status_when_the_workspace_is_gone(work: World) -> None:
    for path in work.project.iterdir():
        path.unlink()
    work.project.rename(work.project.with_name("moved"))
    ran = work.ok("status", "fix-retry")
    assert "changes     " in ran.out


# ---------------------------------------------------------------------- log, checkpoints, tree, ops


def test_log_draws_branches_and_checkpoints(work: World) -> None:
    with work.open() as store:
        work.clock.ms += HOUR
        s = store.get_session("fix-retry")
        s.fork("fixed", name="try-lock")
        s.rewind("fixed", files=False)
        s.user("Another way")
    lines = work.ok("log").lines
    assert lines == [
        "####### Fix the flaky retry test",
        "main, 12 entries, 23h ago",
        "├─ ◆ fixed turn 1, manual, 23h ago: it works",
        "├─ try-lock from entry 6, 0 entries, 22h ago",
        "└─ main-3 from entry 6, 1 entry, 22h ago",
        "   └─ ● you are here, turn 2, entry 7",
    ]
    assert work.ok("log", "--fields", "name").out.split() == ["main", "try-lock", "main-3"]
    assert work.ok("log", "--json").document["branches"][2]["is_head"] is True


def test_checkpoints_are_named_as_points(work: World) -> None:
    assert work.ok("checkpoints").lines == [
        "POINT          AGE  TURN  TYPE    FILES  DESCRIPTION",
        "#######:fixed  23h     1  manual  yes    it works",
    ]
    ran = work.ok("checkpoints", "oauth")
    assert ran.out == ""
    assert "has no checkpoints. Make one: takeback checkpoint NAME -s " in ran.err
    assert work.ok("checkpoints", "--json").document["checkpoints"][0]["turn"] == 1


def test_tree_shows_sub_agents(work: World) -> None:
    with work.open() as store:
        s = store.get_session("fix-retry")
        work.clock.ms += HOUR
        child = s.spawn("Look at the logs", label="logs").session
        work.clock.ms += HOUR
        child.spawn("Find the errors", label="errors")
        work.clock.ms += HOUR
        s.spawn("Write tests", label="tests")
    lines = [line.partition("  (")[0] for line in work.ok("tree", "fix-retry").lines]
    assert lines == [
        "####### Fix the flaky retry test",
        "├─ ####### logs",
        "│  └─ ####### errors",
        "└─ ####### tests",
    ]
    document = work.ok("tree", "fix-retry", "--json").document
    assert [each["label"] for each in document["children"]] == ["logs", "tests"]


def test_ops_lists_what_was_done(work: World) -> None:
    assert work.ok("ops").err == "No operations in this workspace. In all workspaces: takeback ops --all\n"
    with work.open() as store:
        work.clock.ms += HOUR
        store.get_session("fix-retry").rename("Another title")
        work.clock.ms += HOUR
        store.get_session("refunds").pin()
    lines = work.ok("ops").lines
    assert lines[0] == "OP       AGE  KIND    SESSION  WHAT"
    assert lines[1].startswith("#######  22h  rename  #######  ")
    assert len(lines) == 2
    assert work.ok("ops", "--all", "--fields", "kind").out.split() == ["pin", "rename"]
    assert work.ok("ops", "--all", "--limit", "1", "--json").document["operations"][0]["kind"] == "pin"


def test_looking_changes_nothing(work: World) -> None:
    before = work.url.read_bytes()
    for verb in ("ls", "show", "status", "log", "checkpoints", "tree", "ops"):
        work.ok(verb)
    assert work.url.read_bytes() == before
