"""Points of a session as callers give them: read here, found in the store by ``ops.points``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import Invalid
from ..model.branch import Branch
from ..model.checkpoint import Checkpoint
from ..model.message import Message
from ..model.session import Head
from ..ops import points
from ..ops.sessions import SessionRow
from ..storage.base import Tx
from . import arguments

Point = int | str | Message | Checkpoint | Branch | Head
FindPlace = Callable[[Tx, SessionRow], points.Place]


def place_of(point: Point) -> FindPlace:
    """Read a point as callers give it: a checkpoint, its name or id, a message, a seq, a branch's tip, a head."""
    if isinstance(point, Message):
        if not point.seq:
            raise Invalid("this message is still being written and has no place yet; wait until its stream is finished")
        place = points.Place(point.seq, point.branch)
    elif isinstance(point, Checkpoint):
        place = points.Place(point.head.seq, point.head.branch, anywhere=True)
    elif isinstance(point, Head):
        place = points.Place(
            arguments.whole(point.seq, what="a point"), arguments.name(point.branch, what="branch"), anywhere=True
        )
    elif isinstance(point, Branch):
        return _tip(point.id)
    elif isinstance(point, str):
        return _named(arguments.name(point, what="a point"))
    else:
        place = points.Place(arguments.whole(point, what="a point"))
    return lambda tx, session: place


def seen_at(point: Point) -> Callable[[Tx, SessionRow], SessionRow]:
    """Give a function that shows a session as it stood at a point."""
    find = place_of(point)
    return lambda tx, session: points.seen_from(tx, session, find(tx, session))


def request_of(point: Point) -> Any:
    """Describe a point for comparing two requests with one idempotency key."""
    if isinstance(point, Head):
        return [*point]
    return point if isinstance(point, int | str) else point.id


def _tip(branch: str) -> FindPlace:
    def find(tx: Tx, session: SessionRow) -> points.Place:
        uid, seq, _ = points.tip_of(tx, session, branch)
        return points.Place(seq, uid, anywhere=True)

    return find


def _named(name: str) -> FindPlace:
    from ..ops import checkpoint_rows

    def find(tx: Tx, session: SessionRow) -> points.Place:
        row = checkpoint_rows.get(tx, session, name)
        there = checkpoint_rows.seen_from(tx, session, row)
        return points.Place(row.seq, there.uid, anywhere=True)

    return find
