"""Running a session: one holder at a time, by a lease; how it ends; and scans of its workspace meanwhile.

Entering takes the lease, leaving gives it back. A holder that is gone is noticed by whoever looks; whoever comes next
records what it left behind and goes on. On this machine the system is asked whether a process exists; a holder
elsewhere must be silent by the clock and also while it is watched, so that a clock that jumps takes nothing away.

Whoever runs a session scans its workspace at the boundaries: before a user message, before a tool starts, before its
result is stored. What changed between two scans is attributed to the calls that were open then; with none open it is
somebody else's, and a rewind keeps it. In a session that never reports calls, what changes within a turn is the turn's,
and what a checkpoint finds is the session's own. A scan that fails stops no conversation: ``capture_error`` says why.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, TypeVar

from .. import codec, presence
from ..errors import BackendError, Busy, Closed, Error, Invalid, LeaseLost, StorageFull, Unsupported
from ..files import changes, journal, snapshots
from ..files.disk.paths import relative
from ..files.disk.scan import Limits
from ..files.snapshots import Root
from ..files.workspaces import Workspace, name_of, why_not
from ..model import words
from ..model.capture import Capture
from ..model.entry import Draft
from ..model.status import ACTIVE, FINISHED, INTERRUPTED
from ..ops import calls, runs, sessions, statuses
from ..ops.sessions import LeaseRow
from ..presence import BEAT_SECONDS, SILENT_SECONDS
from . import arguments
from .background import Held
from .handle import Handle
from .waiting import until

S = TypeVar("S", bound="Running")
_LARGEST_RESULT = 1 << 20


class Running(Handle):
    """The part of a session that runs and ends, and that scans its workspace meanwhile."""

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
        self._scan_before_leaving()
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
        self._reread()

    def _reread(self) -> None:
        try:
            seen = self._store._read(sessions.find_whole, *self._key)
        except Closed:
            return
        if seen is not None:  # else it was purged meanwhile
            self._saw(*seen)

    def _take(self, wait: float, *, take_over: bool) -> None:
        """Take the lease; somebody else who has it is waited for, or ``Busy``."""
        store, watch, left = self._store, _Watch(), self._left_running()

        def check() -> bool | None:
            return self._try(watch, take_over) or None

        # A holder elsewhere that seems gone is watched a little longer: it may be that only its clock is wrong.
        if not until(store, check, wait) and not (watch.is_silent and until(store, check, 3 * BEAT_SECONDS)):
            raise Busy(_busy(self, watch.lease), holder=str(presence.decode(watch.lease.holder or b"{}")))
        self._scan_after_taking(left)

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

    # ------------------------------------------------------------------ capturing files

    _capture = Capture()
    capture_error: str | None = None
    """Why the workspace could not be looked at the last time; None if it could."""
    recovered: str | None = None
    """What became of a rewind that was cut off and that this handle found; None if there was none."""

    def _place(self) -> Workspace | None:
        """Give the workspace, or None if there is none that can be captured."""
        path = self._seen.workspace
        if not path or self._capture.mode == "off":
            return None
        why = why_not(path)
        self.capture_error = f"the workspace {path!r} is not captured: {why}" if why else None
        return None if why else self._any_place(path)

    def _any_place(self, path: str) -> Workspace:
        given = self._capture
        return self._store._place(
            path, Limits(given.largest_file, given.largest_total), given.ignore, watch=given.watch
        )

    def _scan_files(
        self,
        *,
        who: str | None = None,
        idle: str | None = None,
        left: Sequence[str] = (),
        paths: Iterable[bytes] | None = None,
    ) -> Root | None:
        """Record what the workspace holds now; None if it is not captured.

        The changes are put down to ``who``, or to the calls that run through this handle or were ``left`` open, or to
        ``idle`` if there are none; without that the log is asked for open calls.
        """
        place = self._place()
        if place is None:
            return None
        held, now_ms = self._held, self._store._clock.now_ms()
        self._recover(place)
        if paths is not None and self._ask(snapshots.disk_of) != place.last:
            paths = None  # files were put back since: what is remembered of the other paths is older than that
        recorder = snapshots.Recorder(*self._key, None if held is None else held.fence, now_ms)
        try:
            session, root = place.record(paths, recorder, who=lambda: self._at_work(who, idle, left))
        except LeaseLost:
            if held is not None:
                held.lose()
            raise
        self._seen = session
        if held is not None:
            held.sure = max(held.sure, session.updated)
        return root

    def _recover(self, place: Workspace) -> None:
        """Put right what a rewind left in the workspace that was cut off."""
        self.recovered = changes.recover(self._store._runner, place, self.id) or self.recovered

    def rewind_pending(self) -> str | None:
        """Say that files of this session are being changed, or were left half changed by somebody who died; else None.

        Asking changes nothing: whoever next runs the session where that was, or rewinds it, takes the change back.
        """
        now_ms, place = self._store._clock.now_ms(), name_of(self._seen.workspace)
        found = next((row for row in self._ask(journal.of_session_at, place) if row.steps), None)
        return None if found is None else changes.said(found, left=changes.is_left(found, now_ms))

    def _at_work(self, who: str | None, idle: str | None, left: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
        if who is not None:
            return who, ()
        running = tuple(left) or (tuple(sorted(self._held.running)) if self._held is not None else ())
        return None if running else idle, running

    def _scan_by_hand(self) -> None:
        """Record the files because somebody asks for it.

        Where no call is ever told of, nobody can say who changed what: then it is the session's own.
        """
        manual = self._capture.mode == "manual"
        self._scan_files(who=snapshots.CALLS if manual else None, idle=snapshots.SESSION)

    def _why_not_captured(self) -> str | None:
        """Say why nothing is known of the files of this session; None if it has no workspace, or is captured."""
        path = self._seen.workspace
        if not path:
            return None
        if self._capture.mode == "off":
            return f"{path} (capture is off)"
        why = why_not(path)
        return f"{path} ({why})" if why else None

    def _scans(self) -> bool:
        """Say whether this handle looks at files by itself: it runs the session, in a workspace."""
        return bool(self._seen.workspace) and self._capture.mode in ("calls", "turns") and self._holds()

    def _scan_quietly(self, **how: object) -> None:
        """Look, and let a workspace that cannot be looked at stop nothing."""
        try:
            self._scan_files(**how)  # type: ignore[arg-type]
        except (Busy, Unsupported, StorageFull, BackendError, OSError) as error:
            self.capture_error = str(error)

    def capture_files(self) -> None:
        """Look at the workspace now, also without the lease: a boundary that only the caller knows of.

        What changed since the last look is put down to the calls that are open; with none open it is somebody else's,
        and a rewind keeps it. Without a workspace nothing is done. ``checkpoint`` looks too, and names the point.
        """
        self._scan_files()

    # ------------------------------------------------------------------ the boundaries

    def _scan_before(self, drafts: Sequence[Draft]) -> None:
        """Look at files where messages that are about to be stored are a boundary."""
        marks = {what for draft in drafts if draft.more is not None for what, _ in draft.more.calls}
        turn = any(draft.adds.turns for draft in drafts)
        mode = self._capture.mode
        if turn or (mode == "calls" and marks & {"call", "result"}):
            self._scan_quietly()
        elif not marks and mode == "turns":
            self._scan_quietly(who=snapshots.TURN_ANYWAY)
        elif not marks and not self._seen.tool_calls:
            self._scan_quietly(idle=snapshots.TURN)

    def _scan_before_start(self, paths: Iterable[bytes] | None) -> None:
        if self._capture.mode == "calls":
            self._scan_quietly(paths=paths, idle=snapshots.OUTSIDE)

    def _scan_before_result(self, paths: Iterable[bytes] | None = None) -> None:
        if self._capture.mode == "calls":
            self._scan_quietly(paths=paths)

    def _scan_before_leaving(self) -> None:
        """Look when a run ends: at what calls did that did not report, or at the rest of the turn."""
        running = sorted(self._held.running) if self._held is not None else []
        if not self._scans():
            return
        try:
            if running:
                self._scan_quietly()
            elif self._capture.mode == "turns":
                self._scan_quietly(who=snapshots.TURN_ANYWAY)
            elif not self._seen.tool_calls:
                self._scan_quietly(idle=snapshots.TURN)
        except Error as error:  # what ends the run is more than this
            self.capture_error = str(error)

    def _left_running(self) -> list[str]:
        """Give the calls that whoever had the session before left open."""
        if not self._seen.workspace or self._capture.mode not in ("calls", "turns") or not self._seen.seq:
            return []
        return self._ask(calls.going_on)

    def _scan_after_taking(self, left: list[str]) -> None:
        """Put right what a rewind left that was cut off, and look at what calls did that were."""
        if not self._scans():
            return
        place = self._place()
        if left:
            self._scan_quietly(left=left)
        elif place is not None:
            try:
                self._recover(place)
            except (Busy, StorageFull, BackendError) as error:
                self.capture_error = str(error)

    # ------------------------------------------------------------------ paths

    def _path_in(self, path: str | bytes | PathLike[str]) -> bytes:
        """Give a path as it is called inside the workspace; one outside is ``Invalid``."""
        root, given = self._seen.workspace, _text_of(path)
        if not root:
            raise Invalid("this session has no workspace; give it one to capture files")
        whole = os.path.normpath(os.path.join(root, given))
        folder = os.path.join(os.path.realpath(os.path.dirname(whole)), os.path.basename(whole))
        inside = os.path.relpath(folder, root)
        if inside == "." or inside.split("/")[0] == "..":
            raise Invalid(f"{given!r} is not inside the workspace {root!r}")
        return os.fsencode(relative(inside))

    def _path_then(self, path: str | bytes | PathLike[str]) -> bytes:
        """Return a path as snapshots call it; without a workspace, as of a session that was loaded, a relative one."""
        if self._seen.workspace:
            return self._path_in(path)
        inside = os.path.normpath(_text_of(path))
        if os.path.isabs(inside) or inside.split("/")[0] in (".", ".."):
            raise Invalid(f"this session has no workspace here; name {inside!r} as it was called inside its own")
        return os.fsencode(relative(inside))


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


def _busy(session: Running, lease: LeaseRow) -> str:
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


def _text_of(path: object) -> str:
    if not isinstance(path, str | bytes | PathLike):
        raise Invalid(f"a file is named by a path, not by {type(path).__name__}")
    given = os.fsdecode(os.fspath(path))
    if not given or "\0" in given:
        raise Invalid(f"{path!r} is no path")
    return given
