"""The store: where everything is kept.

A handle may be used by any thread and closed by any of them. ``scoped`` gives a handle for another
scope on the same connections; nothing of one scope is ever seen through another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from os import PathLike
from types import TracebackType
from typing import Any, BinaryIO

from ..errors import Closed, Invalid, Unsupported
from ..model import html
from ..model.copied import Copying
from ..model.exchange import Exported, Loaded
from ..model.feed import Change
from ..model.operation import Operation
from ..model.page import Page
from ..model.purge import Pruned
from ..model.report import Repaired, Report
from ..model.session import StoreStats
from ..ops import feed, feed_reading, operations, scopes, stats, store_identity, sweep
from ..storage.runner import ALONE, FREEING_ALONE
from . import arguments
from .points import Point
from .session import Session
from .store_checkpoints import StoreCheckpoints

_FEED_PAGE = 500
_LOOK_SECONDS = 0.5
_NOT_UNDONE = ("undo", "redo", "purge")


class Store(StoreCheckpoints):
    """An open store, seen from one scope."""

    def close(self) -> None:
        """Stop automatic checkpoints, give all leases back, finish what is being written and release the files.

        A handle that ``scoped`` gave leaves them open.
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
        """Give a handle for another scope on the same connections."""
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

        A handle of one scope raises ``Invalid``: it sees nothing of the others. Where PostgreSQL's row security shows
        this role one scope at a time, it raises ``Unsupported``.
        """
        if self.scope:
            raise Invalid("a handle of one scope sees no other; ask a store that was opened without a scope")
        if not self.capabilities.all_scopes:
            raise Unsupported(
                "row security shows this role one scope at a time; open the store as the owner of its tables",
                capability="all_scopes",
            )
        return self._backend.scoped(None).read(scopes.every)

    # ------------------------------------------------------------------ operations

    def operations(self, *, limit: int = 100, cursor: str | None = None) -> Page[Operation]:
        """Give all operations of this scope, newest first."""
        arguments.whole(limit, what="limit", low=1, high=10_000)
        before = (1 << 62) if cursor is None else feed.parse_cursor(cursor, 1)[0]
        found, more = self._read(operations.page, self.scope, limit=limit, before=before)
        return Page(found, None if more is None else feed.cursor((more,)))

    def prune(self, policy: str = "unreferenced", *, dry_run: bool = True, spare_seconds: float = 3600) -> Pruned:
        """Erase contents that nothing needs any more; a dry run, the default, only says how much that is.

        What was stored within the last ``spare_seconds`` stays, since somebody may be about to use it. The one policy
        so far is ``unreferenced``; nothing is ever pruned unasked. Before anything is erased, a checkpoint of type
        ``pre-operation`` is taken of each agent with sessions, unless the last one shows it as it is; on a full disk
        there is none.
        """
        if policy != "unreferenced":
            raise Invalid(f"the policy is 'unreferenced', not {policy!r}")
        arguments.flag(dry_run, what="dry_run")
        before_ms = self._clock.now_ms() - round(arguments.seconds(spare_seconds, what="spare_seconds") * 1000)
        found = self._read(sweep.sweep, self.scope, before_ms=before_ms, dry_run=True)
        if dry_run:
            return found
        if found.blobs:
            self._keep_agents("Before pruning")
        return self._write_as(FREEING_ALONE, sweep.sweep, self.scope, before_ms=before_ms, dry_run=False)

    def undo(self, op: Operation | str | None = None) -> Operation:
        """Take back the last operation made through this handle, or a named one.

        An operation is ``Conflict`` when a later one changed the same thing.
        """
        wanted = arguments.optional_name(op.id if isinstance(op, Operation) else op, what="operation")
        made = [each.id for each in self._operations if each.kind not in _NOT_UNDONE]
        if not self.capabilities.read_only:
            chosen, session_id = self._read(operations.chosen_undo, self.scope, wanted, made)
            if session_id is not None:
                return self.get_session(session_id).undo(chosen)
        now_ms = self._clock.now_ms()
        done = self._write_as(ALONE, operations.undo_chosen, self.scope, wanted, made, now_ms=now_ms).operation
        self._made(done)
        return done

    def redo(self) -> Operation:
        """Bring back what the last undo made through this handle took back."""
        undone = [each.id for each in self._operations if each.kind == "undo"]
        if not self.capabilities.read_only:
            _, session_id = self._read(operations.chosen_redo, self.scope, undone)
            if session_id is not None:
                return self.get_session(session_id).redo()
        now_ms = self._clock.now_ms()
        done = self._write_as(ALONE, operations.redo_chosen, self.scope, undone, now_ms=now_ms).operation
        self._made(done)
        return done

    # ------------------------------------------------------------------ the whole store

    def events(self, after: str | None = None) -> Iterator[Change]:
        """Give every change after a cursor, in the order of commits, up to now."""
        page, cursor = self._changes(after)
        while cursor != after:
            yield from page
            after = cursor
            page, cursor = self._changes(after)

    def follow(self, after: str | None = None) -> Iterator[Change]:
        """Give every change after a cursor, and then each new one soon after it is committed; ends with the store.

        A reader that was away goes on from its last cursor and misses nothing. On PostgreSQL a notice wakes it;
        where none comes it looks by itself.
        """
        return self._follow(after, lambda: False)

    def _follow(self, after: str | None, stopped: Callable[[], bool]) -> Iterator[Change]:
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

    def stats(self) -> StoreStats:
        """Count what this scope holds; bytes are those of the whole store on disk."""
        size, careful = self._backend.size_bytes(), self._backend.suspect
        return self._read(stats.store_stats, self.scope, total_bytes=size, careful=careful)

    def verify(self, *, progress: Callable[[int], None] | None = None) -> Report:
        """Recompute every check and every hash of the store, all scopes; nothing is changed.

        ``progress`` is called with the number of records that were looked at, now and then.
        """
        from ..ops import verify as verify_

        self._read(store_identity.require_readable)  # a store that cannot be read at all says so; the rest is findings
        every = self._backend.scoped(None)
        return verify_.verify(every.read, every.check, progress)

    def backup(self, path: str | PathLike[str], *, progress: Callable[[int], None] | None = None) -> Report:
        """Copy the whole store, all scopes, into a new file as of one moment, and verify that copy.

        The store may be in use meanwhile. The file is there only when it is whole, and opens as any store does; one
        that is there already is ``Conflict``. The report names damage that was copied, and what a server's file leaves
        out. Through a handle on one scope it is ``Invalid``: it would hold the others too. ``progress`` is that of
        ``verify``.
        """
        from .backup import back_up

        return back_up(self, path, progress)

    def repair(self, to: str | PathLike[str] | None = None) -> Repaired:
        """Copy the store to a new file without what is damaged, verify the copy, and say what was lost.

        By default the copy lies beside the store, with ``.repaired`` behind its name; a file that is there already is
        ``Conflict``. This store is not changed and may be in use meanwhile.
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
        from . import exchange

        return exchange.export(
            self,
            sessions,
            to,
            format=format,
            subagents=subagents,
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
        """Bring in what ``export`` wrote as lines, or the folder of a mirror; loading it again changes nothing.

        It is judged first: a file that is cut off, changed or forged raises ``Corrupt`` and nothing of it is stored.
        A session has no workspace here, whatever the file says; with ``workspace`` those that had one get that one. A
        name that is taken gets `` (2)`` behind it. A session that is here already stays where it is and gets what is
        new; one that was changed in both raises ``Conflict``, once everything else is loaded. ``progress`` is called
        with the number of lines that were read.
        """
        from . import exchange

        return exchange.load(self, path, workspace=workspace, dry_run=dry_run, progress=progress)
