"""What a model call used: tokens and money.

``input_tokens`` counts the whole prompt, cached parts included. Money is kept in whole
billionths so that sums are exact in every order; ``cost`` is the same number for people.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from ..errors import Invalid

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

    def __add__(self, other: Usage) -> Usage:
        return Usage.from_counts(tuple(a + b for a, b in zip(self.counts(), other.counts(), strict=True)))

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
