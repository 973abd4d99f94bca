"""``hook``: records the events that another agent passes to its hooks, and adds itself to that agent's settings.

As a hook it writes nothing to stdout, which would become part of the conversation, and exits with 0 whatever happens:
the other program must never wait for it or stop because of it.
"""

from __future__ import annotations

import difflib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import click

from ...shell.failures import USAGE, Stop, refused
from .. import agent_process, claude_code, hook_settings, plans
from ..claude_code import Event, Hook
from ..consent import tell
from ..frame import Frame, option, verb
from ..output import line
from .running import parent_session

_SPARE = 2.0  # seconds left to exit cleanly before Claude Code kills us
_GRACE = 1.0  # seconds after the deadline at which the process exits wherever it is
_STUCK = 0.2  # seconds: a signal handled this late means Python was not running, but blocked in a store call


class _TooLate(Exception):
    """The deadline has passed."""

    def __init__(self, late: float) -> None:
        super().__init__("the deadline has passed")
        self.stuck = late > _STUCK


@verb("hook", changes=True, makes=True)
@click.argument("program", type=click.Choice(["claude-code"]))
@option("--install", is_flag=True, help="Add the hooks to this project's settings.")
@option("--uninstall", is_flag=True, help="Remove the hooks again.")
@option("--user", is_flag=True, help="Use your settings for all projects instead.")
@option("--local", is_flag=True, help="Use your personal settings for this project.")
def hook(frame: Frame, program: str, install: bool, uninstall: bool, user: bool, local: bool) -> None:
    """Record an event that Claude Code passes to a hook on stdin; --install adds the hooks to its settings.

    Each of its sessions becomes a session here: prompts, tool calls with results, and the files around each call.
    """
    if (install and uninstall) or (user and local):
        raise Stop("--install and --uninstall exclude each other, as do --user and --local; leave one out", USAGE)
    if install or uninstall:
        _settle(frame, _path(frame, user, local), install)
    elif user or local:
        raise Stop("--user and --local need --install or --uninstall", USAGE)
    elif sys.stdin.isatty():
        raise Stop(f"this reads one event from stdin; to record all events: takeback hook {program} --install", USAGE)
    else:
        _record(frame)


# ---------------------------------------------------------------------- recording


def _record(frame: Frame) -> None:
    """Record an event; report a failure as one line on stderr."""
    with _Deadline() as deadline:
        try:
            _record_in_time(frame, deadline)
        except Exception as error:  # whatever it is, Claude Code must continue
            tell(_not_recorded(deadline.what, str(error) or type(error).__name__))
        frame.close()


def _record_in_time(frame: Frame, deadline: _Deadline) -> None:
    event = _event(deadline)
    deadline.what = event.name or deadline.what
    if frame.settings.dry_run:
        tell(f"Dry run: would record {line(deadline.what)}.")
        return
    if deadline.what not in hook_settings.EVENTS:
        return
    deadline.set(hook_settings.EVENTS[deadline.what] - _SPARE)
    looking: Hook | None = None
    try:
        frame.store._act_for(agent_process.agent_process(frame.store._clock.now_ms()))
        looking = hook = Hook(frame.store, event._replace(parent=parent_session(frame)))
        hook.record()
    except _TooLate as late:
        if late.stuck:
            raise TimeoutError(_in_use(deadline.seconds)) from None
        if looking is None or not looking.looking:
            raise TimeoutError(f"it took more than {deadline.seconds:.0f} seconds") from None
        why = f"scanning them took more than {deadline.seconds:.0f} seconds"
        why = f"{why}; exclude large directories in .takebackignore"
        looking.give_up_files(why)
        raise TimeoutError(f"{claude_code.CAPTURE_OFF}: {why}") from None
    if hook.unseen is not None:
        tell(f"takeback: the files were not scanned: {line(hook.unseen)}")


def _not_recorded(what: str, why: str) -> str:
    return f"takeback: {line(what)} was not recorded: {line(why)}"


def _in_use(seconds: float) -> str:
    return f"the store is in use: another program has kept it locked for {seconds:.0f} seconds"


def _event(deadline: _Deadline) -> Event:
    import json

    try:
        data = json.load(sys.stdin)
    except _TooLate:
        raise TimeoutError(f"no event arrived on stdin within {deadline.seconds:.0f} seconds") from None
    if not isinstance(data, dict):
        raise ValueError("the event is not a JSON object")
    return Event(data, os.environ.get("CLAUDE_PROJECT_DIR") or None)


class _Deadline:
    """The time that an event may take in all, including reading it and opening the store.

    When it runs out, the signal handler raises ``_TooLate``. Python runs the handler only between bytecodes, so a call
    blocked on a lock of the store never sees it: a watchdog then exits the process, which is safe for any store.
    """

    def __init__(self) -> None:
        self.what, self.seconds = "hook", 0.0
        self._began = time.monotonic()
        self._watchdog: threading.Timer | None = None
        self._before: Any = None

    def __enter__(self) -> _Deadline:
        if hasattr(signal, "setitimer"):
            self._before = signal.signal(signal.SIGALRM, self._is_up)
        self.set(min(hook_settings.EVENTS.values()) - _SPARE)
        return self

    def __exit__(self, *error: object) -> None:
        self._disarm()
        if hasattr(signal, "setitimer"):
            signal.signal(signal.SIGALRM, self._before)

    def set(self, seconds: float) -> None:
        """Allow this many seconds from the start of the event."""
        self._disarm()
        self.seconds = seconds
        left = max(self._began + seconds - time.monotonic(), 0.001)
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, left)
        self._watchdog = threading.Timer(left + _GRACE, self._end)
        self._watchdog.daemon = True
        self._watchdog.start()

    def _disarm(self) -> None:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
        if self._watchdog is not None:
            self._watchdog.cancel()

    def _is_up(self, number: int, frame: object) -> None:
        raise _TooLate(time.monotonic() - self._began - self.seconds)

    def _end(self) -> None:
        """Exit the process, which must be blocked on the store: otherwise it would have finished by now."""
        tell(_not_recorded(self.what, _in_use(self.seconds)))
        sys.stderr.flush()
        os._exit(0)


# ---------------------------------------------------------------------- settings


def _path(frame: Frame, user: bool, local: bool) -> str:
    if user:
        folder = os.environ.get("CLAUDE_CONFIG_DIR") or os.path.expanduser("~/.claude")
        return os.path.join(folder, "settings.json")
    return os.path.join(frame.directory, ".claude", "settings.local.json" if local else "settings.json")


def _settle(frame: Frame, path: str, install: bool) -> None:
    """Add or remove the hooks, and report what changed in the file."""
    typed = hook_settings.command(frame.settings.store)
    before = hook_settings.read(path)
    after = hook_settings.installed(before, typed) if install else hook_settings.removed(before)
    changed = after != before
    if changed and not frame.settings.dry_run:
        try:
            hook_settings.write(path, after)
        except OSError as error:  # it names our temporary file, not the settings
            raise Stop(refused(error, path, "write")) from error
    now = before if frame.settings.dry_run else after
    document: dict[str, Any] = {
        "path": path,
        "installed": hook_settings.removed(now) != now,
        "changed": changed and not frame.settings.dry_run,
        "command": typed if install else None,
        "events": [*hook_settings.EVENTS],
    }
    frame.out.one("hook", document, lambda: _lines(frame, path, before, after))
    if frame.settings.dry_run:
        tell("Dry run: nothing was changed.")
    elif frame.out.for_people and changed and install:
        tell("Takes effect when Claude Code starts next. Remove it with the same command and --uninstall.")
        if not typed.startswith("takeback "):
            tell("takeback is not on PATH, so the settings name this Python: they work only on this machine.")


def _lines(frame: Frame, path: str, before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    if before == after:
        yield f"{line(path)} is unchanged"
    elif frame.settings.dry_run:
        old, new = (hook_settings.text(each).splitlines(keepends=True) for each in (before, after))
        inside = path.lstrip("/")
        changed = difflib.unified_diff(old if before else [], new, f"a/{inside}", f"b/{inside}")
        yield from plans.colored(frame, "".join(changed))
    else:
        yield f"{line(path)} written"


COMMANDS = {"hook": hook}
