"""The form of Amazon Bedrock's Converse: a role and a list of blocks, each named by its only key.

Tool results travel in user messages; a user message of nothing else is no turn of the user's and has the role
``tool`` here. Calls are what the client has to run: a ``toolUse`` that names a ``type`` ran on the server, and so did
its result. boto3 takes and gives bytes where the wire has base64: either is recognised, and stored as the wire has it.
A response does not name its model; a caller that knows it puts it beside the rest as ``modelId``.
"""

from __future__ import annotations

from typing import Any

from ...model.given import Given
from ...model.tools import ToolCall, ToolResult
from ...model.usage import Usage
from ..counting import rest, tokens
from ..lenient import dicts, fields, joined, normal_role, present, usage_of, word

FORM = "bedrock"
BLOCKS = frozenset(
    {
        "text",
        "image",
        "document",
        "video",
        "audio",
        "toolUse",
        "toolResult",
        "guardContent",
        "cachePoint",
        "reasoningContent",
        "citationsContent",
        "searchResult",
        "toolAddition",
        "toolRemoval",
    }
)
_COUNTS = frozenset({"inputTokens", "outputTokens"})


def recognise(value: dict[str, Any], kinds: frozenset[str]) -> list[Given]:
    """Recognise a message, or the message of a whole response."""
    said = fields(value.get("output")).get("message")
    if isinstance(said, dict):
        return [_given(said, value)] if isinstance(said.get("role"), str) else []
    return [_given(value, {})] if _is_message(value) else []


def _is_message(value: dict[str, Any]) -> bool:
    """Tell a message from those of others, whose parts name their type."""
    content = value.get("content")
    if not isinstance(content, list) or not content or not isinstance(value.get("role"), str):
        return False
    return all(isinstance(part, dict) and "type" not in part and not BLOCKS.isdisjoint(part) for part in content)


def _given(value: dict[str, Any], whole: dict[str, Any]) -> Given:
    role = "tool" if _is_only_results(value) else normal_role(value["role"])
    routed = fields(fields(whole.get("trace")).get("promptRouter")).get("invokedModelId")
    return Given(
        form=FORM,
        role=role,
        value=value,
        id=word(fields(whole.get("ResponseMetadata")).get("RequestId")) or None,
        model=word(routed) or word(whole.get("modelId")) or None,
        usage=usage_of(whole.get("usage")),
        calls=calls(value),
        results=results(value),
        is_turn=role == "user",
    )


def _is_only_results(value: dict[str, Any]) -> bool:
    parts = value.get("content")
    if value["role"] != "user" or not isinstance(parts, list):
        return False
    counted = [part for part in parts if not (isinstance(part, dict) and "cachePoint" in part)]
    return bool(counted) and all(isinstance(part, dict) and "toolResult" in part for part in counted)


def content(value: dict[str, Any]) -> Any:
    """Return the blocks."""
    return present(value.get("content"))


def text(value: dict[str, Any]) -> str:
    """Join its text, what was cited or guarded, and the text of tool results."""
    parts = value.get("content")
    return joined(*map(_block_text, parts)) if isinstance(parts, list) else word(parts)


def _block_text(part: object) -> str:
    if not isinstance(part, dict):
        return word(part)
    given = fields(part.get("toolResult")).get("content")
    return joined(block_text(part), *map(block_text, dicts(given)))


def block_text(part: dict[str, Any]) -> str:
    """Return what a block says by itself."""
    guarded = fields(fields(part.get("guardContent")).get("text")).get("text")
    cited = (word(each.get("text")) for each in dicts(fields(part.get("citationsContent")).get("content")))
    return joined(word(part.get("text")), word(guarded), *cited)


def calls(value: dict[str, Any]) -> tuple[ToolCall, ...]:
    """List the calls that the client has to run."""
    found = (each for part in dicts(value.get("content")) if is_clients(each := part.get("toolUse")))
    return tuple(_call(number, call) for number, call in enumerate(found))


def is_clients(use: object) -> bool:
    """Return whether a use or a result of a tool is the client's: those of the server name their type."""
    return isinstance(use, dict) and not word(use.get("type"))


def _call(number: int, call: Any) -> ToolCall:
    return ToolCall(word(call.get("toolUseId")) or f"call-{number}", word(call.get("name")), call.get("input"))


def results(value: dict[str, Any]) -> tuple[ToolResult, ...]:
    """List the results that it carries."""
    return tuple(_result(each) for part in dicts(value.get("content")) if is_clients(each := part.get("toolResult")))


def _result(answer: Any) -> ToolResult:
    success = answer.get("status") != "error"
    return ToolResult(word(answer.get("toolUseId")), present(answer.get("content")), success=success)


def usage(data: dict[str, Any]) -> Usage | None:
    """Read usage whose input leaves out what the cache gave and took."""
    if _COUNTS.isdisjoint(data):
        return None
    read, written = tokens(data, "cacheReadInputTokens"), tokens(data, "cacheWriteInputTokens")
    return Usage(
        input_tokens=tokens(data, "inputTokens") + read + written,
        output_tokens=tokens(data, "outputTokens"),
        cache_read_tokens=read,
        cache_write_tokens=written,
        extra=rest(data, (*_COUNTS, "cacheReadInputTokens", "cacheWriteInputTokens")),
    )
