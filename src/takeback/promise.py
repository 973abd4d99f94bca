"""One result that a task awaits and a thread provides, under asyncio and under trio.

Which library runs the task is found out when a promise is made, so one store may serve both, and any number of event
loops at once. Trio is never imported here: a task that runs under it has imported it already. A task that is cancelled
stops waiting; its promise is then kept for nobody.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, Protocol

Outcome = tuple[Any, BaseException | None]


class Promise(Protocol):
    """A result to come."""

    loop: Any  # the event loop of the task, which is one key for all promises of that loop

    def soon(self, call: Callable[..., None], *args: Any) -> None:
        """Run a call on the event loop, from any thread; raises ``RuntimeError`` if the loop is closed."""

    def settle(self, outcome: Outcome) -> None:
        """Provide the result, on the event loop."""

    def result(self) -> Awaitable[Any]:
        """Wait for the result; cancelling the task ends the wait."""

    def certain_result(self) -> Awaitable[Any]:
        """Wait for the result even if the task is cancelled meanwhile; it is told about that afterwards."""


def promise() -> Promise:
    """Return a promise to the task that runs now."""
    loop = asyncio._get_running_loop()
    if loop is not None and asyncio.current_task(loop) is not None:
        return AsyncioPromise(loop)
    trio = sys.modules.get("trio")
    if trio is not None:
        with suppress(RuntimeError):  # it is loaded, and another library runs this
            return TrioPromise(trio, trio.lowlevel.current_trio_token())
    if loop is None:
        raise RuntimeError("the awaitable API needs an event loop of asyncio or trio, and none is running here")
    return AsyncioPromise(loop)  # a coroutine that is driven by something other than a task


def tell(settled: Iterable[tuple[Promise, Outcome]]) -> None:
    """Settle promises from a thread, with one wake-up per event loop; a loop that is closed by then is skipped."""
    told: dict[Any, list[tuple[Promise, Outcome]]] = {}
    for each in settled:
        told.setdefault(each[0].loop, []).append(each)
    for these in told.values():
        with suppress(RuntimeError):
            these[0][0].soon(_settle, these)


def _settle(settled: list[tuple[Promise, Outcome]]) -> None:
    for each, outcome in settled:
        each.settle(outcome)


class AsyncioPromise:
    """A promise to a task of asyncio."""

    __slots__ = ("_future", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._future: asyncio.Future[Any] = loop.create_future()

    def soon(self, call: Callable[..., None], *args: Any) -> None:
        """Run a call on the event loop, from any thread."""
        self.loop.call_soon_threadsafe(call, *args)

    def settle(self, outcome: Outcome) -> None:
        """Provide the result, unless the task stopped waiting."""
        value, error = outcome
        if self._future.done():
            return
        if error is None:
            self._future.set_result(value)
        else:
            self._future.set_exception(error)

    def result(self) -> Awaitable[Any]:
        """Wait for the result."""
        return self._future

    async def certain_result(self) -> Any:
        """Wait for the result, whatever happens to the task."""
        cancelled = None
        while not self._future.done():
            try:
                await asyncio.wait([self._future])
            except asyncio.CancelledError as error:  # some libraries cancel again and again until the task ends
                cancelled = error
        if cancelled is not None:
            self._future.exception()  # nobody will ask for it
            raise cancelled
        return self._future.result()


class TrioPromise:
    """A promise to a task of trio."""

    __slots__ = ("_event", "_outcome", "_trio", "loop")

    def __init__(self, trio: Any, token: Any) -> None:
        self.loop, self._trio = token, trio
        self._event = trio.Event()
        self._outcome: Outcome = (None, None)

    def soon(self, call: Callable[..., None], *args: Any) -> None:
        """Run a call on the event loop, from any thread."""
        self.loop.run_sync_soon(call, *args)

    def settle(self, outcome: Outcome) -> None:
        """Provide the result."""
        self._outcome = outcome
        self._event.set()

    async def result(self) -> Any:
        """Wait for the result."""
        await self._event.wait()
        return self._settled()

    async def certain_result(self) -> Any:
        """Wait for the result, whatever happens to the task."""
        with self._trio.CancelScope(shield=True):
            await self._event.wait()
        return self._settled()

    def _settled(self) -> Any:
        value, error = self._outcome
        if error is not None:
            raise error
        return value
