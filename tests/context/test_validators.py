"""The strict validators: they accept what the providers document, and object to each thing that they refuse."""

from __future__ import annotations

import base64
import copy
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import takeback
from takeback.testing import validators
from takeback.testing.validators import _sdk

from . import _bedrock

pytestmark = pytest.mark.feature("F3")

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(16)).decode()
JPEG = base64.b64encode(b"\xff\xd8\xff\xe0" + bytes(16)).decode()
PDF = base64.b64encode(b"%PDF-1.7\n").decode()
DROP = _bedrock.DROP
SDKS = {"anthropic": "anthropic", "gemini": "google.genai", "bedrock": "botocore"}
Request = dict[str, Any]


def user(*content: Any) -> Request:
    return {"role": "user", "content": content[0] if isinstance(content[0], str) else list(content)}


def assistant(*content: Any) -> Request:
    return {**user(*content), "role": "assistant"}


def text(words: str, **more: Any) -> Request:
    return {"type": "text", "text": words, **more}


def tool_use(name: str, **values: Any) -> Request:
    return {"type": "tool_use", "id": name, "name": "get_weather", "input": values}


def tool_result(name: str, content: Any = "15 degrees", **more: Any) -> Request:
    return {"type": "tool_result", "tool_use_id": name, "content": content, **more}


def media(kind: str, **source: Any) -> Request:
    return {"type": kind, "source": source}


THOUGHT = {"type": "thinking", "thinking": "Let me see.", "signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3h"}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "Shannon"}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [
        {"type": "web_search_result", "url": "https://a.org", "title": "A", "encrypted_content": "Eq", "page_age": None}
    ],
}
CITED = {
    "type": "web_search_result_location",
    "url": "https://a.org",
    "title": "A",
    "encrypted_index": "Eo8B",
    "cited_text": "Shannon was born in 1916.",
}
WEATHER = {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]}

ANTHROPIC: dict[str, Request] = {
    "hello": {"model": "claude-sonnet-4-5", "max_tokens": 1024, "messages": [user("Hello, Claude")]},
    "turns": {
        "system": "You are a poet.",
        "messages": [user("Hello there."), assistant("Hi, I'm Claude."), user("Explain LLMs in plain English.")],
    },
    "prefill": {"messages": [user("The Greek name for Sun? (A) Sol (B) Helios"), assistant("The best answer is (")]},
    "cache": {
        "system": [text("You are a poet."), text("A long book", cache_control={"type": "ephemeral", "ttl": "1h"})],
        "messages": [user(text("What is it about?", cache_control={"type": "ephemeral"}))],
    },
    "parallel": {
        "tools": [{"name": "get_weather", "description": "The weather", "input_schema": WEATHER}],
        "messages": [
            user("The weather in SF and NYC?"),
            assistant(text("I look."), tool_use("toolu_1", location="SF"), tool_use("toolu_2", location="NYC")),
            user(tool_result("toolu_1"), tool_result("toolu_2", "no such place", is_error=True), text("And in LA?")),
            assistant("It is warm."),
            user("Thanks"),
        ],
    },
    "rich results": {
        "messages": [
            user("Take a picture"),
            assistant(tool_use("a"), tool_use("b"), tool_use("c")),
            user(
                tool_result("a", [text("here"), media("image", type="base64", media_type="image/png", data=PNG)]),
                tool_result("b", []),
                {"type": "tool_result", "tool_use_id": "c"},
            ),
        ]
    },
    "images": {
        "messages": [
            user(
                media("image", type="base64", media_type="image/jpeg", data=JPEG),
                media("image", type="url", url="https://upload.wikimedia.org/ant.jpg"),
                media("image", type="file", file_id="file_abc123"),
                text("Compare them."),
            )
        ]
    },
    "documents": {
        "messages": [
            user(
                {**media("document", type="base64", media_type="application/pdf", data=PDF), "title": "A"},
                media("document", type="text", media_type="text/plain", data="The grass is green."),
                media("document", type="url", url="https://a.org/x.pdf"),
                media("document", type="file", file_id="file_1"),
                {**media("document", type="content", content=[text("one")]), "citations": {"enabled": True}},
                {"type": "search_result", "source": "https://a.org", "title": "A", "content": [text("found")]},
                text("Summarize."),
            )
        ]
    },
    "thinking": {
        "max_tokens": 16000,
        "thinking": {"type": "enabled", "budget_tokens": 10000},
        "messages": [
            user("The weather in Paris?"),
            assistant(THOUGHT, {"type": "redacted_thinking", "data": "EmwKAhgB"}, text("I look."), tool_use("toolu_1")),
            user(tool_result("toolu_1")),
        ],
    },
    "server tools": {
        "messages": [
            user("When was Claude Shannon born?"),
            assistant(text("I search."), SEARCH, FOUND, THOUGHT, text("In 1916.", citations=[CITED])),
            user("And where?"),
        ]
    },
    "interleaved thinking": {
        "messages": [
            user("The weather in SF and NYC?"),
            assistant(THOUGHT, tool_use("toolu_1"), THOUGHT, tool_use("toolu_2")),
            user(tool_result("toolu_1"), tool_result("toolu_2")),
        ]
    },
    "thinking ahead": {
        "thinking": {"type": "adaptive"},
        "messages": [user("Count"), assistant(THOUGHT, text("One, two,"))],
    },
    "programmatic": {
        "messages": [
            user("Sum them up"),
            assistant({**SEARCH, "name": "code_execution", "input": {"code": "await query()"}}, tool_use("toolu_1")),
            user(tool_result("toolu_1")),
            assistant(tool_use("toolu_2")),
            user(tool_result("toolu_2")),
        ]
    },
    "paused": {"messages": [user("Search."), assistant(text("I search."), SEARCH)]},
    "system inside": {
        "model": "claude-opus-4-8",
        "messages": [user("Hello"), {"role": "system", "content": "Be brief."}, assistant("Hi"), user("Go on")],
    },
}


def call(name: str, arguments: str = '{"location": "Paris"}', function: str = "get_weather") -> Request:
    return {"id": name, "type": "function", "function": {"name": function, "arguments": arguments}}


def calling(*calls: Request, **more: Any) -> Request:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **more}


def tool(name: str, content: Any = "15 degrees") -> Request:
    return {"role": "tool", "tool_call_id": name, "content": content}


CHAT: dict[str, Request] = {
    "reasoning of others": {
        "model": "deepseek-chat",
        "messages": [user("Hello!"), {**assistant("Hi."), "reasoning_content": "They greet."}, user("Well?")],
    },
    "hello": {
        "model": "gpt-5.4",
        "messages": [{"role": "developer", "content": "You are helpful."}, user("Hello!")],
    },
    "turns": {
        "messages": [
            {"role": "system", "content": [text("You are helpful.")], "name": "boss"},
            {**user("Who won?"), "name": "example_user"},
            {"role": "assistant", "content": "The Dodgers.", "refusal": None, "annotations": []},
            user("Where was it?"),
        ]
    },
    "parallel": {
        "tools": [{"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}],
        "messages": [
            user("The weather in Paris and Rome?"),
            calling(call("call_1"), call("call_2", "{}"), content="I look."),
            tool("call_2"),
            tool("call_1", [text("15")]),
            assistant("It is warm."),
            user("Thanks"),
        ],
    },
    "custom": {
        "messages": [
            user("Compute"),
            calling({"id": "call_9", "type": "custom", "custom": {"name": "code_exec", "input": "print('hi')"}}),
            tool("call_9", ""),
        ]
    },
    "media": {
        "messages": [
            user(
                text("What is this?"),
                {"type": "image_url", "image_url": {"url": "https://a.org/a.png", "detail": "low"}},
                {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{JPEG}"}},
                {"type": "input_audio", "input_audio": {"data": PNG, "format": "wav"}},
                {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}},
                {"type": "file", "file": {"file_id": "file-6F2ksmvXxt4VdoqmHRw6kL"}},
            )
        ]
    },
    "refusal": {
        "messages": [user("Do evil"), assistant({"type": "refusal", "refusal": "I cannot."}), user("Why?")],
    },
    "old functions": {
        "messages": [
            user("The weather?"),
            {"role": "assistant", "content": None, "function_call": {"name": "get_weather", "arguments": "{}"}},
            {"role": "function", "name": "get_weather", "content": "15"},
        ]
    },
}


def function_call(name: str, **more: Any) -> Request:
    return {
        "type": "function_call",
        "call_id": name,
        "name": "get_weather",
        "arguments": '{"location": "Paris"}',
        **more,
    }


def output(name: str, content: Any = "15 degrees") -> Request:
    return {"type": "function_call_output", "call_id": name, "output": content}


def said(words: str, **more: Any) -> Request:
    part = {"type": "output_text", "text": words, "annotations": []}
    return {"type": "message", "role": "assistant", "content": [part], **more}


REASONING = {"type": "reasoning", "id": "rs_6820f383", "summary": []}
SEARCHED = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "weather"},
}

RESPONSES: dict[str, Request] = {
    "hello": {"model": "gpt-5.4", "instructions": "Talk like a pirate.", "input": "Are semicolons optional?"},
    "turns": {
        "input": [
            {"role": "developer", "content": "Talk like a pirate."},
            user("knock knock."),
            assistant("Who's there?"),
            user({"type": "input_text", "text": "Orange."}),
        ]
    },
    "answered": {
        "input": [
            user("Joke"),
            said("Why?", id="msg_67cb71b3", status="completed", phase="final_answer"),
            user("Tell me"),
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
            user("Oh"),
        ]
    },
    "media": {
        "input": [
            user(
                {"type": "input_text", "text": "What is this?"},
                {"type": "input_image", "image_url": "https://a.org/a.png", "detail": "high"},
                {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
                {"type": "input_image", "file_id": "file-1"},
                {"type": "input_file", "file_url": "https://a.org/a.pdf"},
                {"type": "input_file", "file_id": "file-2"},
                {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"},
            )
        ]
    },
    "parallel": {
        "tools": [{"type": "function", "name": "get_weather", "parameters": WEATHER, "strict": True}],
        "input": [
            user("The weather in Paris and Rome?"),
            function_call("call_1", id="fc_1", status="completed"),
            function_call("call_2"),
            output("call_2", [{"type": "input_text", "text": "15"}, {"type": "input_image", "file_id": "file-1"}]),
            output("call_1"),
            said("Warm."),
        ],
    },
    "reasoning": {
        "input": [
            user("The weather?"),
            {**REASONING, "summary": [{"type": "summary_text", "text": "**Looking**"}]},
            function_call("call_1", id="fc_1"),
            output("call_1"),
            {
                **REASONING,
                "id": "rs_2",
                "encrypted_content": "gAAAAAB",
                "content": [{"type": "reasoning_text", "text": "x"}],
            },
            said("Warm."),
            user("Thanks"),
        ]
    },
    "hosted": {
        "input": [user("News?"), {**REASONING, "id": "rs_9"}, SEARCHED, said("None.", id="msg_1"), user("Really?")],
    },
    "custom": {
        "input": [
            user("Compute"),
            {"type": "custom_tool_call", "call_id": "call_1", "name": "code_exec", "input": "print('hi')"},
            {"type": "custom_tool_call_output", "call_id": "call_1", "output": "hi"},
        ]
    },
    "stored": {"previous_response_id": "resp_1", "input": [output("call_1")]},
    "references": {"input": [{"type": "item_reference", "id": "msg_1"}, user("Go on")]},
}


def content(role: str, *parts: Request) -> Request:
    return {"role": role, "parts": list(parts)}


def function(name: str, **more: Any) -> Request:
    return {"function_call": {"name": name, "args": {"location": "Paris"}, **more}}


def response(name: str, **more: Any) -> Request:
    return {"function_response": {"name": name, "response": {"output": "15 degrees"}, **more}}


GEMINI: dict[str, Request] = {
    "empty ids": {
        "contents": [
            content("user", {"text": "Twice."}),
            content("model", *[{"functionCall": {"id": "", "name": "look", "args": {}}}] * 2),
            content("user", *[{"functionResponse": {"name": "look", "response": {"output": "ok"}}}] * 2),
        ]
    },
    "hello": {"model": "gemini-2.5-flash", "contents": "Explain how AI works"},
    "turns": {
        "contents": [
            content("user", {"text": "Hello"}),
            content("model", {"text": "Great to meet you."}),
            content("user", {"text": "I have two dogs."}, {"text": "How many paws?"}),
        ],
        "config": {"system_instruction": "You are a cat.", "temperature": 0.1},
    },
    "media": {
        "contents": [
            content(
                "user",
                {"inline_data": {"mime_type": "image/png", "data": base64.b64decode(PNG)}},
                {"inlineData": {"mimeType": "application/pdf", "data": PDF}},
                {"file_data": {"file_uri": "https://generativelanguage.googleapis.com/v1beta/files/1"}},
                {"text": "What is this?"},
            )
        ],
        "config": {"system_instruction": {"parts": [{"text": "Be brief."}]}},
    },
    "parallel": {
        "model": "gemini-3-pro-preview",
        "contents": [
            content("user", {"text": "The weather in Paris and Rome?"}),
            content(
                "model",
                {"text": "I think.", "thought": True},
                {**function("get_weather", id="a"), "thought_signature": b"\xff\x00sig"},
                function("get_weather", id="b"),
            ),
            content("user", response("get_weather", id="a"), response("get_weather", id="b")),
        ],
        "config": {
            "system_instruction": [{"text": "Be brief."}],
            "tools": [{"function_declarations": [{"name": "get_weather", "description": "The weather"}]}],
        },
    },
    "steps": {
        "contents": [
            content("user", {"text": "The weather?"}),
            content("model", {"functionCall": {"name": "where", "args": {}}, "thoughtSignature": "c2ln"}),
            content("user", {"functionResponse": {"name": "where", "response": {"city": "Paris"}}}),
            content("model", {"text": "Paris."}, function("get_weather"), function("get_time")),
            content("user", response("get_time"), response("get_weather")),
            content("model", {"text": "Warm."}, {"text": "", "thought_signature": "c2ln"}),
            content("user", {"text": "Thanks"}),
        ]
    },
    "code": {
        "contents": [
            content("user", {"text": "Sum?"}),
            content(
                "model",
                {"executable_code": {"code": "print(1)", "language": "PYTHON"}},
                {"code_execution_result": {"outcome": "OUTCOME_OK", "output": "1"}},
            ),
            content("user", {"text": "Again"}),
        ]
    },
    "prefill": {"contents": [content("user", {"text": "Count"}), content("model", {"text": "One, two,"})]},
    "seen": {
        "contents": [
            content("user", {"text": "Look"}),
            content("model", function("look")),
            content("user", response("look", parts=[{"inline_data": {"mime_type": "image/png", "data": PNG}}])),
        ]
    },
}

ACCEPTED: dict[str, dict[str, Request]] = {
    "anthropic": ANTHROPIC,
    "openai-chat": CHAT,
    "openai-responses": RESPONSES,
    "gemini": GEMINI,
    "bedrock": _bedrock.ACCEPTED,
}
EXAMPLES = [pytest.param(p, r, id=f"{p}-{n}") for p, group in ACCEPTED.items() for n, r in group.items()]


def broken(request: Request, path: str, value: Any) -> Request:
    """Copy a request and put a value at a path such as "messages 0 content", or take away what is there."""
    made = copy.deepcopy(request)
    *steps, last = [int(step) if step.lstrip("-").isdigit() else step for step in path.split(" ")]
    place: Any = made
    for step in steps:
        place = place[step]
    if value is DROP:
        del place[last]
    elif isinstance(place, list) and last == len(place):
        place.append(value)
    else:
        place[last] = value
    return made


@pytest.mark.parametrize(("provider", "request_"), EXAMPLES)
def test_documented_requests_are_accepted(provider: str, request_: Request) -> None:
    assert validators.problems(provider, request_, sdk=False) == []
    validators.require_valid(provider, request_)


@pytest.mark.parametrize(("provider", "request_"), EXAMPLES)
def test_sdk_types_accept_the_documented_requests(provider: str, request_: Request) -> None:
    pytest.importorskip(SDKS.get(provider, "openai"))
    assert _sdk.check(provider, request_) == []


# Each row: an accepted example, the place that is changed, what is put there, and words of the objection.
Row = tuple[str, str, Any, str]
REFUSED: dict[str, list[Row]] = {
    "anthropic": [
        ("hello", "messages", [], "messages: is an empty list"),
        ("hello", "messages", DROP, "messages: is not a list"),
        ("hello", "messages", [user("hi"), assistant("ho")] * 50_001, "more than 100000 messages"),
        ("hello", "messages 0", "hi", "messages[0]: is not an object"),
        ("hello", "messages 0 role", "tool", "messages[0].role: 'tool' is not one of"),
        ("hello", "messages 0 role", "assistant", "messages[0]: is not of the user"),
        ("hello", "messages 0 role", "system", "messages[0]: is not of the user"),
        ("hello", "messages 0 id", "msg_1", "has the unknown field 'id'"),
        ("hello", "messages 0 content", "", "messages[0]: has no content"),
        ("hello", "messages 0 content", [], "messages[0]: has no content"),
        ("hello", "messages 0 content", DROP, "has no 'content'"),
        ("hello", "messages 0 content", " \n", "only whitespace"),
        ("hello", "messages 0 content", 5, "messages[0].content: is not a string or a list"),
        ("hello", "messages 0 content", "\ud83d", "messages[0].content: has half of a surrogate pair"),
        ("hello", "max_tokens", -1, "max_tokens: is not a whole number"),
        ("hello", "max_tokens", True, "max_tokens: is not a whole number"),
        ("hello", "model", "", "model: is not the name of a model"),
        ("hello", "temprature", 1, "temprature: the SDK's call has no such argument"),
        ("turns", "system", ["Be brief."], "system[0]: is not an object"),
        ("turns", "system", 5, "system: is neither"),
        ("turns", "system", [text("")], "system[0]: text content blocks must be non-empty"),
        ("turns", "system", [media("image", type="url", url="https://a.org")], "system[0].type: 'image'"),
        ("turns", "messages 1", DROP, "messages[1]: roles must alternate"),
        ("turns", "messages 1 content", [text("")], "text content blocks must be non-empty"),
        ("turns", "messages 1 content", [text(" ")], "must contain non-whitespace text"),
        ("turns", "messages 1 content", [{"type": "input_text", "text": "x"}], "'input_text' is not one of"),
        ("turns", "messages 1 content", [text("x", name="n")], "has the unknown field 'name'"),
        ("turns", "messages 1 content", [{"type": "text"}], "has no 'text'"),
        ("turns", "messages 1 content", [text("x", cache_control={"type": "forever"})], "'forever' is not one of"),
        ("turns", "messages 1 content", [media("image", type="url", url="https://a.org")], "'image' is not one of"),
        ("turns", "messages 1 content", [tool_result("a")], "'tool_result' is not one of"),
        ("turns", "messages 0 content", [tool_use("a")], "'tool_use' is not one of"),
        ("turns", "messages 0 content", [THOUGHT], "'thinking' is not one of"),
        ("prefill", "messages 1 content", "The answer: ", "cannot end with trailing whitespace"),
        ("prefill", "messages 1 content", [text("The answer:\n")], "cannot end with trailing whitespace"),
        ("prefill", "model", "claude-opus-4-6", "wants a conversation that ends with the user"),
        ("prefill", "model", "claude-sonnet-5", "wants a conversation that ends with the user"),
        ("thinking ahead", "thinking type", "disabled", "contains thinking in the final position"),
        (
            "cache",
            "messages 0 content",
            [text("x", cache_control={"type": "ephemeral"})] * 4,
            "5 blocks with cache_control",
        ),
        ("parallel", "tools 0 name", "get weather", "tools[0].name: 'get weather' does not match"),
        ("parallel", "tools 0 input_schema", {}, "is not of type 'object'"),
        ("parallel", "tools 0 input_schema", DROP, "tools[0].input_schema: is not an object"),
        ("parallel", "tools 1", {"name": "get_weather", "input_schema": WEATHER}, "second tool named 'get_weather'"),
        ("parallel", "tools", {}, "tools: is not a list"),
        ("parallel", "messages 1 content 1 id", "call:1", "'call:1' does not match"),
        ("parallel", "messages 1 content 1 id", "", "'' does not match"),
        ("parallel", "messages 1 content 1 id", DROP, "has no 'id'"),
        ("parallel", "messages 1 content 1 id", ["a"], "id: is not a string"),
        ("parallel", "messages 1 content 1 name", "get.weather", "'get.weather' does not match"),
        ("parallel", "messages 1 content 1 name", "x" * 129, "has 129 characters, more than 128"),
        ("parallel", "messages 1 content 1 input", '{"a": 1}', "input: is not an object"),
        ("parallel", "messages 1 content 1 input", {"a": float("nan")}, "nan is no JSON number"),
        ("parallel", "messages 1 content 1 input", {1: 2}, "has the key 1, which is not a string"),
        ("parallel", "messages 1 content 1 input", {"\udc00": 2}, "has a key with half of a surrogate pair"),
        ("parallel", "messages 1 content 1 input", {"a": b"x"}, "is bytes, which JSON cannot hold"),
        ("parallel", "messages 1 content 2 id", "toolu_1", "the id 'toolu_1' is used twice"),
        (
            "parallel",
            "messages 1 content 1",
            DROP,
            "tool_result for 'toolu_1' answers no tool_use of the message before",
        ),
        ("parallel", "messages 2 content 0", DROP, "tool_use 'toolu_1' has no tool_result in the next message"),
        ("parallel", "messages 2", user("Stop"), "tool_use 'toolu_2' has no tool_result in the next message"),
        ("parallel", "messages 2 content 3", tool_result("toolu_2"), "is a second tool_result for 'toolu_2'"),
        ("parallel", "messages 2 content 0", text("Here:"), "tool_result that stands after other content"),
        ("parallel", "messages 4", user(tool_result("toolu_1")), "messages[4].content[0]: tool_result for 'toolu_1'"),
        ("parallel", "messages 2 content 1 is_error", "yes", "is_error: is not true or false"),
        ("rich results", "messages 2 content 0 is_error", True, "all its content must be text"),
        ("rich results", "messages 2 content 0 content 0 text", "", "text content blocks must be non-empty"),
        ("rich results", "messages 2 content 0 content 0", tool_use("d"), "content[0].content[0].type: 'tool_use'"),
        ("rich results", "messages 2 content 0 content 1 source media_type", "image/jpeg", "but it is image/png"),
        ("images", "messages 0 content 0 source media_type", "image/bmp", "'image/bmp' is not one of"),
        ("images", "messages 0 content 0 source data", "no base64!", "source.data: is not base64"),
        ("images", "messages 0 content 0 source data", "A" * (5 * 1024 * 1024 + 4), "more than 5242880"),
        ("images", "messages 0 content 0 source type", "path", "source.type: 'path' is not one of"),
        ("images", "messages 0 content 0 source", "x", "source: is not an object"),
        ("images", "messages 0 content 1 source url", "http://a.org/ant.jpg", "is not an https URL"),
        ("images", "messages 0 content 2 source file_id", "", "source.file_id: is empty"),
        ("documents", "messages 0 content 0 source media_type", "text/html", "'text/html' is not one of"),
        ("documents", "messages 0 content 1 source media_type", "text/csv", "'text/csv' is not one of"),
        ("documents", "messages 0 content 4 source content 0", {"type": "document"}, "'document' is not one of"),
        ("documents", "messages 0 content 5 content 0", media("image"), "'image' is not one of"),
        ("documents", "messages 0 content 1 source data", "x" * (32 * 1024 * 1024), "is larger than 33554432 bytes"),
        ("thinking", "thinking budget_tokens", 100, "is not a whole number of 1024 or more"),
        ("thinking", "max_tokens", 10000, "is not less than max_tokens"),
        ("thinking", "messages 1 content 0 signature", DROP, "has no 'signature'"),
        ("thinking", "messages 1 content 0 signature", "", "signature: is empty"),
        ("thinking", "messages 1 content 0 cache_control", {"type": "ephemeral"}, "unknown field 'cache_control'"),
        ("thinking", "messages 1 content 1 data", "", "data: is empty"),
        ("thinking", "messages 1 content 4", THOUGHT, "the final block in an assistant message cannot be thinking"),
        ("thinking", "messages 1 content", [text("a"), THOUGHT, tool_use("toolu_1")], "thinking stands after text"),
        (
            "thinking",
            "messages 1 content",
            [tool_use("toolu_1")],
            "thinking is enabled, but the turn starts without it",
        ),
        ("server tools", "messages 1 content 1 id", "toolu_1", "'toolu_1' does not match srvtoolu_"),
        ("server tools", "messages 1 content 1 name", "get_weather", "'get_weather' is not one of"),
        ("server tools", "messages 1 content 1", DROP, "has no server_tool_use before it"),
        ("server tools", "messages 1 content 2 content 0 type", "text", "'text' is not one of web_search_result"),
        ("server tools", "messages 1 content 2 content", "none", "content: is not a list or an object"),
        ("paused", "messages", [user("a"), assistant(SEARCH), user("b"), assistant("c")], "'srvtoolu_1' has no result"),
        ("system inside", "model", "claude-sonnet-5", "which only some models take here"),
        ("system inside", "model", DROP, "which only some models take here"),
        ("system inside", "messages 0", DROP, "messages[0]: is not of the user"),
        ("system inside", "messages 2", user("Hi"), "follows a system message, but is not of the assistant"),
        ("system inside", "messages 3 role", "system", "system message that does not follow a user message"),
        ("system inside", "messages 1 content", [THOUGHT], "'thinking' is not one of text"),
    ],
    "openai-chat": [
        ("reasoning of others", "model", "gpt-5.4", "unknown field 'reasoning_content'"),
        ("hello", "messages", [], "messages: is an empty list"),
        ("hello", "messages", DROP, "messages: is not a list"),
        ("hello", "messages 0", "hi", "messages[0]: is not an object"),
        ("hello", "messages 0 role", "model", "'model' is not one of"),
        ("hello", "messages 1 content", None, "content: is not a string or a list"),
        ("hello", "messages 1 content", DROP, "has no 'content'"),
        ("hello", "messages 1 content", [], "content: is an empty list"),
        ("hello", "messages 1 content", "a\ud800", "half of a surrogate pair"),
        ("hello", "messages 1 content", "x" * 10_485_761, "has more than 10485760 characters"),
        ("hello", "messages 1 cache_control", {}, "unknown field 'cache_control'"),
        ("hello", "model", None, "model: is not the name of a model"),
        ("hello", "top_k", 5, "top_k: the SDK's call has no such argument"),
        (
            "turns",
            "messages 0 content",
            [{"type": "image_url", "image_url": {"url": "https://a.org"}}],
            "'image_url' is not",
        ),
        ("turns", "messages 1 name", "a user", "'a user' does not match"),
        ("turns", "messages 1 name", "x" * 65, "has 65 characters, more than 64"),
        ("turns", "messages 2 content", DROP, "has neither content nor tool calls"),
        ("turns", "messages 2 tool_calls", [], "tool_calls: is an empty list"),
        ("turns", "messages 2 tool_calls", None, "tool_calls: is not a list"),
        ("parallel", "tools 0 function name", "get weather", "'get weather' does not match"),
        ("parallel", "messages 1 tool_calls 0", "x", "tool_calls[0]: is not an object"),
        ("parallel", "messages 1 tool_calls 0 id", "x" * 41, "has 41 characters, more than 40"),
        ("parallel", "messages 1 tool_calls 0 id", "", "id: is empty"),
        ("parallel", "messages 1 tool_calls 0 id", DROP, "has no 'id'"),
        ("parallel", "messages 1 tool_calls 0 id", "call_2", "the id 'call_2' is used twice"),
        ("parallel", "messages 1 tool_calls 0 type", "tool", "'tool' is not one of custom, function"),
        ("parallel", "messages 1 tool_calls 0 index", 0, "unknown field 'index'"),
        ("parallel", "messages 1 tool_calls 0 function name", "get.weather", "'get.weather' does not match"),
        ("parallel", "messages 1 tool_calls 0 function name", "x" * 65, "has 65 characters, more than 64"),
        ("parallel", "messages 1 tool_calls 0 function arguments", {}, "arguments: is not a string"),
        ("parallel", "messages 1 tool_calls 0 function arguments", '{"a": ', "is not valid JSON"),
        ("parallel", "messages 1 tool_calls 0 function arguments", "[1]", "holds JSON that is not an object"),
        ("parallel", "messages 1 tool_calls 0 function arguments", '{"a": NaN}', "nan is no JSON number"),
        ("parallel", "messages 2", DROP, "tool call 'call_2' has no tool message right after it"),
        ("parallel", "messages 3", user("Stop"), "tool call 'call_1' has no tool message right after it"),
        ("parallel", "messages 1 tool_calls 0", DROP, "answers no tool call just before: 'call_1'"),
        ("parallel", "messages 3 tool_call_id", "call_2", "is a second answer to 'call_2'"),
        ("parallel", "messages 2 tool_call_id", DROP, "has no 'tool_call_id'"),
        ("parallel", "messages 4", tool("call_1"), "is a second answer to 'call_1'"),
        ("parallel", "messages 5", tool("call_1"), "answers no tool call just before: 'call_1'"),
        ("parallel", "messages 3 content", [{"type": "refusal", "refusal": "x"}], "'refusal' is not one of text"),
        ("custom", "messages 1 tool_calls 0 custom input", {}, "input: is not a string"),
        ("media", "messages 0 content 0", "hi", "content[0]: is not an object"),
        ("media", "messages 0 content 0 type", "input_text", "'input_text' is not one of"),
        ("media", "messages 0 content 0 text", None, "text: is not a string"),
        ("media", "messages 0 content 1 image_url", "https://a.org/a.png", "image_url: is not an object"),
        ("media", "messages 0 content 1 image_url url", "a.png", "is neither an http(s) URL nor a data URL"),
        ("media", "messages 0 content 1 image_url detail", "huge", "'huge' is not one of"),
        ("media", "messages 0 content 2 image_url url", "data:image/png;base64,*", "nor a data URL"),
        ("media", "messages 0 content 2 image_url url", f"data:image/bmp;base64,{PNG}", "'image/bmp' is not one of"),
        ("media", "messages 0 content 2 image_url url", f"data:image/jpeg;base64,{PNG}", "but it is image/png"),
        ("media", "messages 0 content 3 input_audio format", "ogg", "'ogg' is not one of"),
        ("media", "messages 0 content 3 input_audio data", "*", "data: is not base64"),
        ("media", "messages 0 content 4 file file_data", PDF, "is not a data URL with base64"),
        ("media", "messages 0 content 5 file file_id", "", "file_id: is empty"),
        ("media", "messages 0 content 5 file file_id", DROP, "needs either 'file_id' or 'file_data'"),
        ("refusal", "messages 1 content 0", {"type": "image_url"}, "'image_url' is not one of refusal, text"),
        ("old functions", "messages 1 function_call arguments", "x", "is not valid JSON"),
        ("old functions", "messages 2 name", DROP, "has no 'name'"),
    ],
    "openai-responses": [
        ("hello", "input", "", "input: is empty"),
        ("hello", "input", [], "input: is an empty list"),
        ("hello", "input", DROP, "input: is not a list"),
        ("hello", "instructions", ["x"], "instructions: is not a string"),
        ("hello", "messages", [], "messages: the SDK's call has no such argument"),
        ("turns", "input 0", "hi", "input[0]: is not an object"),
        ("turns", "input 0 type", "chat", "'chat' is not one of"),
        ("turns", "input 0", {}, "input[0].type: 'none' is not one of"),
        ("turns", "input 0 role", "tool", "'tool' is not one of"),
        ("turns", "input 1 content", None, "content: is not a string or a list"),
        ("turns", "input 1 content", [], "content: is an empty list"),
        ("turns", "input 1 content", "x" * 10_485_761, "has more than 10485760 characters"),
        ("turns", "input 1 content", "\udfff", "half of a surrogate pair"),
        ("turns", "input 1 name", "bob", "unknown field 'name'"),
        ("turns", "input 3 content 0 type", "text", "'text' is not one of"),
        ("turns", "input 3 content 0 type", "output_text", "'output_text' is not one of"),
        ("turns", "input 3 content 0 text", None, "text: is not a string"),
        ("answered", "input 1 content 0 type", "input_text", "'input_text' is not one of output_text, refusal"),
        ("answered", "input 1 id", "abc", "'abc' does not match msg"),
        ("answered", "input 1 id", "msg_" + "x" * 61, "has 65 characters, more than 64"),
        ("answered", "input 1 status", "done", "'done' is not one of"),
        ("media", "input 0 content 1 image_url", {"url": "https://a.org"}, "image_url: is not a string"),
        ("media", "input 0 content 1 image_url", "a.png", "is neither an http(s) URL nor a data URL"),
        ("media", "input 0 content 1 detail", "huge", "'huge' is not one of"),
        ("media", "input 0 content 3 file_id", "", "needs exactly one of image_url, file_id"),
        ("media", "input 0 content 4 file_url", "a.pdf", "is not an http(s) URL"),
        ("media", "input 0 content 5 file_url", "https://a.org", "needs exactly one of file_id, file_data, file_url"),
        ("media", "input 0 content 6 file_data", PDF, "is not a data URL with base64"),
        ("parallel", "tools 0 name", "get weather", "'get weather' does not match"),
        ("parallel", "input 1 id", "call_1", "'call_1' does not match fc"),
        ("parallel", "input 1 id", "", "'' does not match fc"),
        ("parallel", "input 1 call_id", DROP, "has no 'call_id'"),
        ("parallel", "input 1 call_id", "x" * 65, "has 65 characters, more than 64"),
        ("parallel", "input 1 call_id", "", "'' does not match"),
        ("parallel", "input 1 call_id", "call_2", "the call_id 'call_2' is used twice"),
        ("parallel", "input 1 name", "get.weather", "'get.weather' does not match"),
        ("parallel", "input 1 name", "x" * 129, "has 129 characters, more than 128"),
        ("parallel", "input 1 arguments", {}, "arguments: is not a string"),
        ("parallel", "input 1 arguments", "", "is not valid JSON"),
        ("parallel", "input 1 arguments", "null", "holds JSON that is not an object"),
        ("parallel", "input 1 parsed_arguments", {}, "unknown field 'parsed_arguments'"),
        ("parallel", "input 1", DROP, "is the output of 'call_1', but no such call comes before it"),
        ("parallel", "input 4", DROP, "no tool output found for the call 'call_1'"),
        ("parallel", "input 1", output("call_1"), "but no such call comes before it"),
        ("parallel", "input 5", output("call_1"), "is a second output of 'call_1'"),
        ("parallel", "input 4 output", {"a": 1}, "output: is not a string or a list"),
        ("parallel", "input 3 output 0 type", "output_text", "'output_text' is not one of"),
        ("parallel", "input 4 call_id", DROP, "has no 'call_id'"),
        ("reasoning", "input 1 summary", DROP, "has no 'summary'"),
        ("reasoning", "input 1 summary", "x", "summary: is not a list"),
        ("reasoning", "input 1 summary 0 type", DROP, "summary[0].type: None is not one of summary_text"),
        ("reasoning", "input 4 content 0 type", "text", "'text' is not one of reasoning_text"),
        ("reasoning", "input 1 id", "fc_1", "'fc_1' does not match rs"),
        ("reasoning", "input 4 id", "rs_6820f383", "the id 'rs_6820f383' is used twice"),
        ("reasoning", "input 2 id", DROP, "is followed by an item without its id"),
        ("reasoning", "input 5", DROP, "input[4]: reasoning is not followed by what it led to"),
        ("hosted", "input", [user("a"), REASONING], "input[1]: reasoning is not followed by what it led to"),
        ("custom", "input 1 id", "fc_1", "'fc_1' does not match ctc"),
        ("custom", "input 1 input", {}, "input: is not a string"),
        ("custom", "input 2 type", "function_call_output", "no tool output found for the call 'call_1'"),
        ("references", "input 0 id", DROP, "has no 'id'"),
        ("references", "input 0", {"type": "compaction_trigger"}, "compaction_trigger that is not the last item"),
    ],
    "gemini": [
        ("hello", "contents", "", "contents: is empty"),
        ("hello", "contents", [], "contents: is an empty list"),
        ("hello", "messages", [], "messages: the call has no such argument"),
        ("hello", "config", "x", "config: is not an object"),
        ("hello", "model", None, "model: is not the name of a model"),
        ("turns", "contents 0", "hi", "contents[0]: is not an object"),
        ("turns", "contents 0 role", "assistant", "'assistant' is not one of model, user"),
        ("turns", "contents 0 role", DROP, "has no 'role'"),
        ("turns", "contents 0", DROP, "contents[0]: is not of the user"),
        ("turns", "contents 0 parts", [], "parts: is an empty list"),
        ("turns", "contents 0 parts", "hi", "parts: is not a list"),
        ("turns", "contents 0 name", "x", "unknown field 'name'"),
        ("turns", "contents 0 parts 0", {}, "has 0 data fields instead of one"),
        (
            "turns",
            "contents 0 parts 0",
            {"text": "a", "file_data": {"file_uri": "x"}},
            "has 2 data fields instead of one",
        ),
        ("turns", "contents 0 parts 0", "hi", "parts[0]: is not an object"),
        ("turns", "contents 0 parts 0 text", "", "has an empty text"),
        ("turns", "contents 0 parts 0 text", 5, "text: is not a string"),
        ("turns", "contents 0 parts 0 text", "\ud800", "half of a surrogate pair"),
        ("turns", "contents 0 parts 0 type", "text", "unknown field 'type'"),
        ("turns", "contents 0 parts 0", function("f"), "does not belong in a content of the user"),
        ("turns", "contents 1 parts 0", response("f"), "does not belong in a content of the model"),
        ("turns", "config system_instruction", "", "config.system_instruction: is empty"),
        ("turns", "config system_instruction", [], "config.system_instruction: is an empty list"),
        ("turns", "config system_instruction", {"parts": [{"text": ""}]}, "is not a text, or empty"),
        ("turns", "config sytem", "x", "config.sytem: the SDK's types do not take it"),
        ("media", "contents 0 parts 0 inline_data mime_type", "image/gif", "'image/gif' is not supported"),
        ("media", "contents 0 parts 0 inline_data", "x", "inline_data: is not an object"),
        ("media", "contents 0 parts 0 inline_data mime_type", DROP, "has no 'mime_type'"),
        ("media", "contents 0 parts 0 inline_data mime_type", "image/jpeg", "but it is image/png"),
        ("media", "contents 0 parts 0 inline_data data", b"", "is empty, or not base64"),
        ("media", "contents 0 parts 1 inlineData data", "*", "is empty, or not base64"),
        ("media", "contents 0 parts 2 file_data file_uri", "", "file_uri: is empty"),
        ("parallel", "config tools 0 function_declarations 0 name", "1st", "'1st' does not match"),
        ("parallel", "contents 1 parts 1 thought_signature", DROP, "its first function call has no thought_signature"),
        ("parallel", "contents 1 parts 1 thought_signature", "*", "thought_signature: is not base64"),
        ("parallel", "contents 1 parts 1 thought_signature", 5, "thought_signature: is not"),
        ("parallel", "contents 1 parts 0 thought", "yes", "thought: is not true or false"),
        ("parallel", "contents 1 parts 1 function_call name", "get weather", "'get weather' does not match"),
        ("parallel", "contents 1 parts 1 function_call name", "x" * 129, "has 129 characters, more than 128"),
        ("parallel", "contents 1 parts 1 function_call args", "{}", "args: is not an object"),
        ("parallel", "contents 1 parts 1 function_call args", {"a": float("inf")}, "inf is no JSON number"),
        ("parallel", "contents 1 parts 2 function_call id", "a", "two function calls have the same id"),
        ("parallel", "contents 2 parts 0 function_response response", "15", "response: is not an object"),
        ("parallel", "contents 2 parts 0 function_response response", DROP, "has no 'response'"),
        ("parallel", "contents 2 parts 0 function_response name", "", "'' does not match"),
        (
            "parallel",
            "contents 2 parts 0 function_response name",
            "other",
            "no call fits the function response 'other'",
        ),
        ("parallel", "contents 2 parts 0 function_response id", "c", "(id 'c')"),
        ("parallel", "contents 2 parts 0", DROP, "has 2 function calls, but 1 function responses follow"),
        ("parallel", "contents 2", DROP, "has 2 function calls, but 0 function responses follow"),
        (
            "parallel",
            "contents 1",
            content("model", {"text": "a"}),
            "do not come immediately after a function call turn",
        ),
        ("steps", "contents 0", content("model", {"text": "a"}), "does not come immediately after a user turn"),
        ("steps", "contents 2", content("model", {"text": "a"}), "contents[3]: function call turn does not come"),
        ("prefill", "model", "gemini-3.7-flash", "wants contents that end with the user"),
        ("code", "contents 1 parts 0 executable_code language", "COBOL", "contents[1]: the SDK's types do not take it"),
        ("code", "contents 1 parts 0 executable_code code", DROP, "has no 'code'"),
        ("seen", "contents 2 parts 0 function_response parts 0 inline_data", DROP, "needs either 'inline_data'"),
        ("seen", "contents 2 parts 0 function_response parts 0 inline_data mime_type", "x/y", "'x/y' is not supported"),
    ],
}


REFUSED["bedrock"] = _bedrock.REFUSED


@pytest.mark.parametrize(
    ("provider", "example", "path", "value", "words"),
    [pytest.param(p, *row, id=f"{p}-{row[3]}") for p, rows in REFUSED.items() for row in rows],
)
def test_each_rule_refuses(provider: str, example: str, path: str, value: Any, words: str) -> None:
    request = broken(ACCEPTED[provider][example], path, value)
    found = validators.problems(provider, request, sdk="the SDK" in words)
    assert any(words in each for each in found), found


def is_call(value: Any, key: Any, parent: Any) -> bool:
    kind = value.get("type") if isinstance(value, dict) else None
    in_calls = kind in ("tool_use", "function_call", "custom_tool_call", "function", "custom") and "name" in str(value)
    of_gemini = isinstance(value, dict) and "function_call" in snake(value) and "role" not in value
    return isinstance(parent, list) and (in_calls or of_gemini or (isinstance(value, dict) and "toolUse" in value))


def is_result(value: Any, key: Any, parent: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(parent, list):
        return False
    kinds = ("tool_result", "function_call_output", "custom_tool_call_output")
    named = not {"function_response", "toolResult"}.isdisjoint(snake(value))
    return value.get("type") in kinds or value.get("role") == "tool" or named


def snake(value: Request) -> set[str]:
    return {{"functionCall": "function_call", "functionResponse": "function_response"}.get(key, key) for key in value}


def is_text(value: Any, key: Any, parent: Any) -> bool:
    plain = isinstance(parent, dict) and parent.get("type", "text") == "text"
    return key == "text" and plain and not parent.get("thought_signature")


def is_typed(value: Any, key: Any, parent: Any) -> bool:
    names = [
        "text",
        "role",
        "name",
        "id",
        "call_id",
        "tool_use_id",
        "tool_call_id",
        "toolUseId",
        "arguments",
        "url",
        "type",
    ]
    return key in names and isinstance(value, str)


def is_message_list(value: Any, key: Any, parent: Any) -> bool:
    of_content = key == "parts" and isinstance(parent, dict) and "role" in parent
    return isinstance(value, list) and (of_content or key in ("messages", "contents", "input"))


def holds_nan(provider: str, call: Request) -> None:
    if provider == "anthropic":
        call["input"]["x"] = float("nan")
    elif provider == "gemini":
        next(iter(value for key, value in call.items() if key.startswith("function")))["args"] = {"x": float("nan")}
    elif provider == "bedrock":
        call["toolUse"]["input"]["x"] = float("nan")
    elif "custom" in call["type"]:
        call["nonsense"] = float("nan")
    else:
        call.get("function", call)["arguments"] = '{"x": NaN}'


def answer_first(parent: Any, key: int) -> None:
    parent.append(parent.pop(key))


Change = Callable[[str, Any, Any], None]
Wanted = Callable[[Any, Any, Any], bool]
EVERY = tuple(ACCEPTED)
ROLE = {"user": "assistant", "assistant": "user", "system": "user"}


def put(value: Any) -> Change:
    return lambda provider, parent, key: parent.__setitem__(key, value)


def drop(provider: str, parent: Any, key: Any) -> None:
    del parent[key]


def double(provider: str, parent: Any, key: Any) -> None:
    parent.insert(key, copy.deepcopy(parent[key]))


MUTATIONS: dict[str, tuple[tuple[str, ...], Wanted, Change]] = {
    "drop a result": (EVERY, is_result, drop),
    "drop a call": (EVERY, is_call, drop),
    "double a call": (EVERY, is_call, double),
    "double a result": (EVERY, is_result, double),
    "answer something else": (
        (*EVERY[:3], "bedrock"),
        lambda v, k, p: k in ("tool_use_id", "tool_call_id", "call_id", "toolUseId"),
        put("toolu_other"),
    ),
    "call after the answer": (
        ("openai-responses",),
        is_call,
        lambda provider, parent, key: answer_first(parent, key),
    ),
    "swap roles": (
        ("anthropic", "bedrock"),
        lambda v, k, p: k == "role",
        lambda provider, parent, key: parent.__setitem__(key, ROLE[parent[key]]),
    ),
    "unknown role": (EVERY, lambda v, k, p: k == "role", put("nobody")),
    "unknown type": (EVERY[:3], lambda v, k, p: k == "type", put("nonsense")),
    "empty text": (("anthropic", "gemini", "bedrock"), is_text, put("")),
    "text of a wrong type": (EVERY, is_typed, put(7)),
    "text as a list": (EVERY, is_typed, put(["x"])),
    "nothing": (EVERY, lambda v, k, p: is_typed(v, k, p) and k not in ("id", "type"), put(None)),
    "surrogate": (
        EVERY,
        lambda v, k, p: isinstance(v, str),
        lambda provider, parent, key: parent.__setitem__(key, parent[key] + "\ud800"),
    ),
    "no number": (EVERY, is_call, lambda provider, parent, key: holds_nan(provider, parent[key])),
    "unknown field": (
        EVERY,
        lambda v, k, p: isinstance(v, dict) and isinstance(p, list),
        lambda provider, parent, key: parent[key].__setitem__("nonsense", 1),
    ),
    "a string for an object": (EVERY, lambda v, k, p: isinstance(v, dict) and isinstance(p, list), put("x")),
    "empty list": (EVERY, is_message_list, put([])),
    "no list": (EVERY, is_message_list, put({})),
}
# What the rules leave to the SDK, or what may hold anything.
FREE = [
    "tools",
    "config",
    "citations",
    "args",
    "response",
    "input_schema",
    "model",
    "thinking",
    "action",
    "citationsContent",
    "reasoningContent",
    "inferenceConfig",
]


def sites(value: Any, path: tuple[Any, ...] = (), parent: Any = None) -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
    kind = value.get("type") if isinstance(value, dict) else None
    free = path and (path[-1] in FREE or (path[-1] == "input" and isinstance(value, dict)))
    if (free and not isinstance(value, str)) or kind == "web_search_call":
        return
    if path:
        yield path, value, parent
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from sites(each, (*path, key), value)


@pytest.mark.parametrize("name", MUTATIONS)
def test_mutations_are_refused(name: str, seed: int) -> None:
    chosen, wanted, change = MUTATIONS[name]
    rng = random.Random(seed)
    for provider in chosen:
        found = [
            (request, path)
            for request in ACCEPTED[provider].values()
            for path, value, parent in sites(request)
            if wanted(value, path[-1], parent) and "previous_response_id" not in request
        ]
        assert found, f"no place for {name} in {provider}"
        for request, path in rng.sample(found, min(len(found), 40)):
            mutated = copy.deepcopy(request)
            place: Any = mutated
            for step in path[:-1]:
                place = place[step]
            change(provider, place, path[-1])
            assert validators.problems(provider, mutated, sdk=False), (provider, path, mutated)


@pytest.mark.parametrize("provider", EVERY)
def test_garbage_is_judged_and_never_raises(provider: str, seed: int) -> None:
    rng = random.Random(seed)
    places = [(request, path) for request in ACCEPTED[provider].values() for path, _, _ in sites(request)]
    garbage: list[Any] = [
        None,
        True,
        7,
        0.5,
        "",
        "x",
        [],
        {},
        [[]],
        [None],
        [7],
        [{}],
        {"a": 1},
        {"type": []},
        ["text"],
    ]
    for request, path in places:
        mutated = copy.deepcopy(request)
        place: Any = mutated
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = rng.choice(garbage)
        assert all(isinstance(each, str) for each in validators.problems(provider, mutated))


@pytest.mark.parametrize("provider", EVERY)
def test_sdk_types_walk_into_every_list(provider: str) -> None:
    """Lists that pydantic would look at lazily are looked at: a wrong type deep inside is found."""
    pytest.importorskip(SDKS.get(provider, "openai"))
    path = {
        "anthropic": "messages 2 content 0 content 0 text",
        "openai-chat": "messages 3 content 0 text",
        "openai-responses": "input 3 output 0 text",
        "gemini": "contents 0 parts 0 text",
        "bedrock": "messages 2 content 1 toolResult content 0 text",
    }[provider]
    example = "rich results" if provider == "anthropic" else "parallel"
    found = _sdk.check(provider, broken(ACCEPTED[provider][example], path, 7))
    place = "".join(f"[{step}]" if step.isdigit() else f".{step}" for step in path.split(" "))[1:]
    assert [each for each in found if place in each], found


def test_lenient_where_the_providers_are() -> None:
    """Rules that hold for some models only are not applied to others."""
    for model in ("claude-3-7-sonnet-latest", "claude-sonnet-4-20250514", "claude-haiku-4-5", "claude-opus-4-1"):
        validators.require_valid("anthropic", {**ANTHROPIC["prefill"], "model": model})
    validators.require_valid("anthropic", {**ANTHROPIC["paused"], "model": "claude-opus-5"})
    for model in ("gemini-2.5-pro", "models/gemini-3.1-pro-preview"):
        validators.require_valid("gemini", {**GEMINI["prefill"], "model": model})
    unsigned = broken(GEMINI["parallel"], "contents 1 parts 1 thought_signature", DROP)
    validators.require_valid("gemini", {**unsigned, "model": "gemini-2.5-pro"})


def test_unknown_provider_is_invalid() -> None:
    with pytest.raises(takeback.Invalid, match="no such provider: 'cohere'"):
        validators.problems("cohere", {})


def test_require_valid_lists_everything() -> None:
    with pytest.raises(AssertionError, match=r"(?s)anthropic would refuse.*- messages\[0\].*- messages\[1\]"):
        validators.require_valid(
            "anthropic", {"messages": [assistant("a"), {"role": "assistant", "content": ""}, user("b")]}
        )


def test_imports_no_sdk() -> None:
    program = (
        "import sys, takeback.testing.validators as v;"
        "assert v.problems('anthropic', {'messages': [{'role': 'user', 'content': 'hi'}]}, sdk=False) == [];"
        "assert not {'pydantic', 'anthropic', 'openai', 'google.genai', 'botocore'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_works_without_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("anthropic", "openai", "google.genai", "pydantic", "botocore.validate"):
        monkeypatch.setitem(sys.modules, name, None)
    _sdk._validator.cache_clear()
    _sdk._arguments.cache_clear()
    for provider, group in ACCEPTED.items():
        assert validators.problems(provider, group["hello"]) == []
    assert validators.problems("anthropic", {"messages": []}) == ["messages: is an empty list"]
