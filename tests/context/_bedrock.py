"""Requests for Bedrock's Converse as its documentation shows them, and what makes each of them refused."""

from __future__ import annotations

from typing import Any

PNG = b"\x89PNG\r\n\x1a\n" + bytes(16)
PDF = b"%PDF-1.7\n"
DROP = object()
Request = dict[str, Any]


def message(role: str, *content: Request) -> Request:
    return {"role": role, "content": list(content)}


def use(id: str, **more: Any) -> Request:
    return {"toolUse": {"toolUseId": id, "name": "get_weather", "input": {"location": "Paris"}, **more}}


def result(id: str, *content: Request, **more: Any) -> Request:
    return {"toolResult": {"toolUseId": id, "content": list(content) or [{"text": "15 degrees"}], **more}}


def paper(name: str = "My paper (1)", **source: Any) -> Request:
    return {"document": {"format": "pdf", "name": name, "source": source or {"bytes": PDF}}}


def thought(**more: Any) -> Request:
    return {"reasoningContent": {"reasoningText": {"text": "Let me see.", **more}}}


WEATHER = {"toolSpec": {"name": "get_weather", "inputSchema": {"json": {"type": "object"}}}}
POINT = {"cachePoint": {"type": "default"}}

ACCEPTED: dict[str, Request] = {
    "hello": {"modelId": "amazon.nova-pro-v1:0", "messages": [message("user", {"text": "Hello"})]},
    "turns": {
        "system": [{"text": "You are a poet."}, POINT],
        "inferenceConfig": {"maxTokens": 100},
        "messages": [
            message("user", {"text": "Hello there."}),
            message("assistant", {"text": "Hi."}),
            message("user", {"text": "Explain."}, {"cachePoint": {"type": "default", "ttl": "1h"}}),
        ],
    },
    "parallel": {
        "toolConfig": {"tools": [WEATHER, POINT]},
        "messages": [
            message("user", {"text": "The weather in SF and NYC?"}),
            message("assistant", {"text": "I look."}, use("tooluse_1"), use("functions.get_weather:1")),
            message(
                "user",
                result("functions.get_weather:1", {"json": {"degrees": 15}}, status="success"),
                result("tooluse_1", {"text": "no such place"}, status="error"),
                {"text": "And in LA?"},
            ),
            message("assistant", {"text": "It is warm."}),
        ],
    },
    "media": {
        "messages": [
            message(
                "user",
                {"image": {"format": "png", "source": {"bytes": PNG}}},
                {"image": {"format": "webp", "source": {"s3Location": {"uri": "s3://bucket/a.webp"}}}},
                paper(),
                paper("Words", text="The grass is green."),
                {"video": {"format": "mp4", "source": {"bytes": b"film"}}},
                {"audio": {"format": "wav", "source": {"bytes": b"RIFF"}}},
                {"searchResult": {"source": "https://a.org", "title": "A", "content": [{"text": "Shannon"}]}},
                {"guardContent": {"text": {"text": "Be kind.", "qualifiers": ["query"]}}},
                {"text": "What is it?"},
            ),
            message("assistant", {"citationsContent": {"content": [{"text": "Green."}], "citations": []}}),
        ]
    },
    "seen": {
        "messages": [
            message("user", {"text": "Look"}),
            message("assistant", use("a")),
            message(
                "user", result("a", {"text": "See:"}, {"image": {"format": "png", "source": {"bytes": PNG}}}, paper())
            ),
        ]
    },
    "thinking": {
        "modelId": "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "messages": [
            message("user", {"text": "Hm?"}),
            message(
                "assistant",
                thought(signature="Eq=="),
                {"reasoningContent": {"redactedContent": b"sealed"}},
                {"text": "So."},
                use("a"),
            ),
            message("user", result("a")),
        ],
    },
    "unsigned": {
        "modelId": "us.deepseek.r1-v1:0",
        "messages": [message("user", {"text": "Hm?"}), message("assistant", thought(), {"text": "So."})],
    },
    "server": {
        "messages": [
            message("user", {"text": "Search."}),
            message(
                "assistant",
                use("s", type="server_tool_use"),
                result("s", type="nova_grounding_result"),
                {"text": "Found."},
            ),
        ]
    },
}

_DOC = "messages 0 content 2 document"
REFUSED: list[tuple[str, str, Any, str]] = [
    ("hello", "model", "m", "model: the call has no such argument"),
    ("hello", "modelId", "", "is not the name of a model"),
    ("hello", "messages", [], "messages: is an empty list"),
    ("hello", "messages 0 role", "system", "is not one of assistant, user"),
    ("hello", "messages 0 content", [], "messages[0].content: is an empty list"),
    ("hello", "messages 0 content 0 text", " \n", "is blank"),
    ("hello", "messages 0 content 0 image", {}, "has 2 fields instead of one"),
    ("hello", "messages 0 content 0", {"sound": {}}, "has the unknown field 'sound'"),
    ("hello", "messages 0", message("assistant", {"text": "a"}), "is not of the user"),
    ("hello", "messages 0 content 0", POINT, "has nothing but cache points"),
    ("hello", "messages 0 content 0", use("a"), "toolUse does not belong in a message of the user"),
    ("hello", "messages 0 content 0", thought(), "reasoningContent does not belong in a message of the user"),
    ("turns", "system 0 text", "", "system[0].text: is blank"),
    ("turns", "system", "You are a poet.", "system: is not a list"),
    ("turns", "messages 1 role", "user", "roles must alternate"),
    ("turns", "messages 2 content 1 cachePoint type", "x", "is not one of default"),
    ("turns", "messages 2 content 1 cachePoint ttl", "1d", "is not one of 1h, 5m"),
    ("turns", "messages 2 content", [POINT, {"text": "a"}], "is a cache point that marks nothing"),
    ("turns", "messages 0 content", [{"text": "a"}, POINT, POINT, POINT], "has 5 cache points, more than 4"),
    ("turns", "messages 1 content 0 text", 7, "the SDK's types do not take it"),
    ("turns", "inferenceConfig maxTokens", "x", "the SDK's types do not take it"),
    ("turns", "messages 3", message("assistant", {"text": "So: "}), "cannot end with trailing whitespace"),
    ("turns", "messages 1 content 0", paper(), "document does not belong in a message of the assistant"),
    ("parallel", "toolConfig tools 0 toolSpec name", "get weather", "does not match"),
    ("parallel", "toolConfig tools 1", WEATHER, "is a second tool named 'get_weather'"),
    ("parallel", "messages 1 content 1 toolUse name", "a.b", "'a.b' does not match"),
    ("parallel", "messages 1 content 1 toolUse toolUseId", "i" * 65, "has 65 characters, more than 64"),
    ("parallel", "messages 1 content 1 toolUse toolUseId", "a b", "'a b' does not match"),
    ("parallel", "messages 1 content 1 toolUse input", "x", "input: is not an object"),
    ("parallel", "messages 1 content 1 toolUse input", DROP, "has no 'input'"),
    ("parallel", "messages 1 content 1 toolUse extra", 1, "has the unknown field 'extra'"),
    ("parallel", "messages 1 content 2 toolUse toolUseId", "tooluse_1", "the id 'tooluse_1' is used twice"),
    ("parallel", "messages 2 content 1", DROP, "toolUse 'tooluse_1' has no toolResult in the next message"),
    ("parallel", "messages 2 content 1 toolResult toolUseId", "x", "'x' answers no toolUse of the message before"),
    ("parallel", "messages 2 content 1 toolResult toolUseId", "functions.get_weather:1", "is a second toolResult"),
    ("parallel", "messages 2 content 0", {"text": "first"}, "stands after other content"),
    ("parallel", "messages 2 content 1 toolResult status", "bad", "is not one of error, success"),
    ("parallel", "messages 2 content 1 toolResult content", [], "toolResult.content: is an empty list"),
    ("parallel", "messages 2 content 1 toolResult content 0 text", "", "is blank"),
    ("parallel", "messages 2 content 1 toolResult content 0", {"audio": {}}, "has the unknown field 'audio'"),
    ("media", "messages 0 content 0 image format", "bmp", "'bmp' is not one of gif, jpeg, png, webp"),
    ("media", "messages 0 content 0 image format", "jpeg", "is said to be image/jpeg, but it is image/png"),
    ("media", "messages 0 content 0 image source bytes", "iVBORw0KGgo=", "is not bytes"),
    ("media", "messages 0 content 0 image source bytes", b"", "bytes: is empty"),
    ("media", "messages 0 content 0 image source bytes", b"x" * 4_000_000, "more than 3932160"),
    ("media", "messages 0 content 1 image source s3Location uri", "https://a.org", "does not match s3"),
    ("media", f"{_DOC} format", "exe", "'exe' is not one of"),
    ("media", f"{_DOC} name", "a.pdf", "'a.pdf' does not match"),
    ("media", f"{_DOC} name", "a  b", "has two spaces in a row"),
    ("media", f"{_DOC} name", "n" * 201, "has 201 characters, more than 200"),
    ("media", f"{_DOC} name", "words", "have more than one document named 'words'"),
    ("media", f"{_DOC} name", DROP, "has no 'name'"),
    ("media", f"{_DOC} source bytes", b"x" * 5_000_000, "more than 4718592"),
    ("media", "messages 0 content 8", DROP, "has a document, but no text"),
    ("media", "messages 0 content 6 searchResult content 0 text", "", "is blank"),
    ("media", "messages 0 content 7 guardContent text text", "", "is empty"),
    (
        "media",
        "messages 0 content",
        [{"text": "a"}, *(paper(f"p{number}") for number in range(6))],
        "have 6 documents, more than 5",
    ),
    (
        "media",
        "messages 0 content",
        [{"image": {"format": "png", "source": {"bytes": PNG}}}] * 21,
        "has more than 20 images",
    ),
    ("seen", "messages 2 content 0 toolResult content 2 document name", "a_b", "'a_b' does not match"),
    ("thinking", "messages 1 content 0 reasoningContent reasoningText signature", DROP, "without a signature"),
    ("thinking", "messages 1 content 1 reasoningContent redactedContent", "c2VhbGVk", "is not bytes, or empty"),
    ("thinking", "messages 1 content 4", thought(signature="s"), "ends with reasoning"),
    ("unsigned", "messages 1 content", [{"text": "a"}, thought(), {"text": "b"}], "does not begin with it"),
    ("server", "messages 1 content 0", DROP, "'s' of the server lacks its other half"),
    ("server", "messages 1 content 1", DROP, "'s' of the server lacks its other half"),
    ("server", "messages 1 content 0 toolUse type", "x", "is not one of server_tool_use"),
]
