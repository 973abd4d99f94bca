"""Sessions whose workspace is on another machine, as a copy brings them: nobody looks for the directory."""

from __future__ import annotations

from os import PathLike
from typing import Any

from takeback import Session, Store
from takeback.client import store_sessions
from takeback.ops import new_sessions


def session_elsewhere(
    store: Store, name: str | None = None, *, workspace: str | PathLike[str] | None, agent: str = "main", **fields: Any
) -> Session:
    """Create a session like ``create_session``, in a workspace that need not exist here."""
    inner: Store = getattr(store, "_sync", store)
    made = store_sessions._fields(name, agent, workspace, fields, inner._clock.now_ms())  # type: ignore[arg-type]
    found = inner._write(new_sessions.create_once, inner.scope, inner._call(None, []), made, None)
    return store.get_session(inner._session(*found).id)
