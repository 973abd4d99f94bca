"""Where the async API meets the blocking one: threads that run calls, and one hop for many writes.

Writes requested while a commit is in progress run together, in one transaction and one hop, so a write costs the
event loop little. A call that was handed to a thread finishes even if the task that awaits it is cancelled: what it
stores is stored exactly once. Any number of event loops may use a portal at the same time, of asyncio and of trio.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import islice
from types import TracebackType
from typing import IO, Any, Generic, TypeVar

from .client.handle import Write
from .client.waiting import stopped
from .errors import Closed, Error
from .model import Bound
from .model.page import Page
from .promise import Outcome, Promise, promise, tell
from .storage.base import Backend, Op, Tx

T = TypeVar("T")
U = TypeVar("U")
_PAGE = 256
_MOST = 128
_LOOK_SECONDS = 0.2
_here = threading.local()  # ``is_portal`` is set in threads that may block


class _Failed(Error):
    """One operation of a batch raised, so none of the batch was stored."""


class Portal:
    """Runs blocking calls for tasks."""

    def __init__(self, threads: int = 8) -> None:
        self._threads = threads
        self._pool = self._new_pool()
        self._mutex = threading.Lock()
        self._opening = threading.RLock()
        self._waiting = list[tuple[Op[Any], Promise]]()
        self._draining = False
        self._closed = False

    def _new_pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._threads, thread_name_prefix="takeback", initializer=_enter_thread)

    async def run(self, call: Callable[[], T]) -> T:
        """Run a call in a thread; it finishes even if this task is cancelled."""
        found: T = await self._submit(call)[0].result()
        return found

    async def finish(self, call: Callable[[], T]) -> T:
        """Run a call that ends something, and wait for it even if this task is cancelled meanwhile."""
        found: T = await self._submit(call)[0].certain_result()
        return found

    async def enter(self, call: Callable[[], T], undo: Callable[[T], object]) -> T:
        """Run a call that enters something; ``undo`` leaves it again if this task is cancelled meanwhile."""
        promised, future = self._submit(call)

        def end(done: Future[T]) -> None:
            if done.exception() is None:
                with suppress(RuntimeError):  # the pool is closed, and so is the store
                    self._pool.submit(undo, done.result())

        try:
            found: T = await promised.result()
            return found
        except BaseException:
            future.add_done_callback(end)
            raise

    async def wait(self, call: Callable[[], T]) -> T:
        """Run a call that waits for others in a thread of its own; cancelling the task stops the wait."""
        promised, stop = self._promise(), threading.Event()

        def run() -> None:
            stopped.set(stop.is_set)
            _enter_thread()
            tell([(promised, _outcome(call))])

        threading.Thread(target=run, name="takeback-wait", daemon=True).start()
        try:
            found: T = await promised.result()
            return found
        finally:
            stop.set()

    async def write(self, backend: Backend, step: Write[T]) -> T:
        """Run a write together with those of other tasks; it finishes even if this task is cancelled."""
        promised = self._promise()
        if step.unprepared:
            self._pool.submit(self._prepare, backend, step, promised)
        elif not backend.capabilities.groups:
            self._pool.submit(lambda: tell([(promised, _attempt(backend, step.run))]))
        elif self._is_first(step.run, promised):
            self._pool.submit(self._drain, backend)
        return step.finish(await promised.result())

    def iterate(self, call: Callable[[], Iterator[T]]) -> AsyncIterator[T]:
        """Iterate page by page, each page in one hop."""
        return _Pages(self, call)

    def follow(self, call: Callable[[Callable[[], bool]], Iterator[T]]) -> AsyncIterator[T]:
        """Iterate over something that waits for events, in a thread of its own that ends with the iteration.

        ``call`` gets a function that returns whether to stop. At most ``_PAGE`` items are read ahead.
        """
        return _Following(self, call)

    async def close(self, call: Callable[[], None]) -> None:
        """Run a last call, then shut down the threads once they finish what was handed to them."""
        if self._closed:
            return
        try:
            await self.finish(call)
        finally:
            self._closed = True
            self._pool.shutdown(wait=False)

    def rest(self) -> None:
        """End the threads, which were of no use: the store did not open. Others begin with the next call."""
        idle, self._pool = self._pool, self._new_pool()
        idle.shutdown(wait=False)

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Let one thread at a time open or close the store; raises ``Closed`` where that would block an event loop."""
        if not getattr(_here, "is_portal", False):
            raise Closed(
                "this store is not open yet, and only calls that are awaited can open it;"
                " await the store first, or use it with async with"
            )
        with self._opening:
            if self._closed:
                raise Closed()
            yield

    def _promise(self) -> Promise:
        if self._closed:
            raise Closed()
        return promise()

    def _submit(self, call: Callable[[], T]) -> tuple[Promise, Future[T]]:
        """Hand a call to a thread."""
        promised = self._promise()
        return promised, self._pool.submit(_keep_promise, promised, call)

    # ------------------------------------------------------------------ in a thread

    def _prepare(self, backend: Backend, step: Write[Any], promised: Promise) -> None:
        """Do what comes before a write, then let it run with the others."""
        try:
            step.prepare()
        except BaseException as error:
            tell([(promised, (None, error))])
            return
        if not backend.capabilities.groups:
            tell([(promised, _attempt(backend, step.run))])
        elif self._is_first(step.run, promised):
            self._drain(backend)

    def _is_first(self, op: Op[Any], promised: Promise) -> bool:
        """Let a write wait for the others, and return whether somebody must start running them."""
        with self._mutex:
            self._waiting.append((op, promised))
            start, self._draining = not self._draining, True
        return start

    def _drain(self, backend: Backend) -> None:
        """Run waiting writes, batch after batch, until none is left."""
        while True:
            with self._mutex:
                batch, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
                self._draining = bool(batch)
            if not batch:
                return
            outcomes = _write_all(backend, [op for op, _ in batch])
            tell(zip([promised for _, promised in batch], outcomes, strict=True))


def _enter_thread() -> None:
    _here.is_portal = True


def _keep_promise(promised: Promise, call: Callable[[], T]) -> T:
    """Run a call, and hand its result to the task and to the future of the pool."""
    try:
        value = call()
    except BaseException as error:
        tell([(promised, (None, error))])
        raise
    tell([(promised, (value, None))])
    return value


def _outcome(call: Callable[[], Any]) -> Outcome:
    try:
        return call(), None
    except BaseException as error:
        return None, error


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
    return _outcome(lambda: backend.write(op))


# ---------------------------------------------------------------------- iterators


class _Iterating(AsyncIterator[T]):
    """An iterator that can be closed early; not an async generator, which event loops finalise in ways of their own."""

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def aclose(self) -> None:
        """End the iteration."""


class _Pages(_Iterating[T]):
    """Rows that are read page by page."""

    def __init__(self, portal: Portal, call: Callable[[], Iterator[T]]) -> None:
        self._portal, self._call = portal, call
        self._rows: Iterator[T] | None = None
        self._page = deque[T]()
        self._ended = False

    async def __anext__(self) -> T:
        if not self._page and not self._ended:
            self._page.extend(await self._portal.run(self._read))
            self._ended = not self._page
        if not self._page:
            raise StopAsyncIteration
        return self._page.popleft()

    def _read(self) -> list[T]:
        if self._rows is None:
            self._rows = iter(self._call())
        return list(islice(self._rows, _PAGE))

    async def aclose(self) -> None:
        """End the iteration."""
        self._page.clear()
        self._rows, self._ended = None, True


class _Following(_Iterating[T]):
    """Items that a thread reads as they come. It ends when this is closed, or dropped."""

    def __init__(self, portal: Portal, call: Callable[[Callable[[], bool]], Iterator[T]]) -> None:
        self._portal, self._call = portal, call
        self._shared: _Shared | None = None

    async def __anext__(self) -> T:
        if self._shared is None:
            self._shared = _Shared()
            self._portal._promise()  # raises if the store is closed, before a thread begins
            threading.Thread(target=self._shared.run, args=(self._call,), name="takeback-follow", daemon=True).start()
        shared = self._shared
        while (promised := shared.waits(self._portal)) is not None:
            await promised.result()
        item, error = shared.items.popleft()
        if error is not None:
            shared.items.append((item, error))  # whoever asks again gets the same answer
            raise error
        shared.room.release()
        return item  # type: ignore[no-any-return]

    async def aclose(self) -> None:
        """End the iteration, and its thread."""
        self.__del__()
        self._shared = self._shared or _Shared()
        self._shared.items.clear()
        self._shared.items.append((None, StopAsyncIteration()))

    def __del__(self) -> None:
        if self._shared is not None:
            self._shared.stop.set()


class _Shared:
    """What the thread of an iterator and its reader share: it does not hold the iterator, so that can be dropped."""

    def __init__(self) -> None:
        self.items = deque[Outcome]()
        self.room, self.stop = threading.Semaphore(_PAGE), threading.Event()
        self._mutex = threading.Lock()
        self._reader: Promise | None = None

    def waits(self, portal: Portal) -> Promise | None:
        """Return what the reader has to wait for, or None if there is an item."""
        with self._mutex:
            if not self.items:
                self._reader = portal._promise()
                return self._reader
        return None

    def run(self, call: Callable[[Callable[[], bool]], Iterator[Any]]) -> None:
        """Read items until the end, an error, or a reader that is gone."""
        _enter_thread()
        end: BaseException = StopAsyncIteration()
        try:
            for item in call(self.stop.is_set):
                while not self.room.acquire(timeout=_LOOK_SECONDS) and not self.stop.is_set():
                    pass
                if self.stop.is_set():
                    return
                self._add((item, None))
        except BaseException as error:
            end = error
        self._add((None, end))

    def _add(self, item: Outcome) -> None:
        with self._mutex:
            self.items.append(item)
            reader, self._reader = self._reader, None
        if reader is not None:
            tell([(reader, (None, None))])


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
            await self._portal.finish(self._stream.close)

    async def __aenter__(self) -> AsyncReader:
        self._stream = await self._portal.run(self._opening)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return _Pieces(self)


class _Pieces(_Iterating[bytes]):
    """The pieces of a content."""

    def __init__(self, reader: AsyncReader) -> None:
        self._reader = reader

    async def __anext__(self) -> bytes:
        if piece := await self._reader.read(1 << 20):
            return piece
        raise StopAsyncIteration


def unwrap(value: Any) -> Any:
    """Return the blocking handle behind an async one, even inside lists and dicts; other values unchanged."""
    if type(value) in (list, tuple, Page):
        return [unwrap(each) for each in value]
    if type(value) is dict:
        return {key: unwrap(each) for key, each in value.items()}
    return getattr(value, "_sync", value)


class _Wrapped(_Iterating[U], Generic[T, U]):
    """An iterator whose items are wrapped."""

    def __init__(self, source: AsyncIterator[T], wrap: Callable[[T], U]) -> None:
        self._source, self._wrap = source, wrap

    async def __anext__(self) -> U:
        return self._wrap(await anext(self._source))

    async def aclose(self) -> None:
        """End the iteration."""
        await self._source.aclose()  # type: ignore[attr-defined]


def wrapped(source: AsyncIterator[T], wrap: Callable[[T], U]) -> AsyncIterator[U]:
    """Wrap each item of an async iterator."""
    return _Wrapped(source, wrap)
