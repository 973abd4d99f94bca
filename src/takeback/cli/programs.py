"""Running another program so that nobody can tell the difference, while what it shows is heard.

On a terminal the program gets one of its own (a pty): keys, window size and escape sequences pass through as they are,
Ctrl-C is the program's. Without one its stdout and stderr pass through apart. Signals that are meant for the program
reach it, and its end is told as shells tell it. Nothing here knows of sessions.
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
_TICK = 0.1  # seconds between two looks whether the program ended while something of it lives on
_ON_ITS_WAY = 2 << 20  # bytes: more than pipes and terminals hold
_STDIN, STDOUT, STDERR = 0, 1, 2

# Python leaves SIGPIPE ignored, which programs would inherit; a terminal becomes one's own only from inside.
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
    """What to run: its arguments, where, and with which environment."""

    arguments: Sequence[str]
    directory: str | None
    env: Mapping[str, str]

    def require(self) -> None:
        """Refuse a program that is not there, before anything is done."""
        place = self.directory or os.getcwd()
        name = self.arguments[0]
        wanted = os.path.join(place, name) if os.sep in name else name
        if shutil.which(wanted, path=self.env.get("PATH")) is None:
            if os.sep in name and os.path.exists(wanted):
                raise Stop(f"{name!r} cannot be run: it is no file that may be executed", NOT_RUN)
            raise Stop(f"there is no program {name!r}", NO_PROGRAM)


def exit_code(returncode: int) -> int:
    """Give the exit code as shells do: 128 and the signal's number for a program that a signal ended."""
    return returncode if returncode >= 0 else 128 - returncode


def how_it_ended(returncode: int) -> str | None:
    """Say how a program ended badly; None if it ended well."""
    if returncode == 0:
        return None
    if returncode > 0:
        return f"exit code {returncode}"
    try:
        return f"ended by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"ended by signal {-returncode}"


def run(program: Program, heard: Heard | None = None, *, results: int = STDOUT) -> int:
    """Run a program to its end and give its return code; what it shows is ``heard`` too.

    ``results`` is the descriptor that gets its stdout. Without anybody who hears, it has the descriptors themselves.
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
        raise Stop(f"there is no program {program.arguments[0]!r}", NO_PROGRAM) from error
    except OSError as error:  # such as a file in no format that can be run
        raise Stop(f"{program.arguments[0]!r} cannot be run: {error.strerror}", NOT_RUN) from error


def _at_a_terminal() -> bool:
    """Say whether somebody sits there and this is what they look at: not in the background, nothing redirected."""
    if os.name != "posix" or not (os.isatty(_STDIN) and os.isatty(STDOUT)):
        return False
    try:
        return os.tcgetpgrp(_STDIN) == os.getpgrp()
    except OSError:  # a terminal that is not the one that controls this process has no foreground to be in
        return True


# ---------------------------------------------------------------------- signals


class _Signals:
    """Passes signals that ask this process to end on to the program that runs.

    Ctrl-C reaches a program that shares the terminal by itself, so it is passed on only where there is none.
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
            with suppress(PermissionError, ProcessLookupError):  # sudo's program is not ours to end
                (os.killpg if self._own_terminal else os.kill)(self.process.pid, number)

    def _leave(self, number: int, frame: object) -> None:
        """Leave it to the program."""


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
    """Says when a program that has ended has nothing more to say: what it left in the background may go on for ever."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process, self._size, self._ended = process, 0, False

    @property
    def patience(self) -> float:
        """How long to wait for something to come: what a program that ended has said is there already."""
        return 0 if self._ended else _TICK

    def is_over(self, size: int) -> bool:
        """Say whether to stop, after so much came: nothing since it ended, or more than could have been on its way."""
        if not self._ended:  # what came before this look is not all that it said: it may have said its last since
            self._ended = self._process.poll() is not None
            return False
        self._size += size
        return not size or self._size > _ON_ITS_WAY


def _pass(process: subprocess.Popen[bytes], streams: dict[IO[bytes], int], heard: Heard) -> None:
    """Pass on what comes in, until all has ended, or the program has and nothing is left of it."""
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
                source.close()  # so that the program is told that nobody reads it any more
        if rest.is_over(size):
            return


def _read(source: int) -> bytes:
    """Read what is there; nothing at the end, which a terminal tells as an error."""
    try:
        return os.read(source, _PAGE)
    except OSError:
        return b""


def _write(target: int, data: bytes) -> bool:
    """Write all of it; False if nobody reads it any more."""
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
    launch = [sys.executable, "-I", "-S", "-c", _LAUNCH, *program.arguments]
    errors = subprocess.PIPE if apart else theirs
    with _Signals(own_terminal=True) as signals, _resized(ours):
        process = signals.process = _started(
            program, launch, stdin=theirs, stdout=theirs, stderr=errors, start_new_session=True
        )
        # Their end stays open here too: a program that lets go of its terminal has it all the same, as outside, for
        # Ctrl-C and for whatever of it opens /dev/tty later.
        try:
            tty.setraw(_STDIN, termios.TCSADRAIN)  # what was typed ahead is for the program
            _converse(process, ours, heard)
            return process.wait()
        finally:
            with suppress(termios.error):  # somebody closed the window
                termios.tcsetattr(_STDIN, termios.TCSADRAIN, before)
            os.close(ours)
            os.close(theirs)
            if process.stderr is not None:
                process.stderr.close()


def _converse(process: subprocess.Popen[bytes], ours: int, heard: Heard) -> None:
    """Pass keys to the program and what it shows to the person, until it has ended and all is shown."""
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
    """Give a descriptor that can be read once the program has ended, where the system has such."""
    try:
        ends = [os.pidfd_open(process.pid)]
    except (AttributeError, OSError):  # then it is looked for every now and then
        ends = []
    try:
        yield ends
    finally:
        for each in ends:
            os.close(each)


def _written(target: int, data: bytes) -> int:
    """Write what fits."""
    try:
        return os.write(target, data)
    except BlockingIOError:
        return 0
    except OSError:  # nobody is there to read it
        return len(data)


def _pass_size(target: int) -> None:
    """Give a terminal the size of this one."""
    import fcntl
    import termios

    try:
        size = fcntl.ioctl(_STDIN, termios.TIOCGWINSZ, bytes(8))
        fcntl.ioctl(target, termios.TIOCSWINSZ, size)
    except OSError:  # a terminal without a size
        pass


@contextmanager
def _resized(target: int) -> Iterator[None]:
    """Pass on every change of the window's size."""
    before = signal.signal(signal.SIGWINCH, lambda number, frame: _pass_size(target))
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
