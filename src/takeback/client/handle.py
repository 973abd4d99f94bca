"""What every part of a session builds on: the store, and the fields as last read."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar, overload

from ..errors import LeaseLost
from ..model.entry import Draft
from ..model.operation import Operation
from ..ops import leases, operations
from ..ops.sessions import LeaseRow, SessionRow
from ..storage.base import Op, Tx
from ..storage.runner import How
from .fields import Fields

if TYPE_CHECKING:
    from ..ops.idempotency import ApiCall
    from .store import Store

T = TypeVar("T")
P = ParamSpec("P")
H = TypeVar("H", bound="Handle")
_PLAIN = How()


class Write(NamedTuple, Generic[T]):
    """A write that is ready to run: the operation, how to convert its result, and work that must happen first.

    The blocking API runs it at once; the async one hands many of them to one thread.
    """

    op: Op[Any]
    finish: Callable[[Any], T]
    before: Callable[[], None] | None = None


class writing(Generic[H, P, T]):
    """Make a method that returns a ``Write`` run it; ``plan`` returns the write without running it."""

    def __init__(self, plan: Callable[Concatenate[H, P], Write[T]]) -> None:
        self.plan = plan
        update_wrapper(self, plan)  # type: ignore[arg-type]

    @overload
    def __get__(self, handle: None, owner: type[Any]) -> writing[H, P, T]: ...
    @overload
    def __get__(self, handle: H, owner: type[Any]) -> Callable[P, T]: ...
    def __get__(self, handle: H | None, owner: type[Any]) -> writing[H, P, T] | Callable[P, T]:
        if handle is None:
            return self

        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            return handle._run(self.plan(handle, *args, **kwargs))

        return run


class Handle(Fields):
    """A session of a store as last read, and the ways to write to it."""

    _store: Store

    def __init__(self, store: Store, seen: SessionRow, doc: bytes | None = None, lease: LeaseRow | None = None) -> None:
        super().__init__(store, seen, doc, lease)
        self._late = 0
        self._waiting: tuple[SessionRow, dict[str, Draft]] = (seen, {})  # calls announced through this handle

    @property
    def _key(self) -> tuple[str, str]:
        """Scope and id, which operations find this session by."""
        return self._store.scope, self.id

    def _run(self, write: Write[T]) -> T:
        if write.before is not None:
            write.before()
        return write.finish(self._store._write(write.op))

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
