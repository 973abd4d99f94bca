"""Hints that something changed: NOTIFY outside of any write, LISTEN on a connection of its own.

A notice is a hint and never the truth, which is the feed: it may come late, twice or not at all, so whoever waits also
looks by itself now and then. Notices are not sent inside the writing transactions, because the server lets only
one transaction at a time commit with a notice; a thread sends at most one per ``_PAUSE`` for all writes of this
process instead.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import psycopg

from ...errors import Error
from .address import Line

_PAUSE = 0.02
_QUIET = 5.0
Connect = Callable[[], Line]


def channel(schema: str) -> str:
    """Give the name under which changes of a schema are told."""
    return f"holdfast_{schema}"


class Hints:
    """Tells listeners, soon after a change and not more often than they can use."""

    def __init__(self, connect: Connect, schema: str) -> None:
        self._connect = connect
        self._channel = channel(schema)
        self._wake = threading.Condition()
        self._changed = False
        self._running = False
        self._closed = False

    def changed(self) -> None:
        """Note that something was committed."""
        if self._changed:
            return
        with self._wake:
            self._changed = True
            if self._running or self._closed:
                self._wake.notify()
                return
            self._running = True
        threading.Thread(target=self._run, name="holdfast-hints", daemon=True).start()

    def _run(self) -> None:
        connection: Line | None = None
        try:
            while self._wait():
                try:
                    connection = connection or self._connect()
                    connection.execute("SET synchronous_commit = off")
                    connection.execute("SELECT pg_notify($1, '')", (self._channel,))
                except (psycopg.Error, Error):
                    _close(connection)  # whoever follows looks by itself
                    connection = None
                time.sleep(_PAUSE)
        finally:
            _close(connection)

    def _wait(self) -> bool:
        """Wait for the next change; after a quiet time, or when the store is closed, the thread ends."""
        with self._wake:
            if not self._changed and not self._closed:
                self._wake.wait(_QUIET)
            if not self._changed:
                self._running = False
                return False
            self._changed = False
            return True

    def close(self) -> None:
        """Tell what is left to tell and end."""
        with self._wake:
            self._closed = True
            self._wake.notify()


class Listener:
    """Waits for changes that other processes tell of."""

    def __init__(self, connect: Connect, schema: str) -> None:
        self._connect = connect
        self._channel = channel(schema)
        self._connection: Line | None = None

    def wait(self, seconds: float) -> None:
        """Return when something may have changed, at the latest after ``seconds``."""
        try:
            if self._connection is None or self._connection.closed:
                self._connection = self._connect()
                self._connection.execute(f'LISTEN "{self._channel}"')
                return  # what was told before is for the caller to look for
            for _ in self._connection.notifies(timeout=seconds, stop_after=1):
                return
        except (psycopg.Error, Error):
            self.close()
            time.sleep(seconds)

    def close(self) -> None:
        """Let go of the connection."""
        _close(self._connection)
        self._connection = None


def _close(connection: Line | None) -> None:
    if connection is not None:
        connection.close()
