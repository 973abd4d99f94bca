"""``hook``: records what another agent's program tells its hooks, and puts itself into that program's settings.

As a hook it says nothing on stdout, where it would become part of the conversation, and ends with 0 whatever happens:
the other program must never wait for it or stop because of it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from difflib import unified_diff
from typing import Any

import click

from ...shell.failures import USAGE, Stop, refused
from .. import claude_code, hook_settings
from ..claude_code import Event, Hook
from ..consent import tell
from ..frame import Frame, verb
from ..output import line
from ..plans import colored
from .running import parent_session

_SPARE = 2.0  # seconds to end in order before Claude Code would end us
_GRACE = 1.0  # seconds of these after which the process ends wherever it is
_STUCK = 0.2  # seconds: whoever hears so late that the time is up was not at work, but waited in a call of the store


class _TooLate(Exception):
    """The time is up."""

    def __init__(self, late: float) -> None:
        super().__init__("the time is up")
        self.stuck = late > _STUCK


@verb("hook", changes=True, makes=True)
@click.argument("program", type=click.Choice(["claude-code"]))
@click.option("--install", is_flag=True, help="Write the hooks into the settings of this project.")
@click.option("--uninstall", is_flag=True, help="Take them out again.")
@click.option("--user", is_flag=True, help="The settings of all your projects instead.")
@click.option("--local", is_flag=True, help="Your own settings of this project, which are not shared.")
def hook(frame: Frame, program: str, install: bool, uninstall: bool, user: bool, local: bool) -> None:
    """Record a hook's event from stdin as Claude Code gives it; --install puts the hooks into its settings.

    A session of its own for each of its sessions: prompts, tool calls with results, and the files around each call.
    """
    if (install and uninstall) or (user and local):
        raise Stop("leave one of the two out", USAGE)
    if install or uninstall:
        _settle(frame, _path(frame, user, local), install)
    elif user or local:
        raise Stop("--user and --local say where to --install or --uninstall", USAGE)
    elif sys.stdin.isatty():
        raise Stop(f"this reads an event from stdin; to record them all: takeback hook {program} --install", USAGE)
    else:
        _record(frame)


# ---------------------------------------------------------------------- recording


def _record(frame: Frame) -> None:
    """Record an event; what fails is a line on stderr."""
    with _Deadline() as deadline:
        try:
            _record_in_time(frame, deadline)
        except Exception as error:  # whatever it is: Claude Code goes on
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
        looking = hook = Hook(frame.store, event._replace(parent=parent_session(frame)))
        hook.record()
    except _TooLate as late:
        if late.stuck:
            raise TimeoutError(_in_use(deadline.seconds)) from None
        if looking is None or not looking.looking:
            raise TimeoutError(f"it took more than {deadline.seconds:.0f} seconds") from None
        why = f"a look at them took more than {deadline.seconds:.0f} seconds"
        why = f"{why}; leave what is large out with a .takebackignore"
        looking.give_up_files(why)
        raise TimeoutError(f"{claude_code.CAPTURE_OFF}: {why}") from None
    if hook.unseen is not None:
        tell(f"takeback: the files were not looked at: {line(hook.unseen)}")


def _not_recorded(what: str, why: str) -> str:
    return f"takeback: {line(what)} was not recorded: {line(why)}"


def _in_use(seconds: float) -> str:
    return f"the store is in use: it gave no answer within {seconds:.0f} seconds; another program holds it locked"


def _event(deadline: _Deadline) -> Event:
    import json

    try:
        data = json.load(sys.stdin)
    except _TooLate:
        raise TimeoutError(f"no event came on stdin within {deadline.seconds:.0f} seconds") from None
    if not isinstance(data, dict):
        raise ValueError("an event is a JSON object")
    return Event(data, os.environ.get("CLAUDE_PROJECT_DIR") or None)


class _Deadline:
    """The time that an event may take from the beginning on, reading it and opening the store included.

    When it is up ``_TooLate`` is raised, as soon as Python is asked anything. A call into the store that waits for
    somebody's lock asks it nothing: a moment later the process ends where it is, which no store minds.
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
        """Let all of it take so long and no longer."""
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
        """End the process: it waits for the store, or else it would have ended by itself."""
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
    """Put the hooks in or take them out, and say what became of the file."""
    typed = hook_settings.command(frame.settings.store)
    before = hook_settings.read(path)
    after = hook_settings.installed(before, typed) if install else hook_settings.removed(before)
    changed = after != before
    if changed and not frame.settings.dry_run:
        try:
            hook_settings.write(path, after)
        except OSError as error:  # it names a file of its own beside the settings
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
        tell("Claude Code uses it from its next start on. Take it out with the same command and --uninstall.")
        if not typed.startswith("takeback "):
            tell("takeback is not on PATH, so the settings name the Python of this installation: they hold here only.")


def _lines(frame: Frame, path: str, before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    if before == after:
        yield f"{line(path)} stays as it is"
    elif frame.settings.dry_run:
        old, new = (hook_settings.text(each).splitlines(keepends=True) for each in (before, after))
        yield from colored(
            frame, "".join(unified_diff(old if before else [], new, f"a/{path.lstrip('/')}", f"b/{path.lstrip('/')}"))
        )
    else:
        yield f"{line(path)} written"


COMMANDS = {"hook": hook}
