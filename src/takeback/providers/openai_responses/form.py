"""The form of OpenAI's Responses API: a flat list of typed items, each a message of the log.

Messages, calls, their outputs and reasoning are all items of the same rank, so one response gives
several messages; what the whole response used is told with the last of them, once. Items whose
tool runs on the server (web search, code interpreter, MCP...) are no calls: nobody has to answer.
"""

from __future__ import annotations

from typing import Any

from ...model.given import Given
from ...model.tools import ToolCall, ToolResult
from ...model.usage import Usage
from ..lenient import decoded, dicts, kind, normal_role, present, said, usage_of, word

FORM = "openai-responses"
_PARTS = frozenset({"input_text", "output_text", "input_image", "input_file", "summary_text", "computer_screenshot"})
# A type alone may be anybody's word; the named field is what makes the item this form's.
_MARKS = {
    "reasoning": ("summary", "encrypted_content"),
    "compaction": ("encrypted_content",),
    "item_reference": ("id",),
    "program": ("call_id",),
    "additional_tools": ("tools",),
    "configuration_update": ("reasoning", "text"),
}
# Parts of messages, and events of streams, are none by themselves.
_PIECES = _PARTS | {
    *("text", "image", "image_url", "audio", "input_audio", "video", "file", "document", "refusal", "reasoning_text"),
    *("tool_use", "tool_result", "thinking", "redacted_thinking", "function", "custom", "error", "ping"),
}
_EVENTS = ("message", "content_block_")
_OTHERS = ("tool_call", "mcp_tool_")  # words of other libraries
_OUTPUTS = ("_call_output", "tool_search_output", "program_output", "mcp_approval_response")
_TOLD = frozenset({"additional_tools", "configuration_update", "compaction_trigger"})
_CLIENT_CALLS = frozenset(
    {
        "function_call",
        "custom_tool_call",
        "computer_call",
        "local_shell_call",
        "shell_call",
        "apply_patch_call",
    }
)
_FAILED = frozenset({"failed", "incomplete"})


def recognise(value: dict[str, Any], kinds: frozenset[str]) -> list[Given]:
    """Recognise an item, or all items of a whole response."""
    if _is_response(value):
        return _of_response(value)
    return [_given(value)] if _is_item(value, kinds) else []


def _is_response(value: dict[str, Any]) -> bool:
    is_marked = word(value.get("object")).startswith("response") or ("model" in value and "type" not in value)
    return is_marked and isinstance(value.get("output"), list)


def _of_response(value: dict[str, Any]) -> list[Given]:
    found = [_given(item) for item in dicts(value["output"])]
    if found:
        model = word(value.get("model")) or None
        found[-1] = found[-1]._replace(model=model, usage=usage_of(value.get("usage")))
    return found


def _is_item(value: dict[str, Any], kinds: frozenset[str]) -> bool:
    name = kind(value)
    if name == "message" or not name:
        return _is_message(value, kinds)
    if name in _MARKS:
        return any(mark in value for mark in _MARKS[name])
    # Whatever else has a type of its own and nobody who says it is an item of tomorrow: it is kept as it is.
    return "role" not in value and name not in _PIECES and "." not in name and not name.startswith((*_EVENTS, *_OTHERS))


def _is_message(value: dict[str, Any], kinds: frozenset[str]) -> bool:
    if not isinstance(value.get("role"), str) or "content" not in value:
        return False
    return kind(value) == "message" or not kinds.isdisjoint(_PARTS)


def _is_output(name: str) -> bool:
    return name.endswith(_OUTPUTS)


def _given(value: dict[str, Any]) -> Given:
    role = _role(value)
    return Given(
        form=FORM,
        role=role,
        value=value,
        id=word(value.get("id")) or None,
        calls=calls(value),
        results=results(value),
        is_turn=role == "user",
    )


def _role(value: dict[str, Any]) -> str:
    name = kind(value)
    if _is_output(name):
        return "tool"
    if name in _TOLD:
        return "system"
    return normal_role(word(value.get("role")) or "assistant")


def content(value: dict[str, Any]) -> Any:
    """Return the parts or the text of a message, the output of a call; any other item is a part itself."""
    name = kind(value)
    if name in ("", "message"):
        return present(value.get("content"))
    return present(value["output"]) if _is_output(name) and "output" in value else [value]


def text(value: dict[str, Any]) -> str:
    """Join what a message says or a call gave back; other items say nothing."""
    name = kind(value)
    if name in ("", "message"):
        return said(value.get("content"))
    return said(value.get("output")) if _is_output(name) else ""


def calls(value: dict[str, Any]) -> tuple[ToolCall, ...]:
    """Return the call that the item is, if the client has to run it."""
    name = kind(value)
    is_client_search = name == "tool_search_call" and value.get("execution") == "client"
    if name not in _CLIENT_CALLS and not is_client_search:
        return ()
    tool = word(value.get("name")) or name.removesuffix("_call")
    return (ToolCall(_call_id(value) or "call-0", tool, _arguments(value)),)


def _call_id(value: dict[str, Any]) -> str:
    return word(value.get("call_id")) or word(value.get("id"))


def _arguments(value: dict[str, Any]) -> Any:
    if "arguments" in value:
        return decoded(value["arguments"])
    return next((value[key] for key in ("input", "action", "actions", "operation") if key in value), None)


def results(value: dict[str, Any]) -> tuple[ToolResult, ...]:
    """Return the result that the item is."""
    name = kind(value)
    if not name.endswith("_call_output") and name != "tool_search_output":
        return ()
    output = value.get("tools") if name == "tool_search_output" else value.get("output")
    tool = word(value.get("name")) or None
    return (ToolResult(_call_id(value), present(output), success=value.get("status") not in _FAILED, name=tool),)


def usage(data: dict[str, Any]) -> Usage | None:
    """Leave usage to the common reading: the input counts all of the prompt here, as it does with us."""
    return None
