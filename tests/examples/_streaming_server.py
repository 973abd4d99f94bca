"""A model behind a real socket: streams a script in the wire format of each provider, and stops where it is told to.

The request alone decides which reply comes next: by how many results of tools it holds. Every request is judged by the
strict validators and recorded; one that the provider would refuse gets status 400. It listens on 127.0.0.1 only.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from takeback.testing import validators

PATIENCE = 60  # seconds; only a failure takes that long


class Reply(NamedTuple):
    """What the model says at one step: text, then calls."""

    text: str
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    thinking: str = ""


class Asked:
    """A request as it arrived, and whether its answer was sent to the end."""

    def __init__(self, step: int, request: dict[str, Any], problems: list[str]) -> None:
        self.step, self.request, self.problems = step, request, problems
        self.answered = False


Event = tuple[str, dict[str, Any]]  # where in a reply this is, and what is sent


class Server(ThreadingHTTPServer):
    """The server of all three providers: each has paths of its own."""

    daemon_threads = True

    def __init__(self, script: list[Reply]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script = script
        self.asked: list[Asked] = []
        self.before: dict[int, Callable[[], None]] = {}  # what to do once, before the answer of a step begins
        self.stop_at: tuple[int, str] | None = None
        self.stopped, self.go_on = threading.Event(), threading.Event()
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def step_after(self, results: int) -> int:
        """Return the step at which there are so many results of tools."""
        return [sum(len(reply.calls) for reply in self.script[:step]) for step in range(len(self.script))].index(
            results
        )

    def stop_in(self, step: int, place: str) -> None:
        """Stop an answer for good: at this step, after the first event of this place, or before any for ``asked``."""
        self.stopped.clear()
        self.go_on.clear()
        self.stop_at = step, place

    def shutdown(self) -> None:
        self.go_on.set()
        super().shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Take it as it is: clients are killed."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    timeout = PATIENCE

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        provider, request = _as_given(self.path, body)
        step = self.server.step_after(_results(body))
        asked = Asked(step, request, validators.problems(provider, request))
        self.server.asked.append(asked)
        if asked.problems:
            said = json.dumps({"error": {"type": "invalid_request_error", "message": "; ".join(asked.problems)}})
            self._begin(400, "application/json")
            self._send(said.encode())
        else:
            self.server.before.pop(step, lambda: None)()
            self._stop_here(step, "asked")
            self._begin(200, "text/event-stream")
            for place, event in _WRITERS[provider](step, self.server.script[step], str(request["model"])):
                name = f"event: {event['type']}\n" if "type" in event else ""
                self._send(f"{name}data: {json.dumps(event)}\n\n".encode())
                self._stop_here(step, place)
            asked.answered = True
        self.wfile.write(b"0\r\n\r\n")

    def _stop_here(self, step: int, place: str) -> None:
        if self.server.stop_at == (step, place):
            self.server.stop_at = None
            self.server.stopped.set()
            self.server.go_on.wait(PATIENCE)
            raise ConnectionError("whoever asked is gone")

    def _begin(self, status: int, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _send(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


def _as_given(path: str, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the provider of a request, and the request as its SDK was given it."""
    if path == "/v1/messages":
        return "anthropic", body
    if path == "/v1/responses":
        return "openai-responses", body
    model, _, call = path.removeprefix("/v1beta/models/").partition(":")
    assert call == "streamGenerateContent?alt=sse"
    config = {key: value for key, value in body.items() if key not in ("contents", "generationConfig")}
    config |= body.get("generationConfig", {})
    return "gemini", {"model": model, "contents": body["contents"], "config": config}


def _results(body: Any) -> int:
    """Count the results of tools in a request."""
    if isinstance(body, list):
        return sum(map(_results, body))
    if not isinstance(body, dict):
        return 0
    is_result = body.get("type") in ("tool_result", "function_call_output") or "functionResponse" in body
    return int(is_result) or sum(map(_results, body.values()))


def _halves(text: str) -> Iterator[str]:
    yield text[: len(text) // 2]
    yield text[len(text) // 2 :]


# ---------------------------------------------------------------------- Anthropic


def _anthropic(step: int, reply: Reply, model: str) -> Iterator[Event]:
    usage = {"input_tokens": 100 * (step + 1), "output_tokens": 1}
    message = {"id": f"msg_{step}", "type": "message", "role": "assistant", "model": model, "content": []}
    yield "", {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}}
    for index, (place, block, deltas) in enumerate(_blocks(step, reply)):
        yield "", {"type": "content_block_start", "index": index, "content_block": block}
        for delta in deltas:
            yield place, {"type": "content_block_delta", "index": index, "delta": delta}
        yield "", {"type": "content_block_stop", "index": index}
    reason = "tool_use" if reply.calls else "end_turn"
    ended = {"delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": 10}}
    yield "", {"type": "message_delta", **ended}
    yield "", {"type": "message_stop"}


def _blocks(step: int, reply: Reply) -> Iterator[tuple[str, dict[str, Any], list[dict[str, Any]]]]:
    if reply.thinking:
        thought = [{"type": "thinking_delta", "thinking": half} for half in _halves(reply.thinking)]
        signed = {"type": "signature_delta", "signature": "c2ln"}
        yield "thinking", {"type": "thinking", "thinking": "", "signature": ""}, [*thought, signed]
    yield "text", {"type": "text", "text": ""}, [{"type": "text_delta", "text": half} for half in _halves(reply.text)]
    for number, (name, arguments) in enumerate(reply.calls):
        block = {"type": "tool_use", "id": f"toolu_{step}{number}", "name": name, "input": {}}
        pieces = _halves(json.dumps(arguments))
        yield "input", block, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]


# ---------------------------------------------------------------------- OpenAI Responses


def _responses(step: int, reply: Reply, model: str) -> Iterator[Event]:
    whole = {
        "id": f"resp_{step}",
        "object": "response",
        "created_at": 1,
        "model": model,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    number = iter(range(1000))
    output = list[dict[str, Any]]()

    def event(kind: str, **more: Any) -> dict[str, Any]:
        return {"type": f"response.{kind}", "sequence_number": next(number), **more}

    yield "", event("created", response={**whole, "status": "in_progress", "output": []})
    for place, begun, deltas, done in _items(step, reply):
        at = {"output_index": len(output), "item_id": done["id"]}
        yield "", event("output_item.added", output_index=len(output), item=begun)
        for kind, delta in deltas:
            extra = {"summary_index": 0} if place == "thinking" else {}
            extra = {"content_index": 0, "logprobs": []} if place == "text" else extra
            yield place, event(kind, **at, **extra, delta=delta)
        yield "", event("output_item.done", output_index=len(output), item=done)
        output.append(done)
    count = 100 * (step + 1)
    usage = {
        "input_tokens": count,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 10,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": count + 10,
    }
    yield "", event("completed", response={**whole, "status": "completed", "output": output, "usage": usage})


Item = tuple[str, dict[str, Any], list[tuple[str, str]], dict[str, Any]]


def _items(step: int, reply: Reply) -> Iterator[Item]:
    if reply.thinking:
        item = {"id": f"rs_{step}", "type": "reasoning", "summary": [], "encrypted_content": "c2VjcmV0"}
        deltas = [("reasoning_summary_text.delta", half) for half in _halves(reply.thinking)]
        yield "thinking", item, deltas, {**item, "summary": [{"type": "summary_text", "text": reply.thinking}]}
    message = {"id": f"msg_{step}", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    text = {"type": "output_text", "annotations": [], "text": reply.text}
    deltas = [("output_text.delta", half) for half in _halves(reply.text)]
    yield "text", message, deltas, {**message, "status": "completed", "content": [text]}
    for number, (name, arguments) in enumerate(reply.calls):
        call = {"id": f"fc_{step}{number}", "type": "function_call", "call_id": f"call_{step}{number}", "name": name}
        deltas = [("function_call_arguments.delta", half) for half in _halves(json.dumps(arguments))]
        done = {**call, "status": "completed", "arguments": json.dumps(arguments)}
        yield "input", {**call, "status": "in_progress", "arguments": ""}, deltas, done


# ---------------------------------------------------------------------- Gemini


def _gemini(step: int, reply: Reply, model: str) -> Iterator[Event]:
    def chunk(*parts: dict[str, Any], **ended: Any) -> dict[str, Any]:
        candidate = {"content": {"role": "model", "parts": [*parts]}, "index": 0, **ended}
        used = {"promptTokenCount": 100 * (step + 1), "candidatesTokenCount": 10 if ended else 1}
        return {"candidates": [candidate], "usageMetadata": used, "modelVersion": model, "responseId": f"r{step}"}

    for half in _halves(reply.thinking) if reply.thinking else ():
        yield "thinking", chunk({"text": half, "thought": True})
    for half in _halves(reply.text):
        yield "text", chunk({"text": half})
    for number, (name, arguments) in enumerate(reply.calls):
        call = {"name": name, "args": arguments, "id": f"fc_{step}{number}"}
        signature = {} if number else {"thoughtSignature": "c2ln"}  # of calls side by side the first is signed
        yield "input", chunk({"functionCall": call, **signature})
    yield "", chunk({"text": ""}, finishReason="STOP")


_WRITERS = {"anthropic": _anthropic, "openai-responses": _responses, "gemini": _gemini}
