"""Hints that something changed: NOTIFY outside of any write, LISTEN on one connection per store.

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
_APART = 0.07  # between two looks of one listener: many of them would otherwise keep the server busy with looking
_QUIET = 5.0
_PATIENCE = 5.0
_BREATH = 0.5

# A hint need not be on disk; for this transaction only, since a pooler gives the connection to others.
_TELL = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, '')"


def channel(schema: str) -> str:
    """Give the name under which changes of a schema are told."""
    name = f"takeback_{schema}"
    return name if len(name) < 64 else f"takeback_{sha256(schema.encode()).hexdigest()[:50]}"  # the server's limit


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
                self._thread = start_thread("takeback-hints", self._run)
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


class Ear:
    """Listens for one process: one connection and one thread for however many wait."""

    def __init__(self, pool: Pool, schema: str) -> None:
        self._pool = pool
        self._channel = channel(schema)
        self._mutex = threading.Lock()
        self._heard = threading.Condition(self._mutex)
        self._thread: threading.Thread | None = None
        self.users = 0
        self.count = 0  # how often something may have changed

    def join(self) -> None:
        """Begin to listen for one more."""
        with self._mutex:
            self.users += 1
            if self._thread is None or not self._thread.is_alive():
                self._thread = start_thread("takeback-ear", self._run)

    def leave(self) -> None:
        """Listen for one less."""
        with self._mutex:
            self.users -= 1

    def wait(self, count: int, seconds: float) -> int:
        """Return when something was heard since ``count``, at the latest after ``seconds``; give the count then."""
        with self._mutex:
            if self.count == count:
                self._heard.wait(seconds)
            return self.count

    def _run(self) -> None:
        """Listen as long as somebody waits; where nobody tells, those who wait look by themselves."""
        line: Pooled | None = None
        try:
            while self._is_needed():
                try:
                    if line is None:
                        line = self._pool.apart(_PATIENCE)
                        if not self._listens(line):
                            return
                        self._tell()  # what was told before is for them to look for
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
    """Waits for changes that other processes tell of."""

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
