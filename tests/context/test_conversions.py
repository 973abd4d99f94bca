"""From each provider to each other: what both can take arrives, and what is left out is said."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from takeback import Session

from ._checks import ALL, context_of, dumped
from ._teller import PDF, PNG, SIGNED, WAV

pytestmark = pytest.mark.feature("F3")
PAIRS = [(source, target) for source in ALL for target in ALL]
SHOT = "iVBORw0KGgoAAAAAAAAAAAAAAAAAAAAB"  # an image that a tool gave, to be told from the user's
RICH: dict[str, list[dict[str, Any]]] = {
    "anthropic": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "user words"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}},
                {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "document words"}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "secret", "signature": SIGNED},
                {"type": "text", "text": "assistant words"},
                {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "argument words"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "content": [
                        {"type": "text", "text": "result words"},
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": SHOT}},
                    ],
                }
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
                {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
                {"type": "text", "text": "last words"},
            ],
        },
    ],
    "openai-chat": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "user words"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
                {
                    "type": "file",
                    "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"},
                },
                {"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}},
            ],
        },
        {
            "role": "assistant",
            "content": "assistant words",
            "reasoning_content": "secret",
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "look", "arguments": '{"at":"argument words"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "result words"},
        {"role": "assistant", "content": "last words", "refusal": None},
    ],
    "openai-responses": [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "user words"},
                {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{PNG}"},
                {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"},
            ],
        },
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "secret"}]},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "assistant words", "annotations": []}],
        },
        {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"at":"argument words"}'},
        {
            "type": "function_call_output",
            "call_id": "call_1",
            "output": [
                {"type": "input_text", "text": "result words"},
                {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{SHOT}"},
            ],
        },
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
        {
            "type": "message",
            "id": "msg_2",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "last words", "annotations": []}],
        },
    ],
    "gemini": [
        {
            "role": "user",
            "parts": [
                {"text": "user words"},
                {"inlineData": {"mimeType": "image/png", "data": PNG}},
                {"inlineData": {"mimeType": "application/pdf", "data": PDF}},
                {"inlineData": {"mimeType": "audio/wav", "data": WAV}},
            ],
        },
        {
            "role": "model",
            "parts": [
                {"text": "secret", "thought": True},
                {"text": "assistant words"},
                {"functionCall": {"name": "look", "args": {"at": "argument words"}}, "thoughtSignature": SIGNED},
            ],
        },
        {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"output": "result words"}}}]},
        {
            "role": "model",
            "parts": [
                {"executableCode": {"code": "q", "language": "PYTHON"}},
                {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "q"}},
                {"text": "last words"},
            ],
        },
    ],
}
RICH["bedrock"] = [
    {
        "role": "user",
        "content": [
            {"text": "user words"},
            {"image": {"format": "png", "source": {"bytes": base64.b64decode(PNG)}}},
            {"document": {"format": "pdf", "name": "a", "source": {"bytes": PDF}}},
            {"document": {"format": "txt", "name": "b", "source": {"text": "document words"}}},
            {"audio": {"format": "wav", "source": {"bytes": WAV}}},
            {"cachePoint": {"type": "default"}},
        ],
    },
    {
        "role": "assistant",
        "content": [
            {"reasoningContent": {"reasoningText": {"text": "secret", "signature": SIGNED}}},
            {"text": "assistant words"},
            {"toolUse": {"toolUseId": "tooluse_1", "name": "look", "input": {"at": "argument words"}}},
        ],
    },
    {
        "role": "user",
        "content": [
            {
                "toolResult": {
                    "toolUseId": "tooluse_1",
                    "content": [
                        {"text": "result words"},
                        {"image": {"format": "png", "source": {"bytes": SHOT}}},
                    ],
                    "status": "success",
                }
            }
        ],
    },
    {
        "role": "assistant",
        "content": [
            {"toolUse": {"toolUseId": "s", "name": "nova_grounding", "input": {}, "type": "server_tool_use"}},
            {"toolResult": {"toolUseId": "s", "content": [{"text": "q"}], "type": "nova_grounding_result"}},
            {"text": "last words"},
        ],
    },
]
WORDS = ("user words", "assistant words", "look", "argument words", "result words", "last words", PNG, PDF)
TAKES_SOUND = ("bedrock", "openai-chat", "gemini")
TAKES_SHOTS = ("anthropic", "bedrock", "openai-responses")
SERVER_TOOLS = {
    "anthropic": ("server tool use", "web search tool result"),
    "openai-chat": (),
    "openai-responses": ("web search call",),
    "gemini": ("executableCode", "codeExecutionResult"),
    "bedrock": ("tool use", "tool result"),
}


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_what_both_can_take_arrives(session: Session, source: str, target: str) -> None:
    session.append(*RICH[source])
    shown = dumped(context_of(session, target).messages).decode()
    for words in (*WORDS, *(["document words"] if source in ("anthropic", "bedrock") else [])):
        assert words in shown
    if source in TAKES_SOUND and target in TAKES_SOUND:
        assert WAV in shown
    if source in TAKES_SHOTS and target in TAKES_SHOTS:
        assert SHOT in shown


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_what_does_not_arrive_is_said(session: Session, source: str, target: str) -> None:
    session.append(*RICH[source])
    context = context_of(session, target)
    if source == target:
        assert context.repairs == ()
        return
    expected = {f"left out {what} of {source}" for what in ("thinking", *SERVER_TOOLS[source])}
    if source in TAKES_SOUND and target not in TAKES_SOUND:
        expected.add(f"left out audio (audio/wav), which {target} does not take here")
    if source in TAKES_SHOTS and target not in TAKES_SHOTS:
        expected.add(f"left out image (image/png), which {target} does not take here")
    assert {sentence.partition(" (message")[0] for sentence in context.repairs} == expected
    assert "secret" not in dumped(context.messages).decode()


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_there_and_back_loses_no_words(session: Session, source: str, target: str) -> None:
    """A conversation goes on with another provider and comes back to the first: that one still gets its own bytes."""
    session.append(*RICH[source])
    before = context_of(session, source).messages
    session.user("go on")
    session.append(*RICH[target][1:])
    after = context_of(session, source)
    assert dumped(after.messages[: len(before)]) == dumped(before)
    assert dumped(after.messages).decode().count("argument words") == 2
