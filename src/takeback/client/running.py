"""Running a session: one holder at a time, by a lease; how a run ends; and scans of the workspace meanwhile.

Entering takes the lease, leaving releases it. A holder that died is noticed by whoever reads the session; whoever takes
it next records what was left behind and continues. On this machine the system says whether a process exists. A holder
elsewhere must be silent by the clock and also while it is watched, so that a clock that jumps takes nothing away.

Whoever runs a session scans its workspace at the boundaries: before a user message, before a tool starts, before its
result is stored. What changed between two scans is attributed to the calls that were open then; with none open it is
somebody else's, and a rewind keeps it. In a session that never reports calls, what changes within a turn is the turn's,
and what a checkpoint finds is the session's own. A failed scan stops no conversation: ``capture_error`` says why.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from .. import codec, presence
from ..errors import BackendError, Busy, Closed, Error, Invalid, LeaseLost, StorageFull, Unsupported
from ..files import authors, changes, journal, snapshots, timeline, workspaces
from ..files.disk import paths, scan
from ..model import words
from ..model.capture import Capture
from ..model.entry import Draft
from ..model.status import ACTIVE, FINISHED, INTERRUPTED
from ..model.tools import ToolCall
from ..ops import calls, runs, sessions, statuses
from ..ops.sessions import LeaseRow
from . import arguments, waiting
from .background import Held
from .handle import Handle

if TYPE_CHECKING:
    from ..files.roots import Root
    from ..files.workspaces import CapturedDirectory, Who

S = TypeVar("S", bound="Running")
_LARGEST_RESULT = 1 << 20


class Running(Handle):
    """The part of a session that runs and ends, and that scans its workspace meanwhile."""

    def runtime(self) -> float:
        """Return the seconds from its start to its end, or to now; never less than 0."""
        whole = self._seen, self._doc or b"{}", self._lease
        return statuses.seconds(whole, self.status, self._store._clock.now_ms())

    # ------------------------------------------------------------------ the lease

    def __enter__(self: S) -> S:
        if not self._holds():
            self._take(self._wait, take_over=False)
        elif self._seen.status in FINISHED:
            self.reopen()
        assert self._held is not None
        self._held.depth += 1
        return self

    @property
    def _must_wait(self) -> bool:
        return self._wait > 0 and not self._holds()

    def _take_ahead(self) -> None:
        """Take the lease before entering, which then does not have to wait; dropping the handle releases it."""
        self._take(self._wait, take_over=False)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the session: unchanged, failed with the error, or interrupted by Ctrl-C or cancellation."""
        held = self._held
        if held is None:
            return
        held.depth -= 1
        if held.depth > 0:
            return
        self._scan_before_leaving()
        status, about = _ending(error)
        try:
            self._give_back(status, **about)
        except Exception as failure:  # the caller must see the first error, not this one
            if error is None:
                raise
            error.add_note(f"the lease of the session could not be released: {failure}")

    def release(self) -> None:
        """Release the lease early; does nothing without one."""
        self._give_back(None)

    def _give_back(self, status: str | None, **about: Any) -> None:
        held = self._held
        if held is None:
            return
        self._store._keeper.drop(held)
        # If somebody took the session over, this handle's writes stay refused until it is entered again.
        if not held.over and held.give_back(status, **about):
            self._held = None
        self._reread()

    def _reread(self) -> None:
        try:
            seen = self._store._read(sessions.find_whole, *self._key)
        except Closed:
            return
        if seen is not None:  # else the session was purged meanwhile
            self._saw(*seen)

    def _take(self, wait: float, *, take_over: bool) -> None:
        """Take the lease, waiting for its holder; raises ``Busy`` if they still hold it."""
        store, watch = self._store, _Watch()

        def check() -> bool | None:
            return self._try(watch, take_over) or None

        # A remote holder that seems gone is watched a little longer: perhaps only its clock is wrong.
        if not waiting.until(store, check, wait) and not (
            watch.is_silent and waiting.until(store, check, 3 * presence.BEAT_SECONDS)
        ):
            raise Busy(_busy(self, watch.lease), holder=str(presence.decode(watch.lease.holder or b"{}")))
        self._recover_after_taking()

    def _try(self, watch: _Watch, take_over: bool) -> bool:
        """Take the lease if it is free; otherwise return False, and ``watch`` has recorded the holder."""
        store = self._store
        store._keeper.give_back_abandoned()
        while True:
            lease, left = self._ask(runs.standing, store._clock.now_ms())
            why, now_ms = watch.judge(lease, store._clock.now_ms(), take_over), store._clock.now_ms()
            if why is None:
                return False
            self._scan_before_taking(lease)
            holder = presence.encode(presence.here(now_ms))
            wanted = runs.Wanted(holder, runs.last(lease), why, left)
            if self._take_now(wanted, now_ms):
                return True  # else somebody came first: read the lease again

    def _take_now(self, wanted: runs.Wanted, now_ms: int) -> bool:
        """Take the lease unless somebody came first; release it again if the outcome is uncertain."""
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
        """Complete the session, with a result for whoever asked; it takes no messages until entered or reopened."""
        if len(codec.encode({"result": result})) > _LARGEST_RESULT:
            raise Invalid("the result is larger than 1 MB; store it as a message or attachment and refer to that")
        self._finish("completed", idempotency_key, result=result)

    def fail(self, error: BaseException | str, *, idempotency_key: str | None = None) -> None:
        """End the session with an error."""
        if not isinstance(error, BaseException | str):
            raise Invalid(f"error must be an exception or a string, not {type(error).__name__}")
        self._finish("error", idempotency_key, error=words.of_error(error))

    def reopen(self, *, idempotency_key: str | None = None) -> None:
        """Reopen a session that ended; raises ``Conflict`` if it is active."""
        self._finish(ACTIVE, idempotency_key)

    def _finish(self, status: str, key: str | None, **about: Any) -> None:
        key, now_ms = arguments.optional_name(key, what="idempotency_key"), self._store._clock.now_ms()
        lease, left = self._ask(runs.standing, now_ms)
        holder = None if lease is None or lease.holder is None else presence.decode(lease.holder)
        # A silent remote holder may still be alive: only whoever takes the session watches it long enough to know.
        gone = lease.token if lease is not None and holder is not None and presence.is_gone(holder) else 0

        self._saw(*self._do(runs.end, *self._key, status, gone, left, now_ms=now_ms, key=key, about=about))

    # ------------------------------------------------------------------ capturing files

    _capture = Capture()
    _running: frozenset[str] = frozenset()  # calls that run through this handle
    _owing: frozenset[str] = frozenset()  # calls whose changes no good scan has seen yet
    capture_error: str | None = None
    """Why the last scan of the workspace failed; None if it succeeded."""
    recovered: str | None = None
    """What became of an interrupted rewind that this handle found; None if there was none."""

    def _place(self) -> CapturedDirectory | None:
        """Return the workspace, or None if there is none that can be captured."""
        path = self._seen.workspace
        if not path or self._capture.mode == "off":
            return None
        why = workspaces.why_not(path, self._store._runner)
        self.capture_error = f"the workspace {path!r} is not captured: {why}" if why else None
        return None if why else self._any_place(path)

    def _any_place(self, path: str) -> CapturedDirectory:
        given = self._capture
        return self._store._place(path, scan.Limits(given.largest_file, given.largest_total), given.ignore)

    def _scan_files(
        self,
        *,
        who: str | None = None,
        idle: str | None = None,
        left: Sequence[str] = (),
        until_ms: int | None = None,
        exact: bool = False,
        paths: Iterable[bytes] | None = None,
    ) -> Root | None:
        """Record what the workspace holds now; None if it is not captured.

        Changes are attributed to ``who``; else to the calls that run through this handle or are ``left`` open, and
        those that the log has open; if there are none, to ``idle``. Those ``left`` were certainly at work only up to
        ``until_ms``, and not later if that is ``exact``.
        """
        place = self._place()
        if place is None:
            return None
        held, now_ms = self._held, self._store._clock.now_ms()
        self._recover(place)
        fence = None if held is None else held.fence
        recorder = snapshots.Recorder(*self._key, fence, now_ms, self._store._holder)
        try:
            session, root = place.record(paths, recorder, who=lambda: self._at_work(who, idle, left, until_ms, exact))
        except LeaseLost:
            if held is not None:
                held.lose()
            raise
        self._seen, self._owing = session, frozenset()
        if held is not None:
            held.sure = max(held.sure, session.updated)
        return root

    def _recover(self, place: CapturedDirectory) -> None:
        """Take back an interrupted rewind in the workspace."""
        self.recovered = changes.recover(self._store._runner, place, self.id) or self.recovered

    def rewind_pending(self) -> str | None:
        """Describe a change of this session's files that is in progress or was left half done; None if there is none.

        This changes nothing: whoever next runs the session in that workspace, or rewinds it, takes the change back.
        """
        now_ms, place = self._store._clock.now_ms(), workspaces.name_of(self._seen.workspace)
        found = next((row for row in self._ask(journal.of_session_at, place) if row.steps), None)
        return None if found is None else changes.said(found, left=changes.is_left(found, now_ms))

    def _at_work(
        self, who: str | None, idle: str | None, left: Sequence[str], until_ms: int | None, exact: bool
    ) -> Who:
        if who is not None:
            return workspaces.Who(who)
        running = tuple(left) or tuple(sorted(self._running | self._owing))
        return workspaces.Who(None if running else idle, running, until_ms, exact)

    def _scan_by_hand(self) -> None:
        """Record the files because a caller asks for it.

        In a session that never reports calls nobody knows who changed what, so the changes are the session's own.
        """
        manual = self._capture.mode == "manual"
        self._scan_files(who=authors.CALLS if manual else None, idle=authors.SESSION)

    def _why_not_captured(self) -> str | None:
        """Return why this session's files are unknown; None if it has no workspace, or is captured."""
        path = self._seen.workspace
        if not path:
            return None
        if self._capture.mode == "off":
            return f"{path} (capture is off)"
        why = workspaces.why_not(path, self._store._runner)
        return f"{path} ({why})" if why else None

    def _captures(self) -> bool:
        """Whether this handle is to capture files at all."""
        return bool(self._seen.workspace) and self._capture.mode != "off"

    def _scans(self) -> bool:
        """Whether this handle scans files by itself, whoever holds the lease: a tool run through it may change them."""
        return bool(self._seen.workspace) and self._capture.mode in ("calls", "turns")

    def _scan_quietly(self, **how: object) -> None:
        """Scan, but let no failure of the workspace stop the conversation."""
        path = self._seen.workspace
        if path and workspaces.is_gone(path) and self._place() is not None and not self._is_at_work(how.get("left")):
            # Nobody known to us deleted it, so it may come back: it was moved perhaps, or is not mounted.
            self.capture_error = f"the workspace {path!r} is gone; a rewind makes it again"
            return
        try:
            done = self._scan_files(**how)  # type: ignore[arg-type]
            if done is None and self._scans() and not os.path.isdir(self._seen.workspace):
                self._owe(self.capture_error or "")
        except (Busy, Unsupported, StorageFull, BackendError, OSError) as error:
            self.capture_error = str(error)
            self._owe(words.of_error(error))

    def _is_at_work(self, left: object) -> bool:
        """Whether this session has a call that may have changed files since the last scan."""
        return bool(left or self._running or self._owing or self._ask(calls.going_on))

    def _owe(self, why: str) -> None:
        """Remember that a scan failed: what changed since the last good one belongs to the calls that ran meanwhile."""
        running = tuple(sorted(self._running | self._owing))
        try:
            self._do(
                timeline.failed,
                *self._key,
                timeline.at(self._seen.workspace),
                running,
                why,
                now_ms=self._store._clock.now_ms(),
                holder=self._store._holder,
            )
            self._owing = frozenset()
        except Error:  # the store cannot be written either, so this handle remembers it
            self._owing = frozenset(running)

    def capture_files(
        self, *, calls: Iterable[str | ToolCall] = (), until: datetime | None = None, ended: bool = False
    ) -> None:
        """Scan the workspace now, even without the lease: for boundaries that only the caller knows.

        What changed since the last scan is attributed to the open calls; with none open it is somebody else's change,
        and a rewind keeps it. Name the ``calls`` that you know to be at work. If you know it only ``until`` some time,
        what changed later is unclear, or somebody else's if they had ``ended`` by then. Does nothing without a
        workspace. ``checkpoint`` scans too, and names the point.
        """
        ids = [each.id if isinstance(each, ToolCall) else each for each in arguments.many(calls, what="calls")]
        left = [arguments.name(each, what="tool call id") for each in ids]
        until_ms = None if until is None else arguments.time_ms(until)
        arguments.flag(ended, what="ended")
        if (until is not None or ended) and not (left and until is not None):
            raise Invalid("until says how long calls were at work: pass calls with it, and until with ended")
        self._scan_files(left=left, until_ms=until_ms, exact=ended)

    # ------------------------------------------------------------------ the boundaries

    def _scan_before(self, drafts: Sequence[Draft]) -> None:
        """Scan files if the messages about to be stored mark a boundary."""
        marks = {what for draft in drafts if draft.more is not None for what, _ in draft.more.calls}
        turn = any(draft.adds.turns for draft in drafts)
        mode = self._capture.mode
        if turn or (mode == "calls" and marks & {"call", "result"}):
            self._scan_quietly()
        elif not marks and mode == "turns":
            self._scan_quietly(who=snapshots.TURN_ANYWAY)
        elif not marks and not self._seen.tool_calls:
            self._scan_quietly(idle=authors.TURN)

    def _scan_before_start(self, paths: Iterable[bytes] | None) -> None:
        if self._capture.mode == "calls":
            self._scan_quietly(paths=paths, idle=authors.OUTSIDE)

    def _scan_before_result(self, paths: Iterable[bytes] | None = None) -> None:
        if self._capture.mode == "calls":
            self._scan_quietly(paths=paths)

    def _scan_before_leaving(self) -> None:
        """Scan when a run ends: for what unfinished calls did, or for the rest of the turn."""
        if not self._scans():
            return
        try:
            if self._running:
                self._scan_after_cut(self._running)
            elif self._capture.mode == "turns":
                self._scan_quietly(who=snapshots.TURN_ANYWAY)
            elif not self._seen.tool_calls:
                self._scan_quietly(idle=authors.TURN)
        except Error as error:  # must not hide why the run ends
            self.capture_error = str(error)

    def _scan_after_cut(self, ended: Collection[str]) -> None:
        """Scan for what calls did that were cut off; they stay open, but what changes from now on is not theirs."""
        self._scan_quietly()
        self._running -= frozenset(ended)
        place, now_ms = timeline.at(self._seen.workspace), self._store._clock.now_ms()
        self._do(timeline.ended, *self._key, place, tuple(sorted(ended)), now_ms=now_ms)

    def _scan_before_taking(self, lease: LeaseRow | None) -> None:
        """Scan for what the holder's calls did, while it is still known when that last gave a sign of life."""
        if lease is not None and lease.holder is not None and self._scans() and self._ask(calls.going_on):
            self._scan_quietly()

    def _recover_after_taking(self) -> None:
        """Take back an interrupted rewind."""
        place = self._place() if self._scans() else None
        if place is not None:
            try:
                self._recover(place)
            except (Busy, StorageFull, BackendError) as error:
                self.capture_error = str(error)

    # ------------------------------------------------------------------ paths

    def _path_in(self, path: str | bytes | PathLike[str]) -> bytes:
        """Return a path relative to the workspace; raises ``Invalid`` if it is outside."""
        root = self._seen.workspace
        if not root:
            raise Invalid("this session has no workspace, so no files are captured; create it with workspace=")
        return inside(root, path)

    def _path_then(self, path: str | bytes | PathLike[str]) -> bytes:
        """Return a path as snapshots name it; a loaded session has no workspace and takes relative paths only."""
        if self._seen.workspace:
            return self._path_in(path)
        given = os.path.normpath(_text_of(path))
        if os.path.isabs(given) or given.split("/")[0] in (".", ".."):
            raise Invalid(f"this session has no workspace here; pass {given!r} relative to the workspace that it had")
        return os.fsencode(paths.relative(given))


class _Watch:
    """What is known about a lease while waiting for it."""

    def __init__(self) -> None:
        self.lease = LeaseRow("", 0, 0, None, 0, 0, 0)
        self.is_silent = False  # the holder is on another machine, and seems gone by the clock
        self._since = 0.0

    def judge(self, lease: LeaseRow | None, now_ms: int, take_over: bool) -> str | None:
        """Return why a lease may be taken; None if it may not."""
        if lease is None or lease.holder is None:
            return "free"
        # Any new heartbeat restarts the watch, measured on our own monotonic clock: the holder's clock is not trusted.
        if (lease.token, lease.beats) != (self.lease.token, self.lease.beats) or not self._since:
            self.lease, self._since = lease, time.monotonic()
        if take_over:
            return "taken over"
        holder = presence.decode(lease.holder)
        if presence.is_near(holder):
            return "gone" if presence.is_gone(holder) else None
        self.is_silent = presence.seems_gone(holder, lease.beat_ms, now_ms)
        watched = time.monotonic() - self._since
        most = 1.5 * presence.BEAT_SECONDS if self.is_silent else presence.SILENT_SECONDS
        return "gone" if watched > most else None


def _busy(session: Running, lease: LeaseRow) -> str:
    holder = presence.decode(lease.holder or b"")
    where = f"{holder}{', this one, through another handle,' if presence.is_here(holder) else ''}"
    name = session._seen.name or session._seen.title or session.id
    return (
        f"session {name!r} has been run by {where} since {presence.since(lease.taken_ms)}; wait for it:"
        " store.session(session, wait=seconds), or take it over: store.session(session, take_over=True)"
    )


def _ending(error: BaseException | None) -> tuple[str | None, dict[str, Any]]:
    """Return the status that a run ends with."""
    if error is None or isinstance(error, LeaseLost) or (isinstance(error, SystemExit) and not error.code):
        return None, {}
    if isinstance(error, Exception | SystemExit):
        return "error", {"error": words.of_error(error)}
    return INTERRUPTED, {"why": type(error).__name__}


def inside(root: str, path: object) -> bytes:
    """Return a path relative to a workspace; raises ``Invalid`` if it is outside."""
    given = _text_of(path)
    whole = os.path.normpath(os.path.join(root, given))
    folder = os.path.join(os.path.realpath(os.path.dirname(whole)), os.path.basename(whole))
    found = os.path.relpath(folder, root)
    if found == "." or found.split("/")[0] == "..":
        raise Invalid(f"{given!r} is not inside the workspace {root!r}")
    return os.fsencode(paths.relative(found))


def _text_of(path: object) -> str:
    if not isinstance(path, str | bytes | PathLike):
        raise Invalid(f"a path must be a string or path object, not {type(path).__name__}")
    given = os.fsdecode(os.fspath(path))
    if not given or "\0" in given:
        raise Invalid(f"{path!r} is not a path")
    return given
