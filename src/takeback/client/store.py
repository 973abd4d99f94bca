"""The store: where everything is kept.

Any thread may use a handle, and any of them may close it. ``scoped`` returns a handle on another scope over the same
connections; nothing in one scope is ever visible from another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO

from ..errors import Closed, Conflict, Invalid, Unsupported
from ..files import contents, timeline
from ..model import html
from ..model.message import MESSAGE_KINDS
from ..model.operation import Operation
from ..model.page import Page
from ..model.session import StoreStats
from ..ops import documents, feed, feed_reading, operations, scopes, stats, store_identity, sweep, undo
from ..storage.runner import ALONE, FREEING_ALONE
from . import arguments
from .session import Session
from .store_checkpoints import StoreCheckpoints

if TYPE_CHECKING:
    from ..model.approval import Approval
    from ..model.copied import Copying
    from ..model.entry import Entry
    from ..model.exchange import Exported, Loaded
    from ..model.feed import Change
    from ..model.items import Custom
    from ..model.message import Message
    from ..model.purge import Pruned
    from ..model.report import Repaired, Report
    from ..model.spending import Spent
    from ..tables.entries import EntryRow
    from ..tables.files import WorkspaceRow
    from .agent import Agent
    from .documents import Documents
    from .points import Point
    from .workspace import Workspace

_FEED_PAGE = 500
_LOOK_SECONDS = 0.5
_NOT_UNDONE = ("undo", "redo", "purge", "redact")


class Store(StoreCheckpoints):
    """An open store, seen from one scope; a context manager that any thread may use."""

    def close(self) -> None:
        """Stop automatic checkpoints, release all leases, finish pending writes and close the files.

        A handle returned by ``scoped`` only stops its own automatic checkpoints: the connections stay open.
        """
        self.stop_auto_checkpoint()
        if self._owner:
            self._keeper.close()
            for place in [*self._keeper.places.values()]:
                place.close()
            self._backend.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        scope = f" scope {self.scope!r}" if self.scope else ""
        return f"<Store {self.url}{scope} {self.capabilities.journal}>"

    def _repr_html_(self) -> str:
        counts: Any = self.stats()
        return html.fields(repr(self), {name: getattr(counts, name) for name in counts.__struct_fields__})

    def scoped(self, scope: str | None) -> Store:
        """Return a handle on another scope over the same connections."""
        return Store(
            self._backend,
            clock=self._clock,
            scope=arguments.scope(scope),
            url=self.url,
            owner=False,
            keeper=self._keeper,
        )

    def scopes(self) -> list[str]:
        """List the scopes that hold anything, in order; the default scope is the empty string.

        Raises ``Invalid`` on a handle that is bound to one scope: it cannot see the others. Raises ``Unsupported``
        where PostgreSQL's row security shows this role only one scope at a time.
        """
        if self.scope:
            raise Invalid("a handle bound to one scope cannot list the others; open the store without a scope")
        if not self.capabilities.all_scopes:
            raise Unsupported(
                "row security shows this role only one scope at a time; connect as the owner of the tables",
                capability="all_scopes",
            )
        return self._backend.scoped(None).read(scopes.every)

    # ------------------------------------------------------------------ operations

    def operations(self, *, limit: int = 100, cursor: str | None = None) -> Page[Operation]:
        """List the operations of this scope, newest first."""
        arguments.whole(limit, what="limit", low=1, high=10_000)
        before = (1 << 62) if cursor is None else feed.parse_cursor(cursor, 1)[0]
        found, more = self._read(operations.page, self.scope, limit=limit, before=before)
        return Page(found, None if more is None else feed.cursor((more,)))

    def get_operation(self, id: str) -> Operation:
        """Return an operation by its id, or raise ``NotFound``."""
        return self._read(operations.value_of, self.scope, arguments.name(id, what="operation"))

    def prune(self, policy: str = "unreferenced", *, dry_run: bool = True, spare_seconds: float = 3600) -> Pruned:
        """Erase contents that nothing refers to any more; by default only report how much that would free.

        Contents stored within the last ``spare_seconds`` are kept, since somebody may be about to refer to them.
        ``unreferenced`` is the only policy so far; nothing is ever pruned unless you call this. Before anything is
        erased, each agent with sessions gets a checkpoint of type ``pre-operation``, unless its last one is still
        current; on a full disk that checkpoint is skipped.
        """
        if policy != "unreferenced":
            raise Invalid(f"policy must be 'unreferenced', not {policy!r}")
        arguments.flag(dry_run, what="dry_run")
        now_ms = self._clock.now_ms()
        before_ms = now_ms - round(arguments.seconds(spare_seconds, what="spare_seconds") * 1000)
        found = self._read(sweep.sweep, self.scope, before_ms=before_ms, now_ms=now_ms, dry_run=True)
        if dry_run:
            return found
        if found.blobs:
            self._keep_agents("Before pruning")
        while self._write_as(FREEING_ALONE, documents.clear_expired, self.scope, now_ms=now_ms):
            pass
        return self._write_as(FREEING_ALONE, sweep.sweep, self.scope, before_ms=before_ms, now_ms=now_ms, dry_run=False)

    def undo(self, op: Operation | str | None = None, *, take_over: bool = False) -> Operation:
        """Undo the last operation made through this handle, or a given one.

        Raises ``Conflict`` if a later operation changed the same thing, and ``Busy`` if files would change while
        somebody else works there, unless ``take_over`` is given.
        """
        arguments.flag(take_over, what="take_over")
        wanted = arguments.optional_name(op.id if isinstance(op, Operation) else op, what="operation")
        made = [each.id for each in self._operations if each.kind not in _NOT_UNDONE]
        if not self.capabilities.read_only:
            chosen = self._read(undo.chosen_undo, self.scope, wanted, made)
            if chosen.session is not None:
                return self.get_session(chosen.session).undo(chosen.id, take_over=take_over)
            if chosen.workspace is not None:
                return self._again("undo", chosen.id, chosen.workspace, take_over)
        now_ms = self._clock.now_ms()
        done = self._write_as(ALONE, undo.undo_chosen, self.scope, wanted, made, now_ms=now_ms).operation
        self._made(done)
        return done

    def redo(self, *, take_over: bool = False) -> Operation:
        """Redo what the last undo made through this handle took back; ``take_over`` is as in ``undo``."""
        arguments.flag(take_over, what="take_over")
        undone = [each.id for each in self._operations if each.kind == "undo"]
        if not self.capabilities.read_only:
            chosen = self._read(undo.chosen_redo, self.scope, undone)
            if chosen.session is not None:
                return self.get_session(chosen.session).redo(take_over=take_over)
            if chosen.workspace is not None:
                return self._again("redo", chosen.id, chosen.workspace, take_over)
        now_ms = self._clock.now_ms()
        done = self._write_as(ALONE, undo.redo_chosen, self.scope, undone, now_ms=now_ms).operation
        self._made(done)
        return done

    def _again(self, kind: str, operation: str, files: WorkspaceRow, take_over: bool) -> Operation:
        """Undo or redo a change of files that belongs to no session."""
        if files.machine != timeline.at(files.path).machine:
            raise Conflict(f"that operation changed files in {files.path!r} on another machine; {kind} it there")
        return self.workspace(files.path)._planned_again(kind, operation, shown=False).apply(take_over=take_over)

    def workspace(self, path: str | PathLike[str]) -> Workspace:
        """Return a directory of this machine: who changed what in it, and its files back at any moment."""
        from .workspace import Workspace

        return Workspace(self, path)

    # ------------------------------------------------------------------ documents and contents

    def docs(self, namespace: str | Sequence[str]) -> Documents:
        """Return the documents of a namespace: a string, or several as a tuple or list.

        They belong to the scope, not to a session: a rewind leaves them alone. Only the current version is kept.
        """
        from .documents import Documents

        return Documents(self, namespace)

    def put_content(self, data: bytes) -> str:
        """Store bytes once per scope and return their SHA-256, by which entries can link them.

        ``prune`` erases content that nothing links; storing it, or storing it again, spares it for ``spare_seconds``.
        """
        if not isinstance(data, bytes | bytearray | memoryview):
            raise Invalid(f"content must be bytes, not {type(data).__name__}")
        return contents.store_unlinked(self._runner, bytes(data))

    def get_content(self, hash: str) -> bytes:
        """Return content by its hash; raises ``NotFound`` if this scope does not have it."""
        return contents.read_whole(self._runner, arguments.name(hash, what="hash"))

    # ------------------------------------------------------------------ the whole store

    def events(self, after: str | None = None) -> Iterator[Change]:
        """Yield every change after a cursor up to now, in commit order."""
        page, cursor = self._changes(after)
        while cursor != after:
            yield from page
            after = cursor
            page, cursor = self._changes(after)

    def follow(self, after: str | None = None) -> Iterator[Change]:
        """Yield every change after a cursor, then each new one soon after its commit, until the store is closed.

        A reader that was away continues from its last cursor and misses nothing. On PostgreSQL a notification wakes it;
        otherwise it polls.
        """
        return self._follow(after, lambda: False)

    def _follow(self, after: str | None, stopped: Callable[[], bool]) -> Iterator[Change]:
        # Listen before the first read, so that no commit falls between the two.
        waiting = self._backend.listen()
        try:
            while not stopped():
                for change in self.events(after):
                    yield change
                    after = change.cursor
                waiting.wait(_LOOK_SECONDS)
        except Closed:
            return
        finally:
            waiting.close()

    def _changes(self, after: str | None) -> tuple[list[Change], str | None]:
        return self._read(feed_reading.after, self.scope, cursor=after, limit=_FEED_PAGE)

    def find_entries(
        self, id: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[tuple[Session, Message | Custom | Entry]]:
        """List the entries of all sessions that were given this id, each with its session.

        Several sessions may use one id, and the forks of a session have its entries, too. A page holds ``limit``
        entries, each once per session that has it. Sessions in the trash are left out.
        """
        from ..ops import customs

        wanted, after = arguments.name(id, what="id"), -1 if cursor is None else customs.parse_cursor(cursor)
        arguments.whole(limit, what="limit", low=1, high=10_000)
        found, last = self._read(customs.with_id, self.scope, wanted, after=after, limit=limit)
        shown = [(self._session(*each.session), self._as_entry(each.uid, each.row)) for each in found]
        return Page(shown, None if last is None else str(last))

    def _as_entry(self, uid: str, row: EntryRow) -> Message | Custom | Entry:
        """Return a stored entry as what it is."""
        from ..model.items import CUSTOM
        from ..ops import customs, log

        if row.kind in MESSAGE_KINDS:
            return log.as_message(uid, row, self._attachment)
        return customs.as_value(uid, row) if row.kind.startswith(CUSTOM) else log.as_entry(uid, row)

    def spending(
        self,
        by: str = "model",
        *,
        session: Session | str | None = None,
        agent: str | Agent | None = None,
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
        from . import spending

        if not isinstance(by, str) or by not in spending.WAYS:
            raise Invalid(f"by must be 'model', 'day', 'agent' or 'tool', not {by!r:.40}")
        if time_zone is not None and not isinstance(time_zone, tzinfo):
            raise Invalid(f"time_zone must be a tzinfo, not {type(time_zone).__name__}")
        if session is not None and not isinstance(session, Session):
            session = self.get_session(session)
        found = spending.Spending(by, time_zone or UTC, 0 if since is None else arguments.time_ms(since))
        asked: dict[str, Any] = {"agent": agent, "workspace": workspace, "since": since, "archived": None}
        for each in self.iter_sessions(**asked) if session is None else (session,):
            found.add(each)
        return found.found()

    def waiting(self, *, limit: int = 100, cursor: str | None = None) -> Page[tuple[Session, Approval]]:
        """List the tool calls that wait for a person's answer, over all sessions, each with its session.

        Answer with ``session.answer_approval(approval.call, True)``. Sessions that ended or are in the trash are left
        out. Pass the page's cursor to get the next page.
        """
        from ..ops import approvals, customs

        arguments.whole(limit, what="limit", low=1, high=10_000)
        before = None if cursor is None else customs.parse_cursor(cursor)
        found, last = self._read(approvals.waiting, self.scope, before=before, limit=limit)
        return Page([(self._session(*whole), asked) for whole, asked in found], None if last is None else str(last))

    def stats(self) -> StoreStats:
        """Count what this scope holds; the byte count is that of the whole store on disk."""
        size, careful = self._backend.size_bytes(), self._backend.suspect
        return self._read(stats.store_stats, self.scope, total_bytes=size, careful=careful)

    def verify(self, *, progress: Callable[[int], None] | None = None) -> Report:
        """Recompute every checksum and hash of the store, in all scopes, without changing anything.

        ``progress`` is called from time to time with the number of records checked so far.
        """
        from ..ops import verify as verify_

        self._read(store_identity.require_readable)  # an unreadable store raises; damage inside one is reported
        every = self._backend.scoped(None)
        return verify_.verify(every.read, every.check, progress)

    def backup(self, path: str | PathLike[str], *, progress: Callable[[int], None] | None = None) -> Report:
        """Copy the whole store, all scopes, into a new file as of one moment, and verify the copy.

        The store may stay in use. The file appears only once it is complete, and opens like any store. The report names
        damage that was copied along, and what a file leaves out of a server. Raises ``Conflict`` if the file exists,
        and ``Invalid`` on a handle bound to one scope, since the backup holds all of them. ``progress`` works as in
        ``verify``.
        """
        from .backup import back_up

        return back_up(self, path, progress)

    def repair(self, to: str | PathLike[str] | None = None) -> Repaired:
        """Copy everything undamaged into a new store, verify the copy, and report what was lost.

        By default the copy goes next to the store, with ``.repaired`` added to its name. Raises ``Conflict`` if that
        file exists. This store is not changed and may stay in use.
        """
        from .repairing import copy_repaired

        return copy_repaired(self, to)

    # ------------------------------------------------------------------ out and in again

    def export(
        self,
        sessions: Session | str | Iterable[Session | str],
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
        from . import exchange

        return exchange.export(
            self,
            sessions,
            to,
            format=format,
            subagents=subagents,
            documents=documents,
            tools=tools,
            secrets=secrets,
            at=at,
            progress=progress,
        )

    def load(
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
        from . import exchange

        return exchange.load(self, path, workspace=workspace, dry_run=dry_run, progress=progress)
