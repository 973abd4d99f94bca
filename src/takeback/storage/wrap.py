"""Backends that wrap a backend: tracing, faults, read-only; and a transaction that remembers what it read.

Each keeps the contract of ``base``, so wrappers can be stacked in any order.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar

import msgspec

from ..errors import Unsupported
from .base import Backend, Capabilities, Dialect, Op, Quick, Row, Shape, SideTables, Tx, Value, Waiting

T = TypeVar("T")
_FEW = 8


class Wrapper:
    """Forwards everything; the base of the others."""

    def __init__(self, inner: Backend) -> None:
        self.inner = inner

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    @property
    def suspect(self) -> bool:
        return self.inner.suspect

    def read(self, op: Op[T]) -> T:
        return self.inner.read(op)

    def write(self, op: Op[T], *, frees_space: bool = False, alone: bool = False) -> T:
        return self.inner.write(op, frees_space=frees_space, alone=alone)

    def scoped(self, scope: str | None) -> Self:
        other = copy.copy(self)
        other.inner = self.inner.scoped(scope)
        return other

    def listen(self) -> Waiting:
        return self.inner.listen()

    def beside(self, shape: Shape) -> SideTables:
        return self.inner.beside(shape)

    def size_bytes(self) -> int:
        return self.inner.size_bytes()

    def check(self) -> list[str]:
        return self.inner.check()

    def copy_to(self, path: str) -> list[str]:
        return self.inner.copy_to(path)

    def close(self) -> None:
        self.inner.close()


class ReadOnly(Wrapper):
    """Refuses every write with ``Unsupported``, before the engine sees it."""

    @property
    def capabilities(self) -> Capabilities:
        return msgspec.structs.replace(self.inner.capabilities, read_only=True)

    def write(self, op: Op[T], *, frees_space: bool = False, alone: bool = False) -> T:
        raise Unsupported("this store was opened read-only", capability="write")


class _PassedTx:
    """What the transactions of all wrappers forward unchanged."""

    def __init__(self, inner: Tx) -> None:
        self._inner = inner

    @property
    def dialect(self) -> Dialect:
        return self._inner.dialect

    @property
    def quick(self) -> Quick | None:
        return None  # the wrapper would not see its statements

    def lock(self, what: str) -> None:
        self._inner.lock(what)

    def take_time(self, seconds: float) -> None:
        self._inner.take_time(seconds)

    def keyed(self) -> None:
        self._inner.keyed()

    def next(self, table: str) -> int:
        return self._inner.next(table)

    def next_many(self, table: str, count: int) -> Sequence[int]:
        return self._inner.next_many(table, count)

    def reached(self, position: int) -> None:
        self._inner.reached(position)

    def newest(self) -> int | None:
        return self._inner.newest()

    def keep(self, scope: str, session_id: str, row: Any, rank: int) -> None:
        self._inner.keep(scope, session_id, row, rank)

    def kept(self, scope: str, session_id: str) -> Any:
        return self._inner.kept(scope, session_id)

    def kept_rank(self, scope: str) -> int | None:
        return self._inner.kept_rank(scope)


class Remembering(_PassedTx):
    """A transaction that only reads: it shows one moment, so it never asks for the same few rows twice."""

    def __init__(self, inner: Tx) -> None:
        super().__init__(inner)
        self._known = dict[tuple[str, tuple[Value, ...]], list[Row]]()

    def run(self, sql: str, args: Sequence[Value] = ()) -> None:
        self._inner.run(sql, args)

    def one(self, sql: str, args: Sequence[Value] = ()) -> Row | None:
        rows = self.all(sql, args)
        return rows[0] if rows else None

    def all(self, sql: str, args: Sequence[Value] = ()) -> list[Row]:
        key = sql, tuple(args)
        found = self._known.get(key)
        if found is None:
            found = self._inner.all(sql, args)
            if len(found) <= _FEW:  # pages are read once anyway, and memory must not grow with them
                self._known[key] = found
        return found


class _TracedTx(_PassedTx):
    def __init__(self, inner: Tx, sink: Callable[[str, float], None]) -> None:
        super().__init__(inner)
        self._sink = sink

    def _timed(self, call: Callable[[str, Sequence[Value]], T], sql: str, args: Sequence[Value]) -> T:
        started = time.perf_counter()
        try:
            return call(sql, args)
        finally:
            self._sink(sql, time.perf_counter() - started)

    def run(self, sql: str, args: Sequence[Value] = ()) -> None:
        self._timed(self._inner.run, sql, args)

    def one(self, sql: str, args: Sequence[Value] = ()) -> Row | None:
        return self._timed(self._inner.one, sql, args)

    def all(self, sql: str, args: Sequence[Value] = ()) -> list[Row]:
        return self._timed(self._inner.all, sql, args)


class Traced(Wrapper):
    """Reports each statement and its duration in seconds to ``sink``: only SQL text, never values."""

    def __init__(self, inner: Backend, sink: Callable[[str, float], None]) -> None:
        super().__init__(inner)
        self._sink = sink

    def read(self, op: Op[T]) -> T:
        return self.inner.read(lambda tx: op(_TracedTx(tx, self._sink)))

    def write(self, op: Op[T], *, frees_space: bool = False, alone: bool = False) -> T:
        return self.inner.write(lambda tx: op(_TracedTx(tx, self._sink)), frees_space=frees_space, alone=alone)


class _FaultyTx(_PassedTx):
    def __init__(self, inner: Tx, before: Callable[[str], None]) -> None:
        super().__init__(inner)
        self._before = before

    def run(self, sql: str, args: Sequence[Value] = ()) -> None:
        self._before(sql)
        self._inner.run(sql, args)

    def one(self, sql: str, args: Sequence[Value] = ()) -> Row | None:
        self._before(sql)
        return self._inner.one(sql, args)

    def all(self, sql: str, args: Sequence[Value] = ()) -> list[Row]:
        self._before(sql)
        return self._inner.all(sql, args)


class Faulty(Wrapper):
    """Calls ``before(sql)`` ahead of every statement; the statement raises what it raises."""

    def __init__(self, inner: Backend, before: Callable[[str], None]) -> None:
        super().__init__(inner)
        self._before = before

    def read(self, op: Op[T]) -> T:
        return self.inner.read(lambda tx: op(_FaultyTx(tx, self._before)))

    def write(self, op: Op[T], *, frees_space: bool = False, alone: bool = False) -> T:
        return self.inner.write(lambda tx: op(_FaultyTx(tx, self._before)), frees_space=frees_space, alone=alone)
