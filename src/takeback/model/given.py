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


class Forms(Protocol):
    """What reads messages and usage in the forms of the providers."""

    def content(self, form: str, value: object) -> Any: ...
    def text(self, form: str, value: object) -> str: ...
    def calls(self, form: str, value: object) -> tuple[ToolCall, ...]: ...
    def results(self, form: str, value: object) -> tuple[ToolResult, ...]: ...
    def usage(self, value: object) -> Usage: ...
