"""Where a tool works: the store that it was bound to, the directory that ``@`` and lists mean, the agent that asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import Invalid
from ..shell.points import point_of

if TYPE_CHECKING:
    from ..client.agent import Agent
    from ..client.points import Point
    from ..client.refs import Resolved
    from ..client.session import Session
    from ..client.store import Store
    from ..client.store_reading import StoreReading


class BoundStore(NamedTuple):
    """What a tool works on; ``searched`` is the store as searches see it, which may keep an index of its own."""

    store: Store
    searched: StoreReading[Any]
    workspace: str | None
    agent: str

    def resolved(self, ref: str) -> Resolved[Session]:
        """Return what a ref names."""
        return self.store.resolve(ref, self.workspace)

    def session(self, ref: str) -> Session:
        """Return the session that a ref names."""
        return self.resolved(ref).session

    def point(self, ref: str) -> tuple[Session, Point]:
        """Return the session and the point that a ref names; a ref of only a session is ``Invalid``."""
        session, point = self.maybe_point(ref)
        if point is None:
            turns = session.turn_count
            raise Invalid(
                f"{ref!r} names a session; name a point in it: {ref}:{max(turns - 1, 0)} is the end of a turn,"
                f" {ref}:{max(turns, 1)}^ is before one, {ref}:e40 an entry, {ref}:NAME a checkpoint"
            )
        return session, point

    def maybe_point(self, ref: str) -> tuple[Session, Point | None]:
        """Return the session that a ref names, and the point if it names one."""
        found = self.resolved(ref)
        return found.session, point_of(found)

    def holder(self, session: str | None, agent: str | None) -> Session | Agent:
        """Return the session or the agent whose state is meant; exactly one of them must be named."""
        if (session is None) == (agent is None):
            raise Invalid("name either a session or an agent, whose state it is")
        if session is not None:
            return self.session(session)
        assert agent is not None
        return self.store.get_agent(agent)
