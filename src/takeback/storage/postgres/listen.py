"""Hints that something changed: NOTIFY outside of any write, LISTEN on one connection per store.

A notification is only a hint; the truth is the feed. It may come late, twice or not at all, so whoever waits also
polls now and then. Notifications are not sent inside writing transactions, because the server lets only one
transaction at a time commit with one; instead a thread sends at most one per ``_PAUSE`` for all writes of this
process. Behind a pooler nobody listens: the server's connection belongs to another client a moment later.
"""

from __future__ import annotations

import threading
import time
from hashlib import sha256

import psycopg

from ...errors import Error
from .pool import Pool, Pooled, start_thread

_PAUSE = 0.02
_APART = 0.07  # seconds between two reads by one listener: many listeners would otherwise keep the server busy
_QUIET = 5.0
_PATIENCE = 5.0
_BREATH = 0.5
_TRIES = 3  # after which followers rely on polling

# A hint need not be durable. Set for this transaction only, as a pooler passes the connection on to others.
_TELL = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, '')"


def channel(schema: str) -> str:
    """Return the name of the channel for changes in a schema."""
    name = f"takeback_{schema}"
    return name if len(name) < 64 else f"takeback_{sha256(schema.encode()).hexdigest()[:50]}"  # its limit is 63


class Hints:
    """Notifies listeners soon after a change, but no more often than is useful."""

    def __init__(self, pool: Pool, schema: str) -> None:
        self._pool = pool
        self._channel = channel(schema)
        self._mutex = threading.Lock()
        self._wake = threading.Condition(self._mutex)
        self._changed = False
        self._thread: threading.Thread | None = None
        self._closed = False

    def changed(self) -> None:
        """Record that something was committed."""
        if self._changed:
            return
        with self._mutex:
            if not self._closed and (self._thread is None or not self._thread.is_alive()):
                self._thread = start_thread("takeback-hints", self._run)
            self._changed = self._thread is not None  # without a thread, followers rely on polling
            self._wake.notify()

    def _run(self) -> None:
        line: Pooled | None = None
        failures = 0
        try:
            while self._wait():
                try:
                    line = line or self._pool.apart(_PATIENCE)
                    with self._pool.within(_PATIENCE, line) as connection:
                        connection.execute(_TELL, (self._channel,))
                    failures = 0
                except (psycopg.Error, Error, OSError):
                    _close(line)
                    line = None
                    failures += 1
                    if failures % _TRIES:  # a server that was restarted answers on a new connection
                        self._changed = True
                time.sleep(_PAUSE)
        finally:
            _close(line)

    def _wait(self) -> bool:
        """Wait for the next change; False, after a quiet time or when the store is closed, ends the thread."""
        with self._mutex:
            if not self._changed and not self._closed:
                self._wake.wait(_QUIET)
            if not self._changed:
                self._thread = None
                return False
            self._changed = False
            return True

    def close(self) -> None:
        """Send a last notification if one is due, and end."""
        with self._mutex:
            self._closed = True
            self._wake.notify()


class Ear:
    """Listens for the whole process: one connection and one thread, however many wait."""

    def __init__(self, pool: Pool, schema: str) -> None:
        self._pool = pool
        self._channel = channel(schema)
        self._mutex = threading.Lock()
        self._heard = threading.Condition(self._mutex)
        self._thread: threading.Thread | None = None
        self.users = 0
        self.count = 0  # of notifications

    def join(self) -> None:
        """Add a listener."""
        with self._mutex:
            self.users += 1
            if self._thread is None or not self._thread.is_alive():
                self._thread = start_thread("takeback-ear", self._run)

    def leave(self) -> None:
        """Remove a listener."""
        with self._mutex:
            self.users -= 1

    def wait(self, count: int, seconds: float) -> int:
        """Wait for a notification after ``count``, at most ``seconds``; return the new count."""
        with self._mutex:
            if self.count == count:
                self._heard.wait(seconds)
            return self.count

    def _run(self) -> None:
        """Listen as long as anybody waits; without notifications, those who wait rely on polling."""
        line: Pooled | None = None
        try:
            while self._is_needed():
                try:
                    if line is None:
                        line = self._pool.apart(_PATIENCE)
                        if not self._listens(line):
                            return
                        self._tell()  # earlier notifications were missed, so let everybody look
                    for _ in line.connection.notifies(timeout=_BREATH, stop_after=1):
                        self._tell()
                except (psycopg.Error, Error, OSError):
                    _close(line)
                    line = None
                    time.sleep(_BREATH)
        finally:
            _close(line)

    def _listens(self, line: Pooled) -> bool:
        with self._pool.within(_PATIENCE, line) as connection:
            if connection.is_direct():
                connection.execute(f'LISTEN "{self._channel}"')
                return True
        return False

    def _is_needed(self) -> bool:
        with self._mutex:
            if self.users <= 0:
                self._thread = None
            return self.users > 0

    def _tell(self) -> None:
        with self._mutex:
            self.count += 1
            self._heard.notify_all()


class Listener:
    """Waits for changes by other processes."""

    def __init__(self, ear: Ear) -> None:
        self._ear = ear
        self._seen, self._looked, self._open = ear.count, 0.0, True
        ear.join()

    def wait(self, seconds: float) -> None:
        """Return when something may have changed, at the latest after ``seconds``; not too soon after the last time."""
        self._ear.wait(self._seen, seconds)
        time.sleep(max(0.0, min(seconds, self._looked + _APART - time.monotonic())))
        self._seen, self._looked = self._ear.count, time.monotonic()

    def close(self) -> None:
        """Stop listening."""
        if self._open:
            self._open = False
            self._ear.leave()


def _close(line: Pooled | None) -> None:
    if line is not None:
        line.close()
