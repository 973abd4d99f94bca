"""The fourteen built-ins: what is saved is loaded again, through schemas, on every engine."""

from __future__ import annotations

import pytest
from _agent import Agent

import takeback

pytestmark = pytest.mark.feature("E12")
BUILTINS = [
    *("agent_save", "agent_load", "agent_delete", "agent_list"),
    *("conversation_save", "conversation_load", "conversation_delete", "conversation_list", "conversation_search"),
    *("checkpoint_create", "checkpoint_restore", "checkpoint_list", "checkpoint_delete"),
    "persistence_stats",
]
TALK = [{"role": "user", "content": "What is the capital of Peru?"}, {"role": "assistant", "content": "Lima"}]


def test_the_fourteen_are_offered(agent: Agent) -> None:
    assert {*BUILTINS} <= {each.name for each in agent.tools}


def test_an_agent_is_saved_loaded_changed_and_listed(agent: Agent) -> None:
    saved = agent.call(
        "agent_save",
        agent="helper",
        name="Helper",
        type="assistant",
        system_prompt="Be brief.",
        capabilities=["read", "write"],
        config={"model": {"name": "m", "temperature": 0.5}},
        metadata={"team": "a"},
        state={"count": 1, "list": [1, None, "x"]},
        expected_version=0,
    )
    assert saved["created"]
    loaded = agent.call("agent_load", agent="helper")
    assert loaded["state"] == {"count": 1, "list": [1, None, "x"]}
    assert loaded["config"] == {"model": {"name": "m", "temperature": 0.5}}
    assert (loaded["name"], loaded["type"], loaded["capabilities"]) == ("Helper", "assistant", ["read", "write"])
    again = agent.call("agent_save", agent="helper", state={"count": 2}, expected_version=loaded["version"])
    assert not again["created"]
    assert agent.call("agent_load", agent="helper")["state"] == {"count": 2, "list": [1, None, "x"]}
    assert agent.refused("agent_save", agent="helper", state={"count": 3}, expected_version=1)[0] == "conflict"
    assert agent.call("agent_save", agent="helper", state={"count": 2})["version"] == again["version"]
    assert [each["agent"] for each in agent.call("agent_list")["agents"]] == ["helper"]


def test_fields_and_state_of_an_agent_are_saved_together_or_not_at_all(agent: Agent, store: takeback.Store) -> None:
    code, _ = agent.refused("agent_save", agent="helper", name="x", state={"": 1})
    assert code == "invalid"
    assert store.find_agent("helper") is None


def test_a_conversation_is_saved_once_however_often_it_is_saved(agent: Agent) -> None:
    first = agent.call("conversation_save", conversation="geography", messages=TALK, title="Capitals")
    assert (first["created"], first["added"]) == (True, 2)
    again = agent.call("conversation_save", conversation="geography", messages=TALK)
    assert (again["created"], again["added"]) == (False, 0)
    more = [*TALK, {"role": "user", "content": "And of Chile?"}]
    assert agent.call("conversation_save", conversation="geography", messages=more)["added"] == 1
    loaded = agent.call("conversation_load", conversation=first["conversation"])
    assert [(each["role"], each["text"]) for each in loaded["messages"]] == [
        (each["role"], each["content"]) for each in more
    ]
    assert loaded["conversation"]["title"] == "Capitals"


def test_a_conversation_that_differs_is_refused_appended_to_or_replaced(agent: Agent) -> None:
    agent.call("conversation_save", conversation="geography", messages=TALK)
    other = [TALK[0], {"role": "assistant", "content": "Quito"}]
    code, said = agent.refused("conversation_save", conversation="geography", messages=other)
    assert code == "conflict"
    assert "message 2 is not the one that is stored there" in said
    agent.call("conversation_save", conversation="geography", messages=[other[1]], mode="append")
    assert _texts(agent) == ["What is the capital of Peru?", "Lima", "Quito"]
    agent.call("conversation_save", conversation="geography", messages=other, mode="replace")
    assert _texts(agent) == ["What is the capital of Peru?", "Quito"]
    found = agent.call("search_history", query="Lima", branches=True)["hits"]
    assert found, "what was replaced is kept on its branch"
    agent.call("conversation_save", conversation="geography", messages=[], mode="replace")
    assert _texts(agent) == []


def test_a_message_with_an_id_is_appended_once(agent: Agent) -> None:
    message = {"role": "user", "content": "Hello", "id": "m1"}
    for _ in range(2):
        agent.call("conversation_save", conversation="greeting", messages=[message], mode="append")
    assert agent.call("conversation_load", conversation="greeting")["messages"][0]["text"] == "Hello"
    assert agent.call("persistence_stats")["messages"] == 1


def test_a_long_conversation_is_loaded_in_portions(agent: Agent) -> None:
    messages = [{"role": "user", "content": f"message {number}: {'x' * 1000}"} for number in range(60)]
    agent.call("conversation_save", conversation="long", messages=messages)
    found, after = list[str](), 0
    while after is not None:
        page = agent.call("conversation_load", conversation="long", after=after, limit=50)
        assert len(str(page)) < 40_000
        found += [each["text"] for each in page["messages"]]
        after = page.get("next_after")
    assert found == [each["content"] for each in messages]


def test_conversations_are_listed_and_searched(agent: Agent) -> None:
    for number in range(5):
        agent.call("conversation_save", conversation=f"c{number}", messages=[*TALK, *_said(f"Topic {number}")])
    listed, cursor = list[str](), None
    while True:
        page = agent.call("conversation_list", limit=2, **({} if cursor is None else {"cursor": cursor}))
        listed += [each["name"] for each in page["conversations"]]
        cursor = page.get("cursor")
        if cursor is None:
            break
    assert sorted(listed) == [f"c{number}" for number in range(5)]
    (hit,) = agent.call("conversation_search", query='"topic 3"')["hits"]
    assert "«Topic» «3»" in hit["snippet"] or "«Topic 3»" in hit["snippet"]
    assert agent.call("conversation_search", query="nowhere")["hits"] == []
    assert agent.call("conversation_list", agent="nobody")["conversations"] == []


def test_a_deletion_is_shown_first_done_second_and_can_be_taken_back(agent: Agent) -> None:
    saved = agent.call("conversation_save", conversation="geography", messages=TALK)
    shown = agent.call("conversation_delete", conversation="geography")
    assert (shown["deleted"], shown["conversation"]["id"]) == (False, saved["conversation"])
    assert agent.refused("conversation_delete", conversation="geography", digest="0" * 16)[0] == "conflict"
    agent.call("conversation_save", conversation="geography", messages=_said("More"), mode="append")
    assert agent.refused("conversation_delete", conversation="geography", digest=shown["digest"])[0] == "conflict"
    digest = agent.call("conversation_delete", conversation="geography")["digest"]
    done = agent.call("conversation_delete", conversation="geography", digest=digest)
    assert done["deleted"]
    assert agent.call("conversation_list")["conversations"] == []
    assert agent.refused("conversation_load", conversation="geography")[0] == "not_found"
    back = agent.call("undo_operation", operation=done["operation"]["id"])
    agent.call("undo_operation", operation=done["operation"]["id"], digest=back["digest"])
    assert _texts(agent)[:2] == ["What is the capital of Peru?", "Lima"]


def test_an_agent_is_deleted_with_its_conversations_in_two_steps(agent: Agent) -> None:
    agent.call("conversation_save", conversation="geography", messages=TALK, agent="helper")
    shown = agent.call("agent_delete", agent="helper")
    assert [each["name"] for each in shown["sessions"]] == ["geography"]
    done = agent.call("agent_delete", agent="helper", digest=shown["digest"])
    assert agent.refused("agent_load", agent="helper")[0] == "not_found"
    back = agent.call("undo_operation", operation=done["operation"]["id"])
    agent.call("undo_operation", operation=done["operation"]["id"], digest=back["digest"])
    assert agent.call("conversation_list", agent="helper")["conversations"][0]["messages"] == 2


def test_a_checkpoint_of_an_agent_is_restored_in_two_steps(agent: Agent) -> None:
    agent.call("agent_save", agent="helper", state={"step": 1})
    agent.call("conversation_save", conversation="geography", messages=TALK, agent="helper")
    made = agent.call("checkpoint_create", agent="helper", name="before")["checkpoint"]
    agent.call("agent_save", agent="helper", state={"step": 2})
    agent.call("conversation_save", conversation="geography", messages=_said("x"), mode="append", agent="helper")
    shown = agent.call("checkpoint_restore", checkpoint=made["id"])
    assert [each["name"] for each in shown["sessions_changed_since"]] == ["geography"]
    assert agent.call("agent_load", agent="helper")["state"] == {"step": 2}
    done = agent.call("checkpoint_restore", checkpoint=made["id"], digest=shown["digest"])
    assert done["restored"]
    assert agent.call("agent_load", agent="helper")["state"] == {"step": 1}
    assert agent.call("conversation_load", conversation="geography")["conversation"]["messages"] == 2
    back = agent.call("undo_operation", operation=done["operation"]["id"])
    agent.call("undo_operation", operation=done["operation"]["id"], digest=back["digest"])
    assert agent.call("agent_load", agent="helper")["state"] == {"step": 2}


def test_a_checkpoint_is_listed_and_erased_in_two_steps(agent: Agent) -> None:
    agent.call("agent_save", agent="helper")
    for name in ("one", "two"):
        agent.call("checkpoint_create", agent="helper", name=name, description="why")
    listed = agent.call("checkpoint_list", agent="helper")["checkpoints"]
    assert [each["name"] for each in listed] == ["two", "one"]
    shown = agent.call("checkpoint_delete", checkpoint=listed[0]["id"])
    assert not shown["deleted"]
    assert agent.call("checkpoint_delete", checkpoint=listed[0]["id"], digest=shown["digest"])["deleted"]
    assert [each["name"] for each in agent.call("checkpoint_list", agent="helper")["checkpoints"]] == ["one"]


def test_a_checkpoint_of_a_session_is_restored_by_a_rewind(agent: Agent, worked: takeback.Session) -> None:
    made = worked.checkpoint("here")
    code, said = agent.refused("checkpoint_restore", checkpoint=made.id)
    assert code == "invalid"
    assert "apply_rewind" in said


def _texts(agent: Agent) -> list[str]:
    return [each["text"] for each in agent.call("conversation_load", conversation="geography")["messages"]]


def _said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]
