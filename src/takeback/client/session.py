"""A session: speak, read, work, move in time.

A handle holds what it last saw (``refresh`` renews it); every method runs one operation. Handles are
cheap, may be shared by threads, and two of them on one session never lose each other's work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import Invalid
from ..model.operation import Operation
from ..ops import moves, sessions
from . import arguments
from .branching import Moving
from .contexts import Contexts
from .subagents import Subagents


class Session(Subagents, Moving, Contexts):
    """One conversation of an agent."""

    # ------------------------------------------------------------------ changing fields

    def rename(self, title: str | None, *, idempotency_key: str | None = None) -> Operation:
        """Give it another title; None lets the next user message make one."""
        title = arguments.optional_name(title, what="title")
        return self._set("rename", {"title": title}, idempotency_key)

    def tag(self, *tags: str, idempotency_key: str | None = None) -> Operation:
        """Add tags; those it has already stay where they are."""
        return self._retag(_some(tags), [], idempotency_key)

    def untag(self, *tags: str, idempotency_key: str | None = None) -> Operation:
        """Remove tags; one that it has not is no error."""
        return self._retag([], _some(tags), idempotency_key)

    def archive(self, *, idempotency_key: str | None = None) -> Operation:
        """Leave it out of listings unless they ask for archived sessions."""
        return self._set("archive", {"archived": 1}, idempotency_key)

    def unarchive(self, *, idempotency_key: str | None = None) -> Operation:
        """Put it back into listings."""
        return self._set("unarchive", {"archived": 0}, idempotency_key)

    def pin(self, *, idempotency_key: str | None = None) -> Operation:
        """Mark it for finding again."""
        return self._set("pin", {"pinned": 1}, idempotency_key)

    def unpin(self, *, idempotency_key: str | None = None) -> Operation:
        """Take the mark away."""
        return self._set("unpin", {"pinned": 0}, idempotency_key)

    def set_metadata(self, metadata: Mapping[str, Any], *, idempotency_key: str | None = None) -> Operation:
        """Replace the caller's own data."""
        done = self._set("metadata", {"metadata": arguments.mapping(metadata, what="metadata")}, idempotency_key)
        self.refresh()
        return done

    def _set(self, kind: str, after: dict[str, Any], key: str | None) -> Operation:
        return self._operate(self._store._call(key, [kind, after]), moves.change, kind, after)

    def _retag(self, add: list[str], drop: list[str], key: str | None) -> Operation:
        return self._operate(self._store._call(key, ["tags", add, drop]), moves.retag, add=add, drop=drop)

    # ------------------------------------------------------------------ the handle

    def refresh(self) -> Session:
        """Read the session's fields again."""
        self._saw(*self._store._read(sessions.whole, self._store.scope, self.id))
        return self


def _some(tags: tuple[str, ...]) -> list[str]:
    if not tags:
        raise Invalid("name at least one tag")
    return [arguments.tag(tag) for tag in tags]
