"""Conversations as they mostly are: all that real agents store, nothing wrong for long, now and then a slip."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from ._teller import MODELS, SIGNED

WORDS = ("Yes.", "Let me look.", "ä € 🎉", "It is done." * 20, "line\n\x1b[1mline\x1b[0m")
USAGE = {"input_tokens": 900, "output_tokens": 30}


class Calm:
    """Tells a conversation with one provider: requests, steps of calls and results, answers."""

    def __init__(self, rng: random.Random, provider: str, ours: float, slips: float) -> None:
        self.rng, self.provider, self.ours, self.slips = rng, provider, ours, slips
        self.model = rng.choice(MODELS[provider])
        self.count = 0

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def slip(self) -> bool:
        return self.chance(self.slips)

    def text(self) -> str:
        return self.rng.choice(["", " ", "half \ud83d", "x" * 9000]) if self.slip() else self.rng.choice(WORDS)

    def id(self, prefix: str) -> str:
        self.count += 1
        number = self.rng.randrange(1, self.count + 1) if self.slip() else self.count
        return "odd id" if self.chance(self.slips / 3) else f"{prefix}_{number}"

    def turn(self) -> list[Any]:
        """Tell one turn."""
        said = [self.request()]
        for _ in range(self.rng.choice([0, 1, 1, 2])):
            said += self.step()
        if self.slip():
            self.model = self.rng.choice(MODELS[self.provider])
        if self.slip():
            said.append({"role": self.rng.choice(["system", "developer", "critic"]), "content": self.text()})
        return said + self.answer([])

    def step(self) -> list[Any]:
        """Tell an answer with calls, and what the tools gave."""
        calls = [self.call() for _ in range(self.rng.choice([1, 1, 2, 3]))]
        return self.answer(calls) + self.results(calls)

    def request(self) -> Any:
        text = self.text()
        pinned = {"metadata": {"pinned": True}} if self.chance(0.04) else {}
        if pinned or self.chance(self.ours) or self.provider in ("anthropic", "openai-chat"):
            return {"role": "user", "content": text, **pinned}
        if self.provider == "gemini":
            return {"role": "user", "parts": [{"text": text}]}
        if self.provider == "bedrock":
            return {"role": "user", "content": [{"text": text}]}
        return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}

    def call(self) -> tuple[str, str, dict[str, Any]]:
        name = "two words" if self.slip() else self.rng.choice(["bash", "read_file"])
        return self.id("call"), name, {"path": self.text()}

    def answer(self, calls: list[Any]) -> list[Any]:
        if self.chance(self.ours):
            asked = [dict(zip(("id", "name", "arguments"), call, strict=True)) for call in calls]
            more: dict[str, Any] = {"usage": USAGE} if self.chance(0.2) else {}
            return [{"role": "assistant", "content": self.text(), "tool_calls": asked, "model": self.model, **more}]
        made = {
            "anthropic": self.anthropic,
            "openai-chat": self.chat,
            "openai-responses": self.responses,
            "gemini": self.gemini,
            "bedrock": self.bedrock,
        }
        return made[self.provider](calls)

    def anthropic(self, calls: list[Any]) -> list[Any]:
        content: list[Any] = []
        if self.chance(0.4):
            signature = "" if self.slip() else SIGNED
            content.append({"type": "thinking", "thinking": self.text(), "signature": signature})
        if self.chance(0.1):
            content.append({"type": "redacted_thinking", "data": SIGNED})
        if not calls or self.chance(0.6):
            content.append({"type": "text", "text": self.text(), **({"citations": None} if self.chance(0.3) else {})})
        if self.slip():
            content[-1:] = [{"type": "text", "text": "Marked.", "cache_control": {"type": "ephemeral"}}]
        content += [{"type": "tool_use", "id": id, "name": name, "input": given} for id, name, given in calls]
        if self.chance(0.5):
            return [{"role": "assistant", "content": content}]
        whole = {"id": "msg_1", "type": "message", "role": "assistant", "model": self.model, "content": content}
        return [{**whole, "stop_reason": "end_turn", "stop_sequence": None, "usage": USAGE}]

    def chat(self, calls: list[Any]) -> list[Any]:
        said = self.text() if not calls or self.chance(0.6) else None
        message: dict[str, Any] = {"role": "assistant", "content": said, "refusal": None}
        if self.chance(0.2):
            message |= {"annotations": [], "audio": None, "function_call": None, "tool_calls": None}
        if self.chance(0.3):
            message["reasoning_content"] = self.text()
        if calls:
            message["tool_calls"] = [
                {"id": id, "type": "function", "function": {"name": name, "arguments": spelled(given)}}
                for id, name, given in calls
            ]
        if self.chance(0.5):
            return [message]
        choice = {"finish_reason": "stop", "index": 0, "logprobs": None, "message": message}
        return [{"id": "chat_1", "choices": [choice], "model": self.model, "object": "chat.completion", "usage": None}]

    def responses(self, calls: list[Any]) -> list[Any]:
        items: list[Any] = []
        named = self.chance(0.7)
        if named and self.chance(0.7):
            sealed: dict[str, Any] = {"encrypted_content": SIGNED} if self.chance(0.5) else {}
            items.append({"id": self.id("rs"), "type": "reasoning", "summary": [], **sealed})
        if not calls or self.chance(0.4):
            part = {"type": "output_text", "text": self.text(), "annotations": []}
            said = {"type": "message", "role": "assistant", "status": "completed", "content": [part]}
            items.append({"id": self.id("msg"), **said} if named and not self.slip() else said)
        for id, name, given in calls:
            call = {"type": "function_call", "call_id": id, "name": name, "arguments": spelled(given)}
            items.append({"id": self.id("fc"), **call, "status": None} if named and not self.slip() else call)
        if self.chance(0.5):
            return items
        return [{"id": "resp_1", "model": self.model, "object": "response", "output": items, "usage": USAGE}]

    def gemini(self, calls: list[Any]) -> list[Any]:
        parts: list[Any] = []
        signed = {"thoughtSignature": "no base64!" if self.slip() else SIGNED} if self.chance(0.6) else {}
        if self.chance(0.2):
            parts.append({"text": self.text(), "thought": True})
        if not calls or self.chance(0.6):
            parts.append({"text": self.text()})
        nameless = self.chance(0.4)
        for number, (id, name, given) in enumerate(calls):
            asked = {"name": name, "args": given} if nameless else {"id": id, "name": name, "args": given}
            parts.append({"functionCall": asked, **(signed if not number else {})})
            calls[number] = (None if nameless else id, name, given)
        if not calls and signed:
            parts.append({"text": "", **signed})
        content = {"role": "model", "parts": parts}
        if self.chance(0.5):
            return [content]
        return [{"candidates": [{"content": content, "finishReason": "STOP"}], "modelVersion": self.model}]

    def bedrock(self, calls: list[Any]) -> list[Any]:
        content: list[Any] = []
        if self.chance(0.4):
            signed = {} if self.slip() else {"signature": SIGNED}
            content.append({"reasoningContent": {"reasoningText": {"text": self.text(), **signed}}})
        if not calls or self.chance(0.6):
            content.append({"text": self.text()})
        if self.slip():
            content.append({"cachePoint": {"type": "default"}})
        content += [{"toolUse": {"toolUseId": id, "name": name, "input": given}} for id, name, given in calls]
        message = {"role": "assistant", "content": content}
        if self.chance(0.5):
            return [message]
        counted = {"inputTokens": 900, "outputTokens": 30, "totalTokens": 930}
        return [{"output": {"message": message}, "stopReason": "end_turn", "usage": counted, "modelId": self.model}]

    def results(self, calls: list[Any]) -> list[Any]:
        if self.slip():
            self.rng.shuffle(calls)
        given = [(id, name, self.text()) for id, name, _ in calls if not self.slip()]
        if all(id is not None for id, *_ in given) and self.chance(self.ours):
            found = [{"call_id": id, "content": self.rng.choice([said, {"a": said}])} for id, _, said in given]
            return [{"role": "tool", "tool_results": [each]} for each in found]
        if self.provider == "openai-chat":
            return [{"role": "tool", "tool_call_id": id, "content": said} for id, _, said in given]
        if self.provider == "openai-responses":
            return [{"type": "function_call_output", "call_id": id, "output": said} for id, _, said in given]
        blocks: list[Any] = []
        for id, name, said in given:
            if self.provider == "anthropic":
                content = [{"type": "text", "text": said}] if self.chance(0.3) else said
                failed = {"is_error": self.chance(0.3)} if self.chance(0.3) else {}
                blocks.append({"type": "tool_result", "tool_use_id": id, "content": content, **failed})
            elif self.provider == "bedrock":
                parts = self.rng.choice([[{"text": said}], [{"text": said}], [{"json": {"found": said}}]])
                status = {"status": self.rng.choice(["success", "error"])} if self.chance(0.5) else {}
                blocks.append({"toolResult": {"toolUseId": id, "content": parts, **status}})
            else:
                named = {} if id is None else {"id": id}
                response = self.rng.choice([{"output": said}, {"error": said}, {"found": said, "lines": 2}])
                blocks.append({"functionResponse": {**named, "name": name, "response": response}})
        key = "parts" if self.provider == "gemini" else "content"
        return [{"role": "user", key: blocks}] if blocks else []


def spelled(arguments: Any) -> str:
    """Write arguments as models do, with blanks that nobody needs."""
    try:
        return msgspec.json.encode(arguments).decode().replace('":"', '": "')
    except UnicodeEncodeError:
        return "{"
