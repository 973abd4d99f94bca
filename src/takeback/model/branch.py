"""Branches: runs of entries that start at a point of another branch."""

from __future__ import annotations

from datetime import datetime

import msgspec

from ..clock import to_datetime
from . import Portable


class Branch(Portable, msgspec.Struct, frozen=True):
    """One branch of a session."""

    id: str
    name: str
    parent: str | None
    fork_seq: int
    head_seq: int
    is_head: bool
    created_ms: int

    @property
    def created_at(self) -> datetime:
        """When it was created."""
        return to_datetime(self.created_ms)

    def __repr__(self) -> str:
        mark = "*" if self.is_head else ""
        return f"<Branch {self.name}{mark} {self.fork_seq}..{self.head_seq}>"
