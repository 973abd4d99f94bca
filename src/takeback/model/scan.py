"""Scans of a workspace as callers see them: when, for which session, and which paths had changed by whose doing."""

from __future__ import annotations

from datetime import datetime

import msgspec

from ..clock import to_datetime
from . import Portable


class ScanChange(Portable, msgspec.Struct, frozen=True):
    """A path that a scan found changed: what happened to it, and who did that, in words.

    ``kind`` is ``calls``, ``turn``, ``session``, ``restore``, ``outside`` or ``unclear``; ``session_ids`` are the
    sessions that did it, or may have.
    """

    path: str
    action: str
    by: str
    kind: str
    session_ids: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()


class Scan(Portable, msgspec.Struct, frozen=True):
    """One step of a workspace's timeline."""

    id: str
    workspace: str
    at_ms: int
    session_id: str | None
    calls: tuple[str, ...]
    changes: tuple[ScanChange, ...]
    failed: str | None = None
    operation: str | None = None
    more: int = 0  # changed paths that are not listed
    purged: bool = False  # with the session that it was made for

    @property
    def created_at(self) -> datetime:
        """When it was made."""
        return to_datetime(self.at_ms)

    def __repr__(self) -> str:
        count = len(self.changes) + self.more
        return f"<Scan {self.id} of {self.workspace}, {count} changed>"
