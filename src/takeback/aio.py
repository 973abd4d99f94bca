"""The awaitable API: the same names as the blocking one, with ``await``, ``async with`` and ``async for``.

Generated from the blocking classes by tools/gen_aio.py; do not edit. Attributes are what a handle holds; every
method runs in a thread of the portal and finishes even when the task that awaits it is cancelled.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from functools import partial
from os import PathLike
from types import TracebackType
from typing import Any, BinaryIO, Literal, Unpack, overload

from .client.agent import Agent
from .client.attachments import Attachable
from .client.documents import Documents
from .client.open import LOCK_TIMEOUT, open_store
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
from .client.workspace import Workspace
from .clock import Clock
from .context.tokens import Count
from .context.value import Context
from .model import Bound
from .model.approval import Approval
from .model.attachment import Attachment
from .model.branch import Branch
from .model.capture import Capture
from .model.checkpoint import Checkpoint
from .model.comparison import Comparison
from .model.copied import Copying
from .model.document import Document, Namespace
from .model.entry import Entry
from .model.exchange import Exported, Loaded
from .model.feed import Change
from .model.files import Diff, FileChange, FileDiff, FileState
from .model.items import Custom, Written
from .model.message import Message
from .model.operation import Operation
from .model.page import Page
from .model.purge import Pruned, Purged
from .model.redaction import Redaction
from .model.report import Repaired, Report
from .model.scan import Scan
from .model.search import Hits
from .model.session import Head, Stats, StoreStats
from .model.spending import Spent
from .model.subagents import Sent, Spawned, Tree
from .model.tools import ToolCall
from .model.work import Compaction, FileTouched, Note, Task
from .portal import AsyncReader, Opening, Portal, unwrap, wrapped
from .presence import Holder
from .storage.base import Capabilities


class AsyncStore(Bound):
    """An open store, seen from one scope; a context manager that any thread may use."""

    def __init__(self, portal: Portal, opening: Callable[[], Store], store: Store | None = None) -> None:
        self._portal, self._opening, self._store = portal, opening, store
        if store is not None:
            store._attachment.wrap = partial(AsyncAttachment, portal)

    @property
    def _sync(self) -> Store:
        return self._store or self._open()

    def _open(self) -> Store:
        with self._portal.opening():
            if self._store is None:
                store = self._opening()
                store._attachment.wrap = partial(AsyncAttachment, self._portal)
                self._store = store
            return self._store

    def _shut(self) -> None:
        with self._portal.opening():
            if self._store is not None:
                self._store.close()

    def __await__(self) -> Generator[Any, None, AsyncStore]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> AsyncStore:
        if self._store is None:
            try:
                await self._portal.run(self._open)
            except BaseException:  # cancelled, or it did not open
                self._portal.rest()
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop automatic checkpoints, release all leases, finish pending writes and close the files.

        A handle returned by ``scoped`` only stops its own automatic checkpoints: the connections stay open.
        """
        if self._store is None or self._store._owner:
            await self._portal.close(self._shut)

    def __repr__(self) -> str:
        return "<AsyncStore, not open yet>" if self._store is None else f"<Async{repr(self._store)[1:]}"

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

    def get_session(
        self,
        id_name_or_key: str,
        *,
        agent: str | AsyncAgent | None = None,
        workspace: str | PathLike[str] | None = None,
        wait: float = 0,
    ) -> Opening[AsyncSession]:
        """Return a session by its exact id (even one in the trash), key or name; nothing is parsed.

        Raises ``Ambiguous`` if sessions of several agents or workspaces have that name: pass those too. ``wait`` is how
        many seconds entering the session waits for whoever runs it, before it raises ``Busy``.
        """

        async def opening() -> AsyncSession:
            return AsyncSession(
                self._portal,
                await self._portal.run(
                    lambda: self._sync.get_session(id_name_or_key, agent=unwrap(agent), workspace=workspace, wait=wait)
                ),
            )

        return Opening(opening)

    async def find_session(
        self,
        id_name_or_key: str,
        *,
        agent: str | AsyncAgent | None = None,
        workspace: str | PathLike[str] | None = None,
        wait: float = 0,
    ) -> AsyncSession | None:
        """Return a session by its exact id, key or name, or None; ``wait`` is as in ``get_session``."""
        return (lambda found: AsyncSession(self._portal, found) if isinstance(found, Session) else found)(
            await self._portal.run(
                lambda: self._sync.find_session(id_name_or_key, agent=unwrap(agent), workspace=workspace, wait=wait)
            )
        )

    async def resolve(self, ref: str, workspace: str | PathLike[str] | None = None) -> Resolved[AsyncSession]:
        """Parse a ref as people type it: a key, a name, an id or its beginning, ``@`` or ``@-1``; then a point.

        ``REF:12`` is the end of turn 12, ``REF:12^`` the point before it, ``REF:e340`` entry 340, ``REF:name`` a
        checkpoint, ``REF/branch`` a branch. Raises ``Ambiguous`` with the candidates if several sessions match.
        """
        return (lambda found: Resolved(AsyncSession(self._portal, found.session), *found[1:]))(
            await self._portal.run(lambda: self._sync.resolve(ref, workspace))
        )

    async def list_sessions(
        self,
        *,
        agent: str | AsyncAgent | None = None,
        kinds: str | Iterable[str] | None = None,
        status: str | Iterable[str] | None = None,
        label: str | None = None,
        tag: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        workspace: str | PathLike[str] | None = None,
        parent: str | AsyncSession | None = None,
        active_only: bool = False,
        archived: bool | None = False,
        pinned: bool | None = None,
        since: datetime | None = None,
        trash: bool = False,
        order: str = "updated",
        with_state: Iterable[str] = (),
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[AsyncSession]:
        """List sessions, last changed first, or newest first with ``order="created"``.

        ``"updated_asc"`` starts with the one whose last change is the oldest. Sessions that were imported, or created
        with ``created_at``, are listed when things happened in them. ``metadata`` asks for sessions whose metadata has
        all these names with equal values: text, numbers, True, False or None. ``with_state`` names values of the
        session's state to read along, into ``state_values``.

        Pass the page's cursor to get the next page. Archived sessions are left out, except from the trash, unless
        ``archived`` is True (only those) or None (both). The page's ``damaged`` names sessions with a damaged record.
        """
        return (lambda page: Page([AsyncSession(self._portal, each) for each in page], page.cursor, page.damaged))(
            await self._portal.run(
                lambda: self._sync.list_sessions(
                    agent=unwrap(agent),
                    kinds=kinds,
                    status=status,
                    label=label,
                    tag=tag,
                    metadata=metadata,
                    workspace=workspace,
                    parent=unwrap(parent),
                    active_only=active_only,
                    archived=archived,
                    pinned=pinned,
                    since=since,
                    trash=trash,
                    order=order,
                    with_state=with_state,
                    limit=limit,
                    cursor=cursor,
                )
            )
        )

    async def search(
        self,
        query: str,
        *,
        roles: str | Iterable[str] = (),
        kinds: str | Iterable[str] = (),
        agent: str | AsyncAgent | None = None,
        session: AsyncSession | str | None = None,
        workspace: str | PathLike[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        path: str | PathLike[str] | None = None,
        tool: str | Iterable[str] | None = None,
        group: str = "message",
        branches: bool = False,
        explain: bool = False,
        limit: int = 20,
        cursor: str | None = None,
        progress: Callable[[int, int | None], object] | None = None,
        hide: Callable[[str], str] | None = None,
    ) -> Hits:
        """Search messages, tool inputs and outputs, plans, tasks, notes, file paths and titles of all sessions.

        A query is words, all of which must be there, whole or as parts of longer words; ``"a phrase"``, ``begin*``,
        ``-without``, ``one OR other``. Case and accents do not matter, and every script can be searched. Whole words
        come first. If no entry has all the words, entries with some of them are returned; if a dash leaves out
        everything, those that have the query as it stands.

        ``roles`` and ``kinds`` add to each other; ``path`` asks for entries with a path in them, as a phrase. Without
        words, any filter but ``workspace`` finds all there is, newest first. By default only what is on the current
        path of a session that is not in the trash is found; ``branches`` adds branches that were left. With
        ``group="session"`` each session is one hit, its best. Pass the page's cursor to get the next page. What is new
        since the last search is indexed first; ``progress`` is called with how many changes were read, and of how many.
        ``hide`` is applied to each text before a part of it becomes a snippet, to hide secrets in it.
        """
        return await self._portal.run(
            lambda: self._sync.search(
                query,
                roles=roles,
                kinds=kinds,
                agent=unwrap(agent),
                session=unwrap(session),
                workspace=workspace,
                since=since,
                until=until,
                path=path,
                tool=tool,
                group=group,
                branches=branches,
                explain=explain,
                limit=limit,
                cursor=cursor,
                progress=progress,
                hide=hide,
            )
        )

    async def rebuild_search(self, *, progress: Callable[[int, int | None], object] | None = None) -> None:
        """Make the search index anew; nothing else needs it, and a damaged one is made anew by itself."""
        return await self._portal.run(lambda: self._sync.rebuild_search(progress=progress))

    async def check_search(self) -> Report:
        """Report what is wrong with the search index, by real searches for what the store holds; changes nothing."""
        return await self._portal.run(lambda: self._sync.check_search())

    def iter_sessions(self, **filters: Any) -> AsyncIterator[AsyncSession]:
        """Yield sessions, read in pages; takes the filters of ``list_sessions``."""
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
        """Create an agent at version 1; raises ``Conflict`` if the id is taken."""
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
        """Change fields of an agent in one operation; raises ``Conflict`` if it is not at ``expected_version``."""
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

    async def save_agent(
        self,
        id: str | AsyncAgent,
        *,
        state: Mapping[str, Any] | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> AsyncAgent:
        """Create an agent, or change the fields that are given, and set keys of its state, all in one step.

        Raises ``Conflict`` if it is not at ``expected_version``; 0 means that it must not exist yet.
        """
        return AsyncAgent(
            self._portal,
            await self._portal.run(
                lambda: self._sync.save_agent(
                    unwrap(id),
                    state=state,
                    expected_version=expected_version,
                    idempotency_key=idempotency_key,
                    **{key: unwrap(value) for key, value in fields.items()},
                )
            ),
        )

    async def get_agent(self, id: str) -> AsyncAgent:
        """Return the agent with exactly this id, or raise ``NotFound``."""
        return AsyncAgent(self._portal, await self._portal.run(lambda: self._sync.get_agent(id)))

    async def find_agent(self, id: str) -> AsyncAgent | None:
        """Return the agent with exactly this id, or None."""
        return (lambda found: AsyncAgent(self._portal, found) if isinstance(found, Agent) else found)(
            await self._portal.run(lambda: self._sync.find_agent(id))
        )

    async def list_agents(self, *, limit: int = 100, cursor: str | None = None) -> Page[AsyncAgent]:
        """List agents in the order of their ids; pass the page's cursor to get the next page."""
        return (lambda page: Page([AsyncAgent(self._portal, each) for each in page], page.cursor, page.damaged))(
            await self._portal.run(lambda: self._sync.list_agents(limit=limit, cursor=cursor))
        )

    async def delete_agent(self, id: str | AsyncAgent) -> Operation | None:
        """Move an agent with all its sessions to the trash in one step; None if it is absent; ``undo`` restores it.

        A checkpoint of type ``pre-operation`` is taken first, unless the last one is still current.
        """
        return await self._portal.run(lambda: self._sync.delete_agent(unwrap(id)))

    def session(
        self,
        name_or_session: str | AsyncSession | None = None,
        *,
        agent: str | AsyncAgent = "main",
        workspace: str | PathLike[str] | None = None,
        wait: float = 0,
        take_over: bool = False,
        hold: bool = True,
        capture: str | Capture = "calls",
        **fields: Unpack[NewSession],
    ) -> Opening[AsyncSession]:
        """Return the session of this name, agent and workspace, ready to run; create it if new or unnamed.

        This takes the lease. If somebody else runs the session, wait up to ``wait`` seconds, then raise ``Busy``; with
        ``take_over`` their next write raises ``LeaseLost`` instead. A finished session is reopened. Leaving the
        ``with`` block, closing the store or dropping the handle releases the lease. With ``hold=False`` no lease is
        taken, so that many writers can append to one session. ``capture`` controls when the workspace is scanned (see
        ``Capture``). The other fields apply to a new session only, for which ``workspace`` must be a directory that
        exists. ``created_at`` is when it began, if that was earlier: it is then listed there until something happens
        in it later.
        """

        async def opening() -> AsyncSession:
            return AsyncSession(
                self._portal,
                await self._portal.wait(
                    lambda: self._sync.session(
                        unwrap(name_or_session),
                        agent=unwrap(agent),
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
        agent: str | AsyncAgent = "main",
        workspace: str | PathLike[str] | None = None,
        model: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        wait: float = 0,
        idempotency_key: str | None = None,
    ) -> Spawned[AsyncSession]:
        """Start a sub-agent for a task, under ``parent`` if given; ``Session.spawn`` passes its own session.

        Raises ``Conflict`` if the parent is finished, or if one of its sub-agents has this label already. With an
        ``idempotency_key`` the same call again, even after a crash, returns the same sub-agent, which can be entered
        again; ``wait`` is how many seconds that waits for whoever still runs it.
        """
        return (lambda found: Spawned(*found[:-1], AsyncSession(self._portal, found.session)))(
            await self._portal.run(
                lambda: self._sync.spawn(
                    task,
                    parent=unwrap(parent),
                    label=label,
                    agent=unwrap(agent),
                    workspace=workspace,
                    model=model,
                    metadata=metadata,
                    wait=wait,
                    idempotency_key=idempotency_key,
                )
            )
        )

    def main_session(self, agent: str | AsyncAgent = "main", *, wait: float = 0) -> Opening[AsyncSession]:
        """Return an agent's main session, creating it if it is new.

        ``wait`` is how many seconds entering it waits for whoever runs it, before it raises ``Busy``.
        """

        async def opening() -> AsyncSession:
            return AsyncSession(
                self._portal, await self._portal.run(lambda: self._sync.main_session(unwrap(agent), wait=wait))
            )

        return Opening(opening)

    def cron_session(self, agent: str | AsyncAgent, name: str, *, wait: float = 0) -> Opening[AsyncSession]:
        """Return the session of an agent's scheduled job, creating it if it is new.

        ``wait`` is how many seconds entering it waits for a run that still goes on, before it raises ``Busy``.
        """

        async def opening() -> AsyncSession:
            return AsyncSession(
                self._portal, await self._portal.run(lambda: self._sync.cron_session(unwrap(agent), name, wait=wait))
            )

        return Opening(opening)

    def directory_session(
        self, path: str | PathLike[str], *, agent: str | AsyncAgent = "main", wait: float = 0
    ) -> Opening[AsyncSession]:
        """Return the session of a directory, creating it if it is new; the directory must exist.

        Symbolic links lead to the same session, and a directory that was moved keeps its own. ``wait`` is how many
        seconds entering it waits for whoever runs it, before it raises ``Busy``.
        """

        async def opening() -> AsyncSession:
            return AsyncSession(
                self._portal,
                await self._portal.run(lambda: self._sync.directory_session(path, agent=unwrap(agent), wait=wait)),
            )

        return Opening(opening)

    def get_or_create_session(self, directory: str | PathLike[str]) -> Opening[AsyncSession]:
        """Return the session of a directory, creating it if new: ``directory_session`` of the main agent."""

        async def opening() -> AsyncSession:
            return AsyncSession(
                self._portal, await self._portal.run(lambda: self._sync.get_or_create_session(directory))
            )

        return Opening(opening)

    async def save_session(self, session: AsyncSession) -> None:
        """Check that a session is stored; there is nothing to write, since every call is durable when it returns.

        Raises ``Conflict`` if it was deleted meanwhile and ``NotFound`` if it was purged: it is never created again.
        """
        return await self._portal.run(lambda: self._sync.save_session(unwrap(session)))

    def create_session(
        self,
        name: str | None = None,
        *,
        agent: str | AsyncAgent = "main",
        workspace: str | PathLike[str] | None = None,
        idempotency_key: str | None = None,
        **fields: Unpack[NewSession],
    ) -> Opening[AsyncSession]:
        """Create a session; raises ``Conflict`` if a visible one of this agent and workspace has the name.

        ``workspace`` must be a directory that exists. ``created_at`` is when the session began, if that was earlier:
        it is then listed there until something happens in it later.
        """

        async def opening() -> AsyncSession:
            return AsyncSession(
                self._portal,
                await self._portal.run(
                    lambda: self._sync.create_session(
                        name,
                        agent=unwrap(agent),
                        workspace=workspace,
                        idempotency_key=idempotency_key,
                        **{key: unwrap(value) for key, value in fields.items()},
                    )
                ),
            )

        return Opening(opening)

    async def delete_session(self, session: str | AsyncSession, *, subagents: bool = True) -> Operation | None:
        """Move a session to the trash, by id, key or name, with all sub-agents below it; None if there is none.

        A main, directory or cron session is emptied instead. With ``subagents=False`` the sub-agents stay. ``undo`` and
        ``restore_session`` bring back everything that went with it.
        """
        return await self._portal.run(lambda: self._sync.delete_session(unwrap(session), subagents=subagents))

    async def restore_session(self, session: str | AsyncSession) -> Operation | None:
        """Take a session out of the trash, by its id; if its name is taken by now, `` (2)`` is appended.

        The sub-agents that went to the trash with it come back too; those deleted on their own stay there.
        """
        return await self._portal.run(lambda: self._sync.restore_session(unwrap(session)))

    async def purge_session(
        self, session: str | AsyncSession, *, include_forks: bool = False, subagents: bool = True
    ) -> Purged:
        """Erase a session for good, by id, key or name, with all sub-agents below it; this cannot be undone.

        Entries that forks need are kept and reported, unless ``include_forks`` purges those too. With
        ``subagents=False`` the sub-agents stay. It is not an error if the session does not exist.
        """
        return await self._portal.run(
            lambda: self._sync.purge_session(unwrap(session), include_forks=include_forks, subagents=subagents)
        )

    async def checkpoint_agent(
        self,
        agent: str | AsyncAgent,
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
        return await self._portal.run(
            lambda: self._sync.checkpoint_agent(
                unwrap(agent), name, description=description, type=type, idempotency_key=idempotency_key
            )
        )

    async def restore_checkpoint(self, checkpoint: str | Checkpoint, *, take_over: bool = False) -> AsyncAgent:
        """Restore an agent to a checkpoint, all or nothing: its fields, its state, and where its sessions were.

        The checkpoint is verified against its checksum first (``Corrupt`` before anything changes), and the current
        state is saved in a checkpoint of type ``recovery``. Sessions created later go to the trash, or back to empty
        where one must always exist; those deleted since come back, purged ones do not. Names, titles, tags and status
        of sessions stay as they are, and files in workspaces are not touched. ``undo`` takes it all back.

        Raises ``Busy`` if somebody else runs a session that has to change; with ``take_over`` their next write raises
        ``LeaseLost`` instead. A session run through this store continues from its restored head.
        """
        return AsyncAgent(
            self._portal, await self._portal.run(lambda: self._sync.restore_checkpoint(checkpoint, take_over=take_over))
        )

    async def list_checkpoints(
        self,
        of: str | AsyncAgent | AsyncSession,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        newest: bool = False,
    ) -> Page[Checkpoint]:
        """List the checkpoints of an agent or session in the order they were taken, or with ``newest`` the other way.

        A string is looked up as the id of an agent, then of a session, then of an agent in the trash. Without a
        ``limit`` all of them are listed; else pass the page's cursor to get the next page.
        """
        return await self._portal.run(
            lambda: self._sync.list_checkpoints(unwrap(of), limit=limit, cursor=cursor, newest=newest)
        )

    async def get_checkpoint(self, id: str) -> Checkpoint:
        """Return a checkpoint of an agent or session by its id."""
        return await self._portal.run(lambda: self._sync.get_checkpoint(id))

    async def delete_checkpoint(self, checkpoint: str | Checkpoint) -> None:
        """Erase a checkpoint of an agent or session, if it exists. This cannot be undone.

        Only the checkpoint is erased: what it named stays where it is, and later checkpoints still work.
        """
        return await self._portal.run(lambda: self._sync.delete_checkpoint(checkpoint))

    async def start_auto_checkpoint(
        self, agents: str | AsyncAgent | Iterable[str | AsyncAgent], *, interval: float = 300, keep: int = 10
    ) -> None:
        """Take a checkpoint of agents now, and again every ``interval`` seconds if something changed.

        They have the type ``automatic``, and only the newest ``keep`` of those are kept for each agent; no others are
        ever removed. This runs in the background until ``stop_auto_checkpoint`` or until the store is closed; starting
        it again replaces it. A later failure is kept in ``auto_checkpoint_error`` and warned about once.
        """
        return await self._portal.run(
            lambda: self._sync.start_auto_checkpoint(unwrap(agents), interval=interval, keep=keep)
        )

    async def stop_auto_checkpoint(self) -> None:
        """Stop taking automatic checkpoints; does nothing if none are being taken."""
        return await self._portal.run(lambda: self._sync.stop_auto_checkpoint())

    @property
    def auto_checkpoint_error(self) -> BaseException | None:
        """The error of the last automatic checkpoint; None if it succeeded."""
        return self._sync.auto_checkpoint_error

    def scoped(self, scope: str | None) -> AsyncStore:
        """Return a handle on another scope over the same connections."""
        return (lambda made: AsyncStore(self._portal, lambda: made, made))(self._sync.scoped(scope))

    async def scopes(self) -> list[str]:
        """List the scopes that hold anything, in order; the default scope is the empty string.

        Raises ``Invalid`` on a handle that is bound to one scope: it cannot see the others. Raises ``Unsupported``
        where PostgreSQL's row security shows this role only one scope at a time.
        """
        return await self._portal.run(lambda: self._sync.scopes())

    async def operations(self, *, limit: int = 100, cursor: str | None = None) -> Page[Operation]:
        """List the operations of this scope, newest first."""
        return await self._portal.run(lambda: self._sync.operations(limit=limit, cursor=cursor))

    async def get_operation(self, id: str) -> Operation:
        """Return an operation by its id, or raise ``NotFound``."""
        return await self._portal.run(lambda: self._sync.get_operation(id))

    async def prune(self, policy: str = "unreferenced", *, dry_run: bool = True, spare_seconds: float = 3600) -> Pruned:
        """Erase contents that nothing refers to any more; by default only report how much that would free.

        Contents stored within the last ``spare_seconds`` are kept, since somebody may be about to refer to them.
        ``unreferenced`` is the only policy so far; nothing is ever pruned unless you call this. Before anything is
        erased, each agent with sessions gets a checkpoint of type ``pre-operation``, unless its last one is still
        current; on a full disk that checkpoint is skipped.
        """
        return await self._portal.run(lambda: self._sync.prune(policy, dry_run=dry_run, spare_seconds=spare_seconds))

    async def undo(self, op: Operation | str | None = None, *, take_over: bool = False) -> Operation:
        """Undo the last operation made through this handle, or a given one.

        Raises ``Conflict`` if a later operation changed the same thing, and ``Busy`` if files would change while
        somebody else works there, unless ``take_over`` is given.
        """
        return await self._portal.run(lambda: self._sync.undo(op, take_over=take_over))

    async def redo(self, *, take_over: bool = False) -> Operation:
        """Redo what the last undo made through this handle took back; ``take_over`` is as in ``undo``."""
        return await self._portal.run(lambda: self._sync.redo(take_over=take_over))

    def workspace(self, path: str | PathLike[str]) -> AsyncWorkspace:
        """Return a directory of this machine: who changed what in it, and its files back at any moment."""
        return AsyncWorkspace(self._portal, self._sync.workspace(path))

    def docs(self, namespace: str | Sequence[str]) -> AsyncDocuments:
        """Return the documents of a namespace: a string, or several as a tuple or list.

        They belong to the scope, not to a session: a rewind leaves them alone. Only the current version is kept.
        """
        return AsyncDocuments(self._portal, self._sync.docs(namespace))

    async def put_content(self, data: bytes) -> str:
        """Store bytes once per scope and return their SHA-256, by which entries can link them.

        ``prune`` erases content that nothing links; storing it, or storing it again, spares it for ``spare_seconds``.
        """
        return await self._portal.run(lambda: self._sync.put_content(data))

    async def get_content(self, hash: str) -> bytes:
        """Return content by its hash; raises ``NotFound`` if this scope does not have it."""
        return await self._portal.run(lambda: self._sync.get_content(hash))

    def events(self, after: str | None = None) -> AsyncIterator[Change]:
        """Yield every change after a cursor up to now, in commit order."""
        return self._portal.iterate(lambda: self._sync.events(after))

    def follow(self, after: str | None = None) -> AsyncIterator[Change]:
        """Yield every change after a cursor, then each new one soon after its commit, until the store is closed.

        A reader that was away continues from its last cursor and misses nothing. On PostgreSQL a notification wakes it;
        otherwise it polls.
        """
        return self._portal.follow(lambda stopped: self._sync._follow(after, stopped))

    async def find_entries(
        self, id: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[tuple[AsyncSession, Message | Custom | Entry]]:
        """List the entries of all sessions that were given this id, each with its session.

        Several sessions may use one id, and the forks of a session have its entries, too. A page holds ``limit``
        entries, each once per session that has it. Sessions in the trash are left out.
        """
        return (
            lambda page: Page(
                [(AsyncSession(self._portal, each[0]), each[1]) for each in page], page.cursor, page.damaged
            )
        )(await self._portal.run(lambda: self._sync.find_entries(id, limit=limit, cursor=cursor)))

    async def spending(
        self,
        by: str = "model",
        *,
        session: AsyncSession | str | None = None,
        agent: str | AsyncAgent | None = None,
        workspace: str | PathLike[str] | None = None,
        since: datetime | None = None,
        time_zone: tzinfo | None = None,
    ) -> list[Spent]:
        """Count what was spent by ``model``, ``day``, ``agent`` or ``tool``: every entry of every branch once.

        That is of one session, or of all that are not in the trash, archived ones included. Costs stored with the
        messages count as they are; others are the list price of their model at the time, if ``takeback[prices]`` is
        installed. ``unpriced`` of a result says what has no known cost. Days are those of UTC, or of ``time_zone``.
        Everything that was said is read, in pages.
        """
        return await self._portal.run(
            lambda: self._sync.spending(
                by, session=unwrap(session), agent=unwrap(agent), workspace=workspace, since=since, time_zone=time_zone
            )
        )

    async def waiting(self, *, limit: int = 100, cursor: str | None = None) -> Page[tuple[AsyncSession, Approval]]:
        """List the tool calls that wait for a person's answer, over all sessions, each with its session.

        Answer with ``session.answer_approval(approval.call, True)``. Sessions that ended or are in the trash are left
        out. Pass the page's cursor to get the next page.
        """
        return (
            lambda page: Page(
                [(AsyncSession(self._portal, each[0]), each[1]) for each in page], page.cursor, page.damaged
            )
        )(await self._portal.run(lambda: self._sync.waiting(limit=limit, cursor=cursor)))

    async def stats(self) -> StoreStats:
        """Count what this scope holds; the byte count is that of the whole store on disk."""
        return await self._portal.run(lambda: self._sync.stats())

    async def verify(self, *, progress: Callable[[int], None] | None = None) -> Report:
        """Recompute every checksum and hash of the store, in all scopes, without changing anything.

        ``progress`` is called from time to time with the number of records checked so far.
        """
        return await self._portal.run(lambda: self._sync.verify(progress=progress))

    async def backup(self, path: str | PathLike[str], *, progress: Callable[[int], None] | None = None) -> Report:
        """Copy the whole store, all scopes, into a new file as of one moment, and verify the copy.

        The store may stay in use. The file appears only once it is complete, and opens like any store. The report names
        damage that was copied along, and what a file leaves out of a server. Raises ``Conflict`` if the file exists,
        and ``Invalid`` on a handle bound to one scope, since the backup holds all of them. ``progress`` works as in
        ``verify``.
        """
        return await self._portal.run(lambda: self._sync.backup(path, progress=progress))

    async def repair(self, to: str | PathLike[str] | None = None) -> Repaired:
        """Copy everything undamaged into a new store, verify the copy, and report what was lost.

        By default the copy goes next to the store, with ``.repaired`` added to its name. Raises ``Conflict`` if that
        file exists. This store is not changed and may stay in use.
        """
        return await self._portal.run(lambda: self._sync.repair(to))

    async def export(
        self,
        sessions: AsyncSession | str | Iterable[AsyncSession | str],
        to: str | PathLike[str] | BinaryIO,
        *,
        format: str = "jsonl",
        subagents: bool = True,
        documents: bool = False,
        tools: str = "short",
        secrets: str = "mask",
        at: Point | None = None,
        progress: Callable[[Copying], Any] | None = None,
    ) -> Exported:
        """Write sessions (handles or ids) to a file, which appears complete or not at all, or to an open binary file.

        ``jsonl`` is the lossless form that ``load`` reads back; likely secrets in it are only counted, never masked. It
        includes sub-agents unless ``subagents`` is False, and whatever else the sessions depend on; with ``documents``
        also the documents of this scope (``docs``). ``markdown`` and ``html`` render one session as a document:
        ``tools`` is ``full``, ``short`` or ``none``, ``secrets`` is ``mask`` or ``keep``, and the document ends
        at the point ``at``.
        """
        return await self._portal.run(
            lambda: self._sync.export(
                unwrap(sessions),
                to,
                format=format,
                subagents=subagents,
                documents=documents,
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
        """Load sessions from a ``jsonl`` export or a mirror directory; loading the same one again changes nothing.

        The input is checked first: if it is truncated, altered or forged this raises ``Corrupt`` and stores nothing.
        Loaded sessions have no workspace, whatever the file says, and no directory gets its timeline from a file; with
        ``workspace`` those that had one get that one. A name that is taken gets `` (2)`` appended. A session that is
        here already keeps its place and gets what is new. One that was changed on both sides raises ``Conflict``, after
        everything else is loaded. A document of the file whose name is taken here by another one is left out.
        ``progress`` is called with the number of lines read.
        """
        return await self._portal.run(
            lambda: self._sync.load(path, workspace=workspace, dry_run=dry_run, progress=progress)
        )


class AsyncAgent(Bound):
    """An agent as last read; ``refresh`` reads it again."""

    def __init__(self, portal: Portal, sync: Agent) -> None:
        self._portal, self._sync = portal, sync

    @property
    def id(self) -> str:
        """The id given by its creator, unique within its scope."""
        return self._sync.id

    @property
    def name(self) -> str | None:
        """The name shown to people."""
        return self._sync.name

    @property
    def type(self) -> str:
        """The type of agent, as the caller defines it."""
        return self._sync.type

    @property
    def system_prompt(self) -> str | None:
        """The system prompt that its contexts begin with."""
        return self._sync.system_prompt

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What the agent can do, as the caller defines it."""
        return self._sync.capabilities

    @property
    def config(self) -> dict[str, Any]:
        """The agent's settings."""
        return self._sync.config

    @property
    def metadata(self) -> dict[str, Any]:
        """The caller's own metadata."""
        return self._sync.metadata

    @property
    def version(self) -> int:
        """Starts at 1 and grows with every change to its fields or state."""
        return self._sync.version

    @property
    def created_at(self) -> datetime:
        """When the agent was created."""
        return self._sync.created_at

    @property
    def modified_at(self) -> datetime:
        """When the agent last changed."""
        return self._sync.modified_at

    @property
    def state(self) -> AsyncAgentState:
        """The agent's versioned state."""
        return AsyncAgentState(self._portal, self._sync.state)

    def sessions(self) -> AsyncIterator[AsyncSession]:
        """Yield its sessions, archived ones included, last changed first."""
        return wrapped(
            self._portal.iterate(lambda: self._sync.sessions()), lambda each: AsyncSession(self._portal, each)
        )

    def active_sessions(self) -> AsyncIterator[AsyncSession]:
        """Yield its active sessions, last changed first."""
        return wrapped(
            self._portal.iterate(lambda: self._sync.active_sessions()), lambda each: AsyncSession(self._portal, each)
        )

    async def refresh(self) -> AsyncAgent:
        """Read the agent's fields again."""
        await self._portal.run(lambda: self._sync.refresh())
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return its fields as plain values."""
        return self._sync.to_dict()

    def __repr__(self) -> str:
        return f"<Async{repr(self._sync)[1:]}"


class AsyncAgentState(Bound):
    """The state of an agent; only restoring a checkpoint of the agent takes it back."""

    def __init__(self, portal: Portal, sync: AgentState) -> None:
        self._portal, self._sync = portal, sync

    async def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, or ``default``."""
        return await self._portal.run(lambda: self._sync.get(key, default))

    async def items(self) -> dict[str, Any]:
        """Return all keys with their values."""
        return await self._portal.run(lambda: self._sync.items())

    async def read(self) -> tuple[int, dict[str, Any]]:
        """Return the version with all keys and values, as of one moment: what compare-and-set needs."""
        return await self._portal.run(lambda: self._sync.read())

    async def version(self) -> int:
        """Return the version of the state: 1 at first, higher with every change."""
        return await self._portal.run(lambda: self._sync.version())

    async def at(self, version: int) -> dict[str, Any]:
        """Return all keys and values as they were at a version."""
        return await self._portal.run(lambda: self._sync.at(version))

    async def set(
        self, key: str, value: Any, *, expected_version: int | None = None, idempotency_key: str | None = None
    ) -> int:
        """Set one key and return the new version; durable when this returns."""
        return await self._portal.run(
            lambda: self._sync.set(key, value, expected_version=expected_version, idempotency_key=idempotency_key)
        )

    async def update(
        self,
        values: Mapping[str, Any],
        *,
        delete: Iterable[str] = (),
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> int:
        """Set several keys, and remove others, in one step and return the new version."""
        return await self._portal.run(
            lambda: self._sync.update(
                values, delete=delete, expected_version=expected_version, idempotency_key=idempotency_key
            )
        )

    async def delete(self, *keys: str, expected_version: int | None = None, idempotency_key: str | None = None) -> int:
        """Remove keys and return the version; keys that are absent are ignored."""
        return await self._portal.run(
            lambda: self._sync.delete(*keys, expected_version=expected_version, idempotency_key=idempotency_key)
        )

    def __repr__(self) -> str:
        return f"<Async{repr(self._sync)[1:]}"


class AsyncSession(Bound):
    """One conversation of an agent; ``with session:`` runs it, and each write is durable when its call returns."""

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
        """Globally unique; ids sort by time of creation."""
        return self._sync.id

    @property
    def key(self) -> str:
        """How other agents address it: unique, of the form ``agent:<id>:...``."""
        return self._sync.key

    @property
    def name(self) -> str | None:
        """The name given by its creator."""
        return self._sync.name

    @property
    def label(self) -> str | None:
        """The label given by its parent."""
        return self._sync.label

    @property
    def title(self) -> str | None:
        """The title in listings: from ``rename``, or derived from the prompt or first user message."""
        return self._sync.title

    @property
    def agent_id(self) -> str:
        """The id of the agent that owns it."""
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
        """The workspace named in the export that it was loaded from; for display only."""
        return self._sync.came_from

    @property
    def tags(self) -> tuple[str, ...]:
        """Its tags, in the order they were added."""
        return self._sync.tags

    @property
    def archived(self) -> bool:
        """Whether listings leave it out by default."""
        return self._sync.archived

    @property
    def pinned(self) -> bool:
        """Whether it is pinned."""
        return self._sync.pinned

    @property
    def deleted(self) -> bool:
        """Whether it is in the trash."""
        return self._sync.deleted

    @property
    def prompt(self) -> str | None:
        """The prompt that it was created with."""
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
        """The task that its parent gave it."""
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
        """The caller's own metadata."""
        return self._sync.metadata

    @property
    def created_at(self) -> datetime:
        """When it was created."""
        return self._sync.created_at

    @property
    def updated_at(self) -> datetime:
        """When it last changed, or if that was stored later, when the last thing in it happened."""
        return self._sync.updated_at

    @property
    def last_message_at(self) -> datetime | None:
        """When the message that was last added was said."""
        return self._sync.last_message_at

    @property
    def head(self) -> Head:
        """Where the session is: branch and entry."""
        return self._sync.head

    @property
    def revision(self) -> int:
        """Grows by one with every append call and every move of the head."""
        return self._sync.revision

    @property
    def message_count(self) -> int:
        """The number of messages on the path of the head."""
        return self._sync.message_count

    @property
    def turn_count(self) -> int:
        """The number of turns on the path of the head."""
        return self._sync.turn_count

    @property
    def task_count(self) -> int:
        """The number of tasks at the head."""
        return self._sync.task_count

    @property
    def completed_count(self) -> int:
        """The number of completed tasks at the head."""
        return self._sync.completed_count

    @property
    def build_attempts(self) -> int:
        """The number of build attempts at the head."""
        return self._sync.build_attempts

    @property
    def state_values(self) -> dict[str, Any] | None:
        """The values of its state that ``list_sessions(with_state=...)`` asked for; None if none were asked for.

        Names that it did not have are absent. Raises ``Corrupt`` if its state could not be read."""
        return self._sync.state_values

    @property
    def status(self) -> str:
        """``active``, ``completed``, ``error``, ``timeout``, ``stopped``, or ``interrupted`` if its holder is gone."""
        return self._sync.status

    @property
    def holder(self) -> Holder | None:
        """Who runs it, as last read: the process and its machine."""
        return self._sync.holder

    @property
    def stopped_at(self) -> int | None:
        """The turn in which its last run was cut off, or None."""
        return self._sync.stopped_at

    @property
    def crashes(self) -> int:
        """How many times in a row its runs were cut off in that turn."""
        return self._sync.crashes

    @property
    def error(self) -> str | None:
        """The error that its last run ended with, or None."""
        return self._sync.error

    @property
    def result(self) -> Any:
        """The result passed to ``complete``."""
        return self._sync.result

    @property
    def finished_at(self) -> datetime | None:
        """When it ended; None while it is open."""
        return self._sync.finished_at

    def to_dict(self) -> dict[str, Any]:
        """Return its fields as plain values, with times in RFC 3339."""
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
        """Return messages, oldest first: the latest ``limit`` of them, or the first ones ``after`` a seq.

        The limit applies after the filter; ``tools=False`` leaves tool messages out. ``at`` reads the path to a point,
        such as another branch. An answer that is still being written comes last, with the status ``streaming`` and seq
        0, since it has no place yet.
        """
        return await self._portal.run(
            lambda: self._sync.messages(limit=limit, after=after, before=before, tools=tools, at=at)
        )

    def iter_messages(
        self, *, after: int | None = None, tools: bool = True, at: Point | None = None
    ) -> AsyncIterator[Message]:
        """Yield messages, oldest first, up to the current head or to a point, then what is being written."""
        return self._portal.iterate(lambda: self._sync.iter_messages(after=after, tools=tools, at=at))

    def entries(self, *, after: int | None = None, before: int | None = None) -> AsyncIterator[Entry]:
        """Yield entries of every kind, oldest first."""
        return self._portal.iterate(lambda: self._sync.entries(after=after, before=before))

    async def message(self, id: str) -> Message:
        """Return a message on the path by its id, whether the caller's or the store's."""
        return await self._portal.run(lambda: self._sync.message(id))

    async def custom(self, id: str) -> Custom:
        """Return a custom entry on the path by its id."""
        return await self._portal.run(lambda: self._sync.custom(id))

    async def customs(
        self,
        kind: str | None = None,
        *,
        id_prefix: str | None = None,
        newest: bool = False,
        limit: int = 100,
        cursor: str | None = None,
        all_branches: bool = False,
    ) -> Page[Custom]:
        """List custom entries of the path, oldest first, or newest first; only those of a kind if one is given.

        ``id_prefix`` lists those whose ids begin with it. ``all_branches`` goes through the branches one after the
        other, in the order they were opened. Pass the page's cursor to get the next page.
        """
        return await self._portal.run(
            lambda: self._sync.customs(
                kind, id_prefix=id_prefix, newest=newest, limit=limit, cursor=cursor, all_branches=all_branches
            )
        )

    def turns(self) -> AsyncIterator[Turn]:
        """Yield the turns of the path: each a user message and everything up to the next one."""
        return self._portal.iterate(lambda: self._sync.turns())

    async def stats(self, at: Point | None = None, *, spent: bool = False) -> Stats:
        """Return the totals of the path, up to a point if one is given; a single read at any depth.

        With ``spent`` every entry of every branch counts once instead: what was spent does not go back with a rewind.
        """
        return await self._portal.run(lambda: self._sync.stats(at, spent=spent))

    async def tool_call(self, id: str) -> ToolCall:
        """Return the newest tool call on the path with this id, or raise ``NotFound``."""
        return await self._portal.run(lambda: self._sync.tool_call(id))

    async def tool_calls(self) -> list[ToolCall]:
        """Return the tool calls on the path in order, each with its status, times and result."""
        return await self._portal.run(lambda: self._sync.tool_calls())

    async def pending_calls(self) -> list[ToolCall]:
        """Return the tool calls on the path that have no result, in the order they were announced.

        A call is ``pending`` until its tool is started, then ``running``; it is ``unknown`` if the process that ran it
        is gone, since it may or may not have taken effect. ``retry`` it, or record with ``resolve_call`` how it ended.
        """
        return await self._portal.run(lambda: self._sync.pending_calls())

    async def needs_reply(self) -> bool:
        """Return whether the model is to speak next: what a loop asks before it makes a context.

        True after a user message, after the results of all calls of the last answer, and after an answer that was cut
        off. False while calls wait for their tools or an answer is being written, after a complete answer, and in a
        session that is empty or finished.
        """
        return await self._portal.run(lambda: self._sync.needs_reply())

    async def approvals(self) -> list[Approval]:
        """List the questions about open calls on the path, answered or not."""
        return await self._portal.run(lambda: self._sync.approvals())

    async def branches(self) -> list[Branch]:
        """List all branches, oldest first, except those whose fork was undone."""
        return await self._portal.run(lambda: self._sync.branches())

    async def checkpoints(
        self, *, limit: int | None = None, cursor: str | None = None, newest: bool = False
    ) -> Page[Checkpoint]:
        """List the session's checkpoints in the order they were taken, or with ``newest`` from the last one on.

        Without a ``limit`` all of them; else pass the page's cursor to get the next page.
        """
        return await self._portal.run(lambda: self._sync.checkpoints(limit=limit, cursor=cursor, newest=newest))

    async def get_checkpoint(self, id_or_name: str) -> Checkpoint:
        """Return a checkpoint by its id, or the newest with that name."""
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
        """Return the conversation in a provider's format, valid wherever the log stands.

        ``provider`` is ``anthropic``, ``openai-chat``, ``openai-responses``, ``gemini`` or ``bedrock``. Messages that
        came from that provider go out as they were stored; ``repairs`` lists what had to be changed. The same log
        gives the same bytes. With ``max_tokens`` older messages are left out (``omitted``), in steps, so that prompt
        caches stay valid; messages with ``metadata={"pinned": True}`` stay. ``at`` builds it for another point;
        ``count`` counts the tokens of a text.
        """
        return await self._portal.run(
            lambda: self._sync.context(provider, model=model, max_tokens=max_tokens, at=at, count=count)
        )

    async def summary(self, max_tokens: int = 1200, *, count: Count | None = None) -> str:
        """Return the session in a few hundred words for the next prompt: tasks, files, plan, latest messages.

        It never exceeds ``max_tokens``, and nothing said in the session can pass for one of its headings.
        """
        return await self._portal.run(lambda: self._sync.summary(max_tokens, count=count))

    async def render_walkthrough(self) -> str:
        """Return the session as Markdown for people: plan, tasks, files, checkpoints, and the conversation."""
        return await self._portal.run(lambda: self._sync.render_walkthrough())

    def runtime(self) -> float:
        """Return the seconds from its start to its end, or to now; never less than 0."""
        return self._sync.runtime()

    async def release(self) -> None:
        """Release the lease early; does nothing without one."""
        return await self._portal.run(lambda: self._sync.release())

    async def complete(self, result: Any = None, *, idempotency_key: str | None = None) -> None:
        """Complete the session, with a result for whoever asked; it takes no messages until entered or reopened."""
        return await self._portal.run(lambda: self._sync.complete(result, idempotency_key=idempotency_key))

    async def fail(self, error: BaseException | str, *, idempotency_key: str | None = None) -> None:
        """End the session with an error."""
        return await self._portal.run(lambda: self._sync.fail(error, idempotency_key=idempotency_key))

    async def reopen(self, *, idempotency_key: str | None = None) -> None:
        """Reopen a session that ended; raises ``Conflict`` if it is active."""
        return await self._portal.run(lambda: self._sync.reopen(idempotency_key=idempotency_key))

    async def rewind_pending(self) -> str | None:
        """Describe a change of this session's files that is in progress or was left half done; None if there is none.

        This changes nothing: whoever next runs the session in that workspace, or rewinds it, takes the change back.
        """
        return await self._portal.run(lambda: self._sync.rewind_pending())

    async def capture_files(
        self, *, calls: Iterable[str | ToolCall] = (), until: datetime | None = None, ended: bool = False
    ) -> None:
        """Scan the workspace now, even without the lease: for boundaries that only the caller knows.

        What changed since the last scan is attributed to the open calls; with none open it is somebody else's change,
        and a rewind keeps it. Name the ``calls`` that you know to be at work. If you know it only ``until`` some time,
        what changed later is unclear, or somebody else's if they had ``ended`` by then. Does nothing without a
        workspace. ``checkpoint`` scans too, and names the point.
        """
        return await self._portal.run(lambda: self._sync.capture_files(calls=calls, until=until, ended=ended))

    async def file_at(self, path: str | PathLike[str], point: Point) -> bytes:
        """Return the content of a file as it was at a point.

        Raises ``NotFound`` if it was absent, ``Unsupported`` if it was not captured, ``Invalid`` if it was not a file.
        """
        return await self._portal.run(lambda: self._sync.file_at(path, point))

    async def diff(self, a: Point, b: Point | None = None) -> Diff:
        """Compare files and messages at two points; without a second one, with the head and the workspace now."""
        return await self._portal.run(lambda: self._sync.diff(a, b))

    async def compare(self, a: Point, b: Point | None = None) -> Comparison:
        """Compare the paths to two points from where they part; without a second one, with the head.

        Branches are points too: ``compare(one, other)`` shows what each of them did, cost and left behind.
        """
        return await self._portal.run(lambda: self._sync.compare(a, b))

    async def files(self) -> list[FileTouched]:
        """List the paths that the session touched, each once, with its last action and the calls that did it.

        Includes paths seen to change in the workspace, whatever tool did it, and those that ``record_file`` named.
        """
        return await self._portal.run(lambda: self._sync.files())

    async def snapshot_file(self, path: str | PathLike[str], *, idempotency_key: str | None = None) -> FileState:
        """Keep a file as it is before a change; the first copy counts until forgotten or until a checkpoint."""
        return await self._portal.run(lambda: self._sync.snapshot_file(path, idempotency_key=idempotency_key))

    async def file_diff(self, path: str | PathLike[str]) -> FileDiff | None:
        """Return how an announced file differs from its kept copy; None if it does not, or was never announced."""
        return await self._portal.run(lambda: self._sync.file_diff(path))

    async def file_diffs(self) -> list[FileDiff]:
        """List the differences of all announced files that changed, in the order they were announced."""
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
        """Name this point: conversation, work, state, sub-agents and files; the cost follows what changed.

        A name may be reused: it then means the newest one, and all of them are listed. Without ``files`` the workspace
        is not scanned, and the point has the files of the last scan.
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
        overwrite: Iterable[str | PathLike[str]] | Literal["all"] = (),
        paths: Iterable[str | PathLike[str]] | None = None,
        sessions: Iterable[AsyncSession | str] | Literal["all"] = (),
    ) -> AsyncRewind:
        """Return what going back to a point would do, path by path, without doing it; ``apply`` does exactly that.

        Paths that somebody else changed are left alone unless ``overwrite`` names them, or is ``"all"``. ``paths``
        restricts it to these paths and what is below them. ``sessions`` names others whose changes to files since then
        are taken back too, or is ``"all"``; their conversations stay. Without ``conversation`` only files go back,
        without ``files`` only the conversation does.
        """
        return AsyncRewind(
            self._portal,
            await self._portal.run(
                lambda: self._sync.preview_rewind(
                    target,
                    files=files,
                    conversation=conversation,
                    overwrite=overwrite,
                    paths=paths,
                    sessions=unwrap(sessions),
                )
            ),
        )

    async def rewind(
        self,
        target: Point,
        *,
        files: bool = True,
        conversation: bool = True,
        overwrite: Iterable[str | PathLike[str]] | Literal["all"] = (),
        paths: Iterable[str | PathLike[str]] | None = None,
        sessions: Iterable[AsyncSession | str] | Literal["all"] = (),
        take_over: bool = False,
        idempotency_key: str | None = None,
    ) -> Operation:
        """Move back to a point: what follows it leaves the path but stays on its branch. ``undo`` takes it back.

        Tasks, plan, notes, session state, sub-agents and files go back too. The next append opens a branch there. This
        is ``preview_rewind`` and ``apply`` in one call.
        """
        return await self._portal.run(
            lambda: self._sync.rewind(
                target,
                files=files,
                conversation=conversation,
                overwrite=overwrite,
                paths=paths,
                sessions=unwrap(sessions),
                take_over=take_over,
                idempotency_key=idempotency_key,
            )
        )

    async def preview_undo(self, operation: Operation | str | None = None) -> AsyncRewind:
        """Return what ``undo`` would do to the conversation and files."""
        return AsyncRewind(self._portal, await self._portal.run(lambda: self._sync.preview_undo(operation)))

    async def preview_redo(self) -> AsyncRewind:
        """Return what ``redo`` would do to the conversation and files."""
        return AsyncRewind(self._portal, await self._portal.run(lambda: self._sync.preview_redo()))

    async def undo(
        self, operation: Operation | str | None = None, *, take_over: bool = False, idempotency_key: str | None = None
    ) -> Operation:
        """Undo the last operation of this session, or a given one.

        Raises ``Conflict`` if a later operation changed the same thing, and ``Busy`` if files would change while
        somebody else runs the session, unless ``take_over`` is given.
        """
        return await self._portal.run(
            lambda: self._sync.undo(operation, take_over=take_over, idempotency_key=idempotency_key)
        )

    async def redo(self, *, take_over: bool = False, idempotency_key: str | None = None) -> Operation:
        """Redo what the last undo of this session took back; ``take_over`` is as in ``undo``."""
        return await self._portal.run(lambda: self._sync.redo(take_over=take_over, idempotency_key=idempotency_key))

    async def operations(self, *, limit: int = 100) -> list[Operation]:
        """List this session's operations, newest first."""
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
        """Open a branch at a point, the head by default, without moving there; nothing is copied.

        With ``as_session`` the branch is a session of its own. ``into`` names a new or empty directory that receives
        the files as they were at that point and becomes the workspace of the new session; files that belong to a
        repository are left out and logged. ``undo`` takes the fork back but leaves that directory. If the process is
        killed meanwhile, the same call again starts over.
        """
        return (lambda found: AsyncSession(self._portal, found) if isinstance(found, Session) else found)(
            await self._portal.run(
                lambda: self._sync.fork(
                    at, name=name, as_session=as_session, into=into, idempotency_key=idempotency_key
                )
            )
        )

    async def switch(
        self, branch: str | Branch, *, files: bool = False, take_over: bool = False, idempotency_key: str | None = None
    ) -> Operation:
        """Move to the tip of a branch; ``undo`` moves back. With ``files`` the workspace is restored as well.

        That raises ``Busy`` while somebody else runs the session, unless ``take_over`` is given.
        """
        return await self._portal.run(
            lambda: self._sync.switch(branch, files=files, take_over=take_over, idempotency_key=idempotency_key)
        )

    async def preview_switch(self, branch: str | Branch) -> AsyncRewind:
        """Return what ``switch`` with ``files`` would do to the conversation and files; ``apply`` does it."""
        return AsyncRewind(self._portal, await self._portal.run(lambda: self._sync.preview_switch(branch)))

    async def user(
        self,
        content: Any,
        *,
        id: str | None = None,
        usage: Any = None,
        model: str | None = None,
        duration: float | None = None,
        attachments: Iterable[Attachable] = (),
        parent_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        origin: str | None = None,
        created_at: datetime | None = None,
        raw: bytes | None = None,
        idempotency_key: str | None = None,
    ) -> Message:
        """Append a user message; ``append`` describes durability and retries.

        Content is text or a list of parts. ``origin`` says who stands behind it: ``person``, ``harness`` or
        ``notification``; only a person's message opens a turn. ``created_at`` is when it happened, if not now.
        """
        return await self._portal.write(
            self._sync._store._backend,
            self._sync._say(
                "user",
                content,
                (id, usage, model, duration, attachments, parent_id, metadata, origin, created_at, raw),
                idempotency_key,
            ),
        )

    async def assistant(
        self,
        content: Any,
        *,
        id: str | None = None,
        usage: Any = None,
        model: str | None = None,
        duration: float | None = None,
        attachments: Iterable[Attachable] = (),
        parent_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        origin: str | None = None,
        created_at: datetime | None = None,
        raw: bytes | None = None,
        idempotency_key: str | None = None,
    ) -> Message:
        """Append an assistant message; takes what ``user`` takes."""
        return await self._portal.write(
            self._sync._store._backend,
            self._sync._say(
                "assistant",
                content,
                (id, usage, model, duration, attachments, parent_id, metadata, origin, created_at, raw),
                idempotency_key,
            ),
        )

    async def system(
        self,
        content: Any,
        *,
        id: str | None = None,
        usage: Any = None,
        model: str | None = None,
        duration: float | None = None,
        attachments: Iterable[Attachable] = (),
        parent_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        origin: str | None = None,
        created_at: datetime | None = None,
        raw: bytes | None = None,
        idempotency_key: str | None = None,
    ) -> Message:
        """Append a system message; takes what ``user`` takes."""
        return await self._portal.write(
            self._sync._store._backend,
            self._sync._say(
                "system",
                content,
                (id, usage, model, duration, attachments, parent_id, metadata, origin, created_at, raw),
                idempotency_key,
            ),
        )

    async def append(
        self,
        *items: Any,
        existing: str = "error",
        expected_revision: int | None = None,
        idempotency_key: str | None = None,
    ) -> list[Any]:
        """Append messages at the head, all or none; durable when this returns.

        Takes our own messages, dicts, ``Native`` and ``Custom`` items, and SDK objects or whole responses from
        Anthropic, OpenAI (both APIs), Gemini or Bedrock's Converse. A retry with the same ``idempotency_key`` and
        content returns the first result and stores nothing. With ``existing="skip"``, items whose id is on any branch
        of the session with equal content are passed over and returned as stored. Raises ``Conflict`` if the session is
        not at ``expected_revision``.
        """
        return await self._portal.write(
            self._sync._store._backend, self._sync._append(items, existing, expected_revision, idempotency_key)
        )

    async def write(
        self,
        *items: Any,
        state: Mapping[str, Any] | None = None,
        state_delete: Iterable[str] = (),
        docs: Mapping[tuple[Any, str], Any] | None = None,
        tasks: Iterable[Task | str] | None = None,
        at: Point | None = None,
        move: bool = True,
        existing: str = "error",
        expected_revision: int | None = None,
        idempotency_key: str | None = None,
    ) -> Written:
        """Store items, changes of the session's state, tasks and documents in one step: all of it, or nothing.

        Takes the items that ``append`` takes. ``docs`` maps (namespace, key) to a value; documents do not go back with
        a rewind. ``at`` is where to write: the tip is a plain append, another point opens a branch there and moves the
        head to it. With ``move=False`` the head stays; the tip of a branch that was left is continued. Files are never
        touched. ``existing`` works as in ``append``.
        """
        return await self._portal.write(
            self._sync._store._backend,
            self._sync._write(
                items, state, state_delete, docs, tasks, at, move, existing, expected_revision, idempotency_key
            ),
        )

    async def replace_tail(
        self, from_seq: int, messages: Iterable[Any], expected_revision: int, *, idempotency_key: str | None = None
    ) -> list[Message]:
        """Replace everything from ``from_seq`` on with messages, in one step; the old ones stay on their branch.

        Raises ``Conflict`` if the session is not at ``expected_revision``. ``undo`` brings the old tail back.
        """
        return await self._portal.run(
            lambda: self._sync.replace_tail(from_seq, messages, expected_revision, idempotency_key=idempotency_key)
        )

    async def pop(self, *, idempotency_key: str | None = None) -> Message | None:
        """Take the last message off the path and return it, or None if there is none; ``undo`` brings it back.

        Changes to tasks, plan or state made after that message go with it.
        """
        return await self._portal.run(lambda: self._sync.pop(idempotency_key=idempotency_key))

    async def clear(self, *, idempotency_key: str | None = None) -> Operation:
        """Go back to an empty session; everything stays on its branch, and ``undo`` brings it back."""
        return await self._portal.run(lambda: self._sync.clear(idempotency_key=idempotency_key))

    async def compact(self, upto: Point, summary: str, *, idempotency_key: str | None = None) -> Compaction:
        """Let a summary stand in for everything up to a point in contexts; the originals stay.

        ``uncompact`` takes it back, and so does a rewind to before it.
        """
        return await self._portal.run(lambda: self._sync.compact(upto, summary, idempotency_key=idempotency_key))

    async def uncompact(self, *, idempotency_key: str | None = None) -> Compaction | None:
        """Take back the last compaction: contexts show the originals, or the compaction before it, again."""
        return await self._portal.run(lambda: self._sync.uncompact(idempotency_key=idempotency_key))

    async def compaction(self) -> Compaction | None:
        """Return the compaction in force, or None."""
        return await self._portal.run(lambda: self._sync.compaction())

    @property
    def state(self) -> AsyncSessionState:
        """The session's own state: keys and values that go back with a rewind."""
        return AsyncSessionState(self._portal, self._sync.state)

    async def tasks(self) -> list[Task]:
        """Return the tasks, in order."""
        return await self._portal.run(lambda: self._sync.tasks())

    async def set_tasks(self, tasks: Iterable[Task | str], *, idempotency_key: str | None = None) -> list[Task]:
        """Replace the list of tasks; strings become pending tasks."""
        return await self._portal.run(lambda: self._sync.set_tasks(tasks, idempotency_key=idempotency_key))

    async def add_task(self, task: Task | str, status: str = "pending", *, idempotency_key: str | None = None) -> Task:
        """Add a task to the end of the list."""
        return await self._portal.run(lambda: self._sync.add_task(task, status, idempotency_key=idempotency_key))

    async def update_task(
        self,
        index: int,
        status: str | None = None,
        *,
        description: str | None = None,
        idempotency_key: str | None = None,
    ) -> Task:
        """Change one task by its index, from 0; raises ``Invalid`` for a wrong index or status."""
        return await self._portal.run(
            lambda: self._sync.update_task(index, status, description=description, idempotency_key=idempotency_key)
        )

    async def get_plan(self) -> str | None:
        """Return the agent's plan."""
        return await self._portal.run(lambda: self._sync.get_plan())

    async def set_plan(self, text: str | None, *, idempotency_key: str | None = None) -> None:
        """Set the agent's plan; None clears it."""
        return await self._portal.run(lambda: self._sync.set_plan(text, idempotency_key=idempotency_key))

    async def get_walkthrough(self) -> str | None:
        """Return the stored walkthrough text."""
        return await self._portal.run(lambda: self._sync.get_walkthrough())

    async def set_walkthrough(self, text: str | None, *, idempotency_key: str | None = None) -> None:
        """Set the walkthrough text; None clears it."""
        return await self._portal.run(lambda: self._sync.set_walkthrough(text, idempotency_key=idempotency_key))

    async def note(
        self, text: str, *, task: int | str | Task | None = None, idempotency_key: str | None = None
    ) -> Note:
        """Add to the reasoning log, on a task if one is given by index, id or ``Task``."""
        return await self._portal.run(lambda: self._sync.note(text, task=task, idempotency_key=idempotency_key))

    async def notes(self) -> list[Note]:
        """Return the reasoning log, oldest first."""
        return await self._portal.run(lambda: self._sync.notes())

    async def record_file(
        self,
        path: str | PathLike[str],
        action: str,
        *,
        call: str | ToolCall | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """Record that a path was created, written or deleted, and by which tool call; its last action counts."""
        return await self._portal.run(
            lambda: self._sync.record_file(path, action, call=call, idempotency_key=idempotency_key)
        )

    async def add_build_attempt(self, *, idempotency_key: str | None = None) -> int:
        """Count one more build attempt and return the count."""
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

        Each piece is on disk within ``flush_seconds``, or as soon as ``flush_bytes`` characters wait. Leaving the block
        seals the answer as finished, interrupted by an error, or cancelled. It goes to the branch where it began.
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

        Pass a call from ``pending_calls``, or a name and arguments. Entering raises ``Conflict`` if the call was
        answered meanwhile. The id of an open call that a message announced starts that call and never adds a second
        record. A tool that is interrupted, or returns what cannot be stored, leaves its call open. With ``paths``, the
        ones the tool touches, only those are scanned instead of the whole workspace. ``keep`` limits how many
        characters of its output are kept, half from the start and half from the end; by default all are.
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
        """Store the result of a call on the path; raises ``NotFound`` or, if it was answered already, ``Conflict``."""
        return await self._portal.run(
            lambda: self._sync.tool_result(
                call_id, content, success=success, duration=duration, idempotency_key=idempotency_key
            )
        )

    def retry(self, call: ToolCall, *, most: int = 3) -> AsyncToolRun:
        """Run a call again whose outcome is unknown: ``with session.retry(call) as run: run.result(...)``.

        ``call.idempotency_key`` is the same at every try. Raises ``Conflict`` on entering once the call was tried
        ``most`` times, so that one that keeps killing its process is not tried for ever. Record with ``resolve_call``
        how it ended.
        """
        return AsyncToolRun(self._portal, self._sync.retry(call, most=most))

    async def resolve_call(
        self,
        call: ToolCall | str,
        content: Any = None,
        *,
        success: bool = True,
        denied: bool = False,
        idempotency_key: str | None = None,
    ) -> Message:
        """Record how an open call ended that will not run again: with its result, or with why it failed.

        A call that was ``denied`` neither worked nor failed; the model is told so, or reads ``content``.
        """
        return await self._portal.run(
            lambda: self._sync.resolve_call(
                call, content, success=success, denied=denied, idempotency_key=idempotency_key
            )
        )

    async def spawn(
        self,
        task: str,
        *,
        label: str | None = None,
        agent: str | AsyncAgent | None = None,
        workspace: str | PathLike[str] | None = None,
        model: str | None = None,
        call_id: str | ToolCall | None = None,
        metadata: Mapping[str, Any] | None = None,
        wait: float = 0,
        idempotency_key: str | None = None,
    ) -> Spawned[AsyncSession]:
        """Start a sub-agent for a task: a session below this one, by default with the same agent and workspace.

        ``call_id`` is the tool call that asked for it: spawning again for the same call returns the same sub-agent.
        So does the same ``idempotency_key``, even after a crash, and ``wait`` is how many seconds entering it waits for
        whoever still runs it. Raises ``Conflict`` if a sub-agent of this session has the label already, or if this
        session is finished.
        """
        return (lambda found: Spawned(*found[:-1], AsyncSession(self._portal, found.session)))(
            await self._portal.run(
                lambda: self._sync.spawn(
                    task,
                    label=label,
                    agent=unwrap(agent),
                    workspace=workspace,
                    model=model,
                    call_id=call_id,
                    metadata=metadata,
                    wait=wait,
                    idempotency_key=idempotency_key,
                )
            )
        )

    async def children(self) -> list[AsyncSession]:
        """List its sub-agents in the order they were started."""
        return [AsyncSession(self._portal, each) for each in await self._portal.run(lambda: self._sync.children())]

    async def tree(self) -> Tree:
        """Return the session with all sub-agents below it: status, time, and what each and all of them spent."""
        return await self._portal.run(lambda: self._sync.tree())

    async def wait(self, *children: str | AsyncSession, timeout: float | None = None) -> list[AsyncSession]:
        """Wait until sub-agents have ended, by default all of them; return those that have, in order.

        One whose process is gone has ended too, with the status ``interrupted``. After ``timeout`` seconds the list may
        hold fewer than were waited for.
        """
        return [
            AsyncSession(self._portal, each)
            for each in await self._portal.wait(lambda: self._sync.wait(*map(unwrap, children), timeout=timeout))
        ]

    async def stop(
        self, subtree: bool = True, *, reason: str | None = None, idempotency_key: str | None = None
    ) -> None:
        """Stop the session and all active sub-agents below it: none of them accepts messages any more."""
        return await self._portal.run(lambda: self._sync.stop(subtree, reason=reason, idempotency_key=idempotency_key))

    async def timeout(
        self, subtree: bool = True, *, reason: str | None = None, idempotency_key: str | None = None
    ) -> None:
        """End the session and all active sub-agents below it because time ran out."""
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
        """Put a message into its inbox, from any process; ``receive`` turns it into a user message exactly once.

        Raises ``Conflict`` if the session is finished. ``sender`` is the session that sends it.
        """
        return await self._portal.run(
            lambda: self._sync.send(text, sender=unwrap(sender), metadata=metadata, idempotency_key=idempotency_key)
        )

    async def receive(self, limit: int | None = None, wait: float = 0) -> list[Message]:
        """Take messages out of the inbox, in order, and append them as user messages, once; durable at return.

        At most 200 at a time. If there are none it waits up to ``wait`` seconds for the first.
        """
        return await self._portal.wait(lambda: self._sync.receive(limit, wait))

    async def inbox(self) -> list[Sent]:
        """List the messages that wait to be received, in order: the first 200."""
        return await self._portal.run(lambda: self._sync.inbox())

    async def ask_approval(self, call: ToolCall | str, question: str | None = None, *, wait: float = 0) -> Approval:
        """Ask a person to approve a call and wait up to ``wait`` seconds; a call is only ever asked about once.

        The question is in the store: ``answer_approval`` answers it from any process, even after a restart. The
        returned approval is true only if the answer was yes.
        """
        return await self._portal.wait(lambda: self._sync.ask_approval(call, question, wait=wait))

    async def answer_approval(
        self, call: ToolCall | str, approved: bool, *, by: str | None = None, note: str | None = None
    ) -> Approval:
        """Answer the question about a call; raises ``NotFound`` if none was asked, ``Conflict`` if it was answered."""
        return await self._portal.run(lambda: self._sync.answer_approval(call, approved, by=by, note=note))

    async def rename(self, title: str | None, *, idempotency_key: str | None = None) -> Operation:
        """Set the title; None clears it, and the next user message provides a new one."""
        return await self._portal.run(lambda: self._sync.rename(title, idempotency_key=idempotency_key))

    async def tag(self, *tags: str, idempotency_key: str | None = None) -> Operation:
        """Add tags; tags that the session already has keep their position."""
        return await self._portal.run(lambda: self._sync.tag(*tags, idempotency_key=idempotency_key))

    async def untag(self, *tags: str, idempotency_key: str | None = None) -> Operation:
        """Remove tags; tags that the session does not have are ignored."""
        return await self._portal.run(lambda: self._sync.untag(*tags, idempotency_key=idempotency_key))

    async def archive(self, *, idempotency_key: str | None = None) -> Operation:
        """Hide the session from listings that do not ask for archived sessions."""
        return await self._portal.run(lambda: self._sync.archive(idempotency_key=idempotency_key))

    async def unarchive(self, *, idempotency_key: str | None = None) -> Operation:
        """Show the session in listings again."""
        return await self._portal.run(lambda: self._sync.unarchive(idempotency_key=idempotency_key))

    async def pin(self, *, idempotency_key: str | None = None) -> Operation:
        """Pin the session, so that listings can filter for it."""
        return await self._portal.run(lambda: self._sync.pin(idempotency_key=idempotency_key))

    async def unpin(self, *, idempotency_key: str | None = None) -> Operation:
        """Unpin the session."""
        return await self._portal.run(lambda: self._sync.unpin(idempotency_key=idempotency_key))

    async def redact(self, *ids: str, dry_run: bool = True) -> Redaction:
        """Erase the content of messages and custom entries by id, on any branch; by default only show what would go.

        A tool call goes as a whole: the message that announces it, with all its calls, and their starts, approvals and
        results, even those in forks. The entries keep their place, time, id and numbers, and read as ``redacted``;
        ``verify`` still proves the rest. Forks that have or read them are named. This cannot be undone. Raises
        ``Invalid`` for state of work, such as tasks and plans, and for compactions; ``Conflict`` while one of the calls
        or an answer is open; ``Busy`` if somebody else runs the session.
        """
        return await self._portal.run(lambda: self._sync.redact(*ids, dry_run=dry_run))

    async def set_metadata(self, metadata: Mapping[str, Any], *, idempotency_key: str | None = None) -> Operation:
        """Replace the caller's own metadata."""
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
        if self._sync._must_wait:
            await self._portal.wait(self._sync._take_ahead)
        await self._portal.enter(
            self._sync.__enter__, lambda made: made.__exit__(CancelledError, CancelledError(), None)
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._portal.finish(lambda: self._sync.__exit__(kind, error, trace))


class AsyncSessionState(Bound):
    """The state of a session; a rewind takes it back too."""

    def __init__(self, portal: Portal, sync: SessionState) -> None:
        self._portal, self._sync = portal, sync

    async def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, or ``default``."""
        return await self._portal.run(lambda: self._sync.get(key, default))

    async def items(self) -> dict[str, Any]:
        """Return all keys with their values."""
        return await self._portal.run(lambda: self._sync.items())

    async def read(self) -> tuple[int, dict[str, Any]]:
        """Return the version with all keys and values, as of one moment: what compare-and-set needs."""
        return await self._portal.run(lambda: self._sync.read())

    async def version(self) -> int:
        """Return the version of the state: 1 at first, higher with every change."""
        return await self._portal.run(lambda: self._sync.version())

    async def at(self, version: int) -> dict[str, Any]:
        """Return all keys and values as they were at a version."""
        return await self._portal.run(lambda: self._sync.at(version))

    async def set(
        self, key: str, value: Any, *, expected_version: int | None = None, idempotency_key: str | None = None
    ) -> int:
        """Set one key and return the new version; durable when this returns."""
        return await self._portal.run(
            lambda: self._sync.set(key, value, expected_version=expected_version, idempotency_key=idempotency_key)
        )

    async def update(
        self,
        values: Mapping[str, Any],
        *,
        delete: Iterable[str] = (),
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> int:
        """Set several keys, and remove others, in one step and return the new version."""
        return await self._portal.run(
            lambda: self._sync.update(
                values, delete=delete, expected_version=expected_version, idempotency_key=idempotency_key
            )
        )

    async def delete(self, *keys: str, expected_version: int | None = None, idempotency_key: str | None = None) -> int:
        """Remove keys and return the version; keys that are absent are ignored."""
        return await self._portal.run(
            lambda: self._sync.delete(*keys, expected_version=expected_version, idempotency_key=idempotency_key)
        )

    def __repr__(self) -> str:
        return f"<Async{repr(self._sync)[1:]}"


class AsyncToolRun(Bound):
    """One run of a tool, as a context manager; an exception inside is stored as the call's error and re-raised."""

    def __init__(self, portal: Portal, sync: ToolRun) -> None:
        self._portal, self._sync = portal, sync

    @property
    def message(self) -> Message | None:
        """As the blocking ``ToolRun`` holds it."""
        return self._sync.message

    @property
    def call(self) -> ToolCall:
        """The call that runs, available once the run is entered."""
        return self._sync.call

    async def write(self, text: str) -> None:
        """Store a piece of the tool's output while it runs; it is on disk within 0.2 seconds, and readers see it grow.

        The whole output becomes the result unless ``result`` is given another. If the run is cut off, the output
        becomes a message of its own with the status ``interrupted``.
        """
        return await self._portal.run(lambda: self._sync.write(text))

    async def result(self, content: Any = None) -> Message:
        """Store the tool's result, by default what was written; durable when this returns."""
        return await self._portal.run(lambda: self._sync.result(content))

    async def error(self, error: BaseException | str) -> Message:
        """Store that the tool failed, after what was written, without raising."""
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
        await self._portal.finish(lambda: self._sync.__exit__(kind, error, trace))


class AsyncStream(Bound):
    """An answer that is being written: ``with session.stream() as stream: stream.write(delta)``."""

    def __init__(self, portal: Portal, sync: Stream) -> None:
        self._portal, self._sync = portal, sync

    @property
    def message(self) -> Message | None:
        """As the blocking ``Stream`` holds it."""
        return self._sync.message

    @property
    def id(self) -> str:
        """The id of the stream while it is open."""
        return self._sync.id

    async def write(self, delta: str, kind: str = "text") -> None:
        """Add a piece that arrived: text, ``thinking``, or ``tool_input`` (a piece of JSON)."""
        return await self._portal.run(lambda: self._sync.write(delta, kind))

    async def flush(self) -> None:
        """Write what arrived to disk now; it is durable when this returns."""
        return await self._portal.run(lambda: self._sync.flush())

    async def finish(self, message: Any = None, usage: Any = None) -> Message:
        """Seal the stream with the provider's final message, kept verbatim, or with what was written; return it.

        The chunks of a Gemini stream are given as a list and become one message. Of chunks that are only the end of
        the answer, what was written before them is kept too.
        """
        return await self._portal.run(lambda: self._sync.finish(message, usage))

    async def cancel(self) -> Message | None:
        """Seal what arrived as cancelled and return it; stores nothing and returns None if nothing arrived."""
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
        await self._portal.finish(lambda: self._sync.__exit__(kind, error, trace))


class AsyncRewind(Bound):
    """What going to ``target`` does to the conversation and to each path; ``print`` it, then ``apply`` it.

    ``workspace`` is the directory that changes. Left alone are: ``kept``, paths changed from outside; ``others``, paths
    that another session changed, which ``other_sessions`` maps to its id; ``unclear``, paths that several may have
    changed, each with who; and ``stays``, what should change and does not, each with the reason. ``not_captured`` are
    paths whose content is unknown, so they do not come back; ``not_written`` those that belong to a repository.
    ``moved`` maps what is in the way and not captured, and is to be overwritten, to the name that it is moved to; in an
    undo it maps that name to the place to which it moves back.
    ``target_at`` is when the point was reached. ``digest`` names exactly this plan. ``pending`` describes an earlier
    change to these files that was interrupted: it is taken back first, and the preview shows what comes after that."""

    def __init__(self, portal: Portal, sync: Rewind) -> None:
        self._portal, self._sync = portal, sync

    @property
    def workspace(self) -> str | None:
        """As the blocking ``Rewind`` holds it."""
        return self._sync.workspace

    @property
    def target(self) -> Any:
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
    def unclear(self) -> dict[str, str]:
        """As the blocking ``Rewind`` holds it."""
        return self._sync.unclear

    @property
    def stays(self) -> dict[str, str]:
        """As the blocking ``Rewind`` holds it."""
        return self._sync.stays

    @property
    def moved(self) -> dict[str, str]:
        """As the blocking ``Rewind`` holds it."""
        return self._sync.moved

    @property
    def digest(self) -> str:
        """As the blocking ``Rewind`` holds it."""
        return self._sync.digest

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
        """Return the difference it makes to each path, as text."""
        return await self._portal.run(lambda: self._sync.diff())

    async def apply(self, *, take_over: bool = False) -> Operation:
        """Make the move; raises ``Conflict`` and changes nothing if session or files changed since the preview.

        Raises ``Busy`` if somebody else runs the session or one of its sub-agents; with ``take_over`` their next write
        raises ``LeaseLost`` instead.
        """
        return await self._portal.run(lambda: self._sync.apply(take_over=take_over))

    def left_alone(
        self, overwrite: str = "overwrite=[{path!r}]", take: str = "sessions=[{session!r}]", more: str = ""
    ) -> AsyncIterator[str]:
        """Yield a line for everything that does not change although it differs, with the reason and what to do.

        ``overwrite`` and ``take`` say how to restore a path, or a session's changes, all the same; empty if there is no
        way to. ``more`` says how to see all of a long list.
        """
        return self._portal.iterate(lambda: self._sync.left_alone(overwrite, take, more))

    def __repr__(self) -> str:
        return f"<Async{repr(self._sync)[1:]}"

    def _repr_html_(self) -> str:
        return self._sync._repr_html_()

    def __str__(self) -> str:
        return str(self._sync)


class AsyncWorkspace(Bound):
    """A directory as a store knows it; ``store.workspace(path)`` returns one. ``path`` is its real path."""

    def __init__(self, portal: Portal, sync: Workspace) -> None:
        self._portal, self._sync = portal, sync

    async def timeline(
        self,
        *,
        path: str | PathLike[str] | None = None,
        since: datetime | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[Scan]:
        """List what changed here and who changed it, newest first; ``path`` restricts it to one file or directory."""
        return await self._portal.run(lambda: self._sync.timeline(path=path, since=since, limit=limit, cursor=cursor))

    async def preview_rewind(
        self,
        moment: datetime | Scan | Checkpoint | tuple[AsyncSession | str, Point],
        *,
        paths: Iterable[str | PathLike[str]] | None = None,
        overwrite: Iterable[str | PathLike[str]] | Literal["all"] = (),
    ) -> AsyncRewind:
        """Return what going back to a moment would do to the files here, whoever changed them since.

        The last good scan at or before the moment counts; ``target_at`` says when that was. ``paths`` restricts it to
        these paths and what is below them. ``overwrite`` names paths to restore even if what is there now was not
        captured. Conversations stay. ``store.undo`` takes it back.
        """
        return AsyncRewind(
            self._portal,
            await self._portal.run(lambda: self._sync.preview_rewind(unwrap(moment), paths=paths, overwrite=overwrite)),
        )

    async def preview_undo(self, operation: Operation | str | None = None) -> AsyncRewind:
        """Return what undoing the last change of these files, or a given one, would do; ``apply`` does it.

        If that change was a session's, its conversation goes with it.
        """
        return AsyncRewind(self._portal, await self._portal.run(lambda: self._sync.preview_undo(operation)))

    async def preview_redo(self) -> AsyncRewind:
        """Return what redoing the last undo of a change of these files would do; ``apply`` does it."""
        return AsyncRewind(self._portal, await self._portal.run(lambda: self._sync.preview_redo()))

    def __repr__(self) -> str:
        return f"<Async{repr(self._sync)[1:]}"


class AsyncAttachment(Bound):
    """One attachment of a message, as stored: bytes in the store, or a URL.

    One that was pickled, encoded or made from a dict has left its store: it still says what it is, and its message
    in the store still has it with its content."""

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

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON data: times in RFC 3339, bytes as ``{"$bytes": base64}``."""
        return self._sync.to_dict()

    def open(self) -> AsyncReader:
        """Open the content for reading, one chunk in memory at a time; raises ``Corrupt`` if a chunk is damaged."""
        return AsyncReader(self._portal, self._sync.open)

    async def read(self) -> bytes:
        """Read the whole content."""
        return await self._portal.run(lambda: self._sync.read())

    def __repr__(self) -> str:
        return f"<Async{repr(self._sync)[1:]}"


class AsyncDocuments(Bound):
    """The documents of one namespace; every method reads or writes the store."""

    def __init__(self, portal: Portal, sync: Documents) -> None:
        self._portal, self._sync = portal, sync

    @property
    def namespace(self) -> Namespace:
        """The namespace: a string, or a tuple if it has several parts."""
        return self._sync.namespace

    async def get(self, key: str) -> Document:
        """Return a document; raises ``NotFound`` if it is absent or has expired."""
        return await self._portal.run(lambda: self._sync.get(key))

    async def find(self, key: str) -> Document | None:
        """Return a document, or None if it is absent or has expired."""
        return await self._portal.run(lambda: self._sync.find(key))

    async def put(
        self,
        key: str,
        value: Any,
        *,
        expected_version: int | None = None,
        ttl: float | timedelta | None = None,
        idempotency_key: str | None = None,
    ) -> Document:
        """Store a value, bytes or plain data, as the next version of a document; durable when this returns.

        Raises ``Conflict`` unless the document is at ``expected_version``; 0 means that it must not exist. With ``ttl``
        it reads as absent after so many seconds; without one it stays, even if the version before it had one.
        """
        return await self._portal.run(
            lambda: self._sync.put(
                key, value, expected_version=expected_version, ttl=ttl, idempotency_key=idempotency_key
            )
        )

    async def delete(
        self, key: str, *, expected_version: int | None = None, idempotency_key: str | None = None
    ) -> bool:
        """Delete a document and return whether there was one; ``expected_version`` works as in ``put``.

        Its versions go on where they were if it is put again.
        """
        return await self._portal.run(
            lambda: self._sync.delete(key, expected_version=expected_version, idempotency_key=idempotency_key)
        )

    async def list(self, prefix: str = "", *, limit: int = 100, cursor: str | None = None) -> Page[Document]:
        """List the documents whose keys begin with a prefix, ordered by key; pass the page's cursor to go on.

        A page may hold fewer than ``limit`` if their values are large; only a cursor of None is the end. The page's
        ``damaged`` names documents that cannot be read.
        """
        return await self._portal.run(lambda: self._sync.list(prefix, limit=limit, cursor=cursor))

    def __repr__(self) -> str:
        return f"<Async{repr(self._sync)[1:]}"


def aopen(
    url: str | PathLike[str] | None = None,
    *,
    scope: str | None = None,
    durability: str = "full",
    read_only: bool = False,
    lock_timeout: float = LOCK_TIMEOUT,
    clock: Clock | None = None,
) -> AsyncStore:
    """Open a store for tasks of asyncio or trio: ``async with takeback.aopen(url) as store``, or ``await`` it.

    Takes what ``takeback.open`` takes. Without either, as in a constructor, the first call that is awaited opens the
    store; close it with ``await store.close()``.
    """
    how = partial(open_store, durability=durability, read_only=read_only, lock_timeout=lock_timeout)
    return AsyncStore(Portal(), lambda: how(url, scope=scope, clock=clock))
