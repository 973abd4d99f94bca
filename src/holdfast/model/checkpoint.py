"""Checkpoints and previews of going back to them."""

from __future__ import annotations

from datetime import datetime

import msgspec

from ..clock import to_datetime
from .session import Head, Stats


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A named point of a session: conversation, tasks, plan, state. ``checksum`` covers all that came before."""

    id: str
    name: str
    description: str | None
    type: str
    session_id: str
    agent_id: str
    at_ms: int
    head: Head
    state_version: int
    size_bytes: int
    checksum: str
    stats: Stats
    tree: str | None = None
    not_captured: tuple[str, ...] = ()

    @property
    def created_at(self) -> datetime:
        """When it was taken."""
        return to_datetime(self.at_ms)

    def __repr__(self) -> str:
        return f"<Checkpoint {self.name!r} {self.type}, turn {self.stats.turns}>"
