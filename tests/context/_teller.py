"""One transcript in the making: what the parties say, in every form, with everything that goes wrong in real life."""

from __future__ import annotations

import base64
import random
from typing import Any

import msgspec
from anthropic.types import Message as AnthropicMessage
from google.genai import types as genai
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(16)).decode()
JPEG = base64.b64encode(b"\xff\xd8\xff\xe0" + bytes(16)).decode()
PDF = base64.b64encode(b"%PDF-1.7\n").decode()
WAV = base64.b64encode(b"RIFF0000WAVE").decode()
SIGNED = base64.b64encode(b"a signature").decode()
MODELS: dict[str, tuple[str, ...]] = {
    "anthropic": ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5", "claude-opus-4-8"),
    "openai-chat": ("gpt-5-2025-08-07", "deepseek-chat", "gpt-4.1"),
    "openai-responses": ("gpt-5-2025-08-07", "gpt-5", "gpt-4.1"),
    "gemini": ("gemini-3-pro-preview", "gemini-2.5-flash", "gemini-2.5-pro-002"),
    "bedrock": ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "amazon.nova-pro-v1:0", "us.deepseek.r1-v1:0"),
}
_GATHERED = ("anthropic", "gemini", "bedrock")
_TEXTS = (
    "Yes.",
    "Let me look.",
    "ä € 🎉",
    "",
    " ",
    "\n\t",
    "half \ud83d",
    "zero \x00 byte",
    "ends in blanks \n ",
    "x" * 3000,
)
_NAMES = ("bash", "read_file", "mcp.server.tool", "two words", "ünïcode", "9lives", "n" * 90)
_ODD_IDS = ("call-0", "call-1", "same", "dots.and:colons", "white space", "i" * 90, "ünïcode", "new\nline")
_ARGUMENTS: tuple[Any, ...] = ({}, {"path": "a.py"}, {"n": [1, None, 2.5], "t": "ä\ud83d"}, None, "text", [1, 2], 7)

Item = Any


class Teller:
    """One transcript in the making."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.provider = rng.choice([*MODELS])
        self.model = rng.choice(MODELS[self.provider])
        self.count = 0
        self.open: list[tuple[str, str]] = []

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def text(self) -> str:
        return self.rng.choice(_TEXTS[:3] if self.chance(0.7) else _TEXTS)

    def call_id(self, prefix: str) -> str:
        self.count += 1
        return self.rng.choice(_ODD_IDS) if self.chance(0.2) else f"{prefix}{self.count}"

    def item_id(self, prefix: str) -> str:
        self.count += 1
        return self.rng.choice([f"{prefix}_1", "odd id", ""]) if self.chance(0.08) else f"{prefix}_{self.count}"

    def name(self) -> str:
        return self.rng.choice(_NAMES[:2] if self.chance(0.8) else _NAMES)

    def arguments(self) -> Any:
        return self.rng.choice(_ARGUMENTS[:2] if self.chance(0.8) else _ARGUMENTS)

    def asked(self, prefix: str) -> tuple[str, str, Any]:
        """Return a new call, and remember that it is open."""
        found = self.call_id(prefix), self.name(), self.arguments()
        self.open.append(found[:2])
        return found

    # ------------------------------------------------------------------ answers

    def answer(self, calls: int) -> list[Item]:
        made = {
            "anthropic": self.anthropic,
            "openai-chat": self.chat,
            "openai-responses": self.responses,
            "gemini": self.gemini,
            "bedrock": self.bedrock,
        }[self.provider](calls)
        return [self.ours(calls)] if self.chance(0.1) else made

    def anthropic(self, calls: int) -> list[Item]:
        content: list[Any] = []
        if self.chance(0.5):
            content.append(
                {"type": "thinking", "thinking": self.text(), "signature": SIGNED if self.chance(0.8) else ""}
            )
        if self.chance(0.2):
            content.append({"type": "redacted_thinking", "data": SIGNED})
        if self.chance(0.7):
            content.append({"type": "text", "text": self.text(), "citations": None})
        if self.chance(0.2):
            content += self.server_tool()
        for _ in range(calls):
            if self.chance(0.1):
                content.append({"type": "thinking", "thinking": "Hm.", "signature": SIGNED})
            id, name, arguments = self.asked("toolu_")
            content.append({"type": "tool_use", "id": id, "name": name, "input": arguments})
        self.rng.shuffle(content) if self.chance(0.05) else None
        if self.chance(0.3):
            return [{"role": "assistant", "content": [block]} for block in content]  # one line for each block
        if self.chance(0.3):
            return [{"role": "assistant", "content": content}]
        whole = {
            "id": self.item_id("msg"),
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
        }
        ended = {"stop_reason": "end_turn", "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
        return [self.sdk(AnthropicMessage, {**whole, **ended})]

    def server_tool(self) -> list[Item]:
        id = self.rng.choice(["srvtoolu_1", "srv 1", f"srvtoolu_{self.count}x"])
        call = {"type": "server_tool_use", "id": id, "name": "web_search", "input": {"query": "x"}}
        found = {"type": "web_search_result", "url": "https://a.org", "title": "A", "encrypted_content": "E"}
        result = {"type": "web_search_tool_result", "tool_use_id": id, "content": [found]}
        return self.rng.choice([[call, result], [call, result], [call], [result]])

    def chat(self, calls: int) -> list[Item]:
        message: dict[str, Any] = {"role": "assistant", "content": self.text() if self.chance(0.7) else None}
        message["refusal"] = "No." if self.chance(0.05) else None
        if self.chance(0.2):
            message["reasoning_content"] = self.text()
        if calls == 1 and self.chance(0.1):
            name = self.name()
            self.open.append((name, name))
            message["function_call"] = {"name": name, "arguments": self.spelled(self.arguments())}
        elif calls:
            message["tool_calls"] = [self.chat_call() for _ in range(calls)]
        if self.chance(0.5):
            return [message]
        choice = {"finish_reason": "stop", "index": 0, "logprobs": None, "message": message}
        whole = {"id": "chat_1", "choices": [choice], "created": 1, "model": self.model, "object": "chat.completion"}
        return [self.sdk(ChatCompletion, whole)]

    def chat_call(self) -> Item:
        id, name, arguments = self.asked("call_")
        if self.chance(0.1):
            return {"id": id, "type": "custom", "custom": {"name": name, "input": "free text"}}
        call = {"id": id, "type": "function", "function": {"name": name, "arguments": self.spelled(arguments)}}
        if self.chance(0.05):  # a program that pieces streams together
            return {"index": 0, "id": id, "function": {"name": name, "arguments": arguments}}
        return call

    def spelled(self, arguments: Any) -> str:
        """Write arguments as a model does: now and then badly."""
        if self.chance(0.1):
            return self.rng.choice(["", "{", '{"a": NaN}', '{"a": "\\ud83d"}'])
        return msgspec.json.encode(arguments if arguments != _ARGUMENTS[2] else {"n": None}).decode()

    def responses(self, calls: int) -> list[Item]:
        items: list[Any] = []
        if self.chance(0.6):
            sealed = {"encrypted_content": SIGNED} if self.chance(0.6) else {}
            items.append({"id": self.item_id("rs"), "type": "reasoning", "summary": [], **sealed})
        if self.chance(0.15):
            action = {"type": "search", "query": "x"}
            items.append({"id": self.item_id("ws"), "type": "web_search_call", "status": "completed", "action": action})
        if not calls or self.chance(0.3):
            part = {"type": "output_text", "text": self.text(), "annotations": []}
            said = {"id": self.item_id("msg"), "type": "message", "role": "assistant", "status": "completed"}
            items.append({**said, "content": [part]})
        items += [self.responses_call() for _ in range(calls)]
        if self.chance(0.5):
            return items
        whole = {"id": "resp_1", "created_at": 1, "model": self.model, "object": "response", "output": items}
        return [self.sdk(Response, {**whole, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []})]

    def responses_call(self) -> Item:
        id, name, arguments = self.asked("call_")
        if self.chance(0.15):
            return {"type": "custom_tool_call", "id": self.item_id("ctc"), "call_id": id, "name": name, "input": "free"}
        call = {"type": "function_call", "call_id": id, "name": name, "arguments": self.spelled(arguments)}
        if self.chance(0.05):
            return {**call, "arguments": arguments, "summary": "a field of somebody's own"}
        return {**call, "id": self.item_id("fc"), "status": "completed"} if self.chance(0.8) else call

    def gemini(self, calls: int) -> list[Item]:
        parts: list[Any] = []
        if self.chance(0.4):
            parts.append({"text": self.text(), "thought": True})
        if self.chance(0.6):
            signed = {"thoughtSignature": SIGNED} if self.chance(0.3) else {}
            parts.append({"text": self.text(), **signed})
        if self.chance(0.1):
            parts.append({"executableCode": {"code": "1", "language": "PYTHON"}})
            parts.append({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}})
        for number in range(calls):
            id, name, arguments = self.asked("fc-")
            named = {"id": id} if self.chance(0.5) else {}
            if not named:
                self.open[-1] = (name, name)
            call = {**named, "name": name, "args": arguments if isinstance(arguments, dict) else {}}
            signed = (
                {"thoughtSignature": SIGNED if self.chance(0.95) else "no base64!"}
                if number == 0 and self.chance(0.7)
                else {}
            )
            parts.append({"functionCall": call, **signed})
        content = {"role": "model", "parts": parts}
        if self.chance(0.5):
            return [content]
        whole = {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "modelVersion": self.model}
        return [self.sdk(genai.GenerateContentResponse, whole)]

    def bedrock(self, calls: int) -> list[Item]:
        content: list[Any] = []
        if self.chance(0.5):
            signed = {"signature": SIGNED} if self.chance(0.8) else {}
            content.append({"reasoningContent": {"reasoningText": {"text": self.text(), **signed}}})
        if self.chance(0.2):
            sealed = self.rng.choice([b"sealed", SIGNED, SIGNED, "no base64!"])
            content.append({"reasoningContent": {"redactedContent": sealed}})
        if self.chance(0.7):
            content.append({"text": self.text()})
        if self.chance(0.1):
            content.append({"citationsContent": {"content": [{"text": "Cited."}], "citations": []}})
        if self.chance(0.1):
            content += self.nova_tool()
        for _ in range(calls):
            id, name, arguments = self.asked("tooluse_")
            use = {"toolUseId": id, "name": name, "input": arguments}
            content.append({"toolUse": {**use, "extra": 1} if self.chance(0.05) else use})
        self.rng.shuffle(content) if self.chance(0.05) else None
        if self.chance(0.1):
            content.append({"cachePoint": {"type": "default"}})
        message = {"role": "assistant", "content": content}
        if self.chance(0.5) or not content:
            return [message]
        counted = {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}
        return [{"output": {"message": message}, "stopReason": "end_turn", "usage": counted, "modelId": self.model}]

    def nova_tool(self) -> list[Item]:
        """Use a tool of the server; halves get lost."""
        use = {"toolUseId": f"srv{self.count}", "name": "nova_grounding", "input": {}, "type": "server_tool_use"}
        given = {"toolUseId": f"srv{self.count}", "content": [{"text": "Found."}], "type": "nova_grounding_result"}
        return self.rng.choice([[{"toolUse": use}, {"toolResult": given}], [{"toolUse": use}], [{"toolResult": given}]])

    def ours(self, calls: int) -> Item:
        asked = [dict(zip(("id", "name", "arguments"), self.asked("c"), strict=True)) for _ in range(calls)]
        message = {"role": "assistant", "content": self.text(), "model": self.model, "tool_calls": asked}
        return {**message, "status": self.rng.choice(["interrupted", "streaming"])} if self.chance(0.2) else message

    def sdk(self, kind: Any, value: dict[str, Any]) -> Item:
        """Return a response as the SDK's object where it is one, else as data."""
        if self.chance(0.5):
            return value
        try:
            return kind.model_validate(value)
        except ValueError:  # what a model or a proxy wrote need not fit the types
            return value

    # ------------------------------------------------------------------ results

    def results(self) -> list[Item]:
        """Answer what is open: in order mostly, else shuffled, with some missing, doubled or for nobody."""
        waiting, self.open = self.open, []
        if self.chance(0.15):
            self.rng.shuffle(waiting)
        waiting = [each for each in waiting if not self.chance(0.1)]
        if waiting and self.chance(0.1):
            waiting.append(self.rng.choice(waiting))
        if self.chance(0.05):
            waiting.append((self.call_id("lost_"), "bash"))
        form = self.provider if self.chance(0.8) else self.rng.choice([*MODELS, "ours"])
        if form in _GATHERED and self.chance(0.6):
            return [self.gathered(form, [self.result(form, *each) for each in waiting])] if waiting else []
        found = list[Item]()
        for each in waiting:
            one = self.result(form, *each)
            found.append(self.gathered(form, [one]) if form in _GATHERED else one)
            if self.chance(0.05):
                found.append({"role": "user", "content": "Wait."})
        return found

    def gathered(self, form: str, results: list[Item]) -> Item:
        if form == "gemini":
            return {"role": "user", "parts": results}
        said = {"text": self.text()} if form == "bedrock" else {"type": "text", "text": self.text()}
        more = [said] if self.chance(0.1) else []
        return {"role": "user", "content": [*more, *results] if self.chance(0.5) else [*results, *more]}

    def result(self, form: str, id: str, name: str) -> Item:
        said = self.text()
        if form == "anthropic":
            block: dict[str, Any] = {"type": "tool_result", "tool_use_id": id, "content": said}
            if self.chance(0.2):
                block["content"] = self.rng.choice(
                    [None, [], [{"type": "text", "text": said}, self.image("anthropic")]]
                )
            if self.chance(0.2):
                block["cache_control"] = {"type": "ephemeral"}
            if self.chance(0.05):
                block["name"] = "a field of somebody's own"
            return {**block, "is_error": True} if self.chance(0.2) else block
        if form == "bedrock":
            return {"toolResult": self.bedrock_result(id, said)}
        if form == "openai-chat":
            if id == name and self.chance(0.5):
                return {"role": "function", "name": name, "content": said}
            parts = [{"type": "text", "text": said}, self.image(form)] if self.chance(0.1) else said
            return {"role": "tool", "tool_call_id": id, "content": parts}
        if form == "openai-responses":
            kind = "custom_tool_call_output" if self.chance(0.1) else "function_call_output"
            output = [{"type": "input_text", "text": said}, self.image(form)] if self.chance(0.1) else said
            return {"type": kind, "call_id": id, "output": output}
        if form == "gemini":
            named = {"id": id} if id != name else {}
            return {
                "functionResponse": {
                    **named,
                    "name": name,
                    "response": {self.rng.choice(["output", "error", "a"]): said},
                }
            }
        value = self.rng.choice([said, {"a": 1}, [1, None], None, 2.5])
        return {"role": "tool", "tool_results": [{"call_id": id, "content": value, "success": self.chance(0.8)}]}

    def bedrock_result(self, id: str, said: str) -> Item:
        content: list[Any] = [{"text": said}]
        if self.chance(0.3):
            rich = [{"text": said}, self.image("bedrock"), self.document("bedrock")]
            content = self.rng.choice([[], [{"json": {"a": [1, None]}}], [{"json": said}, {"text": said}], rich])
        status = {"status": self.rng.choice(["success", "success", "error"])} if self.chance(0.5) else {}
        return {"toolUseId": id, "content": content, **status}

    # ------------------------------------------------------------------ the user

    def asking(self) -> Item:
        if self.chance(0.05):
            return self.misplaced()
        form = self.rng.choice([*MODELS, "ours", "ours", "plain", "plain", "plain"])
        if form == "plain":
            return {"role": "user", "content": self.text() or "Go."}
        if form == "ours":
            return {"role": "user", "content": self.text(), "attachments": [self.attachment()]}
        parts = [self.image(form)] if self.chance(0.5) else [self.document(form)]
        said = {"openai-responses": {"type": "input_text", "text": self.text()}, "gemini": {"text": self.text()}}
        said["bedrock"] = {"text": self.text()}
        if form != "bedrock" or self.chance(0.8):
            parts.append(said.get(form, {"type": "text", "text": self.text()}))
        if form == "bedrock" and self.chance(0.4):
            parts.append({"cachePoint": {"type": "default"}})
        if form == "anthropic" and self.chance(0.6):
            parts[-1]["cache_control"] = {"type": "ephemeral"}
        if form == "gemini":
            return {"role": "user", "parts": parts}
        named = {"name": self.rng.choice(["ann", "ann b"])} if form == "openai-chat" and self.chance(0.3) else {}
        return {"role": "user", "content": parts, **named}

    def misplaced(self) -> Item:
        """Return a message with what belongs to the other side."""
        text, thought = {"type": "text", "text": "Odd."}, {"type": "thinking", "thinking": "Hm.", "signature": SIGNED}
        found: list[Item] = [
            {"role": "user", "content": [thought, text]},
            {"role": "user", "content": [text, {"type": "tool_use", "id": "toolu_odd", "name": "bash", "input": {}}]},
            {"role": "assistant", "content": [self.document("anthropic"), text]},
            {"role": "user", "content": [{"type": "output_text", "text": "Odd.", "annotations": []}]},
            {"type": "message", "role": "assistant", "content": [{"type": "input_text", "text": "Odd."}]},
            {"role": "user", "content": [{"type": "refusal", "refusal": "Odd."}]},
            {"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": "https://a.org/a.png"}}]},
            {"role": "user", "parts": [{"executableCode": {"code": "1", "language": "PYTHON"}}, {"text": "Odd."}]},
            {"role": "user", "parts": [{"functionCall": {"name": "bash", "args": {}}}]},
            {"role": "user", "content": [{"reasoningContent": {"reasoningText": {"text": "Hm."}}}, {"text": "Odd."}]},
            {
                "role": "user",
                "content": [{"toolUse": {"toolUseId": "t", "name": "bash", "input": {}}}, {"text": "Odd."}],
            },
            {"role": "assistant", "content": [self.document("bedrock"), {"text": "Odd."}]},
            {"role": "user", "content": [{"cachePoint": {"type": "default"}}]},
        ]
        return self.rng.choice(found)

    def attachment(self) -> Item:
        png, pdf, wav = (base64.b64decode(each) for each in (PNG, PDF, WAV))
        files = [("a.png", png), ("b.pdf", pdf), ("c.txt", b"plain \xff text"), ("d.wav", wav), ("e.bin", b"\x00\x01")]
        name, data = self.rng.choice(files)
        return {"name": name, "data": data}

    def image(self, form: str) -> Item:
        mime, data = self.rng.choice(
            [("image/png", PNG), ("image/jpeg", JPEG), ("image/jpeg", PNG), ("image/bmp", "Qk0=")]
        )
        url = self.rng.choice(
            [f"data:{mime};base64,{data}", "https://a.org/a.png", "http://a.org/a.png", "file:///a.png"]
        )
        if form == "anthropic":
            is_web = self.chance(0.3) and not url.startswith("data:")
            return {
                "type": "image",
                "source": {"type": "url", "url": url}
                if is_web
                else {"type": "base64", "media_type": mime, "data": data},
            }
        if form == "bedrock":
            source = self.rng.choice([data, base64.b64decode(data)])
            kind = {"format": mime.partition("/")[2], "source": {"bytes": source}}
            s3 = {"format": "png", "source": {"s3Location": {"uri": "s3://bucket/a.png"}}}
            guarded = {"guardContent": {"image": kind}}
            return self.rng.choice([{"image": kind}, {"image": kind}, {"image": s3}, guarded])
        if form == "openai-chat":
            return {"type": "image_url", "image_url": {"url": url}}
        if form == "openai-responses":
            return {"type": "input_image", "detail": "auto", "image_url": url}
        if self.chance(0.2):
            return {"fileData": {"fileUri": "https://generativelanguage.googleapis.com/f/1", "mimeType": mime}}
        return {"inlineData": {"mimeType": mime, "data": data}}

    def document(self, form: str) -> Item:
        if form == "bedrock":
            name = self.rng.choice(["A", "a.pdf", "two  blanks", "ünïcode", "n" * 250, ""])
            pdf = {"format": "pdf", "name": name, "source": {"bytes": base64.b64decode(PDF)}}
            words: Any = {"format": "txt", "name": name, "source": {"text": "Words."}}
            csv = {"format": "csv", "name": name, "source": {"bytes": base64.b64encode(b"a,b").decode()}}
            video = {"format": "mp4", "source": {"bytes": WAV}}
            return self.rng.choice([{"document": pdf}, {"document": words}, {"document": csv}, {"video": video}])
        if form == "anthropic":
            sources: list[Any] = [{"type": "base64", "media_type": "application/pdf", "data": PDF}]
            sources += [{"type": "text", "media_type": "text/plain", "data": "Words."}]
            sources += [{"type": "url", "url": "https://a.org/a.pdf"}, {"type": "file", "file_id": "file_1"}]
            return {"type": "document", "source": self.rng.choice(sources), "title": "A"}
        data = f"data:application/pdf;base64,{PDF}"
        if form == "openai-chat":
            audio = {"type": "input_audio", "input_audio": {"data": WAV, "format": self.rng.choice(["wav", "flac"])}}
            return self.rng.choice([{"type": "file", "file": {"filename": "a.pdf", "file_data": data}}, audio])
        if form == "openai-responses":
            return {
                "type": "input_file",
                **self.rng.choice([{"filename": "a.pdf", "file_data": data}, {"file_id": "file-1"}]),
            }
        mime, blob = self.rng.choice([("application/pdf", PDF), ("audio/wav", WAV), ("video/mp4", WAV)])
        return {"inlineData": {"mimeType": mime, "data": blob}}
