"""Any conversation made valid for a provider: normal form in, normal form out, nothing else touched.

A log may be cut anywhere: by a crash between a call and its result, by a rewind, by a compaction, by a change of
provider. The steps run in a fixed order, each leaves alone what is right already, so a valid conversation comes
out as the same objects - and its stored JSON with them - and repairing twice changes nothing more.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from msgspec.structs import replace

from .normal import Call, Item, Media, Notes, Opaque, Part, Result, Text, verbatim, with_parts
from .rules import Rules

INTERRUPTED = "interrupted: no result was recorded"
BEGINNING = "(The conversation begins here.)"


def repair(items: Sequence[Item], rules: Rules, notes: Notes) -> list[Item]:
    """Make a conversation valid and note what had to be changed."""
    found = [fitted for item in items if (fitted := _fitted(item, rules, notes)).parts or not item.parts]
    found = _spoken(found, rules, notes)
    found = _paired(_gathered(found) if rules.per_message else found, rules, notes)
    found = rules.tidy(_joined(found, rules, notes), notes)
    found = _joined(_spoken(found, rules, notes), rules, notes)
    return _named(_begun(found, rules, notes), rules, notes)


# ---------------------------------------------------------------------- what the provider can take


def _fitted(item: Item, rules: Rules, notes: Notes) -> Item:
    """Leave out what the provider cannot take, first of all the JSON of other providers."""
    if item.form != rules.form and item.raw is not None:
        item = replace(item, raw=None)
    parts = (_fitted_part(part, item.role, item.seq, rules, notes) for part in item.parts)
    return with_parts(item, tuple(part for part in parts if part is not None))


def _fitted_part(part: Part, role: str, seq: int, rules: Rules, notes: Notes) -> Part | None:
    if verbatim(part, rules.form) is not None:
        return part
    if isinstance(part, Result):
        inner = [_fitted_part(each, "tool", seq, rules, notes) for each in part.parts]
        kept = tuple(each for each in inner if each is not None)
        same = len(kept) == len(part.parts) and all(map(_is, kept, part.parts))
        return part if same else replace(part, parts=kept)
    if isinstance(part, Opaque):
        notes.add(f"left out {part.what}{f' of {part.form}' if part.form else ''}", seq)
        return None
    if isinstance(part, Media) and not rules.takes(part, role):
        notes.add(f"left out {_described(part)}, which {rules.form} does not take here", seq)
        return Text(f"[left out: {_described(part)}]")
    return part


def _is(one: object, other: object) -> bool:
    return one is other


def _described(part: Media) -> str:
    return f"{part.kind} {part.name}" if part.name else f"{part.kind} ({part.mime})"


def _spoken(items: Sequence[Item], rules: Rules, notes: Notes) -> list[Item]:
    """Remove empty texts, and items of which nothing is left."""
    found = []
    for item in items:
        parts = tuple(_said(part, rules) for part in item.parts if not _is_blank(part, rules))
        if len(parts) < len(item.parts):
            notes.add("removed empty text", item.seq)
        if parts:
            found.append(with_parts(item, parts))
        elif not item.parts:
            notes.add("removed an empty message", item.seq)
    return found


def _is_blank(part: Part, rules: Rules) -> bool:
    return isinstance(part, Text) and not (part.text.strip() if rules.refuses_blank else part.text)


def _said(part: Part, rules: Rules) -> Part:
    """Remove empty texts inside a result."""
    if not isinstance(part, Result) or not any(_is_blank(each, rules) for each in part.parts):
        return part
    return replace(part, parts=tuple(each for each in part.parts if not _is_blank(each, rules)), raw=None)


# ---------------------------------------------------------------------- calls and results


def _gathered(items: Sequence[Item]) -> list[Item]:
    """Make one message of an assistant's neighbouring items, as the form has it that keeps calls in messages."""
    found = list[Item]()
    for item in items:
        last = found[-1] if found else item
        both = found and last.role == item.role == "assistant" and last.raw is None and item.raw is None
        if both and not (_calls(last) and _speaks(item)):
            found[-1] = Item("assistant", (*last.parts, *item.parts), last.seq)
        else:
            found.append(item)
    return found


def _calls(item: Item) -> bool:
    return any(isinstance(part, Call) for part in item.parts)


def _speaks(item: Item) -> bool:
    return any(isinstance(part, Text | Media) for part in item.parts)


class _Place(NamedTuple):
    """Where a part lies: the item, the part in it, and the assistant's run that the item belongs to."""

    item: int
    part: int
    step: int


class _Pairs(NamedTuple):
    """Which result answers which call, both ways."""

    results: dict[_Place, tuple[int, int]]
    calls: dict[tuple[int, int], _Place]


def _match(items: Sequence[Item], notes: Notes) -> _Pairs:
    """Tie each result to the nearest open call of its id before it; Gemini's may name the tool instead."""
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
    """Give the first open call of the newest step that has one."""
    while places and places[-1] in pairs.results:
        places.pop()
    found = None
    for place in reversed(places):
        if place.step != places[-1].step:
            break
        found = found if place in pairs.results else place
    return found


def _paired(items: Sequence[Item], rules: Rules, notes: Notes) -> list[Item]:
    """Put every result right behind its call, close open calls, and drop results without one."""
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
                    notes.add("left out a call without a result that could be made up", item.seq)
            if parts:
                found.append(_rebuilt(item, tuple(parts)))
        number += len(calls)
        found += _answers(calls, items, pairs, rules, notes)
    return found


def _units(items: Sequence[Item], rules: Rules) -> Iterator[list[tuple[int, int]]]:
    """Give runs of items whose calls are answered together, as (index, step).

    An assistant that says something new behind a call has gone on without its result: that is another unit.
    """
    unit, called, step = list[tuple[int, int]](), False, 0
    for index, item in enumerate(items):
        step += item.role != "assistant"
        ends = item.role != "assistant" or rules.per_message or (called and _speaks(item))
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
    """Say whether a call will have a result; of some calls only the provider's own form has one."""
    if place in pairs.results:
        item, part = pairs.results[place]
        if verbatim(items[item].parts[part], rules.form) is not None:
            return True
    return rules.closes(call)


def _rebuilt(item: Item, parts: tuple[Part, ...]) -> Item:
    """Give an item its parts without results; numbering a call changes nothing of what it says."""
    if len(parts) == len(item.parts):
        return replace(item, parts=parts)
    role = "user" if item.role == "tool" else item.role
    return replace(item, role=role, parts=parts, raw=None)


def _answers(
    calls: dict[_Place, Call], items: Sequence[Item], pairs: _Pairs, rules: Rules, notes: Notes
) -> Iterator[Item]:
    """Give the results of a unit in the order of its calls; a stored message of just these stays one message."""
    sent = set[int]()
    for place, call in calls.items():
        if place not in pairs.results:
            notes.add("closed a call without a result", items[place.item].seq)
            answer = Result(call.id, (Text(INTERRUPTED),), False, call.name, to=call)
            yield Item("tool", (answer,), items[place.item].seq)
            continue
        index, part = pairs.results[place]
        source = items[index]
        owners = [pairs.calls.get((index, each)) for each in range(len(source.parts))]
        if not _stays_whole(source, owners, list(calls), rules):
            yield Item("tool", (_tied(source.parts[part], call, rules),), source.seq)
        elif index not in sent:
            sent.add(index)
            tied = tuple(
                _tied(each, calls[owner], rules) for each, owner in zip(source.parts, owners, strict=True) if owner
            )
            kept = all(map(_same_raw, tied, source.parts))
            yield replace(source, role="tool", parts=tied, raw=source.raw if kept else None)


def _stays_whole(source: Item, owners: list[_Place | None], calls: list[_Place], rules: Rules) -> bool:
    """Say whether a stored message holds just results of these calls, in their order where that counts."""
    if source.raw is None or source.form != rules.form or any(owner not in calls for owner in owners):
        return False
    first = calls.index(owners[0]) if owners[0] else 0
    return not rules.ordered or owners == calls[first : first + len(owners)]


def _tied(part: Part, call: Call, rules: Rules) -> Part:
    """Tie a result to its call; JSON that names another call goes."""
    if not isinstance(part, Result):
        return part
    tied = replace(part, to=call)
    keeps = verbatim(part, rules.form) is not None and rules.agrees(tied)
    return replace(tied, call_id=call.id, name=call.name, raw=part.raw if keeps else None)


def _same_raw(one: Part, other: Part) -> bool:
    return one.raw is other.raw


def _note_moves(items: Sequence[Item], pairs: _Pairs, rules: Rules, notes: Notes) -> None:
    """Say which results did not lie behind their call with nothing said between."""
    said = list[int]()
    for item in items:
        said.append((said[-1] if said else 0) + any(not isinstance(part, Result) for part in item.parts))
    last = {index: unit[-1][0] for unit in _units(items, rules) for index, _ in unit}
    for place, (index, part) in pairs.results.items():
        between = said[index - 1] - said[last[place.item]] if index > last[place.item] else 0
        before = items[index].parts[:part]
        if between > 0 or any(not isinstance(each, Result) for each in before):
            notes.add("moved a result to its call", items[index].seq)


# ---------------------------------------------------------------------- turns


def _side(item: Item) -> str:
    return "assistant" if item.role == "assistant" else "user"


def _joined(items: Sequence[Item], rules: Rules, notes: Notes) -> list[Item]:
    """Make one of neighbours on the same side, where roles must take turns."""
    if not rules.alternates:
        return list(items)
    return [_one(list(run), rules, notes) for _, run in groupby(items, _side)]


def _one(run: list[Item], rules: Rules, notes: Notes) -> Item:
    if len(run) == 1:
        return run[0]
    for last, item in pairwise(run):
        if "tool" not in (last.role, item.role) and item.form in (None, rules.form):
            notes.add(f"joined neighbouring messages of the {item.role}", last.seq, item.seq)
    roles = {item.role for item in run}
    parts = tuple(part for item in run for part in item.parts)
    return Item(run[0].role if len(roles) == 1 else "user", parts, run[0].seq)


def _begun(items: list[Item], rules: Rules, notes: Notes) -> list[Item]:
    """Let the user begin, where that is demanded."""
    if not rules.alternates or not items or _side(items[0]) == "user":
        return items
    notes.add("put a user message before the first one", items[0].seq)
    return [Item("user", (Text(BEGINNING),)), *items]


# ---------------------------------------------------------------------- ids, names, arguments


def _named(items: list[Item], rules: Rules, notes: Notes) -> list[Item]:
    """Give calls ids, names and arguments that the provider takes, and their results the same ids."""
    changed, used = dict[int, Call](), set[str]()
    found = list[Item]()
    for item in items:
        if _side(item) == "user" and not rules.unique_ids:
            used = set()  # ids must differ only among calls that are open together
        parts = (_renamed(part, item.seq, changed, used, rules, notes) for part in item.parts)
        found.append(with_parts(item, tuple(parts)))
    return found


def _renamed(part: Part, seq: int, changed: dict[int, Call], used: set[str], rules: Rules, notes: Notes) -> Part:
    if isinstance(part, Result) and part.to is not None and part.to.number in changed:
        call = changed[part.to.number]
        if call.id == part.call_id:
            return replace(part, to=call, name=call.name)
        return replace(part, to=call, call_id=call.id, name=call.name, raw=None)
    if not isinstance(part, Call):
        return part
    call = _valid_call(part, used, rules)
    used.add(call.id)
    if call is not part:
        changed[part.number] = call
        if call.id != part.id:
            notes.add("gave a call another id", seq)
        if call.name != part.name:
            notes.add("gave a tool a name that the provider takes", seq)
        if call.arguments is not part.arguments and part.arguments is not None:
            notes.add("wrapped arguments that were no object", seq)
    return call


def _valid_call(call: Call, used: set[str], rules: Rules) -> Call:
    fresh = dict[str, Any]()
    if rules.id is not None and (new := _valid_id(call.id, rules.id, used, rules.most)) != call.id:
        fresh["id"] = new
    if verbatim(call, rules.form) is None and not rules.name.fullmatch(call.name):
        fresh["name"] = re.sub(r"[^a-zA-Z0-9_-]", "_", call.name)[:64] or "unknown_tool"
    if rules.objects and not isinstance(call.arguments, dict):
        fresh["arguments"] = {} if call.arguments is None else {"input": call.arguments}
    return replace(call, **fresh, raw=None) if fresh else call


def _valid_id(given: str, pattern: re.Pattern[str], used: set[str], most: int) -> str:
    """Keep an id that is valid and free; else make one from it, the same at every time."""
    fits = pattern.fullmatch(given) is not None and len(given) <= most
    base = given if fits else f"call_{hashlib.sha256(given.encode()).hexdigest()[:24]}"
    new, number = base, 1
    while new in used:
        number += 1
        new = f"{base[: most - 8]}_{number}"
    return new
