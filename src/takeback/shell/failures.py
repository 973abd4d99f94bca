"""Errors as people see them: one message that says what to do next, and a stable exit code for scripts.

0 ok, 1 error, 2 usage, 3 a search found nothing, 4 not found or ambiguous, 5 conflict or confirmation needed, 6 busy,
7 damaged, 130 interrupted. For a program to run, as in shells: 126 cannot be executed, 127 not found.
"""

from __future__ import annotations

import errno
import os

from ..errors import Ambiguous, Busy, Conflict, Corrupt, Error, Invalid, LeaseLost, NotFound

OK, FAILED, USAGE, NOTHING, NOT_FOUND, CONFLICT, BUSY, DAMAGED, INTERRUPTED = 0, 1, 2, 3, 4, 5, 6, 7, 130
NOT_RUN, NO_PROGRAM = 126, 127


class Stop(Exception):
    """Ends the command with a message for stderr and an exit code."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


def code_of(error: Error) -> int:
    """Return the exit code for an error of the library."""
    if isinstance(error, NotFound | Ambiguous):
        return NOT_FOUND
    if isinstance(error, Conflict):
        return CONFLICT
    if isinstance(error, Busy | LeaseLost):
        return BUSY
    if isinstance(error, Corrupt):
        return DAMAGED
    return USAGE if isinstance(error, Invalid) else FAILED


def sentence(error: Error) -> str:
    """Reword an error of the library for somebody who typed a command."""
    text = str(error)
    if isinstance(error, Ambiguous) and error.candidates:
        text += f": {', '.join(error.candidates)}"
    for said, typed in _TYPED.items():
        text = text.replace(said, typed)
    return text


def refused(error: OSError, path: str | None = None, doing: str = "use") -> str:
    """Describe a system error: what could not be done to which path, why, and what to do."""
    found = error.filename if path is None else path
    what = "write" if found is None else f"{doing} {os.fsdecode(found)!r}"  # errors of open files carry no name
    return f"cannot {what}: {error.strerror or error}. {_NEXT.get(error.errno or 0, 'Check the destination')}"


_PERMIT = "Check its permissions and those of its directory, or choose another place"
_ROOM = "Free some space, or choose another place"
_NEXT = {
    errno.EISDIR: "Name a file",
    errno.ENOTDIR: "Part of the path is not a directory: check it",
    errno.ENOENT: "Check the path; its directory must exist",
    errno.EACCES: _PERMIT,
    errno.EPERM: _PERMIT,
    errno.EROFS: _PERMIT,
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
}


# Hints that the library phrases in Python, rephrased for the command line.
_TYPED = {
    "use one that a page returned, or None": "use the command that the page before it printed",
    " (take_over=True)": " (--take-over)",
    "; branches() lists them": "; takeback log shows them all",
    "open it for writing to start one": "takeback new starts one",
    "; Store.export writes one": "; takeback export -o FILE writes one",
    "; run verify": "; run: takeback verify",
    "Run verify to see": "Run takeback verify to see",
}
