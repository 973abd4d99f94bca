"""Making any conversation valid for a provider: normal form in, normal form out, nothing else touched.

A log may be cut anywhere: by a crash between a call and its result, by a rewind, by a compaction, by a change of
provider or model. The steps run in a fixed order, and each leaves alone what is already valid. So a valid conversation
comes out as the same objects with their stored JSON, and repairing twice changes nothing more.

The end of a conversation: open calls get a result. A partial answer (the process died, somebody stopped it) is followed
by a short user message, since newer models refuse to continue an assistant's message; that message stays when the log
grows, because it was sent. A finished answer is left as the end: the caller adds the next user message first.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import groupby, pairwise

from msgspec.structs import replace

from ..providers.normal import (
    Call,
    Item,
    Media,
    Notes,
    Opaque,
    Part,
    Result,
    Text,
    honest,
    is_same,
    verbatim,
    with_parts,
)
from ..providers.rules import Rules
from .models import forgotten
from .naming import named
from .pairing import INTERRUPTED, paired

__all__ = ["BEGINNING", "GO_ON", "INTERRUPTED", "repair"]

BEGINNING = "(The conversation begins here.)"
GO_ON = "(The answer above was cut off. Go on from there.)"


def repair(items: Sequence[Item], rules: Rules, notes: Notes, *, model: str | None = None) -> list[Item]:
    """Make a conversation valid for a provider, and for a model if known; note what had to be changed."""
    found = forgotten(items, model, rules, notes)
    found = [fitted for item in found if (fitted := _fitted(item, rules, notes)).parts or not item.parts]
    found = paired(_spoken(found, rules, notes), rules, notes)
    found = named(_joined(_continued(found, notes), rules, notes), rules, notes)
    found = _spoken(rules.tidy(found, notes), rules, notes)
    found = _joined(found, rules, notes)
    found = _begun(found, rules, notes)
    return found if model is None else rules.suits(found, model, notes)


# ---------------------------------------------------------------------- what the provider can take


def _fitted(item: Item, rules: Rules, notes: Notes) -> Item:
    """Leave out what the provider does not accept, first of all the JSON of other providers."""
    if item.form != rules.form and item.raw is not None:
        item = replace(item, raw=None)
    parts = [_fitted_part(part, item.role, item.seq, rules, notes) for part in item.parts]
    return with_parts(item, tuple([part for part in parts if part is not None]))


def _fitted_part(part: Part, role: str, seq: int, rules: Rules, notes: Notes) -> Part | None:
    if type(part) is Text and part.form != rules.form:  # the common case
        return part
    match part:
        case Result():
            return _fitted_result(part, seq, rules, notes)
        case Media():
            return _fitted_media(part, role, seq, rules, notes)
        case Call() if role == "assistant":
            return part
        case Call():
            notes.add("left out a call that is not the assistant's", seq)
            return None
    if verbatim(part, rules.form) is not None and rules.holds(part, role):
        return part
    if isinstance(part, Opaque):
        if part.what:
            notes.add(f"left out {part.what}{f' of {part.form}' if part.form else ''}", seq)
        return None
    return part if verbatim(part, rules.form) is None else _anew(part, seq, notes)


def _anew(part: Part, seq: int, notes: Notes) -> Part:
    """Drop the JSON of a part that belongs to another role: its content can still be sent."""
    notes.add("rewrote a part that belongs to another role", seq)
    return replace(part, raw=None)


def _fitted_result(part: Result, seq: int, rules: Rules, notes: Notes) -> Result:
    role = "tool" if part.success else "failed"
    inner = [_fitted_part(each, role, seq, rules, notes) for each in part.parts]
    kept = tuple(each for each in inner if each is not None)
    return part if is_same(kept, part.parts) else replace(part, parts=kept, raw=None)


def _fitted_media(part: Media, role: str, seq: int, rules: Rules, notes: Notes) -> Part:
    known = honest(part)
    if not rules.takes(known, role):
        notes.add(f"left out {_described(part)}, which {rules.form} does not take here", seq)
        return Text(f"[left out: {_described(part)}]")
    if known is not part:
        notes.add(f"sent {part.mime} as the {known.mime} that it is", seq)
    return known if verbatim(known, rules.form) is None or rules.holds(known, role) else _anew(known, seq, notes)


def _described(part: Media) -> str:
    return f"{part.kind} {part.name}" if part.name else f"{part.kind} ({part.mime})"


def _spoken(items: Sequence[Item], rules: Rules, notes: Notes) -> list[Item]:
    """Remove empty texts, and items of which nothing is left."""
    found = []
    for item in items:
        parts = tuple([_said(part, rules) for part in item.parts if not _is_blank(part, rules)])
        if not is_same(parts, item.parts):
            notes.add("removed empty text", item.seq)
        if parts:
            found.append(with_parts(item, parts))
        elif not item.parts:
            notes.add("removed an empty message", item.seq)
    return found


def _is_blank(part: Part, rules: Rules) -> bool:
    return type(part) is Text and (not part.text or (rules.refuses_blank and part.text.isspace()))


def _said(part: Part, rules: Rules) -> Part:
    """Remove empty texts inside a result."""
    if type(part) is not Result:
        return part
    kept = tuple([each for each in part.parts if not _is_blank(each, rules)])
    return part if is_same(kept, part.parts) else replace(part, parts=kept, raw=None)


# ---------------------------------------------------------------------- turns


def _side(item: Item) -> str:
    return "assistant" if item.role == "assistant" else "user"


def _continued(items: Sequence[Item], notes: Notes) -> list[Item]:
    """Add a user message after a partial answer, unless one follows."""
    found = list[Item]()
    for place, item in enumerate(items, 1):
        found.append(item)
        if item.half and (place == len(items) or _side(items[place]) == "assistant"):
            notes.add("added a user message after a partial answer", item.seq)
            found.append(Item("user", (Text(GO_ON),)))
    return found


def _joined(items: Sequence[Item], rules: Rules, notes: Notes) -> list[Item]:
    """Join neighbouring messages of the same side, where roles must alternate."""
    sides = [item.role == "assistant" for item in items]
    if not rules.alternates or all(map(operator.ne, sides, sides[1:])):
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
    """Begin with a user message, where the provider requires it."""
    if not rules.alternates or not items or _side(items[0]) == "user":
        return items
    notes.add("added a user message before the first message", items[0].seq)
    return [Item("user", (Text(BEGINNING),)), *items]
