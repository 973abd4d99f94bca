"""Copying a store into another: the loop over pages, each read in one store and written into the other by itself.

Agents come first, then content, then the entries of all sessions, in the order in which the sessions were made, where
nobody sees them; then each session is compared with its original and shown, in the order in which they last changed.
So an interruption at any moment leaves nothing half-done in sight, and calling again goes on where it ended. What is
in conflict is left out until the end, and then it is an error.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TypeAlias

from ..errors import Invalid, Unsupported
from ..model import words
from ..model.copied import Copied
from ..ops.transfer import agents, base, choice, records, soundness
from ..ops.transfer.choice import Choice
from ..tables.agents import AGENT
from ..tables.sessions import SESSION
from . import check
from .copying_base import Progress, Stores
from .copying_content import Contents
from .copying_sessions import Sessions
from .open import open_store
from .session import Session
from .store import Store

Place: TypeAlias = "Store | str | os.PathLike[str]"

TOTALS = "SELECT (SELECT count(*) FROM session), (SELECT count(*) FROM entry)"
CHECKPOINTS = "SELECT count(*) FROM agent_checkpoint"
SCOPES = "SELECT DISTINCT scope FROM idempotency WHERE session = 0 ORDER BY scope"

_KEYS = 200


def copy(
    src: Place,
    dst: Place,
    *,
    sessions: Iterable[Session | str] | None = None,
    subagents: bool = True,
    progress: Progress | None = None,
) -> Copied:
    """Copy everything of one store into another, all scopes, between any two engines; both may be in use.

    A URL is opened and closed again, the source only to read. What is there already is not copied again: an interrupted
    call goes on when it is made again, and one made later brings what is new. A session shows up when it is whole and
    was compared with its original, entry by entry. What was changed in both stores, or whose name is taken, raises
    ``Conflict``, once everything else is copied; damage of the source raises ``Corrupt``. Checkpoints of agents are not
    copied: they name places of one store.

    With ``sessions``, handles or ids of the source's scope, only those go over, with their sub-agents unless
    ``subagents`` is False, and with what they cannot be without: the sessions they were forked from, those above them,
    their agents. An agent that says something else in the destination stays there as it is, which ``left_out`` says.
    """
    wanted = None if sessions is None else [_session_id(each) for each in check.many(sessions, what="sessions")]
    check.flag(subagents, what="subagents")
    with ExitStack() as stack:
        source, target = _opened(src, stack, read_only=True), _opened(dst, stack, read_only=False)
        _require_two(source, target)
        both = source._backend.scoped(None), target._backend.scoped(None)
        stores = Stores(*both, target._clock, progress)
        if wanted is None:
            return _Copy(stores).run()
        chosen = stores.read(lambda tx: choice.choose(tx, source.scope, wanted, subagents=subagents))
        return _Copy(stores, chosen).run()


def _session_id(given: Session | str) -> str:
    return given.id if isinstance(given, Session) else check.name(given, what="session id")


def _opened(place: Place, stack: ExitStack, *, read_only: bool) -> Store:
    if isinstance(place, Store):
        return place
    if not isinstance(place, str | os.PathLike):
        raise Invalid(f"a store is named by a path or URL, or is an open Store, not {type(place).__name__}")
    return stack.enter_context(open_store(place, read_only=read_only))


def _require_two(source: Store, target: Store) -> None:
    one, two = source._backend.scoped(None), target._backend.scoped(None)
    path = getattr(one, "path", None)
    if one is two or (path is not None and path == getattr(two, "path", None)):
        raise Invalid("source and destination are the same store; name another one to copy to")
    if two.capabilities.read_only:
        raise Unsupported("the destination was opened read-only", capability="write")


class _Copy:
    """A copy under way."""

    def __init__(self, stores: Stores, chosen: Choice | None = None) -> None:
        self._stores = stores
        self._chosen = chosen
        self._contents = Contents(stores)
        self._sessions = Sessions(stores, chosen)
        # Chosen sessions come to a store that has agents of its own; everything of a store does not.
        self._attempt_agent = stores.attempt if chosen is None else stores.attempt_or_leave

    def run(self) -> Copied:
        """Copy everything, phase after phase."""
        read, tell = self._stores.read, self._stores.tell
        read(soundness.require_rows)
        newest = read(lambda tx: base.newest(tx, SESSION))
        if self._chosen is None:
            total, entries = read(lambda tx: tx.one(TOTALS)) or (0, 0)
            self._stores.expect(sessions=total, entries=entries, bytes=self._contents.total())
        else:
            self._stores.expect(sessions=len(self._chosen.sids), entries=self._chosen.entries)
        tell("agents", now=True)
        self._copy_agents()
        tell("content", now=True)
        self._copy_contents()
        tell("entries", now=True)
        if self._chosen is None:
            self._copy_loose()
        self._sessions.stage(newest)
        tell("sessions", now=True)
        self._sessions.finish()
        tell("keys", now=True)
        self._copy_keys()
        if self._chosen is None:
            self._leave_checkpoints()
        tell("done", now=True)
        return self._stores.result()

    def _copy_contents(self) -> None:
        if self._chosen is None:
            self._contents.copy_all()
            return
        hashes = choice.contents(self._stores.read, self._chosen)
        self._stores.expect(bytes=choice.size(self._stores.read, self._chosen.scope, hashes))
        self._contents.copy_these(self._chosen.scope, hashes)

    # ------------------------------------------------------------------ agents and what belongs to nothing

    def _copy_agents(self) -> None:
        """Begin all new agents, then finish them: those in the trash first, since they leave their id to others."""
        upto = self._stores.read(lambda tx: base.newest(tx, AGENT))
        waiting = list[tuple[bool, int, str]]()
        for rows in base.pages_of(self._stores.read, AGENT, upto, base.ROWS):
            for row in rows:
                if not base.is_staged_agent(row) and (self._chosen is None or row.aid in self._chosen.aids):
                    self._attempt_agent(lambda: self._begin_agent(row.scope, row.aid, waiting))  # noqa: B023
        for _, aid, scope in sorted(waiting):
            self._attempt_agent(lambda: self._finish_agent(scope, aid))  # noqa: B023

    def _begin_agent(self, scope: str, aid: int, waiting: list[tuple[bool, int, str]]) -> None:
        ours = self._stores.read(lambda tx: agents.of(tx, scope, aid))
        step = self._stores.look(lambda tx: agents.decide(tx, ours, self._stores.read))
        if step is agents.Step.NOTHING:
            self._stores.count(already=True, agents=1, operations=ours.operations.total)
            return
        if step is agents.Step.BEGIN:
            self._stores.write(scope, lambda tx: agents.begin(tx, ours))
        waiting.append((ours.agent.hidden == 0, aid, scope))

    def _finish_agent(self, scope: str, aid: int) -> None:
        ours = self._stores.read(lambda tx: agents.of(tx, scope, aid))
        upto = ours.agent.version
        at = self._stores.look(lambda tx: agents.reached(tx, ours))
        rows = self._stores.read(lambda tx: agents.versions(tx, ours.agent, at, upto))
        while rows and rows[-1].version < upto:
            self._stores.write(scope, lambda tx: agents.put_versions(tx, ours, rows))  # noqa: B023
            at = rows[-1].version
            rows = self._stores.read(lambda tx: agents.versions(tx, ours.agent, at, upto))  # noqa: B023
        done = self._stores.write(scope, lambda tx: agents.finish(tx, ours, rows, self._stores.read), alone=True)
        self._stores.count(agents=1, operations=done)

    def _copy_loose(self) -> None:
        for rows in records.loose_pages(self._stores.read):
            known = self._stores.look(lambda tx: records.known_loose(tx, rows))  # noqa: B023
            for row in rows:
                if row.id not in known:
                    self._stores.write(row.scope, lambda tx: records.put_loose(tx, row))  # noqa: B023

    def _leave_checkpoints(self) -> None:
        (count,) = self._stores.read(lambda tx: tx.one(CHECKPOINTS)) or (0,)
        if count:
            said = words.count(count, "checkpoint")
            self._stores.left_out.append(f"{said} of agents: they name places of the store that they were taken in")

    # ------------------------------------------------------------------ idempotency keys of the store

    def _copy_keys(self) -> None:
        for (scope,) in self._stores.read(lambda tx: tx.all(SCOPES)):
            if self._chosen is not None and scope != self._chosen.scope:
                continue
            left_out, waiting = 0, list[records.Key]()
            for key in records.store_keys(self._stores.read, scope):
                about = choice.is_about(self._chosen, key.row)
                if about and not self._stores.look(lambda tx: records.has_store_key(tx, key)):  # noqa: B023
                    waiting.append(key)
                if len(waiting) >= _KEYS:
                    left_out += self._put_keys(scope, waiting)
            left_out += self._put_keys(scope, waiting)
            self._stores.leave_keys(left_out, f"the store, scope {scope!r}")

    def _put_keys(self, scope: str, waiting: list[records.Key]) -> int:
        """Write keys; return how many stand for what is not in the destination."""
        found = waiting.copy()
        waiting.clear()
        if not found:
            return 0
        put = self._stores.write(scope, lambda tx: [records.put_key(tx, key, 0) for key in found])
        return sum(done is None for done in put)
