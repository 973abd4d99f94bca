"""Copying a store into another: the records of one, put into the other.

An interruption at any moment leaves nothing half-done in sight, and calling again continues where it ended. Conflicts
are set aside, and raised once everything else is copied.
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
from ..records.choice import chooser
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

_PAUSE = 0.1  # seconds between two calls of progress
_DAMAGED = "the source is damaged"
_REPAIR = "Repair the source first (Store.repair) and copy the repaired store"
_PHASES = {
    stream.AgentRecord: "agents",
    stream.Blob: "content",
    stream.SessionRecord: "entries",
    stream.OperationRecord: "operations",
}


def copy(
    src: Place,
    dst: Place,
    *,
    sessions: Iterable[Session | str] | None = None,
    subagents: bool = True,
    progress: Progress | None = None,
) -> Copied:
    """Copy everything in one store into another, between any two engines; both may be in use.

    A handle bound to one scope copies only that scope, any other all scopes. A URL is opened and closed again, the
    source read-only. What is already there is not copied again: call again after an interruption to continue, or later
    to bring over what is new. A session appears once it is complete and each of its hashes was recomputed. A session
    that was changed in both stores, or whose name is taken, raises ``Conflict``, once everything else is copied; damage
    in the source raises ``Corrupt``. Leases, unfinished answers and unreceived messages stay behind. A timeline of a
    workspace that went on in both stores stays as it is in each, and ``left_out`` says so.

    Documents come with a whole store or a scope. One that was put in both stores raises ``Conflict`` likewise, unless
    the destination's came by a copy and was not put since.

    With ``sessions`` (handles or ids in the source's scope) only those are copied, with their sub-agents unless
    ``subagents`` is False, and with what they depend on: the sessions they were forked from, those above them, their
    agents, and the scans of workspaces that were made for them; no documents. An agent that differs in the destination
    stays as it is there, and ``left_out`` says so.
    """
    wanted = None if sessions is None else [_session_id(each) for each in arguments.many(sessions, what="sessions")]
    arguments.flag(subagents, what="subagents")
    with ExitStack() as stack:
        source, target = _opened(src, stack, read_only=True), _opened(dst, stack, read_only=False)
        _require_two(source, target)
        return _copied(source, target, wanted, progress, subagents=subagents)


def copy_file(judged: Store, target: Store, sessions: Iterable[str]) -> Copied:
    """Copy what a file held: its sessions, and those of its documents whose names are not taken here."""
    return _copied(judged, target, sessions, None, subagents=False, documents=True)


def _copied(
    source: Store,
    target: Store,
    wanted: Iterable[str] | None,
    progress: Progress | None,
    *,
    subagents: bool,
    documents: bool = False,
) -> Copied:
    run = _Copy(_seen_by(source), target._backend.scoped(None), target._clock.now_ms, progress)
    records = source_of(source, wanted, subagents=subagents, documents=documents, read=run.read)
    return run.run(records, chosen=wanted is not None)


def source_of(
    store: Store,
    wanted: Iterable[str] | None,
    *,
    subagents: bool,
    documents: bool = False,
    read: Callable[[Op[Any]], Any] | None = None,
) -> Source:
    """Return the records of a store's scope, or of the chosen sessions; of all scopes for an unscoped handle."""
    reader = read or _seen_by(store).read
    if wanted is None:
        return Source(reader, scope=store.scope or None)
    return Source(reader, choice=reader(chooser(store.scope, wanted, subagents=subagents, documents=documents)))


def _seen_by(store: Store) -> Backend:
    """Return what a handle may read: its scope, or all of them if it has none."""
    return store._backend if store.scope else store._backend.scoped(None)


def _session_id(given: Session | str) -> str:
    return given.id if isinstance(given, Session) else arguments.name(given, what="session id")


def _opened(place: Place, stack: ExitStack, *, read_only: bool) -> Store:
    if isinstance(place, Store):
        return place
    if not isinstance(place, str | os.PathLike):
        raise Invalid(f"a store must be a path, a URL or an open Store, not {type(place).__name__}")
    return stack.enter_context(open_store(place, read_only=read_only))


def _require_two(source: Store, target: Store) -> None:
    one, two = source._backend.scoped(None), target._backend.scoped(None)
    path = getattr(one, "path", None)
    if one is two or (path is not None and path == getattr(two, "path", None)):
        raise Invalid("source and destination are the same store; choose another destination")
    if two.capabilities.read_only:
        raise Unsupported("the destination was opened read-only; open it for writing", capability="write")


class _Copy:
    """A copy in progress: reads one store, writes into the other, and reports progress."""

    def __init__(self, source: Backend, target: Backend, now_ms: Callable[[], int], progress: Progress | None) -> None:
        self._from, self._to = source, target
        self._now_ms = now_ms
        self._progress = progress
        self._phase, self._told_at, self._started = "", 0.0, time.monotonic()
        self._totals = dict[str, int]()
        self._sink: Sink | None = None

    def read(self, op: Op[T]) -> T:
        """Read from the source; if it is damaged, the error says what to do."""
        try:
            return self._from.read(op)
        except Corrupt as error:
            raise _damaged(error) from error

    def run(self, source: Source, *, chosen: bool) -> Copied:
        """Copy every record of a source."""
        # Chosen sessions may go to a store with agents of its own; a whole store must bring its agents along.
        self._sink = sink = Sink(self._to, now_ms=self._now_ms, read=self.read, leave=chosen, tell=lambda: self._tell())
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
        """Report progress, not too often; always if ``now``, as when a phase begins."""
        clock = time.monotonic()
        if self._progress is None or self._sink is None or not (now or clock - self._told_at > _PAUSE):
            return
        self._told_at = clock
        counted = Counter(self._sink.done) + Counter(self._sink.already)
        done = {name: min(counted[name], total) for name, total in self._totals.items()}
        self._progress(Copying(self._phase, **done, **{f"{name}_total": n for name, n in self._totals.items()}))


def _blamed(records: Iterator[stream.Record]) -> Iterator[stream.Record]:
    """Yield records; if the source is damaged, the error says what to do."""
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
