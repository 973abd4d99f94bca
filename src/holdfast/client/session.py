"""A session: speak, read, move in time.

A handle holds what it last saw (``refresh`` renews it); every method runs one operation. Handles are
cheap, may be shared by threads, and two of them on one session never lose each other's work.
"""

from __future__ import annotations

from datetime import datetime

from ..clock import to_datetime
from ..model.session import Head
from ..ops import sessions
from .moving import Moving
from .speaking import Speaking


class Session(Speaking, Moving):
    """One conversation of an agent."""

    @property
    def name(self) -> str | None:
        """The name that its maker gave."""
        return self._info.name

    @property
    def title(self) -> str | None:
        """What people read in listings."""
        return self._info.title

    @property
    def agent_id(self) -> str:
        """Whose session it is."""
        return self._info.agent_id

    @property
    def kind(self) -> str:
        """``main``, ``subagent`` or ``cron``."""
        return self._info.kind

    @property
    def workspace(self) -> str | None:
        """The directory that it works in."""
        return self._info.workspace

    @property
    def created_at(self) -> datetime:
        """When it began."""
        return to_datetime(self._info.created_ms)

    @property
    def updated_at(self) -> datetime:
        """When it last changed, by the writer's clock; listings go by feed position instead."""
        return to_datetime(self._info.updated_ms)

    @property
    def head(self) -> Head:
        """Where it is."""
        return self._info.head

    @property
    def revision(self) -> int:
        """Grows by one with each append call and each move of the head."""
        return self._info.revision

    @property
    def message_count(self) -> int:
        """Messages on the path of the head."""
        return self._info.numbers.messages

    @property
    def turn_count(self) -> int:
        """Turns on the path of the head."""
        return self._info.numbers.turns

    def refresh(self) -> Session:
        """Read the session's fields again."""
        self._info = self._store._read(lambda tx: sessions.as_value(self._row(tx)))
        return self

    def __repr__(self) -> str:
        label = self.title or self.name or "untitled"
        tokens = self._info.numbers.input_tokens + self._info.numbers.output_tokens
        return f"<Session {self.id[:8]} {label!r} {self.kind}, {self.turn_count} turns, {tokens} tokens>"
