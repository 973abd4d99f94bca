"""Running a session: one holder at a time, by a lease; and how a session ends.

Entering takes the lease, leaving gives it back. A holder that is gone is noticed by whoever looks; whoever comes next
writes down what it left behind and goes on. On this machine "gone" is asked of the system; a holder elsewhere must be
silent by the clock and also while it is watched, so that a clock that jumps takes nothing from anybody.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, TypeVar

from .. import codec, presence
from ..errors import Busy, Closed, Invalid, LeaseLost
from ..model import words
from ..model.status import ACTIVE, FINISHED, INTERRUPTED
from ..ops import runs, sessions, statuses
from ..ops.sessions import LeaseRow
from ..presence import BEAT_SECONDS, SILENT_SECONDS
from . import arguments
from .background import Held
from .capture import Capturing
from .waiting import until

S = TypeVar("S", bound="Holding")
_LARGEST_RESULT = 1 << 20


class Holding(Capturing):
    """The part of a session that runs and ends."""

    def runtime(self) -> float:
        """Give the seconds from its beginning to its end, or to now; never less than 0."""
        whole = self._seen, self._doc or b"{}", self._lease
        return statuses.seconds(whole, self.status, self._store._clock.now_ms())

    # ------------------------------------------------------------------ the lease

    def __enter__(self: S) -> S:
        if not self._holds():
            self._take(0.0, take_over=False)
        elif self._seen.status in FINISHED:
            self.reopen()
        assert self._held is not None
        self._held.depth += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the session back: as it is, with the error that leaves it, or interrupted by Ctrl-C or cancellation."""
        held = self._held
        if held is None:
            return
        held.depth -= 1
        if held.depth > 0:
            return
        self._look_before_leaving()
        status, about = _ending(error)
        try:
            self._give_back(status, **about)
        except Exception as failure:  # what went wrong first is what the caller must see
            if error is None:
                raise
            error.add_note(f"the session could not be given back: {failure}")

    def release(self) -> None:
        """Give the lease back before the handle goes; without one nothing is done."""
        self._give_back(None)

    def _give_back(self, status: str | None, **about: Any) -> None:
        held = self._held
        if held is None:
            return
        self._store._keeper.drop(held)
        # If somebody took it over, what this handle writes is refused until it is entered again.
        if not held.over and held.give_back(status, **about):
            self._held = None
        self._look()

    def _look(self) -> None:
        try:
            seen = self._store._read(sessions.find_whole, *self._key)
        except Closed:
            return
        if seen is not None:  # else it was purged meanwhile
            self._saw(*seen)

    def _take(self, wait: float, *, take_over: bool) -> None:
        """Take the lease; somebody else who has it is waited for, or ``Busy``."""
        store, watch, left = self._store, _Watch(), self._left_running()

        def look() -> bool | None:
            return self._try(watch, take_over) or None

        # A holder elsewhere that seems gone is watched a little longer: it may be that only its clock is wrong.
        if not until(store, look, wait) and not (watch.is_silent and until(store, look, 3 * BEAT_SECONDS)):
            raise Busy(_busy(self, watch.lease), holder=str(presence.decode(watch.lease.holder or b"{}")))
        self._look_after_taking(left)

    def _try(self, watch: _Watch, take_over: bool) -> bool:
        """Take the lease if it is free; False if somebody has it, whom the watch has seen then."""
        store = self._store
        store._keeper.give_back_abandoned()
        while True:
            lease, left = self._ask(runs.standing, store._clock.now_ms())
            why, now_ms = watch.judge(lease, store._clock.now_ms(), take_over), store._clock.now_ms()
            if why is None:
                return False
            holder = presence.encode(presence.here(now_ms))
            wanted = runs.Wanted(holder, runs.last(lease), why, left)
            if self._take_now(wanted, now_ms):
                return True  # else somebody came first: look who

    def _take_now(self, wanted: runs.Wanted, now_ms: int) -> bool:
        """Take the lease unless somebody came first; one that may be taken and is not known to be is given back."""
        store, token = self._store, wanted.last[0] + 1
        held = Held(store, self.id, LeaseRow(store.scope, self._seen.sid, token, wanted.holder, now_ms, 0, now_ms))
        try:
            taken = store._write(runs.take, *self._key, wanted, now_ms=now_ms)
            if taken is None:
                return False
            self._held, held.sure = held, taken.session.updated
            held.belongs_to(self)
            store._keeper.keep(held)
        except BaseException:
            self._held = None
            store._keeper.abandon(held)
            raise
        self._saw(taken.session, taken.doc, taken.lease)
        self.resumed = taken.resumed
        return True

    # ------------------------------------------------------------------ ending

    def complete(self, result: Any = None, *, idempotency_key: str | None = None) -> None:
        """End it well, with a result for whoever asked; it takes no messages until it is entered or reopened."""
        if len(codec.encode({"result": result})) > _LARGEST_RESULT:
            raise Invalid("a result has at most 1 MB; add what is larger as a message or an attachment, and name that")
        self._finish("completed", idempotency_key, result=result)

    def fail(self, error: BaseException | str, *, idempotency_key: str | None = None) -> None:
        """End it with an error."""
        if not isinstance(error, BaseException | str):
            raise Invalid(f"an error is an exception or a text, not {type(error).__name__}")
        self._finish("error", idempotency_key, error=words.of_error(error))

    def reopen(self, *, idempotency_key: str | None = None) -> None:
        """Let a session that ended go on; one that is active is ``Conflict``."""
        self._finish(ACTIVE, idempotency_key)

    def _finish(self, status: str, key: str | None, **about: Any) -> None:
        key, now_ms = arguments.optional_name(key, what="idempotency_key"), self._store._clock.now_ms()
        lease, left = self._ask(runs.standing, now_ms)
        holder = None if lease is None or lease.holder is None else presence.decode(lease.holder)
        # One elsewhere that is silent may live: only whoever takes the session watches it long enough to tell.
        gone = lease.token if lease is not None and holder is not None and presence.is_gone(holder) else 0

        self._saw(*self._do(runs.end, *self._key, status, gone, left, now_ms=now_ms, key=key, about=about))


class _Watch:
    """What is seen of a lease while waiting for it."""

    def __init__(self) -> None:
        self.lease = LeaseRow("", 0, 0, None, 0, 0, 0)
        self.is_silent = False  # the holder is elsewhere, and seems gone by the clock
        self._since = 0.0

    def judge(self, lease: LeaseRow | None, now_ms: int, take_over: bool) -> str | None:
        """Say why a lease may be taken; None if it may not."""
        if lease is None or lease.holder is None:
            return "free"
        if (lease.token, lease.beats) != (self.lease.token, self.lease.beats) or not self._since:
            self.lease, self._since = lease, time.monotonic()
        if take_over:
            return "taken over"
        holder = presence.decode(lease.holder)
        if presence.is_near(holder):
            return "gone" if presence.is_gone(holder) else None
        self.is_silent = presence.seems_gone(holder, lease.beat_ms, now_ms)
        watched = time.monotonic() - self._since
        return "gone" if watched > (1.5 * BEAT_SECONDS if self.is_silent else SILENT_SECONDS) else None


def _busy(session: Holding, lease: LeaseRow) -> str:
    holder = presence.decode(lease.holder or b"")
    where = f"{holder}{', this one, through another handle,' if presence.is_here(holder) else ''}"
    name = session._seen.name or session._seen.title or session.id
    return (
        f"session {name!r} is run by {where} since {presence.since(lease.taken_ms)}; wait for it (wait=seconds), or"
        " take it over (take_over=True)"
    )


def _ending(error: BaseException | None) -> tuple[str | None, dict[str, Any]]:
    """Give the status that a run ends in."""
    if error is None or isinstance(error, LeaseLost) or (isinstance(error, SystemExit) and not error.code):
        return None, {}
    if isinstance(error, Exception | SystemExit):
        return "error", {"error": words.of_error(error)}
    return INTERRUPTED, {"why": type(error).__name__}
