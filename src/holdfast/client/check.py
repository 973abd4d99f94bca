"""Checks of what callers hand in, before anything touches the store."""

from __future__ import annotations

import os

from .. import codec
from ..errors import Invalid

MAX_NAME = 1000


def name(value: object, *, what: str) -> str:
    """Check an id, name or key: text, not empty, not endless."""
    text = codec.storable_text(value, what=what)
    if not text or len(text) > MAX_NAME:
        raise Invalid(f"{what} must have 1 to {MAX_NAME} characters, not {len(text)}")
    return text


def optional_name(value: object, *, what: str) -> str | None:
    """Check a name that may be left out."""
    return None if value is None else name(value, what=what)


def workspace(value: object) -> str:
    """Check a workspace: a path as text or as a path object; none is the empty text."""
    return optional_name(os.fspath(value) if isinstance(value, os.PathLike) else value, what="workspace") or ""


def whole(value: object, *, what: str, low: int = 0, high: int = (1 << 53)) -> int:
    """Check a whole number within bounds; True is no number."""
    if type(value) is not int or not low <= value <= high:
        raise Invalid(f"{what} must be a whole number from {low} to {high}, not {value!r:.40}")
    return value


def scope(value: object) -> str:
    """Check a scope; None is the default scope, never all of them."""
    return "" if value is None or value == "" else name(value, what="scope")
