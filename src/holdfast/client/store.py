"""The store: where everything is kept.

A handle may be used by any thread and closed by any of them. ``scoped`` gives a handle for another
scope on the same connections; nothing of one scope is ever seen through another.
"""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from types import TracebackType
from typing import TypeVar

from ..clock import Clock
from ..model.feed import Change
from ..model.operation import Operation
from ..model.page import Page
from ..model.report import Report
from ..model.session import StoreStats
from ..ops import changes, feed, operations, sessions, stats
from ..ops import verify as verify_
from ..storage.base import Backend, Capabilities, Op
from . import check
from .session import Session

T = TypeVar("T")
_FEED_PAGE = 500


class Store:
    """An open store, seen from one scope."""

    def __init__(self, backend: Backend, *, clock: Clock, scope: str = "", url: str = "", owner: bool = True) -> None:
        self._backend = backend
        self._owner = owner
        self._clock = clock
        self.scope = scope
        self.url = url

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do, as it was opened."""
        return self._backend.capabilities

    def close(self) -> None:
        """Finish what is being written and release the files; a handle that ``scoped`` gave leaves them open."""
        if self._owner:
            self._backend.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        scope = f" scope {self.scope!r}" if self.scope else ""
        return f"<Store {self.url}{scope} {self.capabilities.journal}>"

    def scoped(self, scope: str | None) -> Store:
        """Give a handle for another scope on the same connections."""
        return Store(self._backend, clock=self._clock, scope=check.scope(scope), url=self.url, owner=False)

    # ------------------------------------------------------------------ sessions

    def create_session(
        self,
        name: str | None = None,
        *,
        agent: str = "main",
        workspace: str | PathLike[str] | None = None,
        title: str | None = None,
        kind: str = "main",
    ) -> Session:
        """Start a session; a name that a visible session of this agent and workspace has is ``Conflict``."""
        fields = {
            "agent": check.name(agent, what="agent"),
            "kind": check.name(kind, what="kind"),
            "workspace": check.workspace(workspace),
        }
        name = check.optional_name(name, what="session name")
        title = check.optional_name(title, what="title")
        now_ms = self._clock.now_ms()
        row = self._write(lambda tx: sessions.create(tx, self.scope, name=name, title=title, now_ms=now_ms, **fields))
        return Session(self, row)

    def get_session(self, session_id: str) -> Session:
        """Give a session by its exact id, also one in the trash."""
        wanted = check.name(session_id, what="session id")
        row = self._read(lambda tx: sessions.get(tx, self.scope, wanted))
        return Session(self, row)

    def find_session(
        self, name: str, *, agent: str = "main", workspace: str | PathLike[str] | None = None
    ) -> Session | None:
        """Give the visible session of that exact name, or None."""
        wanted = check.name(name, what="session name")
        agent = check.name(agent, what="agent")
        place = check.workspace(workspace)
        row = self._read(lambda tx: sessions.find_by_name(tx, self.scope, agent=agent, workspace=place, name=wanted))
        return None if row is None else Session(self, row)

    def list_sessions(self, *, limit: int = 50, cursor: str | None = None) -> Page[Session]:
        """Give visible sessions, last changed first; the page's cursor gives the next page."""
        check.whole(limit, what="limit", low=1, high=10_000)
        before = None if cursor is None else feed.parse_cursor(cursor)
        rows = self._read(lambda tx: sessions.newest(tx, self.scope, before=before, limit=limit + 1))
        more = len(rows) > limit
        found = rows[:limit]
        next_cursor = feed.cursor(found[-1].rank) if more else None
        return Page([Session(self, row) for row in found], next_cursor)

    def delete_session(self, session_id: str) -> Operation | None:
        """Put a session into the trash; one that is absent or there already is no error."""
        return self._hide(session_id, hidden=True)

    def restore_session(self, session_id: str) -> Operation | None:
        """Take a session out of the trash; if its name is taken by then, it gets `` (2)`` behind it."""
        self.get_session(session_id)
        return self._hide(session_id, hidden=False)

    def _hide(self, session_id: str, *, hidden: bool) -> Operation | None:
        wanted = check.name(session_id, what="session id")
        now_ms = self._clock.now_ms()
        return self._backend.write(
            lambda tx: operations.hide(tx, self.scope, wanted, hidden=hidden, now_ms=now_ms), frees_space=True
        )

    # ------------------------------------------------------------------ the whole store

    def events(self, after: str | None = None) -> Iterator[Change]:
        """Give every change after a cursor, in the order of commits, up to now."""
        position, seen = feed.parse_cursor(after), -1
        while position > seen:
            seen = position
            page, position = self._changes(position)
            yield from page

    def _changes(self, after: int) -> tuple[list[Change], int]:
        return self._read(lambda tx: changes.after(tx, self.scope, position=after, limit=_FEED_PAGE))

    def stats(self) -> StoreStats:
        """Count what this scope holds; bytes are those of the whole store on disk."""
        size = self._backend.size_bytes()
        return self._read(lambda tx: stats.store_stats(tx, self.scope, total_bytes=size))

    def verify(self) -> Report:
        """Recompute every check and every hash of the store, all scopes; nothing is changed."""
        return verify_.verify(self._backend.read, self._backend.check)

    def _read(self, op: Op[T]) -> T:
        return self._backend.read(op)

    def _write(self, op: Op[T]) -> T:
        return self._backend.write(op)
