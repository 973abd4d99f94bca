"""What every part of a store builds on: the engine, the clock, the scope, and the operations of this handle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import presence
from ..clock import Clock
from ..errors import Error
from ..files import workspaces
from ..model.operation import Operation
from ..ops import idempotency, sessions
from ..storage import notices
from ..storage.base import Backend
from ..storage.runner import How, P, Runner, T
from ..storage.runner import Operation as Op
from . import arguments
from .background import Keeper
from .session import Session
from .store_reading import StoreReading

if TYPE_CHECKING:
    from ..files.disk.scan import Limits
    from ..files.workspaces import CapturedDirectory
    from ..ops.idempotency import ApiCall


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
        self._runner: Runner = Runner(self._backend, clock, scope)
        self._owner = owner
        self._keeper = keeper or Keeper()
        self._made_holder: bytes | None = None
        self._operations = list[Operation]()

    @property
    def _holder(self) -> bytes:
        """The process that runs the tools of sessions here, as it is recorded."""
        if self._made_holder is None:
            self._made_holder = presence.encode(presence.here(self._clock.now_ms()))
        return self._made_holder

    def _act_for(self, holder: presence.Holder) -> None:
        """Record another process as the one that runs the tools: this one only reports what that one does."""
        self._made_holder = presence.encode(holder)

    def _place(self, path: str, limits: Limits, rules: tuple[str, ...]) -> CapturedDirectory:
        """Return a workspace; all handles of this store share one, with what it remembers from earlier scans."""
        key = self.scope, path, limits, rules
        with self._keeper.places_lock:
            found = self._keeper.places.get(key)
            if found is None:
                found = self._keeper.places[key] = workspaces.CapturedDirectory(self._runner, path, limits, rules)
            return found

    def _write(self, op: Op[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation; it is durable when this returns."""
        return self._runner.write(op, *args, **kwargs)

    def _write_as(self, how: How, op: Op[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation in a given way; it is durable when this returns."""
        return self._runner.write_as(how, op, *args, **kwargs)

    def _forget_erased(self, ids: Sequence[str]) -> None:
        """Erase from the search index what was just erased of sessions; if that fails, the next search does it."""
        from . import searching

        try:
            searching.searcher(self).forget_erased(ids)
        except Error as error:
            notices.note("what was erased is still in the search index, until the next search: %s", error)

    def _call(self, key: str | None, request: Any) -> ApiCall:
        """Return what makes a call repeatable: its checked key, its request, and the time."""
        return idempotency.ApiCall(arguments.optional_name(key, what="idempotency_key"), request, self._clock.now_ms())

    def _made(self, operation: Operation) -> None:
        """Remember an operation for this handle's ``undo`` and ``redo``."""
        self._operations.append(operation)
        del self._operations[:-1000]

    def _session(self, row: sessions.SessionRow, doc: bytes | None, lease: sessions.LeaseRow | None = None) -> Session:
        return Session(self, row, doc, lease)
