"""Checkpoints of sessions and agents."""

from __future__ import annotations

from datetime import datetime

import msgspec

from ..clock import to_datetime
from . import Portable
from .session import Head, Stats


class Checkpoint(Portable, msgspec.Struct, frozen=True, kw_only=True):
    """A named point of a session: conversation, tasks, plan, state. ``checksum`` covers everything before it.

    A checkpoint of an agent covers its fields, its state and the positions of all its sessions. Its ``session_id`` is
    None, ``state_version`` is the agent's version, ``head`` is empty, and ``stats`` are zero: each session has its own.
    """

    id: str
    name: str
    description: str | None
    type: str
    session_id: str | None
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
        where = f"agent {self.agent_id!r}" if self.session_id is None else f"turn {self.stats.turns}"
        return f"<Checkpoint {self.name!r} {self.type}, {where}>"
