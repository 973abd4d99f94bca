"""What goes on in the background of a store: signs of life for its leases, and streams brought to disk in time.

One thread per open store, which starts with the first lease or stream and ends when there is nothing to keep. All
leases of a scope share one write. Leases of handles that nobody has any more are given back; at the end of the
process all are, so that only a process that was killed leaves a session interrupted.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Protocol

from ..errors import Closed, Error, LeaseLost
from ..ops import leases, runs
from ..ops.leases import Fence
from ..ops.sessions import LeaseRow, SessionRow
from ..presence import BEAT_SECONDS
from ..storage.base import Tx

if TYPE_CHECKING:
    from .base import StoreBase

_QUIET = 1.0


class Held:
    """A lease that this process holds. ``sure`` is the last change of the session that is known to be its own."""

    def __init__(self, store: StoreBase, session_id: str, lease: LeaseRow, sure: int) -> None:
        self.store, self.session_id = store, session_id
        self.lease, self.sure = lease, sure
        self.depth = 0
        self.over = False

    @property
    def fence(self) -> Fence:
        """What every write names."""
        return Fence(self.lease.token, self.sure)

    def require(self, tx: Tx, session: SessionRow) -> None:
        """Refuse a write once somebody else has the session: until it is entered again."""
        try:
            leases.require(tx, session, self.fence)
        except LeaseLost:
            self.over = True
            raise

    def give_back(self, status: str | None = None, *, orderly: bool = False, **about: object) -> None:
        """End the lease; doing so again does nothing, and neither does it if somebody else has it by now.

        Who leaves in order leaves nothing to say about how an earlier run ended.
        """
        if self.over:
            return
        store, token = self.store, self.lease.token
        now_ms = store._clock.now_ms()
        try:
            store._write(
                lambda tx: runs.leave(
                    tx, store.scope, self.session_id, token, status=status, orderly=orderly, now_ms=now_ms, **about
                )
            )
        except Closed:
            raise
        except BaseException:
            store._keeper.abandon(self)  # tried again later: nobody else could have the session
            raise
        self.over = True


class Flushed(Protocol):
    """Something that must be brought to disk in time."""

    def _due(self) -> float | None:
        """Give when, by the monotonic clock; None while there is nothing."""

    def flush(self) -> None:
        """Bring it to disk."""

    def _cut(self) -> None:
        """End it as it is: the store is being closed."""


class Keeper:
    """The background of a store and of all its scopes."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._wake = threading.Condition(self._mutex)
        self._held = set[Held]()
        self._streams = set[Flushed]()
        self._abandoned = deque[Held]()
        self._thread: threading.Thread | None = None
        self._beat_at = 0.0
        self._ending = weakref.finalize(self, _end, self._held, self._streams)

    # ------------------------------------------------------------------ what is kept

    def keep(self, held: Held) -> None:
        """Give signs of life for a lease."""
        with self._mutex:
            self._held.add(held)
            self._start()

    def drop(self, held: Held) -> None:
        """Stop keeping a lease."""
        with self._mutex:
            self._held.discard(held)

    def abandon(self, held: Held) -> None:
        """Note a lease whose handle is gone; called while memory is cleaned up, when nothing may be written."""
        self._abandoned.append(held)

    def watch(self, stream: Flushed) -> None:
        """Bring a stream to disk whenever it is due."""
        with self._mutex:
            self._streams.add(stream)
            self._start()
            self._wake.notify()

    def forget(self, stream: Flushed) -> None:
        """Stop watching a stream."""
        with self._mutex:
            self._streams.discard(stream)

    def hurry(self) -> None:
        """Look again when the next stream is due."""
        with self._mutex:
            self._wake.notify()

    def give_back_abandoned(self) -> None:
        """Give back the leases of handles that nobody has any more."""
        for _ in range(len(self._abandoned)):
            try:
                held = self._abandoned.popleft()
            except IndexError:  # another thread took it
                return
            self.drop(held)
            _quietly(held.give_back)

    def close(self) -> None:
        """End all streams and give all leases back."""
        self.give_back_abandoned()
        with self._mutex:
            streams, held = [*self._streams], [*self._held]
            self._streams.clear()
            self._held.clear()
            self._wake.notify()
        _end(held, streams)

    # ------------------------------------------------------------------ the thread

    def _start(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._beat_at = time.monotonic() + BEAT_SECONDS
            self._thread = threading.Thread(target=_run, args=(weakref.ref(self),), name="holdfast-keeper", daemon=True)
            self._thread.start()

    def _step(self) -> bool:
        """Do what is due, and wait for the next; False when there is nothing to keep."""
        with self._mutex:
            if not self._held and not self._streams:
                self._wake.wait(_QUIET)
                if not self._held and not self._streams:
                    self._thread = None
                    return False
            due = [at for stream in self._streams if (at := stream._due()) is not None]
            self._wake.wait(max(0.0, min([self._beat_at, time.monotonic() + _QUIET, *due]) - time.monotonic()))
            held, streams = [*self._held], [*self._streams]
        for stream in streams:
            if (at := stream._due()) is not None and at <= time.monotonic():
                _quietly(stream.flush)
        if time.monotonic() >= self._beat_at:
            self._beat_at = time.monotonic() + BEAT_SECONDS
            _quietly(self.give_back_abandoned)
            self._beat(held)
        return True

    def _beat(self, held: list[Held]) -> None:
        """Leave one sign of life for all leases of each scope; those that are gone are kept no longer."""
        scopes = defaultdict[int, list[Held]](list)
        for each in held:
            scopes[id(each.store)].append(each)
        for group in scopes.values():
            store = group[0].store
            now_ms = store._clock.now_ms()

            def op(tx: Tx, group: list[Held] = group, now_ms: int = now_ms) -> list[LeaseRow | None]:
                return [leases.beat(tx, each.lease, now_ms) for each in group]

            try:
                found = store._write(op)
            except Closed:
                found = [None] * len(group)
            except Error:
                continue  # the next one may come through
            for each, row in zip(group, found, strict=True):
                if row is None:
                    self.drop(each)


def _run(keeper: weakref.ref[Keeper]) -> None:
    """Keep as long as somebody has the store."""
    while (found := keeper()) is not None and found._step():
        del found


def _quietly(step: object) -> None:
    try:
        step()  # type: ignore[operator]
    except Error:
        pass  # whoever writes next is told


def _end(held: object, streams: object) -> None:
    for stream in [*streams]:  # type: ignore[misc]
        _quietly(stream._cut)
    for each in [*held]:  # type: ignore[misc]
        _quietly(each.give_back)
