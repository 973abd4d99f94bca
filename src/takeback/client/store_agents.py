"""The store's agents: created, changed, found, and deleted with everything that belongs to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .. import codec
from ..model.operation import Operation
from ..model.page import Page
from ..ops import agent_changes, agents
from ..storage.runner import FREEING
from . import arguments
from .agent import Agent
from .base import StoreBase
from .state import checked_keys


class StoreAgents(StoreBase):
    """The part of a store that keeps agents."""

    def create_agent(
        self,
        id: str,
        *,
        name: str | None = None,
        type: str = "",
        system_prompt: str | None = None,
        capabilities: Iterable[str] = (),
        config: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Agent:
        """Create an agent at version 1; raises ``Conflict`` if the id is taken."""
        agent_id = arguments.name(id, what="agent id")
        fields = _checked({"name": name, "type": type, "system_prompt": system_prompt, "capabilities": capabilities})
        fields |= _checked({"config": config or {}, "metadata": metadata or {}})
        doc = codec.encode({**agents.EMPTY, **fields})
        call = self._call(idempotency_key, ["agent", agent_id, fields])
        row = self._write(agent_changes.create_once, self.scope, agent_id, call, doc)
        return Agent(self, row)  # type: ignore[arg-type]

    def update_agent(
        self,
        id: str | Agent,
        *,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> Agent:
        """Change fields of an agent in one operation; raises ``Conflict`` if it is not at ``expected_version``."""
        agent_id, changed = arguments.agent_id(id), self._agent_fields(fields)
        if expected_version is not None:
            arguments.whole(expected_version, what="expected_version", low=1)
        call = self._call(idempotency_key, ["update", agent_id, changed])
        row, done = self._write(agent_changes.update_once, self.scope, agent_id, call, changed, expected_version)
        if done is not None:
            self._made(done)
        return Agent(self, row)  # type: ignore[arg-type]

    def save_agent(
        self,
        id: str | Agent,
        *,
        state: Mapping[str, Any] | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> Agent:
        """Create an agent, or change the fields that are given, and set keys of its state, all in one step.

        Raises ``Conflict`` if it is not at ``expected_version``; 0 means that it must not exist yet.
        """
        agent_id, changed = arguments.agent_id(id), self._agent_fields(fields)
        put = checked_keys(arguments.mapping(state or {}, what="state"))
        if expected_version is not None:
            arguments.whole(expected_version, what="expected_version")
        call = self._call(idempotency_key, ["save", agent_id, changed, put])
        row, done = self._write(
            agent_changes.save_once,
            self.scope,
            agent_id,
            call,
            changed=changed,
            put=put,
            expected_version=expected_version,
        )
        if done is not None:
            self._made(done)
        return Agent(self, row)  # type: ignore[arg-type]

    @staticmethod
    def _agent_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
        unknown = fields.keys() - agents.EMPTY.keys()
        if unknown:
            raise TypeError(f"an agent has no field {sorted(unknown)[0]!r}; put your own data into metadata")
        return _checked(fields)

    def get_agent(self, id: str) -> Agent:
        """Return the agent with exactly this id, or raise ``NotFound``."""
        wanted = arguments.name(id, what="agent id")
        return Agent(self, self._read(agents.get, self.scope, wanted))  # type: ignore[arg-type]

    def find_agent(self, id: str) -> Agent | None:
        """Return the agent with exactly this id, or None."""
        wanted = arguments.name(id, what="agent id")
        row = self._read(agents.find, self.scope, wanted)
        return None if row is None else Agent(self, row)  # type: ignore[arg-type]

    def list_agents(self, *, limit: int = 100, cursor: str | None = None) -> Page[Agent]:
        """List agents in the order of their ids; pass the page's cursor to get the next page."""
        arguments.whole(limit, what="limit", low=1, high=10_000)
        after = "" if cursor is None else arguments.name(cursor, what="cursor")
        rows = self._read(agents.page, self.scope, after=after, limit=limit + 1)
        more = rows[limit - 1].id if len(rows) > limit else None
        return Page([Agent(self, row) for row in rows[:limit]], more)  # type: ignore[arg-type]

    def delete_agent(self, id: str | Agent) -> Operation | None:
        """Move an agent with all its sessions to the trash in one step; None if it is absent; ``undo`` restores it.

        A checkpoint of type ``pre-operation`` is taken first, unless the last one is still current.
        """
        done = self._write_as(
            FREEING, agent_changes.delete, self.scope, arguments.agent_id(id), now_ms=self._clock.now_ms()
        )
        if done is not None:
            self._made(done)
        return done


def _checked(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Check the given fields of an agent."""
    found: dict[str, Any] = {}
    for name, value in fields.items():
        if name in ("config", "metadata"):
            found[name] = arguments.mapping(value, what=name)
        elif name == "capabilities":
            found[name] = [arguments.text(each, what="capability") for each in arguments.many(value, what=name)]
        elif name == "type":
            found[name] = arguments.text(value, what=name)
        else:
            found[name] = None if value is None else arguments.text(value, what=name)
    return found
