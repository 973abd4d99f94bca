"""Errors as people meet them: one sentence on stderr that says what to do next, and an exit code that scripts know.

0 ok, 1 error, 2 usage, 3 nothing found by a search, 4 not found or ambiguous, 5 conflict or consent needed, 6 busy,
7 damaged, 130 interrupted; of a program to be run, as shells have it: 126 it may not be run, 127 it is not there.
"""

from __future__ import annotations

import errno
import os

from ..errors import Ambiguous, Busy, Conflict, Corrupt, Error, Invalid, LeaseLost, NotFound

OK, FAILED, USAGE, NOTHING, NOT_FOUND, CONFLICT, BUSY, DAMAGED, INTERRUPTED = 0, 1, 2, 3, 4, 5, 6, 7, 130
NOT_RUN, NO_PROGRAM = 126, 127


class Stop(Exception):
    """The command ends here, with this sentence for stderr and this exit code."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


def code_of(error: Error) -> int:
    """Give the exit code of an error of the library."""
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
    """Write an error of the library for somebody who typed a command."""
    text = str(error)
    if isinstance(error, Ambiguous) and error.candidates:
        text += f": {', '.join(error.candidates)}"
    for said, typed in _TYPED.items():
        text = text.replace(said, typed)
    return text


def refused(error: OSError, path: str | None = None, doing: str = "use") -> str:
    """Write what the operating system refused: what cannot be done to which path, why, and what to do."""
    found = error.filename if path is None else path
    what = "write" if found is None else f"{doing} {os.fsdecode(found)!r}"  # an open file has no name to tell
    return f"cannot {what}: {error.strerror or error}. {_NEXT.get(error.errno or 0, 'Check where it is written')}"


_PERMIT = "Check its permissions and those of its directory, or name another place"
_ROOM = "Make room, or name another place"
_NEXT = {
    errno.EISDIR: "Name a file",
    errno.ENOTDIR: "A part of the path is no directory: check it",
    errno.ENOENT: "Check the path; its directory must be there",
    errno.EACCES: _PERMIT,
    errno.EPERM: _PERMIT,
    errno.EROFS: _PERMIT,
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
}


# What the library says in the words of Python, in those of the command line.
_TYPED = {
    " (take_over=True)": " (--take-over)",
    "; branches() lists them": "; takeback log shows them all",
    "open it for writing to start one": "takeback new starts one",
    "; Store.export writes one": "; takeback export -o FILE writes one",
    "; run verify": "; run: takeback verify",
    "Run verify to see": "Run takeback verify to see",
}
