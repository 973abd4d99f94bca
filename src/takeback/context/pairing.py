"""Calls and their results: each result right after its call, open calls closed, results without a call dropped.

Ids may repeat, and Gemini's results may name the tool instead, so a result is matched to the nearest open call before
it. A stored message that holds exactly the right results in the right place stays as it is.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ..providers.normal import Call, Item, Media, Notes, Part, Result, Text, verbatim
from ..providers.rules import Rules

INTERRUPTED = "interrupted: no result was recorded"
_NEVER = (sys.maxsize, 0)


def paired(items: Sequence[Item], rules: Rules, notes: Notes) -> list[Item]:
    """Move every result right after its call, close open calls, and drop results without a call."""
    items = _gathered(items, rules) if rules.per_message else items
    pairs, found, number = _match(items, notes), list[Item](), 0
    _note_moves(items, pairs, rules, notes)
    for unit in _units(items, rules):
        calls = dict[_Place, Call]()
        for index, step in unit:
            item, parts = items[index], list[Part]()
            for place, part in enumerate(item.parts):
                if not isinstance(part, Call | Result):
                    parts.append(part)
                elif isinstance(part, Call) and _can_stand(part, _Place(index, place, step), items, pairs, rules):
                    calls[_Place(index, place, step)] = numbered = replace(part, number=number + len(calls))
                    parts.append(numbered)
                elif isinstance(part, Call):
                    notes.add("left out a call whose result could not be made up", item.seq)
            if parts:
                found.append(_rebuilt(item, tuple(parts)))
        number += len(calls)
        if calls:
            found += _answers(calls, items, pairs, rules, notes)
    return found


def _gathered(items: Sequence[Item], rules: Rules) -> list[Item]:
    """Join neighbouring assistant items of other formats, for providers that put calls inside messages."""
    found = list[Item]()
    for item in items:
        last = found[-1] if found else item
        both = found and last.role == item.role == "assistant" and rules.form not in (last.form, item.form)
        if both and not (last.half or item.half or (_calls(last) and _speaks(item))):
            found[-1] = Item("assistant", (*last.parts, *item.parts), last.seq)
        else:
            found.append(item)
    return found


def _calls(item: Item) -> bool:
    return any(isinstance(part, Call) for part in item.parts)


def _speaks(item: Item) -> bool:
    return any(isinstance(part, Text | Media) for part in item.parts)


class _Place(NamedTuple):
    """The position of a part: the item, the part in it, and the run of assistant items it belongs to."""

    item: int
    part: int
    step: int


class _Pairs(NamedTuple):
    """Which result answers which call, both ways."""

    results: dict[_Place, tuple[int, int]]
    calls: dict[tuple[int, int], _Place]


def _match(items: Sequence[Item], notes: Notes) -> _Pairs:
    """Match each result to the nearest open call before it with its id; Gemini's may name the tool instead."""
    by_id, by_name = defaultdict[str, list[_Place]](list), defaultdict[str, list[_Place]](list)
    pairs, step = _Pairs({}, {}), 0
    for number, item in enumerate(items):
        step += item.role != "assistant"
        for index, part in enumerate(item.parts):
            if isinstance(part, Call):
                by_id[part.id].append(_Place(number, index, step))
                by_name[part.name].append(_Place(number, index, step))
            elif isinstance(part, Result):
                found = _newest(by_id[part.call_id], pairs) or _newest(by_name[part.call_id], pairs)
                if found is None:
                    notes.add("dropped a result without a call", item.seq)
                else:
                    pairs.results[found], pairs.calls[number, index] = (number, index), found
    return pairs


def _newest(places: list[_Place], pairs: _Pairs) -> _Place | None:
    """Return the first open call of the newest step that has one."""
    while places and places[-1] in pairs.results:
        places.pop()
    found = None
    for place in reversed(places):
        if place.step != places[-1].step:
            break
        found = found if place in pairs.results else place
    return found


def _units(items: Sequence[Item], rules: Rules) -> Iterator[list[tuple[int, int]]]:
    """Yield runs of items whose calls are answered together, as (index, step).

    An assistant that says something new after a call has continued without its result: that starts another unit.
    """
    unit, called, step = list[tuple[int, int]](), False, 0
    for index, item in enumerate(items):
        step += item.role != "assistant"
        ends = item.role != "assistant" or rules.per_message or (called and _speaks(item))
        ends = ends or (index > 0 and items[index - 1].half)
        if unit and ends:
            yield unit
            unit, called = [], False
        unit.append((index, step))
        called = called or _calls(item)
        if item.role != "assistant":
            yield unit
            unit, called = [], False
    if unit:
        yield unit


def _can_stand(call: Call, place: _Place, items: Sequence[Item], pairs: _Pairs, rules: Rules) -> bool:
    """Whether a call will have a result; some calls accept only a result in the provider's own format."""
    if place in pairs.results:
        item, part = pairs.results[place]
        if verbatim(items[item].parts[part], rules.form) is not None:
            return True
    return rules.closes(call)


def _rebuilt(item: Item, parts: tuple[Part, ...]) -> Item:
    """Return an item with its parts but no results; numbering its calls alone does not change what it says."""
    if len(parts) == len(item.parts):
        return replace(item, parts=parts)
    role = "user" if item.role == "tool" else item.role
    return replace(item, role=role, parts=parts, raw=None)


def _answers(
    calls: dict[_Place, Call], items: Sequence[Item], pairs: _Pairs, rules: Rules, notes: Notes
) -> Iterator[Item]:
    """Yield the results of a unit in order; a stored message of exactly these results stays one message."""
    sent = set[int]()
    for place, call in _in_order(calls, pairs, rules):
        if place not in pairs.results:
            notes.add("closed a call without a result", items[place.item].seq)
            answer = Result(call.id, (Text(INTERRUPTED),), False, call.name, to=call)
            yield Item("tool", (answer,), items[place.item].seq)
            continue
        index, part = pairs.results[place]
        source = items[index]
        owners = [pairs.calls.get((index, each)) for each in range(len(source.parts))]
        if not _stays_whole(source, owners, list(calls), rules):
            yield Item("tool", (_tied(source.parts[part], call, source.seq, rules, notes),), source.seq)
        elif index not in sent:
            sent.add(index)
            tied = tuple(
                _tied(each, calls[owner], source.seq, rules, notes)
                for each, owner in zip(source.parts, owners, strict=True)
                if owner
            )
            kept = source.role != "assistant" and all(map(_same_raw, tied, source.parts))
            yield replace(source, role="tool", parts=tied, raw=source.raw if kept else None)


def _in_order(calls: dict[_Place, Call], pairs: _Pairs, rules: Rules) -> list[tuple[_Place, Call]]:
    """Return calls in the order in which their results are sent: as they arrived, where the provider allows it."""
    if rules.ordered or len(calls) < 2:
        return list(calls.items())
    return sorted(calls.items(), key=lambda it: pairs.results.get(it[0], _NEVER))


def _stays_whole(source: Item, owners: list[_Place | None], calls: list[_Place], rules: Rules) -> bool:
    """Whether a stored message holds only results of these calls, in their order if the provider requires it."""
    if source.raw is None or source.form != rules.form or any(owner not in calls for owner in owners):
        return False
    first = calls.index(owners[0]) if owners[0] else 0
    return not rules.ordered or owners == calls[first : first + len(owners)]


def _tied(part: Part, call: Call, seq: int, rules: Rules, notes: Notes) -> Part:
    """Tie a result to its call; drop its JSON if that names another call or answers another kind of call."""
    if not isinstance(part, Result):
        return part
    tied, known = replace(part, to=call), verbatim(part, rules.form) is not None
    keeps = known and rules.agrees(tied)
    if known and not keeps:
        notes.add("rewrote a result to fit its call", seq)
    return replace(tied, call_id=call.id, name=call.name, raw=part.raw if keeps else None)


def _same_raw(one: Part, other: Part) -> bool:
    return one.raw is other.raw


def _note_moves(items: Sequence[Item], pairs: _Pairs, rules: Rules, notes: Notes) -> None:
    """Note the results that did not directly follow their call."""
    said = list[int]()
    for item in items:
        said.append((said[-1] if said else 0) + any(not isinstance(part, Result) for part in item.parts))
    last = {index: unit[-1][0] for unit in _units(items, rules) for index, _ in unit}
    for place, (index, part) in pairs.results.items():
        between = said[index - 1] - said[last[place.item]] if index > last[place.item] else 0
        before = items[index].parts[:part]
        if between > 0 or any(not isinstance(each, Result) for each in before):
            notes.add("moved a result to its call", items[index].seq)
