"""What a stream ends with: the final message of an SDK, or the chunks that Gemini's SDK leaves to its caller."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from anthropic.types import Message as AnthropicMessage
from google.genai import types as gemini
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import Response, ResponseCompletedEvent

import takeback
from takeback import Invalid, Session, Usage
from takeback.testing import validators

pytestmark = [pytest.mark.feature("F4"), pytest.mark.trial("T59")]
THOUGHT = {"text": "Is it there?", "thought": True}
CALL = {"functionCall": {"name": "look", "args": {"at": "ä"}, "id": "c1"}, "thoughtSignature": "c2ln"}
DONE: dict[str, Any] = {"finishReason": "STOP"}


@pytest.fixture
def session() -> Iterator[Session]:
    with takeback.open(":memory:") as store, store.session("s") as session:
        session.user("hi")
        yield session


def chunk(*parts: dict[str, Any], **ended: Any) -> gemini.GenerateContentResponse:
    """Return a chunk as the SDK makes it of what comes over the wire."""
    candidate = {"content": {"parts": [*parts], "role": "model"}, "index": 0, **ended}
    used = {"promptTokenCount": 7, "candidatesTokenCount": 5 if ended else 1}
    return gemini.GenerateContentResponse.model_validate(
        {"candidates": [candidate], "usageMetadata": used, "modelVersion": "gemini-x", "responseId": "r"}
    )


def streamed(session: Session, chunks: list[Any], final: Any) -> takeback.Message:
    """Write the chunks as a loop does, and finish with ``final``."""
    with session.stream() as stream:
        for each in chunks:
            for part in each.parts or ():
                if part.text:
                    stream.write(part.text, "thinking" if part.thought else "text")
                if part.function_call:
                    stream.write(json.dumps(part.function_call.args), "tool_input")
        return stream.finish(final)


def finished(session: Session, written: str, final: Any) -> None:
    with session.stream() as stream:
        stream.write(written)
        stream.finish(final)


def parts(message: takeback.Message) -> Any:
    assert message.raw is not None
    return json.loads(message.raw)["parts"]


HALVES = [
    chunk({"text": "Is it", "thought": True}),
    chunk({"text": " there?", "thought": True}),
    chunk({"text": "It "}),
]


class TestAllChunks:
    def test_they_become_one_content_with_calls_and_signatures(self, session: Session) -> None:
        chunks = [*HALVES, chunk({"text": "is."}), chunk(CALL), chunk({"text": ""}, **DONE)]
        message = streamed(session, chunks, chunks)
        assert parts(message) == [THOUGHT, {"text": "It is."}, CALL]
        assert (message.text, message.model, message.usage) == ("It is.", "gemini-x", Usage(7, 5))
        assert [(call.id, call.name, call.arguments) for call in session.pending_calls()] == [
            ("c1", "look", {"at": "ä"})
        ]

    def test_text_with_a_signature_is_not_joined(self, session: Session) -> None:
        signed = {"text": "", "thoughtSignature": "c2ln"}
        chunks = [chunk({"text": "a"}), chunk({"text": "b"}), chunk(signed), chunk({"text": "c"}, **DONE)]
        assert parts(streamed(session, chunks, tuple(chunks))) == [{"text": "ab"}, signed, {"text": "c"}]

    def test_what_comes_back_is_sent_as_it_is(self, session: Session) -> None:
        chunks = [*HALVES, chunk({"text": "is."}), chunk(CALL, **DONE)]
        streamed(session, chunks, chunks)
        session.tool_result("c1", "yes")
        context = session.context("gemini", model="gemini-x")
        validators.require_valid("gemini", context.request())
        assert context.repairs == ()
        assert context.messages[1] == {"role": "model", "parts": [THOUGHT, {"text": "It is."}, CALL]}

    def test_one_of_them_may_have_no_content(self, session: Session) -> None:
        bare: Any = gemini.GenerateContentResponse.model_validate({"usageMetadata": {"promptTokenCount": 9}})
        message = streamed(session, [], [chunk({"text": "a"}, **DONE), bare])
        assert (message.text, message.usage) == ("a", Usage(9, 0))

    def test_of_several_candidates_the_first_is_kept(self, session: Session) -> None:
        def of(index: int, text: str) -> dict[str, Any]:
            return {"index": index, "content": {"role": "model", "parts": [{"text": text}]}, **DONE}

        given = [{"candidates": [of(1, "x"), of(0, "a")]}, {"candidates": [of(1, "y")]}, {"candidates": [of(0, "b")]}]
        assert streamed(session, [], given).text == "ab"

    def test_an_empty_answer_is_an_answer(self, session: Session) -> None:
        assert parts(streamed(session, [], [chunk({"text": ""}), chunk({"text": ""}, **DONE)])) == [{"text": ""}]


class TestTheLastChunkAlone:
    @pytest.mark.parametrize("last", ["is.", ""], ids=["text", "nothing"])
    def test_what_was_written_is_not_lost(self, session: Session, last: str) -> None:
        chunks = [*HALVES, chunk({"text": last}, **DONE)]
        message = streamed(session, chunks, chunks[-1])
        assert parts(message) == [THOUGHT, {"text": f"It {last}"}]
        assert (message.model, message.usage, message.status) == ("gemini-x", Usage(7, 5), "complete")

    def test_nor_if_only_its_content_is_given(self, session: Session) -> None:
        chunks = [*HALVES, chunk({"text": "is."}, **DONE)]
        message = streamed(session, chunks, chunks[-1].candidates[0].content)  # type: ignore[index]
        assert parts(message) == [THOUGHT, {"text": "It is."}]

    def test_its_own_call_is_kept(self, session: Session) -> None:
        chunks = [*HALVES, chunk(CALL, **DONE)]
        assert parts(streamed(session, chunks, chunks[-1])) == [THOUGHT, {"text": "It "}, CALL]

    def test_calls_in_chunks_that_are_not_given_are_missed(self, session: Session) -> None:
        chunks = [*HALVES, chunk(CALL), chunk({"text": ""}, **DONE)]
        with pytest.raises(Invalid, match="give finish all of them"):
            streamed(session, chunks, chunks[-1])
        (message,) = session.messages(limit=1)
        assert (message.status, message.text) == ("interrupted", "It ")

    def test_a_whole_response_replaces_what_was_written(self, session: Session) -> None:
        whole = chunk(THOUGHT, {"text": "It is."}, CALL, **DONE)
        assert parts(streamed(session, HALVES, whole)) == [THOUGHT, {"text": "It is."}, CALL]


class TestWhatIsRefused:
    def refused(self, session: Session, final: Any) -> str:
        with pytest.raises(Invalid) as raised:
            finished(session, "It ", final)
        (message,) = session.messages(limit=1)
        assert (message.text, message.status) == ("It ", "interrupted")  # what arrived is not lost with it
        return str(raised.value)

    def test_an_answer_that_was_cut_off(self, session: Session) -> None:
        cut = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "It "}], "model": "m"}
        used = {"input_tokens": 1, "output_tokens": 1}
        half = AnthropicMessage.model_validate(
            {**cut, "id": "m1", "stop_reason": None, "stop_sequence": None, "usage": used}
        )
        assert "cut off" in self.refused(session, half)
        assert "cut off" in self.refused(session, {"object": "response", "status": "in_progress", "output": []})
        assert "cut off" in self.refused(session, HALVES)

    def test_what_is_not_a_final_message(self, session: Session) -> None:
        whole = {"id": "r", "created_at": 1, "model": "m", "object": "response", "status": "completed", "output": []}
        response = Response.model_validate({**whole, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []})
        event = ResponseCompletedEvent(type="response.completed", sequence_number=1, response=response)
        piece = {"index": 0, "delta": {}, "finish_reason": "stop"}
        part = {"id": "c", "choices": [piece], "created": 1, "model": "m", "object": "chat.completion.chunk"}
        assert "event.response" in self.refused(session, event)
        assert "not dict" in self.refused(session, {"type": "message_stop"})
        assert "not ChatCompletionChunk" in self.refused(session, ChatCompletionChunk.model_validate(part))
        assert "a list of str" in self.refused(session, ["a"])
        assert "a list of nothing" in self.refused(session, [])
        assert "no output" in self.refused(session, response)

    def test_an_answer_without_content_says_why(self, session: Session) -> None:
        blocked = {"candidates": [{"finishReason": "SAFETY"}]}
        with pytest.raises(Invalid, match="SAFETY"):
            session.stream().finish([blocked])
        with pytest.raises(Invalid, match="PROHIBITED"):
            session.stream().finish([{"prompt_feedback": {"block_reason": "PROHIBITED"}}])

    def test_arguments_in_pieces(self, session: Session) -> None:
        begun = {"functionCall": {"name": "look", "willContinue": True}}
        assert "stream_function_call_arguments" in self.refused(session, [chunk(begun, **DONE)])


def test_all_items_of_a_response_are_stored_as_they_came(session: Session) -> None:
    output = [
        {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "c2VjcmV0"},
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "annotations": [], "text": "Let me look."}],
        },
        {"id": "fc_1", "type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
    ]
    used = {"input_tokens": 7, "output_tokens": 5, "total_tokens": 12}
    details = {
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    whole = {"id": "r", "created_at": 1, "model": "m", "object": "response", "status": "completed", "output": output}
    extra = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "usage": {**used, **details}}
    with session.stream() as stream:
        stream.write("Let me look.")
        stream.write("{}", "tool_input")
        stream.finish(Response.model_validate({**whole, **extra}))
    assert [json.loads(message.raw or b"") for message in session.messages()[1:]] == output
    assert session.stats().usage == Usage(7, 5)
    assert [call.id for call in session.pending_calls()] == ["c1"]
