"""The form of Gemini: contents with a role and parts, in camelCase from the API, in either case from people.

Function calls and responses often have no id. A call without one is named by its place among the
calls of its message (``call-0``), which is the same at every reading; a response without one
refers to the function by name. A response that holds ``error`` is a failure, as Gemini defines it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ...model.given import Given
from ...model.tools import ToolCall, ToolResult
from ...model.usage import Usage
from ..counting import rest, tokens
from ..lenient import dicts, fields, joined, normal_role, present, usage_of, word

FORM = "gemini"
_OUTPUT = ("candidates_token_count", "candidatesTokenCount", "response_token_count", "responseTokenCount")
_COUNTS = frozenset({"prompt_token_count", "promptTokenCount", *_OUTPUT})
_ROLES = ("", "user", "model", "function", "tool", "system")
_OTHERS_PART_KEYS = frozenset({"type", "kind", "part_kind"})


def recognise(value: dict[str, Any], kinds: frozenset[str]) -> list[Given]:
    """Recognise a content, or the first candidate of a whole response."""
    if "parts" not in value and "candidates" not in value:
        return []
    candidates = list(dicts(value.get("candidates")))
    if candidates:
        said = candidates[0].get("content")
        return [_given(said, value)] if isinstance(said, dict) else []
    return [_given(value, value)] if _is_content(value) else []


def _is_content(value: dict[str, Any]) -> bool:
    """Tell a content from messages of other libraries that have parts too; those name the type of each."""
    parts = value.get("parts")
    if not isinstance(parts, list) or "content" in value or word(value.get("role")) not in _ROLES:
        return False
    return all(isinstance(part, dict) and _OTHERS_PART_KEYS.isdisjoint(part) for part in parts)


def _given(value: dict[str, Any], whole: dict[str, Any]) -> Given:
    role = _role(value)
    return Given(
        form=FORM,
        role=role,
        value=value,
        id=word(either(whole, "responseId")) or None,
        model=word(either(whole, "modelVersion")) or None,
        usage=usage_of(either(whole, "usageMetadata")),
        calls=calls(value),
        results=results(value),
        is_turn=role == "user",
    )


def either(value: dict[str, Any], camel: str) -> Any:
    """Return a field in camelCase or in snake_case."""
    return value[camel] if camel in value else value.get(snake(camel))


@cache
def snake(camel: str) -> str:
    """Return a name in snake_case."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in camel)


def _role(value: dict[str, Any]) -> str:
    parts = value.get("parts")
    if isinstance(parts, list) and parts and len(results(value)) == len(parts):
        return "tool"
    role = word(value.get("role"))
    if not role:
        return "assistant" if calls(value) else "user"
    return normal_role(role)


def content(value: dict[str, Any]) -> Any:
    """Return the parts."""
    return value.get("parts") or []


def text(value: dict[str, Any]) -> str:
    """Join its text and the text of function responses; thoughts are not said."""
    parts = value.get("parts")
    return joined(*(_part_text(part) for part in parts)) if isinstance(parts, list) else ""


def _part_text(part: object) -> str:
    if not isinstance(part, dict):
        return word(part)
    if part.get("thought") is True:
        return ""
    response = fields(either(part, "functionResponse")).get("response")
    return joined(word(part.get("text")), *map(word, fields(response).values()))


def calls(value: dict[str, Any]) -> tuple[ToolCall, ...]:
    """List its function calls."""
    return tuple(call_of(number, call) for number, call in enumerate(_inner(value, "functionCall")))


def _inner(value: dict[str, Any], camel: str) -> list[dict[str, Any]]:
    return list(dicts([either(part, camel) for part in dicts(value.get("parts"))]))


def call_of(number: int, call: dict[str, Any]) -> ToolCall:
    """Read one function call; without an id it goes by its number."""
    arguments = call.get("args")
    return ToolCall(
        word(call.get("id")) or f"call-{number}", word(call.get("name")), {} if arguments is None else arguments
    )


def results(value: dict[str, Any]) -> tuple[ToolResult, ...]:
    """List its function responses."""
    return tuple(map(result_of, _inner(value, "functionResponse")))


def result_of(answer: dict[str, Any]) -> ToolResult:
    """Read one function response."""
    name, response = word(answer.get("name")), answer.get("response")
    success = "error" not in fields(response)
    return ToolResult(word(answer.get("id")) or name, present(response), success=success, name=name or None)


def usage(data: dict[str, Any]) -> Usage | None:
    """Read usage metadata; what tools put into the prompt is counted apart there, and so are thoughts."""
    if _COUNTS.isdisjoint(data):
        return None
    thoughts = tokens(data, "thoughts_token_count", "thoughtsTokenCount")
    prompt = tokens(data, "prompt_token_count", "promptTokenCount")
    return Usage(
        input_tokens=prompt + tokens(data, "tool_use_prompt_token_count", "toolUsePromptTokenCount"),
        output_tokens=tokens(data, *_OUTPUT) + thoughts,
        cache_read_tokens=tokens(data, "cached_content_token_count", "cachedContentTokenCount"),
        reasoning_tokens=thoughts,
        extra=rest(data, _READ),
    )


_READ = (
    *_COUNTS,
    *("thoughts_token_count", "thoughtsTokenCount", "tool_use_prompt_token_count", "toolUsePromptTokenCount"),
    *("cached_content_token_count", "cachedContentTokenCount"),
)
