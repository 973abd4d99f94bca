"""What every part of a session stands on: the store, and the fields that were last seen."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar, overload

from ..model.entry import Draft
from ..model.operation import Operation
from ..ops import operations
from ..ops.idempotency import made_before, once
from ..ops.sessions import LeaseRow, SessionRow
from ..storage.base import Op, Tx
from . import arguments
from .fields import Fields
from .points import FindPlace as FindPlace
from .points import Point as Point
from .points import place_of as place_of
from .points import request_of as request_of

if TYPE_CHECKING:
    from .store import Store

T = TypeVar("T")
P = ParamSpec("P")
H = TypeVar("H", bound="Handle")
SessionOp = Callable[[Tx, int], tuple[SessionRow, Operation]]


class Write(NamedTuple, Generic[T]):
    """A write that is ready to run: the operation, what its result becomes, and work that must come before it.

    The blocking API runs it at once; the awaitable one hands many of them to one thread.
    """

    op: Op[Any]
    finish: Callable[[Any], T]
    before: Callable[[], None] | None = None


class writing(Generic[H, P, T]):
    """Make a method that gives a ``Write`` run it; ``plan`` gives the write without running it."""

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
    """A session of a store, as last seen, and the ways to change it."""

    _store: Store

    def __init__(self, store: Store, seen: SessionRow, doc: bytes | None = None, lease: LeaseRow | None = None) -> None:
        super().__init__(store, seen, doc, lease)
        self._late = 0
        self._waiting: tuple[SessionRow, dict[str, Draft]] = (seen, {})  # calls that were announced through it

    def _run(self, write: Write[T]) -> T:
        if write.before is not None:
            write.before()
        return write.finish(self._store._write(write.op))

    def _do(self, op: Op[T], *, alone: bool = False) -> T:
        """Run a write; that of somebody who held the session and does no more is ``LeaseLost``."""
        held = self._held
        if held is None:
            return self._store._write(op, alone=alone)

        def fenced(tx: Tx) -> T:
            held.require(tx, self._row(tx))
            return op(tx)

        return self._store._write(fenced, alone=alone)

    def _done_before(self, request: Any, key: str | None) -> Operation | None:
        """Give what an earlier call with this idempotency key did, or None.

        Asked before files are looked at; where there are none, the transaction itself asks.
        """
        if key is None or not self._seen.workspace:
            return None

        def look(tx: Tx) -> Operation | None:
            made = made_before(tx, self._store.scope, self._row(tx).sid, key, request)
            return None if made is None else operations.named(tx, operations.find(tx, self._store.scope, made))

        return self._store._read(look)

    def _once(
        self, tx: Tx, request: Any, key: str | None, op: Op[tuple[SessionRow, Operation]], now_ms: int
    ) -> tuple[SessionRow, Operation]:
        """Run an operation once per idempotency key."""
        scope = self._store.scope

        def do() -> tuple[tuple[SessionRow, Operation], str]:
            done = op(tx)
            return done, operations.recorded_id(done[1])

        def again(made: str) -> tuple[SessionRow, Operation]:
            return self._row(tx), operations.named(tx, operations.find(tx, scope, made))

        if key is None:
            return op(tx)
        sid = self._row(tx).sid
        return once(tx, scope, sid, key, request, kind="operation", now_ms=now_ms, do=do, again=again)

    def _operate(
        self, request: Any, op: Callable[[Tx, int], tuple[SessionRow, Operation]], key: str | None = None
    ) -> Operation:
        """Run an operation on this session, once per idempotency key, and remember it for ``Store.undo``."""
        key, now_ms = arguments.optional_name(key, what="idempotency_key"), self._store._clock.now_ms()

        self._seen, operation = self._do(lambda tx: self._once(tx, request, key, lambda tx: op(tx, now_ms), now_ms))
        if operation.summary != operations.NOTHING:
            self._store._made(operation)
        return operation
