"""The store's checkpoints: taking and restoring those of agents, and finding those of sessions too."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .. import codec
from ..errors import Corrupt, Invalid, StorageFull
from ..model.checkpoint import Checkpoint
from ..model.page import Page
from ..ops import agent_checkpoints, agent_restore, any_checkpoints, checkpoints
from ..ops.sessions import LeaseRow
from ..storage.runner import ALONE, FREEING_ALONE
from . import arguments, auto_checkpoints
from .agent import Agent
from .branching import _plain_name
from .session import Session
from .store_sessions import StoreSessions

if TYPE_CHECKING:
    from ..ops.agent_checkpoints import New
    from .auto_checkpoints import AutoCheckpoints


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
        """Mark where an agent and all its sessions are, at one instant, while others write.

        It records the agent's fields, its state and the head of every session, at the cost of what changed since its
        last checkpoint, however many sessions there are; the first one records them all. ``stats`` sums over its
        visible sessions. Files in workspaces are not included.
        """
        if type not in checkpoints.TYPES:
            raise Invalid(f"type must be one of {', '.join(checkpoints.TYPES)}, not {type!r}")
        agent_id = arguments.agent_id(agent)
        about = None if description is None else codec.storable_text(description, what="description")
        new = agent_checkpoints.New(_plain_name(name, what="checkpoint name"), about, type)
        call = self._call(idempotency_key, ["checkpoint_agent", agent_id, list(new)])
        return self._write_as(ALONE, agent_checkpoints.create_once, self.scope, agent_id, call, new)

    def restore_checkpoint(self, checkpoint: str | Checkpoint, *, take_over: bool = False) -> Agent:
        """Restore an agent to a checkpoint, all or nothing: its fields, its state, and where its sessions were.

        The checkpoint is verified against its checksum first (``Corrupt`` before anything changes), and the current
        state is saved in a checkpoint of type ``recovery``. Sessions created later go to the trash, or back to empty
        where one must always exist; those deleted since come back, purged ones do not. Names, titles, tags and status
        of sessions stay as they are, and files in workspaces are not touched. ``undo`` takes it all back.

        Raises ``Busy`` if somebody else runs a session that has to change; with ``take_over`` their next write raises
        ``LeaseLost`` instead. A session run through this store continues from its restored head.
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
        """Take a checkpoint of each agent with sessions before an operation, unless its last one is current.

        A failure is a warning and does not stop the operation; on a full disk no further ones are tried.
        """
        for agent_id in self._read(agent_checkpoints.with_sessions, self.scope):
            try:
                self._keep_agent(agent_id, agent_checkpoints.New(name, None, "pre-operation"))
            except (StorageFull, Corrupt) as error:
                about = f"no checkpoint of agent {agent_id!r} was taken ({name}): {error}"
                warnings.warn(about, RuntimeWarning, stacklevel=3)
                if isinstance(error, StorageFull):
                    return

    def _keep_agent(self, agent_id: str, new: New) -> None:
        now_ms = self._clock.now_ms()
        self._write_as(ALONE, agent_checkpoints.keep_before, self.scope, agent_id, new, now_ms=now_ms)

    # ------------------------------------------------------------------ of agents and sessions

    def list_checkpoints(
        self,
        of: str | Agent | Session,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        newest: bool = False,
    ) -> Page[Checkpoint]:
        """List the checkpoints of an agent or session in the order they were taken, or with ``newest`` the other way.

        A string is looked up as the id of an agent, then of a session, then of an agent in the trash. Without a
        ``limit`` all of them are listed; else pass the page's cursor to get the next page.
        """
        portion = checkpoints.Portion(*arguments.portion(limit, cursor), newest)
        if isinstance(of, Agent):
            found = self._read(any_checkpoints.of_agent, self.scope, of.id, of._seen.aid, portion)
        elif isinstance(of, Session):
            found = self._read(any_checkpoints.of_session, self.scope, of.id, portion)
        else:
            wanted = arguments.name(of, what="agent or session")
            found = self._read(any_checkpoints.of_either, self.scope, wanted, portion)
        return arguments.page_of(*found)

    def get_checkpoint(self, id: str) -> Checkpoint:
        """Return a checkpoint of an agent or session by its id."""
        return self._read(any_checkpoints.get, self.scope, arguments.name(id, what="checkpoint"))

    def delete_checkpoint(self, checkpoint: str | Checkpoint) -> None:
        """Erase a checkpoint of an agent or session, if it exists. This cannot be undone.

        Only the checkpoint is erased: what it named stays where it is, and later checkpoints still work.
        """
        self._write_as(FREEING_ALONE, any_checkpoints.delete, self.scope, _checkpoint_id(checkpoint))

    # ------------------------------------------------------------------ automatic ones

    def start_auto_checkpoint(
        self, agents: str | Agent | Iterable[str | Agent], *, interval: float = 300, keep: int = 10
    ) -> None:
        """Take a checkpoint of agents now, and again every ``interval`` seconds if something changed.

        They have the type ``automatic``, and only the newest ``keep`` of those are kept for each agent; no others are
        ever removed. This runs in the background until ``stop_auto_checkpoint`` or until the store is closed; starting
        it again replaces it. A later failure is kept in ``auto_checkpoint_error`` and warned about once.
        """
        given = [agents] if isinstance(agents, str | Agent) else arguments.many(agents, what="agents")
        ids = tuple(dict.fromkeys(arguments.agent_id(each) for each in given))
        if not ids:
            raise Invalid("no agent was given; pass at least one")
        if arguments.seconds(interval, what="interval") <= 0:
            raise Invalid("interval must be more than 0 seconds")
        arguments.whole(keep, what="keep", low=1)
        self.stop_auto_checkpoint()
        auto = auto_checkpoints.AutoCheckpoints(self, ids, interval, keep)
        auto.round()
        self._auto = auto
        auto.start()

    def stop_auto_checkpoint(self) -> None:
        """Stop taking automatic checkpoints; does nothing if none are being taken."""
        auto, self._auto = self._auto, None
        if auto is not None:
            auto.stop()

    @property
    def auto_checkpoint_error(self) -> BaseException | None:
        """The error of the last automatic checkpoint; None if it succeeded."""
        return None if self._auto is None else self._auto.error


def _checkpoint_id(checkpoint: str | Checkpoint) -> str:
    return checkpoint.id if isinstance(checkpoint, Checkpoint) else arguments.name(checkpoint, what="checkpoint")


def _is_same_lease(one: LeaseRow, other: LeaseRow) -> bool:
    """Whether two leases were taken in the same call; heartbeats since then do not count."""
    return one._replace(taken_ms=0, beats=0, beat_ms=0) == other._replace(taken_ms=0, beats=0, beat_ms=0)
