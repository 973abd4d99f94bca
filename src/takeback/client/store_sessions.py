"""The store's sessions: made, found, listed, deleted.

Exactly one session exists per name, directory, main or cron key however many processes ask: looking and making
are one transaction, and a unique index stands behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Any, TypedDict, Unpack

from .. import codec
from ..errors import Conflict, Invalid, LeaseLost, Unsupported
from ..files.disk.identity import Located, identity, locate
from ..ids import new_id
from ..model.capture import Capture, capture_of
from ..model.operation import Operation
from ..model.purge import Purged
from ..model.session import short_title
from ..model.subagents import Spawned
from ..ops import directory_sessions, moves, new_sessions, purge, sessions
from ..ops.sessions import KINDS
from ..storage.runner import FREEING
from . import arguments
from .session import Session
from .store_agents import StoreAgents

_TITLE = 60


class NewSession(TypedDict, total=False):
    """What a new session may be given beside its name, agent and workspace."""

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


class StoreSessions(StoreAgents):
    """The part of a store that keeps sessions."""

    # ------------------------------------------------------------------ get or create

    def session(
        self,
        name_or_session: str | Session | None = None,
        *,
        agent: str = "main",
        workspace: str | PathLike[str] | None = None,
        wait: float = 0,
        take_over: bool = False,
        hold: bool = True,
        capture: str | Capture = "calls",
        **fields: Unpack[NewSession],
    ) -> Session:
        """Give the session of this name, agent and workspace to run it; one that is new, or has no name, is made.

        It takes the lease: somebody else who runs it is waited for up to ``wait`` seconds, then ``Busy``; with
        ``take_over`` their next write is ``LeaseLost``. A finished one goes on. Leaving the ``with`` block, closing the
        store or forgetting the handle gives the lease back. With ``hold=False`` no lease is taken, for many that add to
        one session. ``capture`` says when its workspace is looked at (``Capture``). The fields are for a new session.
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
                    "this store was opened read-only, so nobody can run a session in it; get_session looks at one",
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
        agent: str = "main",
        workspace: str | PathLike[str] | None = None,
        model: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Spawned[Session]:
        """Start a sub-agent for a task, below a session if a parent is named; ``Session.spawn`` knows its own.

        A parent that is finished is ``Conflict``, and so is a label that a sub-agent of it has already.
        """
        if not arguments.text(task, what="task").strip():
            raise Invalid("a task says what is to be done")
        fields: NewSession = {"kind": "subagent", "task": task, "prompt": task, "label": label, "parent": parent}
        made = _fields(None, agent, workspace, {**fields, "model": model, "metadata": metadata}, self._clock.now_ms())
        found = self._create(made, idempotency_key, parent if isinstance(parent, Session) else None)
        name = label or found.title or found.id
        return Spawned("accepted", found.run_id or "", found.key, f"sub-agent {name!r} was started", found)

    def main_session(self, agent: str = "main") -> Session:
        """Give the one main session of an agent, making it if it is new."""
        return self._fixed(arguments.name(agent, what="agent"), "main", "main")

    def cron_session(self, agent: str, name: str) -> Session:
        """Give the one session of an agent's scheduled job, making it if it is new."""
        job = sessions.escape(arguments.name(name, what="cron name"))
        return self._fixed(arguments.name(agent, what="agent"), f"cron:{job}", "cron")

    def directory_session(self, path: str | PathLike[str], *, agent: str = "main") -> Session:
        """Give the one session of a directory, making it if it is new.

        Symbolic links lead to the same session, and a directory that was moved keeps its own.
        """
        place, agent = locate(arguments.workspace(path)), arguments.name(agent, what="agent")
        found = self._read(directory_sessions.find, self.scope, agent, place.path)
        if found is None or not directory_sessions.is_known(found[1], place.identity):
            before, now_ms = self._moved_from(agent, place), self._clock.now_ms()
            found = self._write(directory_sessions.create, self.scope, agent, *place, moved_from=before, now_ms=now_ms)
        return self._session(*found)

    def _moved_from(self, agent: str, place: Located) -> str | None:
        """Find where a directory was before, if it has a session and is not there any more."""
        same = place.identity
        if same is None:
            return None
        known = self._read(directory_sessions.same_directory, self.scope, agent, same)
        return next((row.workspace for row in known if identity(row.workspace) != same), None)

    def get_or_create_session(self, directory: str | PathLike[str]) -> Session:
        """Give the one session of a directory, making it if it is new: ``directory_session`` of the main agent."""
        return self.directory_session(directory)

    def save_session(self, session: Session) -> None:
        """Check that a session is stored: everything said through it is durable already, so there is nothing to do.

        One that was deleted meanwhile is ``Conflict``, one that was purged ``NotFound``: it is never made again.
        """
        if not isinstance(session, Session):
            raise Invalid(f"a session that this store gave is saved, not {type(session).__name__}")
        self._read(sessions.get, self.scope, session.id)  # of this store and scope?
        if session.refresh().deleted:
            raise Conflict("this session is in the trash; restore it first", found="trash")

    def create_session(
        self,
        name: str | None = None,
        *,
        agent: str = "main",
        workspace: str | PathLike[str] | None = None,
        idempotency_key: str | None = None,
        **fields: Unpack[NewSession],
    ) -> Session:
        """Start a session; a name that a visible session of this agent and workspace has is ``Conflict``."""
        made = _fields(name, agent, workspace, fields, self._clock.now_ms())
        return self._create(made, idempotency_key)

    def _create(self, made: sessions.SessionFields, key: str | None, by: Session | None = None) -> Session:
        """Make a session, once per key; ``by`` is who spawns it and must still hold its lease if it had one."""
        held = None if by is None else by._held
        given = [*made[:-2], *(["archived"] if made.archived else [])]  # as it was before there was that field
        call = self._call(key, [given, {**codec.decode(made.detail), "run_id": None}])
        try:
            found = self._write(new_sessions.create_once, self.scope, call, made, None if held is None else held.fence)
        except LeaseLost:
            if held is not None:
                held.lose()
            raise
        return self._session(*found)

    def _fixed(self, agent: str, rest: str, kind: str) -> Session:
        key = f"agent:{sessions.escape(agent)}:{rest}"
        made = sessions.SessionFields(
            agent, kind, key=key, detail=codec.encode({"run_id": new_id(self._clock.now_ms())})
        )
        return self._ensure(made)

    def _ensure(self, made: sessions.SessionFields) -> Session:
        """Find a session, or make it in the transaction that finds none; one that is there costs no write."""
        found = self._read(new_sessions.find, self.scope, made)
        if found is None:
            found = self._write(new_sessions.ensure, self.scope, made, now_ms=self._clock.now_ms())
        return self._session(*found)

    # ------------------------------------------------------------------ deleting

    def delete_session(self, session: str | Session) -> Operation | None:
        """Put a session into the trash, by id, key or name; one that is absent or there already is no error.

        A main, directory or cron session goes back to empty instead. ``undo`` brings everything back.
        """
        return self._hide(session, hidden=True)

    def restore_session(self, session: str | Session) -> Operation | None:
        """Take a session out of the trash, by its id; if its name is taken by then, it gets `` (2)`` behind it."""
        wanted = session.id if isinstance(session, Session) else arguments.name(session, what="session id")
        self._read(sessions.get, self.scope, wanted)
        return self._hide(session, hidden=False)

    def _hide(self, session: str | Session, *, hidden: bool) -> Operation | None:
        wanted, now_ms = _named(session), self._clock.now_ms()
        done = self._write_as(FREEING, moves.hide_named, self.scope, wanted, hidden=hidden, now_ms=now_ms)
        if done is None:
            return None
        if isinstance(session, Session):
            session._seen = done[0]
        self._made(done[1])
        return done[1]

    def purge_session(self, session: str | Session, *, include_forks: bool = False) -> Purged:
        """Erase a session for good, by id, key or name; this cannot be undone. Absent is no error.

        Entries that sessions forked from it need are kept and named, unless those are purged with it.
        """
        return self._write_as(
            FREEING,
            purge.purge_named,
            self.scope,
            _named(session),
            include_forks=include_forks,
            now_ms=self._clock.now_ms(),
        )


def _named(session: str | Session) -> str:
    """Return what a session is found by: its id, key or name."""
    return session.id if isinstance(session, Session) else arguments.name(session, what="session", most=10_000)


def _fields(
    name: str | None, agent: str, workspace: str | PathLike[str] | None, given: NewSession, now_ms: int
) -> sessions.SessionFields:
    """Check what a new session is given."""
    unknown = given.keys() - NewSession.__annotations__.keys()
    if unknown:
        raise TypeError(f"a session has no field {sorted(unknown)[0]!r}; put your own data into metadata")
    parent = given.get("parent")
    parent_id = parent.id if isinstance(parent, Session) else arguments.optional_name(parent, what="parent")
    label = arguments.optional_name(given.get("label"), what="label")
    kind = given.get("kind", "main")
    if kind not in KINDS:
        raise Invalid(f"a session is {', '.join(KINDS[:-1])} or {KINDS[-1]}, not {kind!r}")
    archived = given.get("archived", False)
    arguments.flag(archived, what="archived")
    detail: dict[str, Any] = {"run_id": new_id(now_ms), "parent_id": parent_id}
    for field in ("prompt", "model", "provider", "task"):
        value = given.get(field)
        detail[field] = None if value is None else arguments.text(value, what=field)
    detail["metadata"] = arguments.mapping(given.get("metadata") or {}, what="metadata")
    title = arguments.optional_name(given.get("title"), what="title")
    return sessions.SessionFields(
        agent=arguments.name(agent, what="agent"),
        kind=kind,
        name=arguments.optional_name(name, what="session name"),
        label=label,
        workspace=arguments.workspace(workspace),
        parent=parent_id,
        title=title or short_title(detail["prompt"] or "", _TITLE, ellipsis=False),
        tags=tuple(dict.fromkeys(arguments.tag(tag) for tag in arguments.many(given.get("tags") or (), what="tags"))),
        archived=archived,
        detail=codec.encode({field: value for field, value in detail.items() if value}),
    )
