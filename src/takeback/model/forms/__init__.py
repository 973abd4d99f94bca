"""Messages in the forms of the providers: recognised when given, kept verbatim, read when looked at.

A form is a module with the same five functions: ``recognise`` and the readers ``content``,
``text``, ``calls`` and ``results``. A message is stored as its provider's own JSON beside the name
of its form; nothing is translated on the way in, so nothing is lost, and a replay is byte for byte
what the provider said. Recognising and reading never raise on odd data: what is in no known form
is left to the caller as it is, and a field of an unexpected type reads as absent.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Protocol

from ..objects import plain
from ..tools import ToolCall, ToolResult
from .given import Given, fields

__all__ = ["Given", "calls", "content", "plain", "recognise", "results", "text"]


class _Form(Protocol):
    """What the module of a form offers."""

    def recognise(self, value: dict[str, Any]) -> list[Given]: ...
    def content(self, value: dict[str, Any]) -> Any: ...
    def text(self, value: dict[str, Any]) -> str: ...
    def calls(self, value: dict[str, Any]) -> tuple[ToolCall, ...]: ...
    def results(self, value: dict[str, Any]) -> tuple[ToolResult, ...]: ...


# Asked in this order: other providers put Anthropic's blocks and marks into chat messages beside
# ``tool_calls``, and a message of Anthropic's has the same type as one of Responses.
_MODULES = {
    "gemini": "gemini",
    "openai-chat": "openai_chat",
    "anthropic": "anthropic",
    "openai-responses": "openai_responses",
}


def recognise(item: object) -> list[Given]:
    """Recognise a provider's message, item or whole response, as data or as an SDK object.

    Empty when it is in our own form or in none that is known; ``Invalid`` only for objects that are no data.
    """
    value = plain(item)
    if not isinstance(value, dict) or _is_simple(value):
        return []
    return next(filter(None, (form.recognise(value) for form in _all())), [])


def _is_simple(value: dict[str, Any]) -> bool:
    """Take the short way for the commonest message there is."""
    return len(value) == 2 and isinstance(value.get("content"), str) and value.get("role") in ("user", "assistant")


def content(form: str, value: object) -> Any:
    """Give the provider's own parts, or the text."""
    return _reader(form).content(fields(value))


def text(form: str, value: object) -> str:
    """Join all its text, one part per line: no thinking, no tool input; refusals count."""
    return _reader(form).text(fields(value))


def calls(form: str, value: object) -> tuple[ToolCall, ...]:
    """List the tool calls that it announces and the client has to run."""
    return _reader(form).calls(fields(value))


def results(form: str, value: object) -> tuple[ToolResult, ...]:
    """List the tool results that it carries."""
    return _reader(form).results(fields(value))


def _reader(form: str) -> _Form:
    """Find a form; one that a newer Takeback knows is read as the plainest."""
    return _loaded(_MODULES.get(form, "openai_chat"))


@cache
def _loaded(module: str) -> _Form:
    """Load a form when its first message is read."""
    found: Any = import_module(f".{module}", __name__)
    return found  # type: ignore[no-any-return]


@cache
def _all() -> tuple[_Form, ...]:
    return tuple(map(_loaded, _MODULES.values()))
