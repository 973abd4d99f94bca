"""Leases: who runs a session now.

A lease has a token that grows with every holder. Whoever holds one names its token with each write, and a write with
an older token is refused in the transaction that would have stored it: two holders never interleave, whatever
their clocks and pauses do. A change of holder is a change of the session, so a writer that finds the session as
it left it need not look at the lease at all. Whether a holder is alive is not for this module to say.
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import LeaseLost
from ..presence import decode
from ..storage.base import Tx
from ..tables.sessions import LEASE, LeaseRow, SessionRow
from . import feed, sessions

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


def lost(lease: LeaseRow | None) -> str:
    """Return who has a session now that was ours."""
    if lease is None or lease.holder is None:
        return "the lease of this session was given up or taken over; enter the session again to go on"
    return f"{decode(lease.holder)} took this session over; enter it again to go on once it is free"


def beat(tx: Tx, lease: LeaseRow, now_ms: int) -> LeaseRow | None:
    """Leave a sign of life; return None if the lease has another holder by now."""
    found = LEASE.get(tx, lease.scope, lease.session)
    if found is None or found.token != lease.token or found.holder is None:
        return None
    new = found._replace(beats=found.beats + 1, beat_ms=now_ms)
    tx.run(BEAT, (new.beats, new.beat_ms, LEASE.check(new), new.scope, new.session, new.token, found.beats))
    return new
