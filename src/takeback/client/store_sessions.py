"""The store's sessions: created, found, listed, deleted.

Exactly one session exists per name, directory, main or cron key, however many processes ask: finding and creating
happen in one transaction, backed by a unique index.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from os import PathLike
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from .. import codec
from ..errors import Conflict, Invalid, LeaseLost, Unsupported
from ..files.disk import identity as identities
from ..ids import new_id
from ..model.capture import Capture, capture_of
from ..model.operation import Operation
from ..model.session import short_title
from ..model.subagents import Spawned
from ..ops import directory_sessions, moves, new_sessions, purge, sessions
from ..ops.sessions import KINDS
from ..storage.runner import FREEING
from . import arguments
from .session import Session
from .store_agents import StoreAgents

if TYPE_CHECKING:
    from ..files.disk.identity import Located
    from ..model.purge import Purged
    from ..ops.idempotency import ApiCall
    from .agent import Agent

_TITLE = 60
_SAID = sessions.SessionFields._fields.index("archived")  # fields that an idempotency key always stood for


class NewSession(TypedDict, total=False):
    """The fields a new session may have besides its name, agent and workspace."""

    title: str | None
    prompt: str | None
    model: str | None
    provider: str | None
    kind: str
    label: str | None
    task: str | None
    parent: str | Session | None
    tags: Iterable[str]
    archived: bool
    metadata: Mapping[str, Any] | None
    created_at: datetime | None


class StoreSessions(StoreAgents):
    """The part of a store that keeps sessions."""

    # ------------------------------------------------------------------ get or create

    def session(
        self,
        name_or_session: str | Session | None = None,
        *,
        agent: str | Agent = "main",
        workspace: str | PathLike[str] | None = None,
        wait: float = 0,
        take_over: bool = False,
        hold: bool = True,
        capture: str | Capture = "calls",
        **fields: Unpack[NewSession],
    ) -> Session:
        """Return the session of this name, agent and workspace, ready to run; create it if new or unnamed.

        This takes the lease. If somebody else runs the session, wait up to ``wait`` seconds, then raise ``Busy``; with
        ``take_over`` their next write raises ``LeaseLost`` instead. A finished session is reopened. Leaving the
        ``with`` block, closing the store or dropping the handle releases the lease. With ``hold=False`` no lease is
        taken, so that many writers can append to one session. ``capture`` controls when the workspace is scanned (see
        ``Capture``). The other fields apply to a new session only, for which ``workspace`` must be a directory that
        exists. ``created_at`` is when it began, if that was earlier: it is then listed there until something happens
        in it later.
        """
        how = capture_of(capture)
        arguments.seconds(wait, what="wait")
        arguments.flag(take_over, what="take_over")
        arguments.flag(hold, what="hold")
        if isinstance(name_or_session, Session):
            self._read(sessions.get, self.scope, name_or_session.id)  # of this store and scope?
            found = name_or_session.refresh()
        else:
            made = _fields(name_or_session, agent, workspace, fields, self._clock.now_ms())
            named = made.name is not None
            found = self._ensure(made) if named else self._create(made, None)
        found._capture = how
        if hold and not found._holds():
            if self._backend.capabilities.read_only:
                raise Unsupported(
                    "this store was opened read-only, so no session can run in it; get_session reads one",
                    capability="write",
                )
            found._take(wait, take_over=take_over)
        return found

    def spawn(
        self,
        task: str,
        *,
        parent: str | Session | None = None,
        label: str | None = None,
        agent: str | Agent = "main",
        workspace: str | PathLike[str] | None = None,
        model: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        wait: float = 0,
        idempotency_key: str | None = None,
    ) -> Spawned[Session]:
        """Start a sub-agent for a task, under ``parent`` if given; ``Session.spawn`` passes its own session.

        Raises ``Conflict`` if the parent is finished, or if one of its sub-agents has this label already. With an
        ``idempotency_key`` the same call again, even after a crash, returns the same sub-agent, which can be entered
        again; ``wait`` is how many seconds that waits for whoever still runs it.
        """
        if not arguments.text(task, what="task").strip():
            raise Invalid("the task is empty; describe what is to be done")
        fields: NewSession = {"kind": "subagent", "task": task, "prompt": task, "label": label, "parent": parent}
        seconds = arguments.seconds(wait, what="wait")
        made = _fields(None, agent, workspace, {**fields, "model": model, "metadata": metadata}, self._clock.now_ms())
        found = self._create(made, idempotency_key, parent if isinstance(parent, Session) else None)
        found._wait = seconds
        name = label or found.title or found.id
        return Spawned("accepted", found.run_id or "", found.key, f"sub-agent {name!r} was started", found)

    def main_session(self, agent: str | Agent = "main", *, wait: float = 0) -> Session:
        """Return an agent's main session, creating it if it is new.

        ``wait`` is how many seconds entering it waits for whoever runs it, before it raises ``Busy``.
        """
        return self._fixed(arguments.agent_id(agent), "main", "main", wait)

    def cron_session(self, agent: str | Agent, name: str, *, wait: float = 0) -> Session:
        """Return the session of an agent's scheduled job, creating it if it is new.

        ``wait`` is how many seconds entering it waits for a run that still goes on, before it raises ``Busy``.
        """
        job = sessions.escape(arguments.name(name, what="cron name"))
        return self._fixed(arguments.agent_id(agent), f"cron:{job}", "cron", wait)

    def directory_session(self, path: str | PathLike[str], *, agent: str | Agent = "main", wait: float = 0) -> Session:
        """Return the session of a directory, creating it if it is new; the directory must exist.

        Symbolic links lead to the same session, and a directory that was moved keeps its own. ``wait`` is how many
        seconds entering it waits for whoever runs it, before it raises ``Busy``.
        """
        seconds = arguments.seconds(wait, what="wait")
        place, owner = identities.locate(arguments.workspace(path)), arguments.agent_id(agent)
        found = self._read(directory_sessions.find, self.scope, owner, place.path)
        if found is None or not directory_sessions.is_known(found[1], place.identity):
            before, now_ms = self._moved_from(owner, place), self._clock.now_ms()
            found = self._write(directory_sessions.create, self.scope, owner, *place, moved_from=before, now_ms=now_ms)
        return self._awaited(found, seconds)

    def _awaited(self, found: sessions.Whole, seconds: float) -> Session:
        """Return a handle that waits when it is entered."""
        session = self._session(*found)
        session._wait = seconds
        return session

    def _moved_from(self, agent: str, place: Located) -> str | None:
        """Return where a directory was before, if it has a session there and that path is gone."""
        same = place.identity
        if same is None:
            return None
        known = self._read(directory_sessions.same_directory, self.scope, agent, same)
        return next((row.workspace for row in known if identities.identity(row.workspace) != same), None)

    def get_or_create_session(self, directory: str | PathLike[str]) -> Session:
        """Return the session of a directory, creating it if new: ``directory_session`` of the main agent."""
        return self.directory_session(directory)

    def save_session(self, session: Session) -> None:
        """Check that a session is stored; there is nothing to write, since every call is durable when it returns.

        Raises ``Conflict`` if it was deleted meanwhile and ``NotFound`` if it was purged: it is never created again.
        """
        if not isinstance(session, Session):
            raise Invalid(f"save_session takes a session of this store, not {type(session).__name__}")
        self._read(sessions.get, self.scope, session.id)  # of this store and scope?
        if session.refresh().deleted:
            raise Conflict("this session is in the trash; restore it first with restore_session", found="trash")

    def create_session(
        self,
        name: str | None = None,
        *,
        agent: str | Agent = "main",
        workspace: str | PathLike[str] | None = None,
        idempotency_key: str | None = None,
        **fields: Unpack[NewSession],
    ) -> Session:
        """Create a session; raises ``Conflict`` if a visible one of this agent and workspace has the name.

        ``workspace`` must be a directory that exists. ``created_at`` is when the session began, if that was earlier:
        it is then listed there until something happens in it later.
        """
        made = _fields(name, agent, workspace, fields, self._clock.now_ms())
        return self._create(made, idempotency_key)

    def _create(self, made: sessions.SessionFields, key: str | None, by: Session | None = None) -> Session:
        """Create a session once per key; ``by``, who spawns it, must still hold its own lease if it had one."""
        held = None if by is None else by._held
        # Keys recorded before the last fields existed must still match.
        added = [*(["archived"] if made.archived else []), *([] if made.created_ms is None else [made.created_ms])]
        call = self._call(key, [[*made[:_SAID], *added], {**codec.decode(made.detail), "run_id": None}])
        if by is None or by.workspace != made.workspace:  # what it inherits may be gone by now, as its spawner knows
            self._require_directory(made, call)
        try:
            found = self._write(new_sessions.create_once, self.scope, call, made, None if held is None else held.fence)
        except LeaseLost:
            if held is not None:
                held.lose()
            raise
        return self._session(*found)

    def _require_directory(self, made: sessions.SessionFields, call: ApiCall) -> None:
        """Refuse a workspace that is not there, unless the session exists already."""
        try:
            arguments.require_directory(made.workspace)
        except Invalid:
            if not self._read(new_sessions.was_made, self.scope, call):
                raise

    def _fixed(self, agent: str, rest: str, kind: str, wait: float) -> Session:
        seconds = arguments.seconds(wait, what="wait")
        key = f"agent:{sessions.escape(agent)}:{rest}"
        made = sessions.SessionFields(
            agent, kind, key=key, detail=codec.encode({"run_id": new_id(self._clock.now_ms())})
        )
        return self._ensure(made, seconds)

    def _ensure(self, made: sessions.SessionFields, seconds: float = 0) -> Session:
        """Find a session, or create it in the transaction that found none; an existing one costs no write."""
        found = self._read(new_sessions.find, self.scope, made)
        if found is None:
            arguments.require_directory(made.workspace)
            found = self._write(new_sessions.ensure, self.scope, made, now_ms=self._clock.now_ms())
        return self._awaited(found, seconds)

    # ------------------------------------------------------------------ deleting

    def delete_session(self, session: str | Session, *, subagents: bool = True) -> Operation | None:
        """Move a session to the trash, by id, key or name, with all sub-agents below it; None if there is none.

        A main, directory or cron session is emptied instead. With ``subagents=False`` the sub-agents stay. ``undo`` and
        ``restore_session`` bring back everything that went with it.
        """
        arguments.flag(subagents, what="subagents")
        return self._hide(session, hidden=True, with_below=subagents)

    def restore_session(self, session: str | Session) -> Operation | None:
        """Take a session out of the trash, by its id; if its name is taken by now, `` (2)`` is appended.

        The sub-agents that went to the trash with it come back too; those deleted on their own stay there.
        """
        wanted = session.id if isinstance(session, Session) else arguments.name(session, what="session id")
        self._read(sessions.get, self.scope, wanted)
        return self._hide(session, hidden=False, with_below=True)

    def _hide(self, session: str | Session, *, hidden: bool, with_below: bool) -> Operation | None:
        # A handle stands for its id alone: once that is purged, another session may have it as its name.
        hide, wanted = (moves.hide, session.id) if isinstance(session, Session) else (moves.hide_named, _named(session))
        now_ms = self._clock.now_ms()
        done = self._write_as(FREEING, hide, self.scope, wanted, hidden=hidden, with_below=with_below, now_ms=now_ms)
        if done is None:
            return None
        if isinstance(session, Session):
            session._seen = done[0]
        self._made(done[1])
        return done[1]

    def purge_session(self, session: str | Session, *, include_forks: bool = False, subagents: bool = True) -> Purged:
        """Erase a session for good, by id, key or name, with all sub-agents below it; this cannot be undone.

        Entries that forks need are kept and reported, unless ``include_forks`` purges those too. With
        ``subagents=False`` the sub-agents stay. It is not an error if the session does not exist.
        """
        arguments.flag(include_forks, what="include_forks")
        arguments.flag(subagents, what="subagents")
        how = purge.Reach(include_forks, subagents)
        now_ms = self._clock.now_ms()
        if isinstance(session, Session):  # never by name: see _hide
            done = self._write_as(FREEING, purge.purge, self.scope, session.id, how, now_ms=now_ms)
        else:
            done = self._write_as(FREEING, purge.purge_named, self.scope, _named(session), how, now_ms=now_ms)
        self._forget_erased(done.sessions)
        return done


def _named(session: str) -> str:
    """Check what to find a session by: its id, key or name."""
    return arguments.name(session, what="session", most=10_000)


def _fields(
    name: str | None, agent: str | Agent, workspace: str | PathLike[str] | None, given: NewSession, now_ms: int
) -> sessions.SessionFields:
    """Check the fields of a new session."""
    unknown = given.keys() - NewSession.__annotations__.keys()
    if unknown:
        raise TypeError(f"a session has no field {sorted(unknown)[0]!r}; put your own data into metadata")
    parent = given.get("parent")
    parent_id = parent.id if isinstance(parent, Session) else arguments.optional_name(parent, what="parent")
    label = arguments.optional_name(given.get("label"), what="label")
    kind = given.get("kind", "main")
    if kind not in KINDS:
        raise Invalid(f"kind must be {', '.join(KINDS[:-1])} or {KINDS[-1]}, not {kind!r}")
    archived = given.get("archived", False)
    arguments.flag(archived, what="archived")
    detail: dict[str, Any] = {"run_id": new_id(now_ms), "parent_id": parent_id}
    for field in ("prompt", "model", "provider", "task"):
        value = given.get(field)
        detail[field] = None if value is None else arguments.text(value, what=field)
    detail["metadata"] = arguments.mapping(given.get("metadata") or {}, what="metadata")
    title = arguments.optional_name(given.get("title"), what="title")
    return sessions.SessionFields(
        agent=arguments.agent_id(agent),
        kind=kind,
        name=arguments.optional_name(name, what="session name"),
        label=label,
        workspace=arguments.workspace(workspace),
        parent=parent_id,
        title=title or short_title(detail["prompt"] or "", _TITLE, ellipsis=False),
        tags=tuple(dict.fromkeys(arguments.tag(tag) for tag in arguments.many(given.get("tags") or (), what="tags"))),
        archived=archived,
        detail=codec.encode({field: value for field, value in detail.items() if value}),
        created_ms=arguments.past_ms(given.get("created_at"), what="created_at"),
    )
