"""Lists of tools in the form that each provider's request takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .toolbox import Tool

# What Gemini knows of JSON schema; it refuses requests with other keywords.
_GEMINI = frozenset(
    (
        *("type", "format", "description", "enum", "anyOf", "oneOf", "minimum", "maximum"),
        *("items", "prefixItems", "minItems", "maxItems", "properties", "additionalProperties", "required"),
    )
)


def anthropic(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """Return ``tools`` of Anthropic's Messages API."""
    return [{"name": each.name, "description": each.description, "input_schema": each.input_schema} for each in tools]


def openai_chat(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """Return ``tools`` of OpenAI's Chat Completions API."""
    return [
        {
            "type": "function",
            "function": {"name": each.name, "description": each.description, "parameters": each.input_schema},
        }
        for each in tools
    ]


def openai_responses(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """Return ``tools`` of OpenAI's Responses API."""
    return [
        {
            "type": "function",
            "name": each.name,
            "description": each.description,
            "parameters": each.input_schema,
            "strict": False,  # strict schemas need every argument to be required
        }
        for each in tools
    ]


def gemini(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """Return ``tools`` of Gemini's generateContent: one list of function declarations."""
    declared = [
        {"name": each.name, "description": each.description, "parametersJsonSchema": _for_gemini(each.input_schema)}
        for each in tools
    ]
    return [{"functionDeclarations": declared}] if declared else []


def _for_gemini(schema: dict[str, Any]) -> dict[str, Any]:
    found = dict[str, Any]()
    for name, value in schema.items():
        if name == "properties":
            found[name] = {each: _for_gemini(inner) for each, inner in value.items()}
        elif name in _GEMINI:
            found[name] = _for_gemini(value) if isinstance(value, dict) else value
    return found
