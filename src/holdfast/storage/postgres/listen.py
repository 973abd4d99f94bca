"""Hints that something changed: NOTIFY outside of any write, LISTEN on a connection of its own.

A notice is a hint and never the truth, which is the feed: it may come late, twice or not at all, so whoever waits also
looks by itself now and then. Notices are not sent inside the writing transactions, because the server lets only
one transaction at a time commit with a notice; a thread sends at most one per ``_PAUSE`` for all writes of this
process instead. Behind a pooler nobody listens: the server's connection belongs to somebody else a moment later.
"""

from __future__ import annotations

import threading
import time
from hashlib import sha256

import psycopg

from ...errors import Error
from .pool import Pool, Pooled, start_thread

_PAUSE = 0.02
_QUIET = 5.0
_PATIENCE = 5.0

# A hint need not be on disk; for this transaction only, since a pooler gives the connection to others.
_TELL = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, '')"


def channel(schema: str) -> str:
    """Give the name under which changes of a schema are told."""
    name = f"holdfast_{schema}"
    return name if len(name) < 64 else f"holdfast_{sha256(schema.encode()).hexdigest()[:50]}"  # the server's limit


class Hints:
    """Tells listeners, soon after a change and not more often than they can use."""

    def __init__(self, pool: Pool, schema: str) -> None:
        self._pool = pool
        self._channel = channel(schema)
        self._mutex = threading.Lock()
        self._wake = threading.Condition(self._mutex)
        self._changed = False
        self._thread: threading.Thread | None = None
        self._closed = False

    def changed(self) -> None:
        """Note that something was committed."""
        if self._changed:
            return
        with self._mutex:
            if not self._closed and (self._thread is None or not self._thread.is_alive()):
                self._thread = start_thread("holdfast-hints", self._run)
            self._changed = self._thread is not None  # without a thread whoever follows looks by itself
            self._wake.notify()

    def _run(self) -> None:
        line: Pooled | None = None
        try:
            while self._wait():
                try:
                    line = line or self._pool.apart(_PATIENCE)
                    with self._pool.within(_PATIENCE, line) as connection:
                        connection.execute(_TELL, (self._channel,))
                except (psycopg.Error, Error, OSError):
                    _close(line)  # whoever follows looks by itself
                    line = None
                time.sleep(_PAUSE)
        finally:
            _close(line)

    def _wait(self) -> bool:
        """Wait for the next change; after a quiet time, or when the store is closed, the thread ends."""
        with self._mutex:
            if not self._changed and not self._closed:
                self._wake.wait(_QUIET)
            if not self._changed:
                self._thread = None
                return False
            self._changed = False
            return True

    def close(self) -> None:
        """Tell what is left to tell and end."""
        with self._mutex:
            self._closed = True
            self._wake.notify()


class Listener:
    """Waits for changes that other processes tell of."""

    def __init__(self, pool: Pool, schema: str) -> None:
        self._pool = pool
        self._channel = channel(schema)
        self._line: Pooled | None = None
        self._told = True

    def wait(self, seconds: float) -> None:
        """Return when something may have changed, at the latest after ``seconds``."""
        try:
            if self._line is not None:
                for _ in self._line.connection.notifies(timeout=seconds, stop_after=1):
                    return
            elif self._told:
                self._listen()  # what was told before is for the caller to look for
            else:
                time.sleep(seconds)
        except (psycopg.Error, Error, OSError):
            self.close()
            time.sleep(seconds)

    def _listen(self) -> None:
        self._line = self._pool.apart(_PATIENCE)
        with self._pool.within(_PATIENCE, self._line) as connection:
            self._told = connection.is_direct()
            if self._told:
                connection.execute(f'LISTEN "{self._channel}"')
        if not self._told:
            self.close()

    def close(self) -> None:
        """Let go of the connection."""
        _close(self._line)
        self._line = None


def _close(line: Pooled | None) -> None:
    if line is not None:
        line.close()
