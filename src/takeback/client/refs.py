"""What a ref means: a session and, where one was named, a point in it."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

S = TypeVar("S")


class Resolved(NamedTuple, Generic[S]):
    """A session; the branch, entry and checkpoint that the ref named, or None."""

    session: S
    branch: str | None
    seq: int | None
    checkpoint: str | None
