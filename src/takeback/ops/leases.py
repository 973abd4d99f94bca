"""Leases: who runs a session now.

A lease has a token that grows with every holder. The holder passes its token with each write, and a write with an older
token is refused in the transaction that would have stored it. So the writes of two holders never interleave, however
long a process pauses and whatever its clock says. A change of holder is recorded as a change of the session, so a
writer that finds the session as it left it need not read the lease.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

from .. import presence
from ..errors import Corrupt, LeaseLost
from ..storage.base import Tx
from ..tables.sessions import LEASE, LeaseRow, SessionRow
from . import feed, sessions

P = ParamSpec("P")
T = TypeVar("T")

# A heartbeat takes no lock: it takes effect only if the lease is still the one that was read.
BEAT = """UPDATE lease SET beats = ?, beat_ms = ?, chk = ?
WHERE scope = ? AND session = ? AND token = ? AND beats = ? AND holder IS NOT NULL"""


class Fence(NamedTuple):
    """What a holder passes with each write: its token, and the last change of the session known to be its own."""

    token: int
    updated: int


def put(tx: Tx, lease: LeaseRow) -> LeaseRow:
    """Write a lease."""
    return LEASE.upsert(tx, lease)


def changed(tx: Tx, session: SessionRow, now_ms: int) -> SessionRow:
    """Record a change of holder as a change of the session, so that other writers check the lease again.

    One that is listed in the past stays there: running it to add more of its past must not bring it to the top.
    """
    position, rank = feed.record(
        tx, session, "lease", branch=session.branch, first=session.seq, last=session.seq, now_ms=now_ms
    )
    happened_ms = session.updated_ms if session.past else None
    place = sessions.placed(session, position, rank, now_ms, happened_ms=happened_ms)
    return sessions.write(tx, session, **{**place, "updated_ms": max(place["updated_ms"], session.updated_ms)})


def require(tx: Tx, session: SessionRow, fence: Fence) -> None:
    """Raise ``LeaseLost`` if the writer no longer holds the session."""
    if session.updated == fence.updated:
        return
    lease = sessions.find_lease(tx, session)
    if lease is None or lease.token != fence.token or lease.holder is None:
        raise LeaseLost(lost(lease))


def fenced(
    tx: Tx,
    scope: str,
    session_id: str,
    fence: Fence,
    op: Callable[Concatenate[Tx, P], T],
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """Run a write of a lease holder; raise ``LeaseLost`` if somebody else has taken the session over."""
    require(tx, sessions.get(tx, scope, session_id), fence)
    return op(tx, *args, **kwargs)


def require_or(tx: Tx, session: SessionRow, fence: Fence, lost: Callable[[], None] | None) -> None:
    """Check a lease as ``require`` does; call ``lost`` before the error if somebody else has taken the session over."""
    try:
        require(tx, session, fence)
    except LeaseLost:
        if lost is not None:
            lost()
        raise


def lost(lease: LeaseRow | None) -> str:
    """Return the message for a lease that was lost: who has the session now."""
    if lease is None or lease.holder is None:
        return "the lease of this session was given up or taken over; enter the session again to go on"
    return f"{presence.decode(lease.holder)} took this session over; enter it again to go on once it is free"


def is_gone(lease: LeaseRow, now_ms: int) -> bool:
    """Whether the holder of a lease no longer exists, as far as this machine can tell."""
    return lease.holder is not None and presence.seems_gone(presence.decode(lease.holder), lease.beat_ms, now_ms)


def beat_all(tx: Tx, held: Sequence[LeaseRow], now_ms: int) -> list[bool]:
    """Write a heartbeat for each lease; False for one that somebody else now holds."""
    return [_beaten(tx, lease, now_ms) for lease in held]


def _beaten(tx: Tx, lease: LeaseRow, now_ms: int) -> bool:
    try:
        return beat(tx, lease, now_ms) is not None
    except Corrupt:
        return True  # damage is for verify to report, not a reason to stop the run


def beat(tx: Tx, lease: LeaseRow, now_ms: int) -> LeaseRow | None:
    """Write a heartbeat; return None if the lease has another holder by now."""
    found = LEASE.get(tx, lease.scope, lease.session)
    if found is None or found.token != lease.token or found.holder is None:
        return None
    new = found._replace(beats=found.beats + 1, beat_ms=now_ms)
    tx.run(BEAT, (new.beats, new.beat_ms, LEASE.check(new), new.scope, new.session, new.token, found.beats))
    return new
