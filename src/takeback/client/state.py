"""State: versioned keys and values with compare-and-set and a history, of an agent or a session.

Values are data: text, numbers, booleans, None, bytes, lists and dicts. Every write returns the new version; with
``expected_version`` a lost race raises ``Conflict`` and never merges silently.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..model import Bound
from ..ops import agents, work
from . import arguments

if TYPE_CHECKING:
    from .agent import Agent
    from .appending import Speaking

MAX_KEY = 1000


class State(Bound, ABC):
    """The versioned state of an agent or session; every method reads or writes the store."""

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, or ``default``."""
        arguments.text(key, what="state key")
        return self._load(None)[1].get(key, default)

    def items(self) -> dict[str, Any]:
        """Return all keys with their values."""
        return self._load(None)[1]

    def read(self) -> tuple[int, dict[str, Any]]:
        """Return the version with all keys and values, as of one moment: what compare-and-set needs."""
        return self._load(None)

    def version(self) -> int:
        """Return the version of the state: 1 at first, higher with every change."""
        return self._load(None)[0]

    def at(self, version: int) -> dict[str, Any]:
        """Return all keys and values as they were at a version."""
        return self._load(arguments.whole(version, what="version", low=1))[1]

    def set(
        self, key: str, value: Any, *, expected_version: int | None = None, idempotency_key: str | None = None
    ) -> int:
        """Set one key and return the new version; durable when this returns."""
        return self.update({key: value}, expected_version=expected_version, idempotency_key=idempotency_key)

    def update(
        self,
        values: Mapping[str, Any],
        *,
        delete: Iterable[str] = (),
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> int:
        """Set several keys, and remove others, in one step and return the new version."""
        put, gone = arguments.mapping(values, what="state"), arguments.many(delete, what="delete")
        return self._write(put, gone, expected_version, idempotency_key)

    def delete(self, *keys: str, expected_version: int | None = None, idempotency_key: str | None = None) -> int:
        """Remove keys and return the version; keys that are absent are ignored."""
        return self._write({}, keys, expected_version, idempotency_key)

    def _write(self, put: dict[str, Any], drop: Iterable[str], expected: int | None, key: str | None) -> int:
        checked_keys(dict.fromkeys(drop))
        checked_keys(put)
        if expected is not None:
            arguments.whole(expected, what="expected_version", low=1)
        return self._change(put, tuple(drop), expected, arguments.optional_name(key, what="idempotency_key"))

    @abstractmethod
    def _load(self, version: int | None) -> tuple[int, dict[str, Any]]:
        """Return version and content, now or at a version."""

    @abstractmethod
    def _change(self, put: dict[str, Any], drop: tuple[str, ...], expected: int | None, key: str | None) -> int:
        """Write a change and return the new version."""


def checked_keys(values: dict[str, Any]) -> dict[str, Any]:
    """Check the keys of a state."""
    for name in values:
        arguments.name(name, what="state key", most=MAX_KEY)
    return values


class SessionState(State):
    """The state of a session; a rewind takes it back too."""

    def __init__(self, session: Speaking) -> None:
        self._session = session

    def _load(self, version: int | None) -> tuple[int, dict[str, Any]]:
        if version is None:
            return self._session._ask(work.state)
        return version, self._session._ask(work.state_at_version, version)

    def _change(self, put: dict[str, Any], drop: tuple[str, ...], expected: int | None, key: str | None) -> int:
        decide = work.change_state(put, drop, expected)
        return int(self._session._change("state", decide, [put, list(drop)], key).body["version"])

    def __repr__(self) -> str:
        return f"<SessionState of {self._session.id[:8]}>"


class AgentState(State):
    """The state of an agent; only restoring a checkpoint of the agent takes it back."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def _load(self, version: int | None) -> tuple[int, dict[str, Any]]:
        return self._agent._store._read(agents.state_of, self._agent._store.scope, self._agent.id, version)

    def _change(self, put: dict[str, Any], drop: tuple[str, ...], expected: int | None, key: str | None) -> int:
        store, id = self._agent._store, self._agent.id
        call = store._call(key, ["state", id, put, list(drop)])
        version = store._write(agents.change_state_once, store.scope, id, call, put=put, drop=drop, expected=expected)
        self._agent.refresh()
        return version

    def __repr__(self) -> str:
        return f"<AgentState of {self._agent.id!r}>"
