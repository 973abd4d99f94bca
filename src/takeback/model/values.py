"""Values as plain JSON data and back, by the types that their fields declare.

One mechanism for all of them: a struct or a named tuple becomes a dict of its fields, and a field in milliseconds
becomes the time that its property shows. What JSON cannot hold is escaped as in the store (``codec``), so that what
comes back is equal. A class with another shape (``Message``, ``Page``) has ``_parts`` and ``_from_parts`` of its own.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from .. import codec
from ..clock import to_datetime
from ..errors import Invalid

T = TypeVar("T")
_MS = timedelta(milliseconds=1)


def to_dict(value: Any) -> dict[str, Any]:
    """Return a value as plain JSON data."""
    found: dict[str, Any] = codec.plain(parts(value))
    return found


def from_dict(cls: type[T], given: Mapping[str, Any]) -> T:
    """Make a value from what ``to_dict`` returned."""
    return made(cls, codec.unescaped(given))


# ---------------------------------------------------------------------- to plain data


def parts(value: Any) -> Any:
    """Return a value, or data that holds some, without the classes; what JSON cannot hold is still in it."""
    if own := getattr(value, "_parts", None):
        return own()
    kind: Any = type(value)
    if fields := _names(kind):
        return {shown: _part(name, shown, getattr(value, name)) for name, shown in fields.items()}
    if isinstance(value, dict):
        return {key: parts(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [parts(each) for each in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return value.to_dict() if hasattr(value, "to_dict") else value  # a handle shows its fields


def _part(name: str, shown: str, value: Any) -> Any:
    return parts(value) if name == shown or value is None else time_text(value)


def time_text(ms: int) -> str:
    """Return a time as text."""
    return to_datetime(ms).isoformat()


@cache
def _names(cls: Any) -> dict[str, str]:
    """Map the fields of a value's class to the names that people see; empty for other classes."""
    fields: tuple[str, ...] = getattr(cls, "__struct_fields__", getattr(cls, "_fields", ()))
    return {name: _time_of(cls, name) or name for name in fields if not name.startswith("_")}


def _time_of(cls: type, name: str) -> str | None:
    """Return the property that shows a field in milliseconds as a time, if there is one."""
    shown = ("created_at", "sent_at") if name == "at_ms" else (f"{name.removesuffix('_ms')}_at",)
    return next((each for each in shown if hasattr(cls, each)), None) if name.endswith("_ms") else None


# ---------------------------------------------------------------------- back


def made(cls: type[T], given: Any) -> T:
    """Make a value from its parts; raises ``Invalid`` where they do not fit."""
    if not isinstance(given, Mapping):
        raise Invalid(f"{cls.__name__} is made from a dict as to_dict returns it, not from {type(given).__name__}")
    if own := getattr(cls, "_from_parts", None):
        found: T = own(given)
        return found
    kind: Any = cls
    names, hints = _names(kind), _hints(kind)
    if unknown := given.keys() - {*names.values()}:
        raise Invalid(f"{cls.__name__} has no field {sorted(map(str, unknown))[0]!r}")
    fields = {}
    for name, shown in names.items():
        if shown in given:
            fields[name] = field(hints[name], given[shown], f"{cls.__name__}.{shown}", is_time=name != shown)
    if missing := [names[name] for name in _required(kind) if name not in fields]:
        raise Invalid(f"{cls.__name__} needs the field {missing[0]!r}, which is missing")
    value: T = kind(**fields)
    return value


def field(hint: Any, given: Any, where: str, *, is_time: bool = False) -> Any:
    """Make one field; ``where`` names it in errors."""
    if is_time and given is not None:
        return time_ms(given, where)
    if hint is Any or hint is object:
        return given
    if hasattr(hint, "from_dict"):
        return made(hint, given)
    kind, inner = get_origin(hint), get_args(hint)
    if kind in (Union, types.UnionType):
        rest = [each for each in inner if each is not type(None)]
        if len(rest) < len(inner) and given is None:
            return None
        if len(rest) == 1:
            return field(rest[0], given, where)
        if hasattr(rest[0], "from_dict"):
            return _one_of(rest, given, where)
    if kind in (tuple, list) and isinstance(given, list | tuple):
        if kind is list or inner[1:] == (...,):
            return kind(field(inner[0], each, where) for each in given)
    elif kind is dict and isinstance(given, dict):
        return {field(inner[0], key, where): field(inner[1], each, where) for key, each in given.items()}
    try:
        return msgspec.convert(given, hint)
    except (msgspec.ValidationError, TypeError) as error:
        raise Invalid(f"{where}: {error}") from error


def _one_of(kinds: list[Any], given: Any, where: str) -> Any:
    """Make the first of several values that the parts fit."""
    for kind in kinds:
        try:
            return field(kind, given, where)
        except Invalid:
            continue
    raise Invalid(f"{where} must be one of {', '.join(kind.__name__ for kind in kinds)}")


def time_ms(given: object, where: str) -> int:
    """Return the milliseconds of a time as ``time_text`` writes it, or anybody else in RFC 3339."""
    try:
        found = datetime.fromisoformat(given)  # type: ignore[arg-type]
        return (found - to_datetime(0)) // _MS
    except (TypeError, ValueError, OverflowError) as error:
        raise Invalid(f"{where} must be a time with its zone, as in 2026-01-31T12:00:00Z, not {given!r:.60}") from error


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)


@cache
def _required(cls: Any) -> tuple[str, ...]:
    if issubclass(cls, msgspec.Struct):
        return tuple(each.name for each in msgspec.structs.fields(cls) if each.required)
    return tuple(name for name in cls._fields if name not in cls._field_defaults)
