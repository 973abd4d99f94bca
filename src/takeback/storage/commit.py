"""Group commit: many operations, one transaction, one sync, no extra thread.

Whoever finds the writer free runs everyone's waiting operations in one transaction, then hands the lead to the
next in line (serving until the queue was empty starved leaders for up to 0.8 s) and only then makes the batch
durable. Meanwhile the next leader gathers its batch, and one sync may serve several batches. No write returns
before the sync that covers it has returned.

Ctrl-C may strike between any two steps. So each step leaves a state that ``_leave`` can finish from: the lead
belongs to a ticket, a batch is recorded on it before it leaves the queue, and sleepers wake up now and then to check.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any, Generic, TypeVar, cast

from ..errors import BackendError, Busy, Closed, Error
from .base import Op

T = TypeVar("T")
_MAX_BATCH = 128
_LOOK_SECONDS = 0.5


class Ticket(Generic[T]):
    """One operation in progress: what to run, whom it leads, and how it ended."""

    __slots__ = ("durable", "error", "followers", "frees_space", "op", "settled", "since", "thread", "value", "wake")

    def __init__(self, op: Op[T], frees_space: bool = False) -> None:
        self.op = op
        self.frees_space = frees_space
        self.value: T | None = None
        self.error: BaseException | None = None
        self.followers: list[Ticket[Any]] = []
        self.durable = False
        self.settled = False
        self.since = 0.0  # when it began to wait for a leader, by the monotonic clock
        self.thread = threading.get_ident()
        self.wake: threading.Lock | None = None

    def wake_up(self) -> None:
        """Wake the thread behind this ticket; waking it twice is harmless."""
        if self.wake is not None and self.wake.locked():
            self.wake.release()


class GroupCommit:
    """Runs operations in batches through ``transact``, which commits a batch or raises, and ``sync``, which
    makes everything committed so far durable; without one, a commit is durable by itself."""

    def __init__(self, transact: Callable[[list[Ticket[Any]]], None], sync: Callable[[], None] | None = None) -> None:
        self._transact = transact
        self._sync = sync
        # Locks that know their owner: a signal handler runs in a thread that may hold them at that moment.
        self._syncing: Any = threading.RLock()
        self._committed = self._synced = 0
        self._mutex: Any = threading.RLock()
        self._queue: deque[Ticket[Any]] = deque()
        self._leader: Ticket[Any] | None = None
        self._closed = False
        self._under_way: dict[int, Ticket[Any]] = {}  # by thread, from entering to leaving

    def write(self, op: Op[T], *, frees_space: bool = False) -> T:
        """Run ``op`` and return its value once its batch is durable."""
        self._check_not_within()
        ticket = Ticket(op, frees_space)
        try:
            if self._enter(ticket) or self._await_turn(ticket):
                self._lead(ticket)
        except BaseException as error:
            ticket.error = error
            raise
        finally:
            try:
                self._leave(ticket)
            except BaseException:
                self._leave(ticket)  # interrupted while leaving: every step of it can safely be repeated
                raise
        if ticket.error is not None:
            raise ticket.error
        return cast(T, ticket.value)

    def close(self) -> None:
        """Refuse new operations, and wait until those in progress are committed and durable."""
        self._check_not_within()
        self._closed = True
        try:
            self._drain()
        except BaseException:
            self._closed = False
            raise
        self._make_durable(self._committed)

    def _drain(self) -> None:
        while True:
            last: Ticket[None] = Ticket(lambda tx: None)
            self._check_not_within()
            with self._mutex:
                if self._leader is None:
                    break
                self._join_queue(last)
            try:
                self._await_turn(last)
            finally:
                self._leave(last)

    # ------------------------------------------------------------------ entering and leaving

    def _enter(self, ticket: Ticket[Any]) -> bool:
        """Take the lead if nobody has it, else join the queue; return whether we lead."""
        self._under_way[ticket.thread] = ticket
        with self._mutex:
            if self._closed:
                raise Closed()
            if self._leader is None:
                self._leader = ticket
                return True
            self._join_queue(ticket)
            return False

    def _check_not_within(self) -> None:
        """Raise ``Busy`` for a call from inside a write of the same thread: a signal handler would wait for itself."""
        waits = threading.get_ident() in self._under_way
        if waits or self._mutex._is_owned() or self._syncing._is_owned():  # as ``threading.Condition`` does
            raise Busy("this thread is in the middle of a write; a signal handler must not write or close the store")

    def _join_queue(self, ticket: Ticket[Any]) -> None:
        ticket.wake = threading.Lock()
        ticket.wake.acquire()
        ticket.since = time.monotonic()
        self._queue.append(ticket)

    def _await_turn(self, ticket: Ticket[Any]) -> bool:
        """Sleep until another leader has settled this ticket (False) or made it the leader (True)."""
        assert ticket.wake is not None
        while not ticket.wake.acquire(timeout=_LOOK_SECONDS):
            if ticket.settled or self._leader is ticket:
                break
        return self._leader is ticket

    def _hand_over(self, ticket: Ticket[Any]) -> None:
        """Pass the lead to the next in line, if this ticket holds it."""
        with self._mutex:
            if self._leader is not ticket:
                return
            while self._queue and self._queue[0].settled:
                self._queue.popleft()
            heir = self._queue[0] if self._queue else None
            self._leader = heir
            if heir is not None:
                self._queue.popleft()
        if heir is not None:
            heir.wake_up()

    def _leave(self, ticket: Ticket[Any]) -> None:
        """Finish whatever a ticket has started: its place in the queue, its lead, its followers."""
        if ticket.wake is not None and not ticket.settled:
            with self._mutex:  # before checking the lead: a ticket outside the queue cannot become leader any more
                if ticket in self._queue:
                    self._queue.remove(ticket)
        if self._leader is ticket:
            self._hand_over(ticket)
        if ticket.followers:
            failure = None if ticket.durable else _for_followers(ticket.error)
            for follower in ticket.followers:
                follower.error = follower.error or failure
                follower.settled = True
                follower.wake_up()
        if self._under_way.get(ticket.thread) is ticket:
            del self._under_way[ticket.thread]

    # ------------------------------------------------------------------ leading

    def _lead(self, ticket: Ticket[Any]) -> None:
        if self._synced < self._committed:
            with self._syncing:  # wait for the sync in progress: a longer queue by its end means fewer transactions
                pass
        if self._queue:
            self._take_followers(ticket)
        if ticket.followers:
            self._commit([ticket, *ticket.followers])
        else:
            self._transact([ticket])
        self._committed = number = self._committed + 1
        self._hand_over(ticket)  # before the sync, so that the next batch is gathered and run meanwhile
        self._make_durable(number)
        ticket.durable = True

    def _take_followers(self, ticket: Ticket[Any]) -> None:
        with self._mutex:
            waiting = list(islice(self._queue, _MAX_BATCH - 1))
            ticket.followers = [other for other in waiting if other is not ticket and not other.settled]
            for _ in waiting:
                self._queue.popleft()

    def _commit(self, batch: list[Ticket[Any]]) -> None:
        try:
            self._transact(batch)
        except Busy:
            raise  # the engine waited for others as long as it may: nothing has run, and nobody should wait again
        except Error:
            # An operation failed half-way, or the engine rejected the whole batch: only the culprit may fail. Any other
            # exception may have struck after the commit, where running the batch again could store it twice.
            for ticket in batch:
                ticket.value = ticket.error = None
                try:
                    self._transact([ticket])
                except Exception as error:
                    ticket.error = error

    def _make_durable(self, number: int) -> None:
        """Return once a sync that started after commit ``number`` has ended; often it is another leader's."""
        if self._sync is None:
            return
        with self._syncing:
            if self._synced < number:
                covered = self._committed  # read before the sync: it does not cover later commits
                self._sync()
                self._synced = covered


def _for_followers(error: BaseException | None) -> BaseException:
    """Return the error for followers: never the leader's own Ctrl-C or timeout, as they were not interrupted."""
    if isinstance(error, Error):
        return error
    return BackendError(
        "the commit was interrupted; it may or may not be stored. Read, or call again with the same idempotency key"
    )
