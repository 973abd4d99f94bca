"""What all readers of usage share: counts found by their paths, each checked before it is added to others.

A form reads the usage that its provider counts in a way of its own. What is left is read here: our own fields, and
those who tell the details of an input that counts all of the prompt.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ..errors import Invalid
from ..model.usage import Usage

_LIMIT = 1 << 53
KNOWN = frozenset(Usage.__struct_fields__)
# Where the details of the input are told, the input counts all of the prompt.
_INCLUSIVE = frozenset({"input_tokens_details", "input_token_details"})
_DETAILS = _INCLUSIVE | {"output_tokens_details", "output_token_details", "details"}
_CACHE_READ = ("input_tokens_details.cached_tokens", "input_token_details.cache_read")
_CACHE_WRITE = ("input_tokens_details.cache_write_tokens", "input_token_details.cache_creation")
_REASONING = (
    "output_tokens_details.reasoning_tokens",
    "output_tokens_details.thinking_tokens",
    "output_token_details.reasoning",
    "details.reasoning_tokens",
)
_COMMON = (*sorted(KNOWN), *_CACHE_READ, *_CACHE_WRITE, *_REASONING)
_SUMS = ("cost", "total_tokens", "total_token_count", "totalTokenCount", "totalTokens")
_NO_DETAILS: tuple[tuple[str, ...], ...] = ((), (), ())


def common(data: dict[str, Any], *beside: str) -> Usage:
    """Read our own fields, or the usage of OpenAI Responses, LangChain or Pydantic AI.

    A form whose input leaves out what the cache gave and took names the two fields ``beside`` it that tell of these;
    they are added, unless the details of the input are told.
    """
    # Most usage tells no details: what is not there need not be looked for.
    inside = _NO_DETAILS if _DETAILS.isdisjoint(data) else (_CACHE_READ, _CACHE_WRITE, _REASONING)
    more = sum([tokens(data, each) for each in beside]) if beside and _INCLUSIVE.isdisjoint(data) else 0
    told = data.get("extra")
    return Usage(
        tokens(data, "input_tokens") + more,
        tokens(data, "output_tokens"),
        tokens(data, "cache_read_tokens", *beside[:1], *inside[0]),
        tokens(data, "cache_write_tokens", *beside[1:], *inside[1]),
        tokens(data, "reasoning_tokens", *inside[2]),
        cost(data),
        {**(told if isinstance(told, dict) else {}), **rest(data, _COMMON, beside)},
    )


def rest(data: dict[str, Any], *read: tuple[str, ...]) -> dict[str, Any]:
    """Return the members of usage that were not read, by the paths of those that were; a sum of these is no news."""
    known, found = _by_name(read), dict[str, Any]()
    for name, value in data.items():
        inside = known.get(name)
        if value is None or (inside is not None and "" in inside):
            continue
        if inside is not None and isinstance(value, dict):
            value = {key: each for key, each in value.items() if key not in inside and each is not None}
            if not value:
                continue
        found[name] = value
    return found


@lru_cache(maxsize=64)
def _by_name(read: tuple[tuple[str, ...], ...]) -> dict[str, set[str]]:
    """Return the first names of paths, each with the names that are inside; an empty one means all of it."""
    found = {name: {""} for name in _SUMS}
    for path in (each for paths in read for each in paths):
        name, _, inner = path.partition(".")
        found.setdefault(name, set()).add(inner)
    return found


def tokens(data: dict[str, Any], *paths: str) -> int:
    """Return the first count that is there; none at all is 0."""
    for path in paths:
        number = _at(data, path) if "." in path else data.get(path)
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


def cost(data: dict[str, Any]) -> float:
    """Return what the provider says that it cost; nothing said is 0."""
    cost = data.get("cost")
    if cost is None:
        return 0.0
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < 1e9:
        raise Invalid(f"cost is a number from 0 to 1e9, not {_shown(cost)}")
    return cost


def _shown(value: Any) -> str:
    # Python refuses to write out integers of thousands of digits.
    return "that many" if isinstance(value, int) and value.bit_length() > 128 else f"{value!r:.40}"
