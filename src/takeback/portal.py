"""Where the async API meets the blocking one: threads that run calls, and one hop for many writes.

Writes requested while a commit is in progress run together, in one transaction and one hop, so a write costs the
event loop little. A call that was handed to a thread finishes even if the task that awaits it is cancelled: what it
stores is stored exactly once. Any number of event loops may use a portal at the same time.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from types import TracebackType
from typing import IO, Any, Generic, NamedTuple, TypeVar

from .client.handle import Write
from .client.waiting import stopped
from .errors import Closed, Error
from .model import Bound
from .model.page import Page
from .storage.base import Backend, Op, Tx

T = TypeVar("T")
U = TypeVar("U")
_PAGE = 256
_MOST = 128
_LOOK_SECONDS = 0.2


class _Waiting(NamedTuple):
    op: Op[Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


class _Failed(Error):
    """One operation of a batch raised, so none of the batch was stored."""


class Portal:
    """Runs blocking calls for tasks."""

    def __init__(self, threads: int = 8) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="takeback")
        self._mutex = threading.Lock()
        self._waiting = list[_Waiting]()
        self._draining = False
        self._closed = False

    async def run(self, call: Callable[[], T]) -> T:
        """Run a call in a thread; it finishes even if this task is cancelled."""
        if self._closed:
            raise Closed()
        future = asyncio.wrap_future(self._pool.submit(call))
        future.add_done_callback(_look_at)
        return await asyncio.shield(future)

    async def enter(self, call: Callable[[], T], undo: Callable[[T], object]) -> T:
        """Run a call that enters something; ``undo`` leaves it again if this task is cancelled meanwhile."""
        if self._closed:
            raise Closed()
        future = self._pool.submit(call)

        def end(done: Future[T]) -> None:
            if done.exception() is None:
                with contextlib.suppress(RuntimeError):  # the pool is closed, and so is the store
                    self._pool.submit(undo, done.result())

        awaited = asyncio.wrap_future(future)
        awaited.add_done_callback(_look_at)
        try:
            return await asyncio.shield(awaited)
        except asyncio.CancelledError:
            future.add_done_callback(end)
            raise

    async def wait(self, call: Callable[[], T]) -> T:
        """Run a call that waits for others in a thread of its own; cancelling the task stops the wait."""
        if self._closed:
            raise Closed()
        loop, stop = asyncio.get_running_loop(), threading.Event()
        future: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            stopped.set(stop.is_set)
            try:
                outcome: Outcome = (call(), None)
            except BaseException as error:
                outcome = (None, error)
            with contextlib.suppress(RuntimeError):  # the loop is closed, so nobody awaits this
                loop.call_soon_threadsafe(_settle, [(future, outcome)])

        threading.Thread(target=run, name="takeback-wait", daemon=True).start()
        try:
            return await future
        finally:
            stop.set()

    async def write(self, backend: Backend, step: Write[T]) -> T:
        """Run a write together with those of other tasks; it finishes even if this task is cancelled."""
        if step.unprepared:
            task = asyncio.ensure_future(self._write_after(backend, step))
            task.add_done_callback(_look_at)
            return await asyncio.shield(task)
        if self._closed:
            raise Closed()
        if not backend.capabilities.groups:
            return step.finish(await self.run(lambda: backend.write(step.run)))
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        with self._mutex:
            self._waiting.append(_Waiting(step.run, future, loop))
            start, self._draining = not self._draining, True
        if start:
            self._pool.submit(self._drain, backend)
        return step.finish(await future)

    async def _write_after(self, backend: Backend, step: Write[T]) -> T:
        await self.run(step.prepare)
        return await self.write(backend, step)

    async def iterate(self, call: Callable[[], Iterator[T]]) -> AsyncIterator[T]:
        """Iterate page by page, each page in one hop."""
        rows = await self.run(lambda: iter(call()))
        while page := await self.run(lambda: list(islice(rows, _PAGE))):
            for row in page:
                yield row

    async def follow(self, call: Callable[[Callable[[], bool]], Iterator[T]]) -> AsyncIterator[T]:
        """Iterate over something that waits for events, in a thread of its own that ends with the iteration.

        ``call`` gets a function that returns whether to stop. At most ``_PAGE`` items are read ahead.
        """
        loop, ended = asyncio.get_running_loop(), object()
        items, room, stop = asyncio.Queue[Any](), threading.Semaphore(_PAGE), threading.Event()

        def tell(item: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, so nobody awaits this
                loop.call_soon_threadsafe(items.put_nowait, item)

        def run() -> None:
            try:
                for item in call(stop.is_set):
                    while not room.acquire(timeout=_LOOK_SECONDS) and not stop.is_set():
                        pass
                    if stop.is_set():
                        return
                    tell((item, None))
                tell((ended, None))
            except BaseException as error:
                tell((ended, error))

        threading.Thread(target=run, name="takeback-follow", daemon=True).start()
        try:
            while True:
                item, error = await items.get()
                if error is not None:
                    raise error
                if item is ended:
                    return
                room.release()
                yield item
        finally:
            stop.set()

    async def close(self, call: Callable[[], None]) -> None:
        """Run a last call, then shut down the threads once they finish what was handed to them."""
        if self._closed:
            return
        await self.run(call)
        self._closed = True
        self._pool.shutdown(wait=False)

    def abandon(self) -> None:
        """Shut down the threads of a portal whose store never opened."""
        self._closed = True
        self._pool.shutdown(wait=False)

    # ------------------------------------------------------------------ in a thread

    def _drain(self, backend: Backend) -> None:
        """Run waiting writes, batch after batch, until none is left."""
        while True:
            with self._mutex:
                batch, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
                self._draining = bool(batch)
            if not batch:
                return
            _tell(batch, _write_all(backend, [waiting.op for waiting in batch]))


def _look_at(future: asyncio.Future[Any]) -> None:
    """Retrieve an error that nobody awaits any more, so that the loop does not log it."""
    if not future.cancelled():
        future.exception()


Outcome = tuple[Any, BaseException | None]


def _write_all(backend: Backend, ops: list[Op[Any]]) -> list[Outcome]:
    """Run operations in one transaction; if one raises, run them one by one so that only that one fails."""
    if len(ops) == 1:
        return [_attempt(backend, ops[0])]

    def together(tx: Tx) -> list[Any]:
        try:
            return [op(tx) for op in ops]
        except Exception as error:
            raise _Failed from error

    try:
        return [(value, None) for value in backend.write(together)]
    except _Failed:
        return [_attempt(backend, op) for op in ops]
    except BaseException as error:  # the engine failed, maybe after the commit: a rerun could store twice
        return [(None, error)] * len(ops)


def _attempt(backend: Backend, op: Op[Any]) -> Outcome:
    try:
        return backend.write(op), None
    except BaseException as error:
        return None, error


def _tell(batch: list[_Waiting], outcomes: list[Outcome]) -> None:
    """Settle futures, with one wake-up per event loop; a loop that is closed by then is skipped."""
    told: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Outcome]]] = {}
    for waiting, outcome in zip(batch, outcomes, strict=True):
        told.setdefault(waiting.loop, []).append((waiting.future, outcome))
    for loop, settled in told.items():
        try:
            loop.call_soon_threadsafe(_settle, settled)
        except RuntimeError:
            continue


def _settle(settled: list[tuple[asyncio.Future[Any], Outcome]]) -> None:
    for future, (value, error) in settled:
        if future.done():
            continue
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)


# ---------------------------------------------------------------------- awaitable forms of more than plain calls


class Opening(Generic[T]):
    """Something to open: await it, or use it with ``async with``."""

    def __init__(self, opening: Callable[[], Awaitable[T]]) -> None:
        self._opening = opening
        self._opened: T | None = None

    def __await__(self) -> Generator[Any, None, T]:
        return self._opening().__await__()

    async def __aenter__(self) -> T:
        self._opened = await self._opening()
        return await self._opened.__aenter__()  # type: ignore[attr-defined, no-any-return]

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._opened.__aexit__(kind, error, trace)  # type: ignore[union-attr]


class AsyncReader(Bound):
    """Content read as a stream: with ``async with`` and ``await read(n)``, or piece by piece with ``async for``."""

    def __init__(self, portal: Portal, opening: Callable[[], IO[bytes]]) -> None:
        self._portal = portal
        self._opening = opening
        self._stream: IO[bytes] | None = None

    async def read(self, size: int = -1) -> bytes:
        """Read up to ``size`` bytes, by default all; empty at the end."""
        stream = self._stream
        if stream is None:
            stream = self._stream = await self._portal.run(self._opening)
        return await self._portal.run(lambda: stream.read(size))

    async def close(self) -> None:
        """Close the content."""
        if self._stream is not None:
            await self._portal.run(self._stream.close)

    async def __aenter__(self) -> AsyncReader:
        self._stream = await self._portal.run(self._opening)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while piece := await self.read(1 << 20):
            yield piece


def unwrap(value: Any) -> Any:
    """Return the blocking handle behind an async one, even inside lists and dicts; other values unchanged."""
    if type(value) in (list, tuple, Page):
        return [unwrap(each) for each in value]
    if type(value) is dict:
        return {key: unwrap(each) for key, each in value.items()}
    return getattr(value, "_sync", value)


async def wrapped(source: AsyncIterator[T], wrap: Callable[[T], U]) -> AsyncIterator[U]:
    """Wrap each item of an async iterator."""
    async for item in source:
        yield wrap(item)
