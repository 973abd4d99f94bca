"""The contract: what a store returns leaves the process and comes back equal."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from takeback import Message, Page, Session, Store

from .base import Contract


class Values(Contract):
    """Values of a real session, as dicts and copies."""

    @pytest.mark.feature("C3")
    @pytest.mark.trial("T50")
    def test_what_a_store_returns_leaves_the_process_and_comes_back_equal(self, store: Store, tmp_path: Path) -> None:
        found = 0
        for value in _values(store, tmp_path):
            plain = json.loads(json.dumps(value.to_dict(), allow_nan=False))
            assert type(value).from_dict(plain) == value
            assert copy.deepcopy(value) == value  # by what pickle calls, too
            found += 1
        assert found > 20
        session = store.get_session("s")
        page = Page(session.messages(), None)
        assert Page.from_dict(page.to_dict(), Message) == page

    @pytest.mark.feature("C3")
    @pytest.mark.trial("T50")
    def test_a_message_that_left_can_be_appended_where_its_content_is(self, store: Store, session: Session) -> None:
        message = session.user("see", attachments=[b"chart"], metadata={"k": b"v"})
        left = Message.from_dict(message.to_dict())
        assert left.attachments[0].to_dict() == message.attachments[0].to_dict()
        other = store.create_session("other")
        (copied,) = other.append(left)
        assert copied.attachments[0].read() == b"chart"
        assert (copied.text, copied.metadata) == ("see", {"k": b"v"})


def _values(store: Store, folder: Path) -> Iterator[Any]:
    session = store.create_session("s", workspace=folder)
    yield session.user("Look", attachments=[b"bytes"])
    use = {"type": "tool_use", "id": "t1", "name": "ls", "input": {"path": "."}}
    yield from session.append({"role": "assistant", "content": [{"type": "text", "text": "I look"}, use]})
    yield from session.pending_calls()
    yield session.ask_approval(session.pending_calls()[0], "May I?")
    yield session.tool_result("t1", {"files": ["a"]})
    yield session.assistant("Done", usage={"input_tokens": 3, "output_tokens": 2, "cost": 0.001}, duration=0.5)
    yield from session.messages()
    yield from session.entries()
    yield from session.turns()
    yield from session.tool_calls()
    session.set_tasks(["one", "two"])
    yield from session.tasks()
    session.note("thought")
    yield from session.notes()
    session.record_file("a.py", "write")
    yield from session.files()
    checkpoint = session.checkpoint("c")
    yield checkpoint
    yield session.compact(2, "They looked")
    yield session.rename("Title")
    yield from store.operations()
    yield from session.branches()
    yield session.stats()
    yield session.tree()
    yield session.send("later")
    yield session.context("anthropic")
    yield session.diff(checkpoint)
    yield session.head
    yield store.stats()
    yield store.verify()
    yield store.capabilities
    yield from store.events()
