"""One run of the program, however its arguments were parsed: from a step to an exit code.

Whatever a verb raises becomes a message on stderr and an exit code here. Only click's usage errors are handled
elsewhere (``app``).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from ..errors import Error
from ..model import words
from ..shell import failures
from .settings import Settings


def run(step: Callable[[], object], chosen: Settings) -> int:
    """Run a step and return the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a name that cannot be encoded must not end the command
    try:
        code = _guarded(step, chosen)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader, such as head, has seen enough
        _write_no_more()
        return failures.OK
    except OSError as error:  # the rest of the output cannot be written, such as on a full disk
        _write_no_more()
        return fail(failures.refused(error), failures.FAILED, chosen)


def _write_no_more() -> None:
    """Discard unwritten output: Python would retry the flush at exit and print a traceback."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _guarded(step: Callable[[], object], chosen: Settings) -> int:
    try:
        done = step()
        return done if isinstance(done, int) else failures.OK
    except failures.Stop as error:
        return fail(str(error), error.code, chosen)
    except Error as error:
        return fail(failures.sentence(error), failures.code_of(error), chosen)
    except KeyboardInterrupt:
        return fail("interrupted", failures.INTERRUPTED, chosen)
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is None:  # most likely stdout: run() must stop writing to it
            raise
        return fail(failures.refused(error), failures.FAILED, chosen)


def fail(text: str, code: int, chosen: Settings, help_of: str | None = None) -> int:
    """Write an error message to stderr, with a hint at the help of ``help_of``, and return the exit code."""
    if chosen.verbose and code not in (failures.USAGE, failures.INTERRUPTED):
        import traceback

        traceback.print_exc()
    said = "\n".join(words.plain(line) for line in text.splitlines())
    sys.stderr.write(f"takeback: {said}\n")
    if help_of is not None:
        sys.stderr.write(f"Try: {help_of} --help\n")
    sys.stderr.flush()
    return code
