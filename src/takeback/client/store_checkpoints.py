"""The store's checkpoints: of agents with all their sessions, and restoring them; also finding those of sessions."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from .. import codec
from ..errors import Corrupt, Invalid, StorageFull
from ..model.checkpoint import Checkpoint
from ..ops import agent_checkpoints, agent_restore, any_checkpoints, checkpoints
from ..ops.agent_checkpoints import New
from ..ops.sessions import LeaseRow
from ..storage.runner import ALONE, FREEING_ALONE
from . import arguments
from .agent import Agent
from .auto_checkpoints import AutoCheckpoints
from .branching import _plain_name
from .session import Session
from .store_sessions import StoreSessions


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
        agent_id = _agent_id(agent)
        about = None if description is None else codec.storable_text(description, what="description")
        new = New(_plain_name(name, what="checkpoint name"), about, type)
        call = self._call(idempotency_key, ["checkpoint_agent", agent_id, list(new)])
        return self._write_as(ALONE, agent_checkpoints.create_once, self.scope, agent_id, call, new)

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
        agent, done = self._write_as(ALONE, any_checkpoints.restore, self.scope, wanted, judge, now_ms=now_ms)
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
        for agent_id in self._read(agent_checkpoints.with_sessions, self.scope):
            try:
                self._keep_agent(agent_id, New(name, None, "pre-operation"))
            except (StorageFull, Corrupt) as error:
                about = f"no checkpoint of agent {agent_id!r} was taken ({name}): {error}"
                warnings.warn(about, RuntimeWarning, stacklevel=3)
                if isinstance(error, StorageFull):
                    return

    def _keep_agent(self, agent_id: str, new: New) -> None:
        now_ms = self._clock.now_ms()
        self._write_as(ALONE, agent_checkpoints.keep_before, self.scope, agent_id, new, now_ms=now_ms)

    # ------------------------------------------------------------------ of agents and sessions

    def list_checkpoints(self, of: str | Agent | Session) -> list[Checkpoint]:
        """Give the checkpoints of an agent or of a session in the order they were made.

        A text is looked up as the id of an agent, then as that of a session, then as that of an agent in the trash.
        """
        if isinstance(of, Agent):
            return self._read(any_checkpoints.of_agent, self.scope, of.id, of._seen.aid)
        if isinstance(of, Session):
            return self._read(any_checkpoints.of_session, self.scope, of.id)
        return self._read(any_checkpoints.of_either, self.scope, arguments.name(of, what="agent or session"))

    def get_checkpoint(self, id: str) -> Checkpoint:
        """Give a checkpoint of an agent or of a session by its id."""
        return self._read(any_checkpoints.get, self.scope, arguments.name(id, what="checkpoint"))

    def delete_checkpoint(self, checkpoint: str | Checkpoint) -> None:
        """Erase a checkpoint of an agent or of a session; absent is no error. This cannot be undone.

        Only the checkpoint goes: what it named stays where it is, and later checkpoints are as good as before.
        """
        self._write_as(FREEING_ALONE, any_checkpoints.delete, self.scope, _checkpoint_id(checkpoint))

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
