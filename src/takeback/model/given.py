"""A message in a provider's form, as the log takes it.

The forms themselves lie in ``providers``, above this layer: whoever reads one asks ``model.forms`` for it.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from .tools import ToolCall, ToolResult
from .usage import Usage


class Given(NamedTuple):
    """One message in a provider's form: ``value`` verbatim, beside what the log needs to know of it."""

    form: str
    role: str
    value: dict[str, Any]
    id: str | None = None
    model: str | None = None
    usage: Usage | None = None
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    is_turn: bool = False


class Form(Protocol):
    """What reads messages in the form of one provider."""

    def content(self, value: dict[str, Any]) -> Any:
        """Return the provider's own parts, or the text."""

    def text(self, value: dict[str, Any]) -> str:
        """Join all its text, one part per line: no thinking, no tool input; refusals count."""

    def calls(self, value: dict[str, Any]) -> tuple[ToolCall, ...]:
        """List the tool calls that it announces and the client has to run."""

    def results(self, value: dict[str, Any]) -> tuple[ToolResult, ...]:
        """List the tool results that it carries."""


class Forms(Protocol):
    """What reads messages and usage in the forms of the providers."""

    def find_form(self, name: str) -> Form: ...
    def usage(self, value: object) -> Usage: ...
