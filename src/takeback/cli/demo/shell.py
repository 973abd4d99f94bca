"""Commands typed into a real shell, and what comes back.

One shell lives as long as a person's terminal would: ``cd``, ``export`` and ``$!`` hold from line to line. Where
colours are wanted its output is a terminal, else a pipe, so every program in it decides as it would for a person.
Behind each command the shell writes its exit code between two marks that no program prints; that is where it ended.
"""

from __future__ import annotations

import os
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ...shell.failures import Stop

PATIENCE = 60.0
_MARK = "\x1e"
_END = re.compile(f"{_MARK}(\\d+){_MARK}")
_COLORS = re.compile(r"\x1b\[[0-9;]*m")


class Ran(NamedTuple):
    """What a command gave: both streams as they came."""

    code: int
    text: str


class Shell:
    """A shell that is typed into."""

    def __init__(
        self, *, folder: str, env: Mapping[str, str], columns: int | None = None, show: Callable[[str], None]
    ) -> None:
        self._show = show
        self._ours, theirs = _terminal(columns) if columns else os.pipe()
        self._waiting = b""
        try:
            self._process = subprocess.Popen(
                ["sh"], cwd=folder, env=env, stdin=subprocess.PIPE, stdout=theirs, stderr=theirs, start_new_session=True
            )
        except FileNotFoundError as error:
            raise Stop("this needs a POSIX shell, and there is no program 'sh'") from error
        finally:
            os.close(theirs)

    def close(self) -> None:
        """End it, with whatever it still runs."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            os.killpg(self._process.pid, signal.SIGHUP)
        except ProcessLookupError:
            pass
        self._process.wait()
        os.close(self._ours)

    def type(self, command: str) -> Ran:
        """Type a command and wait for its end; one that ends in ``&`` goes on in the background."""
        assert self._process.stdin is not None
        line = f"{{ {command}\n}} </dev/null; printf '{_MARK}%s{_MARK}' $?\n"
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()
        found, text = self._read_to(_END)
        return Ran(int(found[1]), text)

    def wait_for(self, text: str) -> str:
        """Read on until a text was written; give all that came up to its end."""
        return self._read_to(re.compile(re.escape(text)), keep=True)[1]

    def _read_to(self, pattern: re.Pattern[str], *, keep: bool = False) -> tuple[re.Match[str], str]:
        """Read up to a pattern, showing what comes; what lies behind it is for the next call."""
        end, shown = time.monotonic() + PATIENCE, 0
        while True:
            whole = self._waiting.decode("utf-8", "ignore")
            found = pattern.search(whole)
            stop = len(whole) if found is None else found.end() if keep else found.start()
            if found is None and _MARK in whole[shown:]:
                stop = whole.index(_MARK, shown)
            if stop > shown:
                self._show(whole[shown:stop])
                shown = stop
            if found is not None:
                self._waiting = self._waiting[len(whole[: found.end()].encode()) :]
                return found, plain(whole[:stop])
            self._waiting += self._more(end)

    def _more(self, end: float) -> bytes:
        ready, _, _ = select.select([self._ours], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            raise Stop(f"nothing came back for {PATIENCE:.0f} seconds")
        try:
            got = os.read(self._ours, 65536)
        except OSError:  # the other end is closed
            got = b""
        if not got:
            raise Stop("the shell ended by itself")
        return got


def plain(text: str) -> str:
    """Give a text without colours."""
    return _COLORS.sub("", text)


def write_program(place: str, *arguments: str) -> None:
    """Write a small program that runs this very Python with these arguments and those it is given."""
    # -P: the directory that somebody works in must not hide modules of ours
    command = shlex.join([sys.executable, "-P", *arguments])
    with open(place, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nexec {command} "$@"\n')
    os.chmod(place, 0o755)


def _terminal(columns: int) -> tuple[int, int]:
    """Give both ends of a terminal of that width."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    settings = termios.tcgetattr(theirs)
    settings[1] &= ~termios.OPOST  # ends of lines as they were written
    termios.tcsetattr(theirs, termios.TCSANOW, settings)
    return ours, theirs
