"""From the log to a request: read, repair, choose what fits, write.

Nothing is written to the store, and nothing but the log decides: the same session gives the same bytes, and a longer
one gives the same bytes in front, so that the provider's cache is hit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy

from msgspec.structs import replace

from ..errors import Corrupt
from ..model.entry import Entry
from ..model.message import Message
from ..model.work import Compaction
from . import budget
from .normal import Item, Notes, clean
from .providers import find_provider
from .read import read
from .repair import repair
from .rules import Rules
from .tokens import Count, estimate
from .value import Context

Source = Message | Entry


def build(
    provider: str,
    sources: Iterable[Source],
    *,
    model: str | None = None,
    prompt: str | None = None,
    compaction: Compaction | None = None,
    max_tokens: int | None = None,
    count: Count = estimate,
) -> Context:
    """Build the context of messages and tool starts; ``sources`` begin behind the compaction."""
    speaks, notes = find_provider(provider), Notes()
    summary, upto = (None, 0) if compaction is None else (compaction.summary, compaction.upto)
    known = budget.Known(set() if summary is None else {upto}, {})
    said = read(_watched(sources, provider, known), notes, summary=summary, upto=upto)
    system = "\n\n".join(text for text in (clean(prompt or ""), *said.system) if text.strip()) or None
    room = budget.Budget(max_tokens, count(system or ""), count)
    items, fitted, notes = _chosen(said.items, speaks.RULES, notes, room, known, model)
    return Context(
        provider=provider,
        model=model,
        system=system,
        messages=speaks.write(items, model),
        repairs=notes.sentences(),
        omitted=fitted.omitted,
        tokens=fitted.tokens,
    )


def _chosen(
    said: Sequence[Item], rules: Rules, notes: Notes, room: budget.Budget, known: budget.Known, model: str | None
) -> tuple[list[Item], budget.Fitted, Notes]:
    """Make a conversation valid, and as short as it must be: it is cut while its messages are still apart."""
    if room.limit is None:
        items = repair(said, rules, notes, model=model)
        return items, budget.fit(items, room, known), notes
    tried = deepcopy(notes)
    apart = repair(said, replace(rules, alternates=False, tidy=_apart), tried, model=model)
    while True:
        fitted = budget.fit(apart, room, known)
        chosen, told = (fitted.items, deepcopy(tried)) if fitted.omitted else (said, deepcopy(notes))
        items = repair(chosen, rules, told, model=model)
        over = budget.tokens_of(items, room, fitted.factor) - (room.limit or 0)
        if over <= 0:
            return items, fitted._replace(tokens=over + (room.limit or 0)), told
        room = room._replace(margin=room.margin + over)  # making it valid took more words than there was room for


def _apart(items: Sequence[Item], *_: object) -> list[Item]:
    return list(items)


def _watched(sources: Iterable[Source], provider: str, known: budget.Known) -> Iterator[Source]:
    """Note in passing which messages are pinned, and how many tokens the provider counted when it answered."""
    for source in sources:
        if isinstance(source, Message) and source.data is not None:
            _watch(source, provider, known)
        yield source


def outlasting(sources: Iterable[Source]) -> list[Source]:
    """Give what a compaction does not hide: what the system said, and what is pinned, with the results of its calls."""
    found, calls = list[Source](), set[str]()
    for source in sources:
        if not isinstance(source, Message) or source.data is None:
            continue
        likely = b"system" in source.data or b"pinned" in source.data  # what is not has not to be decoded
        if likely and _stays(source):
            found.append(source)
            calls |= {call.id for call in source.tool_calls}
        elif calls and not calls.isdisjoint(result.call_id for result in source.tool_results):
            found.append(source)
    return found


def _stays(message: Message) -> bool:
    try:
        return message.body.role == "system" or is_pinned(message)
    except Corrupt:
        return False


def is_pinned(message: Message) -> bool:
    """Say whether a message is to stay in contexts whatever leaves."""
    return bool(message.body.metadata) and (message.body.metadata or {}).get("pinned") is True


def _watch(message: Message, provider: str, known: budget.Known) -> None:
    try:
        body = message.body
    except Corrupt:
        return  # it is skipped and noted where it is read
    if is_pinned(message) and body.role != "system":
        known.pinned.add(message.seq)
    if body.usage is not None and body.form in (None, provider) and body.usage.input_tokens:
        known.counted[message.seq] = body.usage.input_tokens + body.usage.output_tokens
