"""Which process a hook reports for: the coding agent that runs the tools, not the hook, which exits a moment later.

An agent starts its hooks directly or through shells and wrappers (``sh -c 'takeback hook ...'``, ``env``, ``uv run``),
which end with the hook. So the agent is the nearest ancestor that is none of these. It is unknown if the system does
not list processes in ``/proc``, or if the agent has already exited and something else adopted the hook.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from .. import presence
from ..presence import Holder

_SHELLS = {"sh", "bash", "dash", "zsh", "ash", "ksh", "mksh", "fish", "busybox"}
_WRAPPERS = {"env", "nice", "ionice", "nohup", "stdbuf", "timeout", "setsid", "sudo", "doas", "uv", "uvx", "pipx"}
_AGENTS = {"claude", "node", "bun", "deno"}  # in a container an agent may be process 1; anything else there adopts
_MOST = 20  # ancestors


class _Process(NamedTuple):
    name: str
    parent: int
    arguments: list[str]

    @property
    def is_started_for_one_command(self) -> bool:
        """Whether it is a wrapper, or a shell that was given a command or a script; an interactive one is not."""
        given = any(each and not each.startswith("-") for each in self.arguments[1:])
        return self.name in _WRAPPERS or (self.name in _SHELLS and given)


def agent_process(now_ms: int) -> Holder:
    """Return the process that a hook of this process reports for; an unknown one if it cannot be found."""
    pid = os.getppid()
    for _ in range(_MOST):
        found = _read(pid)
        if found is None or found.name == "systemd" or (pid == 1 and found.name not in _AGENTS):
            break
        if not found.is_started_for_one_command:
            return presence.process(pid, now_ms)
        pid = found.parent
    return presence.unknown(now_ms)


def _read(pid: int) -> _Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            before, _, rest = file.read().rpartition(b")")  # the name before it may contain anything
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            arguments = os.fsdecode(file.read()).split("\0")
    except OSError:
        return None
    return _Process(os.fsdecode(before.partition(b"(")[2]), int(rest.split()[1]), arguments)
