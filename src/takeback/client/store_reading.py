"""The part of a store that only reads: finding and listing sessions.

``Store`` is this plus everything that writes, and returns handles that can do everything. A ``Reader`` is this alone,
for commands that only read and must start at once: it imports nothing that writing, files and contexts need.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from os import PathLike
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Generic, TypeVar

from .. import model, presence
from ..clock import Clock
from ..errors import Invalid, NotFound
from ..model.page import Page
from ..model.status import STATUSES
from ..ops import listing, sessions
from ..ops import refs as parser
from ..ops.sessions import LeaseRow, SessionRow
from ..storage.base import Capabilities, Readable
from ..storage.runner import Operation as Op
from ..storage.runner import P, Reads, T
from . import arguments
from .reading import Reading
from .refs import Resolved

if TYPE_CHECKING:
    from ..model.report import Report
    from ..model.search import Hits
    from ..search.searcher import Searcher
    from .agent import Agent

S_co = TypeVar("S_co", bound=Reading, covariant=True)  # the type of handle that the store returns


class StoreReading(model.Bound, ABC, Generic[S_co]):
    """An open store, seen from one scope."""

    scope: str
    url: str

    def __init__(self, backend: Readable, *, clock: Clock, scope: str, url: str) -> None:
        self._backend = backend
        self._clock = clock
        self._runner: Reads[Any] = Reads(backend, clock, scope)
        self._attachment = model.home(self)
        self._searcher: Searcher | None = None
        self.scope = scope
        self.url = url

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do, as it was opened."""
        return self._backend.capabilities

    @abstractmethod
    def close(self) -> None:
        """Release what the store holds."""

    def _read(self, op: Op[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation that only reads."""
        return self._runner.read(op, *args, **kwargs)

    @abstractmethod
    def _session(self, row: SessionRow, doc: bytes | None, lease: LeaseRow | None = None) -> S_co:
        """Return a handle on a session that was read."""

    def _open_content(self, content_hash: str) -> IO[bytes]:
        from . import attachments

        return attachments.open_content(self, content_hash)

    def _is_gone(self, lease: LeaseRow) -> bool:
        """Whether the holder of a lease no longer exists."""
        return lease.holder is not None and presence.seems_gone(
            presence.decode(lease.holder), lease.beat_ms, self._clock.now_ms()
        )

    # ------------------------------------------------------------------ finding

    def get_session(
        self,
        id_name_or_key: str,
        *,
        agent: str | Agent | None = None,
        workspace: str | PathLike[str] | None = None,
        wait: float = 0,
    ) -> S_co:
        """Return a session by its exact id (even one in the trash), key or name; nothing is parsed.

        Raises ``Ambiguous`` if sessions of several agents or workspaces have that name: pass those too. ``wait`` is how
        many seconds entering the session waits for whoever runs it, before it raises ``Busy``.
        """
        found = self.find_session(id_name_or_key, agent=agent, workspace=workspace, wait=wait)
        if found is None:
            raise NotFound(f"there is no session {id_name_or_key!r} in this store and scope")
        return found

    def find_session(
        self,
        id_name_or_key: str,
        *,
        agent: str | Agent | None = None,
        workspace: str | PathLike[str] | None = None,
        wait: float = 0,
    ) -> S_co | None:
        """Return a session by its exact id, key or name, or None; ``wait`` is as in ``get_session``."""
        seconds = arguments.seconds(wait, what="wait")
        wanted = arguments.name(id_name_or_key, what="session", most=10_000)
        owner = arguments.optional_agent_id(agent)
        place = None if workspace is None else arguments.workspace(workspace)
        found = self._read(parser.exact_whole, self.scope, wanted, agent=owner, workspace=place)
        if found is None:
            return None
        session = self._session(*found)
        session._wait = seconds
        return session

    def resolve(self, ref: str, workspace: str | PathLike[str] | None = None) -> Resolved[S_co]:
        """Parse a ref as people type it: a key, a name, an id or its beginning, ``@`` or ``@-1``; then a point.

        ``REF:12`` is the end of turn 12, ``REF:12^`` the point before it, ``REF:e340`` entry 340, ``REF:name`` a
        checkpoint, ``REF/branch`` a branch. Raises ``Ambiguous`` with the candidates if several sessions match.
        """
        text = arguments.name(ref, what="ref", most=2000)
        place = None if workspace is None else arguments.workspace(workspace)
        whole, point = self._read(parser.resolve, self.scope, text, workspace=place)
        return Resolved(self._session(*whole), *point)

    # ------------------------------------------------------------------ listing

    def list_sessions(
        self,
        *,
        agent: str | Agent | None = None,
        kinds: str | Iterable[str] | None = None,
        status: str | Iterable[str] | None = None,
        label: str | None = None,
        tag: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        workspace: str | PathLike[str] | None = None,
        parent: str | Reading | None = None,
        active_only: bool = False,
        archived: bool | None = False,
        pinned: bool | None = None,
        since: datetime | None = None,
        trash: bool = False,
        order: str = "updated",
        with_state: Iterable[str] = (),
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[S_co]:
        """List sessions, last changed first, or newest first with ``order="created"``.

        ``"updated_asc"`` starts with the one whose last change is the oldest. Sessions that were imported, or created
        with ``created_at``, are listed when things happened in them. ``metadata`` asks for sessions whose metadata has
        all these names with equal values: text, numbers, True, False or None. ``with_state`` names values of the
        session's state to read along, into ``state_values``.

        Pass the page's cursor to get the next page. Archived sessions are left out, except from the trash, unless
        ``archived`` is True (only those) or None (both). The page's ``damaged`` names sessions with a damaged record.
        """
        arguments.whole(limit, what="limit", low=1, high=10_000)
        for name, flag in (("archived", archived), ("pinned", pinned)):
            arguments.flag(flag, what=name, optional=True)
        arguments.flag(trash, what="trash")
        arguments.flag(active_only, what="active_only")
        if not isinstance(order, str) or order not in listing.ORDERS:
            raise Invalid(f"order must be 'updated', 'created' or 'updated_asc', not {order!r}")
        names = [arguments.name(name, what="with_state") for name in arguments.many(with_state, what="with_state")]
        before = listing.parse_cursor(order, cursor)
        wanted = _filter(
            agent=agent,
            kinds=kinds,
            status="active" if active_only else status,
            label=label,
            tag=tag,
            metadata=metadata,
            workspace=workspace,
            archived=archived,
            pinned=pinned,
            since=since,
            trash=trash,
        )
        parent_id = parent.id if isinstance(parent, Reading) else arguments.optional_name(parent, what="parent")
        found = self._read(
            listing.page,
            self.scope,
            wanted,
            parent_id,
            order=order,
            before=before,
            limit=limit,
            is_gone=self._is_gone,
            state=names,
        )
        more = None if found.next is None else listing.cursor(order, found.next)
        listed = [self._session(*each) for each in found.found]
        for session, values in zip(listed, found.states, strict=bool(names)):
            session._state_values = values
        return Page(listed, more, tuple(found.damaged))

    # ------------------------------------------------------------------ searching

    def search(
        self,
        query: str,
        *,
        roles: str | Iterable[str] = (),
        kinds: str | Iterable[str] = (),
        agent: str | Agent | None = None,
        session: Reading | str | None = None,
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
        from . import searching

        return searching.search(
            self,
            query,
            roles=roles,
            kinds=kinds,
            agent=agent,
            session=session,
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

    def rebuild_search(self, *, progress: Callable[[int, int | None], object] | None = None) -> None:
        """Make the search index anew; nothing else needs it, and a damaged one is made anew by itself."""
        from . import searching

        searching.searcher(self).rebuild(progress)

    def check_search(self) -> Report:
        """Report what is wrong with the search index, by real searches for what the store holds; changes nothing."""
        from . import searching

        return searching.check(self)

    # ------------------------------------------------------------------ counting

    def _count(self, most: int, **filters: Any) -> int:
        """Count sessions up to a number; takes the filters of ``list_sessions``."""
        wanted = _filter(**filters)
        if wanted.statuses is not None:  # whether an active one's holder is gone is known only after reading it
            return len(self.list_sessions(**filters, limit=most))
        return self._read(listing.count, self.scope, wanted, most)

    def _with_sessions(self, among: Sequence[str]) -> set[str]:
        """Return those of the given directories that are workspaces of sessions."""
        return self._read(listing.workspaces, self.scope, among)

    def _short_ids(self, ids: Sequence[str], least: int) -> dict[str, str]:
        """Map each id to the shortest prefix, of at least so many characters, that identifies the session."""
        return self._read(parser.shortest, self.scope, ids, least)

    def iter_sessions(self, **filters: Any) -> Iterator[S_co]:
        """Yield sessions, read in pages; takes the filters of ``list_sessions``."""
        return self._sessions_beside([], **filters)

    def _sessions_beside(self, damaged: list[str], **filters: Any) -> Iterator[S_co]:
        """Yield sessions, and append the ids of those with a damaged record to ``damaged`` on the way."""
        page = self.list_sessions(**{"limit": 500, **filters})
        return self._following(page, filters, damaged)

    def _following(self, page: Page[S_co], filters: dict[str, Any], damaged: list[str]) -> Iterator[S_co]:
        while True:
            damaged += page.damaged
            yield from page
            if page.cursor is None:
                return
            page = self.list_sessions(**{"limit": 500, **filters, "cursor": page.cursor})


class Reader(StoreReading[Reading]):
    """An open store that is only read."""

    def _session(self, row: SessionRow, doc: bytes | None, lease: LeaseRow | None = None) -> Reading:
        return Reading(self, row, doc, lease)

    def close(self) -> None:
        """Release the files."""
        self._backend.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _filter(
    *,
    agent: str | Agent | None = None,
    kinds: str | Iterable[str] | None = None,
    status: str | Iterable[str] | None = None,
    label: str | None = None,
    tag: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    workspace: str | PathLike[str] | None = None,
    archived: bool | None = False,
    pinned: bool | None = None,
    since: datetime | None = None,
    trash: bool = False,
) -> listing.Filter:
    """Check the filters of a listing."""
    return listing.Filter(
        agent=arguments.optional_agent_id(agent),
        kinds=_several(kinds, sessions.KINDS, what="kind"),
        statuses=_several(status, STATUSES, what="status"),
        label=arguments.optional_name(label, what="label"),
        tag=None if tag is None else arguments.tag(tag),
        metadata=() if metadata is None else arguments.metadata_pairs(metadata),
        workspace=None if workspace is None else arguments.workspace(workspace),
        archived=None if trash and archived is False else archived,
        pinned=pinned,
        since_ms=None if since is None else arguments.time_ms(since),
        trash=trash,
    )


def _several(value: str | Iterable[str] | None, known: tuple[str, ...], *, what: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    given = (value,) if isinstance(value, str) else tuple(arguments.many(value, what=f"{what}s"))
    for each in given:
        if not isinstance(each, str) or each not in known:
            raise Invalid(f"{what} must be {', '.join(known[:-1])} or {known[-1]}, not {each!r}")
    return given
