"""Points of a session as callers pass them, checked; ``ops.points`` finds them in the store."""

from __future__ import annotations

from typing import Any

from ..errors import Invalid
from ..model.branch import Branch
from ..model.checkpoint import Checkpoint
from ..model.message import Message
from ..model.session import Head
from ..ops.points import Target
from . import arguments

Point = int | str | Message | Checkpoint | Branch | Head


def target_of(point: Point) -> Target:
    """Check a point: a checkpoint, its name or id, a message, a seq, a branch (its tip) or a head."""
    if isinstance(point, Message):
        if not point.seq:
            raise Invalid("this message is still being written and has no position; wait until its stream is finished")
        return Target(point.seq, point.branch)
    if isinstance(point, Checkpoint):
        return Target(point.head.seq, point.head.branch, anywhere=True)
    if isinstance(point, Head):
        seq, branch = arguments.whole(point.seq, what="a point"), arguments.name(point.branch, what="branch")
        return Target(seq, branch, anywhere=True)
    if isinstance(point, Branch):
        return Target(tip_of=point.id)
    if isinstance(point, str):
        return Target(checkpoint=arguments.name(point, what="a point"))
    return Target(arguments.whole(point, what="a point"))


def optional_target(point: Point | None) -> Target | None:
    """Check a point that may be left out."""
    return None if point is None else target_of(point)


def request_of(point: Point) -> Any:
    """Describe a point, for comparing two requests with the same idempotency key."""
    if isinstance(point, Head):
        return [*point]
    return point if isinstance(point, int | str) else point.id
