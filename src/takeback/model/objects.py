"""SDK objects as plain data, by what they can do and not by what they are: no SDK is imported.

An object gives its data in the words of its provider's API (aliases on), so that it can be sent
back, and without what the SDK added: fields the API never set, and parsed copies of text. An
object that is no SDK's own gives all its fields, since its defaults are data too. Plain data
comes back as the very same object, so that what was given can be stored byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ..codec import MAX_DEPTH
from ..errors import Invalid

_SCALARS = frozenset({str, int, float, bool, bytes, type(None)})
_SCALAR_BASES = (str, int, float, bytes, bytearray, memoryview)
_BYTES = (bytes, bytearray, memoryview)
_PARSED = frozenset({"parsed", "parsed_output", "parsed_arguments"})


def plain(item: object) -> Any:
    """Return an SDK object, or data that holds some, as plain JSON data; raises ``Invalid`` for the rest."""
    if type(item) is dict and _is_plain(item):
        return item
    try:
        return _plain(item, 0)
    except RecursionError:
        raise Invalid("the value is nested too deeply to be stored from here") from None


def require_shallow(item: object) -> None:
    """Raise ``Invalid`` for data that is nested too deeply."""
    _plain(item, 0)


def _is_plain(item: dict[Any, Any]) -> bool:
    """Whether converting changes nothing: one look instead of a walk, which leaves anything unusual to the walk."""
    try:
        return bool(msgspec.to_builtins(item, builtin_types=_BYTES) == item)
    except Exception:  # an object that msgspec does not know, or one that cannot be compared
        return False


def _plain(value: Any, depth: int) -> Any:
    if type(value) in _SCALARS:
        return value
    if depth > MAX_DEPTH:
        raise Invalid(f"the value is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        return _plain_dict(value, depth + 1)
    if isinstance(value, list | tuple):
        return _plain_list(value, depth + 1)
    if isinstance(value, _SCALAR_BASES):
        return value
    return _plain(_opened(value), depth + 1)


def _plain_dict(value: dict[Any, Any], depth: int) -> dict[Any, Any]:
    items = {key: _plain(item, depth) for key, item in value.items()}
    return value if all(items[key] is item for key, item in value.items()) else items


def _plain_list(value: list[Any] | tuple[Any, ...], depth: int) -> Any:
    items = [_plain(item, depth) for item in value]
    return value if all(new is old for new, old in zip(items, value, strict=True)) else items


def _opened(value: Any) -> Any:
    """Take one object apart; objects inside it may remain."""
    try:
        return _fields(value)
    except (Invalid, RecursionError):
        raise
    except Exception as error:
        raise Invalid(f"a {type(value).__name__} could not be turned into plain data: {error}") from error


def _fields(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, type):
        raise Invalid(f"{value.__name__} is a class; give an object made from it")
    if hasattr(value, "model_dump"):
        return _dumped(value)
    if hasattr(value, "__struct_fields__") or hasattr(value, "__dataclass_fields__"):
        return msgspec.to_builtins(value, builtin_types=_BYTES, enc_hook=_fields)
    if hasattr(value, "to_dict"):
        return value.to_dict()
    raise Invalid(
        f"a value of type {type(value).__name__} is neither plain data nor a message of a known SDK; "
        "give text, a dict, or the object that the SDK returned"
    )


def _dumped(model: Any) -> Any:
    """Dump a pydantic model; warnings are off because SDKs keep unknown blocks in models of other types."""
    is_of_sdk = hasattr(model, "to_dict") or hasattr(model, "to_json_dict")
    return model.model_dump(
        mode="json", by_alias=True, exclude_unset=is_of_sdk, exclude=_parsed_copies(model) or None, warnings=False
    )


def _parsed_copies(value: Any) -> dict[Any, Any]:
    """Name the parsed copies that SDKs keep beside text, which are no part of the API, as pydantic's ``exclude``."""
    if isinstance(value, list):
        return _not_empty({index: _parsed_copies(item) for index, item in enumerate(value)})
    if not hasattr(value, "model_dump"):
        return {}
    copies = _PARSED if type(value).__name__.startswith("Parsed") else frozenset()
    return _not_empty({name: name in copies or _parsed_copies(item) for name, item in _attributes(value).items()})


def _attributes(value: Any) -> dict[str, Any]:
    return getattr(value, "__dict__", {})


def _not_empty(found: dict[Any, Any]) -> dict[Any, Any]:
    return {key: inner for key, inner in found.items() if inner}
