"""Points of a session as they are asked for: an entry of the path, of a branch, the tip of one.

Here they are only found and looked from; ``moves`` goes there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import NotFound
from ..storage.base import Tx
from . import branches, log, sessions
from .sessions import SessionRow


class Place(NamedTuple):
    """A point to move to: a seq of the head's path, or with ``uid`` the entry of that branch."""

    seq: int
    uid: str | None = None
    anywhere: bool = False  # a checkpoint's point need not be on the path of the head
    attached: bool = False  # at the tip of the branch, and going on there


def tip_of(tx: Tx, session: SessionRow, branch: str) -> list[Any]:
    """Describe a head at the tip of a branch."""
    row = branches.find(tx, session.scope, session.sid, branch)
    if row.hidden:
        raise NotFound(f"branch {branch!r} was taken back by an undo; redo brings it back")
    seq = session.seq if row.bid == session.branch and session.attached else row.tip_seq
    return [row.uid, seq, 1]


def point_of(tx: Tx, session: SessionRow, place: Place | None) -> tuple[log.Point, branches.BranchRow]:
    """Find a point, the head without one, and the branch from which it is seen."""
    origin = branches.get(tx, session.scope, session.branch)
    if place is None:
        return log.point(tx, session, session.seq), origin
    if place.anywhere and place.uid is not None:
        origin = branches.find(tx, session.scope, session.sid, place.uid)
        return log.point_on(tx, session.scope, origin, place.seq), origin
    return log.place_of(tx, session, place.seq, place.uid), origin


def seen_from(tx: Tx, session: SessionRow, place: Place) -> SessionRow:
    """Return a session as it stood at a point."""
    point, origin = point_of(tx, session, place)
    return sessions.standing_at(session, origin, point.seq, point.numbers)
