"""Every provider's messages are recognised, kept verbatim and read, against the SDKs' own types."""

from __future__ import annotations

import base64
from typing import Any

import pydantic
import pytest
from anthropic.types import Message as AnthropicMessage
from anthropic.types import MessageParam, ParsedMessage
from google.genai import types as gemini
from hypothesis import example, given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam, ParsedChatCompletion
from openai.types.responses import ParsedResponse, Response, ResponseFunctionToolCall, ResponseInputItemParam

from takeback import Message, Usage, codec
from takeback import providers as forms
from takeback.model.given import Given
from takeback.model.tools import ToolCall, ToolResult


def only(item: object) -> Given:
    """Recognise what is one message."""
    (found,) = forms.recognise(item)
    return found


def accepted(kind: Any, value: dict[str, Any]) -> None:
    """Ask the SDK's own input type whether it would take the value."""
    pydantic.TypeAdapter(kind).validate_python(value)


ANTHROPIC_REPLY: dict[str, Any] = {
    "id": "msg_1",
    "content": [
        {"signature": "c2ln", "thinking": "Look first.", "type": "thinking"},
        {"citations": None, "text": "I look.", "type": "text"},
        {"id": "toolu_1", "input": {"command": "ls", "limit": None}, "name": "bash", "type": "tool_use"},
    ],
    "model": "claude-x",
    "role": "assistant",
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "type": "message",
    "usage": {"cache_read_input_tokens": 3, "input_tokens": 1, "output_tokens": 2},
}


@pytest.mark.feature("C2")
@pytest.mark.parametrize("make", [dict, AnthropicMessage.model_validate], ids=["data", "object"])
def test_an_anthropic_reply_is_kept_whole(make: Any) -> None:
    found = only(make(ANTHROPIC_REPLY))
    assert found.value == ANTHROPIC_REPLY
    assert found == Given(
        form="anthropic",
        role="assistant",
        value=found.value,
        id="msg_1",
        model="claude-x",
        usage=Usage(4, 2, cache_read_tokens=3),
        calls=(ToolCall("toolu_1", "bash", {"command": "ls", "limit": None}),),
    )
    assert forms.find_form("anthropic").text(found.value) == "I look."
    accepted(MessageParam, {key: found.value[key] for key in ("role", "content")})


@pytest.mark.feature("C2")
def test_blocks_that_the_sdk_does_not_know_survive() -> None:
    """The SDK keeps them in objects of another type; that must neither warn nor lose a field."""
    content = [{"type": "text", "text": "a"}, {"type": "brand_new", "x": {"y": [1]}}]
    reply = AnthropicMessage.construct(**{**ANTHROPIC_REPLY, "content": content})
    assert only(reply).value["content"] == content


@pytest.mark.feature("C2")
def test_sdk_objects_inside_a_dict_become_data() -> None:
    reply = AnthropicMessage.model_validate(ANTHROPIC_REPLY)
    found = only({"role": "assistant", "content": reply.content})
    assert found.value == {"role": "assistant", "content": ANTHROPIC_REPLY["content"]}
    assert list(found.value["content"][2]) == ["id", "input", "name", "type"]


@pytest.mark.feature("C2")
def test_a_user_message_of_tool_results_alone_is_no_turn() -> None:
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "a.py"}]}
    failed = {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": True}
    found = only({"role": "user", "content": [result, failed]})
    assert (found.role, found.is_turn) == ("tool", False)
    assert found.results == (ToolResult("toolu_1", result["content"]), ToolResult("toolu_2", "", success=False))
    assert forms.find_form("anthropic").text(found.value) == "a.py"


@pytest.mark.feature("C2")
def test_tool_results_with_a_word_of_the_user_are_a_turn() -> None:
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.py"}
    found = only({"role": "user", "content": [result, {"type": "text", "text": "go on"}]})
    assert (found.role, found.is_turn, len(found.results)) == ("user", True, 1)


@pytest.mark.feature("C2")
def test_tools_that_run_on_the_server_are_nobodys_open_call() -> None:
    blocks = [
        {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []},
    ]
    found = only({"role": "assistant", "content": blocks})
    assert (found.form, found.calls, found.results) == ("anthropic", (), ())
    assert only({"type": "web_search_call", "id": "ws_1", "status": "completed"}).calls == ()


CHAT_MESSAGE: dict[str, Any] = {
    "content": None,
    "refusal": None,
    "role": "assistant",
    "tool_calls": [
        {"id": "call_a", "function": {"arguments": '{"path": "a"}', "name": "read"}, "type": "function"},
        {"id": "call_b", "custom": {"input": "5", "name": "calc"}, "type": "custom"},
        {"id": "call_c", "function": {"arguments": '{"cut', "name": "read"}, "type": "function"},
    ],
}
CHOICE: dict[str, Any] = {"finish_reason": "tool_calls", "index": 0, "logprobs": None, "message": CHAT_MESSAGE}
CHAT_REPLY: dict[str, Any] = {
    "id": "chatcmpl-1",
    "choices": [CHOICE],
    "created": 1,
    "model": "gpt-x",
    "object": "chat.completion",
    "usage": {"completion_tokens": 2, "prompt_tokens": 1, "total_tokens": 3},
}


@pytest.mark.feature("C2")
@pytest.mark.parametrize("make", [dict, ChatCompletion.model_validate], ids=["data", "object"])
def test_of_a_chat_completion_the_message_is_kept(make: Any) -> None:
    found = only(make(CHAT_REPLY))
    assert found.value == CHAT_MESSAGE
    assert (found.form, found.role, found.id, found.model) == ("openai-chat", "assistant", "chatcmpl-1", "gpt-x")
    assert found.usage == Usage(1, 2)
    assert [call.arguments for call in found.calls] == [{"path": "a"}, "5", '{"cut']
    assert only(found.value).calls == found.calls
    accepted(ChatCompletionMessageParam, found.value)


@pytest.mark.feature("C2")
@pytest.mark.parametrize(
    ("message", "role", "said"),
    [
        ({"role": "tool", "tool_call_id": "call_a", "content": "done"}, "tool", "done"),
        ({"role": "function", "name": "read", "content": "done"}, "tool", "done"),
        ({"role": "developer", "content": "Be brief."}, "system", "Be brief."),
        ({"role": "user", "name": "ann", "content": "hello"}, "user", "hello"),
        ({"role": "assistant", "content": None, "refusal": "I cannot."}, "assistant", "I cannot."),
        (
            {
                "role": "user",
                "content": [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "data:,"}}],
            },
            "user",
            "see",
        ),
        (
            {"role": "user", "content": [{"type": "file", "file": {"file_id": "file-1"}}]},
            "user",
            "",
        ),
    ],
)
def test_single_chat_messages_are_recognised(message: dict[str, Any], role: str, said: str) -> None:
    found = only(message)
    assert (found.form, found.role, found.is_turn) == ("openai-chat", role, role == "user")
    assert forms.find_form(found.form).text(found.value) == said
    assert found.value is message
    accepted(ChatCompletionMessageParam, message)


@pytest.mark.feature("C2")
def test_the_old_function_call_is_answered_by_name() -> None:
    call = only({"role": "assistant", "content": None, "function_call": {"name": "read", "arguments": "{}"}}).calls[0]
    result = only({"role": "function", "name": "read", "content": "done"}).results[0]
    assert call.id == result.call_id == "read"


RESPONSE_ITEMS: list[dict[str, Any]] = [
    {
        "id": "rs_1",
        "summary": [{"text": "hm", "type": "summary_text"}],
        "type": "reasoning",
        "encrypted_content": "gA==",
    },
    {
        "id": "msg_1",
        "content": [
            {"annotations": [], "text": "I look.", "type": "output_text"},
            {"refusal": "Not that.", "type": "refusal"},
        ],
        "role": "assistant",
        "status": "completed",
        "type": "message",
    },
    {"arguments": '{"path":"a"}', "call_id": "call_1", "name": "read", "type": "function_call", "id": "fc_1"},
]
RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "created_at": 1.0,
    "model": "gpt-x",
    "object": "response",
    "output": RESPONSE_ITEMS,
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "usage": {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 8,
    },
}


@pytest.mark.feature("C2")
@pytest.mark.parametrize("make", [dict, Response.model_validate], ids=["data", "object"])
def test_every_item_of_a_response_is_a_message(make: Any) -> None:
    found = forms.recognise(make(RESPONSE))
    assert [item.value for item in found] == RESPONSE_ITEMS
    assert {(item.form, item.role) for item in found} == {("openai-responses", "assistant")}
    assert [item.id for item in found] == ["rs_1", "msg_1", "fc_1"]
    assert [forms.find_form(item.form).text(item.value) for item in found] == ["", "I look.\nNot that.", ""]
    assert found[2].calls == (ToolCall("call_1", "read", {"path": "a"}),)
    for item in found:
        accepted(ResponseInputItemParam, item.value)


@pytest.mark.feature("B1")
def test_a_response_is_paid_for_once() -> None:
    found = forms.recognise(RESPONSE)
    assert [item.usage for item in found] == [None, None, Usage(5, 3, cache_read_tokens=4, reasoning_tokens=2)]
    assert [item.model for item in found] == [None, None, "gpt-x"]


@pytest.mark.feature("C2")
@pytest.mark.parametrize(
    ("item", "role"),
    [
        ({"type": "function_call_output", "call_id": "call_1", "output": "done"}, "tool"),
        ({"type": "custom_tool_call_output", "call_id": "call_1", "output": "done"}, "tool"),
        ({"type": "local_shell_call_output", "id": "call_1", "output": "done"}, "tool"),
        ({"type": "message", "role": "user", "content": "hello"}, "user"),
        ({"type": "message", "role": "developer", "content": "hello"}, "system"),
        ({"role": "user", "content": [{"type": "input_text", "text": "hello"}]}, "user"),
        ({"type": "item_reference", "id": "msg_1"}, "assistant"),
        ({"type": "compaction", "encrypted_content": "gA=="}, "assistant"),
        ({"type": "image_generation_call", "id": "ig_1", "result": "gA==", "status": "completed"}, "assistant"),
        ({"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "x", "tools": []}, "assistant"),
        ({"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}, "tool"),
    ],
    ids=lambda given: given if isinstance(given, str) else given.get("type", "untyped"),
)
def test_single_items_are_recognised(item: dict[str, Any], role: str) -> None:
    found = only(item)
    assert (found.form, found.role, found.is_turn) == ("openai-responses", role, role == "user")
    assert found.value is item
    if "output" in item:
        assert found.results == (ToolResult("call_1", "done"),)
        assert forms.find_form(found.form).text(item) == forms.find_form(found.form).content(item) == "done"
    accepted(ResponseInputItemParam, item)


@pytest.mark.feature("C2")
@pytest.mark.parametrize(
    ("item", "name", "arguments"),
    [
        ({"type": "custom_tool_call", "call_id": "c", "name": "calc", "input": "5"}, "calc", "5"),
        ({"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}}, "shell", {"commands": ["ls"]}),
        (
            {"type": "computer_call", "call_id": "c", "id": "cu", "action": {"type": "wait"}},
            "computer",
            {"type": "wait"},
        ),
        ({"type": "apply_patch_call", "call_id": "c", "operation": {"type": "x"}}, "apply_patch", {"type": "x"}),
        ({"type": "tool_search_call", "call_id": "c", "execution": "client", "arguments": {}}, "tool_search", {}),
    ],
)
def test_calls_of_every_kind_are_listed(item: dict[str, Any], name: str, arguments: object) -> None:
    assert only(item).calls == (ToolCall("c", name, arguments),)


@pytest.mark.feature("C2")
def test_a_single_item_object_is_recognised() -> None:
    found = only(ResponseFunctionToolCall(arguments="{}", call_id="call_1", name="read", type="function_call"))
    assert found.value == {"arguments": "{}", "call_id": "call_1", "name": "read", "type": "function_call"}


SIGNATURE = b"\xfb\xff\xfe\x00signature"


def gemini_reply() -> gemini.GenerateContentResponse:
    parts = [
        gemini.Part(text="Look first.", thought=True),
        gemini.Part(text="I look."),
        gemini.Part(
            function_call=gemini.FunctionCall(name="read", args={"file_path": None}), thought_signature=SIGNATURE
        ),
        gemini.Part(function_call=gemini.FunctionCall(name="read", args={"filePath": "b"}, id="fc-9")),
        gemini.Part(inline_data=gemini.Blob(data=SIGNATURE, mime_type="image/png")),
    ]
    return gemini.GenerateContentResponse(
        candidates=[gemini.Candidate(content=gemini.Content(role="model", parts=parts), finish_reason="STOP")],
        usage_metadata=gemini.GenerateContentResponseUsageMetadata(prompt_token_count=4, candidates_token_count=2),
        model_version="gemini-x",
        response_id="r1",
    )


@pytest.mark.feature("C2")
def test_of_a_gemini_response_the_content_is_kept_as_the_api_writes_it() -> None:
    reply = gemini_reply()
    found = only(reply)
    assert (found.form, found.role, found.id, found.model) == ("gemini", "assistant", "r1", "gemini-x")
    assert found.usage == Usage(4, 2)
    assert found.calls == (ToolCall("call-0", "read", {"file_path": None}), ToolCall("fc-9", "read", {"filePath": "b"}))
    assert forms.find_form("gemini").text(found.value) == "I look."
    assert list(found.value["parts"][2]) == ["functionCall", "thoughtSignature"]


@pytest.mark.feature("C2")
def test_gemini_bytes_come_back_equal() -> None:
    reply = gemini_reply()
    value = only(reply).value
    assert base64.urlsafe_b64decode(value["parts"][2]["thoughtSignature"]) == SIGNATURE
    assert reply.candidates
    assert gemini.Content.model_validate(value) == reply.candidates[0].content


@pytest.mark.feature("C2")
@pytest.mark.parametrize("call", ["functionCall", "function_call"])
def test_gemini_data_is_read_in_either_case(call: str) -> None:
    content = {"role": "model", "parts": [{call: {"name": "now"}}]}
    found = only(content)
    assert found.value is content
    assert found.calls == (ToolCall("call-0", "now", {}),)


@pytest.mark.feature("C2")
def test_a_gemini_function_response_without_an_id_refers_to_the_name() -> None:
    good = gemini.Part.from_function_response(name="read", response={"output": "a.py"})
    bad = {"functionResponse": {"id": "fc-9", "name": "read", "response": {"error": "no such file"}}}
    found = only({"role": "user", "parts": [good, bad]})
    assert (found.role, found.is_turn) == ("tool", False)
    assert found.results == (
        ToolResult("read", {"output": "a.py"}, name="read"),
        ToolResult("fc-9", {"error": "no such file"}, success=False, name="read"),
    )
    assert forms.find_form("gemini").text(found.value) == "a.py\nno such file"


@pytest.mark.feature("C2")
def test_a_gemini_content_without_a_role_is_the_users() -> None:
    found = only(gemini.Content(parts=[gemini.Part(text="hello")]))
    assert (found.role, found.is_turn, found.value) == ("user", True, {"parts": [{"text": "hello"}]})


@pytest.mark.feature("C2")
@pytest.mark.parametrize(
    "item",
    [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": [{"type": "text", "text": "hello"}], "usage": {"input_tokens": 1}},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "name": "read", "arguments": {}}]},
        {"role": "assistant", "content": None, "tool_calls": None},
        {"role": "user", "content": [{"type": "image", "hash": "x"}]},
        {"role": "robot", "content": "hello", "colour": "red"},
        {"role": "user", "parts": [{"type": "text", "text": "of another library"}]},
        {"role": "user", "parts": [{"kind": "text", "text": "of another library"}]},
        {"role": "ROLE_USER", "parts": [{"text": "of another library"}]},
        {"type": "tool_call", "id": "a", "name": "read", "args": {}},
        {"type": "message", "id": "e1", "message": {"role": "user", "content": "hello"}},
        {"type": "reasoning", "text": "of another library"},
        {"choices": []},
        {"choices": [{"delta": {"content": "a"}}]},
        {"candidates": [{"finishReason": "SAFETY"}]},
        {},
        [],
        "hello",
        None,
    ],
)
def test_what_is_ours_or_nobodys_is_left_to_the_caller(item: object) -> None:
    assert forms.recognise(item) == []


@pytest.mark.feature("C2")
def test_a_gateways_message_is_chat_whatever_blocks_it_borrows() -> None:
    content = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a", "cache_control": {}}]
    call = {"id": "call_a", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    found = only({"role": "assistant", "content": content, "tool_calls": [call]})
    assert (found.form, len(found.calls)) == ("openai-chat", 1)
    assert forms.find_form(found.form).text(found.value) == "a"
    assert only({"role": "assistant", "content": content}).form == "anthropic"


class Answer(pydantic.BaseModel):
    size: int


@pytest.mark.feature("C2")
def test_parsed_copies_stay_with_the_sdk() -> None:
    """They are no part of the API: what is sent back must not hold them."""
    answer = Answer(size=5)
    message = {**CHAT_MESSAGE, "tool_calls": CHAT_MESSAGE["tool_calls"][:1]}
    chat = ParsedChatCompletion[Answer].model_validate({**CHAT_REPLY, "choices": [{**CHOICE, "message": message}]})
    chat.choices[0].message.parsed = answer
    chat.choices[0].message.tool_calls[0].function.parsed_arguments = answer
    assert only(chat).value == message
    response = ParsedResponse[Answer].model_validate(RESPONSE)
    response.output[1].content[0].parsed = answer
    response.output[2].parsed_arguments = answer
    assert [item.value for item in forms.recognise(response)] == RESPONSE_ITEMS
    reply = ParsedMessage[Answer].model_validate(ANTHROPIC_REPLY)
    reply.content[1].parsed_output = answer
    assert only(reply).value == ANTHROPIC_REPLY


@pytest.mark.feature("C2")
def test_an_input_field_named_parsed_is_data() -> None:
    block = {"type": "tool_use", "id": "t", "name": "n", "input": {"parsed": 1, "parsed_output": 2}}
    reply = ParsedMessage[Answer].model_validate({**ANTHROPIC_REPLY, "content": [block]})
    assert only(reply).calls[0].arguments == block["input"]


BEDROCK_REPLY: dict[str, Any] = {
    "ResponseMetadata": {"RequestId": "r1", "HTTPStatusCode": 200},
    "output": {
        "message": {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "Look first.", "signature": "c2ln"}}},
                {"reasoningContent": {"redactedContent": b"sealed"}},
                {"text": "I look."},
                {"citationsContent": {"content": [{"text": "It says so."}], "citations": []}},
                {"toolUse": {"toolUseId": "tooluse_1", "name": "bash", "input": {"command": "ls"}}},
                {"toolUse": {"toolUseId": "s", "name": "nova_grounding", "input": {}, "type": "server_tool_use"}},
            ],
        }
    },
    "stopReason": "tool_use",
    "usage": {"inputTokens": 1, "outputTokens": 2, "totalTokens": 6, "cacheReadInputTokens": 3},
    "metrics": {"latencyMs": 9},
}


@pytest.mark.feature("C2")
def test_of_a_converse_response_the_message_is_kept() -> None:
    found = only(BEDROCK_REPLY)
    assert found == Given(
        form="bedrock",
        role="assistant",
        value=BEDROCK_REPLY["output"]["message"],
        id="r1",
        usage=Usage(4, 2, cache_read_tokens=3),
        calls=(ToolCall("tooluse_1", "bash", {"command": "ls"}),),
    )
    assert forms.find_form("bedrock").text(found.value) == "I look.\nIt says so."
    routed = {"promptRouter": {"invokedModelId": "arn:aws:bedrock:us-east-1::foundation-model/amazon.nova-lite-v1:0"}}
    assert only({**BEDROCK_REPLY, "modelId": "m"}).model == "m"
    assert only({**BEDROCK_REPLY, "trace": routed, "modelId": "m"}).model == routed["promptRouter"]["invokedModelId"]


@pytest.mark.feature("C2")
@pytest.mark.parametrize(
    ("content", "role"),
    [
        ([{"text": "Hi"}], "user"),
        ([{"toolResult": {"toolUseId": "t", "content": [{"text": "Hi"}]}}], "tool"),
        ([{"toolResult": {"toolUseId": "t", "content": []}}, {"cachePoint": {"type": "default"}}], "tool"),
        ([{"toolResult": {"toolUseId": "t", "content": []}}, {"text": "Hi"}], "user"),
        ([{"image": {"format": "png", "source": {"bytes": b"x"}}}, {"guardContent": {"text": {"text": "Hi"}}}], "user"),
    ],
)
def test_single_converse_messages_are_recognised(content: list[Any], role: str) -> None:
    found = only({"role": "user", "content": content})
    assert (found.form, found.role, found.is_turn) == ("bedrock", role, role == "user")
    assert forms.find_form("bedrock").content(found.value) == content
    assert "Hi" in forms.find_form("bedrock").text(found.value) or not content[0]["toolResult"]["content"]


@pytest.mark.feature("C2")
def test_a_converse_result_says_whether_it_failed() -> None:
    given = [{"json": {"a": 1}}]
    block = {"toolResult": {"toolUseId": "t", "content": given, "status": "error"}}
    served = {"toolResult": {"toolUseId": "s", "content": given, "type": "nova_grounding_result"}}
    assert only({"role": "user", "content": [block]}).results == (ToolResult("t", given, success=False),)
    assert only({"role": "assistant", "content": [served]}).results == (), "the server answered itself"


FIELDS = (
    "role content type parts text thought tool_calls function_call function custom name arguments input id "
    "call_id functionCall function_response response args output candidates choices message usage "
    "usageMetadata object model stop_reason refusal audio source tool_use_id summary tools "
    "toolUse toolResult toolUseId json image document reasoningContent cachePoint guardContent citationsContent"
)
KEYS = st.sampled_from(FIELDS.split())
TYPES = (
    "user assistant model tool function message text tool_use tool_result thinking function_call reasoning "
    "response function_call_output computer_call tool_search_output output_text refusal image image_url file "
    "mcp_call {} 5 {"
)
WORDS = st.sampled_from(TYPES.split())
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3) | WORDS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=3), inner, max_size=5),
    max_leaves=25,
)
MESSAGES = st.dictionaries(KEYS, VALUES, max_size=6) | VALUES


@pytest.mark.feature("C2")
@settings(max_examples=500, deadline=None)
@example({"candidates": [{"content": {"parts": 5, "role": []}}], "usageMetadata": {"promptTokenCount": "x"}})
@example({"role": "assistant", "tool_calls": [{"function": {"arguments": "\ud800"}}]})
@example({"role": "assistant", "tool_calls": [{"function": {"arguments": "[" * 100_000}}]})
@example({"role": "user", "content": [5, "a", None, {"type": []}, {"type": "tool_result", "content": 5}]})
@given(MESSAGES)
def test_recognising_and_reading_never_raise(value: Any) -> None:
    assert forms.plain(value) is value
    for found in forms.recognise(value):
        assert [call.id for call in found.calls] == [call.id for call in forms.find_form(found.form).calls(found.value)]
        assert found.is_turn == (found.role == "user")
    fields = value if isinstance(value, dict) else {}
    for form in map(forms.find_form, (*forms.NAMES, "of a newer Takeback")):
        form.content(fields)
        assert isinstance(form.text(fields), str)
        assert all(isinstance(call.id, str) and isinstance(call.name, str) for call in form.calls(fields))
        assert all(isinstance(result.call_id, str) for result in form.results(fields))


@pytest.mark.feature("C2")
@pytest.mark.parametrize("raw", [None, b"5", b'["a"]', b"{"])
@pytest.mark.parametrize("form", [*forms.NAMES, "of a newer Takeback"])
def test_what_is_no_object_reads_as_an_empty_message(form: str, raw: bytes | None) -> None:
    message = Message("branch", 1, 1, 0, codec.encode({"role": "user", "form": form}), raw)
    assert (message.role, message.text, message.tool_calls, message.tool_results) == ("user", "", (), ())
    assert not message.content
    assert message.raw == raw


@pytest.mark.feature("C2")
def test_calls_and_results_say_what_they_are() -> None:
    call = ToolCall("c", "bash", {}, started_ms=0)
    assert repr(call) == "<ToolCall bash pending>"
    assert call.started_at is not None
    assert (call.started_at.isoformat(), call.finished_at) == ("1970-01-01T00:00:00+00:00", None)
    assert repr(ToolResult("c", "", success=False)) == "<ToolResult c failed>"
    assert repr(ToolResult("c", "", name="bash")) == "<ToolResult bash ok>"


@pytest.mark.parametrize("odd", [1.5, 2**70, None, "text", ["text", 1], {"text": 1}, {"type": "text", "citations": []}])
def test_parts_that_are_no_text_beside_text_are_judged_as_ever(odd: object) -> None:
    """The short way for plain text takes nothing that a form may know, and stumbles over nothing."""
    value = {"role": "assistant", "content": [{"type": "text", "text": "a"}, odd]}
    is_block = isinstance(odd, dict) and "citations" in odd
    assert [given.form for given in forms.recognise(value)] == (["anthropic"] if is_block else [])
