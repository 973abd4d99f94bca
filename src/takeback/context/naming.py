"""Ids, names and arguments of calls as the provider accepts them, with matching ids on their results.

What is valid stays. What is not is derived from the original, always in the same way, so that a prefix of the
conversation keeps its bytes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ..providers.normal import Call, Item, Notes, Part, Result, verbatim, with_parts
from ..providers.rules import Rules


def named(items: Sequence[Item], rules: Rules, notes: Notes) -> list[Item]:
    """Return items whose calls have ids, names and arguments that the provider accepts, with results to match."""
    changed, used = dict[int, Call](), set[str]()
    found = list[Item]()
    for item in items:
        if item.role != "assistant" and not rules.unique_ids:
            used = set()  # this provider needs unique ids only among calls open at the same time
        parts = [_renamed(part, item.seq, changed, used, rules, notes) for part in item.parts]
        found.append(with_parts(item, tuple(parts)))
    return found


def _renamed(part: Part, seq: int, changed: dict[int, Call], used: set[str], rules: Rules, notes: Notes) -> Part:
    if isinstance(part, Result) and part.to is not None and part.to.number in changed:
        return _following(part, changed[part.to.number], rules)
    if not isinstance(part, Call):
        return part
    call = _valid_call(part, used, rules)
    if (sent := rules.sent_id(call)) is not None:
        used.add(sent)
    if call is not part:
        changed[part.number] = call
        _note(part, call, seq, notes)
    return call


def _following(result: Result, call: Call, rules: Rules) -> Result:
    """Return a result that matches its call, which was changed."""
    tied = replace(result, to=call, name=call.name)
    keeps = call.id == result.call_id and verbatim(result, rules.form) is not None and rules.agrees(tied)
    return tied if keeps else replace(tied, call_id=call.id, raw=None)


def _note(old: Call, new: Call, seq: int, notes: Notes) -> None:
    if new.id != old.id:
        notes.add("changed the id of a call", seq)
    if new.name != old.name:
        notes.add("renamed a tool to a name that the provider accepts", seq)
    if new.arguments is not old.arguments and not (old.arguments is None and old.raw is None):
        notes.add("wrapped arguments that were not an object", seq)


def _valid_call(call: Call, used: set[str], rules: Rules) -> Call:
    fresh, sent = dict[str, Any](), rules.sent_id(call)
    if sent is not None and (new := _valid_id(sent, used, rules)) != sent:
        fresh["id"] = new
    if not rules.name.fullmatch(call.name):
        fresh["name"] = _valid_name(call.name, rules)
    is_free = not fresh and verbatim(call, rules.form) is not None and rules.free(call)
    if not isinstance(call.arguments, dict) and not is_free:
        fresh["arguments"] = {} if call.arguments in (None, "") else {"input": call.arguments}
    return replace(call, **fresh, raw=None) if fresh else call


def _valid_name(given: str, rules: Rules) -> str:
    name = re.sub(r"[^a-zA-Z0-9_-]", "_", given)[:64]
    return name if rules.name.fullmatch(name) else f"_{name}"[:64] if name else "unknown_tool"


def _valid_id(given: str, used: set[str], rules: Rules) -> str:
    """Return an id that is valid and unused: the given one, or one derived from it deterministically."""
    fits = rules.id.fullmatch(given) is not None and len(given) <= rules.most
    base = given if fits else f"call_{hashlib.sha256(given.encode()).hexdigest()[:24]}"
    new, number = base, 1
    while new in used:
        number += 1
        new = f"{base[: rules.most - 8]}_{number}"
    return new
