"""compare: two branches side by side; approve and deny: a yes or no from another process."""

from __future__ import annotations

import pytest
from _world import World, use_tool

from takeback import Usage


@pytest.fixture
def ways(work: World) -> World:
    """Two ways from the end of the first turn of ``fix-retry``: ``main``, and ``queue`` with another file."""
    pool = work.project / "pool.py"
    with work.open() as store, store.session("fix-retry", agent="coder", workspace=work.project) as s:
        s.rewind("fixed")
        s.user("Use a queue")
        use_tool(s, "bash", lambda: pool.write_text("queue()\n"))
        s.assistant("A queue it is.", usage=Usage(30_000, 100, cost=0.25))
        s.fork(name="queue")
        s.switch("queue")
    return work


@pytest.mark.feature("F11")
def test_two_branches_side_by_side(ways: World) -> None:
    lines = ways.ok("compare", "main", "queue").lines
    assert [each.split() for each in lines[:7]] == [
        ["main", "queue"],
        ["messages", "3", "3"],
        ["turns", "1", "1"],
        ["tool", "calls", "1", "1"],
        ["tokens", "22k", "30k"],
        ["cost", "-", "$0.2500"],
        ["time", "0s", "0s"],
    ]
    assert "user: Now make it fast" in lines[8]
    assert lines[8].endswith("| user: Use a queue")
    assert lines[-3:] == ["from main to queue:", "  D new.py +0 -1", "  M pool.py +1 -1"]


@pytest.mark.feature("F11")
def test_a_comparison_for_programs_and_with_a_point(ways: World) -> None:
    found = ways.ok("compare", "fix-retry/main", "--json").document
    assert (found["left"]["name"], found["right"]["name"]) == ("main", "queue")
    assert found["right"]["cost"] == 0.25
    assert [each["text"] for each in found["left"]["messages"] if each["role"] == "user"] == ["Now make it fast"]
    assert {each["path"] for each in found["files"]} == {"pool.py", "new.py"}
    earlier = ways.ok("compare", "fix-retry:1", "--json").document
    assert (earlier["left"]["messages"], earlier["left"]["turns"], earlier["right"]["turns"]) == ([], 0, 1)
    assert "No differences." in ways.ok("compare", "queue", "queue").err


@pytest.mark.feature("F11")
def test_two_sessions_are_not_compared(ways: World) -> None:
    ran = ways.run("compare", "fix-retry", "oauth")
    assert (ran.code, "takeback stats REF" in ran.err) == (2, True)
    assert ways.run("compare", "nosuch", "queue").code == 4


# ---------------------------------------------------------------------- approvals


@pytest.fixture
def asking(work: World) -> World:
    """A session that asks about two calls."""
    with work.open() as store:
        s = store.session("oauth", agent="coder", workspace=work.project)
        calls = [{"id": f"call_{n}", "name": "bash", "arguments": {"command": f"rm {n}"}} for n in (1, 2)]
        s.append({"role": "assistant", "content": "", "tool_calls": calls})
        for each in s.pending_calls():
            s.ask_approval(each, "May I?")
    return work


@pytest.mark.feature("F10")
def test_a_call_is_approved_and_another_denied(asking: World) -> None:
    ran = asking.run("approve", "oauth")
    assert (ran.code, ran.err.count("--call")) == (5, 2)
    assert asking.run("approve", "oauth", "--call", "nosuch").code == 4
    assert "would approve bash" in asking.ok("approve", "oauth", "--call", "call_1", "-n").err
    assert asking.ok("approve", "oauth", "--call", "call_1").out.startswith('Approved bash {"command": "rm 1"}')
    answered = asking.ok("deny", "oauth", "--note", "keep it", "--json").document
    assert (answered["status"], answered["note"], answered["id"]) == ("denied", "keep it", "call_2")
    with asking.open() as store:
        found = {each.call.id: each.approved for each in store.get_session("oauth").approvals()}
    assert found == {"call_1": True, "call_2": False}
    ran = asking.run("deny", "oauth")
    assert (ran.code, "is not waiting for an answer" in ran.err) == (5, True)


@pytest.mark.trial("T53")
def test_what_waits_for_a_person_is_shown_wherever_one_looks(asking: World) -> None:
    with asking.open() as store:
        session = store.get_session("oauth")
        call = {"id": "call_9", "name": "deploy", "arguments": {"to": "prod"}}
        session.append({"role": "assistant", "content": "", "tool_calls": [call]})
        session.ask_approval("call_9", "Deploy to production?")
    waiting = asking.ok("waiting").out
    assert 'deploy {"to": "prod"}: Deploy to production?' in waiting
    assert "takeback approve" in waiting
    assert "asked" in waiting
    document = asking.ok("waiting", "--json").document
    assert {each["question"] for each in document["approvals"]} >= {"Deploy to production?"}
    assert {each["status"] for each in document["approvals"]} == {"waiting"}
    (row,) = [each for each in asking.ok("ls", "-a").lines if "waits for an answer" in each]
    assert row.startswith("? ")
    assert "Deploy to production?" in asking.ok("show", "oauth").out
    assert "Deploy to production?" in asking.ok("status", "oauth").out
    assert asking.ok("status", "oauth", "--json").document["approvals"]
    said = asking.ok("deny", "oauth", "--call", "call_9", "--note", "not on a Friday").out
    assert "Deploy to production?" in said
    assert "denied" in asking.ok("show", "oauth").out
    assert "not on a Friday" in asking.ok("show", "oauth").out
    assert "not on a Friday" in asking.ok("status", "oauth").out
    assert "Deploy to production?" not in asking.ok("waiting").out


@pytest.mark.trial("T53")
def test_nothing_that_waits_is_said_so(work: World) -> None:
    ran = work.ok("waiting")
    assert (ran.out, ran.err) == ("", "Nothing is waiting for an answer.\n")
