"""What every part of a session builds on: the store, and the fields as last read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from ..errors import LeaseLost
from ..model.operation import Operation
from ..ops import leases, operations
from ..ops.sessions import SessionRow
from ..storage.base import Op, Tx
from ..storage.runner import How
from .fields import Fields

if TYPE_CHECKING:
    from ..ops.idempotency import ApiCall
    from .store import Store

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
P = ParamSpec("P")
_PLAIN = How()


class Write(Protocol[T_co]):
    """A write that is ready to run.

    The blocking API runs it at once; the async one hands many of them to one thread.
    """

    unprepared: bool

    def prepare(self) -> None:
        """Do what must happen before the transaction, if it is ``unprepared``."""

    @property
    def run(self) -> Op[Any]:
        """The operation."""

    def finish(self, done: Any) -> T_co:
        """Turn the operation's result into the caller's."""


class Handle(Fields):
    """A session of a store as last read, and the ways to write to it."""

    _store: Store
    _late = 0
    # The calls announced through this handle, with their tools, and the row that this holds for.
    _waiting: tuple[SessionRow | None, dict[str, str]] = (None, {})

    @property
    def _key(self) -> tuple[str, str]:
        """Scope and id, which operations find this session by."""
        return self._store.scope, self.id

    def _run(self, write: Write[T]) -> T:
        """Run a planned write; a method that is nothing but this call is batched with others in the async API."""
        if write.unprepared:
            write.prepare()
        return write.finish(self._store._backend.write(write.run))

    def _do(self, op: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a write; raises ``LeaseLost`` if this handle held the session and somebody else holds it now."""
        return self._do_as(_PLAIN, op, *args, **kwargs)

    def _do_as(self, how: How, op: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a write in a given way."""
        held, write = self._held, self._store._write_as
        if held is None:
            return write(how, op, *args, **kwargs)
        try:
            run: Any = write
            done: T = run(how, leases.fenced, self._store.scope, self.id, held.fence, op, *args, **kwargs)
            return done
        except LeaseLost:
            held.lose()
            raise

    def _done_before(self, call: ApiCall) -> Operation | None:
        """Return what an earlier call with this idempotency key did, or None.

        Asked before files are scanned; without files the transaction itself checks the key.
        """
        return None if call.key is None or not self._seen.workspace else self._ask(operations.done_before, call)

    def _operate(
        self, call: ApiCall, op: Callable[..., tuple[SessionRow, Operation]], *args: Any, **kwargs: Any
    ) -> Operation:
        """Run an operation on this session once per idempotency key, and remember it for ``Store.undo``."""
        self._seen, operation = self._do(operations.once, self._store.scope, self.id, call, op, *args, **kwargs)
        if operation.summary != operations.NOTHING:
            self._store._made(operation)
        return operation
