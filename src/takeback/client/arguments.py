"""Checks of callers' arguments, before anything touches the store."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from .. import codec
from ..clock import to_datetime
from ..errors import Invalid
from ..model.page import Page
from . import agent

T = TypeVar("T")

MAX_NAME = 1000
_MOST_PAIRS = 50
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999


def name(value: object, *, what: str, most: int = MAX_NAME) -> str:
    """Check an id, name or key: non-empty text of bounded length."""
    text = codec.storable_text(value, what=what)
    if not text or len(text) > most:
        raise Invalid(f"{what} must have 1 to {most} characters, not {len(text)}")
    return text


def text(value: object, *, what: str) -> str:
    """Check long text: any string, since the codec can store them all."""
    if not isinstance(value, str):
        raise Invalid(f"{what} must be a string, not {type(value).__name__}")
    return value


def tag(value: object) -> str:
    """Check a tag: a name on one line."""
    found = name(value, what="tag", most=200)
    if "\n" in found:
        raise Invalid("a tag must be on one line")
    return found


def mapping(value: object, *, what: str) -> dict[str, Any]:
    """Check a dict of the caller's own data."""
    if not isinstance(value, Mapping):
        raise Invalid(f"{what} must be a dict, not {type(value).__name__}")
    return dict(value)


def metadata_pairs(value: object) -> tuple[str, ...]:
    """Check metadata to filter by: names with plain values; return what sessions are found by."""
    from ..tables import metadata

    pairs = list[str]()
    for key, wanted in mapping(value, what="metadata").items():
        if not isinstance(key, str):
            raise Invalid(f"a name of metadata must be a string, not {type(key).__name__}")
        pair = metadata.pair_of(key, wanted)
        if pair is None:
            raise Invalid(
                f"metadata can be filtered by text, finite numbers, True, False and None, but {key!r:.60} is"
                f" {wanted!r:.60}; filter by a plain value at the top level"
            )
        pairs.append(pair)
    if len(pairs) > _MOST_PAIRS:
        raise Invalid(f"metadata can be filtered by at most {_MOST_PAIRS} names, not {len(pairs)}")
    return tuple(dict.fromkeys(pairs))


def seconds(value: object, *, what: str) -> float:
    """Check a number of seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise Invalid(f"{what} must be a number of seconds from 0 to 1e9, not {value!r}")
    return float(value)


def optional_name(value: object, *, what: str) -> str | None:
    """Check a name that may be left out."""
    return None if value is None else name(value, what=what)


def agent_id(value: object) -> str:
    """Check an agent: itself, or its id."""
    if isinstance(value, str):
        return name(value, what="agent")
    return value.id if isinstance(value, agent.Agent) else name(value, what="agent")


def optional_agent_id(value: object) -> str | None:
    """Check an agent that may be left out."""
    return None if value is None else agent_id(value)


def workspace(value: object) -> str:
    """Check a workspace: a path, returned as its real path; none is the empty string."""
    path = optional_name(os.fspath(value) if isinstance(value, os.PathLike) else value, what="workspace")
    return "" if path is None else name(os.path.realpath(path), what="workspace", most=8000)


def require_directory(path: str) -> None:
    """Refuse a workspace for a new session that is not a directory of this machine; none is fine."""
    if not path:
        return
    try:
        if stat.S_ISDIR(os.stat(path).st_mode):
            return
    except (FileNotFoundError, NotADirectoryError):
        raise Invalid(f"the workspace {path!r} does not exist; create the directory first") from None
    except OSError as error:
        raise Invalid(f"the workspace {path!r} cannot be used: {error.strerror}") from error
    raise Invalid(f"the workspace {path!r} is not a directory; pass the directory that the agent works in")


def whole(value: object, *, what: str, low: int = 0, high: int = (1 << 53)) -> int:
    """Check a whole number within bounds; True does not count as one."""
    if type(value) is not int or not low <= value <= high:
        raise Invalid(f"{what} must be a whole number from {low} to {high}, not {value!r:.40}")
    return value


def scope(value: object) -> str:
    """Check a scope; None is the default scope, never all of them."""
    return "" if value is None or value == "" else name(value, what="scope")


def time_ms(value: object) -> int:
    """Check a time: an aware datetime, since a naive one would mean another moment on another machine."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise Invalid(f"a time must be a datetime with a time zone, not {value!r:.60}")
    found = (value - to_datetime(0)) // timedelta(milliseconds=1)
    if not _FIRST_MS <= found <= _LAST_MS:  # by its time zone it may be outside of what a date in UTC can be
        raise Invalid(f"a time must be from year 1 to 9999 in UTC, not {value!r:.80}")
    return found


def past_ms(value: object, *, what: str) -> int | None:
    """Check when something happened; None if that is not said."""
    found = None if value is None else time_ms(value)
    if found is not None and found < 0:
        raise Invalid(f"{what} must not be before 1970, not {value}")
    return found


def many(value: object, *, what: str) -> list[Any]:
    """Check a list: a single string or value is a mistake, not a list of its characters."""
    if isinstance(value, str | bytes | Mapping | os.PathLike) or not isinstance(value, Iterable):
        raise Invalid(f"{what} must be a list, not a single {type(value).__name__}; write [...]")
    return list(value)


def flag(value: object, *, what: str, optional: bool = False) -> None:
    """Check a boolean; None only where that means either."""
    if not isinstance(value, bool) and not (optional and value is None):
        raise Invalid(f"{what} must be True or False{', or None for both' if optional else ''}, not {value!r:.40}")


def portion(limit: int | None, cursor: str | None) -> tuple[int | None, int | None]:
    """Check the limit and the cursor of a list that is ordered by one number."""
    if limit is not None:
        whole(limit, what="limit", low=1, high=10_000)
    from ..ops import feed  # few lists have pages of this sort

    return limit, None if cursor is None else feed.parse_cursor(cursor, 1)[0]


def page_of(found: Sequence[T], more: int | None) -> Page[T]:
    """Return a page of such a list; ``more`` is the number after which the next one begins."""
    from ..ops import feed

    return Page(found, None if more is None else feed.cursor((more,)))
