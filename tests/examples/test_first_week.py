"""Small programs that people wrote in their first week, as they would have liked to write them: without a detour.

Each function named ``_program`` or the like is somebody's own code; the test around it only looks at what came of it.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import takeback
from takeback import Custom, Native, NotFound, Session, Store
from takeback.testing import validators


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with takeback.open(tmp_path / "work.db") as store:
        yield store


# ---------------------------------------------------------------------- somebody tests their own code


def greet(session: Session, name: str) -> str:
    """Answer in a session; this is the code under test."""
    session.user(f"I am {name}", metadata={"name": name})
    return session.assistant(f"Hello {name}").text


@pytest.mark.feature("A2")
@pytest.mark.trial("T51")
def test_a_session_can_be_replaced_in_a_test_of_ones_own(store: Store) -> None:
    stand_in = mock.create_autospec(Session, instance=True)
    greet(stand_in, "Anna")
    stand_in.user.assert_called_once_with("I am Anna", metadata={"name": "Anna"})
    with pytest.raises(TypeError):  # as the real one
        stand_in.user("hi", metdata={})
    assert greet(store.session("s"), "Anna") == "Hello Anna"
    assert "idempotency_key" in inspect.signature(Session.assistant).parameters


# ---------------------------------------------------------------------- two ways from one point


@pytest.mark.feature("F11")
def test_the_better_of_two_branches_is_gone_back_to_by_its_name(store: Store) -> None:
    s = store.session("refactor")
    s.user("Make it faster")
    s.switch(s.fork(name="with a lock"))
    slow = s.assistant("A lock: 3 s")
    s.switch(s.fork(1, name="with a queue"))
    s.assistant("A queue: 1 s")
    # The program compares both, though it is on one of them only.
    ends = {name: s.messages(limit=1, at=name)[0].text for name in ("with a lock", "with a queue")}
    assert ends == {"with a lock": "A lock: 3 s", "with a queue": "A queue: 1 s"}
    assert s.messages(at=slow)[-1] == slow  # a message that was left is a point as well
    s.rewind("with a lock")
    assert s.messages(limit=1)[0].text == "A lock: 3 s"
    with pytest.raises(NotFound):
        s.rewind("with a wand")


# ---------------------------------------------------------------------- a framework keeps its steps here


def save_step(session: Session, number: int, said: list[dict[str, Any]], channels: dict[str, Any]) -> int:
    """Keep what a framework made at one step, all of it or nothing, and return the point to come back to."""
    session.write(
        *(Native(item, role=item["by"], text=item["words"], id=item["key"]) for item in said),
        Custom("fw.step", {"number": number}, id=f"step-{number}"),
        state=channels,
        existing="skip",
        idempotency_key=f"step-{number}",
    )
    return session.head.seq


@pytest.mark.feature("F8")
def test_a_framework_goes_back_one_step(store: Store) -> None:
    s = store.session("graph")
    asked = {"by": "user", "words": "Plan it", "key": "k1"}
    save_step(s, 1, [asked], {"phase": "plan"})
    first = save_step(s, 1, [asked], {"phase": "plan"})  # again: the reply to the first try got lost
    save_step(s, 2, [asked, {"by": "assistant", "words": "Done", "key": "k2", "extra": [1]}], {"phase": "done"})
    assert [(message.role, message.text) for message in s.messages()] == [("user", "Plan it"), ("assistant", "Done")]
    assert [step.data["number"] for step in s.customs("fw.step")] == [1, 2]
    s.rewind(first)
    assert (s.state.get("phase"), s.customs("fw.step", newest=True)[0].id) == ("plan", "step-1")
    assert [session.name for session, _ in store.find_entries("k2")] == ["graph"]
    s.undo()
    assert s.state.get("phase") == "done"


# ---------------------------------------------------------------------- a web page shows a conversation


def history(store: Store, name: str) -> str:
    """Answer a request of the page: a conversation as JSON."""
    return json.dumps([message.to_dict() for message in store.get_session(name).messages()])


@pytest.mark.feature("A2")
@pytest.mark.trial("T50")
def test_a_conversation_leaves_the_process(store: Store) -> None:
    s = store.session("chat")
    s.user("Hello", id="m1")
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "ä"}}
    s.append({"role": "assistant", "content": [{"type": "text", "text": "Let me look."}, call]})
    shown = json.loads(history(store, "chat"))
    assert [takeback.Message.from_dict(each) for each in shown] == s.messages()
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:  # values are sent to another process and back
        assert list(pool.map(len, [s.messages(), s.pending_calls()])) == [2, 1]
        assert pool.submit(copy.deepcopy, s.pending_calls()).result() == s.pending_calls()


# ---------------------------------------------------------------------- a history of another tool is continued


@pytest.mark.feature("C2", "F3")
@pytest.mark.parametrize("provider", ["anthropic", "openai-chat", "openai-responses", "gemini"])
def test_items_with_fields_of_other_tools_are_kept_and_not_sent(store: Store, provider: str) -> None:
    s = store.session("import")
    s.append(
        {"role": "user", "content": "Hello", "provider_specific_fields": {"trace": 1}},
        {"role": "assistant", "content": [{"type": "text", "text": "Hi.", "internal_note": "not for the model"}]},
        {"role": "user", "content": "Go on"},
    )
    assert "not for the model" in json.dumps(s.messages()[1].content)
    request = s.context(provider, model="m").request()
    validators.require_valid(provider, request)
    assert not any(word in json.dumps(request) for word in ("internal_note", "provider_specific_fields"))
