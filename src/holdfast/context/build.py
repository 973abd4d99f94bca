"""From the log to a request: read, repair, write.

Nothing is written to the store, and nothing but the log decides: the same session gives the same bytes, and a longer
one gives the same bytes in front, so that the provider's cache is hit.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..model.entry import Entry
from ..model.message import Message
from ..model.work import Compaction
from .normal import Call, Item, Media, Notes, Opaque, Part, Result, Text, as_json, clean
from .providers import find_provider
from .read import read
from .repair import repair
from .value import Context

_MEDIA_TOKENS = 1600


def build(
    provider: str,
    sources: Iterable[Message | Entry],
    *,
    model: str | None = None,
    prompt: str | None = None,
    compaction: Compaction | None = None,
) -> Context:
    """Build the context of messages and tool starts; ``sources`` begin behind the compaction."""
    speaks, notes = find_provider(provider), Notes()
    summary, upto = (None, 0) if compaction is None else (compaction.summary, compaction.upto)
    said = read(sources, notes, summary=summary, upto=upto)
    items = repair(said.items, speaks.RULES, notes)
    system = "\n\n".join(text for text in (clean(prompt or ""), *said.system) if text.strip()) or None
    return Context(
        provider=provider,
        model=model,
        system=system,
        messages=speaks.write(items, model),
        repairs=notes.sentences(),
        omitted=(),
        tokens=_estimated(system, items),
    )


def _estimated(system: str | None, items: Iterable[Item]) -> int:
    """Estimate tokens: four bytes each, a constant for what is no text."""
    size = sum(_size(part) for item in items for part in item.parts) + len((system or "").encode())
    return (size + 3) // 4


def _size(part: Part) -> int:
    match part:
        case Text():
            return len(part.text.encode())
        case Call():
            return len(part.name) + len(as_json(part.arguments))
        case Result():
            return sum(map(_size, part.parts))
        case Opaque():
            return len(as_json(part.raw))
        case Media():
            return 4 * _MEDIA_TOKENS
    return 0
