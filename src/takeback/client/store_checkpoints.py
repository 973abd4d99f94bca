"""The store's checkpoints: of agents with all their sessions, and restoring them; also finding those of sessions."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from .. import codec
from ..errors import Corrupt, Invalid, NotFound, StorageFull
from ..model.checkpoint import Checkpoint
from ..model.operation import Operation
from ..ops import agent_checkpoints, agent_restore, agents, checkpoints, sessions
from ..ops.agent_checkpoints import AgentCheckpointRow, New
from ..ops.agents import AgentRow
from ..ops.idempotency import once
from ..ops.sessions import LeaseRow
from ..storage.base import Tx
from ..tables.agents import AGENT
from . import arguments
from .agent import Agent
from .auto_checkpoints import AutoCheckpoints
from .branching import _plain_name
from .session import Session
from .store_sessions import StoreSessions

_KIND = "agent_checkpoint"


class StoreCheckpoints(StoreSessions):
    """The part of a store that keeps checkpoints."""

    _auto: AutoCheckpoints | None = None

    # ------------------------------------------------------------------ of agents

    def checkpoint_agent(
        self,
        agent: str | Agent,
        name: str | None = None,
        *,
        description: str | None = None,
        type: str = "manual",
        idempotency_key: str | None = None,
    ) -> Checkpoint:
        """Name where an agent is with all its sessions, at one instant while others write: fields, state, every head.

        It costs what changed since its last checkpoint, however many sessions there are; the first one notes them all.
        ``stats`` are the sums over its visible sessions. Files of workspaces are not in it.
        """
        if type not in checkpoints.TYPES:
            raise Invalid(f"a checkpoint is {', '.join(checkpoints.TYPES)}, not {type!r}")
        agent_id, now_ms = _agent_id(agent), self._clock.now_ms()
        about = None if description is None else codec.storable_text(description, what="description")
        new = New(_plain_name(name, what="checkpoint name"), about, type)
        key = arguments.optional_name(idempotency_key, what="idempotency_key")

        def op(tx: Tx) -> Checkpoint:
            row = agents.get(tx, self.scope, agent_id)

            def do() -> tuple[AgentCheckpointRow, str]:
                made = agent_checkpoints.create(tx, row, new, now_ms=now_ms)
                return made, made.id

            def again(made: str) -> AgentCheckpointRow:
                found = agent_checkpoints.find(tx, self.scope, made)
                if found is None:
                    raise NotFound("the checkpoint that this call made was deleted since")
                return found

            request = ["checkpoint_agent", agent_id, list(new)]
            made = once(tx, self.scope, 0, key, request, kind=_KIND, now_ms=now_ms, do=do, again=again)
            return agent_checkpoints.as_value(tx, row, made)

        return self._write(op, alone=True)

    def restore_checkpoint(self, checkpoint: str | Checkpoint, *, take_over: bool = False) -> Agent:
        """Bring an agent back to a checkpoint: fields, state, and where all its sessions were; all or nothing.

        First the checkpoint is checked against its checksum (``Corrupt`` before anything is changed), and what is there
        now is kept by a checkpoint of type ``recovery``. Sessions made later go into the trash, or back to empty where
        there is always one of them; those deleted since come back, purged ones do not. Names, titles, tags and
        status of sessions stay as they are, and files of workspaces are not touched. ``undo`` takes it all back.

        A session that has to change and that somebody else runs is ``Busy``; with ``take_over`` their next write is
        ``LeaseLost``. A session that is run through this store goes on from where it was brought.
        """
        wanted, now_ms = _checkpoint_id(checkpoint), self._clock.now_ms()
        arguments.flag(take_over, what="take_over")
        judge = agent_restore.Judge(self._is_ours, self._is_gone, take_over)

        def op(tx: Tx) -> tuple[AgentRow, Operation | None]:
            row = agent_checkpoints.find(tx, self.scope, wanted)
            if row is not None:
                return agent_restore.restore(tx, row, judge, now_ms=now_ms)
            if checkpoints.by_id(tx, self.scope, wanted) is not None:
                raise Invalid(f"checkpoint {wanted!r} is one of a session; session.rewind goes back to it")
            raise NotFound(f"there is no checkpoint {wanted!r} in this store and scope")

        agent, done = self._write(op, alone=True)
        if done is not None:
            self._made(done)
        return Agent(self, agent)  # type: ignore[arg-type]

    def _is_ours(self, lease: LeaseRow) -> bool:
        """Whether a session is run through this store."""
        held = [each.lease for each in list(self._keeper._held) if not each.over]
        return any(_is_same_lease(each, lease) for each in held)

    def _keep_agents(self, name: str) -> None:
        """Take a checkpoint before an operation of each agent with sessions, unless its last one serves.

        One that cannot be taken is warned of and holds nothing up; on a full disk no further one is tried.
        """
        for agent_id in self._read(lambda tx: agent_checkpoints.with_sessions(tx, self.scope)):
            try:
                self._keep_agent(agent_id, New(name, None, "pre-operation"))
            except (StorageFull, Corrupt) as error:
                about = f"no checkpoint of agent {agent_id!r} was taken ({name}): {error}"
                warnings.warn(about, RuntimeWarning, stacklevel=3)
                if isinstance(error, StorageFull):
                    return

    def _keep_agent(self, agent_id: str, new: New) -> None:
        now_ms = self._clock.now_ms()

        def op(tx: Tx) -> None:
            row = agents.find(tx, self.scope, agent_id)
            if row is not None:
                agent_checkpoints.create_before(tx, row, new, now_ms=now_ms)

        self._write(op, alone=True)

    # ------------------------------------------------------------------ of agents and sessions

    def list_checkpoints(self, of: str | Agent | Session) -> list[Checkpoint]:
        """Give the checkpoints of an agent or of a session in the order they were made.

        A text is looked up as the id of an agent, then as that of a session, then as that of an agent in the trash.
        """
        wanted = of.id if isinstance(of, Agent | Session) else arguments.name(of, what="agent or session")
        number = of._seen.aid if isinstance(of, Agent) else None

        def look(tx: Tx) -> list[Checkpoint]:
            agent = None if isinstance(of, Session) else _find_agent(tx, self.scope, wanted, number)
            if agent is not None and (number is not None or not agent.hidden):
                return _of_agent(tx, agent)
            session = None if isinstance(of, Agent) else sessions.find(tx, self.scope, wanted)
            if session is not None:
                return [checkpoints.as_value(tx, session, each) for each in checkpoints.of_session(tx, session)]
            if agent is None:
                raise NotFound(f"there is no agent and no session {wanted!r} in this store and scope")
            return _of_agent(tx, agent)

        return self._read(look)

    def get_checkpoint(self, id: str) -> Checkpoint:
        """Give a checkpoint of an agent or of a session by its id."""
        wanted = arguments.name(id, what="checkpoint")

        def look(tx: Tx) -> Checkpoint:
            found = agent_checkpoints.find(tx, self.scope, wanted)
            if found is not None:
                return agent_checkpoints.as_value(tx, agents.by_number(tx, self.scope, found.agent), found)
            row = checkpoints.by_id(tx, self.scope, wanted)
            if row is None:
                raise NotFound(f"there is no checkpoint {wanted!r} in this store and scope")
            return checkpoints.as_value(tx, sessions.by_number(tx, self.scope, row.session), row)

        return self._read(look)

    def delete_checkpoint(self, checkpoint: str | Checkpoint) -> None:
        """Erase a checkpoint of an agent or of a session; absent is no error. This cannot be undone.

        Only the checkpoint goes: what it named stays where it is, and later checkpoints are as good as before.
        """
        wanted = _checkpoint_id(checkpoint)

        def op(tx: Tx) -> None:
            found = agent_checkpoints.find(tx, self.scope, wanted)
            if found is not None:
                agent_checkpoints.delete(tx, found)
            elif row := checkpoints.by_id(tx, self.scope, wanted):
                agent_checkpoints.delete_of_session(tx, row)

        self._backend.write(op, frees_space=True, alone=True)

    # ------------------------------------------------------------------ automatic ones

    def start_auto_checkpoint(
        self, agents: str | Agent | Iterable[str | Agent], *, interval: float = 300, keep: int = 10
    ) -> None:
        """Take a checkpoint of agents every ``interval`` seconds, the first at once, whenever something changed.

        They have the type ``automatic``, and of those only the newest ``keep`` of each agent stay; others are never
        removed. It runs in the background until ``stop_auto_checkpoint`` or until the store is closed; starting it
        again replaces it. What fails later is kept in ``auto_checkpoint_error`` and warned of once.
        """
        given = [agents] if isinstance(agents, str | Agent) else arguments.many(agents, what="agents")
        ids = tuple(dict.fromkeys(_agent_id(each) for each in given))
        if not ids:
            raise Invalid("name at least one agent")
        if arguments.seconds(interval, what="interval") <= 0:
            raise Invalid("the interval is more than 0 seconds")
        arguments.whole(keep, what="keep", low=1)
        self.stop_auto_checkpoint()
        auto = AutoCheckpoints(self, ids, interval, keep)
        auto.round()
        self._auto = auto
        auto.start()

    def stop_auto_checkpoint(self) -> None:
        """Stop taking automatic checkpoints, at once; if none are taken nothing is done."""
        auto, self._auto = self._auto, None
        if auto is not None:
            auto.stop()

    @property
    def auto_checkpoint_error(self) -> BaseException | None:
        """What the last automatic checkpoint failed with; None if it did not."""
        return None if self._auto is None else self._auto.error


def _agent_id(agent: str | Agent) -> str:
    return agent.id if isinstance(agent, Agent) else arguments.name(agent, what="agent id")


def _checkpoint_id(checkpoint: str | Checkpoint) -> str:
    return checkpoint.id if isinstance(checkpoint, Checkpoint) else arguments.name(checkpoint, what="checkpoint")


def _is_same_lease(one: LeaseRow, other: LeaseRow) -> bool:
    """Whether two leases are of one taking: signs of life since then do not count."""
    return one._replace(taken_ms=0, beats=0, beat_ms=0) == other._replace(taken_ms=0, beats=0, beat_ms=0)


def _find_agent(tx: Tx, scope: str, agent_id: str, number: int | None) -> AgentRow | None:
    """Return an agent, even one in the trash, or None; by its number if it is known."""
    if number is None:
        return agents.find_any(tx, scope, agent_id)
    found = AGENT.get(tx, scope, number)
    return None if found is None or found.hidden == 2 else found


def _of_agent(tx: Tx, agent: AgentRow) -> list[Checkpoint]:
    return [agent_checkpoints.as_value(tx, agent, row) for row in agent_checkpoints.of_agent(tx, agent)]
