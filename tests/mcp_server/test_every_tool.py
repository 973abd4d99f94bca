"""A conversation that calls every tool, and whether each answer is as its schema says."""

from __future__ import annotations

from pathlib import Path

import pytest
from _client import Agent, serving, use_tool
from jsonschema import Draft202012Validator

import takeback
from takeback.tools import EFFECTS
from takeback.tools.table import TOOLS

pytestmark = pytest.mark.feature("E12", "F10")


def test_every_tool_is_listed_with_valid_schemas_and_what_it_may_do(store: takeback.Store) -> None:
    with serving(store, *EFFECTS) as agent:
        assert [*agent.tools] == [*TOOLS]
        for name, tool in agent.tools.items():
            Draft202012Validator.check_schema(tool.input_schema)
            Draft202012Validator.check_schema(tool.output_schema)
            assert tool.input_schema["type"] == tool.output_schema["type"] == "object"
            assert tool.title
            assert tool.description
            hints = tool.annotations
            assert hints.read_only_hint == (TOOLS[name].effect == "none")
            assert not (hints.read_only_hint and hints.destructive_hint)
            assert hints.open_world_hint is False


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_conversation_that_uses_every_tool(store: takeback.Store, place: Path, mode: str) -> None:
    with serving(store, *EFFECTS, place=place, mode=mode) as agent:
        _keep_agents_and_conversations(agent)
        _work(store, place)
        _read(agent)
        _write(agent)
        _go_back_and_forth(agent, place)
        _delete(agent)
        assert agent.used == {*TOOLS}


def _keep_agents_and_conversations(agent: Agent) -> None:
    saved = agent.ask("agent_save", agent="coder", name="Coder", config={"depth": 2}, state={"likes": "tea"})
    assert (saved["agent"], saved["created"]) == ("coder", True)
    loaded = agent.ask("agent_load", agent="coder")
    assert (loaded["name"], loaded["config"], loaded["state"]) == ("Coder", {"depth": 2}, {"likes": "tea"})
    assert [each["agent"] for each in agent.ask("agent_list")["agents"]] == ["coder"]

    said = [{"role": "user", "content": "Where is Lake Geneva?"}, {"role": "assistant", "content": "Switzerland."}]
    saved = agent.ask("conversation_save", conversation="lakes", messages=said, agent="coder", title="Lakes")
    assert (saved["created"], saved["added"]) == (True, 2)
    loaded = agent.ask("conversation_load", conversation="lakes")
    assert [each["text"] for each in loaded["messages"]] == [each["content"] for each in said]
    assert [each["title"] for each in agent.ask("conversation_list", agent="coder")["conversations"]] == ["Lakes"]
    assert [each["title"] for each in agent.ask("conversation_search", query="geneva")["hits"]] == ["Lakes"]


def _work(store: takeback.Store, place: Path) -> None:
    """Let an agent work in the project, whose shell writes files."""
    with store.session("fix", agent="coder", workspace=place) as s:
        s.user("Fix the retry test")
        use_tool(s, "bash", lambda: (place / "pool.py").write_text("retry(5)\n"), "ok: pool.py")
        s.assistant("Fixed.")
        s.user("Make it fast")
        use_tool(s, "bash", lambda: (place / "pool.py").write_text("broken\n"))
        s.assistant("Faster.")


def _read(agent: Agent) -> None:
    listed = agent.ask("list_sessions", everywhere=False)["sessions"]
    assert [each["name"] for each in listed] == ["fix"]
    assert agent.ask("get_session", session="@")["files_touched"]
    assert [each["role"] for each in agent.ask("read_messages", session="fix", tools=False)["messages"]] == [
        *("user", "assistant"),
        *("user", "assistant"),
    ]
    hit = agent.ask("search_history", query="pool", kinds=["result"])["hits"][0]
    assert "ok: pool.py" in str(agent.ask("read_messages", session=hit["ref"])["messages"])
    assert agent.ask("get_file_at", point="fix:1", path="pool.py")["content"] == "retry(5)\n"
    history = agent.ask("file_history", path="pool.py")
    change, call = history["changes"][0], history["calls"][0]
    assert (change["certainty"], change["calls"]) == ("calls", [call["id"]])
    assert (call["tool"], call["prompt"]["text"]) == ("bash", "Make it fast")
    (different,) = agent.ask("diff_points", first="fix:1", second="fix:2")["files"]
    assert "-retry(5)\n+broken\n" in different["diff"]


def _write(agent: Agent) -> None:
    agent.ask("update_tasks", session="fix", tasks=[{"description": "Measure it", "status": "in_progress"}])
    assert agent.ask("get_session", session="fix")["tasks"] == [{"description": "Measure it", "status": "in_progress"}]
    agent.ask("set_state", session="fix", values={"tries": 3})
    assert agent.ask("get_state", session="fix", key="tries")["values"] == {"tries": 3}
    below = agent.ask("spawn_subagent", parent="fix", task="Read the logs", label="logs")
    assert [each["id"] for each in agent.ask("get_session", session="fix")["sub_agents"]] == [below["session_id"]]
    assert agent.ask("send_message", session=below["session_id"], text="Hurry", sender="fix")["number"] == 1


def _go_back_and_forth(agent: Agent, place: Path) -> None:
    made = agent.ask("create_checkpoint", session="fix", name="fast", description="it may be broken")["checkpoint"]
    assert (made["name"], made["files"]) == ("fast", True)
    whole = agent.ask("checkpoint_create", agent="coder", name="whole")["checkpoint"]
    assert [each["name"] for each in agent.ask("checkpoint_list", agent="coder")["checkpoints"]] == ["whole"]
    forked = agent.ask("fork_session", point="fix:fast", name="other", as_session=True)["session"]
    assert forked["name"] == "other"
    assert agent.ask("fork_session", point="fix:1", name="earlier")["branch"] == "earlier"

    plan = agent.ask("preview_rewind", point="fix:1")
    assert (plan["turns_removed"], [each["path"] for each in plan["files"]]) == (1, ["pool.py"])
    done = agent.ask("apply_rewind", point="fix:1", digest=plan["digest"])
    assert (done["files_changed"], (place / "pool.py").read_text()) == (1, "retry(5)\n")
    assert agent.twice("undo_operation", operation=done["operation"]["id"])["undone"]
    assert (place / "pool.py").read_text() == "broken\n"

    agent.ask("agent_save", agent="coder", name="Somebody else", state={"likes": "coffee"})
    assert agent.twice("checkpoint_restore", checkpoint=whole["id"])["restored"]
    loaded = agent.ask("agent_load", agent="coder")
    assert (loaded["name"], loaded["state"]) == ("Coder", {"likes": "tea"})


def _delete(agent: Agent) -> None:
    (kept,) = agent.ask("checkpoint_list", session="fix", limit=1)["checkpoints"]
    assert agent.twice("checkpoint_delete", checkpoint=kept["id"])["deleted"]
    before = agent.ask("persistence_stats")
    gone = agent.twice("conversation_delete", conversation="lakes")["operation"]
    assert agent.ask("persistence_stats")["sessions"] == before["sessions"] - 1
    assert agent.twice("undo_operation", operation=gone["id"])["undone"]
    assert agent.ask("conversation_load", conversation="lakes")["messages"]
    assert agent.twice("agent_delete", agent="coder")["deleted"]
    assert agent.ask("list_sessions", agent="coder")["sessions"] == []
    assert agent.ask("persistence_stats")["agents"] == 0
