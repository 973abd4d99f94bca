"""The life of a session: which status may follow which.

A session is active until it completes, fails, times out, is stopped, or is interrupted by a crash. Each of those can
only become ``active`` again; an interrupted one can also be finished.
"""

from __future__ import annotations

from ..errors import Conflict

ACTIVE, INTERRUPTED = "active", "interrupted"
FINISHED = frozenset({"completed", "error", "timeout", "stopped"})
STATUSES = (ACTIVE, "completed", "error", "timeout", "stopped", INTERRUPTED)


def require_move(before: str, after: str) -> None:
    """Raise ``Conflict`` if one status cannot follow another."""
    if before == after:
        raise Conflict(f"this session is already {after}", expected=after, found=before)
    if before in FINISHED and after != ACTIVE:
        raise Conflict(f"this session is {before}; reopen it before making it {after}", expected=after, found=before)


def require_open(status: str) -> None:
    """Raise ``Conflict`` if the session is finished."""
    if status in FINISHED:
        raise Conflict(f"this session is {status}; enter or reopen it to continue", found=status)
