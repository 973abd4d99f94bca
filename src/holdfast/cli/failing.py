"""Errors as people meet them: one sentence on stderr that says what to do next, and an exit code that scripts know.

0 ok, 1 error, 2 usage, 3 nothing found by a search, 4 not found or ambiguous, 5 conflict or consent needed, 6 busy,
7 damaged, 130 interrupted.
"""

from __future__ import annotations

from ..errors import Ambiguous, Busy, Conflict, Corrupt, Error, Invalid, LeaseLost, NotFound

OK, FAILED, USAGE, NOTHING, NOT_FOUND, CONFLICT, BUSY, DAMAGED, INTERRUPTED = 0, 1, 2, 3, 4, 5, 6, 7, 130


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


# What the library says in the words of Python, in those of the command line.
_TYPED = {
    " (take_over=True)": " (--take-over)",
    "; run verify": "; run: holdfast verify",
    "Run verify to see": "Run holdfast verify to see",
}
