"""A context: what to send to a provider now, and what had to be changed to make it valid."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from ..errors import Invalid
from ..model import Portable, words
from ..providers import find_provider
from ..providers.normal import listed

_SHOWN = 8


class RepairNote(Portable, msgspec.Struct, frozen=True):
    """One thing that was changed to make a conversation valid; ``sentence`` says it for people."""

    what: str
    messages: tuple[int, ...]
    new: bool
    sentence: str


class Repair(str):
    """One repair as a sentence, with what it says as fields.

    ``messages`` are the seqs of the messages it was done to, ``what`` is what was done. It is ``new`` if one of them is
    the last complete answer of the model or comes after it: for that one, no request has had the repair before.
    """

    __slots__ = ("messages", "new", "what")
    what: str
    messages: tuple[int, ...]
    new: bool

    def __new__(cls, of: RepairNote) -> Repair:
        found = super().__new__(cls, of.sentence)
        found.what, found.messages, found.new = of.what, of.messages, of.new
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return Repair, (RepairNote(self.what, self.messages, self.new, str(self)),)


def repaired(what: str, seqs: Sequence[int], *, new: bool, starts: Collection[int], summary: int) -> RepairNote:
    """Describe a repair; the starts of tools and the summary of a compaction are no messages, and not called so."""
    said = [seq for seq in seqs if seq not in starts and seq != summary]
    begun = [seq for seq in seqs if seq in starts]
    places = [f"message{'s' if len(said) > 1 else ''} {listed(said, _SHOWN)}"] if said else []
    places += [f"tool start{'s' if len(begun) > 1 else ''} {listed(begun, _SHOWN)}"] if begun else []
    places += ["the summary"] if summary in seqs and summary not in starts else []
    return RepairNote(what, tuple(said), new, f"{what} ({'; '.join(places)})" if places else what)


class Context(Portable, msgspec.Struct, frozen=True):
    """A conversation in a provider's own format, ready to be sent."""

    provider: str
    model: str | None
    system: str | None
    messages: list[Any]
    repaired: tuple[RepairNote, ...]
    omitted: tuple[str, ...]
    tokens: int

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """What was changed to make it valid: sentences, each with ``what``, ``messages`` and ``new``."""
        return tuple(map(Repair, self.repaired))

    def request(self, *, tools: Any = None, **more: Any) -> dict[str, Any]:
        """Return the keyword arguments of the SDK's call: ``client.messages.create(**context.request(max_tokens=99))``.

        ``tools`` and ``more`` go where that call takes them: Gemini's into ``config``, the tools of Bedrock into
        ``toolConfig``. Raises ``Invalid`` if there is nothing to send yet, and for an argument that the context gives
        itself.
        """
        if not any(_is_said(message) for message in self.messages):
            raise Invalid(self._nothing())
        speaks = find_provider(self.provider)
        given = more if tools is None else {"tools": tools, **more}
        return speaks.merge(speaks.request(self.model, self.system, list(self.messages)), given)

    def _nothing(self) -> str:
        there = "only instructions" if self.system or self.messages else "no message"
        left = " that can be sent (see repairs)" if self.repaired and not self.messages else ""
        return f"there is nothing to send: the conversation has {there}{left}; add a question first: session.user(...)"

    def __repr__(self) -> str:
        repaired = f", {words.count(len(self.repaired), 'repair')}" if self.repaired else ""
        new = sum(repair.new for repair in self.repaired)
        repaired += f" ({new} new)" if 0 < new < len(self.repaired) else ""
        repaired += f", {'; '.join(self.omitted)}" if self.omitted else ""
        system = ", system" if self.system else ""
        return (
            f"<Context {self.provider}{system}, {len(self.messages)} messages, about {self.tokens:,} tokens{repaired}>"
        )


def _is_said(message: Any) -> bool:
    """Whether something is more than an instruction, which nobody could answer."""
    return not isinstance(message, dict) or message.get("role") not in ("developer", "system")
