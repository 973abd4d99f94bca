"""The only codec: values to JSON bytes and back, data only.

What goes in comes out equal, or raises ``Invalid`` before anything is stored.
JSON cannot hold everything Python can, so four things travel as a one-key object:
``{"$float": "nan"}``, ``{"$bytes": base64}``, ``{"$str": base64}`` for text with lone
surrogates, ``{"$map": [[key, value], ...]}`` for a dict that would look like one of these.
Decoding imports, calls and constructs nothing, whatever the bytes say.
"""

from __future__ import annotations

import binascii
import math
from typing import Any

import msgspec

from .errors import Corrupt, Invalid

MAX_DEPTH = 256
_MAX_INT_BITS = 4096
_SMALL = _MAX_INT_BITS * 3 // 10  # bytes: no integer in so short a text can be too large
_FLOATS = {repr(value): value for value in (math.nan, math.inf, -math.inf)}
_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder().decode


def encode(value: object) -> bytes:
    """Encode a value, keeping the order of keys."""
    return (_plainly(value) if type(value) is dict else None) or _encode(_shallow(value))


def _plainly(value: object) -> bytes | None:
    """Encode a small value that needs no escaping, which reading it back proves; None for any other."""
    try:
        data = _encode(value)
        shallow = len(data) <= _SMALL and data.count(b"{") + data.count(b"[") <= MAX_DEPTH
        return data if shallow and not has_escapes(data) and _decode(data) == value else None
    except Exception:  # whatever it is, the careful way reports it
        return None


def plain(value: object) -> Any:
    """Return the JSON data that ``encode`` would write."""
    return _shallow(value)


def unescaped(value: Any) -> Any:
    """Return the value that JSON data stands for; damaged escapes raise ``Invalid``."""
    try:
        return _fancy(value)
    except Corrupt as error:
        raise Invalid(str(error)) from error


def canonical(value: object) -> bytes:
    """Encode a value with sorted keys, so that equal values give equal bytes."""
    return _encode_sorted(_shallow(value))


def decode(data: bytes) -> Any:
    """Decode what ``encode`` wrote; anything else raises ``Corrupt``."""
    try:
        value = _decode(data)
        return _fancy(value) if has_escapes(data) else value
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise Corrupt(f"stored JSON cannot be decoded: {error}", what="json") from error


def has_escapes(data: bytes) -> bool:
    """Whether the bytes may contain an escaped value; if not, decoders take a shortcut."""
    return 36 in data and b'"$' in data  # searching for one byte ("$") first is much faster than for two


def storable_text(text: object, *, what: str) -> str:
    """Check a name, key or other short text: it must be a string without NUL that UTF-8 can encode."""
    if not isinstance(text, str):
        raise Invalid(f"{what} must be a string, not {type(text).__name__}")
    if "\0" in text:
        raise Invalid(f"{what} must not contain NUL characters")
    if not _is_utf8(text):
        raise Invalid(f"{what} contains a lone surrogate; remove it")
    return str(text)


def _shallow(value: object) -> Any:
    try:
        return _plain(value, 0)
    except RecursionError:
        raise Invalid("the value is nested too deeply, or the call stack is too deep here") from None


def _is_utf8(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _plain(value: Any, depth: int) -> Any:
    """Return the JSON form of a value: the value itself unless something needs escaping."""
    kind = type(value)
    if kind is str:
        return value if _is_utf8(value) else {"$str": _b64(value.encode("utf-8", "surrogatepass"))}
    if kind is bool or value is None:
        return value
    if kind is int:
        return _plain_int(value)
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if depth >= MAX_DEPTH:
        raise Invalid(f"the value is nested more than {MAX_DEPTH} levels deep")
    if kind is dict:
        return _plain_dict(value, depth)
    if kind is list or kind is tuple:
        return [_plain(item, depth + 1) for item in value]
    return _plain_other(value, depth)


def _plain_int(value: int) -> int:
    if value.bit_length() > _MAX_INT_BITS:
        raise Invalid(f"an integer of {value.bit_length()} bits is too large to store")
    return int(value)


def _plain_dict(value: dict[Any, Any], depth: int) -> dict[str, Any]:
    depth += 1
    plain = {}
    for key, item in value.items():
        if type(key) is not str or not key.isascii() or key[:1] == "$":
            return _plain_pairs(value, depth)
        plain[key] = _plain(item, depth)
    return plain


def _plain_pairs(value: dict[Any, Any], depth: int) -> dict[str, Any]:
    """Encode a dict with unusual keys, as pairs if it would look like an escape or has keys that JSON cannot hold."""
    for key in value:
        if not isinstance(key, str):
            raise Invalid(f"keys must be strings, not {type(key).__name__} ({key!r:.40})")
    looks_escaped = len(value) == 1 and next(iter(value)).startswith("$")
    if looks_escaped or not all(_is_utf8(key) for key in value):
        return {"$map": [[_plain(str(key), depth), _plain(item, depth)] for key, item in value.items()]}
    return {str(key): _plain(item, depth) for key, item in value.items()}


def _plain_other(value: Any, depth: int) -> Any:
    """Encode bytes and subclasses of the plain types; anything else raises ``Invalid``."""
    if isinstance(value, bytes | bytearray | memoryview):
        return {"$bytes": _b64(bytes(value))}
    for base in (str, int, float):
        if isinstance(value, base):
            return _plain(base(value) if base is not str else str.__str__(value), depth)
    if isinstance(value, dict):
        return _plain_dict(value, depth)
    if isinstance(value, list | tuple):
        return _plain(list(value), depth)
    raise Invalid(
        f"a value of type {type(value).__name__} cannot be stored; use str, int, float, bool, None, bytes, list or dict"
    )


def _b64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


def _fancy(value: Any) -> Any:
    """Reverse the escapes of ``_plain``."""
    if type(value) is list:
        return [_fancy(item) for item in value]
    if type(value) is not dict:
        return value
    if len(value) == 1:
        key, inner = next(iter(value.items()))
        if key.startswith("$"):
            return _unescape(key, inner)
    return {key: _fancy(item) for key, item in value.items()}


def _unescape(key: str, inner: Any) -> Any:
    try:
        if key == "$float":
            return _FLOATS[inner]
        if key == "$bytes":
            return binascii.a2b_base64(inner, strict_mode=True)
        if key == "$str":
            return binascii.a2b_base64(inner, strict_mode=True).decode("utf-8", "surrogatepass")
        if key == "$map":
            return {_fancy(name): _fancy(item) for name, item in inner}
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise Corrupt(f"stored JSON has a damaged {key} value", what="json") from error
    raise Corrupt(f"stored JSON has an unknown escape {key!r}", what="json")
