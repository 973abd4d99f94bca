"""Strict validators for requests to the providers, made from the providers' own rules.

    validators.problems("anthropic", {"messages": [...]})      # [] or plain sentences, each with its location
    validators.require_valid("gemini", {"contents": [...]})    # raises AssertionError with those sentences

A request is the dict of keyword arguments for the SDK's call. The rules come from the providers' documentation and from
the errors their APIs return, never from what Takeback produces; if the SDK is installed, its own types are checked too.
What the caller adds later (``max_tokens``, ``tools``, ``model``) may be missing, but what is present is checked. Rules
for particular models apply if ``model`` names one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from takeback import Invalid

from . import _sdk, anthropic, bedrock, gemini, openai_chat, openai_responses

_FORMATS: dict[str, Callable[[Mapping[str, Any]], list[str]]] = {
    "anthropic": anthropic.check,
    "openai-chat": openai_chat.check,
    "openai-responses": openai_responses.check,
    "gemini": gemini.check,
    "bedrock": bedrock.check,
}
PROVIDERS = tuple(_FORMATS)

__all__ = ["PROVIDERS", "problems", "require_valid"]


def problems(provider: str, request: Mapping[str, Any], *, sdk: bool = True) -> list[str]:
    """Return what is wrong with a request, one sentence for each problem; an acceptable request has none.

    With ``sdk``, the types of the provider's SDK are checked as well, if it is installed.
    """
    if provider not in _FORMATS:
        raise Invalid(f"no such provider: {provider!r}; use one of {', '.join(PROVIDERS)}")
    return _FORMATS[provider](request) + (_sdk.check(provider, request) if sdk else [])


def require_valid(provider: str, request: Mapping[str, Any]) -> None:
    """Raise ``AssertionError`` with everything that is wrong, unless a request is acceptable."""
    if found := problems(provider, request):
        raise AssertionError(f"{provider} would refuse this request:\n" + "\n".join(f"- {each}" for each in found))
