"""From the log to a request: read, repair, choose what fits, write.

Nothing is written to the store, and only the log decides: the same session always gives the same bytes, and a longer
one begins with the same bytes, so that the provider's cache is hit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from itertools import groupby
from math import inf
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec.structs import replace

from ..errors import Corrupt
from ..model.entry import Entry
from ..model.message import Message
from ..model.work import Compaction
from ..providers import find_provider
from ..providers.normal import Item, Notes, clean
from ..providers.provider import Provider
from . import budget
from .read import read
from .regular import Judged, judged
from .repair import repair
from .runs import Run, runs_in
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
    unread: budget.Unread | None
    denied: Mapping[tuple[int, str], str]


def build(
    provider: str,
    sources: Iterable[Source],
    *,
    model: str | None = None,
    prompt: str | None = None,
    compaction: Compaction | None = None,
    max_tokens: int | None = None,
    count: Count = estimate,
    unread: budget.Unread | None = None,
    denied: Mapping[tuple[int, str], str] = MappingProxyType({}),
) -> Context:
    """Build the context of messages and tool starts; ``sources`` begin after the compaction.

    ``denied`` are the open calls that a person did not allow, by seq and id, with what the model is told of each.

    With a budget, a part of the log may be left ``unread``: then ``sources`` hold what of it has to stay, and
    everything behind it. If that does not fill the budget, ``TooLittle`` is raised.
    """
    asked = _Asked(find_provider(provider), model, prompt, compaction, max_tokens, count, unread, denied)
    pinned = {compaction.upto} if compaction is not None and compaction.summary is not None else set[int]()
    known = budget.LogFacts(pinned, {})
    most = inf if max_tokens is None else budget.least_cut(max_tokens)
    steps = judged([*sources], asked.speaks, model, count, known, most=most)
    while (found := _built(asked, steps, known)) is None:
        pass  # an id was used twice, and the steps that share it are left to repair now
    return found


def _built(asked: _Asked, steps: Judged, known: budget.LogFacts) -> Context | None:
    """Build a context of judged steps; None if there are fewer regular ones than it seemed."""
    speaks, notes = asked.speaks, Notes()
    summary, upto = (None, 0) if asked.compaction is None else (asked.compaction.summary, asked.compaction.upto)
    said = read(
        *(steps.conversation(), notes, steps.items),
        summary=summary,
        upto=upto,
        developer=speaks.rules.developer,
        denied=asked.denied,
    )
    if steps.leave(said.items, speaks):
        return None
    words = (clean(asked.prompt or ""), *said.system)
    system = "\n\n".join(text for text in words if text.strip()) or None
    room = budget.Budget(asked.max_tokens, asked.count(system or ""), asked.count)
    # A conversation is cut before neighbouring messages are joined.
    apart = replace(speaks.rules, alternates=False, tidy=_apart) if asked.max_tokens is not None else speaks.rules
    tried = deepcopy(notes)
    items = repair(said.items, apart, tried, model=asked.model)
    if steps.leave(items, speaks):
        return None
    if asked.max_tokens is None:
        tokens, omitted = budget.count_all(items, room, known), tuple[str, ...]()
    else:
        items, tried, omitted, tokens = _fitting(asked, (said.items, notes), (items, tried), room, known)
    messages = _written(items, speaks, asked.model)
    return Context(speaks.rules.form, asked.model, system, messages, steps.named(tried, upto), omitted, tokens)


_Noted = tuple[list[Item], Notes]


def _fitting(
    asked: _Asked, said: _Noted, apart: _Noted, room: budget.Budget, known: budget.LogFacts
) -> tuple[list[Item], Notes, tuple[str, ...], int]:
    """Make a conversation valid and short enough, given as it was said and with its parts repaired."""
    limit = room.limit or 0
    while True:
        fitted = budget.fit(apart[0], room, known, asked.unread)
        chosen, noted = (fitted.items, deepcopy(apart[1])) if fitted.omitted else (said[0], deepcopy(said[1]))
        items = repair(chosen, asked.speaks.rules, noted, model=asked.model)
        tokens = budget.tokens_of(items, room, fitted.factor)
        if tokens <= limit:
            return items, noted, fitted.omitted, tokens
        room = room._replace(margin=room.margin + tokens - limit)  # repair added text: leave that much free and retry


def _written(items: Sequence[Item], speaks: Provider, model: str | None) -> list[dict[str, Any]]:
    """Write items, and the messages of runs in their places."""
    found = list[dict[str, Any]]()
    for is_run, some in groupby(runs_in(items), lambda each: isinstance(each, Run)):
        if is_run:
            found += (message for run in some for message in run.messages)  # type: ignore[union-attr]
        else:
            found += speaks.write(list(some), model)  # type: ignore[arg-type]
    return found


def _apart(items: Sequence[Item], *_: object) -> list[Item]:
    return list(items)


def outlasting(sources: Iterable[Source]) -> list[Source]:
    """Return what nothing hides: system messages, and pinned ones with the calls and results they belong to."""
    said = [source for source in sources if isinstance(source, Message) and source.data is not None]
    stays, calls = {message.seq for message in said if _stays(message)}, set[str]()
    wanted = set[str]()
    for message in reversed(said):  # a pinned result stays with its call, which is before it
        if message.seq in stays:
            wanted |= {result.call_id for result in message.tool_results}
        elif wanted and (asked := wanted & {call.id for call in message.tool_calls}):
            stays.add(message.seq)
            wanted -= asked
    found = list[Source]()
    for message in said:
        if message.seq in stays:
            calls |= {call.id for call in message.tool_calls}
        elif not calls or calls.isdisjoint(result.call_id for result in message.tool_results):
            continue
        found.append(message)
    return found


def _stays(message: Message) -> bool:
    if b"system" not in (message.data or b"") and b"pinned" not in (message.data or b""):
        return False  # without decoding it
    try:
        return message.body.role in ("system", "developer") or budget.is_pinned(message.body)
    except Corrupt:
        return False
