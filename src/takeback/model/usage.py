"""What a model call used: tokens and money.

``input_tokens`` counts the whole prompt, cached parts included. Money is kept in whole
billionths so that sums are exact in every order; ``cost`` is the same number for people.

Providers count differently: Anthropic's input leaves out what the cache gave or took, Gemini's
output leaves out thoughts. ``Usage.of`` reads every shape into one way of counting, so that
numbers of different providers can be added.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from ..errors import Invalid
from . import words

_NANO = 1_000_000_000
_LIMIT = 1 << 53


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens and cost of one call or of a sum of calls; adds with ``+``."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: object) -> Usage:
        if not isinstance(other, Usage):
            return NotImplemented
        return Usage.from_counts(tuple(a + b for a, b in zip(self.counts(), other.counts(), strict=True)))

    def __radd__(self, other: object) -> Usage:
        """Let ``sum`` add usages: it begins with 0."""
        return self if other == 0 else NotImplemented

    def __repr__(self) -> str:
        parts = [f"{self.input_tokens:,} in, {self.output_tokens:,} out"]
        parts += [f"{self.cache_read_tokens:,} from cache"] if self.cache_read_tokens else []
        parts += [words.money(self.cost)] if self.cost else []
        return f"<Usage {', '.join(parts)}>"

    def counts(self) -> tuple[int, ...]:
        """Give the six numbers as integers, cost in billionths; refuse what is no count."""
        tokens = (
            self.input_tokens,
            self.output_tokens,
            self.cache_read_tokens,
            self.cache_write_tokens,
            self.reasoning_tokens,
        )
        for number in tokens:
            if type(number) is not int or not 0 <= number < _LIMIT:
                raise Invalid(f"token counts are whole numbers from 0 to 2^53, not {number!r}")
        cost = self.cost
        if not isinstance(cost, int | float) or not math.isfinite(cost) or not 0 <= cost < 1e9:
            raise Invalid(f"cost is a number from 0 to 1e9, not {cost!r}")
        return (*tokens, round(cost * _NANO))

    @classmethod
    def from_counts(cls, counts: tuple[int, ...]) -> Usage:
        """Build from the six integers that ``counts`` gives."""
        values: tuple[Any, ...] = (*counts[:5], counts[5] / _NANO)
        return cls(*values)

    @classmethod
    def of(cls, value: object) -> Usage:
        """Read a ``Usage``, a dict of its fields, or the usage of any SDK; ``Invalid`` if it cannot be understood."""
        from .objects import plain

        usage = value if isinstance(value, Usage) else _read(plain(value))
        usage.counts()
        return usage


def _read(data: Any) -> Usage:
    if not isinstance(data, dict):
        raise Invalid(f"usage is a Usage, a dict or an SDK's usage object, not {type(data).__name__}")
    for known, reader in _SHAPES:
        if not known.isdisjoint(data):
            return reader(data)
    if data:
        raise Invalid(f"usage has no field with a known name, only {', '.join(map(repr, data))[:200]}")
    return Usage()


def _read_gemini(data: dict[str, Any]) -> Usage:
    """Read usage metadata; what tools put into the prompt is counted apart there, and so are thoughts."""
    thoughts = _tokens(data, "thoughts_token_count", "thoughtsTokenCount")
    prompt = _tokens(data, "prompt_token_count", "promptTokenCount")
    said = _tokens(data, *_GEMINI_OUTPUT)
    return Usage(
        input_tokens=prompt + _tokens(data, "tool_use_prompt_token_count", "toolUsePromptTokenCount"),
        output_tokens=said + thoughts,
        cache_read_tokens=_tokens(data, "cached_content_token_count", "cachedContentTokenCount"),
        reasoning_tokens=thoughts,
    )


def _read_chat(data: dict[str, Any]) -> Usage:
    """Read the usage of chat completions, and of the gateways that speak like them."""
    cached = ("prompt_tokens_details.cached_tokens", "cache_read_input_tokens", "prompt_cache_hit_tokens")
    written = (
        "prompt_tokens_details.cache_write_tokens",
        "prompt_tokens_details.cache_creation_tokens",
        "cache_creation_input_tokens",
    )
    return Usage(
        input_tokens=_tokens(data, "prompt_tokens"),
        output_tokens=_tokens(data, "completion_tokens"),
        cache_read_tokens=_tokens(data, *cached),
        cache_write_tokens=_tokens(data, *written),
        reasoning_tokens=_tokens(data, "completion_tokens_details.reasoning_tokens"),
        cost=_cost(data),
    )


def _read_messages(data: dict[str, Any]) -> Usage:
    """Read our own fields, or the usage of Anthropic, OpenAI Responses, LangChain or Pydantic AI."""
    beside = 0
    if _INCLUSIVE.isdisjoint(data):
        beside = _tokens(data, "cache_read_input_tokens") + _tokens(data, "cache_creation_input_tokens")
    return Usage(
        input_tokens=_tokens(data, "input_tokens") + beside,
        output_tokens=_tokens(data, "output_tokens"),
        cache_read_tokens=_tokens(data, *_CACHE_READ),
        cache_write_tokens=_tokens(data, *_CACHE_WRITE),
        reasoning_tokens=_tokens(data, *_REASONING),
        cost=_cost(data),
    )


_GEMINI_OUTPUT = ("candidates_token_count", "candidatesTokenCount", "response_token_count", "responseTokenCount")
# Where the details of the input are told, the input counts all of the prompt.
_INCLUSIVE = frozenset({"input_tokens_details", "input_token_details"})
_CACHE_READ = (
    "cache_read_tokens",
    "cache_read_input_tokens",
    "input_tokens_details.cached_tokens",
    "input_token_details.cache_read",
)
_CACHE_WRITE = (
    "cache_write_tokens",
    "cache_creation_input_tokens",
    "input_tokens_details.cache_write_tokens",
    "input_token_details.cache_creation",
)
_REASONING = (
    "reasoning_tokens",
    "output_tokens_details.reasoning_tokens",
    "output_tokens_details.thinking_tokens",
    "output_token_details.reasoning",
    "details.reasoning_tokens",
)
_SHAPES = (
    (frozenset({"prompt_token_count", "promptTokenCount", *_GEMINI_OUTPUT}), _read_gemini),
    (frozenset({"prompt_tokens", "completion_tokens"}), _read_chat),
    (frozenset({*Usage.__struct_fields__, "cache_read_input_tokens", "cache_creation_input_tokens"}), _read_messages),
)


def _tokens(data: dict[str, Any], *paths: str) -> int:
    """Give the first count that is there; none at all is 0."""
    for path in paths:
        number = _at(data, path)
        if number is not None:
            return _checked(number)
    return 0


def _at(data: Any, path: str) -> Any:
    for name in path.split("."):
        if data is None:
            return None
        if not isinstance(data, dict):
            raise Invalid(f"the details of usage are a dict, not {type(data).__name__}")
        data = data.get(name)
    return data


def _checked(number: Any) -> int:
    """Check each number before it is added to others: a sum would hide what is negative."""
    if type(number) is not int or not 0 <= number < _LIMIT:
        raise Invalid(f"token counts are whole numbers from 0 to 2^53, not {_shown(number)}")
    return number


def _cost(data: dict[str, Any]) -> float:
    cost = data.get("cost")
    if cost is None:
        return 0.0
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < 1e9:
        raise Invalid(f"cost is a number from 0 to 1e9, not {_shown(cost)}")
    return cost


def _shown(value: Any) -> str:
    # Python refuses to write out integers of thousands of digits.
    return "that many" if isinstance(value, int) and value.bit_length() > 128 else f"{value!r:.40}"
