"""The form of Anthropic's Messages API: a role and a list of typed blocks.

Tool results travel in user messages; a user message of nothing else is no turn of the user's and
has the role ``tool`` here. Calls are what the client has to run: ``tool_use``. Tools that run on
the server (``server_tool_use``, ``mcp_tool_use``) have their results in the same message.
"""

from __future__ import annotations

from typing import Any

from ...model.given import Given
from ...model.tools import ToolCall, ToolResult
from ...model.usage import Usage
from ..counting import common
from ..lenient import dicts, joined, kind, normal_role, present, said, usage_of, word

FORM = "anthropic"
_BLOCKS = frozenset(
    {
        "tool_use",
        "tool_result",
        "thinking",
        "redacted_thinking",
        "server_tool_use",
        "mcp_tool_use",
        "search_result",
        "container_upload",
        "compaction",
        "tool_reference",
        "browser_state",
    }
)
_RESPONSE_FIELDS = frozenset({"stop_reason", "usage", "model"})
_RESULTS = frozenset({"tool_result"})
_TEXT_EXTRAS = frozenset({"citations", "cache_control"})


def recognise(value: dict[str, Any], kinds: frozenset[str]) -> list[Given]:
    """Recognise a message or a whole response, which is a message too."""
    if not isinstance(value.get("role"), str):
        return []
    return [_given(value, kinds)] if _has_block(value, kinds) or _is_response(value) else []


def _is_response(value: dict[str, Any]) -> bool:
    return kind(value) == "message" and not _RESPONSE_FIELDS.isdisjoint(value)


def _has_block(value: dict[str, Any], kinds: frozenset[str]) -> bool:
    return bool(kinds) and (not kinds.isdisjoint(_BLOCKS) or any(map(is_block, dicts(value["content"]))))


def is_block(part: dict[str, Any]) -> bool:
    """Return whether a part is a block that only this form has."""
    name = kind(part)
    if name == "text":
        return not _TEXT_EXTRAS.isdisjoint(part)
    if name in ("image", "document"):
        return isinstance(part.get("source"), dict)
    return name in _BLOCKS or name.endswith("_tool_result")


def _given(value: dict[str, Any], kinds: frozenset[str]) -> Given:
    only_results = kinds == _RESULTS and _is_only_results(value)
    role = "tool" if only_results else normal_role(value["role"])
    return Given(
        form=FORM,
        role=role,
        value=value,
        id=word(value.get("id")) or None,
        model=word(value.get("model")) or None,
        usage=usage_of(value.get("usage")),
        calls=calls(value) if "tool_use" in kinds else (),
        results=results(value) if "tool_result" in kinds else (),
        is_turn=role == "user",
    )


def _is_only_results(value: dict[str, Any]) -> bool:
    parts = value.get("content")
    if value["role"] != "user" or not isinstance(parts, list):
        return False
    return bool(parts) and all(isinstance(part, dict) and kind(part) == "tool_result" for part in parts)


def content(value: dict[str, Any]) -> Any:
    """Return the blocks, or the text."""
    return present(value.get("content"))


def text(value: dict[str, Any]) -> str:
    """Join its text blocks and the text of tool results."""
    parts = value.get("content")
    if not isinstance(parts, list):
        return word(parts)
    return joined(*(_block_text(part) for part in parts))


def _block_text(part: object) -> str:
    if isinstance(part, dict) and kind(part) == "tool_result":
        return said(part.get("content"))
    return said([part])


def calls(value: dict[str, Any]) -> tuple[ToolCall, ...]:
    """List the calls that the client has to run."""
    blocks = (part for part in dicts(value.get("content")) if kind(part) == "tool_use")
    return tuple(_call(number, part) for number, part in enumerate(blocks))


def _call(number: int, part: dict[str, Any]) -> ToolCall:
    return ToolCall(word(part.get("id")) or f"call-{number}", word(part.get("name")), part.get("input"))


def results(value: dict[str, Any]) -> tuple[ToolResult, ...]:
    """List the results that it carries."""
    return tuple(_result(part) for part in dicts(value.get("content")) if kind(part) == "tool_result")


def _result(part: dict[str, Any]) -> ToolResult:
    failed = part.get("is_error") is True
    return ToolResult(word(part.get("tool_use_id")), present(part.get("content")), success=not failed)


def usage(data: dict[str, Any]) -> Usage | None:
    """Read usage whose input leaves out what the cache gave and took."""
    return None if _CACHE.isdisjoint(data) else common(data, "cache_read_input_tokens", "cache_creation_input_tokens")


_CACHE = frozenset({"cache_read_input_tokens", "cache_creation_input_tokens"})
