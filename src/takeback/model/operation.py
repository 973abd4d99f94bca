"""Operations: changes other than appends, each with the state before and after."""

from __future__ import annotations

from datetime import datetime

import msgspec

from ..clock import to_datetime
from . import Portable


class Operation(Portable, msgspec.Struct, frozen=True):
    """One entry of the operations log, which ``undo`` takes back."""

    id: str
    kind: str
    session_id: str | None
    at_ms: int
    summary: str
    undone: bool = False
    agent_id: str | None = None
    workspace: str | None = None
    paths: tuple[str, ...] = ()

    @property
    def created_at(self) -> datetime:
        """When it was done."""
        return to_datetime(self.at_ms)

    def __repr__(self) -> str:
        return f"<Operation {self.kind}: {self.summary}>"
