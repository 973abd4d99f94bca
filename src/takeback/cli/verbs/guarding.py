"""``guard``: takes a checkpoint of a directory whenever its files settle, whoever changed them.

A guard is a session of its directory like any other, whose checkpoints are points to go back to. Nobody ever holds its
lease: a guard blocks nobody, and a killed guard leaves nothing to clean up. It claims nothing: what its scans find
changed is attributed to the calls that other sessions have open, or else to somebody outside.

Where the system reports changes (Linux, local file systems) an idle guard sleeps until it does; elsewhere it scans
every few seconds.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import UTC
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from ...errors import Busy, Error, Invalid, NotFound
from ...files import workspaces
from ...model import words
from ...model.checkpoint import Checkpoint
from ...shell import documents, times
from ...shell.failures import USAGE, Stop
from .. import claude_code
from ..consent import tell
from ..frame import GUARD, Frame, option, verb
from ..output import line

if TYPE_CHECKING:
    from ...files.workspaces import CapturedDirectory

_SHOWN = 3
_LATEST = 60.0  # seconds without a notification after which we scan anyway: notifications can get lost
_PATIENCE = 30.0  # seconds after which files that never settle are captured as they are

Signs = dict[str, tuple[int, int] | None]  # changed paths with size and mtime, to see whether they still change


class Span(click.ParamType[float]):
    """A duration: 2s, 1.5s, 5m."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return value if isinstance(value, float) else times.parse_span(value)
        except ValueError:
            return self.fail(f"{value!r} is not a duration; write 2s, 5m or 1h", param, ctx)


@verb("guard", changes=True, makes=True)
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(exists=True, file_okay=False))
@option("--settle", type=Span(), default="2s", show_default=True, help="How long files must stay unchanged.")
@option("--every", type=Span(), default="10s", show_default=True, help="At most one checkpoint in this time.")
@option("--keep", type=click.IntRange(1), default=100, show_default=True, help="Keep this many checkpoints.")
@option("--once", is_flag=True, help="Take one now if something changed, and exit.")
@option("--poll", is_flag=True, help="Scan every few seconds, even if the system can report changes.")
def guard(frame: Frame, folder: str | None, settle: float, every: float, keep: int, once: bool, poll: bool) -> None:
    """Take a checkpoint of a directory whenever its files settle, until Ctrl-C.

    DIR defaults to this workspace. Go back with takeback rewind guard:NAME, whoever changed the files since; takeback
    checkpoints guard lists the names. On Linux the system reports changes; elsewhere the directory is scanned every few
    seconds.
    """
    if frame.settings.json and not once:
        raise Stop("--json writes one document; add --once, or use --jsonl for a stream", USAGE)
    place = frame.place_of_new() if folder is None else os.path.realpath(folder)
    if (why := workspaces.why_not(place)) is not None:
        raise Stop(f"{place} cannot be guarded: {why}")
    if frame.settings.dry_run:
        _say_what_would_be_done(frame, place)
        return
    guarding = Guard(frame, place, keep)
    if once:
        if folder is None and place != frame.directory and frame.out.for_people:
            tell(f"The workspace is {line(place)}.")
        guarding.take(guarding.changed())
        if not guarding.taken and frame.out.for_people:
            tell("Nothing changed since the last checkpoint.")
        return
    _stand(guarding, settle, every, poll)


def _say_what_would_be_done(frame: Frame, place: str) -> None:
    found = frame.store.find_session(GUARD, agent=GUARD, workspace=place)
    made = () if found is None else found.checkpoints(newest=True, limit=1)
    changed = _changed(frame, place, made[0]) if made else None
    what = "all files" if changed is None else words.count(len(changed), "change")
    tell(f"Dry run: would guard {line(place)}, starting with a checkpoint of {what}.")


def _stand(guarding: Guard, settle: float, every: float, poll: bool) -> None:
    """Take checkpoints until interrupted."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        bell = _Bell(guarding.directory, max(settle, 1.0), poll)
        tell(f"Guarding {line(guarding.place)}, {bell.how}. Ctrl-C ends it.")
        guarding.stand(bell, settle, every)
    except KeyboardInterrupt:
        tell(f"{words.count(guarding.taken, 'checkpoint')} taken. List them: takeback checkpoints {GUARD}")
    finally:
        signal.signal(signal.SIGTERM, before)


# ---------------------------------------------------------------------- the guard


class Guard:
    """Takes checkpoints of a directory."""

    def __init__(self, frame: Frame, place: str, keep: int) -> None:
        self._frame, self.place, self._keep = frame, place, keep
        self.taken = 0
        self._session = frame.store.session(
            GUARD, agent=GUARD, workspace=place, hold=False, capture="manual", title=f"Guard of {place}"
        )

    @property
    def directory(self) -> CapturedDirectory:
        """The directory as it is scanned."""
        return self._session._any_place(self.place)

    def stand(self, bell: _Bell, settle: float, every: float) -> None:
        """Take a checkpoint now, and then whenever files changed and settled."""
        self.take(self.changed())
        last = time.monotonic()
        while True:
            bell.wait()
            found = self._at_rest(settle, last + every)
            if found == {}:
                time.sleep(settle)  # only ignored files changed: they may change all the time, so slow down
                continue
            self.take(found)
            last = time.monotonic()

    def _at_rest(self, settle: float, earliest: float) -> Signs | None:
        """Return what changed once it has settled, but not before ``earliest``; or as it is if it never settles."""
        began, before = time.monotonic(), None
        while True:
            now, found = time.monotonic(), self.changed()
            rests = found == before or now - began > max(_PATIENCE, 3 * settle)
            if found == {} or (rests and now >= earliest):
                return found
            before = found
            time.sleep(settle)

    def changed(self) -> Signs | None:
        """Return what changed since the last checkpoint; None if that is unknown, or there is no checkpoint yet."""
        try:
            self._require_there()
            made = self._session.checkpoints(newest=True, limit=1)
            return _changed(self._frame, self.place, made[0]) if made else None
        except (Busy, Invalid, OSError) as error:  # a rewind is restoring files right now, or the directory has gone
            self._require_there()
            self._not_now(error)
            return None

    def _require_there(self) -> None:
        if not os.path.isdir(self.place):
            raise Stop(f"{self.place} no longer exists, so there is nothing left to guard")

    def take(self, changed: Signs | None) -> None:
        """Take a checkpoint if anything changed, drop the oldest ones, and report it."""
        if changed is not None and not changed:
            return
        name = f"auto-{times.now().astimezone(UTC):%Y%m%d-%H%M%S}"
        about = "first checkpoint" if changed is None else f"{words.count(len(changed), 'change')}: {_first(changed)}"
        try:
            claude_code.settle_calls(self._frame.store, self.place)
            self._session.capture_files()
            made = self._session.checkpoint(name, type="automatic", description=about, files=False)
        except (Busy, OSError) as error:
            self._not_now(error)
            return
        if made.tree is None:
            raise Stop(self._session.capture_error or f"{self.place} cannot be captured")
        if not self._is_first(made):
            return
        self.taken += 1
        shown = f"{times.clock(made.created_at, utc=self._frame.out.utc)}  {made.name}  {line(about)}"
        self._frame.out.one("checkpoint", documents.checkpoint(made), lambda: [shown])
        sys.stdout.flush()

    def _is_first(self, made: Checkpoint) -> bool:
        """Whether no other guard took the same checkpoint just before; if one did, drop ours. Drops the oldest, too."""
        there = self._session.checkpoints()
        at = [each.id for each in there].index(made.id)
        if at and there[at - 1].tree == made.tree:
            self._frame.store.delete_checkpoint(made)
            return False
        for each in [each for each in there if each.type == "automatic"][: -self._keep]:
            self._frame.store.delete_checkpoint(each)
        return True

    def _not_now(self, error: Error | OSError) -> None:
        if self._frame.settings.verbose:
            tell(f"not now: {line(str(error))}")


def _changed(frame: Frame, place: str, since: Checkpoint) -> Signs | None:
    """Return the paths that differ from a checkpoint, with their size and mtime; None if that is unknown."""
    try:
        plan = frame.store.workspace(place).preview_rewind(since)
    except NotFound:  # another directory has this path by now
        return None
    paths = sorted(each.path for each in plan.files)
    return {path: _sign(os.path.join(place, path)) for path in paths}


def _sign(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def _first(changed: Signs) -> str:
    more = f" and {len(changed) - _SHOWN:,} more" if len(changed) > _SHOWN else ""
    return ", ".join(islice(changed, _SHOWN)) + more


# ---------------------------------------------------------------------- notifications


class _Bell:
    """Waits until something may have changed: until the system reports it, or else a few seconds."""

    def __init__(self, directory: CapturedDirectory, seconds: float, poll: bool) -> None:
        self._directory, self._seconds = directory, seconds
        self._watcher = None if poll else directory.watcher()

    @property
    def how(self) -> str:
        """How changes are noticed."""
        return f"scanning every {self._seconds:g} s" if self._watcher is None else "the system reports changes"

    def wait(self) -> None:
        """Return when it is time to scan."""
        if self._watcher is None:
            time.sleep(self._seconds)
            return
        if self._directory.watch_with(self._watcher):
            return  # whatever happened there before now was not reported
        if self._watcher.is_open:
            self._watcher.wait(_LATEST)
            self._watcher.changed()
        else:
            tell("the system has no watches left for so many directories; scanning every few seconds instead")
            self._watcher = None


COMMANDS = {"guard": guard}
