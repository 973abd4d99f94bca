"""What a ref means: a session and, where one was named, a point in it."""

from __future__ import annotations

from typing import NamedTuple

from .session import Session


class Resolved(NamedTuple):
    """A session; the branch, entry and checkpoint that the ref named, or None."""

    session: Session
    branch: str | None
    seq: int | None
    checkpoint: str | None
