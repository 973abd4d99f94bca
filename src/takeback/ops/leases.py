"""Leases: who runs a session now.

A lease has a token that grows with every holder. Whoever holds one names its token with each write, and a write with
an older token is refused in the transaction that would have stored it: two holders never interleave, whatever
their clocks and pauses do. A change of holder is a change of the session, so a writer that finds the session as
it left it need not look at the lease at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

from ..errors import Corrupt, LeaseLost
from ..presence import decode, seems_gone
from ..storage.base import Tx
from ..tables.sessions import LEASE, LeaseRow, SessionRow
from . import feed, sessions

P = ParamSpec("P")
T = TypeVar("T")

# A beat locks nothing: it counts only if the lease is still the one that was read.
BEAT = """UPDATE lease SET beats = ?, beat_ms = ?, chk = ?
WHERE scope = ? AND session = ? AND token = ? AND beats = ? AND holder IS NOT NULL"""


class Fence(NamedTuple):
    """What a holder says with each write: its token, and the last change of the session that it knows to be its own."""

    token: int
    updated: int


def put(tx: Tx, lease: LeaseRow) -> LeaseRow:
    """Write a lease."""
    return LEASE.upsert(tx, lease)


def changed(tx: Tx, session: SessionRow, now_ms: int) -> SessionRow:
    """Make a change of holder a change of the session: writers that did not see it have to look."""
    position, rank = feed.record(
        tx, session, "lease", branch=session.branch, first=session.seq, last=session.seq, now_ms=now_ms
    )
    return sessions.write(tx, session, updated=position, updated_ms=max(now_ms, session.updated_ms), rank=rank)


def require(tx: Tx, session: SessionRow, fence: Fence) -> None:
    """Raise ``LeaseLost`` for a write of somebody who does not hold the session any more."""
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
    """Run a write of somebody who holds a session, unless somebody else does by now."""
    require(tx, sessions.get(tx, scope, session_id), fence)
    return op(tx, *args, **kwargs)


def lost(lease: LeaseRow | None) -> str:
    """Return who has a session now that was ours."""
    if lease is None or lease.holder is None:
        return "the lease of this session was given up or taken over; enter the session again to go on"
    return f"{decode(lease.holder)} took this session over; enter it again to go on once it is free"


def is_gone(lease: LeaseRow, now_ms: int) -> bool:
    """Whether the holder of a lease no longer exists, as far as this machine can tell."""
    return lease.holder is not None and seems_gone(decode(lease.holder), lease.beat_ms, now_ms)


def beat_all(tx: Tx, held: Sequence[LeaseRow], now_ms: int) -> list[bool]:
    """Leave a sign of life for each lease; False for one that somebody else has."""
    return [_beaten(tx, lease, now_ms) for lease in held]


def _beaten(tx: Tx, lease: LeaseRow, now_ms: int) -> bool:
    try:
        return beat(tx, lease, now_ms) is not None
    except Corrupt:
        return True  # a damaged one is for verify to report


def beat(tx: Tx, lease: LeaseRow, now_ms: int) -> LeaseRow | None:
    """Leave a sign of life; return None if the lease has another holder by now."""
    found = LEASE.get(tx, lease.scope, lease.session)
    if found is None or found.token != lease.token or found.holder is None:
        return None
    new = found._replace(beats=found.beats + 1, beat_ms=now_ms)
    tx.run(BEAT, (new.beats, new.beat_ms, LEASE.check(new), new.scope, new.session, new.token, found.beats))
    return new
