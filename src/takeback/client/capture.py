"""Capturing files: when a session looks at its workspace, and to whom a change is put down.

Whoever runs a session looks at the boundaries: before a user message, before a tool starts, before its result is
stored. What changed between two looks is put down to the calls that were open then; with none open it is somebody
else's, and a rewind keeps it. A session that never tells of a call is another matter: what changes within its turns is
the turn's, and what a checkpoint finds is the session's own. A workspace that cannot be looked at stops no
conversation: ``capture_error`` says why.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from os import PathLike

from ..errors import BackendError, Busy, Error, Invalid, LeaseLost, StorageFull, Unsupported
from ..files import changes, journal, snapshots
from ..files.disk.paths import relative
from ..files.disk.scan import Limits
from ..files.snapshots import Root
from ..files.workspaces import Workspace, name_of, why_not
from ..model.capture import Capture
from ..model.entry import Draft
from ..ops import calls
from .handle import Handle


class Capturing(Handle):
    """The part of a session that looks at its files."""

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

    def _look_at_files(
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

    def _look_by_hand(self) -> None:
        """Record the files because somebody asks for it.

        Where no call is ever told of, nobody can say who changed what: then it is the session's own.
        """
        manual = self._capture.mode == "manual"
        self._look_at_files(who=snapshots.CALLS if manual else None, idle=snapshots.SESSION)

    def _why_not_captured(self) -> str | None:
        """Say why nothing is known of the files of this session; None if it has no workspace, or is captured."""
        path = self._seen.workspace
        if not path:
            return None
        if self._capture.mode == "off":
            return f"{path} (capture is off)"
        why = why_not(path)
        return f"{path} ({why})" if why else None

    def _looks(self) -> bool:
        """Say whether this handle looks at files by itself: it runs the session, in a workspace."""
        return bool(self._seen.workspace) and self._capture.mode in ("calls", "turns") and self._holds()

    def _look_quietly(self, **how: object) -> None:
        """Look, and let a workspace that cannot be looked at stop nothing."""
        try:
            self._look_at_files(**how)  # type: ignore[arg-type]
        except (Busy, Unsupported, StorageFull, BackendError, OSError) as error:
            self.capture_error = str(error)

    def capture_files(self) -> None:
        """Look at the workspace now, also without the lease: a boundary that only the caller knows of.

        What changed since the last look is put down to the calls that are open; with none open it is somebody else's,
        and a rewind keeps it. Without a workspace nothing is done. ``checkpoint`` looks too, and names the point.
        """
        self._look_at_files()

    # ------------------------------------------------------------------ the boundaries

    def _look_before(self, drafts: Sequence[Draft]) -> None:
        """Look at files where messages that are about to be stored are a boundary."""
        marks = {what for draft in drafts if draft.more is not None for what, _ in draft.more.calls}
        turn = any(draft.adds.turns for draft in drafts)
        mode = self._capture.mode
        if turn or (mode == "calls" and marks & {"call", "result"}):
            self._look_quietly()
        elif not marks and mode == "turns":
            self._look_quietly(who=snapshots.TURN_ANYWAY)
        elif not marks and not self._seen.tool_calls:
            self._look_quietly(idle=snapshots.TURN)

    def _look_before_start(self, paths: Iterable[bytes] | None) -> None:
        if self._capture.mode == "calls":
            self._look_quietly(paths=paths, idle=snapshots.OUTSIDE)

    def _look_before_result(self, paths: Iterable[bytes] | None = None) -> None:
        if self._capture.mode == "calls":
            self._look_quietly(paths=paths)

    def _look_before_leaving(self) -> None:
        """Look when a run ends: at what calls did that did not report, or at the rest of the turn."""
        running = sorted(self._held.running) if self._held is not None else []
        if not self._looks():
            return
        try:
            if running:
                self._look_quietly()
            elif self._capture.mode == "turns":
                self._look_quietly(who=snapshots.TURN_ANYWAY)
            elif not self._seen.tool_calls:
                self._look_quietly(idle=snapshots.TURN)
        except Error as error:  # what ends the run is more than this
            self.capture_error = str(error)

    def _left_running(self) -> list[str]:
        """Give the calls that whoever had the session before left open."""
        if not self._seen.workspace or self._capture.mode not in ("calls", "turns") or not self._seen.seq:
            return []
        return self._ask(calls.going_on)

    def _look_after_taking(self, left: list[str]) -> None:
        """Put right what a rewind left that was cut off, and look at what calls did that were."""
        if not self._looks():
            return
        place = self._place()
        if left:
            self._look_quietly(left=left)
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


def _text_of(path: object) -> str:
    if not isinstance(path, str | bytes | PathLike):
        raise Invalid(f"a file is named by a path, not by {type(path).__name__}")
    given = os.fsdecode(os.fspath(path))
    if not given or "\0" in given:
        raise Invalid(f"{path!r} is no path")
    return given
