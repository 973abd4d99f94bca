"""Typing commands into a real shell and reading what they print.

One shell lives as long as a person's terminal would: ``cd``, ``export`` and ``$!`` carry over from line to line. Its
output is a pty if colours are wanted, else a pipe, so every program in it behaves as it would for a person. After each
command the shell prints the exit code between two marks that no program prints: that is where the output ends.
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
    """The result of a command: exit code, and both streams interleaved."""

    code: int
    text: str


class Shell:
    """A running shell."""

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
            raise Stop("this needs a POSIX shell, but sh was not found; install one or put it on PATH") from error
        finally:
            os.close(theirs)

    def close(self) -> None:
        """End the shell and everything it still runs."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            os.killpg(self._process.pid, signal.SIGHUP)
        except ProcessLookupError:
            pass
        self._process.wait()
        os.close(self._ours)

    def type(self, command: str) -> Ran:
        """Type a command and wait for it to finish; one that ends in ``&`` continues in the background."""
        assert self._process.stdin is not None
        line = f"{{ {command}\n}} </dev/null; printf '{_MARK}%s{_MARK}' $?\n"
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()
        found, text = self._read_to(_END)
        return Ran(int(found[1]), text)

    def wait_for(self, text: str) -> str:
        """Read until a text appears, and return everything up to its end."""
        return self._read_to(re.compile(re.escape(text)), keep=True)[1]

    def _read_to(self, pattern: re.Pattern[str], *, keep: bool = False) -> tuple[re.Match[str], str]:
        """Read up to a pattern, showing what arrives; the rest is left for the next call."""
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
            raise Stop(f"the shell printed nothing for {PATIENCE:.0f} seconds")
        try:
            got = os.read(self._ours, 65536)
        except OSError:  # the other end is closed
            got = b""
        if not got:
            raise Stop("the shell exited unexpectedly")
        return got


def plain(text: str) -> str:
    """Remove colours from text."""
    return _COLORS.sub("", text)


def write_program(place: str, *arguments: str) -> None:
    """Write a launcher that runs this Python with the given arguments and its own."""
    # -P: a module in the working directory must not shadow ours
    command = shlex.join([sys.executable, "-P", *arguments])
    with open(place, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nexec {command} "$@"\n')
    os.chmod(place, 0o755)


def _terminal(columns: int) -> tuple[int, int]:
    """Open a pty of this width and return both ends."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    settings = termios.tcgetattr(theirs)
    settings[1] &= ~termios.OPOST  # keep line endings as written
    termios.tcsetattr(theirs, termios.TCSANOW, settings)
    return ours, theirs
