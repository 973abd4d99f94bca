"""Which fields a form knows, at every level, and what of a message is none of them.

Providers refuse what they do not know ("Extra inputs are not permitted"), and other programs add fields of their own to
what they store. So whatever goes out verbatim is first compared with a table of its provider: what is not in there is
left out, and said. A message that holds nothing else is the very same object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias, cast

from .lenient import kind
from .normal import is_same

Shape: TypeAlias = "Mapping[str, Shape] | None"
"""The fields of an object, or of each object of a list: what is inside of each; None for whatever it may be."""

UNSENT: Shape = MappingProxyType({})
"""What is inside of a field that answers have and requests do not: left out, with nothing to say about it."""

_GONE = object()
_SHOWN = 5
_LONGEST = 60


class OneOf(dict[str, Shape]):
    """The shapes of objects that name their ``type``.

    Where a ``vital`` one is unknown, what holds it goes with it. ``others`` are left for reading to judge.
    """

    def __init__(self, shapes: Mapping[str, Shape], *, vital: bool = False, others: bool = False) -> None:
        super().__init__(shapes)
        self.vital, self.others = vital, others


def shape(names: str = "", **inside: Shape) -> dict[str, Shape]:
    """Return the shape of an object: names of fields that may hold anything, and those of which more is known."""
    return {**dict.fromkeys(names.split()), **inside}


def only_known(value: Any, known: Shape, form: str, note: Callable[[str], None]) -> Any:
    """Return a message or an item with nothing in it that its form does not know; note what had to go."""
    look = _Unknown()
    kept = look.without(value, known)
    for name in dict.fromkeys(look.types):
        note(f"left out {name or 'a block without a type'}, which {form} does not know")
    if look.names:
        note(f"left out fields that {form} does not know: {unknown(look.names)}")
    return value if kept is _GONE else kept


def unknown(names: Iterable[str]) -> str:
    """Return the names of some fields for a sentence."""
    found = [*dict.fromkeys(map(_spelled, names))]
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(found[:_SHOWN]) + more


class _Unknown:
    """One look through a message: the names of fields and the types of objects that had to go."""

    def __init__(self) -> None:
        self.names, self.types = list[str](), list[str]()

    def without(self, value: Any, known: Shape) -> Any:
        if known is None:
            return value
        if isinstance(value, list):
            kept = [each for one in value if (each := self.without(one, known)) is not _GONE]
            return value if is_same(kept, value) else kept
        if not isinstance(value, dict):
            return value
        if isinstance(known, OneOf):
            name = kind(value)
            if name not in known:
                if known.others:
                    return value
                self.types.append(_spelled(name))
                return _GONE
            return self.without(value, known[name])
        return self._object(value, known)

    def _object(self, value: dict[str, Any], known: Mapping[str, Shape]) -> Any:
        kept = dict[str, Any]()
        for name, inner in value.items():
            inside = known.get(name, UNSENT)
            if inside is UNSENT:
                if name not in known:
                    self.names.append(name)
                continue
            fit = self.without(inner, inside)
            if fit is not _GONE:
                kept[name] = fit
            elif cast(OneOf, inside).vital:
                return _GONE
        return value if len(kept) == len(value) and is_same([*kept.values()], [*value.values()]) else kept


def _spelled(name: str) -> str:
    """Return a name for a sentence: it comes from anybody's data."""
    return name if name.isidentifier() and len(name) <= _LONGEST else f"{name!r:.{_LONGEST}}" if name else ""
