"""What a ref means: a session and, where one was named, a point in it."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeVar

from ..model import values

S = TypeVar("S")


class Resolved(NamedTuple, Generic[S]):
    """A session; the branch, entry and checkpoint that the ref named, or None."""

    session: S
    branch: str | None
    seq: int | None
    checkpoint: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON data, with the fields of the session; the session itself does not travel."""
        return values.to_dict(self)
