"""The program in a real terminal: what it shows is read, what it asks is answered."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping

PATIENCE = 60.0


class Terminal:
    """A program that runs in a terminal of 24 lines."""

    def __init__(self, *arguments: str, env: Mapping[str, str] | None = None, columns: int = 100) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        given = {**os.environ, "TERM": "xterm", **(env or {})}
        for name in ("COLUMNS", "LINES"):  # the terminal's own size counts
            given.pop(name, None)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "takeback", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=given,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self.seen, self._read_to = "", 0
        self.was_raw = False  # how the program left the terminal

    def wait_for(self, text: str) -> None:
        """Read until a text is shown, behind the one that was waited for last."""
        end = time.monotonic() + PATIENCE
        while text not in self.seen[self._read_to :]:
            assert self._read(end), f"{text!r} was not shown: {self.seen!r}"
        self._read_to = self.seen.index(text, self._read_to) + len(text)

    def answer(self, question: str, text: str) -> None:
        """Wait for a question and answer it."""
        self.wait_for(question)
        os.write(self._ours, text.encode())

    def press(self, keys: str) -> None:
        """Type something, control characters too."""
        os.write(self._ours, keys.encode())

    def resize(self, lines: int, columns: int) -> None:
        """Return the window another size."""
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    @property
    def is_raw(self) -> bool:
        """Whether keys are passed on one by one and not shown by the terminal."""
        return not termios.tcgetattr(self._ours)[3] & (termios.ICANON | termios.ECHO)

    def kill(self) -> None:
        """End the program with -9."""
        self._process.kill()
        self._process.wait(PATIENCE)
        os.close(self._ours)

    def close(self) -> None:
        """Close the window; return when the program has ended."""
        os.close(self._ours)
        self._process.wait(PATIENCE)

    def end(self) -> int:
        """Read to the end and give the exit code."""
        end = time.monotonic() + PATIENCE
        while self._read(end):
            pass
        self.was_raw = self.is_raw
        os.close(self._ours)
        return self._process.wait(PATIENCE)

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    def _read(self, end: float) -> bool:
        ready, _, _ = select.select([self._ours], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            self._process.kill()
            self._process.wait(PATIENCE)
            raise AssertionError(f"nothing more came: {self.seen!r}")
        try:
            found = os.read(self._ours, 65536)
        except OSError:  # the other end is closed
            return False
        self.seen += found.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(found)
