"""The awaitable API behind blocking calls, so that one test suite covers both.

    store = awaited.open(path)        # looks like a Store; every call goes through an event loop

Each call is a coroutine on an event loop in a separate thread; results that are awaitable handles are wrapped in turn.
It is for tests only and adds nothing to the awaitable API.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from types import TracebackType
from typing import Any, cast

import msgspec

import takeback
from takeback import Message, Page, Resolved, Spawned
from takeback.model import Home, home


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="awaited", daemon=True).start()
    return loop


def open(*args: Any, **options: Any) -> takeback.Store:
    """Open a store whose every call is awaited."""
    return cast(takeback.Store, Awaited(_await(takeback.aopen(*args, **options))))


def _await(awaitable: Any) -> Any:
    async def go() -> Any:
        return await awaitable

    return asyncio.run_coroutine_threadsafe(go(), _loop()).result()


class Awaited:
    """An awaitable handle, called as if it were a blocking one."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        return _called(value) if inspect.ismethod(value) else _shown(value)

    def __enter__(self) -> Any:
        _await(self._inner.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _await(self._inner.__aexit__(kind, error, trace))

    def __iter__(self) -> Iterator[Any]:
        return _iterate(self._inner.__aiter__())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Awaited) and bool(self._inner == other._inner)

    def __hash__(self) -> int:
        return hash(self._inner)

    def __str__(self) -> str:
        return str(self._inner)

    def __repr__(self) -> str:
        return repr(self._inner)


def _called(method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        given = method(*map(_plain, args), **{name: _plain(value) for name, value in kwargs.items()})
        return _shown(_await(given) if inspect.isawaitable(given) else given)

    return call


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value)) if not hasattr(value, "_fields") else value
    return value._inner if isinstance(value, Awaited) else value


def _shown(value: Any) -> Any:
    """Wrap awaitable handles, wherever they are nested."""
    if type(value).__name__.startswith("Async"):
        return Awaited(value)
    if isinstance(value, AsyncIterator):
        return _iterate(value)
    if isinstance(value, Page):
        return Page([_shown(item) for item in value], value.cursor, value.damaged)
    if isinstance(value, Resolved | Spawned):
        return value._replace(session=_shown(value.session))
    if isinstance(value, Message) and isinstance(value._reader, Home):
        return msgspec.structs.replace(value, _reader=_shown_home(value._reader))
    return [_shown(item) for item in value] if isinstance(value, list) else value


def _shown_home(inner: Home) -> Home:
    made = home(inner.store)
    made.wrap = lambda attachment: _shown(attachment if inner.wrap is None else inner.wrap(attachment))
    return made


def _iterate(source: AsyncIterator[Any]) -> Iterator[Any]:
    while True:
        try:
            yield _shown(_await(source.__anext__()))
        except StopAsyncIteration:
            return
