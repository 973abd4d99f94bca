"""The form of OpenAI's Chat Completions, which many other providers speak too.

A message has a role and content; calls lie beside the content in ``tool_calls``, each result is
a message of its own. What makes a message this form is one of the fields or parts that only it
has; a role with text and nothing else is as good in any form, and is left to the caller.
"""

from __future__ import annotations

from typing import Any

from ...model.given import Given
from ...model.tools import ToolCall, ToolResult
from ...model.usage import Usage
from ..counting import cost, rest, tokens
from ..lenient import decoded, dicts, fields, joined, kind, normal_role, present, said, usage_of, word

FORM = "openai-chat"
REASONING = ("reasoning_content", "reasoning", "reasoning_details")
_SURE_FIELDS = frozenset({"tool_call_id", "function_call"})
_OTHER_FIELDS = frozenset({"refusal", "annotations", "audio", "name", "reasoning_content", "reasoning_details"})
_PARTS = frozenset({"image_url", "input_audio", "video_url", "refusal"})
_RESPONSES_PARTS = frozenset({"input_text", "output_text", "input_image", "input_file"})


def recognise(value: dict[str, Any], kinds: frozenset[str]) -> list[Given]:
    """Recognise a message, or the first choice of a whole completion."""
    if "choices" in value and (choices := list(dicts(value["choices"]))):
        message = fields(choices[0].get("message"))
        return [_given(message, value)] if _is_message(message) else []
    return [_given(value, value)] if _is_message(value) and _is_distinct(value, kinds) else []


def _is_message(value: dict[str, Any]) -> bool:
    return isinstance(value.get("role"), str)


def _is_distinct(value: dict[str, Any], kinds: frozenset[str]) -> bool:
    """Tell whether a message has something that only this form has."""
    if "type" in value or "parts" in value or not kinds.isdisjoint(_RESPONSES_PARTS):
        return False
    if value["role"] == "function" or not _SURE_FIELDS.isdisjoint(value):
        return True
    if "tool_calls" in value and any(map(_is_call, dicts(value["tool_calls"]))):
        return True
    if not kinds.isdisjoint(_PARTS) or ("file" in kinds and any(map(_is_file, dicts(value["content"])))):
        return True
    is_typical = value["role"] == "developer" or not _OTHER_FIELDS.isdisjoint(value)
    return is_typical and all(kind(part) == "text" for part in dicts(value.get("content")))


def _is_call(call: dict[str, Any]) -> bool:
    return isinstance(call.get("function"), dict) or isinstance(call.get("custom"), dict)


def _is_file(part: dict[str, Any]) -> bool:
    return kind(part) == "file" and isinstance(part.get("file"), dict)


def _given(value: dict[str, Any], whole: dict[str, Any]) -> Given:
    role = normal_role(value["role"])
    return Given(
        form=FORM,
        role=role,
        value=value,
        id=word(whole.get("id")) or None,
        model=word(whole.get("model")) or None,
        usage=usage_of(whole.get("usage")),
        calls=calls(value),
        results=results(value),
        is_turn=role == "user",
    )


def content(value: dict[str, Any]) -> Any:
    """Return the text, or the parts."""
    return present(value.get("content"))


def text(value: dict[str, Any]) -> str:
    """Join its text, its refusal and what was spoken."""
    spoken = fields(value.get("audio")).get("transcript")
    return joined(said(value.get("content")), word(value.get("refusal")), word(spoken))


def calls(value: dict[str, Any]) -> tuple[ToolCall, ...]:
    """List its calls, the old single ``function_call`` too."""
    found = tuple(_call(number, call) for number, call in enumerate(dicts(value.get("tool_calls"))))
    old = value.get("function_call")
    return (*found, _old_call(old)) if isinstance(old, dict) else found


def _call(number: int, call: dict[str, Any]) -> ToolCall:
    asked = fields(call.get("custom")) or fields(call.get("function")) or call
    # The input of a custom tool is free text: a text that happens to be JSON must stay text.
    arguments = asked["input"] if "input" in asked else decoded(asked.get("arguments"))
    return ToolCall(word(call.get("id")) or f"call-{number}", word(asked.get("name")), arguments)


def _old_call(call: dict[str, Any]) -> ToolCall:
    """Read a call without an id; its result will refer to the name."""
    name = word(call.get("name"))
    return ToolCall(name, name, decoded(call.get("arguments")))


def results(value: dict[str, Any]) -> tuple[ToolResult, ...]:
    """Return the result that a message of a tool is."""
    if value.get("role") not in ("tool", "function"):
        return ()
    name = word(value.get("name"))
    return (ToolResult(word(value.get("tool_call_id")) or name, present(value.get("content")), name=name or None),)


def usage(data: dict[str, Any]) -> Usage | None:
    """Read the usage of chat completions, and of the gateways that speak like them."""
    if _COUNTS.isdisjoint(data):
        return None
    return Usage(
        input_tokens=tokens(data, "prompt_tokens"),
        output_tokens=tokens(data, "completion_tokens"),
        cache_read_tokens=tokens(data, *_CACHED),
        cache_write_tokens=tokens(data, *_WRITTEN),
        reasoning_tokens=tokens(data, _REASONED),
        cost=cost(data),
        extra=rest(data, (*sorted(_COUNTS), _REASONED), _CACHED, _WRITTEN),
    )


_COUNTS = frozenset({"prompt_tokens", "completion_tokens"})
_REASONED = "completion_tokens_details.reasoning_tokens"
_CACHED = ("prompt_tokens_details.cached_tokens", "cache_read_input_tokens", "prompt_cache_hit_tokens")
_WRITTEN = (
    "prompt_tokens_details.cache_write_tokens",
    "prompt_tokens_details.cache_creation_tokens",
    "cache_creation_input_tokens",
)
