"""``hook``: records what another agent's program tells its hooks, and puts itself into that program's settings.

As a hook it says nothing on stdout, where it would become part of the conversation, and ends with 0 whatever happens:
the other program must never wait for it or stop because of it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import unified_diff
from typing import Any

import click

from .. import claude_code, hook_settings
from ..claude_code import Event, Hook
from ..consent import tell
from ..failing import USAGE, Stop, refused
from ..frame import Frame, verb
from ..output import line
from ..plans import colored
from .running import parent_session

_SPARE = 2.0  # seconds to end in order before Claude Code would end us


class _TooLate(Exception):
    """The time is up."""


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
        raise Stop(f"this reads an event from stdin; to record them all: holdfast hook {program} --install", USAGE)
    else:
        _record(frame)


# ---------------------------------------------------------------------- recording


def _record(frame: Frame) -> None:
    """Record an event; what fails is a line on stderr."""
    what = "hook"
    try:
        event = _event()
        what = event.name or what
        if frame.settings.dry_run:
            tell(f"Dry run: would record {line(what)}.")
            return
        if what in hook_settings.EVENTS:
            event = event._replace(parent=parent_session(frame))
            hook = Hook(frame.store, event)
            _in_time(hook, hook_settings.EVENTS[what] - _SPARE)
            if hook.unseen is not None:
                tell(f"holdfast: the files were not looked at: {line(hook.unseen)}")
    except Exception as error:  # whatever it is: Claude Code goes on
        tell(f"holdfast: {line(what)} was not recorded: {line(str(error) or type(error).__name__)}")


def _event() -> Event:
    import json

    data = json.load(sys.stdin)
    if not isinstance(data, dict):
        raise ValueError("an event is a JSON object")
    return Event(data, os.environ.get("CLAUDE_PROJECT_DIR") or None)


def _in_time(hook: Hook, seconds: float) -> None:
    try:
        with _at_most(seconds):
            hook.record()
    except _TooLate:
        if not hook.looking:
            raise TimeoutError(f"it took more than {seconds:.0f} seconds") from None
        why = f"a look at them took more than {seconds:.0f} seconds; leave what is large out with a .holdfastignore"
        hook.give_up_files(why)
        raise TimeoutError(f"{claude_code.CAPTURE_OFF}: {why}") from None


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Let something take so long and no longer, where the system can tell."""

    def stop(number: int, frame: object) -> None:
        raise _TooLate

    if not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


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
        if not typed.startswith("holdfast "):
            tell("holdfast is not on PATH, so the settings name the Python of this installation: they hold here only.")


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
