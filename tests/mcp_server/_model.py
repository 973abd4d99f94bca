"""A scripted model on loopback that coding agents talk to: it calls the tools that it is told to call, and then ends.

It speaks Anthropic's Messages, OpenAI's Responses and Chat Completions, and Gemini's, always streamed. The number of
results in a request says which call comes next. A request that offers no tools (for a title, say) is answered by text.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any, NamedTuple

Json = dict[str, Any]
DONE = "All done."
_NUMBERS = count(1)


class Call(NamedTuple):
    """A call of a tool by the name that the program gave it, with the namespace first if it has one: ``space.name``."""

    tool: str
    arguments: Json


class Form(NamedTuple):
    """How requests and answers of a provider look."""

    offered: Callable[[Json], list[str]]  # the names of all tools
    results: Callable[[Json], list[str]]  # what calls gave, as the model reads it
    answer: Callable[[Call | None], list[Json]]  # the events of an answer


class Model(ThreadingHTTPServer):
    """The model; ``offered`` are the tools of the last request that had any, ``results`` what it had seen by then."""

    daemon_threads = True

    def __init__(self, script: Sequence[Call]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script, self.offered, self.results = script, list[str](), list[str]()
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def next_call(self, offered: list[str], results: list[str]) -> Call | None:
        """Return what the model asks for at this step; nothing if it has come to its end."""
        if not offered:
            return None
        self.offered, self.results = offered, results
        return self.script[len(results)] if len(results) < len(self.script) else None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Take it as it is that a program leaves while it is answered."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: Model
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        end = self.path.partition("?")[0].rpartition("/")[2].rpartition(":")[2]
        if end not in FORMS:
            self.send_error(404)
            return
        form = FORMS[end]
        events = form.answer(self.server.next_call(form.offered(body), form.results(body)))
        data = "".join(_named(each) + f"data: {json.dumps(each)}\n\n" for each in events).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


def _named(event: Json) -> str:
    return f"event: {event['type']}\n" if "type" in event else ""


def _new(kind: str) -> str:
    return f"{kind}_{next(_NUMBERS):024}"


def _text(content: str | list[Json]) -> str:
    """Return a text that is there as such, or in parts."""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


# ---------------------------------------------------------------------- Anthropic's Messages


def _messages_offered(body: Json) -> list[str]:
    return [tool["name"] for tool in body.get("tools", [])]


def _messages_results(body: Json) -> list[str]:
    blocks = [block for each in body["messages"] if isinstance(each["content"], list) for block in each["content"]]
    return [_text(block["content"]) for block in blocks if block["type"] == "tool_result"]


def _messages_answer(call: Call | None) -> list[Json]:
    block: Json = {"type": "text", "text": ""}
    delta: Json = {"type": "text_delta", "text": DONE}
    if call:
        block = {"type": "tool_use", "id": _new("toolu"), "name": call.tool, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(call.arguments)}
    message: Json = {
        "id": _new("msg"),
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }
    ends = {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ends, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]


# ---------------------------------------------------------------------- OpenAI's Responses


def _responses_offered(body: Json) -> list[str]:
    names = list[str]()
    for tool in body.get("tools", []):
        if tool["type"] == "namespace":
            names += [f"{tool['name']}.{each['name']}" for each in tool["tools"]]
        elif "name" in tool:
            names.append(tool["name"])
    return names


def _responses_results(body: Json) -> list[str]:
    return [_text(item["output"]) for item in body["input"] if item["type"] == "function_call_output"]


def _responses_answer(call: Call | None) -> list[Json]:
    item: Json = {
        "type": "message",
        "id": _new("msg"),
        "role": "assistant",
        "content": [{"type": "output_text", "text": DONE, "annotations": []}],
    }
    if call:
        space, _, name = call.tool.rpartition(".")
        item = {
            "type": "function_call",
            "id": _new("fc"),
            "call_id": _new("call"),
            "namespace": space,
            "name": name,
            "arguments": json.dumps(call.arguments),
            "status": "completed",
        }
    response: Json = {"id": _new("resp"), "object": "response", "status": "in_progress", "output": []}
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    return [
        {"type": "response.created", "response": response},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {
            "type": "response.completed",
            "response": response | {"status": "completed", "output": [item], "usage": usage},
        },
    ]


# ---------------------------------------------------------------------- OpenAI's Chat Completions


def _chat_offered(body: Json) -> list[str]:
    return [tool["function"]["name"] for tool in body.get("tools", [])]


def _chat_results(body: Json) -> list[str]:
    return [_text(each["content"]) for each in body["messages"] if each["role"] == "tool"]


def _chat_answer(call: Call | None) -> list[Json]:
    delta: Json = {"role": "assistant", "content": DONE}
    if call:
        function = {"name": call.tool, "arguments": json.dumps(call.arguments)}
        asked = {"index": 0, "id": _new("call"), "type": "function", "function": function}
        delta = {"role": "assistant", "content": None, "tool_calls": [asked]}
    chunk = {"id": _new("chatcmpl"), "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
    end = "tool_calls" if call else "stop"
    return [
        chunk | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": end}]},
    ]


# ---------------------------------------------------------------------- Gemini's generateContent


def _gemini_offered(body: Json) -> list[str]:
    return [each["name"] for tool in body.get("tools", []) for each in tool.get("functionDeclarations", [])]


def _gemini_results(body: Json) -> list[str]:
    parts = [part for each in body["contents"] for part in each["parts"]]
    found = [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]
    return [each["output"] if "output" in each else each["error"] for each in found]


def _gemini_answer(call: Call | None) -> list[Json]:
    part: Json = {"functionCall": {"name": call.tool, "args": call.arguments}} if call else {"text": DONE}
    said = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    return [{"candidates": [said], "usageMetadata": {"totalTokenCount": 15}}]


FORMS = {
    "messages": Form(_messages_offered, _messages_results, _messages_answer),
    "responses": Form(_responses_offered, _responses_results, _responses_answer),
    "completions": Form(_chat_offered, _chat_results, _chat_answer),
    "streamGenerateContent": Form(_gemini_offered, _gemini_results, _gemini_answer),
}
