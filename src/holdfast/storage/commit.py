"""Group commit: many operations, one transaction, one sync, no extra thread.

Whoever finds the writer free runs everyone's waiting operations in one transaction, then hands the lead to the
next in line (serving until the queue was empty starved leaders for up to 0.8 s) and only then makes the
batch durable; the next leader gathers its batch meanwhile, and one sync may serve several.
Nobody is told "done" before the sync that covers them has returned. Whatever interrupts a leader, every
ticket it took is settled and the lead passes on.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from ..errors import BackendError, Closed
from .base import Op

T = TypeVar("T")
_MAX_BATCH = 128
_LOOK = 0.5

_WAITING, _TAKEN, _LEADING, _SETTLED = range(4)


class Ticket(Generic[T]):
    """One operation on its way: what to run, and what became of it."""

    __slots__ = ("error", "frees_space", "op", "state", "value", "wake")

    def __init__(self, op: Op[T], frees_space: bool) -> None:
        self.op = op
        self.frees_space = frees_space
        self.value: T | None = None
        self.error: BaseException | None = None
        self.state = _WAITING
        self.wake: threading.Lock | None = None

    def settle(self, error: BaseException | None = None) -> None:
        """Record the outcome; the first error stands."""
        if error is not None and self.error is None:
            self.error = error
        self.state = _SETTLED


class GroupCommit:
    """Runs operations in batches through ``transact``, which commits a batch or raises, and ``sync``, which
    makes everything committed so far durable; without one, a commit is durable by itself."""

    def __init__(self, transact: Callable[[list[Ticket[Any]]], None], sync: Callable[[], None] | None = None) -> None:
        self._transact = transact
        self._sync = sync
        self._syncing = threading.Lock()
        self._committed = self._synced = 0
        self._mutex = threading.Lock()
        self._queue: deque[Ticket[Any]] = deque()
        self._leading = False
        self._closed = False

    def write(self, op: Op[T], *, frees_space: bool = False) -> T:
        """Run ``op`` and return its value once the batch that holds it is durable."""
        ticket = Ticket(op, frees_space)
        try:
            if self._enter(ticket) or self._await_turn(ticket):
                self._lead(ticket)
        except BaseException:
            self._abandon(ticket)
            raise
        if ticket.error is not None:
            raise ticket.error
        return cast(T, ticket.value)

    def close(self) -> None:
        """Refuse new operations and wait until those under way are committed and durable."""
        self._closed = True
        while True:
            with self._mutex:
                if not self._leading:
                    break
                last: Ticket[None] = Ticket(lambda tx: None, False)
                last.wake = threading.Lock()
                last.wake.acquire()
                self._queue.append(last)
            if self._await_turn(last):
                self._hand_over()
        self._make_durable(self._committed)

    def _enter(self, ticket: Ticket[Any]) -> bool:
        with self._mutex:
            if self._closed:
                raise Closed()
            if not self._leading:
                self._leading = True
                ticket.state = _LEADING
                return True
            ticket.wake = threading.Lock()
            ticket.wake.acquire()
            self._queue.append(ticket)
            return False

    def _await_turn(self, ticket: Ticket[Any]) -> bool:
        """Sleep until somebody settled this ticket (False) or made it the leader (True)."""
        assert ticket.wake is not None
        # An interrupt may take a leader away between settling a ticket and waking its owner: look now and then.
        while not ticket.wake.acquire(timeout=_LOOK):
            if ticket.state in (_LEADING, _SETTLED):
                break
        return ticket.state == _LEADING

    def _lead(self, ticket: Ticket[Any]) -> None:
        batch = [ticket]
        if self._syncing.locked():
            with self._syncing:  # a sync is under way: the longer the queue by its end, the fewer transactions
                pass
        if self._queue:
            with self._mutex:
                while self._queue and len(batch) < _MAX_BATCH:
                    batch.append(self._queue.popleft())
                for follower in batch[1:]:
                    follower.state = _TAKEN
        try:
            self._commit(batch)
        except BaseException as error:
            self._hand_over()
            self._settle(batch, error)
            raise
        self._committed = number = self._committed + 1
        self._hand_over()
        try:
            self._make_durable(number)
        except BaseException as error:
            self._settle(batch, error)
            raise
        self._settle(batch, None)

    def _make_durable(self, number: int) -> None:
        """Return once a sync that began after commit ``number`` has ended; often another leader's."""
        if self._sync is None:
            return
        with self._syncing:
            if self._synced < number:
                covered = self._committed
                self._sync()
                self._synced = covered

    def _settle(self, batch: list[Ticket[Any]], failure: BaseException | None) -> None:
        # A follower must not re-raise the leader's Ctrl-C: it was not the one interrupted.
        theirs = failure
        if failure is not None and not isinstance(failure, Exception):
            theirs = BackendError("the process was interrupted during the commit; it may be retried")
        batch[0].settle(failure)
        for follower in batch[1:]:
            follower.settle(theirs)
            if follower.wake is not None:
                follower.wake.release()

    def _hand_over(self) -> None:
        with self._mutex:
            if not self._queue:
                self._leading = False
                return
            heir = self._queue.popleft()
            heir.state = _LEADING
        if heir.wake is not None:
            heir.wake.release()

    def _abandon(self, ticket: Ticket[Any]) -> None:
        """Leave in order when an exception arrives while waiting or on becoming the leader."""
        with self._mutex:
            if ticket.state == _WAITING and ticket in self._queue:
                self._queue.remove(ticket)
                return
            lead = ticket.state == _LEADING
            ticket.state = _SETTLED
        if lead:
            self._hand_over()

    def _commit(self, batch: list[Ticket[Any]]) -> None:
        if len(batch) == 1:
            self._transact(batch)
            return
        try:
            self._transact(batch)
        except Exception:
            # An operation failed half-way, or the engine refused the batch as a whole: only the culprit may fail.
            for ticket in batch:
                ticket.value = ticket.error = None
                try:
                    self._transact([ticket])
                except Exception as error:
                    ticket.error = error
