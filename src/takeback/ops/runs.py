"""Runs: taking a session's lease to work in it, and giving it back.

Whoever takes a session that its last holder never left first records what became of it: partial answers are sealed as
interrupted, running calls are lost, and the status becomes interrupted at that turn. All of that and the new lease are
one transaction, so it happens once, however many processes want the session.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from .. import presence
from ..model.status import ACTIVE, INTERRUPTED
from ..storage.base import Tx
from ..tables.sessions import LeaseRow, SessionRow
from . import entries, leases, sessions, statuses, streams
from .sessions import Whole


class TakenLease(NamedTuple):
    """A session with its new lease, and whether it had been used before."""

    session: SessionRow
    doc: bytes
    lease: LeaseRow
    resumed: bool


class Wanted(NamedTuple):
    """A request for a session: by whom, its last token when judged, why it may be taken, and abandoned streams."""

    holder: bytes
    last: tuple[int, bool]  # the last token, and whether somebody holds it
    why: str
    left: Collection[str]


def standing(tx: Tx, session: SessionRow, now_ms: int) -> tuple[LeaseRow | None, frozenset[str]]:
    """Return the lease of a session, and the streams whose writers are gone."""
    left = (stream.id for stream in streams.of_session(tx, session) if streams.is_left(tx, stream, now_ms))
    return sessions.find_lease(tx, session), frozenset(left)


def end(
    tx: Tx,
    scope: str,
    session_id: str,
    status: str,
    gone: int,
    left: Collection[str],
    *,
    now_ms: int,
    key: str | None,
    about: dict[str, Any],
) -> Whole:
    """Change the status of a session, after recording what a holder that is ``gone`` left behind."""
    session = entries.writable(tx, scope, session_id)
    if gone:
        session = settle(tx, session, gone, left, now_ms=now_ms)
    session = statuses.change(tx, session, status, now_ms=now_ms, key=key, **about)
    return sessions.with_rest(tx, session)


def take(tx: Tx, scope: str, session_id: str, wanted: Wanted, *, now_ms: int) -> TakenLease | None:
    """Take the lease of a session; return None if somebody else was first."""
    session = entries.writable(tx, scope, session_id)
    lease = sessions.find_lease(tx, session)
    if last(lease) != wanted.last:
        return None  # the decision was based on a lease that has changed since
    resumed = session.seq > 0 or lease is not None
    token = 0 if lease is None else lease.token
    session = _cut_streams(tx, session, token, wanted.left, now_ms)
    if wanted.last[1] and session.status == ACTIVE:
        session = statuses.change(tx, session, INTERRUPTED, now_ms=now_ms, why=wanted.why)
    elif wanted.last[1]:
        session = statuses.note_lost(tx, session, now_ms=now_ms)
    if session.status != ACTIVE:
        session = statuses.change(tx, session, ACTIVE, now_ms=now_ms)
    made = leases.put(tx, LeaseRow(scope, session.sid, token + 1, wanted.holder, now_ms, 0, now_ms))
    return TakenLease(leases.changed(tx, session, now_ms), sessions.detail(tx, session), made, resumed)


def _cut_streams(tx: Tx, session: SessionRow, token: int, left: Collection[str], now_ms: int) -> SessionRow:
    """Seal the streams of earlier holders, and those whose writers are gone."""
    for stream in streams.of_session(tx, session):
        if stream.id in left or 0 < stream.token <= token:
            session = streams.cut(tx, session, stream, now_ms=now_ms)
    return session


def settle(tx: Tx, session: SessionRow, gone: int, left: Collection[str], *, now_ms: int) -> SessionRow:
    """Record, once, that the holder with this token is gone, without taking the session."""
    lease = sessions.find_lease(tx, session)
    if lease is None or lease.holder is None or lease.token != gone:
        return session
    session = _cut_streams(tx, session, gone, left, now_ms)
    if session.status == ACTIVE:
        session = statuses.change(tx, session, INTERRUPTED, now_ms=now_ms, why="gone")
    leases.put(tx, lease._replace(holder=None))
    return leases.changed(tx, session, now_ms)


def last(lease: LeaseRow | None) -> tuple[int, bool]:
    """Return the last token of a session, and whether somebody holds it."""
    return (0, False) if lease is None else (lease.token, lease.holder is not None)


def _is_same(holder: bytes, other: bytes | None) -> bool:
    """Whether two records describe the same taking of a lease: of two that tried for one token, only one got it."""
    return other is not None and presence.decode(holder).id == presence.decode(other).id


class Leaving(NamedTuple):
    """A lease to give back: its session, the calls that ran under it, and how the run ended."""

    session_id: str
    held: LeaseRow
    running: list[str]
    end: dict[str, Any]


def leave_all(tx: Tx, scope: str, leaving: Sequence[Leaving], *, now_ms: int) -> list[bool]:
    """Release leases; False for one that somebody else holds by now."""
    return [
        leave(tx, scope, each.session_id, each.held, running=each.running, now_ms=now_ms, **each.end) is not None
        for each in leaving
    ]


def leave(
    tx: Tx,
    scope: str,
    session_id: str,
    held: LeaseRow,
    *,
    status: str | None,
    running: Collection[str],
    now_ms: int,
    **about: Any,
) -> SessionRow | None:
    """Release a lease with the status in which the run ended; return None if somebody else holds it by now.

    Without a status the run ended normally, and even the record of an earlier end is dropped. Calls that were
    ``running`` are recorded as lost.
    """
    session = sessions.find(tx, scope, session_id)
    if session is None:
        return None  # purged meanwhile
    lease = sessions.find_lease(tx, session)
    if lease is None or lease.holder is None or lease.token != held.token or not _is_same(lease.holder, held.holder):
        return None
    if status is None and session.status == ACTIVE:
        statuses.forget_end(tx, session)
    if status is not None and session.status == ACTIVE and not session.hidden:
        session = statuses.change(tx, session, status, now_ms=now_ms, **about)
    elif running and not session.hidden:
        session = statuses.note_lost(tx, session, now_ms=now_ms)
    leases.put(tx, lease._replace(holder=None))
    return leases.changed(tx, session, now_ms)
