"""What every part of a store stands on: the engine, the clock, the scope, and the operations of this handle."""

from __future__ import annotations

from typing import TypeVar

from ..clock import Clock
from ..files.disk.scan import Limits
from ..model.operation import Operation
from ..ops import sessions
from ..storage.base import Backend, Op
from .background import Keeper
from .session import Session
from .store_reading import StoreReading
from .workspaces import Place

T = TypeVar("T")


class StoreBase(StoreReading[Session]):
    """An open store, seen from one scope."""

    _backend: Backend

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
        super().__init__(backend.scoped(scope), clock=clock, scope=scope, url=url)
        self._owner = owner
        self._keeper = keeper or Keeper()
        self._operations = list[Operation]()

    def _place(self, path: str, limits: Limits, rules: tuple[str, ...], *, watch: bool = False) -> Place:
        """Give a workspace; all handles of this store share what is remembered of it."""
        key = self.scope, path, limits, rules, watch
        with self._keeper.places_lock:
            found = self._keeper.places.get(key)
            if found is None:
                found = self._keeper.places[key] = Place(self, path, limits, rules, watch=watch)
            return found

    def _write(self, op: Op[T], *, alone: bool = False) -> T:
        return self._backend.write(op, alone=alone)

    def _made(self, operation: Operation) -> None:
        """Remember an operation for ``undo`` and ``redo`` of this handle."""
        self._operations.append(operation)
        del self._operations[:-1000]

    def _session(self, row: sessions.SessionRow, doc: bytes | None, lease: sessions.LeaseRow | None = None) -> Session:
        return Session(self, row, doc, lease)  # type: ignore[arg-type]
