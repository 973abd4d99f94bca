"""What every part of a store stands on: the engine, the clock, the scope, and the operations of this handle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from .. import presence
from ..clock import Clock
from ..model.operation import Operation
from ..ops import sessions
from ..storage.base import Backend, Op
from ..workspace.scan import Limits
from .attachments import Attachment
from .keeper import Keeper
from .session import Session
from .workspaces import Place

T = TypeVar("T")


class StoreBase:
    """An open store, seen from one scope."""

    scope: str
    url: str

    def __init__(
        self,
        backend: Backend,
        *,
        clock: Clock,
        scope: str = "",
        url: str = "",
        owner: bool = True,
        keeper: Keeper | None = None,
    ) -> None:
        self._backend = backend.scoped(scope)
        self._owner = owner
        self._keeper = keeper or Keeper()
        self._clock = clock
        self._operations = list[Operation]()
        self._attachment: Callable[[dict[str, Any]], Any] = lambda given: Attachment(self, given)  # type: ignore[arg-type]
        self.scope = scope
        self.url = url

    def _place(self, path: str, limits: Limits, rules: tuple[str, ...], *, watch: bool = False) -> Place:
        """Give a workspace; all handles of this store share what is remembered of it."""
        key = self.scope, path, limits, rules, watch
        with self._keeper.places_lock:
            found = self._keeper.places.get(key)
            if found is None:
                found = self._keeper.places[key] = Place(self, path, limits, rules, watch=watch)
            return found

    def _read(self, op: Op[T]) -> T:
        return self._backend.read(op)

    def _write(self, op: Op[T], *, alone: bool = False) -> T:
        return self._backend.write(op, alone=alone)

    def _made(self, operation: Operation) -> None:
        """Remember an operation for ``undo`` and ``redo`` of this handle."""
        self._operations.append(operation)
        del self._operations[:-1000]

    def _session(self, row: sessions.SessionRow, doc: bytes | None, lease: sessions.LeaseRow | None = None) -> Session:
        return Session(self, row, doc, lease)  # type: ignore[arg-type]

    def _is_gone(self, lease: sessions.LeaseRow) -> bool:
        """Say whether the holder of a lease is there no more."""
        return lease.holder is not None and presence.seems_gone(
            presence.decode(lease.holder), lease.beat_ms, self._clock.now_ms()
        )
