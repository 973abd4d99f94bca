"""A session: speak, read, move in time.

A handle holds what it last saw (``refresh`` renews it); every method runs one operation. Handles are
cheap, may be shared by threads, and two of them on one session never lose each other's work.
"""

from __future__ import annotations

from datetime import datetime

from ..clock import to_datetime
from ..model.entry import Numbers
from ..model.session import Head
from .moving import Moving
from .speaking import Speaking


class Session(Speaking, Moving):
    """One conversation of an agent."""

    @property
    def name(self) -> str | None:
        """The name that its maker gave."""
        return self._seen.name

    @property
    def title(self) -> str | None:
        """What people read in listings."""
        return self._seen.title

    @property
    def agent_id(self) -> str:
        """Whose session it is."""
        return self._seen.agent

    @property
    def kind(self) -> str:
        """``main``, ``subagent`` or ``cron``."""
        return self._seen.kind

    @property
    def workspace(self) -> str | None:
        """The directory that it works in."""
        return self._seen.workspace or None

    @property
    def created_at(self) -> datetime:
        """When it began."""
        return to_datetime(self._seen.created_ms)

    @property
    def updated_at(self) -> datetime:
        """When it last changed, by the writer's clock; listings go by feed position instead."""
        return to_datetime(self._seen.updated_ms)

    @property
    def head(self) -> Head:
        """Where it is."""
        place = self._seen
        return Head(place.uid, place.seq, bool(place.attached))

    @property
    def revision(self) -> int:
        """Grows by one with each append call and each move of the head."""
        return self._seen.revision

    @property
    def message_count(self) -> int:
        """Messages on the path of the head."""
        return Numbers._make(self._seen.numbers).messages

    @property
    def turn_count(self) -> int:
        """Turns on the path of the head."""
        return Numbers._make(self._seen.numbers).turns

    def refresh(self) -> Session:
        """Read the session's fields again."""
        self._seen = self._store._read(self._row)
        return self

    def __repr__(self) -> str:
        label = self.title or self.name or "untitled"
        numbers = Numbers._make(self._seen.numbers)
        tokens = numbers.input_tokens + numbers.output_tokens
        return f"<Session {self.id[:8]} {label!r} {self.kind}, {self.turn_count} turns, {tokens} tokens>"
