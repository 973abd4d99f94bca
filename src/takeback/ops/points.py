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
        return _named(tx, session, target)
    if target.at_tip and target.uid is not None:
        branch = branches.find(tx, session.scope, session.sid, target.uid)
        return target._replace(seq=tip(session, branch), at_tip=False)
    return target if target.anywhere else _anywhere(tx, session, target)


def _named(tx: Tx, session: SessionRow, target: Target) -> Target:
    """Find a checkpoint by its name or id, or else the tip of the branch of that name."""
    from . import checkpoint_rows  # imported only by those who name a checkpoint

    name = target.checkpoint
    row = checkpoint_rows.find(tx, session, name)
    if row is not None:
        return Target(row.seq, checkpoint_rows.seen_from(tx, session, row).uid, anywhere=True)
    if branches.find_by_name(tx, session.scope, session.sid, name) is None:
        raise NotFound(f"this session has no checkpoint and no branch {name!r}; checkpoints() and branches() list them")
    return located(tx, session, Target(tip_of=name, attached=target.attached))


def _anywhere(tx: Tx, session: SessionRow, target: Target) -> Target:
    """Let an entry that is not on the path of the head be found on the branch of the session whose path has it."""
    uid, seq = target.uid, target.seq
    if uid is None or not seq or log.is_on_path(tx, session, uid, seq):
        return target
    own = branches.find_by_uid(tx, session.scope, uid)
    if own is not None and own.session == session.sid and seq <= tip(session, own):
        return target._replace(anywhere=True)
    for row in branches.of_session(tx, session.scope, session.sid, session.branches):  # of the one it was forked from
        if seq <= row.fork_seq and branches.owner(tx, row, seq).uid == uid:
            return Target(seq, row.uid, anywhere=True, attached=target.attached)
    return target


def tip(session: SessionRow, row: branches.BranchRow) -> int:
    """Return the seq at which a branch of a session ends."""
    return session.seq if row.bid == session.branch and session.attached else row.tip_seq


def tip_of(tx: Tx, session: SessionRow, branch: str) -> list[Any]:
    """Describe a head at the tip of a branch."""
    row = branches.find(tx, session.scope, session.sid, branch)
    if row.hidden:
        raise NotFound(f"branch {branch!r} was removed by an undo; redo brings it back")
    return [row.uid, tip(session, row), 1]


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
