"""What a model call used: tokens and money.

``input_tokens`` counts the whole prompt, cached parts included. Money is kept in whole
billionths so that sums are exact in every order; ``cost`` is the same number for people.

Providers count differently: some leave out of the input what the cache gave or took, some leave thoughts out of the
output. ``Usage.of`` reads every shape into one way of counting, so that numbers of different providers can be added.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import Invalid
from . import Portable, words

if TYPE_CHECKING:
    from .given import Forms

_NANO = 1_000_000_000
_LIMIT = 1 << 53


@cache
def _readers() -> Forms:
    """Load the readers of the providers' forms with the first usage that needs one."""
    from . import forms

    return forms()


class Usage(Portable, msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens and cost of one call or of a sum of calls; adds with ``+``.

    ``extra`` holds what else was told with them, as it was told: nothing is computed from it.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float = 0.0
    extra: dict[str, Any] = {}

    def __add__(self, other: object) -> Usage:
        if not isinstance(other, Usage):
            return NotImplemented
        counts = tuple(a + b for a, b in zip(self.counts(), other.counts(), strict=True))
        return Usage.from_counts(counts, _summed(self.extra, other.extra))

    def __hash__(self) -> int:
        return hash(self.counts())

    def __radd__(self, other: object) -> Usage:
        """Let ``sum`` add usages: it begins with 0."""
        return self if other == 0 else NotImplemented

    def __repr__(self) -> str:
        parts = [f"{self.input_tokens:,} in, {self.output_tokens:,} out"]
        parts += [f"{self.cache_read_tokens:,} from cache"] if self.cache_read_tokens else []
        parts += [words.money(self.cost)] if self.cost else []
        return f"<Usage {', '.join(parts)}>"

    def counts(self) -> tuple[int, ...]:
        """Return the six numbers as integers, cost in billionths; refuse what is no count."""
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

    def numbers(self) -> dict[str, int | float]:
        """Return the six numbers by their names."""
        return {name: getattr(self, name) for name in self.__struct_fields__ if name != "extra"}

    @classmethod
    def from_counts(cls, counts: tuple[int, ...], extra: dict[str, Any] | None = None) -> Usage:
        """Build from the six integers that ``counts`` returns."""
        values: tuple[Any, ...] = (*counts[:5], counts[5] / _NANO, extra or {})
        return cls(*values)

    @classmethod
    def of(cls, value: object) -> Usage:
        """Read a ``Usage``, a dict of its fields, or the usage of any SDK; raises ``Invalid`` for anything else."""
        usage = value if isinstance(value, Usage) else _readers().usage(value)
        usage.counts()
        return usage


def _summed(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Add what was told beside the counts: numbers are added, of anything else the last one told stays."""
    found = {**one, **other}
    for name in one.keys() & other.keys():
        first, last = one[name], other[name]
        if isinstance(first, dict) and isinstance(last, dict):
            found[name] = _summed(first, last)
        elif _is_number(first) and _is_number(last):
            found[name] = first + last
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
