"""An agent: an identity with fields, sessions and versioned state."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from .. import codec
from ..clock import to_datetime
from ..model import Bound
from ..ops import agents
from . import state

if TYPE_CHECKING:
    from .session import Session
    from .state import AgentState
    from .store import Store


class Agent(Bound):
    """An agent as last read; ``refresh`` reads it again."""

    def __init__(self, store: Store, seen: agents.AgentRow) -> None:
        self._store = store
        self._seen = seen
        self._fields: dict[str, Any] = codec.decode(seen.fields)

    @property
    def id(self) -> str:
        """The id given by its creator, unique within its scope."""
        return self._seen.id

    @property
    def name(self) -> str | None:
        """The name shown to people."""
        return self._field("name")  # type: ignore[no-any-return]

    @property
    def type(self) -> str:
        """The type of agent, as the caller defines it."""
        return self._field("type")  # type: ignore[no-any-return]

    @property
    def system_prompt(self) -> str | None:
        """The system prompt that its contexts begin with."""
        return self._field("system_prompt")  # type: ignore[no-any-return]

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What the agent can do, as the caller defines it."""
        return tuple(self._field("capabilities"))

    @property
    def config(self) -> dict[str, Any]:
        """The agent's settings."""
        return dict(self._field("config"))

    @property
    def metadata(self) -> dict[str, Any]:
        """The caller's own metadata."""
        return dict(self._field("metadata"))

    @property
    def version(self) -> int:
        """Starts at 1 and grows with every change to its fields or state."""
        return self._seen.version

    @property
    def created_at(self) -> datetime:
        """When the agent was created."""
        return to_datetime(self._seen.created_ms)

    @property
    def modified_at(self) -> datetime:
        """When the agent last changed."""
        return to_datetime(self._seen.modified_ms)

    @property
    def state(self) -> AgentState:
        """The agent's versioned state."""
        return state.AgentState(self)

    def sessions(self) -> Iterator[Session]:
        """Yield its sessions, archived ones included, last changed first."""
        return self._store.iter_sessions(agent=self.id, archived=None)

    def active_sessions(self) -> Iterator[Session]:
        """Yield its active sessions, last changed first."""
        return self._store.iter_sessions(agent=self.id, active_only=True)

    def refresh(self) -> Agent:
        """Read the agent's fields again."""
        self._seen = self._store._read(agents.get, self._store.scope, self.id)
        self._fields = codec.decode(self._seen.fields)
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return its fields as plain values."""
        times = {"created_at": self.created_at.isoformat(), "modified_at": self.modified_at.isoformat()}
        return {"id": self.id, **self._fields, "version": self.version, **times}

    def _field(self, name: str) -> Any:
        return self._fields.get(name, agents.EMPTY[name])

    def __repr__(self) -> str:
        return f"<Agent {self.id!r} version {self.version}>"
