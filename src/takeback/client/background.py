"""A store's background work: heartbeats for its leases, and streams flushed in time.

There is one thread for each, since a stream that waits for its session must not silence the leases. It starts with the
first lease or stream and ends when there is nothing left to keep. All leases of a scope share one write. Leases whose
handles were dropped are released, and so are those that could not be released at once; at exit all of them are, so that
only a killed process leaves a session interrupted.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from .. import presence
from ..errors import Closed
from ..ops import leases, runs
from ..ops.sessions import LeaseRow
from ..storage.runner import ALONE

if TYPE_CHECKING:
    from ..ops.leases import Fence
    from .base import StoreBase

_QUIET = 1.0
_PATIENCE = 2.0


class Held:
    """A lease that this process holds. ``sure`` is the last change of the session known to be its own.

    It is ``over`` once it was released, or lost to somebody else.
    """

    def __init__(self, store: StoreBase, session_id: str, lease: LeaseRow) -> None:
        self.store, self.session_id, self.lease = store, session_id, lease
        self.sure, self.depth, self.over = 0, 0, False
        self.running = set[str]()  # calls started under this lease that have no result yet
        self._end: dict[str, Any] = {"status": None}
        self._finalizer: Any = None

    def __repr__(self) -> str:
        return f"<Held {self.session_id[:12]} token {self.lease.token}{', over' if self.over else ''}>"

    @property
    def fence(self) -> Fence:
        """The token that every write checks."""
        return leases.Fence(self.lease.token, self.sure)

    def lose(self) -> None:
        """Note that somebody else has the session, until it is entered again."""
        self.over = True

    def belongs_to(self, handle: object) -> None:
        """Release the lease when a handle is garbage-collected."""
        self._finalizer = weakref.finalize(handle, self.store._keeper.abandon, self)
        # At exit the keeper's own finalizer releases all leases; queueing this one then would reach no thread.
        self._finalizer.atexit = False

    def give_back(self, status: str | None = None, **about: object) -> bool:
        """Release the lease; False if somebody else has it by now. Repeating this does nothing.

        A failed release is tried again later, since nobody else can have the session until then.
        """
        self._end = {"status": status, **about}
        try:
            return self.try_again()
        except Closed:
            raise
        except BaseException:
            self.store._keeper.abandon(self)
            raise

    def try_again(self) -> bool:
        """Release the lease as it was asked for."""
        if self.over:
            return True
        found = self.store._write(runs.leave_all, self.store.scope, [self.leaving()], now_ms=self.store._clock.now_ms())
        self.left()
        return found[0]

    def leaving(self) -> runs.Leaving:
        """Describe how the lease ends."""
        return runs.Leaving(self.session_id, self.lease, sorted(self.running), self._end)

    def left(self) -> None:
        """Note that the lease is over."""
        self.over = True
        if self._finalizer is not None:
            self._finalizer.detach()


class Flushed(Protocol):
    """Something that must be flushed in time."""

    def _due(self) -> float | None:
        """Return when, on the monotonic clock; None while there is nothing."""

    def flush(self) -> None:
        """Write it to disk."""

    def _cut(self) -> None:
        """End it as it is: the store is being closed."""


class Keeper:
    """The background work of a store and all its scopes."""

    def __init__(self) -> None:
        self.places: dict[Any, Any] = {}  # workspaces, by scope, path and limits
        self.places_lock = threading.Lock()
        self._mutex = threading.RLock()  # a signal handler may close the store
        self._wake = threading.Condition(self._mutex)
        self._held = set[Held]()
        self._streams: weakref.WeakSet[Flushed] = weakref.WeakSet()  # a dropped stream must not live on here
        self._abandoned = deque[Held]()
        self._threads = dict[str, threading.Thread]()
        self._beat_at = 0.0
        self._ending = weakref.finalize(self, _end, os.getpid(), self._held, self._streams)

    # ------------------------------------------------------------------ what is kept

    def keep(self, held: Held) -> None:
        """Send heartbeats for a lease."""
        with self._mutex:
            self._held.add(held)
            self._start("leases", Keeper._keep_leases)

    def drop(self, held: Held) -> None:
        """Stop sending heartbeats for a lease."""
        with self._mutex:
            self._held.discard(held)

    def abandon(self, held: Held) -> None:
        """Note a lease whose handle is gone; called by the garbage collector, when nothing may be written."""
        # No lock: the collector may run while this very thread holds it, and appending to a deque is atomic.
        self._abandoned.append(held)

    def watch(self, stream: Flushed) -> None:
        """Flush a stream whenever it is due."""
        with self._mutex:
            self._streams.add(stream)
            self._start("streams", Keeper._keep_streams)
            self._wake.notify_all()

    def forget(self, stream: Flushed) -> None:
        """Stop watching a stream."""
        with self._mutex:
            self._streams.discard(stream)

    def hurry(self) -> None:
        """Wake the thread to check when the next stream is due."""
        with self._mutex:
            self._wake.notify_all()

    def give_back_abandoned(self) -> None:
        """Release the leases of dropped handles, and those that could not be released at once."""
        for _ in range(len(self._abandoned)):
            try:
                held = self._abandoned.popleft()
            except IndexError:  # another thread took it
                return
            self.drop(held)
            if not _quietly(held.try_again):
                self._abandoned.append(held)

    def close(self) -> None:
        """End all streams and release all leases."""
        with self._mutex:
            streams, held = [*self._streams], [*self._held, *self._abandoned]
            self._streams.clear()
            self._held.clear()
            self._abandoned.clear()
            self._wake.notify_all()
        _end(os.getpid(), held, streams)

    # ------------------------------------------------------------------ the threads

    def _start(self, name: str, step: Callable[[Keeper], bool]) -> None:
        thread = self._threads.get(name)
        if thread is None or not thread.is_alive():
            self._beat_at = time.monotonic() + presence.BEAT_SECONDS
            thread = threading.Thread(target=_run, args=(weakref.ref(self), step), name=f"takeback-{name}", daemon=True)
            self._threads[name] = thread
            thread.start()

    def _keep_leases(self) -> bool:
        """Wait until heartbeats are due and send them; False when there is nothing to keep."""
        with self._mutex:
            if not self._held and not self._abandoned:
                self._wake.wait(_QUIET)
            if not self._held and not self._abandoned:
                self._threads.pop("leases", None)
                return False
            self._wake.wait(max(0.0, min(_QUIET, self._beat_at - time.monotonic())))
            held = [*self._held]
        if time.monotonic() >= self._beat_at:
            self._beat_at = time.monotonic() + presence.BEAT_SECONDS
            _quietly(lambda: self._beat(held))
            self.give_back_abandoned()
        return True

    def _keep_streams(self) -> bool:
        """Wait until a stream is due and flush it; False when there is none."""
        with self._mutex:
            if not self._streams:
                self._wake.wait(_QUIET)
            if not self._streams:
                self._threads.pop("streams", None)
                return False
            now = time.monotonic()
            due = [at for stream in self._streams if (at := stream._due()) is not None]
            self._wake.wait(max(0.0, min([now + _QUIET, *due]) - now))
            # A copy: a flush may wait for its session, and must not do so under the lock.
            streams = [*self._streams]
        for stream in streams:
            if (at := stream._due()) is not None and at <= time.monotonic():
                _quietly(stream.flush)
        return True

    def _beat(self, held: list[Held]) -> None:
        """Send one heartbeat for all leases of each scope; stop keeping those that are lost."""
        for group in _by_store(held):
            store = group[0].store
            try:
                found = store._write(leases.beat_all, [each.lease for each in group], store._clock.now_ms())
            except Closed:
                found = [False] * len(group)
            for each, ours in zip(group, found, strict=True):
                if not ours:
                    each.over = True
                    self.drop(each)


def _by_store(held: Iterable[Held]) -> Iterable[list[Held]]:
    groups = defaultdict[int, list[Held]](list)
    for each in held:
        groups[id(each.store)].append(each)
    return groups.values()


def _run(keeper: weakref.ref[Keeper], step: Callable[[Keeper], bool]) -> None:
    """Run a background step while the store is in use. A weak reference lets a dropped store be collected."""
    while (found := keeper()) is not None and step(found):
        del found  # or this thread would keep the store alive


def _quietly(step: Callable[[], object]) -> bool:
    """Run a step in the background; a failure reaches whoever writes next and must not end the thread."""
    try:
        step()
    except Closed:
        return True
    except Exception:
        return False
    return True


def _end(process: int, held: Iterable[Held], streams: Iterable[Flushed]) -> None:
    """End streams and leases as far as time allows; a forked child leaves those of its parent alone."""
    if os.getpid() != process:
        return
    deadline = time.monotonic() + _PATIENCE
    for stream in [*streams]:
        if time.monotonic() < deadline:
            _quietly(stream._cut)
    for group in _by_store(each for each in held if not each.over):
        if time.monotonic() < deadline and _quietly(partial(_leave, group)):
            for each in group:
                each.left()


def _leave(group: list[Held]) -> None:
    """Release the leases of one store in one write."""
    store = group[0].store
    leaving = [each.leaving() for each in group]
    store._write_as(ALONE, runs.leave_all, store.scope, leaving, now_ms=store._clock.now_ms())
