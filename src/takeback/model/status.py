"""The life of a session: which status follows which.

A session is active until it is completed, failed, ran out of time, was stopped, or was cut off by a crash; each of
those is left only by going on (``active`` again), and one that was cut off also by being finished.
"""

from __future__ import annotations

from ..errors import Conflict

ACTIVE, INTERRUPTED = "active", "interrupted"
FINISHED = frozenset({"completed", "error", "timeout", "stopped"})
STATUSES = (ACTIVE, "completed", "error", "timeout", "stopped", INTERRUPTED)


def require_move(before: str, after: str) -> None:
    """Refuse a change of status that makes no sense with ``Conflict``."""
    if before == after:
        raise Conflict(f"this session is {after} already", expected=after, found=before)
    if before in FINISHED and after != ACTIVE:
        raise Conflict(f"this session is {before}; reopen it before it becomes {after}", expected=after, found=before)


def require_open(status: str) -> None:
    """Refuse what only a session that goes on can take."""
    if status in FINISHED:
        raise Conflict(f"this session is {status}; enter or reopen it to go on", found=status)
