"""What the formats have in common: JSON, objects with known fields, names, base64 and data URLs.

Every check adds plain sentences to a ``Notes`` and returns what can be checked further, or None.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

Object = Mapping[str, Any]
Types = type | tuple[type, ...]

_SURROGATE = re.compile("[\ud800-\udfff]")
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w=.+-]+)*;base64,(.*)", re.DOTALL)
_NAMES = {str: "a string", list: "a list", bool: "true or false", int: "a whole number", Mapping: "an object"}
_IMAGES = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "image/webp"),
)


class Notes:
    """The problems found so far."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def add(self, where: str, what: str) -> None:
        """Add one problem and its location."""
        self.found.append(f"{where}: {what}")


class Fields(NamedTuple):
    """The fields of an object: those it must have and those it may have, each with its types."""

    required: Mapping[str, Types]
    optional: Mapping[str, Types] = {}


def json_only(notes: Notes, where: str, value: Any, *, binary: bool = False) -> None:
    """Report what JSON cannot represent; ``binary`` allows bytes, which an SDK encodes as base64 itself."""
    if isinstance(value, str):
        # "The request body is not valid JSON: no low surrogate in string"
        if _SURROGATE.search(value):
            notes.add(where, "has half of a surrogate pair, which is not Unicode")
    elif isinstance(value, float):
        if not math.isfinite(value):
            notes.add(where, f"{value} is no JSON number")
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                notes.add(where, f"has the key {key!r}, which is not a string")
            elif _SURROGATE.search(key):
                notes.add(where, "has a key with half of a surrogate pair")
            json_only(notes, f"{where}.{key}" if where else str(key), inner, binary=binary)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            json_only(notes, f"{where}[{index}]", inner, binary=binary)
    elif not (value is None or isinstance(value, int) or (binary and isinstance(value, bytes))):
        notes.add(where, f"is {type(value).__name__}, which JSON cannot hold")


def is_a(value: Any, types: Types) -> bool:
    """Return whether a value is of these types, where true is not a number."""
    wanted = types if isinstance(types, tuple) else (types,)
    return isinstance(value, wanted) and not (isinstance(value, bool) and bool not in wanted)


def an_object(notes: Notes, where: str, value: Any, fields: Fields | None = None) -> Object | None:
    """Check an object: no field missing or unknown, each of its type."""
    if not isinstance(value, Mapping):
        notes.add(where, "is not an object")
        return None
    if fields is not None:
        allowed = {**fields.optional, **fields.required}
        for name in fields.required.keys() - value.keys():
            notes.add(where, f"has no {name!r}")
        for name, inner in value.items():
            if name not in allowed:
                notes.add(where, f"has the unknown field {name!r}")
            elif not is_a(inner, allowed[name]):
                notes.add(f"{where}.{name}", f"is not {_spoken(allowed[name])}")
    return value


def _spoken(types: Types) -> str:
    wanted = types if isinstance(types, tuple) else (types,)
    return " or ".join(_NAMES.get(each, "null" if each is type(None) else each.__name__) for each in wanted)


def a_list(notes: Notes, where: str, value: Any) -> list[Any]:
    """Check a list that must not be empty."""
    if not isinstance(value, list):
        notes.add(where, "is not a list")
        return []
    if not value:
        notes.add(where, "is an empty list")
    return value


def objects(value: Any) -> Iterator[tuple[int, Object]]:
    """Return the objects of a list with their places; whatever else there is has been noted before."""
    if isinstance(value, list):
        yield from ((index, each) for index, each in enumerate(value) if isinstance(each, Mapping))


def one_of(notes: Notes, where: str, value: Any, allowed: Collection[str]) -> bool:
    """Check a value against a short list."""
    if isinstance(value, str) and value in allowed:
        return True
    notes.add(where, f"{value!r} is not one of {', '.join(sorted(allowed))}")
    return False


def spelled(notes: Notes, where: str, value: Any, pattern: str, longest: int | None = None) -> None:
    """Check a name or an id: its characters, and its length if there is a limit."""
    if not isinstance(value, str):
        return
    if not re.fullmatch(pattern, value):
        notes.add(where, f"{value!r} does not match {pattern}")
    if longest is not None and len(value) > longest:
        notes.add(where, f"has {len(value)} characters, more than {longest}")


def identity(holder: Object, name: str) -> str:
    """Return an id to compare; one of a wrong type, which has been noted before, as it is written in Python."""
    value = holder.get(name)
    return value if isinstance(value, str) else repr(value)


def filled(notes: Notes, where: str, value: Any) -> None:
    """Check a string that must not be empty; other types have already been reported."""
    if value == "":
        notes.add(where, "is empty")


def json_object(notes: Notes, where: str, value: Any) -> None:
    """Check a string that must contain a JSON object."""
    if not isinstance(value, str):
        return
    try:
        held = json.loads(value)
    except ValueError:
        notes.add(where, "is not valid JSON")
        return
    if not isinstance(held, dict):
        notes.add(where, "holds JSON that is not an object")
    json_only(notes, where, held)


def from_base64(value: Any, *, url_safe: bool = False) -> bytes | None:
    """Decode base64, with ``url_safe`` in either alphabet, or return None."""
    if not isinstance(value, str) or not value:
        return None
    if url_safe:
        value = value.replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return None


def from_data_url(value: str) -> tuple[str, bytes] | None:
    """Split a data URL into its media type and its bytes, or return None."""
    found = _DATA_URL.fullmatch(value)
    data = from_base64(found[2]) if found else None
    return None if found is None or data is None else (found[1].lower(), data)


def image_type(data: bytes) -> str | None:
    """Return the image type that the first bytes show, or None if it is none of the four usual ones."""
    return next((name for magic, name in _IMAGES if magic.match(data)), None)


def image_matches(notes: Notes, where: str, media_type: Any, data: bytes) -> None:
    """Check that an image has the declared type; bytes of no known type are not judged."""
    shown = image_type(data)
    # "The image was specified using the image/jpeg media type, but the image appears to be a image/png image"
    if shown is not None and shown != media_type:
        notes.add(where, f"is said to be {media_type}, but it is {shown}")


def image_url(notes: Notes, where: str, value: Any) -> None:
    """Check an image URL for OpenAI: http(s), or a data URL of a supported type."""
    if not isinstance(value, str) or re.match(r"https?://[^\s/]", value):
        return
    taken = from_data_url(value)
    if taken is None:
        # "Invalid image_url: expected a valid URL" / "Expected a base64-encoded data URL with an image MIME type"
        notes.add(where, "is neither an http(s) URL nor a data URL with base64")
    elif one_of(notes, where, taken[0], {name for _, name in _IMAGES}):
        image_matches(notes, where, taken[0], taken[1])


def file_data(notes: Notes, where: str, value: Any) -> None:
    """Check the content of a file for OpenAI, a data URL: "got a value without the 'data:' prefix"."""
    if isinstance(value, str) and from_data_url(value) is None:
        notes.add(where, "is not a data URL with base64")
