"""What the name of a store means: a path, a URL, or None for the user's own.

The library reads the environment only here, and only when no name is given.
"""

from __future__ import annotations

import os

from .. import codec
from ..errors import Invalid, Unsupported


def given(url: object) -> str:
    """Check the name of a store as a caller passes it; None is the user's own."""
    if url is not None and not isinstance(url, str | os.PathLike):
        raise Invalid(f"a store must be a path or URL, not {type(url).__name__}")
    place = default_url() if url is None else os.fspath(url)
    if not isinstance(place, str) or not place:
        raise Invalid("the name of the store is empty; use a path, 'sqlite:///path' or ':memory:'")
    return codec.storable_text(place, what="the name of a store")


def is_server(place: str) -> bool:
    """Whether a place is a PostgreSQL server."""
    if place[:8].lower() != "postgres":
        return False
    import re

    return re.match(r"postgres(ql)?(\+\w+)?:", place, re.IGNORECASE) is not None


def is_memory(place: str) -> bool:
    """Whether a place is in memory."""
    return place in (":memory:", "sqlite://", "sqlite://:memory:", "sqlite:///:memory:")


def shown(place: str) -> str:
    """Return a URL as it may be shown: without a password."""
    if "://" not in place and "password" not in place:
        return place
    import re

    return re.sub(r"(://[^:/@]*):[^@]*@", r"\1:***@", re.sub(r"([?&]\w*password=)[^&]*", r"\1***", place))


def path_of(place: str) -> str:
    """Return the file that a place names."""
    if "://" not in place:
        path = place
    else:
        from urllib.parse import unquote, urlsplit

        parts = urlsplit(place)
        if parts.scheme != "sqlite":
            raise Unsupported(
                f"there is no engine for {parts.scheme!r}; use a path, 'sqlite:///path' or ':memory:'",
                capability=parts.scheme,
            )
        if parts.netloc or parts.query or parts.fragment:
            raise Invalid("write sqlite:///relative.db or sqlite:////absolute.db, without host or options")
        path = unquote(parts.path[1:])
    if not path or "\0" in path:
        raise Invalid(f"{place!r} does not name a file")
    return path


def default_url() -> str:
    """Return the user's own store: ``TAKEBACK_STORE``, else a file in the XDG data directory."""
    if chosen := os.environ.get("TAKEBACK_STORE"):
        return chosen
    base = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    return os.path.join(base, "takeback", "takeback.db")
