"""Which model gave an answer, and whether the requested model may see what only that one can read.

Thinking, its signatures and encrypted reasoning are valid only for the model that made them; another model refuses the
whole conversation because of them. An answer of an unnamed model might be the same model's, so it is kept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from ..providers.normal import Item, Notes
from ..providers.rules import Rules

_HOST = re.compile(r"^(?:.*/)?(?:[a-z]+(?:-gov)?\.){0,2}")
_REVISION = re.compile(r"-v\d+(:\d+)?$")
_VERSION = re.compile(r"[-@](\d{8}|\d{4}-\d{2}-\d{2}|\d{3,4}|latest)$")


@lru_cache(maxsize=256)  # few models, many messages
def is_other(one: str | None, other: str | None) -> bool:
    """Whether these are known to be different models; a name without a date stands for any version."""
    if not one or not other:
        return False
    (name, version), (other_name, other_version) = _taken_apart(one), _taken_apart(other)
    return name != other_name or (None not in (version, other_version) and version != other_version)


def _taken_apart(model: str) -> tuple[str, str | None]:
    """Return the name of a model without what hosts add to it, and its version."""
    name = _REVISION.sub("", _HOST.sub("", model.lower()))
    found = _VERSION.search(name)
    base = name if found is None else name[: found.start()]
    version = None if found is None or found[1] == "latest" else found[1].replace("-", "")
    return base.replace(".", "-"), version


def forgotten(items: Sequence[Item], model: str | None, rules: Rules, notes: Notes) -> list[Item]:
    """Remove from other models' answers what the requested model cannot read."""
    if model is None:
        return list(items)
    found = list[Item]()
    for item, said_by in zip(items, _models(items, rules), strict=True):
        strange = is_other(said_by, model) or rules.blind(model)
        kept = rules.forgets(item) if item.form == rules.form and item.role == "assistant" and strange else item
        if kept is not item:
            notes.add(f"left out what only {said_by or 'another model'} can read", item.seq)
        if kept.parts or not item.parts:
            found.append(kept)
    return found


def _models(items: Sequence[Item], rules: Rules) -> list[str | None]:
    """Return the model of each item; in a response of many items only the last names it."""
    found, known = list[str | None](), None
    for item in reversed(items):
        goes_on = rules.itemised and item.role == "assistant" and item.form == rules.form
        known = item.model or (known if goes_on else None)
        found.append(known)
    return found[::-1]
