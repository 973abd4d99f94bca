"""Small programs that people wrote in their first week, as they would have liked to write them: without a detour.

Each function named ``_program`` or the like is somebody's own code; the test around it only looks at what came of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import takeback
from takeback import Custom, Native, NotFound, Session, Store


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
