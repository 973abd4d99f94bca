"""Running another program transparently, while its output is captured.

On a terminal the program gets a pty of its own: keys, window size and escape sequences pass through unchanged, and
Ctrl-C goes to the program. Without a terminal its stdout and stderr pass through separately. Signals meant for the
program reach it, and its exit code follows the conventions of shells. Nothing here knows about sessions.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any, NamedTuple

from ..shell.failures import NO_PROGRAM, NOT_RUN, Stop

Heard = Callable[[bytes], None]
_PAGE = 65536
_TICK = 0.1  # seconds between checks whether the program ended while a child of it keeps its output open
_ON_ITS_WAY = 2 << 20  # bytes: more than the buffers of pipes and terminals hold
_STDIN, STDOUT, STDERR = 0, 1, 2

# Python ignores SIGPIPE, and the program would inherit that; a process can only claim a controlling terminal itself.
_LAUNCH = """
import fcntl, os, signal, sys, termios
for each in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(each, signal.SIG_DFL)
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
try:
    os.execvp(sys.argv[1], sys.argv[1:])
except OSError as error:
    sys.stderr.write(f"takeback: {sys.argv[1]}: {error.strerror}\\n")
    sys.exit(126)
"""


class Program(NamedTuple):
    """What to run: arguments, directory and environment."""

    arguments: Sequence[str]
    directory: str | None
    env: Mapping[str, str]

    def require(self) -> None:
        """Raise ``Stop`` if the program does not exist, before anything is recorded."""
        place = self.directory or os.getcwd()
        name = self.arguments[0]
        wanted = os.path.join(place, name) if os.sep in name else name
        if shutil.which(wanted, path=self.env.get("PATH")) is None:
            if os.sep in name and os.path.exists(wanted):
                raise Stop(f"{name!r} cannot be run: it is not an executable file", NOT_RUN)
            raise Stop(f"program not found: {name!r}", NO_PROGRAM)


def exit_code(returncode: int) -> int:
    """Return the exit code as shells do: 128 plus the signal's number for a program killed by a signal."""
    return returncode if returncode >= 0 else 128 - returncode


def how_it_ended(returncode: int) -> str | None:
    """Describe how a program failed; None if it succeeded."""
    if returncode == 0:
        return None
    if returncode > 0:
        return f"exit code {returncode}"
    try:
        return f"killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"killed by signal {-returncode}"


def run(program: Program, heard: Heard | None = None, *, results: int = STDOUT) -> int:
    """Run a program to its end and return its return code; pass what it prints to ``heard`` as well.

    ``results`` is the descriptor that gets its stdout. Without ``heard`` the program inherits our own descriptors.
    """
    if heard is None:
        with _Signals() as signals:
            signals.process = _started(program, program.arguments)
            return signals.process.wait()
    if results == STDOUT and _at_a_terminal():
        return _in_a_terminal(program, heard)
    return _with_pipes(program, heard, results)


def _started(program: Program, arguments: Sequence[str], **how: Any) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(arguments, cwd=program.directory, env=program.env, **how)
    except PermissionError as error:
        raise Stop(f"{program.arguments[0]!r} cannot be run: {error.strerror}", NOT_RUN) from error
    except FileNotFoundError as error:
        raise Stop(f"program not found: {program.arguments[0]!r}", NO_PROGRAM) from error
    except OSError as error:  # such as an unknown executable format
        raise Stop(f"{program.arguments[0]!r} cannot be run: {error.strerror}", NOT_RUN) from error


def _at_a_terminal() -> bool:
    """Whether we run in the foreground of a terminal, with neither input nor output redirected."""
    if os.name != "posix" or not (os.isatty(_STDIN) and os.isatty(STDOUT)):
        return False
    try:
        return os.tcgetpgrp(_STDIN) == os.getpgrp()
    except OSError:  # not our controlling terminal, so it has no foreground group to compare with
        return True


# ---------------------------------------------------------------------- signals


class _Signals:
    """Forwards signals that ask this process to end to the running program.

    Ctrl-C reaches a program that shares our terminal by itself, so it is forwarded only if there is no terminal.
    """

    def __init__(self, *, own_terminal: bool = False) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self._own_terminal = own_terminal
        self._before = dict[int, Any]()

    def __enter__(self) -> _Signals:
        typed_there = not self._own_terminal and _has_terminal()
        for name in ("SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT"):
            if hasattr(signal, name):
                typed = name in ("SIGINT", "SIGQUIT")
                handler = self._leave if typed and typed_there else self._pass_on
                self._before[getattr(signal, name)] = signal.signal(getattr(signal, name), handler)
        return self

    def __exit__(self, *error: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _pass_on(self, number: int, frame: object) -> None:
        if self.process is not None and self.process.returncode is None:
            with suppress(PermissionError, ProcessLookupError):  # a program under sudo is not ours to signal
                (os.killpg if self._own_terminal else os.kill)(self.process.pid, number)

    def _leave(self, number: int, frame: object) -> None:
        """Ignore the signal: the terminal sent it to the program as well."""


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


# ---------------------------------------------------------------------- without a terminal


def _with_pipes(program: Program, heard: Heard, results: int) -> int:
    with _Signals() as signals:
        process = signals.process = _started(program, program.arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stderr is not None
        with process.stdout, process.stderr:
            _pass(process, {process.stdout: results, process.stderr: STDERR}, heard)
        return process.wait()


class _Rest:
    """Decides when the output of a program that ended is complete: its background children may write forever."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process, self._size, self._ended = process, 0, False

    @property
    def patience(self) -> float:
        """Seconds to wait for output; what a program that ended has written is already in the buffers."""
        return 0 if self._ended else _TICK

    def is_over(self, size: int) -> bool:
        """Whether to stop, after reading ``size`` bytes: nothing came since it ended, or more than buffers hold."""
        if not self._ended:  # it may have written more between the last read and its end, so read once more
            self._ended = self._process.poll() is not None
            return False
        self._size += size
        return not size or self._size > _ON_ITS_WAY


def _pass(process: subprocess.Popen[bytes], streams: dict[IO[bytes], int], heard: Heard) -> None:
    """Forward output until every stream ends, or the program has ended and its output is complete."""
    rest = _Rest(process)
    while streams:
        size = 0
        ready, _, _ = select.select([*streams], [], [], rest.patience)
        for source in ready:
            found = _read(source.fileno())
            size += len(found)
            if found:
                heard(found)
            if not found or not _write(streams[source], found):
                del streams[source]
                source.close()  # so that the program gets SIGPIPE: nobody reads it any more
        if rest.is_over(size):
            return


def _read(source: int) -> bytes:
    """Read what is available; empty at the end, which a pty reports as an error."""
    try:
        return os.read(source, _PAGE)
    except OSError:
        return b""


def _write(target: int, data: bytes) -> bool:
    """Write everything; False if nobody reads it any more."""
    try:
        while data:
            data = data[os.write(target, data) :]
    except OSError:
        return False
    return True


# ---------------------------------------------------------------------- in a terminal


def _in_a_terminal(program: Program, heard: Heard) -> int:
    import pty
    import termios
    import tty

    ours, theirs = pty.openpty()
    before = termios.tcgetattr(_STDIN)
    termios.tcsetattr(theirs, termios.TCSANOW, before)
    _pass_size(theirs)
    apart = not os.isatty(STDERR)
    launch = [sys.executable, "-I", "-S", "-c", _LAUNCH, *program.arguments]  # isolated, quick to start
    errors = subprocess.PIPE if apart else theirs
    with _Signals(own_terminal=True) as signals, _resized(ours):
        process = signals.process = _started(
            program, launch, stdin=theirs, stdout=theirs, stderr=errors, start_new_session=True
        )
        # Their end stays open here too: as in a real terminal, a program that closes its descriptors keeps its tty, for
        # Ctrl-C and for any child that opens /dev/tty later.
        try:
            tty.setraw(_STDIN, termios.TCSADRAIN)  # keeps what was typed ahead for the program
            _converse(process, ours, heard)
            return process.wait()
        finally:
            with suppress(termios.error):  # the window was closed
                termios.tcsetattr(_STDIN, termios.TCSADRAIN, before)
            os.close(ours)
            os.close(theirs)
            if process.stderr is not None:
                process.stderr.close()


def _converse(process: subprocess.Popen[bytes], ours: int, heard: Heard) -> None:
    """Forward keys to the program and its output to the terminal, until it has ended and its output is complete."""
    os.set_blocking(ours, False)
    streams = {ours: STDOUT} | ({process.stderr.fileno(): STDERR} if process.stderr is not None else {})
    keys, typed, rest, size = [_STDIN], b"", _Rest(process), 0
    with _end_of(process) as ends:
        while not rest.is_over(size):
            size = 0
            wanted = [*streams, *(keys if len(typed) < _PAGE else ()), *(ends if rest.patience else ())]
            ready, writable, _ = select.select(wanted, [ours] if typed else [], [], rest.patience)
            for source in ready:
                if source in ends:
                    continue
                found = _read(source)
                if source == _STDIN:
                    typed += found
                    keys = keys if found else []
                    continue
                size += len(found)
                if found:
                    heard(found)
                    _write(streams[source], found)
                else:
                    del streams[source]
            if writable and typed:
                typed = typed[_written(ours, typed) :]


@contextmanager
def _end_of(process: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Yield a descriptor that becomes readable when the program ends; none where the system has no pidfd."""
    try:
        ends = [os.pidfd_open(process.pid)]
    except (AttributeError, OSError):  # the caller then polls
        ends = []
    try:
        yield ends
    finally:
        for each in ends:
            os.close(each)


def _written(target: int, data: bytes) -> int:
    """Write as much as fits, and return how much that was."""
    try:
        return os.write(target, data)
    except BlockingIOError:
        return 0
    except OSError:  # nobody reads it any more: drop it
        return len(data)


def _pass_size(target: int) -> None:
    """Copy the size of our terminal to another one."""
    import fcntl
    import termios

    try:
        size = fcntl.ioctl(_STDIN, termios.TIOCGWINSZ, bytes(8))
        fcntl.ioctl(target, termios.TIOCSWINSZ, size)
    except OSError:  # a terminal without a size
        pass


@contextmanager
def _resized(target: int) -> Iterator[None]:
    """Forward every change of the window size."""
    before = signal.signal(signal.SIGWINCH, lambda number, frame: _pass_size(target))
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
