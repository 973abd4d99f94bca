"""The providers by name: each a module with its rules, its writing, and the arguments of its SDK's call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ..errors import Invalid
from . import anthropic, gemini, openai_chat, openai_responses
from .normal import Item
from .rules import Rules


class Provider(Protocol):
    """What the module of a provider offers."""

    RULES: Rules

    def write(self, items: Sequence[Item], model: str | None) -> list[dict[str, Any]]: ...
    def plain(self, role: str, text: str) -> dict[str, Any]: ...
    def request(self, system: str | None, messages: list[Any]) -> dict[str, Any]: ...


PROVIDERS: dict[str, Provider] = {
    anthropic.FORM: anthropic,
    openai_chat.FORM: openai_chat,
    openai_responses.FORM: openai_responses,
    gemini.FORM: gemini,
}


def find_provider(name: object) -> Provider:
    """Give a provider by its name."""
    found = PROVIDERS.get(name) if isinstance(name, str) else None
    if found is None:
        raise Invalid(f"there is no provider {name!r}; the providers are {', '.join(PROVIDERS)}")
    return found
