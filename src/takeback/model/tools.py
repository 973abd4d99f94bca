"""Tool calls and their results, whichever provider's form they came in.

An assistant message announces a call, the tool runs, a result comes back: three moments that may
be far apart or never come, so a call says how far it got. ``unknown`` means that the tool was
started and never reported back: it may or may not have taken effect. ``denied`` means that a person said no: it
neither worked nor failed.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from ..clock import to_datetime
from . import Portable


class ToolCall(Portable, msgspec.Struct, frozen=True, omit_defaults=True):
    """One tool call: what was asked for and how far it got."""

    id: str
    name: str
    arguments: Any
    status: str = "pending"
    result: Any = None
    success: bool | None = None
    started_ms: int | None = None
    finished_ms: int | None = None
    error: str | None = None
    seq: int = 0
    attempts: int = 0  # how many times the tool was started
    entry_id: str = ""  # the id of the entry that announced it

    @property
    def idempotency_key(self) -> str:
        """A key that is the same for every attempt of this call: pass it to services that detect repeated requests."""
        return f"{self.entry_id}:{self.id}"

    @property
    def started_at(self) -> datetime | None:
        """When the tool was started, if it was."""
        return None if self.started_ms is None else to_datetime(self.started_ms)

    @property
    def finished_at(self) -> datetime | None:
        """When its result arrived, if it did."""
        return None if self.finished_ms is None else to_datetime(self.finished_ms)

    def __repr__(self) -> str:
        return f"<ToolCall {self.name} {self.status}>"


class ToolResult(Portable, msgspec.Struct, frozen=True, omit_defaults=True):
    """What a tool returned for one call."""

    call_id: str
    content: Any
    success: bool = True
    name: str | None = None
    denied: bool = False  # it was not allowed to run

    def __repr__(self) -> str:
        return f"<ToolResult {self.name or self.call_id} {self.outcome}>"

    @property
    def outcome(self) -> str:
        """``ok``, ``failed`` or ``denied``."""
        return "denied" if self.denied else "ok" if self.success else "failed"


def denial(note: str | None = None) -> str:
    """Return what a model reads in the place of a result that was never to come."""
    return f"denied: this call was not allowed to run ({note})" if note else "denied: this call was not allowed to run"
