"""Connections to the server: taken, checked, given back, and never waited for beyond a deadline.

The pool has no threads for connecting: whoever needs a connection opens it, sees the server's own error if that
fails, and retries until its deadline, so a server that comes back is used at once. Checking whether the server closed
an idle connection costs no round trip: the socket must have nothing to read. One watch thread per pool cuts
connections whose call has passed its deadline, because a call would wait forever for a reply that never comes (a
half-closed socket made psycopg wait for more than nine minutes). An interrupt may strike anywhere: a connection that
an interrupted call loses frees its place in the pool.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from ...errors import BackendError, Busy, Closed
from .address import ServerConnection

_LOOK_SECONDS = 0.2
_QUIET_LOOKS = 25
_GRACE = 1.0  # seconds more than the server's own timeout, whose error message is better
_RETRY_SECONDS = 0.1
_LIFETIME = 1800.0
_IDLE = 300.0
_IDLE_STATUS = psycopg.pq.TransactionStatus.IDLE


class _Place:
    """A slot for one connection of a pool; it is free again once nothing refers to it any more."""

    __slots__ = ("__weakref__",)


class Pooled:
    """A connection with its age, and a duplicate of its socket through which another thread can end it."""

    __slots__ = ("__weakref__", "_looks", "_socket", "connection", "cut_at", "made", "place", "used")

    def __init__(self, connection: ServerConnection, place: _Place | None = None) -> None:
        self.connection = connection
        self.place = place
        self.cut_at: float | None = None  # set while a call waits on it
        self.made = self.used = time.monotonic()
        try:
            # A duplicate: the driver may close its descriptor at any moment, and the number then means another file.
            self._socket = socket.socket(fileno=os.dup(connection.pgconn.socket))
        except BaseException:
            connection.close()
            raise
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        self._looks = poll.poll

    def is_fresh(self) -> bool:
        """Whether the connection is usable: not too old, and nothing to read, which would be the server closing it."""
        now = time.monotonic()
        return now - self.made < _LIFETIME and now - self.used < _IDLE and not self._looks(0)

    def cut(self) -> None:
        """Shut down the connection under whoever waits on it."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        """Close the connection, whatever state it is in."""
        try:
            self.connection.close()
        except psycopg.Error:
            pass
        self._socket.close()


class Pool:
    """At most ``size`` connections, the most recently used first; ``greet`` is called with each new one."""

    def __init__(
        self, connect: Callable[[float], ServerConnection], greet: Callable[[ServerConnection], None], *, size: int
    ) -> None:
        self._connect = connect
        self._greet = greet
        self._size = size
        self._mutex = threading.Lock()  # used directly: an interrupt may strike inside a condition's own "with"
        self._free = threading.Condition(self._mutex)
        self._idle = list[Pooled]()
        self._places = weakref.WeakSet[_Place]()
        self._closed = False
        self._waiting = 0
        self._watch = Watch()

    def take(self, deadline: float) -> Pooled:
        """Return a connection; if none is free or can be opened by the deadline, raise an error that says why."""
        with self._mutex:
            while not self._idle and len(self._places) >= self._size and not self._closed:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise Busy(f"all {self._size} connections of this store are in use; try again, or raise pool_size")
                self._waiting += 1
                try:
                    self._free.wait(min(left, _LOOK_SECONDS))  # a lost place notifies nobody
                finally:
                    self._waiting -= 1
            if self._closed:
                raise Closed()
            pooled = self._idle.pop() if self._idle else None
            place = pooled.place if pooled else None
            if place is None:
                self._places.add(place := _Place())
        if pooled is not None:
            if pooled.is_fresh():
                self._watch.until(deadline, pooled)
                return pooled
            pooled.close()
        try:
            return self._connected(deadline, place)
        except BaseException:
            self._forget(place)
            raise

    def _connected(self, deadline: float, place: _Place) -> Pooled:
        while True:
            try:
                pooled = Pooled(self._connect(max(1.0, deadline - time.monotonic())), place)
                return self._greeted(self._watch.know(pooled), deadline)
            except (psycopg.Error, OSError) as error:
                if time.monotonic() + _RETRY_SECONDS > deadline or not _may_pass(error):
                    if isinstance(error, psycopg.OperationalError | OSError):
                        raise BackendError(f"the PostgreSQL server cannot be reached: {words(error)}") from error
                    raise
                time.sleep(_RETRY_SECONDS)

    def _greeted(self, pooled: Pooled, deadline: float) -> Pooled:
        try:
            self._watch.until(deadline, pooled)
            self._greet(pooled.connection)
        except BaseException:
            pooled.close()
            raise
        return pooled

    def prolong(self, pooled: Pooled, seconds: float) -> None:
        """Cut a connection in use only so long from now."""
        self._watch.until(time.monotonic() + seconds, pooled)

    def give(self, pooled: Pooled, *, broken: bool = False) -> None:
        """Take a connection back; close it if it is broken or not idle."""
        pooled.cut_at = None
        if broken or self._closed or pooled.connection.pgconn.transaction_status != _IDLE_STATUS:
            pooled.close()
            self._forget(pooled.place)
            return
        pooled.used = time.monotonic()
        with self._mutex:
            self._idle.append(pooled)
            if self._waiting:
                self._free.notify()

    def _forget(self, place: _Place | None) -> None:
        with self._mutex:
            if place is not None:
                self._places.discard(place)
            self._free.notify()

    @contextmanager
    def taken(self, deadline: float, *, reach: float | None = None) -> Iterator[ServerConnection]:
        """Use a connection that is cut when the deadline passes, and closed if it is not idle afterwards.

        An unreachable server is retried for ``reach`` seconds if given, else until the deadline.
        """
        pooled, broken = self.take(deadline if reach is None else min(deadline, time.monotonic() + reach)), False
        try:
            if reach is not None:
                self._watch.until(deadline, pooled)
            yield pooled.connection
        except Exception:
            raise
        except BaseException:  # an interrupt may have struck between a statement and its reply
            broken = True
            raise
        finally:
            self.give(pooled, broken=broken)

    def apart(self, seconds: float) -> Pooled:
        """Open a connection outside the pool, for a caller who keeps it."""
        return self._watch.know(Pooled(self._connect(seconds)))

    @contextmanager
    def within(self, seconds: float, pooled: Pooled) -> Iterator[ServerConnection]:
        """Use a connection opened by ``apart`` for at most this long."""
        self._watch.until(time.monotonic() + seconds, pooled)
        try:
            yield pooled.connection
        finally:
            pooled.cut_at = None

    def close(self) -> None:
        """Close idle connections now, and those in use when they come back."""
        with self._mutex:
            self._closed = True
            idle, self._idle = self._idle, []
            self._free.notify_all()
        for pooled in idle:
            pooled.close()
        self._watch.close()


class Watch:
    """Cuts connections whose deadline has passed; its thread ends when there was nothing to watch for a while.

    A connection holds its own deadline, so watching it takes no lock. A cut may come a moment too late and hit the
    next user of the connection: for that one it breaks, as any connection may.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._known = weakref.WeakSet[Pooled]()
        self._thread: threading.Thread | None = None
        self._closed = False

    def know(self, pooled: Pooled) -> Pooled:
        """Add a new connection to those that are watched."""
        with self._mutex:
            self._known.add(pooled)
        return pooled

    def until(self, deadline: float, pooled: Pooled) -> None:
        """Watch a connection until its ``cut_at`` is cleared."""
        pooled.cut_at = deadline + _GRACE
        if self._thread is None:
            with self._mutex:
                if self._thread is None:
                    self._thread = start_thread("takeback-watch", self._run)

    def _run(self) -> None:
        quiet = 0
        while True:
            time.sleep(_LOOK_SECONDS)
            quiet = 0 if self._look() else quiet + 1
            if quiet > (0 if self._closed else _QUIET_LOOKS):
                self._thread = None
                if not self._look() or not self._took_over():  # from here on a new call starts a thread
                    return

    def _took_over(self) -> bool:
        """Continue for a call that still saw this thread, unless another thread was started; return whether we do."""
        with self._mutex:
            if self._thread is None:
                self._thread = threading.current_thread()
            return self._thread is threading.current_thread()

    def _look(self) -> bool:
        """Cut connections that are late; return whether any is waited on."""
        with self._mutex:
            waited = [(pooled, at) for pooled in self._known if (at := pooled.cut_at) is not None]
        now = time.monotonic()
        for pooled, at in waited:
            if at <= now:
                pooled.cut_at = None
                pooled.cut()
        return bool(waited)

    def close(self) -> None:
        """Let the thread end after the last call; calls in progress are still watched."""
        self._closed = True


def start_thread(name: str, run: Callable[[], None]) -> threading.Thread | None:
    """Start a thread; None if the system cannot start one, so that a call that can do without it does not fail."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


def _may_pass(error: Exception) -> bool:
    """Whether connecting again may help: a wrong password or an unknown database stays wrong."""
    state = getattr(error, "sqlstate", None)
    text = str(error)
    lasting = ("password authentication failed", "does not exist", "no password supplied", "no pg_hba.conf entry")
    mistaken = ("invalid integer value", "invalid port number", "invalid sslmode value", "unrecognized configuration")
    again = state is None or state[:2] in ("57", "08", "53") or state == "25006"  # a standby may become the primary
    return again and not any(each in text for each in lasting + mistaken)


def words(error: BaseException) -> str:
    """Return a driver's message on one line."""
    return " ".join(str(error).split())
