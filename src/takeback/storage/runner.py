"""Runs operations: functions of a transaction, on one engine, within one scope.

Everything above ``ops`` reaches the store through this: it names an operation and its arguments, and the engine decides
when it runs and how often. A writing operation may run again after writers collided, so it has no effect outside its
transaction; whatever must be the same in every attempt, such as the time, is an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeAlias, TypeVar

from ..clock import Clock
from .base import Backend, Readable, Tx

P = ParamSpec("P")
T = TypeVar("T")
B_co = TypeVar("B_co", bound=Readable, covariant=True)
Operation: TypeAlias = Callable[Concatenate[Tx, P], T]


class How(NamedTuple):
    """How a write runs; ``Backend.write`` says what the two mean."""

    alone: bool = False
    frees_space: bool = False


ALONE, FREEING, FREEING_ALONE = How(alone=True), How(frees_space=True), How(alone=True, frees_space=True)


class Reads(Generic[B_co]):
    """Runs operations that only read."""

    def __init__(self, backend: B_co, clock: Clock, scope: str) -> None:
        self.backend, self.clock, self.scope = backend, clock, scope

    def read(self, op: Operation[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation that only reads, as of one moment."""
        return self.backend.read(lambda tx: op(tx, *args, **kwargs))

    def at_once(self, work: Callable[[Moment], T]) -> T:
        """Run work that reads through several operations in one transaction; it may run again, and must not be long."""
        from .wrap import Remembering  # few need it

        return self.backend.read(lambda tx: work(Moment(Remembering(tx), self.clock, self.scope)))


class Moment(Reads[Any]):
    """Runs operations that only read in a transaction that is under way, so that all of them see the same moment."""

    def __init__(self, tx: Tx, clock: Clock, scope: str) -> None:
        super().__init__(None, clock, scope)
        self._tx = tx

    def read(self, op: Operation[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation."""
        return op(self._tx, *args, **kwargs)


class Runner(Reads[Backend]):
    """Runs operations that read or write."""

    def write(self, op: Operation[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation; it is durable when this returns."""
        return self.backend.write(lambda tx: op(tx, *args, **kwargs))

    def write_as(self, how: How, op: Operation[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation in a particular way; it is durable when this returns."""
        return self.backend.write(lambda tx: op(tx, *args, **kwargs), alone=how.alone, frees_space=how.frees_space)
