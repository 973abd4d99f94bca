"""Connections to the server: taken, looked at, given back, and never waited for beyond a deadline.

The pool has no threads of its own for connecting: whoever needs a connection makes it and sees the server's own
words when that fails, and tries again until its deadline, so a server that comes back is used at once. Looking whether
an idle connection was closed by the server costs no round trip: nothing may be readable on it. A single watch thread
per pool cuts connections whose call has passed its deadline, since a reply that never comes would be waited for
for ever (a half-closed socket made psycopg wait for more than nine minutes).
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from ...errors import BackendError, Busy, Closed
from .address import Line

_LOOK_SECONDS = 0.2
_RETRY_SECONDS = 0.1
_LIFETIME = 1800.0
_IDLE = 300.0


class Pooled:
    """A connection with its age."""

    __slots__ = ("connection", "made", "used")

    def __init__(self, connection: Line) -> None:
        self.connection = connection
        self.made = self.used = time.monotonic()

    def is_fresh(self) -> bool:
        """Say whether the connection can be used: not old, and not closed by the server meanwhile."""
        now, pgconn = time.monotonic(), self.connection.pgconn
        if self.connection.closed or now - self.made > _LIFETIME or now - self.used > _IDLE:
            return False
        poll = select.poll()
        poll.register(pgconn.socket, select.POLLIN)
        if not poll.poll(0):
            return True
        try:  # a notice of the server, or its end
            pgconn.consume_input()
        except psycopg.Error:
            return False
        return pgconn.status == psycopg.pq.ConnStatus.OK and not poll.poll(0)

    def close(self) -> None:
        """Let go of the connection, whatever state it is in."""
        try:
            self.connection.close()
        except psycopg.Error:
            pass


class Pool:
    """At most ``size`` connections, the last used one first."""

    def __init__(self, connect: Callable[[float], Line], *, size: int) -> None:
        self._connect = connect
        self._size = size
        self._free = threading.Condition()
        self._idle = list[Pooled]()
        self._count = 0
        self._closed = False
        self._watch = Watch()

    def take(self, deadline: float) -> Pooled:
        """Give a connection; none free or none to be had by the deadline is an error that says why."""
        with self._free:
            while not self._idle and self._count >= self._size and not self._closed:
                left = deadline - time.monotonic()
                if left <= 0 or not self._free.wait(left):
                    raise Busy(f"all {self._size} connections of this store are in use; call again, or raise pool_size")
            if self._closed:
                raise Closed()
            pooled = self._idle.pop() if self._idle else None
            self._count += pooled is None
        if pooled is not None:
            if pooled.is_fresh():
                return pooled
            pooled.close()
        try:
            return Pooled(self._connected(deadline))
        except BaseException:
            self._forget()
            raise

    def _connected(self, deadline: float) -> Line:
        while True:
            try:
                return self._connect(max(1.0, deadline - time.monotonic()))
            except psycopg.OperationalError as error:
                if time.monotonic() + _RETRY_SECONDS > deadline or not _may_pass(error):
                    raise BackendError(f"the PostgreSQL server cannot be reached: {words(error)}") from error
                time.sleep(_RETRY_SECONDS)

    def give(self, pooled: Pooled, *, broken: bool = False) -> None:
        """Take a connection back; one that is broken, or not idle, is closed."""
        idle = psycopg.pq.TransactionStatus.IDLE
        if broken or self._closed or pooled.connection.closed or pooled.connection.info.transaction_status != idle:
            pooled.close()
            self._forget()
            return
        pooled.used = time.monotonic()
        with self._free:
            self._idle.append(pooled)
            self._free.notify()

    def _forget(self) -> None:
        with self._free:
            self._count -= 1
            self._free.notify()

    @contextmanager
    def taken(self, deadline: float) -> Iterator[Line]:
        """Use a connection that is cut when the deadline passes; one that is not idle afterwards is closed."""
        pooled, broken = self.take(deadline), False
        try:
            with self._watch.until(deadline, pooled.connection):
                yield pooled.connection
        except Exception:
            raise
        except BaseException:  # an interrupt may have struck between a statement and its answer
            broken = True
            raise
        finally:
            self.give(pooled, broken=broken)

    def close(self) -> None:
        """Close idle connections now and those in use as they come back."""
        with self._free:
            self._closed = True
            idle, self._idle = self._idle, []
            self._free.notify_all()
        for pooled in idle:
            pooled.close()
        self._watch.close()


class Watch:
    """Cuts connections whose deadline has passed; the thread ends when nothing was watched for a while."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._watched = dict[int, tuple[float, int]]()
        self._running = False

    @contextmanager
    def until(self, deadline: float, connection: Line) -> Iterator[None]:
        """Watch a connection until this block ends."""
        key = id(connection)
        with self._mutex:
            self._watched[key] = deadline, connection.pgconn.socket
            start, self._running = not self._running, True
        if start:
            threading.Thread(target=self._run, name="holdfast-watch", daemon=True).start()
        try:
            yield
        finally:
            with self._mutex:
                self._watched.pop(key, None)

    def _run(self) -> None:
        quiet = 0
        while True:
            time.sleep(_LOOK_SECONDS)
            with self._mutex:
                quiet = 0 if self._watched else quiet + 1
                if quiet > 25:
                    self._running = False
                    return
                now = time.monotonic()
                for key in [key for key, (deadline, _) in self._watched.items() if deadline <= now]:
                    _cut(self._watched.pop(key)[1])

    def close(self) -> None:
        """Forget everything; the thread ends by itself."""
        with self._mutex:
            self._watched.clear()


def _cut(descriptor: int) -> None:
    """End a connection under whoever waits for it; the descriptor stays theirs to close."""
    with socket.socket(fileno=os.dup(descriptor)) as end:
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def _may_pass(error: psycopg.OperationalError) -> bool:
    """Say whether connecting again may help: a wrong password or an unknown database stays wrong."""
    state = error.sqlstate
    text = str(error)
    lasting = ("password authentication failed", "does not exist", "no password supplied", "no pg_hba.conf entry")
    return (state is None or state[:2] in ("57", "08", "53")) and not any(each in text for each in lasting)


def words(error: BaseException) -> str:
    """Give a driver's message in one line."""
    return " ".join(str(error).split())
