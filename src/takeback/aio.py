"""The awaitable API: the same names as the blocking one, with ``await``, ``async with`` and ``async for``.

Generated from the blocking classes by tools/gen_aio.py; do not edit. Attributes are what a handle holds; every
method runs in a thread of the portal and finishes even when the task that awaits it is cancelled.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import datetime
from os import PathLike
from types import TracebackType
from typing import Any, BinaryIO, Literal, Unpack, overload

from .client.agent import Agent
from .client.appending import Said
from .client.attachments import Attachment
from .client.open import open_store
from .client.points import Point
from .client.reading import Turn
from .client.refs import Resolved
from .client.rewind import Rewind
from .client.session import Session
from .client.state import AgentState, SessionState
from .client.store import Store
from .client.store_sessions import NewSession
from .client.streams import Stream
from .client.tools import ToolRun
from .clock import Clock
from .context import Context
from .context.tokens import Count
from .model.approval import Approval
from .model.branch import Branch
from .model.capture import Capture
from .model.checkpoint import Checkpoint
from .model.comparison import Comparison
from .model.copied import Copying
from .model.entry import Entry
from .model.exchange import Exported, Loaded
from .model.feed import Change
from .model.files import Diff, FileChange, FileDiff, FileState
from .model.message import Message
from .model.operation import Operation
from .model.page import Page
from .model.purge import Pruned, Purged
from .model.report import Repaired, Report
from .model.session import Head, Stats, StoreStats
from .model.subagents import Sent, Spawned, Tree
from .model.tools import ToolCall
from .model.work import Compaction, FileTouched, Note, Task
from .portal import AsyncReader, Opening, Portal, unwrap, wrapped
from .presence import Holder
from .storage.base import Capabilities


class AsyncStore:
    """An open store, seen from one scope."""

    def __init__(self, portal: Portal, sync: Store) -> None:
        self._portal, self._sync = portal, sync
        sync._attachment = lambda given: AsyncAttachment(portal, Attachment(sync, given))

    @property
    def scope(self) -> str:
        """As the blocking ``Store`` holds it."""
        return self._sync.scope

    @property
    def url(self) -> str:
        """As the blocking ``Store`` holds it."""
        return self._sync.url

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do, as it was opened."""
        return self._sync.capabilities

    async def close(self) -> None:
        """Stop automatic checkpoints, give all leases back, finish what is being written and release the files.

        A handle that ``scoped`` gave leaves them open.
        """
        if self._sync._owner:
            await self._portal.close(self._sync.close)

    def get_session(
        self, id_name_or_key: str, *, agent: str | None = None, workspace: str | PathLike[str] | None = None
    ) -> Opening[AsyncSession]:
        """Give a session by its exact id (also one in the trash), key or name; nothing is parsed.

        A name that sessions of several agents or workspaces have is ``Ambiguous``: name those too.
        """

        async def opening() -> AsyncSession:
            return AsyncSession(
                self._portal,
                await self._portal.run(
                    lambda: self._sync.get_session(id_name_or_key, agent=agent, workspace=workspace)
                ),
            )

        return Opening(opening)

    async def find_session(
        self, id_name_or_key: str, *, agent: str | None = None, workspace: str | PathLike[str] | None = None
    ) -> AsyncSession | None:
        """Give a session by its exact id, key or name, or None."""
        return (lambda found: AsyncSession(self._portal, found) if isinstance(found, Session) else found)(
            await self._portal.run(lambda: self._sync.find_session(id_name_or_key, agent=agent, workspace=workspace))
        )

    async def resolve(self, ref: str, workspace: str | PathLike[str] | None = None) -> Resolved[AsyncSession]:
        """Parse a ref as people write it: a key, name, id or its beginning, ``@`` or ``@-1``, then a point.

        ``REF:12`` is the end of turn 12, ``REF:12^`` before it, ``REF:e340`` entry 340, ``REF:name`` a checkpoint,
        ``REF/branch`` a branch. More than one match is ``Ambiguous`` with the candidates.
        """
        return (lambda found: Resolved(AsyncSession(self._portal, found.session), *found[1:]))(
            await self._portal.run(lambda: self._sync.resolve(ref, workspace))
        )

    async def list_sessions(
        self,
        *,
        agent: str | None = None,
        kinds: str | Iterable[str] | None = None,
        status: str | Iterable[str] | None = None,
        label: str | None = None,
        tag: str | None = None,
        workspace: str | PathLike[str] | None = None,
        parent: str | AsyncSession | None = None,
        active_only: bool = False,
        archived: bool | None = False,
        pinned: bool | None = None,
        since: datetime | None = None,
        trash: bool = False,
        order: str = "updated",
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[AsyncSession]:
        """Give sessions, last changed first, or newest first with ``order="created"``; the cursor gives the next page.

        Archived ones are left out, but not of the trash, unless ``archived`` is True (only those) or None. A session
        whose record is damaged is named in the page's ``damaged``.
        """
        return (lambda page: Page([AsyncSession(self._portal, each) for each in page], page.cursor, page.damaged))(
            await self._portal.run(
                lambda: self._sync.list_sessions(
                    agent=agent,
                    kinds=kinds,
                    status=status,
                    label=label,
                    tag=tag,
                    workspace=workspace,
                    parent=unwrap(parent),
                    active_only=active_only,
                    archived=archived,
                    pinned=pinned,
                    since=since,
                    trash=trash,
                    order=order,
                    limit=limit,
                    cursor=cursor,
                )
            )
        )

    def iter_sessions(self, **filters: Any) -> AsyncIterator[AsyncSession]:
        """Stream sessions in pages; takes the filters of ``list_sessions``."""
        return wrapped(
            self._portal.iterate(
                lambda: self._sync.iter_sessions(**{key: unwrap(value) for key, value in filters.items()})
            ),
            lambda each: AsyncSession(self._portal, each),
        )

    async def create_agent(
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
    ) -> AsyncAgent:
        """Make an agent at version 1; an id that is taken is ``Conflict``."""
        return AsyncAgent(
            self._portal,
            await self._portal.run(
                lambda: self._sync.create_agent(
                    id,
                    name=name,
                    type=type,
                    system_prompt=system_prompt,
                    capabilities=capabilities,
                    config=config,
                    metadata=metadata,
                    idempotency_key=idempotency_key,
                )
            ),
        )

    async def update_agent(
        self,
        id: str | AsyncAgent,
        *,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> AsyncAgent:
        """Change fields of an agent, as one operation; another version than the expected one is ``Conflict``."""
        return AsyncAgent(
            self._portal,
            await self._portal.run(
                lambda: self._sync.update_agent(
                    unwrap(id),
                    expected_version=expected_version,
                    idempotency_key=idempotency_key,
                    **{key: unwrap(value) for key, value in fields.items()},
                )
            ),
        )

    async def get_agent(self, id: str) -> AsyncAgent:
        """Give an agent by its exact id."""
        return AsyncAgent(self._portal, await self._portal.run(lambda: self._sync.get_agent(id)))

    async def find_agent(self, id: str) -> AsyncAgent | None:
        """Give an agent by its exact id, or None."""
        return (lambda found: AsyncAgent(self._portal, found) if isinstance(found, Agent) else found)(
            await self._portal.run(lambda: self._sync.find_agent(id))
        )

    async def list_agents(self, *, limit: int = 100, cursor: str | None = None) -> Page[AsyncAgent]:
        """Give agents in the order of their ids; the page's cursor gives the next page."""
        return (lambda page: Page([AsyncAgent(self._portal, each) for each in page], page.cursor, page.damaged))(
            await self._portal.run(lambda: self._sync.list_agents(limit=limit, cursor=cursor))
        )

    async def delete_agent(self, id: str | AsyncAgent) -> Operation | None:
        """Put an agent and all its sessions into the trash, in one step; absent is no error; ``undo`` restores.

        A checkpoint of type ``pre-operation`` is taken first, unless the last one shows the agent as it is.
        """
        return await self._portal.run(lambda: self._sync.delete_agent(unwrap(id)))

    def session(
        self,
        name_or_session: str | AsyncSession | None = None,
        *,
        agent: str = "main",
        workspace: str | PathLike[str] | None = None,
        wait: float = 0,
        take_over: bool = False,
        hold: bool = True,
        capture: str | Capture = "calls",
        **fields: Unpack[NewSession],
    ) -> Opening[AsyncSession]:
        """Give the session of this name, agent and workspace to run it; one that is new, or has no name, is made.

        It takes the lease: somebody else who runs it is waited for up to ``wait`` seconds, then ``Busy``; with
        ``take_over`` their next write is ``LeaseLost``. A finished one goes on. Leaving the ``with`` block, closing the
        store or forgetting the handle gives the lease back. With ``hold=False`` no lease is taken, for many that add to
        one session. ``capture`` says when its workspace is looked at (``Capture``). The fields are for a new session.
        """

        async def opening() -> AsyncSession:
            return AsyncSession(
                self._portal,
                await self._portal.wait(
                    lambda: self._sync.session(
                        unwrap(name_or_session),
                        agent=agent,
                        workspace=workspace,
                        wait=wait,
                        take_over=take_over,
                        hold=hold,
                        capture=capture,
                        **{key: unwrap(value) for key, value in fields.items()},
                    )
                ),
            )

        return Opening(opening)

    async def spawn(
        self,
        task: str,
        *,
        parent: str | AsyncSession | None = None,
        label: str | None = None,
        agent: str = "main",
        workspace: str | PathLike[str] | None = None,
        model: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Spawned[AsyncSession]:
        """Start a sub-agent for a task, below a session if a parent is named; ``Session.spawn`` knows its own.

        A parent that is finished is ``Conflict``, and so is a label that a sub-agent of it has already.
        """
        return (lambda found: Spawned(*found[:-1], AsyncSession(self._portal, found.session)))(
            await self._portal.run(
                lambda: self._sync.spawn(
                    task,
                    parent=unwrap(parent),
                    label=label,
                    agent=agent,
                    workspace=workspace,
                    model=model,
                    metadata=metadata,
                    idempotency_key=idempotency_key,
                )
            )
        )

    def main_session(self, agent: str = "main") -> Opening[AsyncSession]:
        """Give the one main session of an agent, making it if it is new."""

        async def opening() -> AsyncSession:
            return AsyncSession(self._portal, await self._portal.run(lambda: self._sync.main_session(agent)))

        return Opening(opening)

    def cron_session(self, agent: str, name: str) -> Opening[AsyncSession]:
        """Give the one session of an agent's scheduled job, making it if it is new."""

        async def opening() -> AsyncSession:
            return AsyncSession(self._portal, await self._portal.run(lambda: self._sync.cron_session(agent, name)))

        return Opening(opening)

    def directory_session(self, path: str | PathLike[str], *, agent: str = "main") -> Opening[AsyncSession]:
        """Give the one session of a directory, making it if it is new.

        Symbolic links lead to the same session, and a directory that was moved keeps its own.
        """

        async def opening() -> AsyncSession:
            return AsyncSession(
                self._portal, await self._portal.run(lambda: self._sync.directory_session(path, agent=agent))
            )

        return Opening(opening)

    def get_or_create_session(self, directory: str | PathLike[str]) -> Opening[AsyncSession]:
        """Give the one session of a directory, making it if it is new: ``directory_session`` of the main agent."""

        async def opening() -> AsyncSession:
            return AsyncSession(
                self._portal, await self._portal.run(lambda: self._sync.get_or_create_session(directory))
            )

        return Opening(opening)

    async def save_session(self, session: AsyncSession) -> None:
        """Check that a session is stored: everything said through it is durable already, so there is nothing to do.

        One that was deleted meanwhile is ``Conflict``, one that was purged ``NotFound``: it is never made again.
        """
        return await self._portal.run(lambda: self._sync.save_session(unwrap(session)))

    def create_session(
        self,
        name: str | None = None,
        *,
        agent: str = "main",
        workspace: str | PathLike[str] | None = None,
        idempotency_key: str | None = None,
        **fields: Unpack[NewSession],
    ) -> Opening[AsyncSession]:
        """Start a session; a name that a visible session of this agent and workspace has is ``Conflict``."""

        async def opening() -> AsyncSession:
            return AsyncSession(
                self._portal,
                await self._portal.run(
                    lambda: self._sync.create_session(
                        name,
                        agent=agent,
                        workspace=workspace,
                        idempotency_key=idempotency_key,
                        **{key: unwrap(value) for key, value in fields.items()},
                    )
                ),
            )

        return Opening(opening)

    async def delete_session(self, session: str | AsyncSession) -> Operation | None:
        """Put a session into the trash, by id, key or name; one that is absent or there already is no error.

        A main, directory or cron session goes back to empty instead. ``undo`` brings everything back.
        """
        return await self._portal.run(lambda: self._sync.delete_session(unwrap(session)))

    async def restore_session(self, session: str | AsyncSession) -> Operation | None:
        """Take a session out of the trash, by its id; if its name is taken by then, it gets `` (2)`` behind it."""
        return await self._portal.run(lambda: self._sync.restore_session(unwrap(session)))

    async def purge_session(self, session: str | AsyncSession, *, include_forks: bool = False) -> Purged:
        """Erase a session for good, by id, key or name; this cannot be undone. Absent is no error.

        Entries that sessions forked from it need are kept and named, unless those are purged with it.
        """
        return await self._portal.run(lambda: self._sync.purge_session(unwrap(session), include_forks=include_forks))

    async def checkpoint_agent(
        self,
        agent: str | AsyncAgent,
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
        return await self._portal.run(
            lambda: self._sync.checkpoint_agent(
                unwrap(agent), name, description=description, type=type, idempotency_key=idempotency_key
            )
        )

    async def restore_checkpoint(self, checkpoint: str | Checkpoint, *, take_over: bool = False) -> AsyncAgent:
        """Bring an agent back to a checkpoint: fields, state, and where all its sessions were; all or nothing.

        First the checkpoint is checked against its checksum (``Corrupt`` before anything is changed), and what is there
        now is kept by a checkpoint of type ``recovery``. Sessions made later go into the trash, or back to empty where
        there is always one of them; those deleted since come back, purged ones do not. Names, titles, tags and
        status of sessions stay as they are, and files of workspaces are not touched. ``undo`` takes it all back.

        A session that has to change and that somebody else runs is ``Busy``; with ``take_over`` their next write is
        ``LeaseLost``. A session that is run through this store goes on from where it was brought.
        """
        return AsyncAgent(
            self._portal, await self._portal.run(lambda: self._sync.restore_checkpoint(checkpoint, take_over=take_over))
        )

    async def list_checkpoints(self, of: str | AsyncAgent | AsyncSession) -> list[Checkpoint]:
        """Give the checkpoints of an agent or of a session in the order they were made.

        A text is looked up as the id of an agent, then as that of a session, then as that of an agent in the trash.
        """
        return await self._portal.run(lambda: self._sync.list_checkpoints(unwrap(of)))

    async def get_checkpoint(self, id: str) -> Checkpoint:
        """Give a checkpoint of an agent or of a session by its id."""
        return await self._portal.run(lambda: self._sync.get_checkpoint(id))

    async def delete_checkpoint(self, checkpoint: str | Checkpoint) -> None:
        """Erase a checkpoint of an agent or of a session; absent is no error. This cannot be undone.

        Only the checkpoint goes: what it named stays where it is, and later checkpoints are as good as before.
        """
        return await self._portal.run(lambda: self._sync.delete_checkpoint(checkpoint))

    async def start_auto_checkpoint(
        self, agents: str | AsyncAgent | Iterable[str | AsyncAgent], *, interval: float = 300, keep: int = 10
    ) -> None:
        """Take a checkpoint of agents every ``interval`` seconds, the first at once, whenever something changed.

        They have the type ``automatic``, and of those only the newest ``keep`` of each agent stay; others are never
        removed. It runs in the background until ``stop_auto_checkpoint`` or until the store is closed; starting it
        again replaces it. What fails later is kept in ``auto_checkpoint_error`` and warned of once.
        """
        return await self._portal.run(
            lambda: self._sync.start_auto_checkpoint(unwrap(agents), interval=interval, keep=keep)
        )

    async def stop_auto_checkpoint(self) -> None:
        """Stop taking automatic checkpoints, at once; if none are taken nothing is done."""
        return await self._portal.run(lambda: self._sync.stop_auto_checkpoint())

    @property
    def auto_checkpoint_error(self) -> BaseException | None:
        """What the last automatic checkpoint failed with; None if it did not."""
        return self._sync.auto_checkpoint_error

    def scoped(self, scope: str | None) -> AsyncStore:
        """Give a handle for another scope on the same connections."""
        return AsyncStore(self._portal, self._sync.scoped(scope))

    async def scopes(self) -> list[str]:
        """List the scopes that hold anything, in order; the default scope is the empty string.

        A handle of one scope raises ``Invalid``: it sees nothing of the others. Where PostgreSQL's row security shows
        this role one scope at a time, it raises ``Unsupported``.
        """
        return await self._portal.run(lambda: self._sync.scopes())

    async def operations(self, *, limit: int = 100, cursor: str | None = None) -> Page[Operation]:
        """Give all operations of this scope, newest first."""
        return await self._portal.run(lambda: self._sync.operations(limit=limit, cursor=cursor))

    async def prune(self, policy: str = "unreferenced", *, dry_run: bool = True, spare_seconds: float = 3600) -> Pruned:
        """Erase contents that nothing needs any more; a dry run, the default, only says how much that is.

        What was stored within the last ``spare_seconds`` stays, since somebody may be about to use it. The one policy
        so far is ``unreferenced``; nothing is ever pruned unasked. Before anything is erased, a checkpoint of type
        ``pre-operation`` is taken of each agent with sessions, unless the last one shows it as it is; on a full disk
        there is none.
        """
        return await self._portal.run(lambda: self._sync.prune(policy, dry_run=dry_run, spare_seconds=spare_seconds))

    async def undo(self, op: Operation | str | None = None) -> Operation:
        """Take back the last operation made through this handle, or a named one.

        An operation is ``Conflict`` when a later one changed the same thing.
        """
        return await self._portal.run(lambda: self._sync.undo(op))

    async def redo(self) -> Operation:
        """Bring back what the last undo made through this handle took back."""
        return await self._portal.run(lambda: self._sync.redo())

    def events(self, after: str | None = None) -> AsyncIterator[Change]:
        """Give every change after a cursor, in the order of commits, up to now."""
        return self._portal.iterate(lambda: self._sync.events(after))

    def follow(self, after: str | None = None) -> AsyncIterator[Change]:
        """Give every change after a cursor, and then each new one soon after it is committed; ends with the store.

        A reader that was away goes on from its last cursor and misses nothing. On PostgreSQL a notice wakes it;
        where none comes it looks by itself.
        """
        return self._portal.follow(lambda stopped: self._sync._follow(after, stopped))

    async def stats(self) -> StoreStats:
        """Count what this scope holds; bytes are those of the whole store on disk."""
        return await self._portal.run(lambda: self._sync.stats())

    async def verify(self, *, progress: Callable[[int], None] | None = None) -> Report:
        """Recompute every check and every hash of the store, all scopes; nothing is changed.

        ``progress`` is called with the number of records that were looked at, now and then.
        """
        return await self._portal.run(lambda: self._sync.verify(progress=progress))

    async def backup(self, path: str | PathLike[str], *, progress: Callable[[int], None] | None = None) -> Report:
        """Copy the whole store, all scopes, into a new file as of one moment, and verify that copy.

        The store may be in use meanwhile. The file is there only when it is whole, and opens as any store does; one
        that is there already is ``Conflict``. The report names damage that was copied, and what a server's file leaves
        out. Through a handle on one scope it is ``Invalid``: it would hold the others too. ``progress`` is that of
        ``verify``.
        """
        return await self._portal.run(lambda: self._sync.backup(path, progress=progress))

    async def repair(self, to: str | PathLike[str] | None = None) -> Repaired:
        """Copy the store to a new file without what is damaged, verify the copy, and say what was lost.

        By default the copy lies beside the store, with ``.repaired`` behind its name; a file that is there already is
        ``Conflict``. This store is not changed and may be in use meanwhile.
        """
        return await self._portal.run(lambda: self._sync.repair(to))

    async def export(
        self,
        sessions: AsyncSession | str | Iterable[AsyncSession | str],
        to: str | PathLike[str] | BinaryIO,
        *,
        format: str = "jsonl",
        subagents: bool = True,
        tools: str = "short",
        secrets: str = "mask",
        at: Point | None = None,
        progress: Callable[[Copying], Any] | None = None,
    ) -> Exported:
        """Write sessions, handles or ids, into a file that is there whole or not at all, or into an open binary file.

        ``jsonl`` are lines that ``load`` reads back; they lose nothing, so what is likely a secret is only counted.
        Sub-agents come along unless ``subagents`` is False, and so does what the sessions cannot be without.
        ``markdown`` and ``html`` are documents of one session: ``tools`` is ``full``, ``short`` or ``none``,
        ``secrets`` ``mask`` or ``keep``, and ``at`` a point where the document ends.
        """
        return await self._portal.run(
            lambda: self._sync.export(
                unwrap(sessions),
                to,
                format=format,
                subagents=subagents,
                tools=tools,
                secrets=secrets,
                at=at,
                progress=progress,
            )
        )

    async def load(
        self,
        path: str | PathLike[str] | BinaryIO,
        *,
        workspace: str | PathLike[str] | None = None,
        dry_run: bool = False,
        progress: Callable[[int], Any] | None = None,
    ) -> Loaded:
        """Bring in what ``export`` wrote as lines, or the folder of a mirror; loading it again changes nothing.

        It is judged first: a file that is cut off, changed or forged raises ``Corrupt`` and nothing of it is stored.
        A session has no workspace here, whatever the file says; with ``workspace`` those that had one get that one. A
        name that is taken gets `` (2)`` behind it. A session that is here already stays where it is and gets what is
        new; one that was changed in both raises ``Conflict``, once everything else is loaded. ``progress`` is called
        with the number of lines that were read.
        """
        return await self._portal.run(
            lambda: self._sync.load(path, workspace=workspace, dry_run=dry_run, progress=progress)
        )

    def __repr__(self) -> str:
        return f"<Async{repr(self._sync)[1:]}"

    async def __aenter__(self) -> AsyncStore:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncAgent:
    """An agent of a store, as last seen; ``refresh`` renews it."""

    def __init__(self, portal: Portal, sync: Agent) -> None:
        self._portal, self._sync = portal, sync

    @property
    def id(self) -> str:
        """The id that its maker gave, unique in its scope."""
        return self._sync.id

    @property
    def name(self) -> str | None:
        """What people call it."""
        return self._sync.name

    @property
    def type(self) -> str:
        """What sort of agent it is, in the caller's words."""
        return self._sync.type

    @property
    def system_prompt(self) -> str | None:
        """What its contexts begin with."""
        return self._sync.system_prompt

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What it can do, in the caller's words."""
        return self._sync.capabilities

    @property
    def config(self) -> dict[str, Any]:
        """Its settings."""
        return self._sync.config

    @property
    def metadata(self) -> dict[str, Any]:
        """What the caller attached."""
        return self._sync.metadata

    @property
    def version(self) -> int:
        """1 at first; grows with every change of its fields or its state."""
        return self._sync.version

    @property
    def created_at(self) -> datetime:
        """When it was made."""
        return self._sync.created_at

    @property
    def modified_at(self) -> datetime:
        """When it last changed."""
        return self._sync.modified_at

    @property
    def state(self) -> AsyncAgentState:
        """Its versioned state."""
        return AsyncAgentState(self._portal, self._sync.state)

    def sessions(self) -> AsyncIterator[AsyncSession]:
        """Stream its sessions, last changed first."""
        return wrapped(
            self._portal.iterate(lambda: self._sync.sessions()), lambda each: AsyncSession(self._portal, each)
        )

    def active_sessions(self) -> AsyncIterator[AsyncSession]:
        """Stream its active sessions, last changed first."""
        return wrapped(
            self._portal.iterate(lambda: self._sync.active_sessions()), lambda each: AsyncSession(self._portal, each)
        )

    async def refresh(self) -> AsyncAgent:
        """Read the agent's fields again."""
        await self._portal.run(lambda: self._sync.refresh())
        return self

    def to_dict(self) -> dict[str, Any]:
        """Give its fields as plain values."""
        return self._sync.to_dict()

    def __repr__(self) -> str:
        return f"<Async{repr(self._sync)[1:]}"


class AsyncAgentState:
    """The state of an agent; only restoring a checkpoint of the agent takes it back."""

    def __init__(self, portal: Portal, sync: AgentState) -> None:
        self._portal, self._sync = portal, sync

    async def get(self, key: str, default: Any = None) -> Any:
        """Give the value of a key, or ``default``."""
        return await self._portal.run(lambda: self._sync.get(key, default))

    async def items(self) -> dict[str, Any]:
        """Give all keys with their values."""
        return await self._portal.run(lambda: self._sync.items())

    async def read(self) -> tuple[int, dict[str, Any]]:
        """Give the version and all keys with their values, as of one moment: what compare-and-set needs."""
        return await self._portal.run(lambda: self._sync.read())

    async def version(self) -> int:
        """Give the version of the state: 1 at first, higher with every change."""
        return await self._portal.run(lambda: self._sync.version())

    async def at(self, version: int) -> dict[str, Any]:
        """Give all keys and values as they were at a version."""
        return await self._portal.run(lambda: self._sync.at(version))

    async def set(
        self, key: str, value: Any, *, expected_version: int | None = None, idempotency_key: str | None = None
    ) -> int:
        """Set one key and give the new version; durable when this returns."""
        return await self._portal.run(
            lambda: self._sync.set(key, value, expected_version=expected_version, idempotency_key=idempotency_key)
        )

    async def update(
        self, values: Mapping[str, Any], *, expected_version: int | None = None, idempotency_key: str | None = None
    ) -> int:
        """Set several keys in one step and give the new version."""
        return await self._portal.run(
            lambda: self._sync.update(values, expected_version=expected_version, idempotency_key=idempotency_key)
        )

    async def delete(self, *keys: str, expected_version: int | None = None, idempotency_key: str | None = None) -> int:
        """Remove keys and give the version; a key that is absent is no error."""
        return await self._portal.run(
            lambda: self._sync.delete(*keys, expected_version=expected_version, idempotency_key=idempotency_key)
        )

    def __repr__(self) -> str:
        return f"<Async{repr(self._sync)[1:]}"


class AsyncSession:
    """One conversation of an agent."""

    def __init__(self, portal: Portal, sync: Session) -> None:
        self._portal, self._sync = portal, sync

    @property
    def resumed(self) -> bool:
        """As the blocking ``Session`` holds it."""
        return self._sync.resumed

    @property
    def capture_error(self) -> str | None:
        """As the blocking ``Session`` holds it."""
        return self._sync.capture_error

    @property
    def recovered(self) -> str | None:
        """As the blocking ``Session`` holds it."""
        return self._sync.recovered

    @property
    def id(self) -> str:
        """Unique everywhere, sorted by time."""
        return self._sync.id

    @property
    def key(self) -> str:
        """How other agents name it: unique, of the form ``agent:<id>:...``."""
        return self._sync.key

    @property
    def name(self) -> str | None:
        """The name that its maker gave."""
        return self._sync.name

    @property
    def label(self) -> str | None:
        """The label that its parent gave."""
        return self._sync.label

    @property
    def title(self) -> str | None:
        """What people read in listings: made from the prompt or the first user message, or given by ``rename``."""
        return self._sync.title

    @property
    def agent_id(self) -> str:
        """Whose session it is."""
        return self._sync.agent_id

    @property
    def kind(self) -> str:
        """``main``, ``subagent`` or ``cron``."""
        return self._sync.kind

    @property
    def workspace(self) -> str | None:
        """The directory that it works in."""
        return self._sync.workspace

    @property
    def came_from(self) -> str | None:
        """The directory that it worked in, as the export says that it was loaded from; nothing here is found by it."""
        return self._sync.came_from

    @property
    def tags(self) -> tuple[str, ...]:
        """Its tags, in the order of adding."""
        return self._sync.tags

    @property
    def archived(self) -> bool:
        """Whether listings leave it out unless asked."""
        return self._sync.archived

    @property
    def pinned(self) -> bool:
        """Whether people want to find it again."""
        return self._sync.pinned

    @property
    def deleted(self) -> bool:
        """Whether it is in the trash."""
        return self._sync.deleted

    @property
    def prompt(self) -> str | None:
        """What it was asked for."""
        return self._sync.prompt

    @property
    def model(self) -> str | None:
        """The model it began with."""
        return self._sync.model

    @property
    def provider(self) -> str | None:
        """The provider it began with."""
        return self._sync.provider

    @property
    def task(self) -> str | None:
        """What its parent wants of it."""
        return self._sync.task

    @property
    def run_id(self) -> str | None:
        """The id of its run, for tracing."""
        return self._sync.run_id

    @property
    def parent_id(self) -> str | None:
        """The session that started it."""
        return self._sync.parent_id

    @property
    def forked_from(self) -> str | None:
        """The session that this one was forked from."""
        return self._sync.forked_from

    @property
    def metadata(self) -> dict[str, Any]:
        """What the caller attached."""
        return self._sync.metadata

    @property
    def created_at(self) -> datetime:
        """When it began."""
        return self._sync.created_at

    @property
    def updated_at(self) -> datetime:
        """When it last changed, by the writer's clock; listings go by feed position instead."""
        return self._sync.updated_at

    @property
    def last_message_at(self) -> datetime | None:
        """When a message was last added."""
        return self._sync.last_message_at

    @property
    def head(self) -> Head:
        """Where it is."""
        return self._sync.head

    @property
    def revision(self) -> int:
        """Grows by one with each append call and each move of the head."""
        return self._sync.revision

    @property
    def message_count(self) -> int:
        """Messages on the path of the head."""
        return self._sync.message_count

    @property
    def turn_count(self) -> int:
        """Turns on the path of the head."""
        return self._sync.turn_count

    @property
    def task_count(self) -> int:
        """Tasks at the head."""
        return self._sync.task_count

    @property
    def completed_count(self) -> int:
        """Completed tasks at the head."""
        return self._sync.completed_count

    @property
    def build_attempts(self) -> int:
        """Build attempts at the head."""
        return self._sync.build_attempts

    @property
    def status(self) -> str:
        """``active``, ``completed``, ``error``, ``timeout``, ``stopped``, or ``interrupted`` if its holder is gone."""
        return self._sync.status

    @property
    def holder(self) -> Holder | None:
        """Who runs it, as last seen: the process and its machine."""
        return self._sync.holder

    @property
    def stopped_at(self) -> int | None:
        """The turn in which its last run was cut off, if it was."""
        return self._sync.stopped_at

    @property
    def crashes(self) -> int:
        """How many times in a row its runs were cut off in that turn."""
        return self._sync.crashes

    @property
    def error(self) -> str | None:
        """The error that its last run ended with, if it did."""
        return self._sync.error

    @property
    def result(self) -> Any:
        """What it was completed with."""
        return self._sync.result

    @property
    def finished_at(self) -> datetime | None:
        """When it ended; None while it goes on."""
        return self._sync.finished_at

    def to_dict(self) -> dict[str, Any]:
        """Give its fields as plain values, times as RFC 3339."""
        return self._sync.to_dict()

    async def messages(
        self,
        *,
        limit: int | None = None,
        after: int | None = None,
        before: int | None = None,
        tools: bool = True,
        at: Point | None = None,
    ) -> list[Message]:
        """Give messages, oldest first: the latest ``limit`` of them, or the first ones ``after`` a seq.

        The limit counts after the filter. ``tools=False`` leaves tool messages out. ``at`` reads the path to a point,
        such as another branch. An answer that is being written comes last, with the status ``streaming`` and seq 0: it
        has no place yet.
        """
        return await self._portal.run(
            lambda: self._sync.messages(limit=limit, after=after, before=before, tools=tools, at=at)
        )

    def iter_messages(
        self, *, after: int | None = None, tools: bool = True, at: Point | None = None
    ) -> AsyncIterator[Message]:
        """Stream messages, oldest first, up to the head of this moment or to a point, then what is being written."""
        return self._portal.iterate(lambda: self._sync.iter_messages(after=after, tools=tools, at=at))

    def entries(self, *, after: int | None = None, before: int | None = None) -> AsyncIterator[Entry]:
        """Stream entries of every kind, oldest first."""
        return self._portal.iterate(lambda: self._sync.entries(after=after, before=before))

    async def message(self, id: str) -> Message:
        """Give a message of the path by its id, the caller's or the store's."""
        return await self._portal.run(lambda: self._sync.message(id))

    def turns(self) -> AsyncIterator[Turn]:
        """Stream the turns of the path: each a user message and all that follows up to the next."""
        return self._portal.iterate(lambda: self._sync.turns())

    async def stats(self, at: Point | None = None, *, spent: bool = False) -> Stats:
        """Give the totals of the path, up to a point if one is given; one read at any depth.

        ``spent`` counts every entry of every branch once instead: what was spent does not go back with a rewind.
        """
        return await self._portal.run(lambda: self._sync.stats(at, spent=spent))

    async def tool_calls(self) -> list[ToolCall]:
        """Give the tool calls of the path in order, each with its status, times and result."""
        return await self._portal.run(lambda: self._sync.tool_calls())

    async def pending_calls(self) -> list[ToolCall]:
        """Give the tool calls of the path that have no result, in the order they were announced.

        One is ``pending`` until its tool is started, then ``running``; ``unknown`` if the process that ran it is gone:
        it may or may not have had its effect. ``retry`` it, or say with ``resolve_call`` how it ended.
        """
        return await self._portal.run(lambda: self._sync.pending_calls())

    async def branches(self) -> list[Branch]:
        """Give all branches, oldest first; one whose fork was undone is left out."""
        return await self._portal.run(lambda: self._sync.branches())

    async def checkpoints(self) -> list[Checkpoint]:
        """Give the session's checkpoints in the order they were made."""
        return await self._portal.run(lambda: self._sync.checkpoints())

    async def get_checkpoint(self, id_or_name: str) -> Checkpoint:
        """Give a checkpoint by its id, or the newest of that name."""
        return await self._portal.run(lambda: self._sync.get_checkpoint(id_or_name))

    async def context(
        self,
        provider: str,
        *,
        model: str | None = None,
        max_tokens: int | None = None,
        at: Point | None = None,
        count: Count | None = None,
    ) -> Context:
        """Give the conversation in a provider's form, valid from wherever the log stands.

        ``provider`` is ``anthropic``, ``openai-chat``, ``openai-responses``, ``gemini`` or ``bedrock``. Messages that
        came from it go out as they were stored; ``repairs`` says what had to be changed; equal logs give equal bytes.
        With ``max_tokens`` older messages are left out (``omitted``), in steps, so that caches live; messages with
        ``metadata={"pinned": True}`` stay. ``at`` looks from another point; ``count`` counts the tokens of a text.
        """
        return await self._portal.run(
            lambda: self._sync.context(provider, model=model, max_tokens=max_tokens, at=at, count=count)
        )

    async def summary(self, max_tokens: int = 1200, *, count: Count | None = None) -> str:
        """Give the session in a few hundred words for the next prompt: tasks, files, plan, what was said last.

        It never has more tokens than ``max_tokens``; what was said in the session cannot pass for its headings.
        """
        return await self._portal.run(lambda: self._sync.summary(max_tokens, count=count))

    async def render_walkthrough(self) -> str:
        """Give the session as a Markdown document for people: plan, tasks, files, checkpoints, what was said when."""
        return await self._portal.run(lambda: self._sync.render_walkthrough())

    def runtime(self) -> float:
        """Give the seconds from its beginning to its end, or to now; never less than 0."""
        return self._sync.runtime()

    async def release(self) -> None:
        """Give the lease back before the handle goes; without one nothing is done."""
        return await self._portal.run(lambda: self._sync.release())

    async def complete(self, result: Any = None, *, idempotency_key: str | None = None) -> None:
        """End it well, with a result for whoever asked; it takes no messages until it is entered or reopened."""
        return await self._portal.run(lambda: self._sync.complete(result, idempotency_key=idempotency_key))

    async def fail(self, error: BaseException | str, *, idempotency_key: str | None = None) -> None:
        """End it with an error."""
        return await self._portal.run(lambda: self._sync.fail(error, idempotency_key=idempotency_key))

    async def reopen(self, *, idempotency_key: str | None = None) -> None:
        """Let a session that ended go on; one that is active is ``Conflict``."""
        return await self._portal.run(lambda: self._sync.reopen(idempotency_key=idempotency_key))

    async def rewind_pending(self) -> str | None:
        """Say that files of this session are being changed, or were left half changed by somebody who died; else None.

        Asking changes nothing: whoever next runs the session where that was, or rewinds it, takes the change back.
        """
        return await self._portal.run(lambda: self._sync.rewind_pending())

    async def capture_files(self) -> None:
        """Look at the workspace now, also without the lease: a boundary that only the caller knows of.

        What changed since the last look is put down to the calls that are open; with none open it is somebody else's,
        and a rewind keeps it. Without a workspace nothing is done. ``checkpoint`` looks too, and names the point.
        """
        return await self._portal.run(lambda: self._sync.capture_files())

    async def file_at(self, path: str | PathLike[str], point: Point) -> bytes:
        """Give the content of a file as it was at a point.

        ``NotFound`` if nothing was there, ``Unsupported`` if it was not captured, ``Invalid`` for a link or directory.
        """
        return await self._portal.run(lambda: self._sync.file_at(path, point))

    async def diff(self, a: Point, b: Point | None = None) -> Diff:
        """Say what is otherwise at a second point, files and messages; without one, now and in the workspace."""
        return await self._portal.run(lambda: self._sync.diff(a, b))

    async def compare(self, a: Point, b: Point | None = None) -> Comparison:
        """Put the paths to two points side by side, from where they part; without a second one, to the head.

        Branches are points: ``compare(one, other)`` says what each of two ways did, spent and left behind.
        """
        return await self._portal.run(lambda: self._sync.compare(a, b))

    async def files(self) -> list[FileTouched]:
        """Give the paths that the session touched, each once, with its last action and the calls that did it.

        Those that were seen to change in the workspace, whatever tool did it, and those that ``record_file`` named.
        """
        return await self._portal.run(lambda: self._sync.files())

    async def snapshot_file(self, path: str | PathLike[str], *, idempotency_key: str | None = None) -> FileState:
        """Keep a file as it is before it is changed; the first time counts until it is forgotten or at a checkpoint."""
        return await self._portal.run(lambda: self._sync.snapshot_file(path, idempotency_key=idempotency_key))

    async def file_diff(self, path: str | PathLike[str]) -> FileDiff | None:
        """Say how an announced file differs from when it was announced; None if it does not, or was never announced."""
        return await self._portal.run(lambda: self._sync.file_diff(path))

    async def file_diffs(self) -> list[FileDiff]:
        """Give the differences of all announced files that changed, in the order they were announced."""
        return await self._portal.run(lambda: self._sync.file_diffs())

    async def forget_files(self, *, idempotency_key: str | None = None) -> None:
        """Forget all announced files: the next announcement of each counts."""
        return await self._portal.run(lambda: self._sync.forget_files(idempotency_key=idempotency_key))

    async def checkpoint(
        self,
        name: str | None = None,
        *,
        description: str | None = None,
        type: str = "manual",
        files: bool = True,
        idempotency_key: str | None = None,
    ) -> Checkpoint:
        """Name this point: conversation, work, state, sub-agents and files. It costs what changed, at any length.

        A name may be used again: it then means the newest of them, and all are listed. Without ``files`` the workspace
        is not looked at: the point has the files that were seen last.
        """
        return await self._portal.run(
            lambda: self._sync.checkpoint(
                name, description=description, type=type, files=files, idempotency_key=idempotency_key
            )
        )

    async def preview_rewind(
        self,
        target: Point,
        *,
        files: bool = True,
        conversation: bool = True,
        overwrite: Iterable[str | PathLike[str]] = (),
    ) -> AsyncRewind:
        """Say what going back to a point would do, path by path, without doing it; ``apply`` does exactly that.

        What somebody else edited is kept unless ``overwrite`` names it. Without ``conversation`` only files go back,
        without ``files`` only the conversation does.
        """
        return AsyncRewind(
            self._portal,
            await self._portal.run(
                lambda: self._sync.preview_rewind(target, files=files, conversation=conversation, overwrite=overwrite)
            ),
        )

    async def rewind(
        self,
        target: Point,
        *,
        files: bool = True,
        conversation: bool = True,
        overwrite: Iterable[str | PathLike[str]] = (),
        take_over: bool = False,
        idempotency_key: str | None = None,
    ) -> Operation:
        """Move back to a point: it stays, what follows leaves and is kept on its branch. ``undo`` takes it back.

        Tasks, plan, notes, session state, sub-agents and files go back too. The next append opens a branch there.
        It is ``preview_rewind`` and ``apply`` in one.
        """
        return await self._portal.run(
            lambda: self._sync.rewind(
                target,
                files=files,
                conversation=conversation,
                overwrite=overwrite,
                take_over=take_over,
                idempotency_key=idempotency_key,
            )
        )

    async def preview_undo(self, operation: Operation | str | None = None) -> AsyncRewind:
        """Say what ``undo`` would do to the conversation and to files."""
        return AsyncRewind(self._portal, await self._portal.run(lambda: self._sync.preview_undo(operation)))

    async def preview_redo(self) -> AsyncRewind:
        """Say what ``redo`` would do to the conversation and to files."""
        return AsyncRewind(self._portal, await self._portal.run(lambda: self._sync.preview_redo()))

    async def undo(self, operation: Operation | str | None = None, *, idempotency_key: str | None = None) -> Operation:
        """Take back the last operation of this session, or a named one unless a later one changed the same thing."""
        return await self._portal.run(lambda: self._sync.undo(operation, idempotency_key=idempotency_key))

    async def redo(self, *, idempotency_key: str | None = None) -> Operation:
        """Bring back what the last undo of this session took back."""
        return await self._portal.run(lambda: self._sync.redo(idempotency_key=idempotency_key))

    async def operations(self, *, limit: int = 100) -> list[Operation]:
        """Give this session's operations, newest first."""
        return await self._portal.run(lambda: self._sync.operations(limit=limit))

    @overload
    async def fork(
        self,
        at: Point | None = None,
        *,
        name: str | None = None,
        as_session: Literal[False] = False,
        idempotency_key: str | None = None,
    ) -> Branch: ...

    @overload
    async def fork(
        self,
        at: Point | None = None,
        *,
        name: str | None = None,
        as_session: Literal[True],
        into: str | PathLike[str] | None = None,
        idempotency_key: str | None = None,
    ) -> AsyncSession: ...

    @overload
    async def fork(
        self,
        at: Point | None = None,
        *,
        name: str | None = None,
        as_session: bool,
        into: str | PathLike[str] | None = None,
        idempotency_key: str | None = None,
    ) -> Branch | AsyncSession: ...

    async def fork(
        self,
        at: Point | None = None,
        *,
        name: str | None = None,
        as_session: bool = False,
        into: str | PathLike[str] | None = None,
        idempotency_key: str | None = None,
    ) -> Branch | AsyncSession:
        """Open a branch at a point, the head by default, and stay where you are; nothing is copied.

        With ``as_session`` the branch is a session of its own. ``into`` names a new or empty directory: it gets the
        files as they were at that point, and is the workspace of the new session; what belongs to a repository is left
        out, and logged. ``undo`` takes the fork back, and leaves that directory.
        """
        return (lambda found: AsyncSession(self._portal, found) if isinstance(found, Session) else found)(
            await self._portal.run(
                lambda: self._sync.fork(
                    at, name=name, as_session=as_session, into=into, idempotency_key=idempotency_key
                )
            )
        )

    async def switch(
        self, branch: str | Branch, *, files: bool = False, idempotency_key: str | None = None
    ) -> Operation:
        """Move to the tip of a branch; ``undo`` moves back. With ``files`` the workspace becomes as it was there."""
        return await self._portal.run(lambda: self._sync.switch(branch, files=files, idempotency_key=idempotency_key))

    async def preview_switch(self, branch: str | Branch) -> AsyncRewind:
        """Say what ``switch`` with ``files`` would do to the conversation and to files; ``apply`` does it."""
        return AsyncRewind(self._portal, await self._portal.run(lambda: self._sync.preview_switch(branch)))

    async def user(self, content: Any, **fields: Unpack[Said]) -> Message:
        """Add a user message; ``append`` describes durability and retries."""
        return await self._portal.write(
            self._sync._store._backend,
            Session.user.plan(self._sync, content, **{key: unwrap(value) for key, value in fields.items()}),
        )

    async def assistant(self, content: Any, **fields: Unpack[Said]) -> Message:
        """Add an assistant message."""
        return await self._portal.write(
            self._sync._store._backend,
            Session.assistant.plan(self._sync, content, **{key: unwrap(value) for key, value in fields.items()}),
        )

    async def system(self, content: Any, **fields: Unpack[Said]) -> Message:
        """Add a system message."""
        return await self._portal.write(
            self._sync._store._backend,
            Session.system.plan(self._sync, content, **{key: unwrap(value) for key, value in fields.items()}),
        )

    async def append(
        self, *items: Any, expected_revision: int | None = None, idempotency_key: str | None = None
    ) -> list[Message]:
        """Add messages at the head, all or none; durable when this returns.

        Ours, dicts, or SDK objects and whole responses of Anthropic, OpenAI (both APIs), Gemini or Bedrock's Converse.
        A retry with the same ``idempotency_key`` and content gives the first result and stores
        nothing. Another revision than ``expected_revision`` is ``Conflict``.
        """
        return await self._portal.write(
            self._sync._store._backend,
            Session.append.plan(
                self._sync, *items, expected_revision=expected_revision, idempotency_key=idempotency_key
            ),
        )

    async def replace_tail(
        self, from_seq: int, messages: Iterable[Any], expected_revision: int, *, idempotency_key: str | None = None
    ) -> list[Message]:
        """Put messages in the place of everything from ``from_seq`` on, in one step; the old ones stay on their branch.

        Another revision than the expected one is ``Conflict``; ``undo`` brings the old tail back.
        """
        return await self._portal.run(
            lambda: self._sync.replace_tail(from_seq, messages, expected_revision, idempotency_key=idempotency_key)
        )

    async def pop(self, *, idempotency_key: str | None = None) -> Message | None:
        """Take exactly the last message off the path and give it, or None if there is none; ``undo`` brings it back.

        Changes of tasks, plan or state that came after that message leave with it.
        """
        return await self._portal.run(lambda: self._sync.pop(idempotency_key=idempotency_key))

    async def clear(self, *, idempotency_key: str | None = None) -> Operation:
        """Go back to an empty session; everything stays on its branch and ``undo`` brings it back."""
        return await self._portal.run(lambda: self._sync.clear(idempotency_key=idempotency_key))

    async def compact(self, upto: Point, summary: str, *, idempotency_key: str | None = None) -> Compaction:
        """Let a summary stand for everything up to a point in contexts; the originals stay.

        ``uncompact`` takes it back, and so does a rewind to before it.
        """
        return await self._portal.run(lambda: self._sync.compact(upto, summary, idempotency_key=idempotency_key))

    async def uncompact(self, *, idempotency_key: str | None = None) -> Compaction | None:
        """Take the last compaction back: contexts show the originals again, or the compaction before it, if any."""
        return await self._portal.run(lambda: self._sync.uncompact(idempotency_key=idempotency_key))

    async def compaction(self) -> Compaction | None:
        """Give the compaction that is in force, or None."""
        return await self._portal.run(lambda: self._sync.compaction())

    @property
    def state(self) -> AsyncSessionState:
        """The session's own state: keys and values that go back with a rewind."""
        return AsyncSessionState(self._portal, self._sync.state)

    async def tasks(self) -> list[Task]:
        """Give the tasks, in order."""
        return await self._portal.run(lambda: self._sync.tasks())

    async def set_tasks(self, tasks: Iterable[Task | str], *, idempotency_key: str | None = None) -> list[Task]:
        """Replace the list of tasks; strings become pending tasks."""
        return await self._portal.run(lambda: self._sync.set_tasks(tasks, idempotency_key=idempotency_key))

    async def add_task(self, task: Task | str, status: str = "pending", *, idempotency_key: str | None = None) -> Task:
        """Add a task at the end of the list."""
        return await self._portal.run(lambda: self._sync.add_task(task, status, idempotency_key=idempotency_key))

    async def update_task(
        self,
        index: int,
        status: str | None = None,
        *,
        description: str | None = None,
        idempotency_key: str | None = None,
    ) -> Task:
        """Change one task by its index, from 0; a wrong index or status is ``Invalid``."""
        return await self._portal.run(
            lambda: self._sync.update_task(index, status, description=description, idempotency_key=idempotency_key)
        )

    async def get_plan(self) -> str | None:
        """Give the agent's plan."""
        return await self._portal.run(lambda: self._sync.get_plan())

    async def set_plan(self, text: str | None, *, idempotency_key: str | None = None) -> None:
        """Set the agent's plan; None clears it."""
        return await self._portal.run(lambda: self._sync.set_plan(text, idempotency_key=idempotency_key))

    async def get_walkthrough(self) -> str | None:
        """Give the stored walkthrough text."""
        return await self._portal.run(lambda: self._sync.get_walkthrough())

    async def set_walkthrough(self, text: str | None, *, idempotency_key: str | None = None) -> None:
        """Set the walkthrough text; None clears it."""
        return await self._portal.run(lambda: self._sync.set_walkthrough(text, idempotency_key=idempotency_key))

    async def note(
        self, text: str, *, task: int | str | Task | None = None, idempotency_key: str | None = None
    ) -> Note:
        """Add to the reasoning log, on a task if one is named by index, id or itself."""
        return await self._portal.run(lambda: self._sync.note(text, task=task, idempotency_key=idempotency_key))

    async def notes(self) -> list[Note]:
        """Give the reasoning log, oldest first."""
        return await self._portal.run(lambda: self._sync.notes())

    async def record_file(
        self,
        path: str | PathLike[str],
        action: str,
        *,
        call: str | ToolCall | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """Note that a path was created, written or deleted, and by which tool call; its last action counts."""
        return await self._portal.run(
            lambda: self._sync.record_file(path, action, call=call, idempotency_key=idempotency_key)
        )

    async def add_build_attempt(self, *, idempotency_key: str | None = None) -> int:
        """Count one more build attempt and give the count."""
        return await self._portal.run(lambda: self._sync.add_build_attempt(idempotency_key=idempotency_key))

    def stream(
        self,
        role: str = "assistant",
        *,
        model: str | None = None,
        id: str | None = None,
        flush_seconds: float = 0.2,
        flush_bytes: int = 4096,
    ) -> Opening[AsyncStream]:
        """Begin an answer that arrives in pieces: ``with session.stream() as stream: stream.write(delta)``.

        Each piece is on disk within ``flush_seconds``, or when ``flush_bytes`` characters wait. Leaving the block seals
        it: finished, interrupted by an error, or cancelled. It goes to the branch where it began.
        """

        async def opening() -> AsyncStream:
            return AsyncStream(
                self._portal,
                await self._portal.enter(
                    lambda: self._sync.stream(
                        role, model=model, id=id, flush_seconds=flush_seconds, flush_bytes=flush_bytes
                    ),
                    lambda made: made.cancel(),
                ),
            )

        return Opening(opening)

    def tool(
        self,
        call: ToolCall | str,
        arguments: Any = None,
        *,
        id: str | None = None,
        paths: Iterable[str | PathLike[str]] | None = None,
        keep: int | None = None,
    ) -> AsyncToolRun:
        """Run a tool: ``with session.tool(call) as run: run.result(...)``.

        Give a call from ``pending_calls`` (one that was answered meanwhile is ``Conflict`` on entering), or a name and
        arguments. With the id of an open call that a message announced, it is the start of that call, never a second
        record. A tool that is interrupted, or gives what cannot be stored, leaves its call open. With ``paths``, those
        that the tool touches, only they are looked at and not the whole workspace. ``keep`` says how many characters
        of what it writes are kept, half of them the first and half the last; without it all are.
        """
        return AsyncToolRun(self._portal, self._sync.tool(call, arguments, id=id, paths=paths, keep=keep))

    async def tool_result(
        self,
        call_id: str | ToolCall,
        content: Any,
        *,
        success: bool = True,
        duration: float | None = None,
        idempotency_key: str | None = None,
    ) -> Message:
        """Store the result of a call that is on the path; absent is ``NotFound``, answered already ``Conflict``."""
        return await self._portal.run(
            lambda: self._sync.tool_result(
                call_id, content, success=success, duration=duration, idempotency_key=idempotency_key
            )
        )

    def retry(self, call: ToolCall, *, most: int = 3) -> AsyncToolRun:
        """Run a call again whose outcome is unknown: ``with session.retry(call) as run: run.result(...)``.

        ``call.idempotency_key`` is the same at every try. A call that was tried ``most`` times already is ``Conflict``:
        one that keeps killing its process is not tried for ever. Say with ``resolve_call`` how it ended.
        """
        return AsyncToolRun(self._portal, self._sync.retry(call, most=most))

    async def resolve_call(
        self, call: ToolCall | str, content: Any = None, *, success: bool = True, idempotency_key: str | None = None
    ) -> Message:
        """Say how an open call ended that will not run (again): with what it gave, or with why it failed."""
        return await self._portal.run(
            lambda: self._sync.resolve_call(call, content, success=success, idempotency_key=idempotency_key)
        )

    async def spawn(
        self,
        task: str,
        *,
        label: str | None = None,
        agent: str | None = None,
        workspace: str | PathLike[str] | None = None,
        model: str | None = None,
        call_id: str | ToolCall | None = None,
        metadata: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Spawned[AsyncSession]:
        """Start a sub-agent for a task: a session below this one, by default of the same agent and workspace.

        ``call_id`` is the tool call that asked for it: spawning for the same call again gives the same sub-agent. A
        label that a sub-agent of this session has already is ``Conflict``, and so is a finished session.
        """
        return (lambda found: Spawned(*found[:-1], AsyncSession(self._portal, found.session)))(
            await self._portal.run(
                lambda: self._sync.spawn(
                    task,
                    label=label,
                    agent=agent,
                    workspace=workspace,
                    model=model,
                    call_id=call_id,
                    metadata=metadata,
                    idempotency_key=idempotency_key,
                )
            )
        )

    async def children(self) -> list[AsyncSession]:
        """Give its sub-agents in the order they were started."""
        return [AsyncSession(self._portal, each) for each in await self._portal.run(lambda: self._sync.children())]

    async def tree(self) -> Tree:
        """Give it with all sub-agents below it: status, time, and what each and all of them spent."""
        return await self._portal.run(lambda: self._sync.tree())

    async def wait(self, *children: str | AsyncSession, timeout: float | None = None) -> list[AsyncSession]:
        """Wait until sub-agents have ended, all of them if none are named; give those that have, in their order.

        One whose process is gone has ended too: its status is ``interrupted``. After ``timeout`` seconds there may be
        fewer than were waited for.
        """
        return [
            AsyncSession(self._portal, each)
            for each in await self._portal.wait(lambda: self._sync.wait(*map(unwrap, children), timeout=timeout))
        ]

    async def stop(
        self, subtree: bool = True, *, reason: str | None = None, idempotency_key: str | None = None
    ) -> None:
        """Stop it, and all sub-agents below it that go on: none of them takes messages any more."""
        return await self._portal.run(lambda: self._sync.stop(subtree, reason=reason, idempotency_key=idempotency_key))

    async def timeout(
        self, subtree: bool = True, *, reason: str | None = None, idempotency_key: str | None = None
    ) -> None:
        """End it, and all sub-agents below it that go on, because time ran out."""
        return await self._portal.run(
            lambda: self._sync.timeout(subtree, reason=reason, idempotency_key=idempotency_key)
        )

    async def send(
        self,
        text: str,
        *,
        sender: str | AsyncSession | None = None,
        metadata: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Sent:
        """Put a message into its inbox, from any process; ``receive`` makes it a user message of this session, once.

        A finished session is ``Conflict``. ``sender`` is the session that sends it.
        """
        return await self._portal.run(
            lambda: self._sync.send(text, sender=unwrap(sender), metadata=metadata, idempotency_key=idempotency_key)
        )

    async def receive(self, limit: int | None = None, wait: float = 0) -> list[Message]:
        """Take in what was sent, in its order, as user messages; durable when this returns, and given only once.

        At most 200 at a time. Without any it waits up to ``wait`` seconds for the first one.
        """
        return await self._portal.wait(lambda: self._sync.receive(limit, wait))

    async def inbox(self) -> list[Sent]:
        """Give what was sent and waits to be received, in its order: the first 200."""
        return await self._portal.run(lambda: self._sync.inbox())

    async def ask_approval(self, call: ToolCall | str, question: str | None = None, *, wait: float = 0) -> Approval:
        """Ask a person for a yes or no to a call, and wait up to ``wait`` seconds; asking again asks nothing new.

        The question is in the store: ``answer_approval`` answers it from any process, also after a restart. The
        approval is true only if the answer was yes.
        """
        return await self._portal.wait(lambda: self._sync.ask_approval(call, question, wait=wait))

    async def answer_approval(
        self, call: ToolCall | str, approved: bool, *, by: str | None = None, note: str | None = None
    ) -> Approval:
        """Answer what was asked about a call; nothing asked is ``NotFound``, answered already ``Conflict``."""
        return await self._portal.run(lambda: self._sync.answer_approval(call, approved, by=by, note=note))

    async def approvals(self) -> list[Approval]:
        """Give what open calls of the path wait for a yes or no, and what was answered already."""
        return await self._portal.run(lambda: self._sync.approvals())

    async def rename(self, title: str | None, *, idempotency_key: str | None = None) -> Operation:
        """Give it another title; None lets the next user message make one."""
        return await self._portal.run(lambda: self._sync.rename(title, idempotency_key=idempotency_key))

    async def tag(self, *tags: str, idempotency_key: str | None = None) -> Operation:
        """Add tags; those it has already stay where they are."""
        return await self._portal.run(lambda: self._sync.tag(*tags, idempotency_key=idempotency_key))

    async def untag(self, *tags: str, idempotency_key: str | None = None) -> Operation:
        """Remove tags; one that it has not is no error."""
        return await self._portal.run(lambda: self._sync.untag(*tags, idempotency_key=idempotency_key))

    async def archive(self, *, idempotency_key: str | None = None) -> Operation:
        """Leave it out of listings unless they ask for archived sessions."""
        return await self._portal.run(lambda: self._sync.archive(idempotency_key=idempotency_key))

    async def unarchive(self, *, idempotency_key: str | None = None) -> Operation:
        """Put it back into listings."""
        return await self._portal.run(lambda: self._sync.unarchive(idempotency_key=idempotency_key))

    async def pin(self, *, idempotency_key: str | None = None) -> Operation:
        """Mark it for finding again."""
        return await self._portal.run(lambda: self._sync.pin(idempotency_key=idempotency_key))

    async def unpin(self, *, idempotency_key: str | None = None) -> Operation:
        """Take the mark away."""
        return await self._portal.run(lambda: self._sync.unpin(idempotency_key=idempotency_key))

    async def set_metadata(self, metadata: Mapping[str, Any], *, idempotency_key: str | None = None) -> Operation:
        """Replace the caller's own data."""
        return await self._portal.run(lambda: self._sync.set_metadata(metadata, idempotency_key=idempotency_key))

    async def refresh(self) -> AsyncSession:
        """Read the session's fields again."""
        await self._portal.run(lambda: self._sync.refresh())
        return self

    def __repr__(self) -> str:
        return f"<Async{repr(self._sync)[1:]}"

    def _repr_html_(self) -> str:
        return self._sync._repr_html_()

    async def __aenter__(self) -> AsyncSession:
        await self._portal.enter(
            self._sync.__enter__, lambda made: made.__exit__(CancelledError, CancelledError(), None)
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._portal.run(lambda: self._sync.__exit__(kind, error, trace))


class AsyncSessionState:
    """The state of a session; it goes back with a rewind."""

    def __init__(self, portal: Portal, sync: SessionState) -> None:
        self._portal, self._sync = portal, sync

    async def get(self, key: str, default: Any = None) -> Any:
        """Give the value of a key, or ``default``."""
        return await self._portal.run(lambda: self._sync.get(key, default))

    async def items(self) -> dict[str, Any]:
        """Give all keys with their values."""
        return await self._portal.run(lambda: self._sync.items())

    async def read(self) -> tuple[int, dict[str, Any]]:
        """Give the version and all keys with their values, as of one moment: what compare-and-set needs."""
        return await self._portal.run(lambda: self._sync.read())

    async def version(self) -> int:
        """Give the version of the state: 1 at first, higher with every change."""
        return await self._portal.run(lambda: self._sync.version())

    async def at(self, version: int) -> dict[str, Any]:
        """Give all keys and values as they were at a version."""
        return await self._portal.run(lambda: self._sync.at(version))

    async def set(
        self, key: str, value: Any, *, expected_version: int | None = None, idempotency_key: str | None = None
    ) -> int:
        """Set one key and give the new version; durable when this returns."""
        return await self._portal.run(
            lambda: self._sync.set(key, value, expected_version=expected_version, idempotency_key=idempotency_key)
        )

    async def update(
        self, values: Mapping[str, Any], *, expected_version: int | None = None, idempotency_key: str | None = None
    ) -> int:
        """Set several keys in one step and give the new version."""
        return await self._portal.run(
            lambda: self._sync.update(values, expected_version=expected_version, idempotency_key=idempotency_key)
        )

    async def delete(self, *keys: str, expected_version: int | None = None, idempotency_key: str | None = None) -> int:
        """Remove keys and give the version; a key that is absent is no error."""
        return await self._portal.run(
            lambda: self._sync.delete(*keys, expected_version=expected_version, idempotency_key=idempotency_key)
        )

    def __repr__(self) -> str:
        return f"<Async{repr(self._sync)[1:]}"


class AsyncToolRun:
    """One run of a tool, from entering to leaving; an exception inside becomes the call's error and goes on."""

    def __init__(self, portal: Portal, sync: ToolRun) -> None:
        self._portal, self._sync = portal, sync

    @property
    def message(self) -> Message | None:
        """As the blocking ``ToolRun`` holds it."""
        return self._sync.message

    @property
    def call(self) -> ToolCall:
        """The call that runs, known once it was entered."""
        return self._sync.call

    async def write(self, text: str) -> None:
        """Store a piece of what the tool gives while it runs: on disk within 0.2 seconds, and readers see it grow.

        All of it becomes the result, unless ``result`` is given another. If the run is cut off it is a message of its
        own, with the status ``interrupted``.
        """
        return await self._portal.run(lambda: self._sync.write(text))

    async def result(self, content: Any = None) -> Message:
        """Store what the tool gave, or else what was written; durable when this returns."""
        return await self._portal.run(lambda: self._sync.result(content))

    async def error(self, error: BaseException | str) -> Message:
        """Store that the tool failed, behind what was written, without raising."""
        return await self._portal.run(lambda: self._sync.error(error))

    def __repr__(self) -> str:
        return f"<Async{repr(self._sync)[1:]}"

    async def __aenter__(self) -> AsyncToolRun:
        await self._portal.enter(
            self._sync.__enter__, lambda made: made.__exit__(CancelledError, CancelledError(), None)
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._portal.run(lambda: self._sync.__exit__(kind, error, trace))


class AsyncStream:
    """An answer that is being written: ``with session.stream() as stream: stream.write(delta)``."""

    def __init__(self, portal: Portal, sync: Stream) -> None:
        self._portal, self._sync = portal, sync

    @property
    def message(self) -> Message | None:
        """As the blocking ``Stream`` holds it."""
        return self._sync.message

    @property
    def id(self) -> str:
        """Names the stream while it is open."""
        return self._sync.id

    async def write(self, delta: str, kind: str = "text") -> None:
        """Add what arrived: text, ``thinking``, or ``tool_input`` (a piece of JSON)."""
        return await self._portal.run(lambda: self._sync.write(delta, kind))

    async def flush(self) -> None:
        """Bring what arrived to disk now; it is there when this returns."""
        return await self._portal.run(lambda: self._sync.flush())

    async def finish(self, message: Any = None, usage: Any = None) -> Message:
        """Seal it with the provider's final message, kept verbatim, or with what was written; give what was stored."""
        return await self._portal.run(lambda: self._sync.finish(message, usage))

    async def cancel(self) -> Message | None:
        """Seal what arrived as cancelled; nothing is stored if nothing arrived."""
        return await self._portal.run(lambda: self._sync.cancel())

    def __repr__(self) -> str:
        return f"<Async{repr(self._sync)[1:]}"

    async def __aenter__(self) -> AsyncStream:
        await self._portal.enter(
            self._sync.__enter__, lambda made: made.__exit__(CancelledError, CancelledError(), None)
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._portal.run(lambda: self._sync.__exit__(kind, error, trace))


class AsyncRewind:
    """What going to ``target`` does to the conversation and to each path; ``print`` it, then ``apply`` it.

    ``kept`` are paths that somebody else changed, ``others`` those that another live session changed too: both stay.
    ``other_sessions`` names that session by its id. ``not_captured`` are paths that stay since their content is not
    known, ``not_written`` those that belong to a repository. ``target_at`` is when the point was reached. ``pending``
    says that an earlier change of these files was cut off: it is taken back first, and what is shown is what is done
    after that."""

    def __init__(self, portal: Portal, sync: Rewind) -> None:
        self._portal, self._sync = portal, sync

    @property
    def target(self) -> Point:
        """As the blocking ``Rewind`` holds it."""
        return self._sync.target

    @property
    def target_at(self) -> datetime:
        """As the blocking ``Rewind`` holds it."""
        return self._sync.target_at

    @property
    def to_seq(self) -> int:
        """As the blocking ``Rewind`` holds it."""
        return self._sync.to_seq

    @property
    def from_seq(self) -> int:
        """As the blocking ``Rewind`` holds it."""
        return self._sync.from_seq

    @property
    def turns(self) -> int:
        """As the blocking ``Rewind`` holds it."""
        return self._sync.turns

    @property
    def messages(self) -> int:
        """As the blocking ``Rewind`` holds it."""
        return self._sync.messages

    @property
    def stats(self) -> Stats:
        """As the blocking ``Rewind`` holds it."""
        return self._sync.stats

    @property
    def prompt(self) -> str | None:
        """As the blocking ``Rewind`` holds it."""
        return self._sync.prompt

    @property
    def is_empty(self) -> bool:
        """As the blocking ``Rewind`` holds it."""
        return self._sync.is_empty

    @property
    def files(self) -> tuple[FileChange, ...]:
        """As the blocking ``Rewind`` holds it."""
        return self._sync.files

    @property
    def kept(self) -> tuple[str, ...]:
        """As the blocking ``Rewind`` holds it."""
        return self._sync.kept

    @property
    def others(self) -> tuple[str, ...]:
        """As the blocking ``Rewind`` holds it."""
        return self._sync.others

    @property
    def other_sessions(self) -> dict[str, str]:
        """As the blocking ``Rewind`` holds it."""
        return self._sync.other_sessions

    @property
    def not_captured(self) -> tuple[str, ...]:
        """As the blocking ``Rewind`` holds it."""
        return self._sync.not_captured

    @property
    def not_written(self) -> tuple[str, ...]:
        """As the blocking ``Rewind`` holds it."""
        return self._sync.not_written

    @property
    def pending(self) -> str | None:
        """As the blocking ``Rewind`` holds it."""
        return self._sync.pending

    async def diff(self) -> str:
        """Give the difference that it makes to each path, as text."""
        return await self._portal.run(lambda: self._sync.diff())

    async def apply(self, *, take_over: bool = False) -> Operation:
        """Do it. If session or files have changed since the preview it is ``Conflict`` and nothing is touched.

        Somebody else who runs the session or one of its sub-agents is ``Busy``; with ``take_over`` their next write
        is ``LeaseLost``.
        """
        return await self._portal.run(lambda: self._sync.apply(take_over=take_over))

    def __repr__(self) -> str:
        return f"<Async{repr(self._sync)[1:]}"

    def _repr_html_(self) -> str:
        return self._sync._repr_html_()

    def __str__(self) -> str:
        return str(self._sync)


class AsyncAttachment:
    """One attachment of a message, as stored: bytes in the store, or a URL."""

    def __init__(self, portal: Portal, sync: Attachment) -> None:
        self._portal, self._sync = portal, sync

    @property
    def id(self) -> str:
        """As the blocking ``Attachment`` holds it."""
        return self._sync.id

    @property
    def type(self) -> str:
        """As the blocking ``Attachment`` holds it."""
        return self._sync.type

    @property
    def name(self) -> str | None:
        """As the blocking ``Attachment`` holds it."""
        return self._sync.name

    @property
    def mime_type(self) -> str | None:
        """As the blocking ``Attachment`` holds it."""
        return self._sync.mime_type

    @property
    def size(self) -> int | None:
        """As the blocking ``Attachment`` holds it."""
        return self._sync.size

    @property
    def hash(self) -> str | None:
        """As the blocking ``Attachment`` holds it."""
        return self._sync.hash

    @property
    def url(self) -> str | None:
        """As the blocking ``Attachment`` holds it."""
        return self._sync.url

    def open(self) -> AsyncReader:
        """Open the content for reading; memory holds one chunk, and a damaged one is ``Corrupt``."""
        return AsyncReader(self._portal, self._sync.open)

    async def read(self) -> bytes:
        """Read the content whole."""
        return await self._portal.run(lambda: self._sync.read())

    def to_dict(self) -> dict[str, Any]:
        """Give the fields as plain values."""
        return self._sync.to_dict()

    def __repr__(self) -> str:
        return f"<Async{repr(self._sync)[1:]}"


def aopen(
    url: str | PathLike[str] | None = None,
    *,
    scope: str | None = None,
    durability: str = "full",
    read_only: bool = False,
    clock: Clock | None = None,
) -> Opening[AsyncStore]:
    """Open a store for tasks: ``async with takeback.aopen(url) as store``; takes what ``takeback.open`` takes."""

    async def opening() -> AsyncStore:
        portal = Portal()
        try:
            sync = await portal.run(
                lambda: open_store(url, scope=scope, durability=durability, read_only=read_only, clock=clock)
            )
        except BaseException:
            portal.abandon()
            raise
        return AsyncStore(portal, sync)

    return Opening(opening)
