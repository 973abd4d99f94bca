"""Copying a store into another: the records of one, put into the other.

An interruption at any moment leaves nothing half-done in sight, and calling again goes on where it ended. What is in
conflict is left out until the end, and then it is an error.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any, TypeAlias, TypeVar

from ..errors import Conflict, Corrupt, Invalid, Unsupported
from ..model import words
from ..model.copied import Amounts, Copied, Copying
from ..records import stream
from ..records.choice import choose
from ..records.sink import Sink
from ..records.source import Source
from ..storage.base import Backend, Op
from . import arguments
from .open import open_store
from .session import Session
from .store import Store

T = TypeVar("T")
Place: TypeAlias = "Store | str | os.PathLike[str]"
Progress: TypeAlias = Callable[[Copying], Any]

_PAUSE = 0.1  # between two calls of progress
_DAMAGED = "the source is damaged"
_REPAIR = "Repair the source first (Store.repair) and copy what that makes"
_PHASES = {
    stream.Agent: "agents",
    stream.Blob: "content",
    stream.Session: "entries",
    stream.Operation: "operations",
}


def copy(
    src: Place,
    dst: Place,
    *,
    sessions: Iterable[Session | str] | None = None,
    subagents: bool = True,
    progress: Progress | None = None,
) -> Copied:
    """Copy everything of one store into another, between any two engines; both may be in use.

    A handle of one scope copies that scope alone, any other all scopes. A URL is opened and closed again, the source
    only to read. What is there already is not copied again: an interrupted call goes on when it is made again, and one
    made later brings what is new. A session shows up when it is whole and every hash of it was computed again. What
    was changed in both stores, or whose name is taken, raises ``Conflict``, once everything else is copied; damage of
    the source raises ``Corrupt``. What is under way - leases, answers being written, messages that wait - stays behind.

    With ``sessions``, handles or ids of the source's scope, only those go over, with their sub-agents unless
    ``subagents`` is False, and with what they cannot be without: the sessions they were forked from, those above them,
    their agents. An agent that says something else in the destination stays there as it is, which ``left_out`` says.
    """
    wanted = None if sessions is None else [_session_id(each) for each in arguments.many(sessions, what="sessions")]
    arguments.flag(subagents, what="subagents")
    with ExitStack() as stack:
        source, target = _opened(src, stack, read_only=True), _opened(dst, stack, read_only=False)
        _require_two(source, target)
        run = _Copy(_seen_by(source), target._backend.scoped(None), target._clock.now_ms, progress)
        return run.run(source_of(source, wanted, subagents=subagents, read=run.read), chosen=wanted is not None)


def source_of(
    store: Store, wanted: Iterable[str] | None, *, subagents: bool, read: Callable[[Op[Any]], Any] | None = None
) -> Source:
    """Return the records of a store's scope, or of what was chosen of it; of all scopes for a handle without one."""
    reader = read or _seen_by(store).read
    if wanted is None:
        return Source(reader, scope=store.scope or None)
    return Source(reader, choice=reader(lambda tx: choose(tx, store.scope, wanted, subagents=subagents)))


def _seen_by(store: Store) -> Backend:
    """Return what a handle may look into: its scope, or all of them if it has none."""
    return store._backend if store.scope else store._backend.scoped(None)


def _session_id(given: Session | str) -> str:
    return given.id if isinstance(given, Session) else arguments.name(given, what="session id")


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
    """A copy under way: reads one store, puts into the other, and says how far it is."""

    def __init__(self, source: Backend, target: Backend, now_ms: Callable[[], int], progress: Progress | None) -> None:
        self._from, self._to = source, target
        self._now_ms = now_ms
        self._progress = progress
        self._phase, self._told_at, self._started = "", 0.0, time.monotonic()
        self._totals = dict[str, int]()
        self._sink: Sink | None = None

    def read(self, op: Op[T]) -> T:
        """Look into the source; damage says what to do about it."""
        try:
            return self._from.read(op)
        except Corrupt as error:
            raise _damaged(error) from error

    def run(self, source: Source, *, chosen: bool) -> Copied:
        """Put every record of a source."""
        # Chosen sessions come to a store that has agents of its own; everything of a store does not.
        self._sink = sink = Sink(
            self._to, now_ms=self._now_ms, read=self.read, leave_agents=chosen, tell=lambda: self._tell()
        )
        self._totals = source.totals()
        self._enter("agents")
        for record in _blamed(source.records(sink)):
            self._enter(_PHASES.get(type(record), self._phase))
            sink.put(record)
        sink.flush()
        self._enter("sessions")
        for record in _blamed(source.endings()):
            sink.put(record)
        sink.close()
        if sink.conflicts:
            raise _joined(sink.conflicts)
        self._enter("done")
        seconds, there = time.monotonic() - self._started, Amounts(**sink.already)
        return Copied(**sink.done, already=there, seconds=seconds, left_out=tuple(sink.left_out))

    def _enter(self, phase: str) -> None:
        before, self._phase = self._phase, phase
        if phase != before:
            self._tell(now=True)

    def _tell(self, *, now: bool = False) -> None:
        """Call back, not too often: ``now`` if a phase begins."""
        clock = time.monotonic()
        if self._progress is None or self._sink is None or not (now or clock - self._told_at > _PAUSE):
            return
        self._told_at = clock
        counted = Counter(self._sink.done) + Counter(self._sink.already)
        done = {name: min(counted[name], total) for name, total in self._totals.items()}
        self._progress(Copying(self._phase, **done, **{f"{name}_total": n for name, n in self._totals.items()}))


def _blamed(records: Iterator[stream.Record]) -> Iterator[stream.Record]:
    """Yield records; damage of the source says what to do about it."""
    try:
        yield from records
    except Corrupt as error:
        if str(error).startswith(_DAMAGED):
            raise
        raise _damaged(error) from error


def _damaged(error: Corrupt) -> Corrupt:
    return Corrupt(f"{_DAMAGED}: {error}. {_REPAIR}", what=error.what)


def _joined(conflicts: list[Conflict]) -> Conflict:
    first, *others = conflicts
    names = ", ".join(str(each.found) for each in others[:10])
    more = f" (and {words.count(len(others), 'conflict')} more: {names})" if others else ""
    return Conflict(f"{first}{more}", expected=first.expected, found=first.found)
