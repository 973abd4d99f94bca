"""The awaitable API behind blocking calls, so that one test suite covers both.

    store = awaited.open(path)                      # looks like a Store; every call goes through an event loop
    store = awaited.open(path, library="trio")      # one of trio

Each call is a coroutine on an event loop in a separate thread; results that are awaitable handles are wrapped in turn.
It is for tests only and adds nothing to the awaitable API.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Literal, TypeAlias, cast

import msgspec

import takeback
from takeback import Message, Page, Resolved, Spawned
from takeback.model import Home, home

Run: TypeAlias = Callable[[Awaitable[Any]], Any]  # waits for a coroutine on an event loop


@functools.cache
def _asyncio() -> Run:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="awaited", daemon=True).start()
    return lambda awaitable: asyncio.run_coroutine_threadsafe(_go(awaitable), loop).result()


@functools.cache
def _trio() -> Run:
    import trio

    tokens = SimpleQueue[Any]()

    async def main() -> None:
        tokens.put(trio.lowlevel.current_trio_token())
        await trio.sleep_forever()

    threading.Thread(target=trio.run, args=(main,), name="awaited", daemon=True).start()
    token = tokens.get()
    return lambda awaitable: trio.from_thread.run(_go, awaitable, trio_token=token)


async def _go(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def open(*args: Any, library: Literal["asyncio", "trio"] = "asyncio", **options: Any) -> takeback.Store:
    """Open a store whose every call is awaited."""
    run = _trio() if library == "trio" else _asyncio()
    return cast(takeback.Store, Awaited(run(takeback.aopen(*args, **options)), run))


class Awaited:
    """An awaitable handle, called as if it were a blocking one."""

    def __init__(self, inner: Any, run: Run) -> None:
        self._inner, self._run = inner, run

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        return _called(value, self._run) if inspect.ismethod(value) else _shown(value, self._run)

    def __enter__(self) -> Any:
        self._run(self._inner.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._inner.__aexit__(kind, error, trace))

    def __iter__(self) -> Iterator[Any]:
        return _iterate(self._inner.__aiter__(), self._run)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Awaited) and bool(self._inner == other._inner)

    def __hash__(self) -> int:
        return hash(self._inner)

    def __str__(self) -> str:
        return str(self._inner)

    def __repr__(self) -> str:
        return repr(self._inner)


def _called(method: Callable[..., Any], run: Run) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        given = method(*map(_plain, args), **{name: _plain(value) for name, value in kwargs.items()})
        return _shown(run(given) if inspect.isawaitable(given) else given, run)

    return call


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value)) if not hasattr(value, "_fields") else value
    return value._inner if isinstance(value, Awaited) else value


def _shown(value: Any, run: Run) -> Any:
    """Wrap awaitable handles, wherever they are nested."""
    if type(value).__name__.startswith("Async"):
        return Awaited(value, run)
    if isinstance(value, AsyncIterator):
        return _iterate(value, run)
    if type(value) is Page:
        return Page([_shown(item, run) for item in value], value.cursor, value.damaged)
    if isinstance(value, Resolved | Spawned):
        return value._replace(session=_shown(value.session, run))
    if isinstance(value, Message) and isinstance(value._reader, Home):
        return msgspec.structs.replace(value, _reader=_shown_home(value._reader, run))
    return [_shown(item, run) for item in value] if isinstance(value, list) else value


def _shown_home(inner: Home, run: Run) -> Home:
    made = home(inner.store)
    made.wrap = lambda attachment: _shown(attachment if inner.wrap is None else inner.wrap(attachment), run)
    return made


def _iterate(source: AsyncIterator[Any], run: Run) -> Iterator[Any]:
    while True:
        try:
            yield _shown(run(source.__anext__()), run)
        except StopAsyncIteration:
            return
