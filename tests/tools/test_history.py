"""The tools with which an agent reads its own history and goes back in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from _agent import Agent

import takeback

pytestmark = pytest.mark.feature("E12")


def test_what_was_said_is_found_and_read_around(reader: Agent, worked: takeback.Session) -> None:
    hit = reader.call("search_history", query="connection pool", kinds=["message"])["hits"][0]
    assert hit["session_id"] == worked.id
    said = reader.call("read_messages", session=hit["ref"], limit=4)["messages"]
    assert "Make the connection pool" in [each.get("text") for each in said]
    (call,) = next(each["calls"] for each in said if "calls" in each)
    assert call["name"] == "bash"


def test_every_message_is_reached_from_either_end(reader: Agent, store: takeback.Store) -> None:
    session = store.create_session("long")
    session.append(*({"role": "user", "content": f"message {number}"} for number in range(45)))
    forward, after = list[int](), 0
    while after is not None:
        page = reader.call("read_messages", session="long", after=after, limit=10)
        forward += [each["seq"] for each in page["messages"]]
        after = page.get("newer")
    backward, before = list[int](), None
    while True:
        asked = {"limit": 10} if before is None else {"limit": 10, "before": before}
        page = reader.call("read_messages", session="long", **asked)
        backward = [each["seq"] for each in page["messages"]] + backward
        before = page.get("older")
        if before is None:
            break
    assert forward == backward == [*range(1, 46)]


def test_messages_around_one_have_it_in_the_middle(reader: Agent, store: takeback.Store) -> None:
    store.create_session("long").append(*({"role": "user", "content": f"message {number}"} for number in range(45)))
    page = reader.call("read_messages", session="long", around=20, limit=5)
    assert [each["seq"] for each in page["messages"]] == [19, 20, 21, 22, 23]
    assert (page["older"], page["newer"]) == (19, 23)


def test_a_branch_that_was_left_is_read_by_its_ref(agent: Agent, worked: takeback.Session) -> None:
    worked.rewind(3, files=False)
    hit = agent.call("search_history", query="broken", branches=True)["hits"][0]
    said = agent.call("read_messages", session=hit["ref"])["messages"]
    assert "It is broken" in [each.get("text") for each in said]


def test_a_session_is_seen_at_a_glance(reader: Agent, worked: takeback.Session) -> None:
    worked.set_plan("First the pool")
    worked.set_tasks(["write it", "test it"])
    worked.checkpoint("done")
    seen = reader.call("get_session", session="fix-pool")
    assert [each["text"] for each in seen["latest_prompts"]] == ["Make the connection pool", "Break it now"]
    assert seen["last_answer"] == "It is broken"
    assert seen["plan"] == "First the pool"
    assert [each["description"] for each in seen["tasks"]] == ["write it", "test it"]
    assert [each["name"] for each in seen["checkpoints"]] == ["done"]
    assert any("src/pool.py" in each for each in seen["files_touched"])
    (listed,) = reader.call("list_sessions", agent="coder")["sessions"]
    assert listed == seen["session"]


def test_a_file_is_read_as_it_was(reader: Agent, worked: takeback.Session) -> None:
    assert reader.call("get_file_at", point="fix-pool:1", path="src/pool.py")["content"] == "one\n"
    assert reader.call("get_file_at", point="fix-pool:2", path="src/pool.py")["content"] == "two\n"
    code, said = reader.refused("get_file_at", point="fix-pool:1", path="../secret")
    assert code == "invalid"
    code, said = reader.refused("get_file_at", point="fix-pool", path="src/pool.py")
    assert "fix-pool:1 is the end of a turn" in said


def test_a_large_file_is_read_in_portions(reader: Agent, store: takeback.Store, place: Path) -> None:
    text = "".join(f"line {number} äöü\n" for number in range(4000))
    with store.session("large", workspace=place) as session:
        session.user("write it")
        with session.tool("write", {}):
            (place / "large.txt").write_text(text)
        (place / "data.bin").write_bytes(b"\0\1\2")
        session.checkpoint("binary too")
    found, offset = "", 0
    while offset is not None:
        page = reader.call("get_file_at", point="large:binary too", path="large.txt", offset=offset, max_chars=20000)
        found += page["content"]
        offset = page.get("next_offset")
    assert found == text
    assert "content" not in reader.call("get_file_at", point="large:binary too", path="data.bin")


def test_who_changed_a_file_and_why_is_told(reader: Agent, worked: takeback.Session, place: Path) -> None:
    (place / "src" / "pool.py").write_text("mine\n")
    worked.capture_files()
    found = reader.call("file_history", path="src/pool.py")
    outside, broken, made = found["changes"]
    assert outside["certainty"] == "outside"
    assert "calls" not in outside
    calls = {each["id"]: each for each in found["calls"]}
    for change, prompt in ((broken, "Break it now"), (made, "Make the connection pool")):
        call = calls[change["calls"][0]]
        assert (call["tool"], call["prompt"]["text"], call["session_id"]) == ("bash", prompt, worked.id)
        assert "src/pool.py" in call["arguments"]


def test_two_points_are_compared(reader: Agent, worked: takeback.Session) -> None:
    found = reader.call("diff_points", first="fix-pool:1", second="fix-pool:2")
    (changed,) = found["files"]
    assert (changed["path"], changed["action"]) == ("src/pool.py", "overwrite")
    assert "-one\n+two\n" in changed["diff"]
    assert any("Break it now" in each for each in found["only_second"])
    assert reader.call("diff_points", first="fix-pool:1", second="fix-pool:2", paths=["docs"])["files"] == []


def test_a_rewind_is_applied_as_it_was_previewed(agent: Agent, worked: takeback.Session, place: Path) -> None:
    plan = agent.call("preview_rewind", point="fix-pool:1")
    assert (place / "src/pool.py").read_text() == "two\n"
    assert [each["path"] for each in plan["files"]] == ["src/pool.py"]
    assert plan["turns_removed"] == 1
    done = agent.call("apply_rewind", point="fix-pool:1", digest=plan["digest"])
    assert (place / "src/pool.py").read_text() == "one\n"
    assert done["files_changed"] == 1
    undo = agent.call("undo_operation", operation=done["operation"]["id"])
    assert not undo["undone"]
    assert (place / "src/pool.py").read_text() == "one\n"
    assert agent.call("undo_operation", operation=done["operation"]["id"], digest=undo["digest"])["undone"]
    assert (place / "src/pool.py").read_text() == "two\n"
    assert worked.refresh().turn_count == 2


@pytest.mark.parametrize("digest", ["", "0" * 64, "preview"])
def test_no_rewind_is_applied_without_the_digest_of_its_preview(
    agent: Agent, worked: takeback.Session, place: Path, digest: str
) -> None:
    code, said = agent.refused("apply_rewind", point="fix-pool:1", digest=digest)
    assert code == "conflict"
    assert "preview_rewind again" in said
    assert agent.refused("apply_rewind", point="fix-pool:1")[0] == "invalid"
    assert (place / "src/pool.py").read_text() == "two\n"


@pytest.mark.parametrize("change", ["message", "file", "arguments", "other point"])
def test_a_preview_that_is_out_of_date_applies_nothing(
    agent: Agent, worked: takeback.Session, place: Path, change: str
) -> None:
    digest = agent.call("preview_rewind", point="fix-pool:1")["digest"]
    asked = {"point": "fix-pool:1", "digest": digest}
    if change == "message":
        worked.user("One more")
    elif change == "file":
        (place / "src" / "pool.py").write_text("mine\n")
    elif change == "arguments":
        (place / "src" / "pool.py").write_text("mine\n")
        asked["digest"] = agent.call("preview_rewind", point="fix-pool:1")["digest"]
        asked["overwrite"] = ["src/pool.py"]  # type: ignore[assignment]
    else:
        asked["point"] = "fix-pool:0"
    before = (place / "src" / "pool.py").read_text(), worked.refresh().head
    assert agent.refused("apply_rewind", **asked)[0] == "conflict"
    assert ((place / "src" / "pool.py").read_text(), worked.refresh().head) == before


def test_single_files_go_back_and_the_conversation_stays(agent: Agent, worked: takeback.Session, place: Path) -> None:
    plan = agent.call("preview_rewind", point="fix-pool:1", paths=["src"])
    assert plan.get("turns_removed", 0) == 0
    agent.call("apply_rewind", point="fix-pool:1", paths=["src"], digest=plan["digest"])
    assert (place / "src/pool.py").read_text() == "one\n"
    assert worked.refresh().turn_count == 2


def test_a_fork_and_a_checkpoint_are_points_to_come_back_to(agent: Agent, worked: takeback.Session) -> None:
    assert agent.call("fork_session", point="fix-pool:1", name="other")["branch"] == "other"
    copied = agent.call("fork_session", point="fix-pool:1", name="own", as_session=True)["session"]
    assert copied["turns"] == 1
    made = agent.call("create_checkpoint", session="fix-pool", name="now", description="before lunch")["checkpoint"]
    assert made["files"]
    assert [each["id"] for each in agent.call("checkpoint_list", session="fix-pool")["checkpoints"]] == [made["id"]]
    assert agent.call("preview_rewind", point="fix-pool:now")["nothing_to_do"]


def test_work_is_written_for_others_to_find(agent: Agent, worked: takeback.Session) -> None:
    agent.call(
        "update_tasks", session="fix-pool", tasks=[{"description": "a"}, {"description": "b", "status": "failed"}]
    )
    assert [each.status for each in worked.tasks()] == ["pending", "failed"]
    assert agent.call("set_state", session="fix-pool", values={"step": 3}) == {"version": 2}
    assert agent.call("set_state", session="fix-pool", values={"next": None}, delete=["step"]) == {"version": 3}
    assert agent.call("get_state", session="fix-pool")["values"] == {"next": None}
    assert agent.refused("set_state", session="fix-pool", values={"a": 1}, expected_version=1)[0] == "conflict"
    assert agent.refused("get_state", session="fix-pool", agent="coder")[0] == "invalid"
    assert "it has: next" in agent.refused("get_state", session="fix-pool", key="nxt")[1]
    made = agent.call("spawn_subagent", parent="fix-pool", task="Test it", label="tester")
    assert [each.id for each in worked.children()] == [made["session_id"]]
    agent.call("send_message", session=made["session_id"], text="Be quick", sender="fix-pool")
    (message,) = worked.children()[0].receive()
    assert message.text == "Be quick"
