"""Points of a session as callers name them: an entry of the path or of a branch, a tip, a checkpoint.

This module only finds them and reads from there; ``moves`` moves the head.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import NotFound
from ..storage.base import Tx
from . import branches, log, sessions
from .sessions import SessionRow


class Target(NamedTuple):
    """A requested point: a seq of the head's path, or with ``uid`` the entry of that branch.

    ``tip_of`` names a branch and ``checkpoint`` a checkpoint instead; both are resolved in the transaction.
    """

    seq: int = 0
    uid: str | None = None
    anywhere: bool = False  # a checkpoint's point need not be on the path of the head
    attached: bool = False  # at the tip of the branch, to continue it
    at_head: bool = False  # where the session is now
    at_tip: bool = False  # wherever the branch of ``uid`` ends now
    tip_of: str = ""
    checkpoint: str = ""


def located(tx: Tx, session: SessionRow, target: Target) -> Target:
    """Find the entry that a branch or a checkpoint stands for."""
    if target.at_head:
        return Target(session.seq, session.uid, anywhere=True)
    if target.tip_of:
        uid, seq, _ = tip_of(tx, session, target.tip_of)
        return Target(seq, uid, anywhere=True, attached=target.attached)
    if target.checkpoint:
        from . import checkpoint_rows  # imported only by those who name a checkpoint

        row = checkpoint_rows.get(tx, session, target.checkpoint)
        return Target(row.seq, checkpoint_rows.seen_from(tx, session, row).uid, anywhere=True)
    if target.at_tip and target.uid is not None:
        branch = branches.find(tx, session.scope, session.sid, target.uid)
        return target._replace(seq=_tip(session, branch), at_tip=False)
    return target


def _tip(session: SessionRow, row: branches.BranchRow) -> int:
    return session.seq if row.bid == session.branch and session.attached else row.tip_seq


def tip_of(tx: Tx, session: SessionRow, branch: str) -> list[Any]:
    """Describe a head at the tip of a branch."""
    row = branches.find(tx, session.scope, session.sid, branch)
    if row.hidden:
        raise NotFound(f"branch {branch!r} was removed by an undo; redo brings it back")
    return [row.uid, _tip(session, row), 1]


def point_of(tx: Tx, session: SessionRow, target: Target | None) -> tuple[log.Point, branches.BranchRow]:
    """Find a point, by default the head, and the branch through which its path runs."""
    origin = branches.get(tx, session.scope, session.branch)
    if target is None:
        return log.point(tx, session, session.seq), origin
    place = located(tx, session, target)
    if place.anywhere and place.uid is not None:
        origin = branches.find(tx, session.scope, session.sid, place.uid)
        return log.point_on(tx, session.scope, origin, place.seq), origin
    return log.place_of(tx, session, place.seq, place.uid), origin


def seen_from(tx: Tx, session: SessionRow, target: Target | None) -> SessionRow:
    """Return a session as it was at a point, by default as it is now."""
    if target is None:
        return session
    point, origin = point_of(tx, session, target)
    return sessions.standing_at(session, origin, point.seq, point.numbers)
