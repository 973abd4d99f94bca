"""Adding our hooks to Claude Code's settings and removing them; everything else in the file stays as it is.

The file belongs to the user: one that we could not write back unchanged is refused before anything is touched, and
only commands that match ours as a whole count as ours.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import shutil
import stat
import sys
from collections.abc import Iterator
from typing import Any

from ..shell.failures import Stop

# The events we record, each with the seconds that Claude Code waits for us at most.
EVENTS = {
    "SessionStart": 30,
    "UserPromptSubmit": 10,
    "PreToolUse": 10,
    "PostToolUse": 10,
    "PostToolUseFailure": 10,
    "SubagentStart": 10,
    "SubagentStop": 10,
    "Stop": 10,
    "SessionEnd": 10,
}
_MATCHED = ("PreToolUse", "PostToolUse", "PostToolUseFailure")  # tool events: we match every tool
# Every form of command that we ever wrote, matched as a whole: a command that wraps ours is the user's own.
_WORD = r"(?:[\w@%+=:,./~-]|'[^']*'|\"'\")+"  # as shlex.quote writes it
# Compiled on use: each event loads this module, and only installing needs the pattern.
_OURS = rf"(?:(?:[\w@%+=:,./~-]*/)?takeback|{_WORD} -m takeback)(?: --store {_WORD})? hook claude-code(?: \|\| true)?"


def command(store: str | None) -> str:
    """Return the command that Claude Code runs; whatever happens to it, it never blocks a tool."""
    program = "takeback" if shutil.which("takeback") else f"{shlex.quote(sys.executable)} -m takeback"
    where = "" if store is None else f" --store {shlex.quote(store if '://' in store else os.path.realpath(store))}"
    return f"{program}{where} hook claude-code || true"  # exit code 2 (usage error) would block the tool


def read(path: str) -> dict[str, Any]:
    """Read a settings file; a missing file means no settings."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file, parse_constant=_refuse, parse_float=_number)
            json.dumps(found, ensure_ascii=False).encode()  # half a surrogate pair can be read but not written back
    except FileNotFoundError:
        return {}
    except RecursionError as error:
        raise Stop(f"{path} is nested too deeply; fix it first (nothing was changed)") from error
    except ValueError as error:
        raise Stop(f"{path} is not JSON ({error}); fix it first (nothing was changed)") from error
    hooks = found.get("hooks", {}) if isinstance(found, dict) else None
    settings: dict[str, Any] = found
    if not isinstance(hooks, dict) or not all(isinstance(each, list) for each in hooks.values()):
        raise Stop(
            f"{path} is not a Claude Code settings file: hooks must hold a list for each event (nothing was changed)"
        )
    return settings


def _refuse(text: str) -> Any:
    raise ValueError(f"{text[:40]} is not a number that JSON can hold")


def _number(text: str) -> float:
    found = float(text)
    return found if math.isfinite(found) else _refuse(text)


def installed(settings: dict[str, Any], command: str) -> dict[str, Any]:
    """Return the settings with our hooks; existing ones are updated in place."""
    new = removed(settings, but=EVENTS)
    hooks = new.setdefault("hooks", {})
    for event, seconds in EVENTS.items():
        ours = {"type": "command", "command": command, "timeout": seconds}
        groups = hooks.setdefault(event, [])
        there = [hook for hook in _hooks(groups) if _is_ours(hook)]
        for hook in there:
            hook.clear()
            hook.update(ours)
        if not there:
            groups.append({**({"matcher": "*"} if event in _MATCHED else {}), "hooks": [ours]})
    return new


def removed(settings: dict[str, Any], *, but: Any = ()) -> dict[str, Any]:
    """Return the settings without our hooks, except those of the events in ``but``."""
    new: dict[str, Any] = json.loads(json.dumps(settings))
    hooks = new.get("hooks", {})
    for event in [each for each in hooks if each not in but]:
        if any(_is_ours(hook) for hook in _hooks(hooks[event])):
            hooks[event] = [*filter(None, map(_without, hooks[event]))]
            if not hooks[event]:
                del hooks[event]
    if "hooks" in new and not hooks:
        del new["hooks"]
    return new


def _hooks(groups: list[Any]) -> Iterator[Any]:
    for group in groups:
        if isinstance(group, dict) and isinstance(group.get("hooks"), list):
            yield from group["hooks"]


def _is_ours(hook: Any) -> bool:
    said = hook.get("command") if isinstance(hook, dict) else None
    return isinstance(said, str) and re.fullmatch(_OURS, said) is not None


def _without(group: Any) -> Any:
    """Return a group without our hooks; None if it holds nothing else."""
    if not isinstance(group, dict) or not any(map(_is_ours, group.get("hooks") or ())):
        return group
    left = [hook for hook in group["hooks"] if not _is_ours(hook)]
    return {**group, "hooks": left} if left else None


def text(settings: dict[str, Any]) -> str:
    """Format settings the way Claude Code does."""
    return json.dumps(settings, indent=2, ensure_ascii=False) + "\n"


def write(path: str, settings: dict[str, Any]) -> None:
    """Replace the settings file atomically; a symbolic link to it stays a link."""
    target = os.path.realpath(path)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    beside = f"{target}.takeback-{os.getpid()}"
    mode = stat.S_IMODE(os.stat(target).st_mode) if os.path.exists(target) else 0o644
    try:
        with open(beside, "w", encoding="utf-8") as file:
            os.chmod(beside, mode)
            file.write(text(settings))
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    except BaseException:
        if os.path.exists(beside):
            os.unlink(beside)
        raise
