"""What every part of a session stands on: the store, and the fields that were last seen."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar, overload

from ..errors import Invalid
from ..model.branch import Branch
from ..model.checkpoint import Checkpoint
from ..model.entry import Draft
from ..model.message import Message
from ..model.operation import Operation
from ..model.session import Head
from ..model.status import ACTIVE
from ..ops import checkpoints, moves, operations, sessions
from ..ops.once import made_before, once
from ..ops.sessions import LeaseRow, SessionRow
from ..storage.base import Op, Tx
from . import check

if TYPE_CHECKING:
    from .keeper import Held
    from .store import Store

T = TypeVar("T")
P = ParamSpec("P")
H = TypeVar("H", bound="Handle")
Point = int | str | Message | Checkpoint | Branch | Head
FindPlace = Callable[[Tx, SessionRow], moves.Place]
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


class Handle:
    """A session of a store, as last seen."""

    def __init__(self, store: Store, seen: SessionRow, doc: bytes | None = None, lease: LeaseRow | None = None) -> None:
        self._store = store
        self._held: Held | None = None
        self.resumed = False
        self._saw(seen, doc, lease)
        self._late = 0
        self._waiting: tuple[SessionRow, dict[str, Draft]] = (seen, {})  # calls that were announced through it

    @property
    def id(self) -> str:
        """Unique everywhere, sorted by time."""
        return self._seen.id

    def _row(self, tx: Tx) -> SessionRow:
        return sessions.get(tx, self._store.scope, self.id)

    def _saw(self, seen: SessionRow, doc: bytes | None, lease: LeaseRow | None) -> None:
        """Take in the session as it was read, and whether whoever runs it is still there."""
        self._seen, self._doc, self._lease = seen, doc, lease
        self._gone = not self._holds() and seen.status == ACTIVE and lease is not None and self._store._is_gone(lease)

    def _holds(self) -> bool:
        return self._held is not None and not self._held.over

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
            number = made_before(tx, self._store.scope, self._row(tx).sid, key, request)
            return None if number is None else operations.named(tx, operations.by_number(tx, number))

        return self._store._read(look)

    def _once(
        self, tx: Tx, request: Any, key: str | None, op: Op[tuple[SessionRow, Operation]]
    ) -> tuple[SessionRow, Operation]:
        """Run an operation once per idempotency key."""

        def do() -> tuple[tuple[SessionRow, Operation], int]:
            done = op(tx)
            return done, operations.number_of(tx, self._store.scope, done[1].id)

        def again(number: int) -> tuple[SessionRow, Operation]:
            return self._row(tx), operations.named(tx, operations.by_number(tx, number))

        if key is None:
            return op(tx)
        return once(tx, self._store.scope, self._row(tx).sid, key, request, do=do, again=again)

    def _operate(
        self, request: Any, op: Callable[[Tx, int], tuple[SessionRow, Operation]], key: str | None = None
    ) -> Operation:
        """Run an operation on this session, once per idempotency key, and remember it for ``Store.undo``."""
        key, now_ms = check.optional_name(key, what="idempotency_key"), self._store._clock.now_ms()

        self._seen, operation = self._do(lambda tx: self._once(tx, request, key, lambda tx: op(tx, now_ms)))
        if operation.summary != operations.NOTHING:
            self._store._made(operation)
        return operation


def place_of(point: Point) -> FindPlace:
    """Read a point as callers give it: a checkpoint, its name or id, a message, a seq, a branch's tip, a head."""
    if isinstance(point, Message):
        if not point.seq:
            raise Invalid("this message is still being written and has no place yet; wait until its stream is finished")
        place = moves.Place(point.seq, point.branch)
    elif isinstance(point, Checkpoint):
        place = moves.Place(point.head.seq, point.head.branch, anywhere=True)
    elif isinstance(point, Head):
        place = moves.Place(point.seq, point.branch, anywhere=True)
    elif isinstance(point, Branch):
        return _tip(point.id)
    elif isinstance(point, str):
        return _named(check.name(point, what="a point"))
    else:
        place = moves.Place(check.whole(point, what="a point"))
    return lambda tx, session: place


def request_of(point: Point) -> Any:
    """Describe a point for comparing two requests with one idempotency key."""
    if isinstance(point, Head):
        return [*point]
    return point if isinstance(point, int | str) else point.id


def _tip(branch: str) -> FindPlace:
    def find(tx: Tx, session: SessionRow) -> moves.Place:
        uid, seq, _ = moves.tip_of(tx, session, branch)
        return moves.Place(seq, uid, anywhere=True)

    return find


def _named(name: str) -> FindPlace:
    def find(tx: Tx, session: SessionRow) -> moves.Place:
        row = checkpoints.get(tx, session, name)
        there = checkpoints.seen_from(tx, session, row)
        return moves.Place(row.seq, there.uid, anywhere=True)

    return find
