"""A session: append to it, read it, work in it, move it in time.

A handle holds what it last read (``refresh`` reads it again); every method runs one operation. Handles are cheap, may
be shared between threads, and two of them on one session never lose each other's writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import Invalid
from ..model.operation import Operation
from ..ops import moves, sessions
from ..storage.runner import FREEING_ALONE
from . import arguments
from .branching import Moving
from .contexts import Contexts
from .subagents import Subagents

if TYPE_CHECKING:
    from ..model.redaction import Redaction


class Session(Subagents, Moving, Contexts):
    """One conversation of an agent; ``with session:`` runs it, and each write is durable when its call returns."""

    # ------------------------------------------------------------------ changing fields

    def rename(self, title: str | None, *, idempotency_key: str | None = None) -> Operation:
        """Set the title; None clears it, and the next user message provides a new one."""
        title = arguments.optional_name(title, what="title")
        return self._set("rename", {"title": title}, idempotency_key)

    def tag(self, *tags: str, idempotency_key: str | None = None) -> Operation:
        """Add tags; tags that the session already has keep their position."""
        return self._retag(_some(tags), [], idempotency_key)

    def untag(self, *tags: str, idempotency_key: str | None = None) -> Operation:
        """Remove tags; tags that the session does not have are ignored."""
        return self._retag([], _some(tags), idempotency_key)

    def archive(self, *, idempotency_key: str | None = None) -> Operation:
        """Hide the session from listings that do not ask for archived sessions."""
        return self._set("archive", {"archived": 1}, idempotency_key)

    def unarchive(self, *, idempotency_key: str | None = None) -> Operation:
        """Show the session in listings again."""
        return self._set("unarchive", {"archived": 0}, idempotency_key)

    def pin(self, *, idempotency_key: str | None = None) -> Operation:
        """Pin the session, so that listings can filter for it."""
        return self._set("pin", {"pinned": 1}, idempotency_key)

    def unpin(self, *, idempotency_key: str | None = None) -> Operation:
        """Unpin the session."""
        return self._set("unpin", {"pinned": 0}, idempotency_key)

    def redact(self, *ids: str, dry_run: bool = True) -> Redaction:
        """Erase the content of messages and custom entries by id, on any branch; by default only show what would go.

        A tool call goes as a whole: the message that announces it, with all its calls, and their starts, approvals and
        results, even those in forks. The entries keep their place, time, id and numbers, and read as ``redacted``;
        ``verify`` still proves the rest. Forks that have or read them are named. This cannot be undone. Raises
        ``Invalid`` for state of work, such as tasks and plans, and for compactions; ``Conflict`` while one of the calls
        or an answer is open; ``Busy`` if somebody else runs the session.
        """
        from ..ops import agent_restore, redaction

        arguments.flag(dry_run, what="dry_run")
        wanted = [arguments.name(each, what="id", most=10_000) for each in ids]
        if not wanted:
            raise Invalid("no id was given; pass the ids of the entries to redact")
        if dry_run:
            return self._store._read(redaction.redact, *self._key, wanted, None, now_ms=0)
        judge = agent_restore.Judge(self._store._is_ours, self._store._is_gone, take_over=False)
        now_ms = self._store._clock.now_ms()
        done = self._do_as(FREEING_ALONE, redaction.redact, *self._key, wanted, judge, now_ms=now_ms)
        self._store._forget_erased([self.id])
        self.refresh()
        return done

    def set_metadata(self, metadata: Mapping[str, Any], *, idempotency_key: str | None = None) -> Operation:
        """Replace the caller's own metadata."""
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
        raise Invalid("no tag was given; pass at least one")
    return [arguments.tag(tag) for tag in tags]
