"""Calls and their results: each result right after its call, open calls closed, results without a call dropped.

Ids may repeat, and Gemini's results may name the tool instead, so a result is matched to the nearest open call before
it. A stored message that holds exactly the right results in the right place stays as it is.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate

import msgspec
from msgspec.structs import replace

from ..model.message import is_unnamed
from ..providers.normal import Call, Item, Media, Notes, Part, Result, Text, verbatim
from ..providers.rules import Rules

INTERRUPTED = "interrupted: no result was recorded"
_NEVER = (sys.maxsize, 0)


def paired(items: Sequence[Item], rules: Rules, notes: Notes) -> list[Item]:
    """Move every result right after its call, close open calls, and drop results without a call."""
    items = _gathered(items, rules) if rules.per_message else items
    asked, answered = _match(items, notes)
    units, found, number = [*_units(items, rules)], list[Item](), 0
    _note_moves(items, units, answered, notes)
    for unit in units:
        calls = list[_Asked]()
        for index in unit:
            item, parts = items[index], list[Part]()
            for place, part in enumerate(item.parts):
                if type(part) is Call:
                    one = asked[index, place]
                    if _can_stand(one, items, rules):
                        one.call = replace(part, number=number + len(calls))
                        calls.append(one)
                        parts.append(one.call)
                    else:
                        notes.add("left out a call whose result could not be made up", item.seq)
                elif type(part) is not Result:
                    parts.append(part)
            if parts:
                found.append(_rebuilt(item, tuple(parts)))
        number += len(calls)
        found += _answers(calls, items, answered, rules, notes) if calls else ()
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
    return any([type(part) is Call for part in item.parts])  # noqa: C419 - faster


def _speaks(item: Item) -> bool:
    return any([isinstance(part, Text | Media) for part in item.parts])  # noqa: C419 - faster


class _Asked(msgspec.Struct, eq=False):
    """A call: its item, the run of assistant items it belongs to, and the place of its result, if there is one."""

    item: int
    call: Call
    step: int
    result: tuple[int, int] | None = None


_Places = dict[tuple[int, int], _Asked]  # by the number of an item, and of a part in it


def _match(items: Sequence[Item], notes: Notes) -> tuple[_Places, _Places]:
    """Match each result to the nearest open call before it with its id; Gemini's may name the tool instead.

    A result that names neither is matched by its place.

    Return all calls by their own places, and those with a result by the places of these.
    """
    by_id, by_name = defaultdict[str, list[_Asked]](list), defaultdict[str, list[_Asked]](list)
    every = list[_Asked]()
    asked, answered, step = _Places(), _Places(), 0
    for number, item in enumerate(items):
        step += item.role != "assistant"
        for index, part in enumerate(item.parts):
            if type(part) is Call:
                asked[number, index] = one = _Asked(number, part, step)
                by_id[part.id].append(one)
                by_name[part.name].append(one)
                every.append(one)
            elif type(part) is Result:
                named = part.call_id
                found = _newest(by_id[named]) or _newest(by_name[named]) if named else _next(every)
                if found is None:
                    notes.add("dropped a result without a call", item.seq)
                else:
                    found.result, answered[number, index] = (number, index), found
    return asked, answered


def _newest(calls: list[_Asked]) -> _Asked | None:
    """Return the first open call of the newest step that has one."""
    while calls and calls[-1].result is not None:
        calls.pop()
    found = None
    for one in reversed(calls):
        if one.step != calls[-1].step:
            break
        found = one if one.result is None else found
    return found


def _next(calls: list[_Asked]) -> _Asked | None:
    """Return the call that a result without an id answers, by its place: the next one that came without one too.

    Where there is none, it answers the only open call of its step; else nobody knows.
    """
    first = _newest(calls)
    waiting = [] if first is None else [one for one in calls if one.step == first.step and one.result is None]
    nameless = [one for one in waiting if is_unnamed(one.call.id)]
    return nameless[0] if nameless else waiting[0] if len(waiting) == 1 else None


def _units(items: Sequence[Item], rules: Rules) -> Iterator[list[int]]:
    """Yield runs of items whose calls are answered together, by their numbers.

    An assistant that says something new after a call has continued without its result: that starts another unit.
    """
    unit, called = list[int](), False
    for index, item in enumerate(items):
        before = items[index - 1]
        ends = item.role != "assistant" or rules.per_message or (called and _speaks(item))
        if unit and (ends or before.role != "assistant" or before.half):
            yield unit
            unit, called = [], False
        unit.append(index)
        called = called or _calls(item)
    if unit:
        yield unit


def _can_stand(one: _Asked, items: Sequence[Item], rules: Rules) -> bool:
    """Whether a call will have a result; some calls accept only a result in the provider's own format."""
    if one.result is not None and verbatim(items[one.result[0]].parts[one.result[1]], rules.form) is not None:
        return True
    return rules.closes(one.call)


def _rebuilt(item: Item, parts: tuple[Part, ...]) -> Item:
    """Return an item with its parts but no results; numbering its calls alone does not change what it says."""
    if len(parts) == len(item.parts):
        return replace(item, parts=parts)
    role = "user" if item.role == "tool" else item.role
    return replace(item, role=role, parts=parts, raw=None)


def _answers(
    calls: list[_Asked], items: Sequence[Item], answered: _Places, rules: Rules, notes: Notes
) -> Iterator[Item]:
    """Yield the results of a unit in order, as they arrived where the provider allows it.

    A stored message of exactly these results stays one message.
    """
    sent = set[int]()
    for one in calls if rules.ordered else sorted(calls, key=lambda one: one.result or _NEVER):
        call, (index, part) = one.call, one.result or (one.item, 0)
        source = items[index]
        if one.result is None:
            notes.add("closed a call without a result", source.seq)
            yield Item("tool", (Result(call.id, (Text(INTERRUPTED),), False, call.name, to=call),), source.seq)
            continue
        owners = [answered.get((index, each)) for each in range(len(source.parts))]
        if not _stays_whole(source, owners, calls, rules):
            yield Item("tool", (_tied(source.parts[part], call, source.seq, rules, notes),), source.seq)
        elif index not in sent:
            sent.add(index)
            pairs = [(each, owner.call) for each, owner in zip(source.parts, owners, strict=True) if owner]
            tied = tuple([_tied(each, call, source.seq, rules, notes) for each, call in pairs])
            kept = source.role != "assistant" and all(map(_same_raw, tied, source.parts))
            yield replace(source, role="tool", parts=tied, raw=source.raw if kept else None)


def _stays_whole(source: Item, owners: list[_Asked | None], calls: list[_Asked], rules: Rules) -> bool:
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


def _note_moves(items: Sequence[Item], units: list[list[int]], answered: _Places, notes: Notes) -> None:
    """Note the results that did not directly follow their call."""
    said = [*accumulate(any([type(part) is not Result for part in item.parts]) for item in items)]  # noqa: C419
    last = {index: unit[-1] for unit in units for index in unit}
    for (index, part), one in answered.items():
        end, before = last[one.item], items[index].parts[:part]
        if (index > end and said[index - 1] > said[end]) or any(not isinstance(each, Result) for each in before):
            notes.add("moved a result to its call", items[index].seq)
