"""From the log to a request: read, repair, choose what fits, write.

Nothing is written to the store, and only the log decides: the same session always gives the same bytes, and a longer
one begins with the same bytes, so that the provider's cache is hit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from itertools import islice
from typing import Any, NamedTuple

from msgspec.structs import replace

from ..errors import Corrupt
from ..model.entry import Entry
from ..model.message import Message
from ..model.work import Compaction
from ..providers import find_provider
from ..providers.normal import Call, Item, Notes, clean
from ..providers.provider import Provider
from ..providers.rules import Rules
from . import budget
from .beginning import Beginning, find_beginning
from .read import read
from .repair import repair
from .steps import Unsure
from .tokens import Count, estimate
from .value import Context

Source = Message | Entry


class _Asked(NamedTuple):
    """The parameters of a context."""

    speaks: Provider
    model: str | None
    prompt: str | None
    compaction: Compaction | None
    max_tokens: int | None
    count: Count


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
    """Build the context of messages and tool starts; ``sources`` begin after the compaction."""
    asked = _Asked(find_provider(provider), model, prompt, compaction, max_tokens, count)
    all_ = list(sources)
    if compaction is None:  # a summary may cut answers off from their reasoning, which only repair can handle
        known = budget.LogFacts(set(), {})
        try:
            return _built(asked, all_, _beginning(asked, all_, known), known)
        except Unsure:
            pass
    known = budget.LogFacts(
        {compaction.upto} if compaction is not None and compaction.summary is not None else set(), {}
    )
    return _built(asked, all_, Beginning(), known)


def _beginning(asked: _Asked, sources: Sequence[Source], known: budget.LogFacts) -> Beginning:
    return find_beginning(sources, asked.speaks, asked.model, asked.count, known, amid=asked.max_tokens is None)


def _built(asked: _Asked, sources: Sequence[Source], begun: Beginning, known: budget.LogFacts) -> Context:
    """Build a context from a valid beginning and the rest of the sources."""
    speaks, notes = asked.speaks, Notes()
    summary, upto = (None, 0) if asked.compaction is None else (asked.compaction.summary, asked.compaction.upto)
    rest = _watched(islice(sources, begun.count, None), speaks.rules.form, known)
    said = read(rest, notes, summary=summary, upto=upto)
    words = (clean(asked.prompt or ""), *begun.system, *said.system)
    system = "\n\n".join(text for text in words if text.strip()) or None
    room = budget.Budget(asked.max_tokens, asked.count(system or ""), asked.count)
    choose = _whole if asked.max_tokens is None else _fitting
    chosen = choose(begun, said.items, speaks.rules, notes, room, known, asked.model)
    return Context(
        provider=speaks.rules.form,
        model=asked.model,
        system=system,
        messages=_written(chosen, begun, speaks, asked.model),
        repairs=chosen.notes.sentences(),
        omitted=chosen.omitted,
        tokens=chosen.tokens,
    )


class _Chosen(NamedTuple):
    """What is sent: valid items, among them the steps of the beginning from ``tail`` on."""

    items: list[Item]
    tail: int
    omitted: tuple[str, ...]
    tokens: int
    notes: Notes


def _whole(
    begun: Beginning,
    said: Sequence[Item],
    rules: Rules,
    notes: Notes,
    room: budget.Budget,
    known: budget.LogFacts,
    model: str | None,
) -> _Chosen:
    """Make a conversation valid."""
    items = repair(said, rules, notes, model=model, begun=begun.count > 0)
    _require_apart(begun, items, rules)
    return _Chosen(items, 0, (), budget.count_all(begun.steps, items, room, known), notes)


def _fitting(
    begun: Beginning,
    said: Sequence[Item],
    rules: Rules,
    notes: Notes,
    room: budget.Budget,
    known: budget.LogFacts,
    model: str | None,
) -> _Chosen:
    """Make a conversation valid and short enough; it is cut before neighbouring messages are joined."""
    tried, limit = deepcopy(notes), room.limit or 0
    apart = repair(said, replace(rules, alternates=False, tidy=_apart), tried, model=model)
    _require_apart(begun, apart, rules)
    while True:
        fitted = budget.fit(begun.steps, apart, room, known)
        chosen, noted = (fitted.items, deepcopy(tried)) if fitted.omitted else (said, deepcopy(notes))
        items = repair(chosen, rules, noted, model=model)
        tokens = budget.tokens_of(items, room, fitted.factor, begun.tokens(fitted.tail))
        if tokens <= limit:
            return _Chosen(items, fitted.tail, fitted.omitted, tokens, noted)
        room = room._replace(margin=room.margin + tokens - limit)  # repair added text: leave that much free and retry


def _require_apart(begun: Beginning, items: Sequence[Item], rules: Rules) -> None:
    """Raise ``Unsure`` if an id of the beginning is used again after it, where ids must be unique."""
    if not begun.ids:
        return
    for item in items:
        id = rules.item_id(item)
        ids = {rules.sent_id(part) for part in item.parts if type(part) is Call} if rules.unique_ids else set()
        if not begun.ids.isdisjoint(ids) or (id is not None and f"item {id}" in begun.ids):
            raise Unsure


def _written(chosen: _Chosen, begun: Beginning, speaks: Provider, model: str | None) -> list[dict[str, Any]]:
    """Write what was chosen, with the beginning inserted before the item that follows it in the log."""
    behind = begun.from_step(chosen.tail)
    if not behind:
        return speaks.write(chosen.items, model)
    place = next((place for place, item in enumerate(chosen.items) if item.seq == begun.seq), None)
    if place is None:
        raise Unsure
    return [*speaks.write(chosen.items[:place], model), *behind, *speaks.write(chosen.items[place:], model)]


def _apart(items: Sequence[Item], *_: object) -> list[Item]:
    return list(items)


def _watched(sources: Iterable[Source], provider: str, known: budget.LogFacts) -> Iterator[Source]:
    """Yield the sources, recording pins and token counts in passing."""
    for source in sources:
        if isinstance(source, Message) and source.data is not None:
            known.watch(source, provider)
        yield source


def outlasting(sources: Iterable[Source]) -> list[Source]:
    """Return what a compaction does not hide: system messages, and pinned ones with the results of their calls."""
    found, calls = list[Source](), set[str]()
    for source in sources:
        if not isinstance(source, Message) or source.data is None:
            continue
        likely = b"system" in source.data or b"pinned" in source.data  # avoids decoding the rest
        if likely and _stays(source):
            found.append(source)
            calls |= {call.id for call in source.tool_calls}
        elif calls and not calls.isdisjoint(result.call_id for result in source.tool_results):
            found.append(source)
    return found


def _stays(message: Message) -> bool:
    try:
        return message.body.role == "system" or budget.is_pinned(message.body)
    except Corrupt:
        return False
