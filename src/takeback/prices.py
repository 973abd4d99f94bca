"""What a call cost, from a published price list; never guessed.

The list is the one in the installed version of the ``genai-prices`` package (``takeback[prices]``); nothing is fetched.
A model that is not on it has no price here, and its cost stays whatever the caller gave.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from .errors import Invalid, NotFound, Unsupported
from .model.usage import Usage
from .providers import NAMES, find_provider


def priced(usage: Any, model: str, *, provider: str | None = None, at: datetime | None = None) -> Usage:
    """Return a usage with its cost in dollars at a model's list price, now or at a time; no price raises NotFound.

    ``usage`` is whatever ``Usage.of`` takes; ``provider`` is a name that ``context`` takes, or one from the list.
    """
    try:
        import genai_prices
    except ImportError as error:
        raise Unsupported("prices need: pip install 'takeback[prices]'", capability="prices") from error
    if not isinstance(model, str) or not model:
        raise Invalid(f"model must be a model's name, not {model!r}")
    used = Usage.of(usage)
    try:
        found = genai_prices.calc_price(
            genai_prices.Usage(
                input_tokens=used.input_tokens,
                output_tokens=used.output_tokens,
                cache_read_tokens=used.cache_read_tokens,
                cache_write_tokens=used.cache_write_tokens,
            ),
            model_ref=model,
            provider_id=_listed(provider),
            genai_request_timestamp=at,
        )
    except LookupError as error:
        raise NotFound(f"no price is known for {model!r} ({error}); pass the cost yourself: Usage(cost=...)") from error
    except ValueError as error:
        raise Invalid(f"this usage cannot be priced: {error}") from error
    return replace(used, cost=float(found.total_price))


def _listed(provider: str | None) -> str | None:
    """Return the name that the list has for a provider; a name that is none of ours may be one of its own."""
    return (find_provider(provider).rules.prices if provider in NAMES else None) or provider
