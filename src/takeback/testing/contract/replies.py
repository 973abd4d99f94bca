"""The contract: whether the model is to speak next, and calls that a person did not allow."""

from __future__ import annotations

from typing import Any

import pytest

from takeback import Conflict, Session, Store

from .base import Contract, die
from .live import ENDINGS

CALL = {"id": "c1", "name": "deploy", "arguments": {"to": "production"}}
OTHER = {"id": "c2", "name": "read", "arguments": {}}


def calling(*calls: dict[str, Any]) -> dict[str, Any]:
    """Return an answer that calls tools."""
    return {"role": "assistant", "content": "", "tool_calls": [*calls]}


class Replies(Contract):
    """What a loop asks before it asks the model."""

    @pytest.mark.feature("A2")
    def test_a_request_and_the_results_of_all_calls_need_a_reply(self, session: Session) -> None:
        assert session.needs_reply() is False
        session.system("Be brief.")
        assert session.needs_reply() is False
        session.user("Go")
        assert session.needs_reply() is True
        session.system("Be very brief.")
        session.note("nobody answers a note")
        assert session.needs_reply() is True
        session.append(calling(CALL, OTHER))
        assert session.needs_reply() is False
        session.tool_result("c1", "done")
        assert session.needs_reply() is False
        with session.tool(session.pending_calls()[0]) as run:
            assert session.needs_reply() is False
            run.result("read")
        assert session.needs_reply() is True
        session.assistant("It is done.")
        assert session.needs_reply() is False

    @pytest.mark.feature("A2")
    def test_a_call_that_was_given_up_keeps_nobody_waiting(self, session: Session) -> None:
        session.user("Go")
        session.append(calling(CALL))
        session.user("Never mind")
        assert session.needs_reply() is True
        session.append(calling(OTHER))
        session.tool_result("c2", "read")
        assert session.needs_reply() is True
        session.rewind(2)
        assert session.needs_reply() is False
        session.rewind(1)
        assert session.needs_reply() is True

    @pytest.mark.feature("A2")
    def test_a_half_answer_needs_the_rest(self, store: Store) -> None:
        session = store.session("job")
        session.user("Go")
        stream = session.stream()
        stream.write("It is")
        stream.flush()
        assert store.get_session("job").needs_reply() is False, "it is being written"
        die(session)
        assert store.get_session("job").needs_reply() is True
        with store.session("job", take_over=True) as again:
            assert again.messages()[-1].status == "interrupted"
            assert again.needs_reply() is True
            again.assistant("It is done.")
            assert again.needs_reply() is False

    @pytest.mark.feature("A2")
    @pytest.mark.parametrize("ending", ENDINGS)
    def test_a_finished_session_needs_no_reply(self, session: Session, ending: str) -> None:
        session.user("Go")
        ENDINGS[ending](session)
        assert session.needs_reply() is False


class Denials(Contract):
    """A call that was not allowed neither worked nor failed."""

    @pytest.mark.feature("F4")
    def test_a_call_that_a_person_denied_is_told_so_and_never_run(self, session: Session) -> None:
        session.user("Go")
        session.append(calling(CALL, OTHER))
        session.ask_approval("c1")
        assert [call.status for call in session.tool_calls()] == ["pending", "pending"]
        session.answer_approval("c1", False, by="ann", note="not on a Friday")
        assert [(call.id, call.status) for call in session.tool_calls()] == [("c1", "denied"), ("c2", "pending")]
        assert [call.id for call in session.pending_calls()] == ["c2"]
        with pytest.raises(Conflict, match="was denied"), session.tool(session.tool_calls()[0]):
            pass
        session.tool_result("c2", "read")
        assert session.needs_reply() is True
        context = session.context("openai-chat")
        assert [message["content"] for message in context.messages[2:]] == [
            "denied: this call was not allowed to run (not on a Friday)",
            "read",
        ]
        assert context.repairs == ("closed a call that was denied (message 2)",)
        session.rewind(2)
        assert [call.status for call in session.tool_calls()] == ["pending", "pending"]

    @pytest.mark.feature("F4")
    def test_a_denial_is_a_result_of_its_own_kind(self, store: Store, session: Session) -> None:
        session.user("Go")
        session.append(calling(CALL, OTHER))
        message = session.resolve_call("c1", denied=True)
        assert (message.tool_results[0].denied, message.tool_results[0].success) == (True, False)
        session.resolve_call("c2", "The user said no.", denied=True)
        assert [(call.status, call.success) for call in session.tool_calls()] == [("denied", False)] * 2
        assert (session.stats().tool_calls, session.stats().tool_failures) == (2, 0)
        contents = [each["content"] for each in session.context("openai-chat").messages[2:]]
        assert contents == ["denied: this call was not allowed to run", "The user said no."]
        assert session.needs_reply() is True
        assert not store.verify()

    @pytest.mark.feature("F4")
    def test_a_failure_recorded_after_a_denial_is_one(self, session: Session) -> None:
        session.user("Go")
        session.append(calling(CALL))
        session.ask_approval("c1")
        session.answer_approval("c1", False)
        session.resolve_call("c1", "The user said no.", success=False)
        assert [call.status for call in session.tool_calls()] == ["denied"]
        assert session.approvals() == []
