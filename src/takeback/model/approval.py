"""Approvals: a person's answer to whether a tool call may run."""

from __future__ import annotations

from datetime import datetime

import msgspec

from ..clock import to_datetime
from . import Portable
from .tools import ToolCall


class Approval(Portable, msgspec.Struct, frozen=True):
    """The question about a call, and the answer; true only if it was approved."""

    call: ToolCall
    question: str | None = None
    approved: bool | None = None
    by: str | None = None
    note: str | None = None
    asked_ms: int = 0
    answered_ms: int | None = None

    @property
    def status(self) -> str:
        """``waiting``, ``approved`` or ``denied``."""
        return "waiting" if self.approved is None else "approved" if self.approved else "denied"

    @property
    def asked_at(self) -> datetime:
        """When it was asked."""
        return to_datetime(self.asked_ms)

    @property
    def answered_at(self) -> datetime | None:
        """When it was answered."""
        return None if self.answered_ms is None else to_datetime(self.answered_ms)

    def __bool__(self) -> bool:
        return self.approved is True

    def __repr__(self) -> str:
        return f"<Approval {self.call.name} {self.status}{f' by {self.by}' if self.by else ''}>"
