"""A context: what to send to a provider now, and what had to be changed to make it valid."""

from __future__ import annotations

from typing import Any

import msgspec

from ..model import Portable, words
from ..providers import find_provider


class Context(Portable, msgspec.Struct, frozen=True):
    """A conversation in a provider's own format, ready to be sent."""

    provider: str
    model: str | None
    system: str | None
    messages: list[Any]
    repairs: tuple[str, ...]
    omitted: tuple[str, ...]
    tokens: int

    def request(self) -> dict[str, Any]:
        """Return the keyword arguments of the SDK's call: ``client.messages.create(**context.request(), ...)``."""
        return find_provider(self.provider).request(self.model, self.system, list(self.messages))

    def __repr__(self) -> str:
        repaired = f", {words.count(len(self.repairs), 'repair')}" if self.repairs else ""
        repaired += f", {'; '.join(self.omitted)}" if self.omitted else ""
        system = ", system" if self.system else ""
        return (
            f"<Context {self.provider}{system}, {len(self.messages)} messages, about {self.tokens:,} tokens{repaired}>"
        )
